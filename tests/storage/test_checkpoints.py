"""Checkpoints: nested states as one file, written completely or not at all."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch

from headstart.errors import HeadstartError
from headstart.storage.checkpoints import Keeper, pack, unpack


def test_pack_and_unpack_are_inverse() -> None:
    state = {
        "a": [1, 2.5, None, True, "tensor:0"],
        3: {"b": torch.arange(3)},
        "c": (torch.ones(2, 2, dtype=torch.float64),),
    }
    tensors: dict[str, torch.Tensor] = {}
    again = unpack(json.loads(json.dumps(pack(state, tensors))), tensors)
    assert again["a"] == state["a"]
    assert torch.equal(again[3]["b"], torch.arange(3))
    assert again["c"][0].dtype == torch.float64
    with pytest.raises(TypeError, match="set"):
        pack({"x": {1}}, {})


def test_a_full_disk_leaves_the_last_checkpoint_intact(tmp_path: Path) -> None:
    """The real thing: a limit on the size of files that this process may write."""
    import resource

    keeper = Keeper(tmp_path / "c")
    keeper.save(1, {"x": torch.ones(10)}, {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(HeadstartError, match="could not be written"):
            keeper.save(2, {"x": torch.ones(100_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    state = keeper.latest({})
    assert state is not None
    assert torch.equal(state["x"], torch.ones(10))
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["step-000000001.safetensors"]
