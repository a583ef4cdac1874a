"""
Regression with a gap
=====================

A net that was trained without rows between -1 and 1 should be uncertain there.
A single mean-field posterior is overconfident; :func:`headstart.condition` solves a read-out for
each of several draws of the hidden layers, in closed form, and is wider where there are no rows.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import headstart as hs

torch.manual_seed(0)
x = torch.cat([torch.rand(200, 1) - 2, torch.rand(200, 1) + 1])
y = (2 * x).sin() + 0.1 * torch.randn_like(x)

# %%
# Convert, initialize, train, then condition.

net = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1))
model, lik = hs.bayesianize(net), hs.Gaussian(noise_var=0.01)
hs.initialize_(model, "iblm", lik, (x, y), seed=0)
hs.fit(model, lik, (x, y), steps=600, lr=1e-2, lr_schedule="cosine", progress=False, seed=0)
conditioned = hs.condition(model, lik, (x, y))

# %%
# Both predict on a grid; ``sampler="weights"`` draws whole functions, which makes smooth curves.

grid = torch.linspace(-3, 3, 121).unsqueeze(1)
predictions = {
    "mean-field": hs.predict(model, lik, grid, sampler="weights", seed=0),
    "conditioned": conditioned.predict(grid, seed=0),
}
inside, gap = (grid.abs() > 1) & (grid.abs() < 2), grid.abs() < 0.5
widening = {
    name: float(pred.epistemic_std[gap].mean() / pred.epistemic_std[inside].mean())
    for name, pred in predictions.items()
}
for name, ratio in widening.items():
    print(f"{name}: {ratio:.1f} times as uncertain in the gap as among the rows")

# %%
# The bands are two standard deviations of the function (dark) and of a new observation (light).

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for axis, (name, pred) in zip(axes, predictions.items(), strict=True):
    place, mean = grid[:, 0], pred.mean[:, 0]
    for std, alpha in ((pred.std[:, 0], 0.2), (pred.epistemic_std[:, 0], 0.35)):
        axis.fill_between(place, mean - 2 * std, mean + 2 * std, alpha=alpha, color="C0", lw=0)
    axis.plot(place, mean, color="C0")
    axis.plot(x, y, ".", color="black", ms=3)
    axis.set(title=name, xlabel="x", ylim=(-4, 4))
plt.show()

# %%
# Your own data
# -------------
# Replace ``x`` and ``y`` by tensors of shape (rows, inputs) and (rows, targets), with inputs
# standardized.
# ``hs.Gaussian().standardize_(y)`` standardizes the targets and predicts in the units of y.
# Leave out ``steps``, ``lr`` and ``lr_schedule``: ``fit`` then chooses step sizes and trains until
# it no longer improves.
