"""A Bayesian last layer on a CNN that was trained without one: MNIST, and notMNIST beside it.

    HEADSTART_DATA=... python benchmarks/last_layer.py --out docs/results/last-layer.md

The net is trained by Adam on the training images, and its weights are kept under `out/`. Then the
last layer becomes Bayesian, by "pretrained" and by "laplace", and nothing is trained any more.
Out-of-distribution rows are images of notMNIST, which nothing is chosen on.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from tables import table, write_page
from torch import Tensor, nn

import headstart as hs
from headstart import metrics
from headstart.data import load
from headstart.linalg.laplace import best_prior_variance

CLASSES, BATCH, CHUNK = 10, 128, 2000
PRIORS = (0.1, 0.3, 1.0, 3.0)
"""Prior variances of the joint covariance, beside that of the evidence."""


def images(x: Tensor) -> Tensor:
    """Pixels between 0 and 1."""
    return x.float() / 255


def make_net() -> nn.Sequential:
    """Two convolutions and a hidden layer."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, CLASSES)),
    )


def train(x: Tensor, y: Tensor, epochs: int, weight_decay: float) -> nn.Sequential:
    """Adam at a step size that falls to zero along a cosine."""
    torch.manual_seed(0)
    net, steps = make_net(), epochs * (len(x) // BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(BATCH)[: len(x) // BATCH]:
            optimizer.zero_grad()
            F.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
            schedule.step()
    return net


def trained_net(x: Tensor, y: Tensor, folder: Path, epochs: int, decay: float) -> nn.Sequential:
    """The net of an earlier run, or a new one."""
    path = folder / f"cnn-{epochs}-{decay:g}.pt"
    if path.is_file():
        net = make_net()
        net.load_state_dict(torch.load(path, weights_only=True))
        return net.eval()
    start = time.perf_counter()
    net = train(x, y, epochs, decay)
    print(f"trained in {time.perf_counter() - start:.0f} s", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(net.state_dict(), path)
    return net.eval()


@torch.no_grad()
def logits(net: nn.Module, x: Tensor) -> Tensor:
    """The outputs of a plain net as a single draw, (1, N, K)."""
    return torch.cat([net(part) for part in x.split(CHUNK)]).unsqueeze(0)


def scores(inside: hs.Predictive, y: Tensor, outside: hs.Predictive) -> list[str]:
    """NLL, error and calibration of one, and how well entropies tell the other from it."""
    found = inside.evaluate(y)
    entropy = metrics.auroc(inside.entropy, outside.entropy)
    cells = [f"{found[name]:.4f}" for name in ("mnll", "error", "ece")] + [f"{entropy:.4f}"]
    if len(inside.draws) == 1:
        return [*cells, "-"]
    return [*cells, f"{metrics.auroc(inside.mutual_information, outside.mutual_information):.4f}"]


class JointLaplace:
    """The Laplace approximation of a last layer with one covariance for all of its weights.

    The softmax couples classes: `Σ_n (diag p − p pᵀ) ⊗ x xᵀ`, where a posterior of ours has one
    block for each class. It is no family of the package: it shows what the coupling is worth.

    Args:
        body: what comes before the layer.
        layer: the layer.
        x: the training images.
    """

    def __init__(self, body: nn.Module, layer: nn.Linear, x: Tensor) -> None:
        self.body, self.classes = body, layer.out_features
        self.mean = torch.cat([layer.weight, layer.bias.unsqueeze(1)], 1).detach().double()
        rows = self._rows(x).double()
        p = (rows @ self.mean.T).softmax(1)
        size = rows.shape[1]
        matrix = rows.new_zeros(self.classes, size, self.classes, size)
        for i in range(self.classes):
            for j in range(i + 1):
                weight = p[:, i] * (float(i == j) - p[:, j])
                matrix[i, :, j] = rows.T @ (weight.unsqueeze(1) * rows)
                matrix[j, :, i] = matrix[i, :, j].T
        flat = matrix.reshape(self.classes * size, -1)
        self.values, self.vectors = torch.linalg.eigh(flat)
        self.values.clamp_min_(0.0)

    def _rows(self, x: Tensor) -> Tensor:
        return F.pad(logits(self.body, x)[0], (0, 1), value=1.0)

    def best_variance(self) -> float:
        """The prior variance of the largest evidence."""
        return best_prior_variance(self.values, float(self.mean.square().sum()))

    def predict(self, x: Tensor, samples: int, prior_var: float) -> hs.Predictive:
        """Draws of the outputs under a prior variance."""
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(samples, len(self.values), generator=generator, dtype=torch.float64)
        spread = (noise * (self.values + 1 / prior_var).rsqrt()) @ self.vectors.T
        weights = (self.mean + spread.view(samples, *self.mean.shape)).float()
        draws = torch.einsum("nd,skd->snk", self._rows(x), weights)
        return hs.Predictive(draws, hs.Categorical(self.classes))


def joint_rows(
    net: nn.Sequential, x: Tensor, test: tuple[Tensor, Tensor], letters: Tensor, samples: int
) -> list[list[str]]:
    """The scores of the joint covariance under several priors, that of the evidence first."""
    layer = net[-1]
    assert isinstance(layer, nn.Linear)
    start, found = time.perf_counter(), []
    joint = JointLaplace(net[:-1], layer, x)
    seconds = time.perf_counter() - start
    for var in (joint.best_variance(), *PRIORS):
        both = [joint.predict(each, samples, var) for each in (test[0], letters)]
        row = ["joint over classes", f"{var:.3g}", *scores(both[0], test[1], both[1])]
        found.append([*row, f"{seconds:.1f}"])
        print(*found[-1], sep=" | ", flush=True)
    return found


def main() -> None:
    """Train, place, predict; write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--nets", type=Path, default=Path("out/last-layer"))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    mnist, letters = load("mnist"), images(load("notmnist").x)
    assert mnist.test is not None
    x, y, test_x, test_y = images(mnist.x), mnist.y, images(mnist.test[0]), mnist.test[1]
    net = trained_net(x, y, args.nets, args.epochs, args.weight_decay)
    lik = hs.Categorical(CLASSES)
    plain = [hs.Predictive(logits(net, each), lik) for each in (test_x, letters)]
    lines = [["deterministic", "-", *scores(plain[0], test_y, plain[1]), "-"]]
    print(*lines[-1], sep=" | ", flush=True)
    for name, family, prior in (
        ("pretrained", "full_covariance", 1.0),
        ("laplace", "full_covariance", "learned"),
        ("laplace", "full_covariance", 1.0),
        ("laplace", "matrix_normal", "learned"),
        ("laplace", "mean_field", "learned"),
    ):
        model = hs.bayesianize(net, posterior=family, prior=prior, where="last")
        options = {"net": net} if name == "pretrained" else {}
        start = time.perf_counter()
        hs.initialize_(model, name, lik, (x, y), **options)
        seconds = time.perf_counter() - start
        both = [hs.predict(model, lik, each, args.samples, seed=0) for each in (test_x, letters)]
        (layer,) = hs.bayesian_layers(model).values()
        var = f"{1 / layer.prior.mean_precision():.3g}"
        row = [f"{name}, {family}", var, *scores(both[0], test_y, both[1]), f"{seconds:.1f}"]
        lines.append(row)
        print(*row, sep=" | ", flush=True)
    lines += joint_rows(net, x, (test_x, test_y), letters, args.samples)
    if args.out is not None:
        write_page(args.out, page(lines, args.samples))


def page(lines: list[list[str]], samples: int) -> str:
    """The page of the table."""
    head = ["last layer", "prior variance", "NLL", "error", "ECE"]
    head += ["AUROC, entropy", "AUROC, mutual information", "seconds"]
    return "\n".join(
        [
            "# A Bayesian last layer on a trained CNN",
            "",
            "The net was trained on MNIST without a posterior; its last layer then got one.",
            f"Scores are those of the test images, by {samples} draws of the weights.",
            "One net, one seed: "
            "`python benchmarks/last_layer.py --out docs/results/last-layer.md`.",
            "AUROC: how well a score tells images of notMNIST from them; nothing is chosen on it.",
            'Prior variances of "laplace" with a learned prior are those of the largest evidence.',
            "Seconds are of one thread on this machine, with the body's pass over 60 000 images.",
            "Joint over classes: one covariance for the weights of all classes, which the softmax "
            "couples; `benchmarks/last_layer.py` has it, the package does not.",
            "",
            table(head, lines),
            "",
        ]
    )


if __name__ == "__main__":
    main()
