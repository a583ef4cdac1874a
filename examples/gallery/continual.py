"""
Continual learning
==================

Noisy rows arrive in five parts, and each part is gone when the next one arrives.
:func:`headstart.inherit_` makes the posterior after one part the prior for the next.
If the body of the net is fixed and only its last layer is Bayesian, this is exact: five small parts
give the same posterior as all rows at once.
"""

import copy

import matplotlib.pyplot as plt
import torch
from torch import nn

import headstart as hs

torch.manual_seed(0)
x = torch.rand(150, 1) * 4 - 2
y = (2 * x).sin() + 0.5 * torch.randn_like(x)
parts = list(zip(x.chunk(5), y.chunk(5), strict=True))
grid = torch.linspace(-2, 2, 81).unsqueeze(1)
truth = (2 * grid).sin()

# %%
# In practice the body was trained elsewhere; here its features are random.

net = nn.Sequential(nn.Linear(1, 60), nn.Tanh(), nn.Linear(60, 1))
nn.init.normal_(net[0].weight, std=3.0)
nn.init.normal_(net[0].bias, std=2.0)
prior = hs.bayesianize(net, where="last", posterior="full_covariance", prior=0.1)
lik = hs.Gaussian(noise_var=0.25, learn_noise=False)


def miss(model):
    """How far the mean prediction is from the true function."""
    mean = hs.predict(model, lik, grid, samples=512, seed=0).mean
    return float((mean - truth).square().mean().sqrt())


# %%
# Three ways to train: on the last part alone, with an inherited prior, and on all rows so far.
# :func:`headstart.refine_` solves the last layer in closed form, and does not change an inherited
# prior.

inheriting = copy.deepcopy(prior)
misses = {"the last part alone": [], "inherit_": [], "all rows so far": []}
for number, part in enumerate(parts, 1):
    if number > 1:
        hs.inherit_(inheriting)
    so_far = (torch.cat(x.chunk(5)[:number]), torch.cat(y.chunk(5)[:number]))
    alone, together = copy.deepcopy(prior), copy.deepcopy(prior)
    for name, model, rows in zip(
        misses, (alone, inheriting, together), (part, part, so_far), strict=True
    ):
        hs.refine_(model, lik, rows, learn_prior=False)
        misses[name].append(miss(model))
print({name: [round(each, 3) for each in found] for name, found in misses.items()})

# %%
# With an inherited prior the errors are those of training on all rows at once.

figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
for (name, found), style in zip(misses.items(), ("o:", "o-", "x--"), strict=True):
    axis.plot(range(1, 6), found, style, label=name)
axis.set(xlabel="parts seen", ylabel="RMSE from the true function", ylim=(0, None))
axis.set_xticks(range(1, 6))
axis.legend()
plt.show()

# %%
# Your own data
# -------------
# Keep the model in a file between parts: ``hs.save`` and ``hs.load``, then ``inherit_``, then
# ``refine_`` or ``fit`` to the new rows.
# A net in which all layers are Bayesian is trained by ``fit`` and remembers earlier parts only
# approximately, the better the longer it is trained; if the parts cover different regions of the
# inputs, mix in some old rows.
# Standardize all parts with the mean and standard deviation of the first.
