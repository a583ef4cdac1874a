"""predict: chunks change nothing but memory; what comes back is a snapshot without gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import headstart as hs
from headstart.network import chunks
from tests.cases import chain, scramble_


def test_chunks_of_rows_and_samples_keep_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    model, lik = hs.bayesianize(chain()), hs.Categorical(3)
    scramble_(model)
    x = torch.randn(9, 4)
    whole = hs.predict(model, lik, x, samples=4000, seed=0).draws
    monkeypatch.setattr(chunks, "MAX_PASS_ROWS", 40)
    parts = hs.predict(model, lik, x, samples=4000, seed=1).draws
    assert whole.shape == parts.shape == (4000, 9, 3)
    z = (whole.mean(0) - parts.mean(0)) / ((whole.var(0) + parts.var(0)) / 4000).sqrt()
    assert float(z.abs().max()) < 4.5


def test_weight_draws_are_the_same_functions_in_every_chunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = hs.bayesianize(chain())
    x = torch.randn(1, 4).expand(50, 4)
    monkeypatch.setattr(chunks, "MAX_PASS_ROWS", 7)
    draws = hs.predict(model, hs.Categorical(3), x, samples=3, sampler="weights").draws
    torch.testing.assert_close(draws, draws[:, :1].expand_as(draws))


def test_convolutions_are_predicted_by_weights_and_dense_nets_locally() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    model, lik, x = (
        hs.bayesianize(net),
        hs.Categorical(3),
        torch.randn(1, 1, 4, 4).expand(5, 1, 4, 4),
    )
    coherent = hs.predict(model, lik, x, samples=2).draws
    torch.testing.assert_close(coherent, coherent[:, :1].expand_as(coherent))
    local = hs.predict(model, lik, x, samples=2, sampler="local").draws
    assert not torch.allclose(local, local[:, :1].expand_as(local))
    dense = hs.predict(hs.bayesianize(chain()), lik, torch.ones(5, 4), samples=2).draws
    assert not torch.allclose(dense, dense[:, :1].expand_as(dense))


def test_a_prediction_is_finished() -> None:
    model, lik = hs.bayesianize(nn.Linear(4, 1)), hs.Gaussian()
    model.train()
    pred = hs.predict(model, lik, torch.randn(5, 4).numpy(), samples=8, seed=0)
    assert not any(
        t.requires_grad for t in (pred.mean, pred.std, pred.aleatoric_std, *pred.interval())
    )
    before = pred.std.clone()
    with torch.no_grad():
        lik.log_noise_var.add_(3)
    torch.testing.assert_close(pred.std, before)
    assert model.training


def test_a_seed_repeats_and_dropout_is_off() -> None:
    model = hs.bayesianize(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.9), nn.Linear(8, 1)))
    x = torch.randn(5, 4)
    a, b = (hs.predict(model, hs.Gaussian(), x, samples=8, seed=3).draws for _ in range(2))
    assert torch.equal(a, b)
    mean = hs.predict(model, hs.Gaussian(), x, samples=2, sampler="mean").draws
    torch.testing.assert_close(mean[0], mean[1])


def test_evaluate_takes_loaders_and_pairs() -> None:
    model, lik = hs.bayesianize(chain()), hs.Categorical(3)
    x, y = torch.randn(20, 4), torch.randint(3, (20,))
    pair = hs.evaluate(model, lik, (x, y), samples=4, seed=0)
    loader = hs.evaluate(model, lik, [(x[:7], y[:7]), (x[7:], y[7:])], samples=4, seed=0)
    assert pair == loader


@pytest.mark.parametrize(
    ("x", "samples", "sentence"),
    [
        (torch.randn(2, 4), 0, "at least one sample"),
        (torch.full((2, 4), torch.nan), 3, "x holds nan"),
    ],
)
def test_bad_requests_get_a_sentence(x: torch.Tensor, samples: int, sentence: str) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        hs.predict(hs.bayesianize(chain()), hs.Categorical(3), x, samples=samples)


def test_outputs_and_labels_of_the_wrong_shape_get_a_sentence() -> None:
    lik, x = hs.Gaussian(), torch.randn(6, 4)

    class Shaped(nn.Module):
        def __init__(self, how: object) -> None:
            super().__init__()
            self.layer, self.how = nn.Linear(4, 1), how

        def forward(self, x: torch.Tensor) -> object:
            return self.how(self.layer(x))  # type: ignore[operator]

    for how in (lambda f: f.squeeze(1), lambda f: f.unsqueeze(2), lambda f: (f, f)):
        model = hs.bayesianize(Shaped(how))
        for call in (
            lambda m: hs.predict(m, lik, x),
            lambda m: hs.initialize_(m, "iblm", lik, (x, x[:, :1])),
            lambda m: hs.fit(m, lik, (x, x[:, :1]), steps=1, progress=False),
        ):
            with pytest.raises(hs.HeadstartError, match=r"rows|several outputs"):
                call(model)
    pred = hs.predict(hs.bayesianize(nn.Linear(4, 1)), lik, x)
    for ask in (pred.log_prob, pred.evaluate):
        with pytest.raises(hs.HeadstartError, match="6 predictions but 1 labels"):
            ask(x[:1, :1])
    with pytest.raises(hs.HeadstartError, match="cannot take inputs of shape"):
        hs.predict(hs.bayesianize(nn.Linear(4, 1)), lik, torch.randn(6, 5))


def test_whole_numbers_and_transformers_work() -> None:
    model, lik = hs.bayesianize(nn.Linear(4, 1)), hs.Gaussian()
    x = torch.randint(256, (20, 4), dtype=torch.uint8)
    hs.initialize_(model, "iblm", lik, (x, x[:, 0].float()))
    assert hs.predict(model, lik, x).mean.shape == (20, 1)

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = (
                nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
                nn.Linear(4, 1),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.encoder(x).mean(1))

    encoder = hs.bayesianize(Encoder())
    draws = hs.predict(encoder, lik, torch.randn(3, 5, 4), samples=4).draws
    assert float(draws.std(0).min()) > 0


def test_a_seed_gives_the_same_functions_for_any_number_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = hs.bayesianize(chain()).double()
    scramble_(model)
    x = torch.randn(50, 4, dtype=torch.float64)
    # At 50 rows two samples at a time, at 3 all of them.
    monkeypatch.setattr(chunks, "MAX_PASS_ROWS", 100)
    many, few = (
        hs.predict(model, hs.Categorical(3), x[:n], 7, sampler="weights", seed=0).draws
        for n in (50, 3)
    )
    torch.testing.assert_close(many[:, :3], few)
