"""Saved and loaded is the same; what is not one of our files gets one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import headstart as hs
from headstart.storage.files import open_tensors, write_tensors
from tests import cases
from tests.cases import NETS, Residual, chain, scramble_


def same(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(
        torch.equal(left[k], right[k]) and left[k].dtype == right[k].dtype for k in left
    )


def test_a_model_of_version_0_1_predicts_as_it_did() -> None:
    model, lik = hs.load(Path(__file__).with_name("model_0_1.safetensors"))
    written = json.loads(Path(__file__).with_name("model_0_1.json").read_text())
    with hs.drawing(model, "mean"):
        mean = lik.mean(model(torch.tensor(written["x"])))
    wanted = (torch.tensor(written[name], dtype=torch.float64) for name in ("mean", "noise_var"))
    found = (mean.detach().double(), lik.noise_var.detach().double())
    torch.testing.assert_close(found, tuple(wanted), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("posterior", cases.POSTERIORS)
@pytest.mark.parametrize("prior", cases.PRIORS)
@pytest.mark.parametrize("net", NETS)
def test_a_model_of_one_s_own_comes_back(
    tmp_path: Path, posterior: str, prior: str, net: str
) -> None:
    model, lik = (
        hs.bayesianize(NETS[net](), posterior=posterior, prior=cases.PRIORS[prior]),
        hs.Categorical(3),
    )
    scramble_(model)
    hs.save(tmp_path / "m", model, lik)
    again, lik_again = hs.load(tmp_path / "m", net=NETS[net]())
    assert same(model, again)
    assert lik_again.config() == lik.config()
    torch.testing.assert_close(hs.kl(again), hs.kl(model), rtol=0, atol=0)
    x = torch.randn(5, 4)
    draws = [hs.predict(m, lik, x, samples=4, seed=0).draws for m in (model, again)]
    assert torch.equal(*draws)


@pytest.mark.parametrize("name", cases.LIKELIHOODS)
def test_every_likelihood_comes_back(tmp_path: Path, name: str) -> None:
    case = cases.LIKELIHOODS[name]
    model, lik = hs.bayesianize(nn.Linear(4, case.outputs)), case.make()
    hs.save(tmp_path / "m", model, lik)
    _, again = hs.load(tmp_path / "m", net=nn.Linear(4, case.outputs))
    assert repr(again) == repr(lik)
    f, y = torch.randn(3, 6, case.outputs), lik.check(case.labels(6), case.outputs)
    torch.testing.assert_close(again.log_prob(f, y), lik.log_prob(f, y), rtol=0, atol=0)
    assert [p.requires_grad for p in again.parameters()] == [
        p.requires_grad for p in lik.parameters()
    ]


@pytest.mark.parametrize(("name", "shape"), [("mlp-2x10-tanh", 4), ("lenet", (1, 28, 28))])
def test_models_made_by_name_need_no_net(
    tmp_path: Path, name: str, shape: int | tuple[int, ...]
) -> None:
    model = hs.bayesianize(
        hs.models.create(name, shape, 3).double(),
        where="last",
        posterior=lambda *a, **k: hs.LowRank(*a, rank=2, **k),
    )
    hs.save(tmp_path / "m", model, hs.Categorical(3))
    again, _ = hs.load(tmp_path / "m")
    assert same(model, again)
    assert repr(again) == repr(model)


def test_an_inherited_prior_comes_back(tmp_path: Path) -> None:
    for posterior in ("mean_field", "full_covariance"):
        model = hs.bayesianize(chain(), posterior=posterior)
        hs.inherit_(model)
        scramble_(model)
        hs.save(tmp_path / "m", model, hs.Categorical(3))
        again, _ = hs.load(tmp_path / "m", net=chain())
        torch.testing.assert_close(hs.kl(again), hs.kl(model), rtol=0, atol=0)


def test_tied_modules_stay_tied(tmp_path: Path) -> None:
    def net() -> nn.Module:
        layer = nn.Linear(4, 4)
        return nn.Sequential(layer, nn.Tanh(), layer)

    model = hs.bayesianize(net())
    scramble_(model)
    hs.save(tmp_path / "m", model, hs.Gaussian())
    again, _ = hs.load(tmp_path / "m", net=net())
    assert again[0] is again[2]
    assert same(model, again)


def test_saving_is_atomic_and_leaves_no_litter(tmp_path: Path) -> None:
    model, lik = hs.bayesianize(chain()), hs.Categorical(3)
    hs.save(tmp_path / "m", model, lik)
    before = (tmp_path / "m").read_bytes()
    broken = hs.Categorical(3)
    broken.num_classes = object()  # type: ignore[assignment]  # not JSON: the save fails
    with pytest.raises(TypeError):
        hs.save(tmp_path / "m", model, broken)
    assert (tmp_path / "m").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def edited(path: Path, **changes: object) -> None:
    """The same file with another description, forged: its checksum fits."""
    file = open_tensors(path, "model")
    write_tensors(path, file.read(), "model", {**file.description, **changes})


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda p: p.unlink(), "There is no file"),
        (lambda p: p.write_bytes(b""), "not a whole safetensors file"),
        (lambda p: p.write_bytes(p.read_bytes()[:-7]), "not a whole safetensors file"),
        (lambda p: p.write_bytes(b"\x80\x04" + p.read_bytes()), "not a whole safetensors file"),
        (lambda p: save_file({"w": torch.zeros(3)}, p), "not a model of headstart's"),
        (
            lambda p: save_file({"w": torch.zeros(3)}, p, {"headstart": "[]"}),
            "no model of headstart's",
        ),
        (lambda p: edited(p, format=99), "format 99; this headstart reads formats up to 2"),
        (lambda p: edited(p, layers={}), "no model of headstart's"),
        (lambda p: edited(p, layers={"0": 7}), "no model of headstart's"),
        (
            lambda p: edited(p, likelihood={"name": "os.system", "options": {}}),
            "no likelihood 'os.system'",
        ),
        (
            lambda p: edited(p, likelihood={"name": "gaussian", "options": {"evil": 1}}),
            "cannot be built",
        ),
        (lambda p: edited(p, net=["mlp-2x11", [4], 3]), "holds '.*' with shape"),
        (lambda p: edited(p, net=["mlp-1x10", [4], 3]), "holds .* with shape"),
        (
            lambda p: edited(p, likelihood={"name": "categorical", "options": {"num_classes": 7}}),
            "needs 7",
        ),
        (lambda p: edited(p, net=None), r"load\(path, net=net\)"),
        (lambda p: edited(p, net="mlp-2x10"), "does not say how its net was made"),
    ],
)
def test_foreign_files_get_a_sentence(tmp_path: Path, damage: object, sentence: str) -> None:
    path = tmp_path / "m"
    hs.save(path, hs.bayesianize(hs.models.create("mlp-2x10", 4, 3)), hs.Categorical(3))
    damage(path)  # type: ignore[operator]
    with pytest.raises(hs.HeadstartError, match=sentence):
        hs.load(path)


def test_the_wrong_net_and_the_wrong_folder_get_a_sentence(tmp_path: Path) -> None:
    hs.save(tmp_path / "m", hs.bayesianize(chain()), hs.Categorical(3))
    with pytest.raises(hs.HeadstartError, match="another net's file"):
        hs.load(tmp_path / "m", net=Residual())
    with pytest.raises(hs.HeadstartError, match="There is no folder"):
        hs.save(tmp_path / "nowhere" / "m", hs.bayesianize(chain()), hs.Categorical(3))


def conditioned_of(
    net: nn.Module, lik: hs.Likelihood, labels: torch.Tensor, members: int = 1
) -> hs.Conditioned:
    torch.manual_seed(1)
    model = hs.bayesianize(net, members=members)
    scramble_(model)
    x = torch.randn(60, 4)
    return hs.condition(model, lik, (x, labels), draws=4)


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("kind", ["gaussian", "categorical", "linear", "double"])
def test_a_conditioned_net_comes_back(tmp_path: Path, kind: str, members: int) -> None:
    made = hs.models.create("mlp-1x20", 4, 3 if kind == "categorical" else 1)
    net = nn.Linear(4, 1) if kind == "linear" else made.double() if kind == "double" else made
    x = torch.randn(9, 4)
    y = torch.randint(3, (60,)) if kind == "categorical" else torch.randn(60, 1)
    lik = hs.Categorical(3) if kind == "categorical" else hs.Gaussian()
    found = conditioned_of(net, lik, y, members)
    hs.save(tmp_path / "m", found)
    again = hs.load(tmp_path / "m", net=net if kind == "linear" else None, conditioned=True)
    assert len(again.nets) == len(found.nets) > 0
    assert all(same(a, b) for a, b in zip(found.nets, again.nets, strict=True))
    one, other = (each.predict(x, 16, seed=3) for each in (found, again))
    assert torch.equal(one.draws, other.draws)
    for name in ("nelbo", "read_out_nelbo", "num_data", "prior_var", "factor", "seconds"):
        assert getattr(again, name) == getattr(found, name)
    # Nets of their own: what changes one leaves the others.
    with torch.no_grad():
        bayesian = list(hs.bayesian_layers(again.nets[0]).values())[-1]
        bayesian.posterior.mean.zero_()
    assert all(same(a, b) for a, b in zip(found.nets[1:], again.nets[1:], strict=True))


def test_what_the_nets_of_a_conditioned_share_is_saved_once(tmp_path: Path) -> None:
    torch.manual_seed(0)
    body = nn.Linear(4, 50)
    net = nn.Sequential(body, nn.ReLU(), nn.Linear(50, 3), nn.Tanh(), nn.Linear(3, 1))
    model = hs.bayesianize(net, where=lambda name, module: name != "0")
    found = hs.condition(model, hs.Gaussian(), (torch.randn(60, 4), torch.randn(60, 1)), draws=5)
    hs.save(tmp_path / "m", found)
    shapes = open_tensors(tmp_path / "m", "model").shapes
    assert shapes["model.0.weight"] == (50, 4)
    assert shapes["draws.2.posterior.mean"] == (5, 3, 51)


def test_nets_and_what_condition_returned_are_not_taken_for_each_other(tmp_path: Path) -> None:
    found = conditioned_of(hs.models.create("mlp-1x20", 4, 1), hs.Gaussian(), torch.randn(60, 1))
    hs.save(tmp_path / "many", found)
    hs.save(tmp_path / "one", found.nets[0], found.likelihood)
    with pytest.raises(hs.HeadstartError, match="conditioned=True"):
        hs.load(tmp_path / "many")
    with pytest.raises(hs.HeadstartError, match=r"holds a net.*hs\.load\(path\)"):
        hs.load(tmp_path / "one", conditioned=True)
    with pytest.raises(hs.HeadstartError, match="with its likelihood"):
        hs.save(tmp_path / "none", found.nets[0])  # type: ignore[call-overload]
    with pytest.raises(hs.HeadstartError, match="a likelihood of its own"):
        hs.save(tmp_path / "none", found, found.likelihood)  # type: ignore[call-overload]
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"conditioned": {}}, "nothing that hs.condition returned"),
        ({"conditioned": 3}, "nothing that hs.condition returned"),
        ({"prior_var": "wide"}, "nothing that hs.condition returned"),
        ({"nelbo": None}, "nothing that hs.condition returned"),
    ],
)
def test_a_conditioned_file_that_says_nonsense_is_refused(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    found = conditioned_of(hs.models.create("mlp-1x20", 4, 1), hs.Gaussian(), torch.randn(60, 1))
    hs.save(tmp_path / "m", found)
    file = open_tensors(tmp_path / "m", "model")
    numbers = {**file.description["conditioned"], **change}
    description = {**file.description, "conditioned": change.get("conditioned", numbers)}
    write_tensors(tmp_path / "m", file.read(), "model", description)
    with pytest.raises(hs.HeadstartError, match=words):
        hs.load(tmp_path / "m", conditioned=True)


def test_a_conditioned_file_whose_draws_are_not_equally_many_is_refused(tmp_path: Path) -> None:
    found = conditioned_of(hs.models.create("mlp-1x20", 4, 1), hs.Gaussian(), torch.randn(60, 1))
    hs.save(tmp_path / "m", found)
    file = open_tensors(tmp_path / "m", "model")
    name = next(name for name in file.shapes if name.startswith("draws."))
    tensors = file.read()
    write_tensors(tmp_path / "m", {**tensors, name: tensors[name][:2]}, "model", file.description)
    with pytest.raises(hs.HeadstartError, match="how many nets it holds"):
        hs.load(tmp_path / "m", conditioned=True)
