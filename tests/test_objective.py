"""The NELBO: scaled to the data, the KL counted once, gradients unbiased in the batch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

import headstart as hs
from headstart.kernels.noise import Reused
from headstart.objective import expected_nll
from headstart.priors import Isotropic, Learned
from tests.cases import NETS, chain, scramble_

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(50, 20),
        lambda: nn.Conv2d(3, 8, (3, 5), groups=1),
        lambda: nn.Conv2d(4, 6, 3, groups=2),
    ],
)
def test_the_kl_of_a_layer_is_summed_over_weights_and_biases(make: object) -> None:
    model = hs.bayesianize(make(), prior=0.3)  # type: ignore[operator]
    scramble_(model)
    q = model.posterior
    oracle = kl_divergence(Normal(q.mean, (q.logvar / 2).exp()), Normal(0.0, 0.3**0.5)).sum()
    assert q.mean.numel() == sum(p.numel() for p in make().parameters())  # type: ignore[operator]
    torch.testing.assert_close(model.kl(), oracle, atol=1e-9, rtol=0)


@pytest.mark.parametrize("net", NETS)
def test_the_kl_of_a_net_is_the_sum_of_its_layers(net: str) -> None:
    model = hs.bayesianize(NETS[net]())
    layers = hs.bayesian_layers(model).values()
    torch.testing.assert_close(hs.kl(model), torch.stack([layer.kl() for layer in layers]).sum())


def test_nelbo_puts_its_parts_together() -> None:
    model, lik = hs.bayesianize(chain()), hs.Categorical(3)
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    torch.manual_seed(1)
    loss = hs.nelbo(model, lik, x, y, num_data=100, samples=5, kl_weight=0.25)
    torch.manual_seed(1)
    by_hand = -lik.log_prob(hs.draw(model, x, 5, noise=Reused(5, 8)), y).mean(0).mean() * 100
    torch.testing.assert_close(loss.nll, by_hand)
    torch.testing.assert_close(loss.kl, hs.kl(model))
    torch.testing.assert_close(loss.value, by_hand + 0.25 * hs.kl(model))


@pytest.mark.parametrize("sampler", ["local", "weights"])
@pytest.mark.parametrize("net", [*NETS, "lenet"])
def test_a_gradient_in_one_pass_is_the_sum_of_its_parts(net: str, sampler: str) -> None:
    """Layers draw with moments that went into the KL, under every kind of prior variance."""
    shape, classes = ((1, 28, 28), 10) if net == "lenet" else ((4,), 3)
    plain = hs.models.create(net, shape, classes) if net == "lenet" else NETS[net]()
    model, lik = hs.bayesianize(plain, prior=0.3), hs.Categorical(classes)
    scramble_(model)
    for layer, prior in zip(
        list(hs.bayesian_layers(model).values())[1:], (Isotropic(2.0), Learned(0.7)), strict=False
    ):
        layer.prior = prior
    x, y = torch.randn(3, *shape), torch.randint(classes, (3,))
    settings = {"num_data": 100, "samples": 4, "sampler": sampler}
    torch.manual_seed(1)
    hs.nelbo(model, lik, x, y, kl_weight=0.25, **settings).value.backward()
    found = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    torch.manual_seed(1)
    (expected_nll(model, lik, x, y, **settings) + 0.25 * hs.kl(model)).backward()
    torch.testing.assert_close(
        found, {name: p.grad for name, p in model.named_parameters()}, rtol=1e-9, atol=1e-9
    )


class Shifted(nn.Module):
    """A net that runs with other parameters than its own."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.shift = (
            hs.bayesianize(nn.Sequential(nn.Conv1d(1, 3, 2), nn.Flatten(), nn.Linear(9, 3))),
            nn.Parameter(torch.ones(())),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        others = {name: p + self.shift for name, p in self.net.named_parameters()}
        out: torch.Tensor = torch.func.functional_call(self.net, others, (x.unsqueeze(1),))
        return out


@pytest.mark.parametrize("sampler", ["local", "weights"])
def test_a_net_that_replaces_its_parameters_draws_with_the_new_ones(sampler: str) -> None:
    model, lik = Shifted(), hs.Categorical(3)
    x, y, settings = (
        torch.randn(5, 4),
        torch.randint(3, (5,)),
        {"num_data": 100, "samples": 4, "sampler": sampler},
    )
    torch.manual_seed(1)
    found = hs.nelbo(model, lik, x, y, **settings).nll
    torch.manual_seed(1)
    expected = expected_nll(model, lik, x, y, **settings)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(loss, model.shift) for loss in (found, expected))
    )


@pytest.mark.parametrize("sampler", ["local", "weights"])
@pytest.mark.parametrize("samples", [1, 2, 3])
def test_what_follows_a_layer_may_work_in_place(sampler: str, samples: int) -> None:
    def gradients(inplace: bool) -> list[torch.Tensor | None]:
        torch.manual_seed(1)
        net = nn.Sequential(
            nn.Conv1d(1, 3, 2),
            nn.ReLU(inplace),
            nn.Flatten(),
            nn.Linear(9, 4),
            nn.ReLU(inplace),
            nn.Linear(4, 3),
        )
        dense = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace), nn.Linear(6, 3), nn.ReLU(inplace))
        found: list[torch.Tensor | None] = []
        for model, x in (
            (hs.bayesianize(net), torch.randn(5, 1, 4)),
            (hs.bayesianize(dense), torch.randn(5, 4)),
        ):
            loss = hs.nelbo(
                model,
                hs.Categorical(3),
                x,
                torch.zeros(5).long(),
                num_data=10,
                samples=samples,
                sampler=sampler,
            )
            (loss.value + model(x).square().sum()).backward()
            found += [p.grad for p in model.parameters()]
        return found

    torch.testing.assert_close(gradients(inplace=True), gradients(inplace=False))


