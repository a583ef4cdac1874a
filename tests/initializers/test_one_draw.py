"""I-BLM by one draw of the weights below a layer, as the paper writes, or a draw for each row."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import headstart as hs


def middle_layer(name: str, one_draw: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean of the middle of three layers before and after I-BLM, on rows that are all equal."""
    torch.manual_seed(0)
    layers = (nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    model = hs.bayesianize(nn.Sequential(*layers))
    before = model[2].posterior.mean.detach().clone()
    x, y = torch.ones(64, 3), torch.arange(64) % 2
    hs.initialize_(model, name, hs.Categorical(2), (x, y), rows=32, one_draw=one_draw)
    return before, model[2].posterior.mean.detach()


@pytest.mark.parametrize("name", ["iblm", "iblm-paper"])
def test_one_draw_is_shared_by_all_rows_of_a_batch(name: str) -> None:
    """Equal rows stay equal under one draw, and a layer whose inputs are constant keeps its mean.

    Row by row they differ by their draws, and the layer regresses on those.
    """
    before, after = middle_layer(name, one_draw=True)
    assert torch.equal(before, after)
    before, after = middle_layer(name, one_draw=False)
    assert not torch.equal(before, after)


def test_only_i_blm_takes_the_option() -> None:
    model = hs.bayesianize(nn.Sequential(nn.Linear(3, 2)))
    with pytest.raises(hs.HeadstartError, match="There is no option of 'lsuv' 'one_draw'"):
        hs.initialize_(model, "lsuv", batches=(torch.ones(8, 3), torch.ones(8)), one_draw=True)
