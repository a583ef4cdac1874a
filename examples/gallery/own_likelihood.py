"""
Your own likelihood
===================

Waiting times are positive and exponentially distributed: ``y ~ Exponential(mean exp(f))``.
A subclass of :class:`headstart.Likelihood` with eight short methods defines such a likelihood;
initialization, training, prediction, saving and scores then work as for any other.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import headstart as hs
from headstart.distributed.rows import LOCAL_ROWS
from headstart.likelihoods.targets import fourier_features


@hs.register_likelihood
class WaitingTime(hs.Likelihood):
    """y ~ Exponential with mean exp(f)."""

    name = "gallery_waiting_time"

    def check(self, y, outputs):
        y = y.reshape(-1, outputs)
        if not (y > 0).all():
            raise hs.HeadstartError("WaitingTime wants positive times.")
        return y

    def log_prob(self, f, y):
        return (-f - y * (-f).exp()).sum(-1)

    # What a label says of f, as a Gaussian observation: log y has mean f - 0.577, variance π²/6.
    def regression_targets(self, y, center=True):
        t = y.log() + 0.5772
        return t, torch.full_like(t, 1.6449)

    # What hidden units of I-BLM regress on: random functions of the label.
    def label_features(self, y, count, rows=LOCAL_ROWS):
        t, v = self.regression_targets(y)
        return fourier_features(t, rows.mean(v), count, rows)

    def mean(self, f):
        return f.exp()

    def variance(self, f):
        return (2 * f).exp()

    def sample(self, f):
        return f.exp() * torch.empty_like(f).exponential_()

    def evaluate(self, f, y):
        return self.log_scores(f, self.check(y, f.shape[-1]))


# %%
# It is used like any other likelihood.

torch.manual_seed(0)
x = torch.rand(1500, 1) * 4 - 2
y = (1.5 * x).sin().exp() * torch.empty_like(x).exponential_()

net = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1))
model, lik = hs.bayesianize(net), WaitingTime()
hs.initialize_(model, "iblm", lik, (x, y), seed=0)
hs.fit(model, lik, (x, y), steps=500, lr=1e-2, lr_schedule="cosine", progress=False, seed=0)

grid = torch.linspace(-2, 2, 81).unsqueeze(1)
pred = hs.predict(model, lik, grid, sampler="weights", seed=0)
truth = (1.5 * grid).sin().exp()
miss = float((pred.mean / truth).log().abs().mean())
print(f"mean waiting time, off by {100 * miss:.0f} % on average")

figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
mean, std = pred.mean[:, 0], pred.epistemic_std[:, 0]
axis.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.3, lw=0)
axis.plot(grid, mean, label="mean waiting time")
axis.plot(grid, truth, "k:", label="truth")
axis.plot(x, y, ".", color="black", ms=2)
axis.set(xlabel="x", ylabel="time", ylim=(0, 8))
axis.legend()
plt.show()

# %%
# Your own data
# -------------
# Write ``log_prob`` first, and compare it with ``torch.distributions``.
# Add ``quantile`` for ``pred.interval``, and ``config`` if ``__init__`` takes options.
# First look whether the library has what you need: it has likelihoods for counts, outliers,
# censored labels, ordered classes and several modes.
