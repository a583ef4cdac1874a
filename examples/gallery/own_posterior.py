"""
Your own posterior
==================

This family has fewer parameters than mean-field: all weights of a unit share one variance.
It is a subclass of :class:`headstart.Posterior` with four methods; the KL, sampling, local
reparameterization, I-BLM and saving then work as for any other posterior.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import headstart as hs


@hs.register_posterior
class OneVariance(hs.Posterior):
    """q(w) = Π_u N(mean_u, v_u I)."""

    name = "gallery_one_variance"

    def __init__(self, units, size, **factory):
        super().__init__(units, size, **factory)
        self.logvar = nn.Parameter(torch.full((units, 1), -4.0, **factory))

    def diagonal(self):
        return self.logvar.exp().expand_as(self.mean)

    # There is nothing beyond the diagonal.
    def factors(self):
        return None

    def logdet(self):
        return self.size * self.logvar.sum()

    # The member of the family that is nearest to a Gaussian, which initializers call.
    @torch.no_grad()
    def project_(self, gaussian, match="kl_qp"):
        self.mean.copy_(gaussian.mean)
        self.logvar.copy_(-gaussian.precision_diagonal().mean(1, keepdim=True).log())


# %%
# Train it and a mean-field posterior by the same lines.

torch.manual_seed(0)
x = torch.rand(400, 1) * 4 - 2
y = (2 * x).sin() + 0.1 * torch.randn_like(x)
grid = torch.linspace(-3, 3, 121).unsqueeze(1)

net = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1))
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
variances, rmse = {}, {}
for axis, family in zip(axes, ("mean_field", "gallery_one_variance"), strict=True):
    model = hs.bayesianize(net, posterior=family)
    lik = hs.Gaussian()
    hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    hs.fit(model, lik, (x, y), steps=400, lr=1e-2, lr_schedule="cosine", progress=False, seed=0)
    layers = hs.bayesian_layers(model).values()
    variances[family] = sum(p.numel() for q in layers for p in q.posterior.parameters())
    rmse[family] = hs.evaluate(model, lik, (x, y), seed=0)["rmse"]
    pred = hs.predict(model, lik, grid, sampler="weights", seed=0)
    mean, std = pred.mean[:, 0], pred.epistemic_std[:, 0]
    axis.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.3, lw=0)
    axis.plot(grid, mean)
    axis.plot(x, y, ".", color="black", ms=2)
    axis.set(title=f"{family}: {variances[family]} numbers", xlabel="x")
plt.show()

# %%
# Your own data
# -------------
# First look at the library's own families: ``mean_field``, ``low_rank``, ``full_covariance``,
# ``matrix_normal``.
# A family with options returns them from ``config``, so that ``hs.load`` can rebuild it;
# ``factors`` returns the covariance beyond the diagonal.
