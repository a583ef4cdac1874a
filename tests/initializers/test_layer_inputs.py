"""What reaches a layer: how many draws a batch meets."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import headstart as hs
from headstart.batching import Batches
from headstart.distributed.sharding import FullShard, ShardedBatch
from headstart.initializers.iblm import IBLM
from headstart.initializers.settings import IBLMSettings

pytestmark = pytest.mark.usefixtures("float64")


def test_a_batch_behind_convolutions_meets_several_draws() -> None:
    model = hs.bayesianize(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2)))
    x, y = torch.ones(512, 1, 8, 8), torch.randint(2, (512,))
    batches = Batches((x, y), batch_size=512, like=model)
    task = IBLM(model, hs.Categorical(2), batches, IBLMSettings(), 2, "weights", 1)
    batch = ShardedBatch(x, y, FullShard(512))
    # Images that are all alike differ by the draw alone.
    (seen,) = task.inputs.of(model[2], batch)
    assert len(seen.unique(dim=0)) == 16
    (few,) = task.inputs.of(model[2], batch.between(0, 5))
    assert len(few.unique(dim=0)) == 5
    assert [len(part.x) for part in task.inputs.chunks(500)] == [256, 244]
