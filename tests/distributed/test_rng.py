"""Random numbers that ranks draw alike."""

from __future__ import annotations

import torch

from headstart.distributed.rng import SynchronizedRNG


def test_shared_numbers_leave_torch_s_own_alone() -> None:
    shared, before = SynchronizedRNG(3), torch.get_rng_state()
    with shared.drawing():
        first = torch.rand(4)
    assert torch.equal(torch.get_rng_state(), before)
    place = shared.state()
    with shared.drawing():
        second = torch.rand(4)
    shared.load_state_(place)
    with shared.drawing():
        assert torch.equal(torch.rand(4), second)
    assert not torch.equal(first, second)
