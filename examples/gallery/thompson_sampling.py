"""
Bayesian optimization by Thompson sampling
==========================================

The task is to find the x with the largest f(x) in few evaluations, because each is expensive.
Thompson sampling draws one function from the posterior, evaluates f where that function is largest,
adds the result to the data, and repeats: where the model is uncertain the draws differ, which makes
it explore.
"""

import matplotlib.pyplot as plt
import torch

import headstart as hs

torch.manual_seed(0)
grid = torch.linspace(-2, 2, 201).unsqueeze(1)


def objective(x):
    return (3 * x).sin() - 0.3 * (x - 0.7).square()


x = torch.tensor([[-1.8], [-0.2], [1.7]])
y = objective(x)


def posterior(x, y):
    """A conditioned net: its draws differ where it has seen nothing."""
    model = hs.bayesianize(hs.models.create("mlp-1x50", 1, 1))
    lik = hs.Gaussian(noise_var=1e-3, learn_noise=False)
    hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    return hs.condition(model, lik, (x, y), draws=16, widen=False)


# %%
# One of the conditioned nets, with one draw of its last layer, is one function.

for round_ in range(12):
    conditioned = posterior(x, y)
    net = conditioned.nets[round_ % len(conditioned.nets)]
    function = hs.freeze(net, samples=1, seed=round_)(grid)[0, :, 0]
    place = grid[function.argmax()].reshape(1, 1)
    x, y = torch.cat([x, place]), torch.cat([y, objective(place)])

best, regret = float(x[y.argmax()]), float(objective(grid).max() - y.max())
print(f"best x {best:.2f}, {regret:.3f} below the maximum, after {len(x)} evaluations")

# %%
# Evaluations concentrate around the maximum, and the net stays uncertain elsewhere.

pred = posterior(x, y).predict(grid, seed=0)
figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
mean, std = pred.mean[:, 0], pred.epistemic_std[:, 0]
axis.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.3, lw=0)
axis.plot(grid, mean, label="mean")
axis.plot(grid, objective(grid), "k:", label="f")
axis.scatter(x[:, 0], y[:, 0], c=range(len(x)), cmap="viridis", zorder=3, label="evaluations")
axis.set(xlabel="x")
axis.legend()
plt.show()

# %%
# Your own data
# -------------
# Put your experiment in the place of ``objective``, its candidates in that of ``grid``: rows of a
# table, or a few thousand random points in several dimensions.
# Standardize both, and call ``hs.fit`` before ``hs.condition`` from fifty evaluations on.
# With fewer than a hundred evaluations in few dimensions a Gaussian process is the better choice.
