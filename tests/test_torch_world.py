"""What people do with modules works: copies, dtypes, autocast, functional calls, export."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart import data
from headstart.models.resnet import resnet
from tests.cases import scramble_


class ResidualBlock(nn.Module):
    """Two convolutions around which the input also goes, as users write it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.second(torch.relu(self.first(x))))


class ResidualNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block, self.head = (
            nn.Conv2d(1, 4, 3, stride=2),
            ResidualBlock(4),
            nn.Linear(4, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(torch.relu(self.stem(x))).mean((2, 3)))


NETS: dict[str, Callable[[], nn.Module]] = {
    "lenet": lambda: hs.models.create("lenet", (1, 28, 28), 10),
    "residual": ResidualNet,
}
X, Y = torch.randn(6, 1, 28, 28), torch.randint(10, (6,))


@pytest.fixture(params=NETS)
def model(request: pytest.FixtureRequest) -> nn.Module:
    made = hs.bayesianize(NETS[request.param]())
    scramble_(made, 0.05)
    return made


def mean_of(model: nn.Module, x: Tensor = X) -> Tensor:
    with hs.drawing(model, "mean"), torch.no_grad():
        return model(x)


def test_deepcopy(model: nn.Module) -> None:
    other = copy.deepcopy(model)
    torch.testing.assert_close(mean_of(other), mean_of(model))
    with torch.no_grad():
        next(other.parameters()).add_(1)
    assert not torch.equal(next(other.parameters()), next(model.parameters()))


def test_strict_state_dict(model: nn.Module) -> None:
    other = copy.deepcopy(model)
    scramble_(other)
    other.load_state_dict(model.state_dict(), strict=True)
    torch.testing.assert_close(mean_of(other), mean_of(model))
    torch.testing.assert_close(hs.kl(other), hs.kl(model))


def test_dtype_and_device(model: nn.Module) -> None:
    before = mean_of(model)
    model.to(torch.float64)
    torch.testing.assert_close(mean_of(model, X.double()), before.double(), atol=1e-4, rtol=1e-4)
    meta = copy.deepcopy(model).to("meta")
    assert hs.draw(meta, X.double().to("meta"), 3).shape == (3, 6, 10)


@pytest.mark.usefixtures("torch_names")
def test_autocast(model: nn.Module) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = hs.nelbo(model, hs.Categorical(10), X, Y, num_data=60, samples=2)
    assert loss.kl.dtype == torch.float32
    assert loss.value.dtype == torch.float32
    torch.testing.assert_close(loss.kl, hs.kl(model))
    loss.value.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.usefixtures("torch_names")
def test_functional_call(model: nn.Module) -> None:
    doubled = {k: 2 * v for k, v in model.state_dict().items()}
    with hs.drawing(model, "mean"):
        out = torch.func.functional_call(model, doubled, (X,))
    other = copy.deepcopy(model)
    other.load_state_dict(doubled)
    torch.testing.assert_close(out, mean_of(other))


@pytest.mark.slow
# These warnings are the tracer's own.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("sampler", ["local", "weights"])
def test_a_training_step_compiles_without_a_break(model: nn.Module, sampler: str) -> None:
    likelihood = hs.Categorical(10)

    def step(x: Tensor, y: Tensor) -> Tensor:
        return hs.nelbo(model, likelihood, x, y, num_data=60, samples=4, sampler=sampler).value

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    torch.manual_seed(0)
    expected = step(X, Y)
    expected.backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch.manual_seed(0)
    found = compiled(X, Y)
    found.backward()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for p, grad in zip(model.parameters(), grads, strict=True):
        torch.testing.assert_close(p.grad, grad, rtol=1e-3, atol=1e-3)


def test_export_of_the_mean(model: nn.Module) -> None:
    with hs.drawing(model, "mean"):
        program = torch.export.export(
            model.eval(), (X,), dynamic_shapes=({0: torch.export.Dim("batch")},)
        )
    torch.testing.assert_close(program.module()(X[:4]), mean_of(model)[:4])


@pytest.mark.slow
def test_export_of_draws_for_any_batch_size(model: nn.Module) -> None:
    class Served(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return hs.draw(self.model, x, 5)

    program = torch.export.export(
        Served().eval(), (X,), dynamic_shapes=({0: torch.export.Dim("batch")},)
    ).module()
    assert program(X[:4]).shape == (5, 4, 10)
    assert not torch.equal(program(X[:4]), program(X[:4]))


@pytest.mark.slow
def test_export_of_one_sample_stays_random(model: nn.Module) -> None:
    program = torch.export.export(model.eval(), (X,)).module()
    first, second = program(X), program(X)
    assert first.shape == (6, 10)
    assert not torch.equal(first, second)
    draws = torch.stack([program(X) for _ in range(300)]).detach()
    own = torch.cat([hs.draw(model, X, 50) for _ in range(6)]).detach()
    z = (draws.mean(0) - own.mean(0)) / ((draws.var(0) + own.var(0)) / 300).sqrt()
    assert float(z.abs().max()) < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.filterwarnings("ignore:BatchNorm")
def test_residual_nets_learn_from_i_blm(batch_norm: bool) -> None:
    """Digits in 70 steps; from an orthogonal start the same net is still at chance."""
    digits = data.load("digits")
    x, y = digits.x.reshape(-1, 1, 8, 8) / 8 - 1, digits.y
    errors = []
    for init in ("iblm", "orthogonal"):
        torch.manual_seed(0)
        net = resnet((1, 8, 8), 10, filters=(8, 16), batch_norm=batch_norm)
        model, lik = hs.bayesianize(net), hs.Categorical(10)
        hs.initialize_(model, init, lik, (x[:1400], y[:1400]), seed=0)
        hs.fit(
            model, lik, (x[:1400], y[:1400]), steps=70, lr=5e-3, samples=2, seed=0, progress=False
        )
        errors.append(hs.evaluate(model, lik, (x[1400:], y[1400:]), 16, seed=0)["error"])
    assert errors[0] < 0.5 < errors[1]
