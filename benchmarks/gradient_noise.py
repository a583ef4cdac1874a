"""How noisy the gradient of a step is, by how its samples are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from tables import spread, table
from torch import Tensor

import headstart as hs
from headstart import data
from headstart.bench.measure import measure
from headstart.kernels.noise import Noise, Reused, fresh
from headstart.network.forward import draw

PROBLEMS = {
    "mlp-5x100": "mnist",
    "lenet": "mnist",
    "mlp-1x100": "protein",
    "mlp-1x50": "powerplant",
}
SAMPLES, BATCH, STEPS = 16, 64, 300
ESTIMATORS: dict[str, tuple[str, Noise | None, bool]] = {
    "local, independent samples": ("local", fresh, False),
    "local, noise used again": ("local", Reused(SAMPLES, BATCH), False),
    "local, as trained: early draws shared too": ("local", None, True),
    "weights in every layer, independent samples": ("weights", fresh, False),
    "weights, as trained": ("weights", None, True),
}
"""How to draw, by which noise, and whether only an average is wanted."""
INDEPENDENT = "local, independent samples"
AS_TRAINED = "local, as trained: early draws shared too"


@dataclass
class Problem:
    """A net and the data that its gradient is of.

    Args:
        net: Its name in `PROBLEMS`.
        model: The net, Bayesian.
        likelihood: p(y | f).
        x: The inputs of all rows.
        y: Their labels.
        samples: Of a step.
    """

    net: str
    model: torch.nn.Module
    likelihood: hs.Likelihood
    x: Tensor
    y: Tensor
    samples: int = SAMPLES

    def gradient(self, name: str, batch: int) -> list[Tensor]:
        """One estimate of the gradient of the expected negative log-likelihood.

        Args:
            name: One of `ESTIMATORS`.
            batch: Which rows.
        """
        sampler, noise, averaged = ESTIMATORS[name]
        start = batch % (len(self.x) // BATCH) * BATCH
        rows = slice(start, start + BATCH)
        f = draw(self.model, self.x[rows], self.samples, sampler, noise, averaged)
        labels = self.likelihood.check(self.y[rows], f.shape[-1])
        nll = -(len(self.x) / BATCH) * self.likelihood.log_prob(f, labels).mean(0).sum()
        return list(torch.autograd.grad(nll, list(self.model.parameters())))

    def variances(self, name: str, draws: int, batches: Callable[[int], int]) -> dict[str, float]:
        """The variance of the gradient of each parameter, summed over its entries.

        Args:
            name: One of `ESTIMATORS`.
            draws: How many gradients.
            batches: The batch of each of them.
        """
        names = [parameter for parameter, _ in self.model.named_parameters()]
        first, second = [0.0] * len(names), [0.0] * len(names)
        for index in range(draws):
            for k, part in enumerate(self.gradient(name, batches(index))):
                part = part.double()
                first[k], second[k] = first[k] + part, second[k] + part.square()
        sums = zip(names, first, second, strict=True)
        return {k: float((b - a.square() / draws).sum()) / (draws - 1) for k, a, b in sums}


def problem(net: str, steps: int, samples: int = SAMPLES) -> Problem:
    """A net that I-BLM has started and SVI trained for some steps, and its data."""
    dataset = data.load(PROBLEMS[net])
    parts = data.split(dataset, 0)
    classes = PROBLEMS[net] == "mnist"
    scaling = data.fit_scaling(parts, targets=not classes)
    x, y = scaling.inputs(parts.x_train), parts.y_train
    y = y if classes else scaling.targets(y)
    if net.startswith("mlp"):
        x = x.flatten(1)
    torch.manual_seed(0)
    outputs = 10 if classes else y[0].numel()
    likelihood = hs.Categorical(10) if classes else hs.Gaussian(0.1)
    model = hs.bayesianize(hs.models.create(net, tuple(x.shape[1:]), outputs))
    hs.initialize_(model, "iblm", likelihood, (x, y), seed=0)
    if steps:
        hs.fit(model, likelihood, (x, y), steps=steps, samples=4, progress=False, seed=0)
    return Problem(net, model, likelihood, x, y, samples)


def _means_and_others(variances: dict[str, float]) -> tuple[float, float]:
    """The sums over means and over log-variances."""
    of_means = sum(value for name, value in variances.items() if name.endswith("mean"))
    return of_means, sum(variances.values()) - of_means


def worth(net: str, draws: int, rounds: int) -> list[list[str]]:
    """Estimators of the gradient beside independent samples: variance, seconds, their product."""
    task = problem(net, STEPS)
    timed = measure(
        {name: lambda name=name: float(task.gradient(name, 0)[0].sum()) for name in ESTIMATORS},
        rounds,
    )
    torch.manual_seed(1)
    found = {
        name: (
            *_means_and_others(task.variances(name, draws, lambda index: 0)),
            *_means_and_others(task.variances(name, draws, lambda index: index)),
        )
        for name in ESTIMATORS
    }
    lines = []
    for name, values in found.items():
        seconds = timed[name].median / timed[INDEPENDENT].median
        relative = [value / other for value, other in zip(values, found[INDEPENDENT], strict=True)]
        numbers = (*relative, seconds, relative[2] * seconds, relative[3] * seconds)
        lines.append([net, PROBLEMS[net], name, *(f"{value:.2f}" for value in numbers)])
        print(*lines[-1], flush=True)
    return lines


def effective_samples(draws: int, samples: int = SAMPLES, batches: int = 5) -> str:
    """How many independent samples those of a training step are worth before the first step.

    Args:
        draws: Gradients whose variance is taken, on each batch.
        samples: Of a training step.
        batches: How many batches.

    Returns:
        A table for each net: the variance that the draws alone make, beside that of independent
        samples, over all means and all log-variances and in the layer where it is largest.
    """
    lines = [line for net in PROBLEMS for line in effective_lines(net, draws, samples, batches)]
    head = ["net", "data", "gradient of", "variance ratio", "effective samples"]
    return table(head, lines, left=3)


def effective_lines(
    net: str, draws: int, samples: int = SAMPLES, batches: int = 5
) -> Iterator[list[str]]:
    """The lines of one net: medians and ranges over batches."""
    task = problem(net, 0, samples)
    torch.manual_seed(1)
    ratios: dict[str, list[float]] = {}
    for batch in range(batches):
        shared, independent = (
            task.variances(name, draws, lambda index, batch=batch: batch)  # type: ignore[misc]
            for name in (AS_TRAINED, INDEPENDENT)
        )
        sums = zip(_means_and_others(shared), _means_and_others(independent), strict=True)
        for kind, (ours, theirs) in zip(("all means", "all log-variances"), sums, strict=True):
            ratios.setdefault(kind, []).append(ours / theirs)
        for name, value in shared.items():
            ratios.setdefault(name, []).append(value / independent[name])
    single = {name: found for name, found in ratios.items() if not name.startswith("all ")}
    largest = max(single, key=lambda name: sorted(single[name])[batches // 2])
    for name in ("all means", "all log-variances", largest):
        worths = [samples / ratio for ratio in ratios[name]]
        label = name if name.startswith("all ") else f"`{name}` (the largest)"
        yield [net, PROBLEMS[net], label, spread(ratios[name]), spread(worths)]
