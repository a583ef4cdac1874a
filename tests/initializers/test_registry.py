"""Initializers by name: every family and net, requests refused in words, the signature."""

from __future__ import annotations

import inspect
import warnings

import pytest
import torch
from torch import nn

import headstart as hs
from tests import cases
from tests.cases import Residual, chain
from tests.initializers.samples import data


def options(name: str, net: nn.Module) -> dict[str, object]:
    return {k: net if k == "net" else v for k, v in cases.INITIALIZERS[name].items()}


@pytest.mark.parametrize("net", cases.NETS)
@pytest.mark.parametrize("posterior", cases.POSTERIORS)
@pytest.mark.parametrize("name", cases.INITIALIZERS)
def test_every_initializer_serves_every_family_and_net(name: str, posterior: str, net: str) -> None:
    source = cases.NETS[net]()
    model = hs.bayesianize(source, posterior=posterior)
    x, y = data()
    report = hs.initialize_(model, name, hs.Categorical(3), (x, y), seed=1, **options(name, source))
    assert [layer.name for layer in report.layers] == list(hs.bayesian_layers(model))
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert report.kl == pytest.approx(float(hs.kl(model).detach()), rel=1e-5, abs=1e-5)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    again = hs.bayesianize(source, posterior=posterior)
    hs.initialize_(again, name, hs.Categorical(3), (x, y), seed=1, **options(name, source))
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True)
    )


@pytest.mark.parametrize("side", ["primal", "dual"])
@pytest.mark.usefixtures("float64")
def test_a_hidden_layer_equals_the_plain_loop_over_units(side: str) -> None:
    """The paper's algorithm, unit by unit with dense inverses, on the same random numbers."""
    rows = 60 if side == "primal" else 4
    x, y = data(rows)
    lik = hs.Categorical(3)
    model = hs.bayesianize(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), prior=0.7)
    batch = [(x, y)]
    hs.initialize_(model, "iblm-paper", lik, batch, seed=3, rows=rows)
    t, v = lik.regression_targets(y, center=False)
    ones = torch.cat([x, torch.ones(rows, 1)], 1)
    q = model[0].posterior
    distinct = set()
    for unit in range(6):
        fits = []
        # The class is drawn at random: one of the three must fit exactly.
        for k in range(3):
            precision = torch.eye(5) / 0.7 + ones.T @ (ones / v[:, k : k + 1])
            mean = torch.linalg.inv(precision) @ (ones.T @ (t[:, k] / v[:, k]))
            gap = (q.mean[unit] - mean).abs().max() + (
                q.variance()[unit] - 1 / precision.diagonal()
            ).abs().max()
            fits.append(float(gap.detach()))
        assert min(fits) < 1e-9
        distinct.add(fits.index(min(fits)))
    assert len(distinct) > 1


@pytest.mark.usefixtures("float64")
def test_the_read_out_of_a_classifier_is_its_exact_blm() -> None:
    x, y = data(200)
    model = hs.bayesianize(nn.Linear(4, 3), posterior="full_covariance", prior=0.7)
    hs.initialize_(model, "iblm", hs.Categorical(3), (x, y))
    t, v = hs.Categorical(3).regression_targets(y)
    ones = torch.cat([x, torch.ones(200, 1)], 1)
    for k in range(3):
        cov = torch.linalg.inv(torch.eye(5) / 0.7 + ones.T @ (ones / v[:, k : k + 1]))
        factor = model.posterior.factor.matrix()[k]
        torch.testing.assert_close(factor @ factor.T, cov, atol=1e-9, rtol=0)
        torch.testing.assert_close(
            model.posterior.mean[k], cov @ (ones.T @ (t[:, k] / v[:, k])), atol=1e-9, rtol=0
        )