@pytest.mark.parametrize("sampler", ["local", "weights"])
def test_layers_of_different_types(sampler: str) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 4).float(), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.second(self.first(x.float()).double().tanh())
            return out

    model = hs.bayesianize(Mixed())
    loss = hs.nelbo(
        model,
        hs.Categorical(2),
        torch.randn(5, 3),
        torch.zeros(5).long(),
        num_data=9,
        samples=4,
        sampler=sampler,
    )
    loss.value.backward()
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32, torch.float64}
    torch.testing.assert_close(
        loss.kl, sum(layer.kl().double() for layer in hs.bayesian_layers(model).values())
    )


def test_small_variances_in_half_precision() -> None:
    model = hs.bayesianize(nn.Linear(100, 4)).half()
    with torch.no_grad():
        model.posterior.mean.zero_()
        model.posterior.logvar.fill_(-12)
        for sampler in ("local", "weights"):
            draws = hs.draw(model, torch.ones(8, 100, dtype=torch.half), 400, sampler).double()
            assert float(draws.var()) == pytest.approx(101 * math.exp(-12), rel=0.2), sampler


def test_rows_of_another_width_are_refused() -> None:
    """One more input than the layer has could pass for its bias."""
    model = hs.bayesianize(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)))
    for sampler in ("local", "weights"):
        with pytest.raises(hs.HeadstartError, match=r"cannot take inputs of shape \(rows, 4\)"):
            hs.nelbo(
                model,
                hs.Categorical(2),
                torch.randn(5, 4),
                torch.zeros(5).long(),
                num_data=10,
                sampler=sampler,
            )


def test_moments_are_shared_for_one_loss_only() -> None:
    model = hs.bayesianize(chain())
    posteriors = [layer.posterior for layer in hs.bayesian_layers(model).values()]
    before = [dict(vars(posterior)) for posterior in posteriors]
    with pytest.raises(hs.HeadstartError, match="labels"):
        hs.nelbo(model, hs.Categorical(3), torch.randn(8, 4), torch.zeros(8, 5), num_data=100)
    assert [dict(vars(posterior)) for posterior in posteriors] == before


def test_the_kl_is_a_pure_function_of_the_parameters() -> None:
    model = hs.bayesianize(chain())
    before = hs.kl(model)
    model(torch.randn(8, 4))
    torch.testing.assert_close(hs.kl(model), before, atol=0, rtol=0)


@pytest.mark.slow
def test_the_expected_gradient_does_not_depend_on_the_batch_size() -> None:
    """Mean gradients over batches of 2, of 6 and of all rows are equal, by a z-test."""
    model, lik = hs.bayesianize(chain()), hs.Categorical(3)
    x, y = torch.randn(12, 4), torch.randint(3, (12,))

    def gradients(batch: int, repeats: int) -> torch.Tensor:
        rows = []
        for _ in range(repeats):
            order = torch.randperm(12)
            model.zero_grad()
            for part in order.split(batch):
                loss = hs.nelbo(model, lik, x[part], y[part], num_data=12, samples=8).value
                (loss * batch / 12).backward()
            rows.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        return torch.stack(rows)

    whole = gradients(12, 300)
    for batch in (2, 6):
        parts = gradients(batch, 300)
        z = (whole.mean(0) - parts.mean(0)) / ((whole.var(0) + parts.var(0)) / 300).sqrt()
        assert float(z.abs().max()) < 5


def test_both_samplers_estimate_the_same_objective_for_dense_nets() -> None:
    model, lik = hs.bayesianize(chain()), hs.Categorical(3)
    scramble_(model)
    x, y = torch.randn(6, 4), torch.randint(3, (6,))
    with torch.no_grad():
        values = {
            s: torch.stack(
                [
                    hs.nelbo(model, lik, x, y, num_data=6, samples=8, sampler=s).value
                    for _ in range(400)
                ]
            )
            for s in ("local", "weights")
        }
    local, weights = values.values()
    assert (
        abs(float((local.mean() - weights.mean()) / ((local.var() + weights.var()) / 400).sqrt()))
        < 4
    )
    # Less variance is why local draws are the default in training.
    assert float(local.var()) < float(weights.var())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda m, lik: hs.nelbo(
                m, lik, torch.randn(8, 4), torch.zeros(8, dtype=torch.long), num_data=0
            ),
            "cannot be 0",
        ),
        (
            lambda m, lik: hs.nelbo(
                m, lik, torch.randn(8, 4), torch.zeros(7, dtype=torch.long), num_data=8
            ),
            "8 rows for 7 labels",
        ),
        (
            lambda m, lik: hs.nelbo(m, lik, torch.randn(8, 4), torch.zeros(8), num_data=8),
            "integer labels",
        ),
    ],
)
def test_bad_requests_get_a_sentence(call: object, sentence: str) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        call(hs.bayesianize(chain()), hs.Categorical(3))  # type: ignore[operator]
