"""Mean and variance of a net's outputs in one pass, beside draws."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headstart as hs
from headstart.network.moment_stages import pair_of_factors
from tests.cases import scramble_

pytestmark = [pytest.mark.usefixtures("float64"), pytest.mark.filterwarnings("ignore:BatchNorm")]


def converted(net: nn.Module, spread: float = 0.3, **options: object) -> nn.Module:
    model = hs.bayesianize(net, **options).eval()  # type: ignore[arg-type]
    scramble_(model, spread)
    return model


def drawn(model: nn.Module, x: Tensor, samples: int = 4000) -> Tensor:
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        return hs.draw(model, x, samples, "weights")


@pytest.mark.parametrize(
    "posterior", ["mean_field", "full_covariance", "low_rank", "matrix_normal"]
)
@pytest.mark.parametrize("make", [lambda: nn.Linear(4, 3), lambda: nn.Conv2d(2, 3, 3, padding=1)])
def test_one_layer_is_exact(make: object, posterior: str) -> None:
    op = make()  # type: ignore[operator]
    model = converted(nn.Sequential(op), posterior=posterior)
    x = torch.randn(5, 4) if isinstance(op, nn.Linear) else torch.randn(5, 2, 6, 6)
    mean, var = hs.moment_network(model)(x)
    layer = model[0]  # type: ignore[index]
    torch.testing.assert_close(mean, hs.mean_network(model)(x), rtol=1e-9, atol=1e-9)
    expected = layer.posterior.local_variance(layer.op, x)
    torch.testing.assert_close(var, expected, rtol=1e-9, atol=1e-9)


def test_two_layers_without_activation_have_the_law_of_a_product() -> None:
    model = converted(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)))
    x = torch.randn(4, 3)
    mean, var = hs.moment_network(model)(x)
    first, second = hs.bayesian_layers(model).values()
    with torch.no_grad():
        m = F.linear(x, first.posterior.mean[:, :-1], first.posterior.mean[:, -1])
        s = first.posterior.local_variance(first.op, x)
        weights, spread = second.posterior.mean, second.posterior.variance()
        rows = torch.cat([m, torch.ones(4, 1)], 1)
        expected = rows.square() @ spread.T + s @ (spread + weights.square())[:, :5].T
    torch.testing.assert_close(mean, rows @ weights.T, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(var, expected, rtol=1e-9, atol=1e-9)


class Calls(nn.Module):
    """The chain of `convolutions`, with functions in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.second, self.head = nn.Linear(36, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return self.head(torch.tanh(self.second(torch.flatten(x, 1))))


def convolutions() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(36, 12), nn.Tanh(), nn.Dropout(), nn.Linear(12, 3)),
    )


def averages() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv1d(1, 4, 3), nn.LeakyReLU(0.1), nn.AvgPool1d(2), nn.Conv1d(4, 6, 3), nn.GELU()),
        *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(6, 3)),
    )


NETS = {
    "dense": (
        lambda: nn.Sequential(
            *[nn.Linear(8, 30), nn.ReLU()], nn.Linear(30, 30), nn.Tanh(), nn.Linear(30, 3)
        ),
        (8,),
    ),
    "convolutions": (convolutions, (1, 8, 8)),
    "functions": (Calls, (1, 8, 8)),
    "averages": (averages, (1, 16)),
}


@pytest.mark.parametrize("name", NETS)
def test_moments_are_near_those_of_draws(name: str) -> None:
    make, shape = NETS[name]
    model = converted(make(), 0.1)
    x = torch.randn(160, *shape)
    mean, var = hs.moment_network(model, x[:120], samples=128)(x[120:])
    draws = drawn(model, x[120:])
    sd = draws.std(0)
    assert float((var.sqrt() / sd).log().mean().exp()) == pytest.approx(1, abs=0.05)
    assert float(((mean - draws.mean(0)) / sd).square().mean().sqrt()) < 0.15


def test_what_draws_set_corrects_uncorrelated_elements() -> None:
    model, x = converted(convolutions(), 0.1), torch.randn(160, 1, 8, 8)
    sd = drawn(model, x[120:]).std(0)
    plain, fitted = hs.moment_network(model), hs.moment_network(model, x[:120], samples=128)
    errors = [float((net(x[120:])[1].sqrt() / sd - 1).abs().mean()) for net in (plain, fitted)]
    assert errors[1] < 0.7 * errors[0]


def test_layers_in_functions_are_those_of_the_chain() -> None:
    model, x = converted(Calls()), torch.randn(3, 1, 8, 8)
    names = ("first", "norm", "second", "head")
    modules = [getattr(model, name) for name in names]
    first, norm, second, head = modules
    chain = nn.Sequential(
        first, norm, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), second, nn.Tanh(), head
    )
    torch.testing.assert_close(hs.moment_network(model)(x), hs.moment_network(chain)(x))


def test_a_deterministic_body_has_no_variance() -> None:
    model = converted(convolutions(), where=["8"])
    x = torch.randn(4, 1, 8, 8)
    mean, var = hs.moment_network(model, x, samples=4)(x)
    torch.testing.assert_close(mean, hs.mean_network(model).eval()(x), rtol=1e-9, atol=1e-9)
    body = nn.Sequential(*list(model)[:8]).eval()  # type: ignore[call-overload]
    layer = model[8]  # type: ignore[index]
    torch.testing.assert_close(var, layer.posterior.local_variance(layer.op, body(x)))


