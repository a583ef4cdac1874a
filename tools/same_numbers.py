"""Whether a change keeps every number, to the last bit: runs over initializers, nets and families.

    PYTHONPATH=before/src python tools/same_numbers.py write out/numbers
    PYTHONPATH=after/src python tools/same_numbers.py check out/numbers

`write` keeps the digest of every run, and models saved in the format of that code.
`check` runs again, loads the saved models, and names what differs.
Only public names are called, so that the script runs before and after a change of the layout.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import headstart as hs

torch.set_num_threads(1)
STEPS = 12


def digest(*tensors: Tensor) -> str:
    """Of the bytes of tensors."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(str((tensor.dtype, tuple(tensor.shape))).encode())
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def numbers(rows: int = 300, features: int = 6) -> Tensor:
    return torch.randn(rows, features, generator=torch.Generator().manual_seed(1))


def images(rows: int = 96) -> Tensor:
    return torch.randn(rows, 1, 28, 28, generator=torch.Generator().manual_seed(2))


def quantity(x: Tensor) -> Tensor:
    return x.flatten(1)[:, :1].sin() + 0.1 * x.flatten(1)[:, 1:2]


def classes(x: Tensor, count: int) -> Tensor:
    return x.flatten(1)[:, :count].argmax(1)


def trained(
    net: nn.Module,
    likelihood: hs.Likelihood,
    x: Tensor,
    y: Tensor,
    init: str,
    method: hs.Inference | str = "svi",
    prior: float | str = 1.0,
    posterior: str = "mean_field",
    folder: Path | None = None,
) -> str:
    """Convert, initialize, train, predict; the digest of losses, parameters and draws."""
    torch.manual_seed(0)
    options = {"prior": prior, "posterior": posterior}
    model = (
        method.convert(net, prior=prior)
        if isinstance(method, hs.Inference)
        else hs.bayesianize(net, **options)
    )
    hs.initialize_(model, init, likelihood, (x, y), seed=3)
    history = hs.fit(
        model,
        likelihood,
        (x, y),
        steps=STEPS,
        lr=1e-3,
        inference=method,
        progress=False,
        seed=4,
        validation=(x, y),
        every=6,
    )
    if folder is not None:
        hs.save(folder, model, likelihood)
    losses = torch.tensor([record.nelbo for record in history.steps], dtype=torch.float64)
    return digest(
        losses,
        *model.state_dict().values(),
        *likelihood.state_dict().values(),
        predicted(model, likelihood, x),
    )


def predicted(model: nn.Module, likelihood: hs.Likelihood, x: Tensor) -> Tensor:
    pred = hs.predict(model, likelihood, x[:20], samples=16, seed=5)
    torch.manual_seed(6)
    return torch.cat(
        [
            pred.draws.flatten(),
            torch.tensor(list(pred.evaluate(likelihood.sample(pred.draws)[0]).values())),
        ]
    )


