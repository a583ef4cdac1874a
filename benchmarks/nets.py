"""Thirty kinds of nets through every door: convert, initialize, fit, predict, save, export.

    python benchmarks/nets.py --out docs/results/nets.md

Every net is as its users write it, without a wrapper, on digits or on synthetic rows. A kind works
if each door lets it through, its test NLL after initialization is below that of a constant
predictor, and training lowers it again. The deterministic net has the same steps, by Adam.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from nets_cases import Kind
from nets_kinds import KINDS
from tables import TRAINING, table, write_page
from torch import Tensor, nn

import headstart as hs
from headstart.nested import Nested, feed, heads_of, is_whole, map_each
from headstart.network.inputs import as_tensors, fitted

STEPS, BATCH, SAMPLES, LR = 120, 64, 32, 3e-3
DOORS = ("convert", "initialize", "fit", "predict", "save and load", "export")


@dataclass
class Result:
    """What became of a kind."""

    kind: str
    doors: dict[str, str] = field(default_factory=dict)
    """For each door "yes", or the sentence with which it was refused."""
    nll: dict[str, float] = field(default_factory=dict)
    """Of test rows: of a constant, after initialization, after training, of the plain net."""
    error: dict[str, float] = field(default_factory=dict)
    """After training and of the plain net: the fraction of wrong classes, or the RMSE."""
    seconds: float = 0.0
    """Of CPU time."""

    @property
    def works(self) -> bool:
        """Whether all doors opened, and each stage was better than the one before."""
        through = all(self.doors.get(door) == "yes" for door in DOORS)
        stages = [self.nll.get(stage, float("nan")) for stage in ("constant", "start", "end")]
        return through and stages[0] > stages[1] > stages[2]


def rows_of(x: Any, rows: slice) -> Any:
    """Some rows of a tensor, or of each in a dictionary or tuple."""
    if isinstance(x, dict):
        return {name: part[rows] for name, part in x.items()}
    return tuple(part[rows] for part in x) if isinstance(x, tuple) else x[rows]


def split(kind: Kind) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Training rows and test rows; of a graph the same nodes with labels for some."""
    x, y = kind.data()
    if is_whole(x):
        number = torch.arange(len(y))
        return (x, torch.where(number < kind.train, y, -100)), (
            x,
            torch.where(number < kind.train, -100, y),
        )
    first, last = slice(kind.train), slice(kind.train, None)
    return (rows_of(x, first), rows_of(y, first)), (rows_of(x, last), rows_of(y, last))


def constant_nll(train: Any, test: Any) -> float:
    """The NLL of the frequencies of classes, or of a normal distribution; of heads the sum."""
    if isinstance(train, dict):
        return sum(constant_nll(train[name], test[name]) for name in train)
    if train.is_floating_point():
        law = torch.distributions.Normal(train.mean(), train.std())
        return -float(law.log_prob(test).mean())
    train, test = train[train >= 0], test[test >= 0]
    counts = torch.bincount(train, minlength=int(max(train.max(), test.max())) + 1)
    return -float((counts / counts.sum())[test].log().mean())


def main_error(scores: dict[str, float]) -> float:
    """Of the first head, where there are several."""
    names = ("error", "rmse", "digit/error")
    return next(scores[name] for name in names if name in scores)


def plain_scores(
    net: nn.Module, likelihood: hs.Likelihood, train: Any, test: Any
) -> dict[str, float]:
    """The deterministic net after as many steps of Adam, with the same likelihood."""

    def outputs(x: Any) -> Any:
        out = heads_of(feed(net, fitted(as_tensors(x), net)))
        return map_each(lambda part: part.unsqueeze(0), out)

    x, y = train
    whole, count = is_whole(x), 1 if is_whole(x) else len(as_tensors(x))
    learned = [*net.parameters(), *(p for p in likelihood.parameters() if p.requires_grad)]
    optimizer = torch.optim.Adam(learned, LR)
    for _ in range(STEPS):
        rows = torch.randint(count, (min(BATCH, count),))
        part = (x, y) if whole else (rows_of(x, rows), rows_of(y, rows))
        f = likelihood.read(outputs(part[0]))
        labels = likelihood.check(_labels(part[1]), likelihood.outputs_of(f))
        optimizer.zero_grad()
        (-likelihood.log_prob(f, labels).mean()).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        f = outputs(test[0])
    layout = likelihood.layout(f)
    return hs.Predictive(likelihood.read(f), likelihood, 1, layout).evaluate(test[1])


def _labels(y: Any) -> Any:
    return Nested(named=y) if isinstance(y, dict) else y


