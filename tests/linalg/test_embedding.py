"""An embedding is a linear layer of inputs that are all 0 but one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import headstart as hs
from headstart.linalg.affine import (
    active_inputs,
    affine,
    affine_apart,
    affine_each,
    design,
    fan_in,
    flatten,
    is_affine,
    split,
    squared,
    units,
)
from headstart.network.samplers import local_moments
from headstart.posteriors import POSTERIORS
from tests.cases import scramble_

pytestmark = pytest.mark.usefixtures("float64")
TOKENS = torch.tensor([[0, 3, 1], [2, 2, 6], [5, 4, 3], [6, 0, 0]])


@pytest.mark.parametrize("padding_idx", [None, 0])
def test_the_two_verbs_agree(padding_idx: int | None) -> None:
    op = nn.Embedding(7, 3, padding_idx=padding_idx)
    weights = torch.randn(3, 7)
    rows = design(op, TOKENS)
    assert rows.shape == (1, 4, 3, 7)
    expected = (rows[0] @ weights.T).reshape(4, 3, 3)
    torch.testing.assert_close(affine(op, TOKENS, *split(op, weights)), expected)
    torch.testing.assert_close(affine(op, squared(op, TOKENS), *split(op, weights)), expected)
    at = torch.tensor([[2, 0], [1, 1], [0, 2], [1, 0]])
    assert torch.equal(design(op, TOKENS, at), rows[:, torch.arange(4)[:, None], at])
    assert torch.equal(flatten(op, op.weight, None), op.weight.T)
    assert torch.equal(affine(op, TOKENS, *split(op, op.weight.T)), op(TOKENS))
    assert (fan_in(op), units(op), active_inputs(op)) == (7, 3, 1)


def test_several_draws_of_the_weights() -> None:
    op, draws = nn.Embedding(7, 3, padding_idx=2), torch.randn(2, 3, 7)
    each = [affine(op, rows, *split(op, w)) for rows, w in zip(TOKENS.chunk(2), draws, strict=True)]
    torch.testing.assert_close(affine_each(op, TOKENS, draws), torch.cat(each))
    torch.testing.assert_close(affine_apart(op, TOKENS, draws), torch.stack(each))
    both = torch.stack([affine(op, TOKENS, *split(op, w)) for w in draws])
    torch.testing.assert_close(affine_apart(op, TOKENS, draws, shared=True), both)


def test_only_what_is_linear_in_its_weights_is_affine() -> None:
    assert is_affine(nn.Embedding(3, 2, padding_idx=0))
    for options in ({"max_norm": 1.0}, {"scale_grad_by_freq": True}, {"sparse": True}):
        assert not is_affine(nn.Embedding(3, 2, **options))


@pytest.mark.parametrize("family", POSTERIORS)
def test_local_moments_are_those_of_the_one_hot_layer(family: str) -> None:
    net = nn.Embedding(7, 3, padding_idx=0)
    model, dense = hs.bayesianize(net, family), hs.bayesianize(nn.Linear(7, 3, bias=False), family)
    scramble_(model)
    dense.posterior.load_state_dict(model.posterior.state_dict())
    one_hot = design(net, TOKENS)[0]
    found = local_moments(model.op, model.posterior, TOKENS)
    for one, other in zip(found, local_moments(dense.op, dense.posterior, one_hot), strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(hs.kl(model), hs.kl(dense))


def test_i_blm_of_tokens_is_that_of_their_one_hot_rows() -> None:
    torch.manual_seed(0)
    tokens, y = torch.randint(7, (300, 1)), torch.randn(300)
    y = y + tokens[:, 0]
    embedded = nn.Sequential(nn.Embedding(7, 5), nn.Flatten(), nn.Tanh(), nn.Linear(5, 1))
    dense = nn.Sequential(nn.Linear(7, 5, bias=False), nn.Flatten(), nn.Tanh(), nn.Linear(5, 1))
    one_hot = design(embedded[0], tokens)[0]
    found = []
    for net, x in ((embedded, tokens), (dense, one_hot)):
        model, lik = hs.bayesianize(net), hs.Gaussian()
        hs.initialize_(model, "iblm", lik, (x, y), seed=0)
        found.append(model[0].posterior)
    torch.testing.assert_close(found[0].mean, found[1].mean)
    torch.testing.assert_close(found[0].logvar, found[1].logvar)
