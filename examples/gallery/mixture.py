"""
A mixture against a single posterior
====================================

A single Gaussian posterior covers one mode of the weights.
``members=8`` makes the posterior a mixture of eight Gaussians with different initializations, in
one model: where there are no training rows, the members disagree.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import headstart as hs

torch.manual_seed(0)
x = torch.cat([torch.rand(200, 1) - 2, torch.rand(200, 1) + 1])
y = (2 * x).sin() + 0.1 * torch.randn_like(x)
grid = torch.linspace(-3, 3, 121).unsqueeze(1)

# %%
# Both are trained by the same lines.

predictions = {}
for members in (1, 8):
    net = nn.Sequential(nn.Linear(1, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 1))
    model, lik = hs.bayesianize(net, members=members), hs.Gaussian(noise_var=0.01)
    hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    hs.fit(model, lik, (x, y), steps=600, lr=1e-2, lr_schedule="cosine", progress=False, seed=0)
    predictions[members] = hs.predict(model, lik, grid, sampler="weights", seed=0)

# %%
# A mixture separates the disagreement between its members from the uncertainty within them.

single, mixture = predictions[1], predictions[8]
gap = grid[:, 0].abs() < 0.5
doubt = {
    "single": single.epistemic_std[gap],
    "mixture": mixture.epistemic_std[gap],
    "mixture, between its members": mixture.between_members_std[gap],
}
for name, std in doubt.items():
    print(f"standard deviation in the gap, {name}: {std.mean():.2f}")

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for axis, (members, pred) in zip(axes, predictions.items(), strict=True):
    mean, std = pred.mean[:, 0], pred.epistemic_std[:, 0]
    axis.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.3, lw=0)
    axis.plot(grid, mean)
    axis.plot(x, y, ".", color="black", ms=3)
    axis.set(title=f"{members} member{'s' if members > 1 else ''}", xlabel="x", ylim=(-4, 4))
for mean in mixture.member_mean:
    axes[1].plot(grid, mean, lw=0.6, color="C1")
plt.show()

# %%
# Your own data
# -------------
# Four members are a good first choice: a step costs one to two times that of a single posterior.
# The estimators for tables take ``members=4`` too.
# For classes, ``pred.mutual_information_between`` is the part that comes from disagreement.