class Residual(nn.Module):
    """A net whose input goes around its hidden layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + torch.tanh(self.first(x))
        return self.last(x + torch.relu(self.second(x)))


def mlp(outputs: int) -> nn.Module:
    torch.manual_seed(0)
    return hs.models.create("mlp-2x20", 6, outputs)


def lenet() -> nn.Module:
    torch.manual_seed(0)
    return hs.models.create("lenet", (1, 28, 28), 4)


def residual() -> nn.Module:
    torch.manual_seed(0)
    return Residual()


def runs(folder: Path) -> dict[str, Callable[[], str]]:
    folder.mkdir(parents=True, exist_ok=True)
    x, pictures = numbers(), images()
    y = quantity(x)
    counts = (y - y.min()).round()
    few, many = classes(x, 3), classes(pictures, 4)
    return {
        "iblm": lambda: trained(mlp(1), hs.Gaussian(), x, y, "iblm", folder=folder / "iblm"),
        "iblm, classes, full covariance": lambda: trained(
            mlp(3),
            hs.Categorical(3),
            x,
            few,
            "iblm",
            posterior="full_covariance",
            folder=folder / "full",
        ),
        "iblm, low rank, learned prior": lambda: trained(
            mlp(3),
            hs.Categorical(3),
            x,
            few,
            "iblm",
            posterior="low_rank",
            prior="learned",
            folder=folder / "low_rank",
        ),
        "iblm, LeNet": lambda: trained(
            lenet(), hs.Categorical(4), pictures, many, "iblm", folder=folder / "lenet"
        ),
        "iblm-paper, heteroscedastic": lambda: trained(
            mlp(2), hs.Heteroscedastic(), x, y, "iblm-paper"
        ),
        "lsuv, Poisson": lambda: trained(mlp(1), hs.Poisson(), x, counts, "lsuv", prior="fan-in"),
        "orthogonal, residual, Bernoulli, by weights": lambda: trained(
            residual(), hs.Bernoulli(), x, (y > 0).float(), "orthogonal", hs.SVI(sampler="weights")
        ),
        "iblm, residual": lambda: trained(residual(), hs.Gaussian(), x, y, "iblm"),
        "xavier, LeNet by weights": lambda: trained(
            lenet(), hs.Categorical(4), pictures, many, "xavier", hs.SVI(sampler="weights")
        ),
        "stock, noisy K-FAC": lambda: trained(
            mlp(3),
            hs.Categorical(3),
            x,
            few,
            "stock",
            hs.NoisyKFAC(),
            folder=folder / "matrix_normal",
        ),
        "stock, MC dropout": lambda: trained(
            mlp(3), hs.Categorical(3), x, few, "stock", hs.MCDropout()
        ),
        "uninformative, float64": lambda: trained(
            mlp(1).double(), hs.Gaussian(), x.double(), y.double(), "uninformative"
        ),
        "estimators": estimated,
        "headstart fit": lambda: table(folder),
        "headstart compare": lambda: compared(folder),
    }


def estimated() -> str:
    from headstart.estimators import BayesianClassifier, BayesianRegressor

    x = numbers().numpy()
    regressor = BayesianRegressor(steps=60, random_state=0).fit(
        x, quantity(numbers())[:, 0].numpy()
    )
    classifier = BayesianClassifier(steps=60, random_state=0).fit(x, classes(numbers(), 3).numpy())
    found = [*regressor.predict(x, return_std=True), classifier.predict_proba(x)]
    return digest(*(torch.from_numpy(np.ascontiguousarray(each)) for each in found))


def command(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "headstart.cli", *words], check=True, capture_output=True)


def table(folder: Path) -> str:
    """Predictions of a table with numbers, words and holes."""
    x = numbers()
    lines = ["a,b,c,kind,y"]
    for number, row in enumerate(x.tolist()):
        hole = "" if number % 17 == 3 else f"{row[1]:.4f}"
        lines.append(
            f"{row[0]:.4f},{hole},{row[2]:.4f},{'red' if row[3] > 0 else 'blue'},"
            f"{row[0] + row[2] ** 2:.5f}"
        )
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    command(
        "fit",
        str(folder / "table.csv"),
        "--target",
        "y",
        "--steps",
        "60",
        "--out",
        str(folder / "run"),
        "--overwrite",
    )
    command(
        "predict",
        str(folder / "run"),
        str(folder / "table.csv"),
        "--out",
        str(folder / "predicted.csv"),
    )
    return hashlib.sha256((folder / "predicted.csv").read_bytes()).hexdigest()[:16]


def compared(folder: Path) -> str:
    """The scores of a small comparison."""
    out = folder / "compared"
    options = (
        "--dataset",
        "diabetes",
        "--model",
        "mlp-2x20",
        "--init",
        "xavier,lsuv,iblm",
        "--steps",
        "20",
        "--splits",
        "1",
    )
    if out.exists():
        for path in sorted(out.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    command("compare", *options, "--out", str(out), "--jobs", "1")
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    scores = sorted(
        (row["init"], row["step"], row["rmse"], row["mnll"], row["coverage_95"]) for row in rows
    )
    return hashlib.sha256(json.dumps(scores).encode()).hexdigest()[:16]


def saved(folder: Path) -> dict[str, str]:
    """What models that were saved in this folder predict."""
    inputs = {"lenet": images()}
    found = {}
    for path in sorted(
        path
        for path in folder.iterdir()
        if path.name in ("iblm", "full", "low_rank", "lenet", "matrix_normal")
    ):
        model, likelihood = hs.load(path)
        found[f"loaded {path.name}"] = digest(
            predicted(model, likelihood, inputs.get(path.name, numbers()))
        )
    return found


def main() -> int:
    action, folder = sys.argv[1], Path(sys.argv[2])
    warnings.simplefilter("ignore")
    if action == "write":
        folder.mkdir(parents=True, exist_ok=True)
        found = {name: run() for name, run in runs(folder / "models").items()}
        (folder / "numbers.json").write_text(json.dumps(found | saved(folder / "models"), indent=1))
        return 0
    before = json.loads((folder / "numbers.json").read_text())
    found = saved(folder / "models")
    found |= {name: run() for name, run in runs(folder / "again").items()}
    other = [name for name in before if before[name] != found.get(name)]
    print("\n".join(f"{'differs' if name in other else 'equal  '}  {name}" for name in before))
    print(f"{len(before) - len(other)} equal, {len(other)} different")
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
