"""
The last layer of a trained net
===============================

A trained net can be made uncertain away from its data without further training: the *Laplace
approximation* computes a covariance for its last layer from the curvature of the likelihood.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import make_moons
from torch import nn

import headstart as hs

torch.manual_seed(0)
points, labels = make_moons(300, noise=0.15, random_state=0)
x, y = torch.tensor(points, dtype=torch.float32), torch.tensor(labels)

# %%
# A trained net, in the place of yours.

net = nn.Sequential(nn.Linear(2, 50), nn.ReLU(), nn.Linear(50, 30), nn.ReLU(), nn.Linear(30, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(200):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()

# %%
# Its last layer becomes Bayesian, with a covariance computed from the data.

lik = hs.Categorical(num_classes=2)
model = hs.bayesianize(net, where="last", posterior="full_covariance", prior=10.0)
print(hs.initialize_(model, "laplace", lik, (x, y)))

# %%
# The confidence of the trained net, and that of the Bayesian one.

side = torch.linspace(-5, 6, 70)
grid = torch.cartesian_prod(side, side)
with torch.no_grad():
    before = net(grid).softmax(-1).amax(-1)
after = hs.predict(model, lik, grid, seed=0).probs.amax(-1)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
for axis, (name, sure) in zip(axes, {"trained net": before, "laplace": after}.items(), strict=True):
    image = sure.reshape(70, 70).T.numpy()
    shown = axis.imshow(image, extent=(-5, 6, -5, 6), origin="lower", vmin=0.5, vmax=1)
    axis.scatter(*points.T, c=labels, s=5, cmap="coolwarm")
    axis.set(title=f"{name}: mean confidence {sure.mean():.2f}")
figure.colorbar(shown, ax=axes, label="confidence")
plt.show()

# %%
# Your own data
# -------------
# Load your net and its training rows (a DataLoader will do) in the place of ``net`` and ``(x, y)``.
# Name the layer if it is not the one that was registered last: ``where="head"``.
# ``prior="learned"`` chooses the prior variance by its evidence; a larger one makes predictions
# more uncertain far from the data.
