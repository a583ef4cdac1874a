"""
Calibration of a classifier
===========================

A classifier is calibrated if, of the predictions made with a probability of 80 %, 80 % are right.
A deterministic net that is trained to convergence on few noisy rows is overconfident; the average
over a posterior is much less so.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import make_moons
from torch import nn

import headstart as hs
from headstart import metrics

torch.manual_seed(0)
points, labels = make_moons(1200, noise=0.4, random_state=0)
points, labels = torch.tensor(points, dtype=torch.float32), torch.tensor(labels)
points = (points - points.mean(0)) / points.std(0)
x, y, x_test, y_test = points[:150], labels[:150], points[150:], labels[150:]

# %%
# A deterministic net, trained until it fits the labels of all training rows.

net = nn.Sequential(nn.Linear(2, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 2))
start = hs.bayesianize(net)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(300):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
with torch.no_grad():
    plain = net(x_test).softmax(-1)

# %%
# The same net, Bayesian.

lik = hs.Categorical(num_classes=2)
hs.initialize_(start, "iblm", lik, (x, y), seed=0)
hs.fit(start, lik, (x, y), steps=300, progress=False, seed=0)
bayesian = hs.predict(start, lik, x_test, seed=0).probs

# %%
# A reliability diagram: bars below the diagonal are overconfident, and the expected calibration
# error (ECE) is the mean distance from it.

figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True, layout="constrained")
ece = {}
for axis, (name, probs) in zip(axes, {"plain": plain, "Bayesian": bayesian}.items(), strict=True):
    ece[name] = float(metrics.ece(probs, y_test))
    error = float(metrics.error(probs, y_test))
    counts, confidence, accuracy = metrics.reliability(probs, y_test, bins=10)
    full = counts > 0
    axis.bar(confidence[full].numpy(), accuracy[full].numpy(), width=0.04)
    axis.plot([0.5, 1], [0.5, 1], "k:")
    axis.set(title=f"{name}: ECE {ece[name]:.3f}, error {error:.3f}", xlabel="confidence")
axes[0].set(ylabel="accuracy", ylim=(0, 1))
plt.show()

# %%
# Your own data
# -------------
# Replace ``x`` by your inputs, standardized, ``y`` by classes 0, 1, …, K - 1, and the net by yours
# with K outputs; ``hs.Categorical(num_classes=K)``.
# Measure calibration on rows that the model was not trained on, a thousand or more: the ECE of few
# rows is mostly noise.