def test_the_model_and_the_random_numbers_stay() -> None:
    model = converted(convolutions(), 0.1).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first, second = (hs.moment_network(model, torch.ones(9, 1, 8, 8), samples=4) for _ in "ab")
    assert torch.equal(torch.rand(1), expected)
    assert model.training
    assert not first.train().training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    x = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(first(x), second(x), rtol=0, atol=0)


def test_two_factors_are_those_of_least_squares() -> None:
    first, second = torch.rand(6, 50), torch.rand(6, 50)
    wanted = 2 * first + 3 * second + 0.1 * torch.randn(6, 50)
    found = torch.stack(pair_of_factors(wanted, first, second), 1)
    expected = torch.linalg.lstsq(torch.stack([first, second], 2), wanted.unsqueeze(2)).solution
    torch.testing.assert_close(found, expected.squeeze(2), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("other", [1.0, 2.0, 0.0])
def test_two_factors_that_no_row_tells_apart_are_one(other: float) -> None:
    """The columns of a single row, and a column of zeros, are multiples of one another."""
    first = torch.tensor([[1.0, 2.0]])
    for columns in ((first, other * first), (other * first, first)):
        found = pair_of_factors(3 * first, *columns)
        fitted = sum(a.unsqueeze(1) * part for a, part in zip(found, columns, strict=True))
        torch.testing.assert_close(fitted, 3 * first, rtol=1e-9, atol=1e-9)
    one, two, wanted = torch.rand(3, 200, 1)
    a, b = pair_of_factors(wanted, one, two)
    torch.testing.assert_close(a.unsqueeze(1) * one + b.unsqueeze(1) * two, wanted)


def test_an_activation_in_place_is_the_same_as_one_that_is_not() -> None:
    model = converted(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 6), nn.SiLU()))
    x = torch.randn(5, 4)
    before, expected = x.clone(), hs.moment_network(model, x, samples=4)(x)
    model[2].inplace = True  # type: ignore[index]
    torch.testing.assert_close(hs.moment_network(model, x, samples=4)(x), expected)
    assert torch.equal(x, before)


def test_an_average_with_a_divisor_of_its_own() -> None:
    model = converted(nn.Sequential(nn.Conv2d(1, 2, 1), nn.AvgPool2d(2, divisor_override=3)))
    x = torch.randn(3, 1, 4, 4)
    inner = hs.moment_network(model[0])(x)[1]  # type: ignore[index]
    expected = 4 * F.avg_pool2d(inner, 2) / 9
    torch.testing.assert_close(hs.moment_network(model)(x)[1], expected, rtol=1e-9, atol=1e-9)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


def test_other_nets_are_refused_in_words() -> None:
    cases = {
        "form a chain": Residual(),
        "moments of a Softmax": nn.Sequential(nn.Linear(4, 2), nn.Softmax(-1)),
        "numbers as inputs": nn.Sequential(nn.Embedding(4, 2)),
        "running statistics": nn.Sequential(
            nn.Linear(4, 2), nn.BatchNorm1d(2, track_running_stats=False)
        ),
    }
    for words, net in cases.items():
        with pytest.raises(hs.HeadstartError, match=words):
            hs.moment_network(hs.bayesianize(net))
    with pytest.raises(hs.HeadstartError, match="Gaussian weights"):
        hs.moment_network(hs.bayesianize(nn.Linear(4, 2), posterior="dropout"))
    with pytest.raises(hs.HeadstartError, match="two draws"):
        hs.moment_network(hs.bayesianize(nn.Linear(4, 2)), samples=1)


def test_of_a_mixture_a_member_is_taken() -> None:
    model, x = converted(nn.Sequential(nn.Linear(4, 2)), members=2), torch.randn(3, 4)
    with pytest.raises(hs.HeadstartError, match=r"with hs\.member"):
        hs.moment_network(model)
    with hs.member(model, 1):
        mean, _ = hs.moment_network(model)(x)
        torch.testing.assert_close(mean, hs.mean_network(model)(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NETS)
def test_export_keeps_the_moments(name: str, tmp_path: Path) -> None:
    make, shape = NETS[name]
    model = converted(make().float(), 0.1)
    x = torch.randn(6, *shape, dtype=torch.float32)
    net = hs.moment_network(model, x, samples=8)
    rows = ({0: torch.export.Dim.DYNAMIC},)
    exported = torch.export.export(net, (x,), dynamic_shapes=rows).module()
    torch.testing.assert_close(exported(x[:3]), net(x[:3]))
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    file = str(tmp_path / "moments.onnx")
    torch.onnx.export(net, (x,), file, dynamo=True, dynamic_shapes=rows)
    session = runtime.InferenceSession(file)
    found = session.run(None, {session.get_inputs()[0].name: x[:3].numpy()})
    for one, other in zip(found, net(x[:3]), strict=True):
        torch.testing.assert_close(torch.from_numpy(one), other, rtol=1e-4, atol=1e-4)
