"""
Refine the read-out
===================

Given the features that reach it, the last layer of a net is a Bayesian linear model.
:func:`headstart.refine_` solves it in closed form after training, with its noise and prior
variance: the evidence lower bound never falls.
"""

import copy

import matplotlib.pyplot as plt
import torch
from torch import nn

import headstart as hs

torch.manual_seed(0)
x = torch.randn(2000, 5)
y = x @ torch.randn(5, 1) + 0.5 * torch.randn(2000, 1)
train, held_out = (x[:200], y[:200]), (x[200:], y[200:])

# %%
# Train, then refine a copy.

net = nn.Sequential(nn.Linear(5, 50), nn.Tanh(), nn.Linear(50, 1))
model, lik = hs.bayesianize(net), hs.Gaussian()
hs.initialize_(model, "iblm", lik, train, seed=0)
hs.fit(model, lik, train, steps=800, lr=1e-2, lr_schedule="cosine", progress=False, seed=0)
refined, refined_lik = copy.deepcopy(model), copy.deepcopy(lik)
report = hs.refine_(refined, refined_lik, train)
print(report)

# %%
# The coverage of the intervals on test rows, for each level.

levels = [level / 20 for level in range(1, 20)]
figure, axis = plt.subplots(figsize=(5, 4.5), layout="constrained")
mnll = {}
for name, net, noise in (("trained", model, lik), ("refined", refined, refined_lik)):
    pred = hs.predict(net, noise, held_out[0], seed=0)
    mnll[name] = -float(pred.log_prob(held_out[1]).mean())
    intervals = [pred.interval(level) for level in levels]
    covered = [
        float(((low <= held_out[1]) & (held_out[1] <= high)).float().mean())
        for low, high in intervals
    ]
    axis.plot(levels, covered, "o-", ms=3, label=f"{name}: NLL {mnll[name]:.3f}")
axis.plot([0, 1], [0, 1], "k:")
axis.set(xlabel="level of the interval", ylabel="fraction of new rows within it")
axis.legend()
plt.show()

# %%
# Your own data
# -------------
# ``hs.fit(..., refine=True)`` does both in one call; with ``validation=`` rows the noise of
# predictions is chosen by them.
# For classes the bound often improved while predictions became worse: compare on held-out rows
# before you use it there.
