"""How far the same nets get without a posterior: He start, Adam with cosine decay, plain torch.

    export HEADSTART_DATA=...
    python benchmarks/deterministic.py --net vgg16 --precision bfloat16
    python benchmarks/deterministic.py --page docs/results/deterministic.md

The rate is the best of three by the error on validation rows, 5000 of the training rows, after a
short run of its own on the others (--choose-epochs, its cosine as short); the net is then trained
with it on all training rows for --epochs, and scored on all test rows at the end.
Runs keep their state beside --out after every epoch: a stopped one goes on where it was.
Rows are appended to --out; what is there already is not run again. One thread.
--page writes a page from the rows. The nets are those of `headstart.models`; nothing else here is
headstart's.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from tables import read_rows, table, write_page
from torch import Tensor, nn
from torch.nn import functional

from headstart import data, metrics, models

RATES = (1e-4, 3e-4, 1e-3)
VALIDATION_ROWS, BATCH, SCORED_AT_ONCE = 5000, 64, 500
Row = dict[str, Any]


def he_start_(net: nn.Module) -> None:
    """Normal weights of variance 2 / inputs, biases 0."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


@torch.no_grad()
def score(net: nn.Module, x: Tensor, y: Tensor) -> Row:
    """Error, NLL and ECE on some rows, in float32."""
    net.eval()
    log_probs = torch.cat([net(part).log_softmax(-1) for part in x.split(SCORED_AT_ONCE)])
    net.train()
    probs = log_probs.exp()
    return {
        "error": float((probs.argmax(-1) != y).double().mean()),
        "mnll": float(functional.nll_loss(log_probs.double(), y)),
        "ece": float(metrics.ece(probs, y)),
    }


def train(
    net: nn.Module, images: data.Images, epochs: int, rate: float, precision: str, state: Path
) -> float:
    """Train the net, from where an earlier process has left it; the processor's seconds."""
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(images))
    parts = (net, optimizer, schedule)
    done, seconds = 0, 0.0
    if state.exists():
        kept = torch.load(state)
        for part, numbers in zip(parts, kept["parts"], strict=True):
            part.load_state_dict(numbers)
        torch.set_rng_state(kept["random"])
        done, seconds = kept["done"], kept["seconds"]
    for epoch in range(done, epochs):
        begun = time.process_time()
        for x, y in images:
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
                loss = functional.cross_entropy(net(x).float(), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        seconds += time.process_time() - begun
        kept = {
            "parts": [part.state_dict() for part in parts],
            "random": torch.get_rng_state(),
            "done": epoch + 1,
            "seconds": seconds,
        }
        state.parent.mkdir(parents=True, exist_ok=True)
        torch.save(kept, state.with_suffix(".new"))
        state.with_suffix(".new").replace(state)
        print(f"epoch {epoch + 1} of {epochs}, {seconds:.0f} s", flush=True)
    return seconds


def state_of(about: Row, out: Path) -> Path:
    """Where a run keeps its state until its row is written."""
    name = "-".join(str(value) for value in about.values())
    return out.parent / "deterministic" / f"{name}.pt"


def run(about: Row, out: Path) -> Row:
    """Train a net as `about` says and score it, on validation rows where it chooses the rate."""
    dataset = data.load(about["dataset"])
    parts = data.split(dataset, 0)
    if about["rows"] == "validation":
        order = torch.randperm(
            len(parts.x_train), generator=torch.Generator().manual_seed(about["seed"])
        )
        held, kept = order[:VALIDATION_ROWS], order[VALIDATION_ROWS:]
        parts = data.Split(
            parts.x_train[kept], parts.y_train[kept], parts.x_train[held], parts.y_train[held]
        )
    scaling = data.fit_scaling(parts, targets=False)
    images = data.Images(parts.x_train, parts.y_train, scaling, batch_size=BATCH)
    torch.manual_seed(about["seed"])
    shape = tuple(parts.x_train.shape[1:])
    net = models.create(about["net"], shape, int(parts.y_train.max()) + 1)
    he_start_(net)
    state = state_of(about, out)
    seconds = train(net, images, about["epochs"], about["lr"], about["precision"], state)
    found = score(net, scaling.inputs(parts.x_test), parts.y_test)
    return about | found | {"seconds": seconds, "steps": about["epochs"] * len(images)}


def page(rows: list[Row], path: Path) -> None:
    """Write what was run: the rates that were tried, and the nets that were trained."""
    head = ["net", "data", "scored on", "rate", "epochs", "steps", "error", "NLL", "ECE", "CPU s"]
    lines = [
        [
            *(str(row[name]) for name in ("net", "dataset", "rows")),
            f"{row['lr']:g}",
            *(str(row[name]) for name in ("epochs", "steps")),
            *(f"{row[name]:.4f}" for name in ("error", "mnll", "ece")),
            f"{row['seconds']:.0f}",
        ]
        for row in rows
    ]
    about = __doc__.partition("\n\n")[2].partition("The rate is")
    precisions = " and ".join(sorted({row["precision"] for row in rows}))
    words = [
        "# The large nets without a posterior",
        "",
        about[0].strip("\n"),
        "",
        (about[1] + about[2]).partition("Runs keep")[0].strip(),
        f"Precision {precisions}, one seed, batches of {BATCH}, no augmentation.",
        "",
        table(head, lines, left=3),
    ]
    write_page(path, "\n".join(words) + "\n", "headstart.models")


def main() -> None:
    """Choose the rate, train, and write what is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", action="append", default=[])
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--choose-epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--out", type=Path, default=Path("out/deterministic.jsonl"))
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = read_rows(options.out)

    def found(about: Row) -> Row:
        """The row of a run: one that is there, or a new one."""
        for row in done:
            if about.items() <= row.items():
                return row
        row = run(about, options.out)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with options.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        state_of(about, options.out).unlink(missing_ok=True)
        print(row, flush=True)
        return row

    for net in options.net:
        base = {
            "net": net,
            "dataset": options.dataset,
            "precision": options.precision,
            "seed": options.seed,
        }
        trials = [
            found({**base, "rows": "validation", "epochs": options.choose_epochs, "lr": lr})
            for lr in RATES
        ]
        best = min(trials, key=lambda row: (row["error"], row["mnll"]))
        found({**base, "rows": "test", "epochs": options.epochs, "lr": best["lr"]})
    if options.page is not None:
        page(read_rows(options.out), options.page)


if __name__ == "__main__":
    main()
