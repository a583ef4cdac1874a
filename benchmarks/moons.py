"""Two moons: the error on new rows of each posterior, beside five plain nets.

    python benchmarks/moons.py --seeds 5 --out docs/results/moons.md

200 rows with noise 0.15, 4000 new ones, and points at three times the range. Nets have one hidden
layer of 50 tanh units. Bayesian nets start by I-BLM and train by Adam at 1e-2 with cosine decay, 8
samples, 3000 steps; the prior is N(0, 1), N(0, 4) or learned, or the KL counts a tenth in training
(temperature 0.1). "Conditioned" is `condition`, "refined" `refine_`. The five plain nets have the
same layers, Adam at 1e-2 and 1000 steps of 64 rows, no weight decay, and average their
probabilities. Differences of the error are paired over seeds, with 95 % t intervals: each seed has
rows of its own. One thread.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator
from pathlib import Path

import torch
from gap import net
from sklearn.datasets import make_moons
from tables import table, write_page
from torch import Tensor, nn

import headstart as hs
from headstart.experiments.paired import paired_difference

CODE = "headstart.training.conditional"
"""The module that stands for the code of the page."""
RIVAL = "5 MLPs"
WAYS: dict[str, tuple[float | str, float]] = {
    "prior 1": (1.0, 1.0),
    "prior 4": (4.0, 1.0),
    "learned prior": ("learned", 1.0),
    "prior 1, temperature 0.1": (1.0, 0.1),
}
"""The prior variance and the temperature of training."""
Rows = tuple[Tensor, Tensor]


def rows(seed: int) -> tuple[Rows, Rows, Tensor]:
    """Training rows, new rows, points far away."""
    x, y = make_moons(4200, noise=0.15, random_state=seed)
    inputs, labels = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y)
    inputs = (inputs - inputs[:200].mean(0)) / inputs[:200].std(0)
    angle = torch.linspace(0, 2 * math.pi, 61)[:-1]
    far = 6 * torch.stack([angle.cos(), angle.sin()], 1)
    return (inputs[:200], labels[:200]), (inputs[200:], labels[200:]), far


def trained(data: Rows, prior: float | str, temperature: float) -> tuple[nn.Module, hs.Likelihood]:
    """A Bayesian net."""
    model, lik = hs.bayesianize(net(2), prior=prior), hs.Bernoulli()
    hs.initialize_(model, "iblm", lik, data)
    hs.fit(
        model,
        lik,
        data,
        steps=3000,
        samples=8,
        lr=1e-2,
        lr_schedule="cosine",
        temperature=temperature,
        progress=False,
        seed=0,
    )
    return model, lik


def plain_net(data: Rows, seed: int) -> nn.Module:
    """Trained by Adam, as users do."""
    torch.manual_seed(seed)
    made, (x, y) = net(2), data
    optimizer = torch.optim.Adam(made.parameters(), lr=1e-2)
    for _ in range(1000):
        optimizer.zero_grad()
        batch = torch.randint(len(x), (64,))
        loss = nn.functional.binary_cross_entropy_with_logits(
            made(x[batch])[:, 0], y[batch].float()
        )
        loss.backward()
        optimizer.step()
    return made


def posteriors(
    data: Rows,
) -> Iterator[tuple[str, hs.Conditioned | tuple[nn.Module, hs.Likelihood]]]:
    """Each way to a posterior, by name."""
    for name, (prior, temperature) in WAYS.items():
        model, lik = trained(data, prior, temperature)
        yield name, (model, lik)
        yield f"{name}, conditioned", hs.condition(model, lik, data)
        hs.refine_(model, lik, data)
        yield f"{name}, refined", (model, lik)


def scores(seed: int) -> dict[str, dict[str, float]]:
    """Error and NLL on new rows, and the confidence far away."""
    data, new, far = rows(seed)
    found: dict[str, dict[str, float]] = {}

    def keep(name: str, here: hs.Predictive, there: hs.Predictive) -> None:
        scored = here.evaluate(new[1])
        sure = torch.maximum(there.mean, 1 - there.mean).mean()
        found[name] = {"error": scored["error"], "mnll": scored["mnll"], "far": float(sure)}

    for name, posterior in posteriors(data):
        if isinstance(posterior, tuple):
            model, lik = posterior
            each = [hs.predict(model, lik, x, 256, seed=0) for x in (new[0], far)]
        else:
            each = [posterior.predict(x, 256, seed=0) for x in (new[0], far)]
        keep(name, *each)
    nets = [plain_net(data, number) for number in range(5)]
    with torch.no_grad():
        plain = [
            hs.Predictive(torch.stack([one(x) for one in nets]), hs.Bernoulli())
            for x in (new[0], far)
        ]
    keep(RIVAL, *plain)
    return found


def main() -> None:
    """Train, compare, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = []
    for seed in range(options.seeds):
        runs.append(scores(seed))
        print(seed, {name: round(each["error"], 4) for name, each in runs[-1].items()}, flush=True)
    lines = []
    for name in runs[0]:
        cells = [name]
        for metric in ("error", "mnll", "far"):
            cells.append(f"{statistics.mean(run[name][metric] for run in runs):.4f}")
        ours, theirs = (
            {(seed, seed): run[each]["error"] for seed, run in enumerate(runs)}
            for each in (name, RIVAL)
        )
        found = paired_difference(ours, theirs)
        wide = "" if found is None or found.half_width is None else f" ± {found.half_width:.4f}"
        cells.append("" if name == RIVAL or found is None else f"{found.mean:+.4f}{wide}")
        lines.append(cells)
    head = ["posterior", "error", "NLL", "confidence far away", "error, less that of 5 MLPs"]
    page = table(head, lines)
    print(page)
    if options.out is not None:
        text = f"# Two moons\n\n{__doc__}\nMeans over {options.seeds} seeds.\n\n{page}\n"
        write_page(options.out, text, CODE)


if __name__ == "__main__":
    main()