def run(kind: Kind, folder: Path) -> Result:
    """Every door in turn, up to the first that stays shut."""
    torch.manual_seed(0)
    found, start = Result(kind.name), time.process_time()
    net, train, test = kind.make(), *split(kind)
    found.nll["constant"] = constant_nll(train[1], test[1])
    likelihood, state = kind.likelihood(), dict[str, Any]()

    def convert() -> None:
        state["model"] = hs.bayesianize(net)

    def initialize() -> None:
        hs.initialize_(state["model"], "iblm", likelihood, train, seed=0)
        state["plain"] = copy.deepcopy(likelihood)
        found.nll["start"] = scores()["mnll"]

    def fit() -> None:
        size = {} if is_whole(train[0]) else {"batch_size": BATCH}
        hs.fit(state["model"], likelihood, train, steps=STEPS, progress=False, seed=0, **size)

    def predict() -> None:
        after = scores()
        found.nll["end"], found.error["end"] = after["mnll"], main_error(after)

    def scores() -> dict[str, float]:
        return hs.evaluate(state["model"], likelihood, test, samples=SAMPLES, seed=0)

    def save() -> None:
        hs.save(folder / "model", state["model"], likelihood)
        again, law = hs.load(folder / "model", net=kind.make())
        few = rows_of(test[0], slice(5))
        one, other = (
            parts(hs.predict(model, lik, few, samples=4, seed=0).draws)
            for model, lik in ((state["model"], likelihood), (again, law))
        )
        if not all(torch.equal(a, b) for a, b in zip(one, other, strict=True)):
            raise hs.HeadstartError("The file gives other predictions.")

    def export() -> None:
        if is_whole(test[0]):
            raise hs.HeadstartError(
                "`hs.whole` is no input of torch.export; a module that takes the tensors and "
                "makes `hs.whole` of them is."
            )
        few = rows_of(test[0], slice(4))
        frozen = hs.freeze(state["model"], 4, seed=0, fold="siamese" not in kind.name)
        program = torch.export.export(frozen, (few,)).module()
        for one, other in zip(parts(program(few)), parts(frozen(few)), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)

    doors: tuple[Callable[[], None], ...] = (convert, initialize, fit, predict, save, export)
    for name, door in zip(DOORS, doors, strict=True):
        try:
            door()
        except Exception as refusal:
            found.doors[name] = str(refusal).partition("\n")[0]
            if name not in ("save and load", "export"):
                break
        else:
            found.doors[name] = "yes"
    if "plain" in state:
        plain = plain_scores(net, state["plain"], train, test)
        found.nll["plain"], found.error["plain"] = plain["mnll"], main_error(plain)
    found.seconds = time.process_time() - start
    return found


def parts(draws: Any) -> list[Tensor]:
    """The tensors of what may be several heads."""
    if isinstance(draws, dict):
        return list(draws.values())
    return [draws] if isinstance(draws, Tensor) else draws.tensors


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def page(results: list[Result]) -> str:
    """The table, and the sentences of what was refused."""
    lines = []
    for r in results:
        doors = ["yes" if r.doors.get(door) == "yes" else "no" for door in DOORS]
        nlls = [number(r.nll.get(stage)) for stage in ("constant", "start", "end", "plain")]
        errors = [number(r.error.get(stage)) for stage in ("end", "plain")]
        lines.append([r.kind, "yes" if r.works else "no", *doors, *nlls, *errors])
    head = ["kind", "works", *DOORS, "NLL: constant", "after I-BLM", "after training"]
    head += ["deterministic", "error", "of the deterministic net"]
    works = sum(r.works for r in results)
    refused = [
        f"- {r.kind}, {door}: {said}"
        for r in results
        for door, said in r.doors.items()
        if said != "yes"
    ]
    return "\n\n".join(
        [
            "# Kinds of nets",
            "\n".join(
                [
                    "Which nets go through every door as they are, without a wrapper.",
                    "`python benchmarks/nets.py --out docs/results/nets.md` makes this page.",
                    f"{works} of {len(results)} kinds work: each door opens, the NLL of test rows "
                    "after initialization is below that of a constant predictor, and training "
                    f"lowers it again ({STEPS} steps of {BATCH} rows, one seed).",
                    f"The deterministic net has the same steps, by Adam at {LR}, a rate that "
                    "nobody tuned: the error says that training goes on as it should, not which "
                    "net is better; the error is a fraction of wrong classes, or an RMSE.",
                    f"All of it took {sum(r.seconds for r in results):.0f} s of CPU time.",
                    "Export is `torch.export` of `hs.freeze(model, 4)`, whose draws are compared; "
                    "the siamese net, which stacks batches, has `fold=False`.",
                ]
            ),
            table(head, lines, left=8),
            "\n".join(["What was refused:", "", *refused]) if refused else "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/nets.md"))
    parser.add_argument("--only", default="", help="kinds whose name holds this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            if options.only in kind.name:
                results.append(run(kind, Path(folder)))
                print(results[-1], flush=True)
    write_page(options.out, page(results) + "\n", TRAINING)


if __name__ == "__main__":
    main()
