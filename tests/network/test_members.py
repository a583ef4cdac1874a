"""What a user sees of a mixture: conversion, one member, files, refusals."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart import HeadstartError
from headstart.curvature import kronecker_factors
from headstart.network.forward import draw_weights
from headstart.network.layer import bayesian_layers, count_members
from headstart.posteriors import MeanField
from headstart.posteriors.mixture import part, stack


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))


def rows(count: int = 120) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 3, generator=torch.Generator().manual_seed(7))
    return x, x.sin().sum(1)


def started(members: int = 4, **options: object) -> tuple[nn.Module, hs.Likelihood]:
    torch.manual_seed(0)
    model = hs.bayesianize(net(), members=members, **options)  # type: ignore[arg-type]
    likelihood = hs.Gaussian()
    hs.initialize_(model, "iblm", likelihood, rows(), seed=1)
    return model, likelihood


def means(model: nn.Module) -> list[Tensor]:
    """The means of the last layer, member by member."""
    layer = list(bayesian_layers(model).values())[-1]
    return list(layer.posterior.mean.detach().chunk(layer.members))


def test_one_member_is_the_model_of_today() -> None:
    plain = net()
    one, same = hs.bayesianize(plain), hs.bayesianize(plain, members=1)
    assert list(one.state_dict()) == list(same.state_dict())
    assert type(bayesian_layers(same)["0"].posterior) is MeanField
    assert repr(one) == repr(same)
    for model in (one, same):
        likelihood = hs.Gaussian()
        torch.manual_seed(3)
        data = rows()
        hs.initialize_(model, "iblm", likelihood, data)
        hs.fit(model, likelihood, data, steps=5, seed=0, progress=False)
    for left, right in zip(one.parameters(), same.parameters(), strict=True):
        assert torch.equal(left, right)
    x = torch.randn(4, 3)
    torch.manual_seed(0)
    draw = one(x)
    torch.manual_seed(0)
    assert torch.equal(draw, same(x))


def test_a_layer_holds_its_members_one_after_another() -> None:
    model = hs.bayesianize(net(), members=4)
    assert count_members(model) == 4
    assert model[0].posterior.mean.shape == (4 * 8, 4)
    assert "members=4" in repr(model)
    assert sorted(model.state_dict()) == sorted(hs.bayesianize(net()).state_dict())


@pytest.mark.parametrize("family", ["mean_field", "low_rank", "full_covariance", "dropout"])
def test_a_part_is_on_the_memory_of_the_stack(family: str) -> None:
    one = hs.POSTERIORS[family](3, 5)
    every = stack(one, 4)
    for (name, alone), stacked in zip(one.named_parameters(), every.parameters(), strict=True):
        for index in range(4):
            assert torch.equal(part(every, index, 4).get_parameter(name), alone)
        assert stacked.numel() == 4 * alone.numel()
    with torch.no_grad():
        for parameter in part(every, 2, 4).parameters():
            parameter.fill_(7.0)
    sevens = sum(int((parameter == 7).sum()) for parameter in every.parameters())
    assert sevens == sum(parameter.numel() for parameter in one.parameters())
    for parameter, alone in zip(part(every, 1, 4).parameters(), one.parameters(), strict=True):
        assert torch.equal(parameter, alone)


def test_within_the_scope_of_a_member_only_that_changes() -> None:
    model, likelihood = started()
    before = copy.deepcopy(model.state_dict())
    with hs.member(model, 1):
        assert count_members(model) == 1
        assert model(torch.randn(5, 3)).shape == (5, 1)
        hs.fit(model, likelihood, rows(), steps=3, seed=0, progress=False)
    assert count_members(model) == 4
    for name, tensor in model.state_dict().items():
        same = [
            torch.equal(*pair) for pair in zip(tensor.chunk(4), before[name].chunk(4), strict=True)
        ]
        assert same == [True, False, True, True], name


def test_the_scope_ends_where_an_error_does() -> None:
    model, _ = started()
    with pytest.raises(ZeroDivisionError), hs.member(model, 0):
        raise ZeroDivisionError
    assert count_members(model) == 4
    assert hs.draw(model, torch.randn(2, 3), 8).shape == (8, 2, 1)


@pytest.mark.parametrize("name", ["iblm", "iblm-paper", "orthogonal", "lsuv"])
def test_members_have_starts_of_their_own(name: str) -> None:
    model, likelihood = hs.bayesianize(net(), members=3), hs.Gaussian()
    hs.initialize_(model, name, likelihood if "iblm" in name else None, rows(), seed=0)
    one, two, three = means(model)
    assert not torch.allclose(one, two)
    assert not torch.allclose(two, three)


def test_the_first_member_starts_as_a_single_posterior_does() -> None:
    data, plain = rows(), net()
    alone, model = hs.bayesianize(plain), hs.bayesianize(plain, members=2)
    hs.initialize_(alone, "iblm", hs.Gaussian(), data, seed=5)
    report = hs.initialize_(model, "iblm", hs.Gaussian(), data, seed=5)
    with hs.member(model, 0):
        for one, other in zip(alone.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(one, other)
    assert [layer.name for layer in report.layers] == ["0", "2", "4"]
    assert report.expected_nll is not None


def test_noise_is_fitted_to_all_members() -> None:
    """The best noise of the mixture lies between those of its members."""
    data = rows(400)
    model, likelihood = hs.bayesianize(net(), members=3), hs.Gaussian()
    hs.initialize_(model, "iblm", likelihood, data, seed=0)
    alone = []
    for index in range(3):
        with hs.member(model, index), torch.no_grad():
            draws = hs.draw(model, data[0], 64)
        alone.append(float((draws - data[1].unsqueeze(1)).square().mean()))
    assert min(alone) < float(likelihood.noise_var.detach()) < max(alone)  # type: ignore[arg-type]


@pytest.mark.parametrize("prior", [1.0, "learned", "learned-gradient"])
@pytest.mark.parametrize("family", ["mean_field", "low_rank", "full_covariance"])
def test_training_lowers_the_loss_of_every_member(family: str, prior: float | str) -> None:
    model, likelihood = started(2, posterior=family, prior=prior)
    data = rows()

    def losses() -> list[float]:
        found = []
        for index in range(2):
            with hs.member(model, index), torch.no_grad():
                value = hs.nelbo(model, likelihood, *data, num_data=120, samples=256).value
                found.append(float(value))
        return found

    before = losses()
    hs.fit(model, likelihood, data, steps=60, lr=5e-3, prior_every=20, seed=0, progress=False)
    assert all(now < old for now, old in zip(losses(), before, strict=True))


def test_samples_are_rounded_up_to_a_multiple_of_members() -> None:
    model, likelihood = started(5)
    x, y = rows(8)
    assert hs.draw(model, x, 16).shape == (20, 8, 1)
    assert hs.draw(model, x).shape == (5, 8, 1)
    assert hs.predict(model, likelihood, x, 128).draws.shape == (130, 8, 1)
    found = hs.nelbo(model, likelihood, x, y, num_data=8, samples=16)
    assert bool(torch.isfinite(found.value))


def test_drawing_divides_the_samples() -> None:
    model, _ = started()
    x = torch.randn(6, 3)
    for sampler in ("local", "weights", "mean"):
        with hs.drawing(model, sampler, 8) as once:
            assert model(x if once else x.repeat(8, 1)).shape == (48, 1)
    several = pytest.raises(HeadstartError, match="4 members: their number must be a multiple")
    with several, hs.drawing(model, "local", 6):
        pass
    with pytest.raises(HeadstartError, match="must be a multiple of that, not 1"):
        draw_weights(model, 1)


def test_a_plain_call_is_refused() -> None:
    model, _ = started()
    with pytest.raises(HeadstartError, match="has 4 members, and a plain call does not say"):
        model(torch.randn(2, 3))


def test_saved_and_loaded(tmp_path: Path) -> None:
    model, likelihood = started(posterior={"0": "low_rank", "*": "mean_field"})
    hs.inherit_(model)
    hs.save(tmp_path / "model", model, likelihood)
    again, _ = hs.load(tmp_path / "model", net=net())
    assert count_members(again) == 4
    x = torch.randn(5, 3)
    found, expected = (hs.predict(m, likelihood, x, 16, seed=0).draws for m in (again, model))
    assert torch.equal(found, expected)
    torch.testing.assert_close(hs.kl(again), hs.kl(model))


def test_a_file_of_one_posterior_says_nothing_of_members(tmp_path: Path) -> None:
    hs.save(tmp_path / "model", hs.bayesianize(net()), hs.Gaussian())
    assert b"members" not in (tmp_path / "model").read_bytes()


def test_resumed(tmp_path: Path) -> None:
    """A fit that was killed after four steps goes on as if it had not been."""
    found = []
    for folder, stops in (("whole", [10]), ("parts", [4, 10])):
        for stop in stops:
            model, likelihood = started(2)

            def kl_weight(step: int, steps: int, stop: int = stop) -> float:
                if step > stop:
                    raise ZeroDivisionError
                return 1.0

            with nullcontext() if stop == 10 else pytest.raises(ZeroDivisionError):
                hs.fit(
                    model,
                    likelihood,
                    rows(),
                    steps=10,
                    every=2,
                    seed=0,
                    progress=False,
                    checkpoint=tmp_path / folder,
                    resume=True,
                    kl_schedule=kl_weight,
                )
        found.append(model.state_dict())
    for name, tensor in found[0].items():
        assert torch.equal(tensor, found[1][name])


def test_every_member_inherits_its_own_posterior() -> None:
    for family in ("mean_field", "full_covariance"):
        model, likelihood = started(3, posterior=family)
        hs.inherit_(model)
        assert abs(float(hs.kl(model).detach())) < 1e-3
        with hs.member(model, 2):
            assert abs(float(hs.kl(model).detach())) < 1e-3
            x, y = rows()
            hs.initialize_(model, "iblm", likelihood, (x, y))
        hs.fit(model, likelihood, rows(), steps=3, progress=False, seed=0)


def test_members_without_a_single_plan_for_their_rows() -> None:
    """A siamese net stacks two batches on axis 0: by weights each function runs alone."""

    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            one, two = self.body(torch.cat([x[:, :3], x[:, 3:]])).chunk(2)
            return one - two  # type: ignore[no-any-return]

    model = hs.bayesianize(Siamese(), members=2)
    assert hs.draw(model, torch.randn(4, 6), 6, "weights").shape == (6, 4, 2)
    with pytest.raises(HeadstartError, match="stacks several batches"):
        hs.draw(model, torch.randn(4, 6), 6, "local")


@pytest.mark.parametrize("members", [0, -1, 2.0, "4"])
def test_a_strange_number_of_members_is_refused(members: object) -> None:
    with pytest.raises(HeadstartError, match="members is a whole number, at least 1"):
        hs.bayesianize(net(), members=members)  # type: ignore[arg-type]


def test_families_that_correlate_units_are_refused() -> None:
    with pytest.raises(HeadstartError, match="matrix_normal posterior correlates units"):
        hs.bayesianize(net(), "matrix_normal", members=2)
    assert hs.bayesianize(net(), "matrix_normal", members=1)[0].members == 1


def test_methods_for_single_posteriors_are_refused() -> None:
    model = hs.bayesianize(net(), "dropout", where="!last", members=2)
    with pytest.raises(HeadstartError, match="mc-dropout trains single posteriors, not the 2"):
        hs.fit(model, hs.Gaussian(), rows(), steps=1, inference="mc-dropout")
    with pytest.raises(HeadstartError, match="noisy-kfac trains single posteriors, not the 2"):
        hs.fit(model, hs.Gaussian(), rows(), steps=1, inference="noisy-kfac")
    with pytest.raises(HeadstartError, match="Kronecker factors are those of a single posterior"):
        kronecker_factors(hs.bayesianize(net(), members=2), hs.Gaussian(), rows(4)[0])


def test_dropout_has_members_too() -> None:
    model = hs.bayesianize(net(), "dropout", members=2)
    for sampler in ("local", "weights"):
        assert hs.draw(model, torch.randn(4, 3), 6, sampler).shape == (6, 4, 1)


def test_there_is_no_such_member() -> None:
    model, _ = started(2)
    for index in (2, -1):
        words = f"has 2 members, from 0 on: there is no {index}"
        with pytest.raises(HeadstartError, match=words), hs.member(model, index):
            pass


def test_parts_with_different_numbers_of_members_are_refused() -> None:
    parts = hs.bayesianize(nn.Linear(3, 4), members=2), hs.bayesianize(nn.Linear(4, 1), members=3)
    with pytest.raises(HeadstartError, match="have 2 and 3 members"):
        hs.kl(nn.Sequential(*parts))


def test_half_precision() -> None:
    model, likelihood = started(2)
    hs.fit(model, likelihood, rows(), steps=2, precision="bfloat16", progress=False, seed=0)
    assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


def test_a_frozen_member_stack_stays() -> None:
    model, likelihood = started(2)
    model[0].requires_grad_(False)
    before = model[0].posterior.mean.clone()
    hs.fit(model, likelihood, rows(), steps=2, progress=False, seed=0)
    assert torch.equal(before, model[0].posterior.mean)
