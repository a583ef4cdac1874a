"""
Your own loop
=============

:func:`headstart.steps` is the training loop as an iterator: it yields a record after every
step, and your code runs in between.
This one logs, evaluates on held-out rows, and stops by a rule of its own.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import headstart as hs

torch.manual_seed(0)
x = 4 * torch.rand(2500, 3) - 2
y = (2 * x[:, :1]).sin() + 0.5 * x[:, 1:2] + 0.1 * torch.randn(2500, 1)
train, held_out = (x[:2000], y[:2000]), (x[2000:], y[2000:])

net = nn.Sequential(nn.Linear(3, 50), nn.Tanh(), nn.Linear(50, 1))
model, lik = hs.bayesianize(net), hs.Gaussian()
hs.initialize_(model, "iblm", lik, train, seed=0)

# %%
# Train, evaluate every 50 steps, and stop when the RMSE no longer falls.

records, scores = [], []
for record in hs.steps(model, lik, train, steps=600, lr=1e-2, samples=8):
    records.append(record)
    if record.step % 50 == 0:
        scores.append((record.step, hs.evaluate(model, lik, held_out, samples=32, seed=0)["rmse"]))
        print(f"step {record.step}: NELBO {record.nelbo:.0f}, RMSE {scores[-1][1]:.3f}")
    if len(scores) > 4 and scores[-1][1] > 0.99 * scores[-4][1]:
        break

# %%
# The NELBO is the sum of the negative log-likelihood of the data set and the KL of the weights.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
places = [record.step for record in records]
for part in ("nelbo", "nll", "kl"):
    left.plot(places, [getattr(record, part) for record in records], lw=0.8, label=part)
left.set(xlabel="step")
left.legend()
right.plot(*zip(*scores, strict=True), "o-")
right.axhline(0.1, color="black", ls=":", label="noise of the labels")
right.set(xlabel="step", ylabel="RMSE, held-out rows", ylim=(0, None))
right.legend()
plt.show()

# %%
# Your own data
# -------------
# ``train`` can be a DataLoader of pairs.
# To use an optimizer of your own, minimize :func:`headstart.nelbo`:
# ``hs.nelbo(model, lik, x_batch, y_batch, num_data=len(x)).value.backward()``.
