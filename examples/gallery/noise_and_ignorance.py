"""
Aleatoric and epistemic uncertainty
===================================

A prediction is uncertain for two reasons.
The labels are noisy, which more rows would not change: the *aleatoric* part.
The net has seen too few rows, and more rows would help: the *epistemic* part.
:class:`headstart.Heteroscedastic` learns how the noise varies, and predictions report both parts.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import headstart as hs

torch.manual_seed(0)
x = torch.rand(800, 1) * 3 - 2
noise = 0.05 + 0.3 * torch.sigmoid(-4 * x)
y = (2 * x).sin() + noise * torch.randn_like(x)

# %%
# The net has two outputs for the one target: its mean, and the logarithm of its noise variance.

net = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 2))
model, lik = hs.bayesianize(net), hs.Heteroscedastic()
hs.initialize_(model, "iblm", lik, (x, y), seed=0)
hs.fit(model, lik, (x, y), steps=600, lr=1e-2, lr_schedule="cosine", progress=False, seed=0)

# %%
# Variances add up: ``std² = epistemic_std² + aleatoric_std²``.

grid = torch.linspace(-2, 2.5, 91).unsqueeze(1)
conditioned = hs.condition(model, lik, (x, y), draws=16)
pred = conditioned.predict(grid, seed=0)
print(pred)

figure, (above, below) = plt.subplots(
    2, 1, figsize=(7, 5), sharex=True, height_ratios=(2, 1), layout="constrained"
)
low, high = pred.interval(0.95)
above.fill_between(grid[:, 0], low[:, 0], high[:, 0], alpha=0.25, lw=0, label="95 % interval")
above.plot(grid, pred.mean, label="mean")
above.plot(x, y, ".", color="black", ms=2, label="rows")
above.legend(loc="lower left")
below.plot(grid, pred.aleatoric_std, label="noise (aleatoric)")
below.plot(grid, pred.epistemic_std, label="ignorance (epistemic)")
below.plot(grid, 0.05 + 0.3 * torch.sigmoid(-4 * grid), "k:", label="true noise")
below.set(xlabel="x", ylabel="standard deviation")
below.legend(loc="upper center")
plt.show()

# %%
# Your own data
# -------------
# Give the net two outputs for each target, and keep ``hs.Heteroscedastic()``.
# If the noise is the same everywhere, ``hs.Gaussian()`` with one output needs fewer rows.
# Collect more rows where the epistemic part is large; where only the aleatoric part is, they would
# not help.
