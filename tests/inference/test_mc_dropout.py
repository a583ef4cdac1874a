"""MC dropout: the law of stock dropout, its authors' optimizer, and the common interface."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import headstart as hs

N = 4000


def net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 5),
        nn.ReLU(),
        nn.Linear(5, 2),
    )


@torch.no_grad()
def test_a_converted_net_is_the_net_with_stock_dropout() -> None:
    plain, x = net(), torch.randn(3, 1, 6, 6)
    model = hs.bayesianize(
        plain, posterior=lambda *a, **k: hs.Dropout(*a, p=0.3, **k), where="!last"
    )
    stock = nn.Sequential(
        plain[0], nn.Dropout(0.3), *plain[1:5], nn.Dropout(0.3), *plain[5:]
    ).train()
    ours, theirs = hs.draw(model, x, N), stock(x.repeat(N, 1, 1, 1)).unflatten(0, (N, 3))
    z_mean = (ours.mean(0) - theirs.mean(0)) / ((ours.var(0) + theirs.var(0)) / N).sqrt()
    assert float(z_mean.abs().max()) < 4.5
    fourth = (theirs - theirs.mean(0)).pow(4).mean(0) - theirs.var(0).square()
    z_var = (ours.var(0) - theirs.var(0)) / (2 * fourth / N).sqrt()
    assert float(z_var.abs().max()) < 4.5
    with hs.drawing(model, "mean"):
        torch.testing.assert_close(model(x), plain(x))


@torch.no_grad()
def test_feature_maps_are_predicted_as_they_were_trained() -> None:
    """Position by position, not whole maps: draws at test are those of stock dropout."""
    model, x = hs.bayesianize(nn.Conv2d(1, 1, 3), posterior="dropout"), torch.randn(1, 1, 6, 6)
    model.posterior.mean.add_(1.0)
    flat = nn.Sequential(model, nn.Flatten())
    f = hs.predict(flat, hs.Gaussian(), x, samples=50, seed=0).draws
    assert 0.3 < float((f == 0).double().mean()) < 0.7
    # Every draw drops some positions, never all.
    assert bool(((f == 0).any(-1) & (f != 0).any(-1)).all())


def test_an_update_is_sgd_with_momentum_weight_decay_and_its_authors_learning_rate() -> None:
    """Without dropout every step is that of torch's own SGD."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    model = hs.bayesianize(
        plain, posterior=lambda *a, **k: hs.Dropout(*a, p=0.0, **k), where="!last"
    )
    x, y = torch.randn(20, 4).double(), torch.randint(3, (20,))
    method = hs.MCDropout(base=0.1, weight_decay=0.02, decay=0.5)
    method.bind(model, hs.Categorical(3), num_data=500, samples=1, lr=1e-3, clip=None)
    sgd = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, weight_decay=0.02)
    for step in range(3):
        loss = method.update(x, y, 1.0)
        sgd.param_groups[0]["lr"] = 0.1 * (1 + 0.5 * step) ** -0.75
        sgd.zero_grad()
        expected = nn.functional.cross_entropy(plain(x), y)
        torch.testing.assert_close(loss.nll, 500 * expected.detach())
        expected.backward()
        sgd.step()
    with hs.drawing(model, "mean"):
        torch.testing.assert_close(model(x), plain(x), rtol=1e-10, atol=1e-12)


def test_other_families_are_refused_in_words() -> None:
    model, x = hs.bayesianize(net()), torch.randn(8, 1, 6, 6)
    with pytest.raises(hs.HeadstartError, match="posterior='dropout'"):
        hs.fit(
            model,
            hs.Categorical(2),
            (x, torch.randint(2, (8,))),
            steps=1,
            inference="mc-dropout",
            progress=False,
        )


@pytest.mark.slow
def test_it_learns_predicts_and_comes_back_from_a_file(tmp_path: object) -> None:
    torch.manual_seed(0)
    x = torch.randn(600, 5)
    y = (x[:, 0] * x[:, 1] > 0).long()
    plain = nn.Sequential(
        nn.Linear(5, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 2)
    )
    model, lik = hs.bayesianize(plain, posterior="dropout", where="!last"), hs.Categorical(2)
    method = hs.MCDropout(base=0.05)
    hs.fit(model, lik, (x[:500], y[:500]), steps=600, inference=method, progress=False, seed=0)
    scores = hs.evaluate(model, lik, (x[500:], y[500:]), samples=64, seed=0)
    assert scores["error"] < 0.25
    pred = hs.predict(model, lik, x[500:], samples=64, seed=0)
    # Dropout stays on.
    assert float(pred.mutual_information.mean()) > 1e-3
    path = f"{tmp_path}/net.safetensors"
    hs.save(path, model, lik)
    again, _ = hs.load(path, net=plain)
    assert torch.equal(
        hs.predict(again, lik, x[:9], samples=4, seed=1).probs,
        hs.predict(model, lik, x[:9], samples=4, seed=1).probs,
    )


def test_weight_decay_is_not_a_kl_to_be_weighted() -> None:
    """A schedule of the KL, meant for others, leaves MC dropout as its authors have it."""
    x = torch.randn(100, 3)
    found = []
    for options in ({}, {"kl_schedule": "sigmoid"}, {"temperature": 0.1}):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
        model, lik = hs.bayesianize(net, posterior="dropout", where="!last"), hs.Gaussian()
        hs.fit(
            model,
            lik,
            (x, x.sum(1)),
            steps=5,
            inference="mc-dropout",
            progress=False,
            seed=0,
            **options,
        )
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