@pytest.mark.slow
def test_iblm_keeps_a_deep_wide_net_healthy() -> None:
    """MLP 10×500 with tanh: every sampled pre-activation sd in [0.5, 2] (relu: test_mnist)."""
    x, y = torch.randn(750, 20), torch.randint(10, (750,))
    x[torch.arange(750), y] += 1
    model = hs.bayesianize(hs.models.create("mlp-10x500-tanh", 20, 10))
    report = hs.initialize_(model, "iblm", hs.Categorical(10), (x, y), rows=512, last_rows=750)
    *hidden, _ = report.layers
    assert len(hidden) == 10
    assert all(0.5 <= layer.sd <= 2 for layer in hidden)
    (note,) = report.warnings
    assert "times the expected NLL" in note


def test_iblm_serves_convolutions_with_groups_and_strides() -> None:
    net = nn.Sequential(
        nn.Conv2d(2, 8, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 8, 2, groups=4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, 3),
    )
    model = hs.bayesianize(net)
    x, y = torch.randn(64, 2, 8, 8), torch.randint(3, (64,))
    report = hs.initialize_(model, "iblm", hs.Categorical(3), (x, y))
    assert [layer.kind for layer in report.layers] == ["Conv2d", "Conv2d", "Linear"]
    assert all(0.5 <= layer.sd <= 2 for layer in report.layers[:2] if layer.sd is not None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("iblmm",), "did you mean 'iblm'"),
        (("iblm",), "pass the likelihood"),
        (("iblm", hs.Categorical(3)), "pass batches"),
        (("lsuv",), "pass batches"),
        (("pretrained",), "pass net="),
        (("iblm", hs.Categorical(3), (torch.randn(1, 4), torch.tensor([0]))), "at least two"),
        (("lsuv", None, (torch.randn(1, 4), torch.tensor([0]))), "at least two"),
        (("lsuv", None, (torch.zeros(9, 4), torch.zeros(9))), "constant output"),
        (("iblm", hs.Categorical(3), []), "empty"),
        (
            ("iblm", hs.Categorical(3), (torch.full((9, 4), torch.nan), torch.zeros(9))),
            r"x holds nan at index \[0, 0\]",
        ),
        (
            ("iblm", hs.Categorical(3), (torch.randn(9, 4), torch.full((9,), 3))),
            "Labels must lie in",
        ),
    ],
)
def test_bad_requests_get_a_sentence(arguments: tuple[object, ...], sentence: str) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        hs.initialize_(hs.bayesianize(chain()), *arguments)  # type: ignore[arg-type]


def test_options_of_another_initializer_get_a_sentence() -> None:
    model = hs.bayesianize(chain())
    with pytest.raises(hs.HeadstartError, match="There is no option of 'lsuv' 'rescale'"):
        hs.initialize_(model, "lsuv", hs.Categorical(3), data(), rescale=True)
    with pytest.raises(hs.HeadstartError, match="There is no option of 'xavier' 'rows'"):
        hs.initialize_(model, "xavier", rows=3)


def test_options_are_in_the_signature() -> None:
    """Editors and type checkers know every option of every initializer."""
    parameters = inspect.signature(hs.initialize_).parameters
    assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for initializer in hs.INITIALIZERS.values():
        assert set(initializer.options) <= set(parameters)


def test_the_british_spelling_warns_and_works() -> None:
    found = []
    for option in ("center", "centre"):
        torch.manual_seed(0)
        model = hs.bayesianize(chain())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            hs.initialize_(model, "iblm", hs.Categorical(3), data(), **{option: False})
        assert [w.category for w in caught] == [DeprecationWarning] * (option == "centre")
        found.append([p.clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_values_that_do_not_exist_get_a_sentence() -> None:
    with pytest.raises(hs.HeadstartError, match=r"did you mean 'kl_(pq|qp)'"):
        hs.initialize_(hs.bayesianize(chain()), "iblm", hs.Categorical(3), data(), match="kl_pp")
    with pytest.raises(hs.HeadstartError, match="kind of targets"):
        hs.initialize_(hs.bayesianize(chain()), "iblm", hs.Categorical(3), data(), targets="labels")
    with pytest.raises(hs.HeadstartError, match="no affine layer"):
        hs.initialize_(hs.bayesianize(chain()), "pretrained", net=Residual())
