"""One model on many devices: initialize, train, predict and keep checkpoints under Fabric.

torchrun --nproc-per-node 2 examples/many_devices.py   # or fabric run, or srun: docs/cluster.md
python examples/many_devices.py                        # one process: the same script
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch

import headstart as hs
from headstart import data

try:
    from lightning_fabric import Fabric
except ImportError as error:
    raise SystemExit(
        "This example needs Lightning Fabric: pip install 'headstart[scale]'"
    ) from error


def devices_and_nodes() -> dict[str, int]:
    """As many as torchrun or Slurm has started."""
    of = os.environ.get
    here = int(of("LOCAL_WORLD_SIZE") or of("SLURM_NTASKS_PER_NODE") or 1)
    return {
        "devices": here,
        "num_nodes": int(of("WORLD_SIZE") or of("SLURM_NTASKS") or here) // here,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--precision", default="32-true", help="or bf16-mixed")
    parser.add_argument("--checkpoint", type=Path, help="a folder that every machine sees")
    asked = parser.parse_args()

    fabric = Fabric(precision=asked.precision, **devices_and_nodes())  # type: ignore[arg-type]
    # `fabric run` has launched it already.
    if "LT_CLI_USED" not in os.environ:
        fabric.launch()

    digits = data.split(data.load("digits"), 0)
    scaling = data.fit_scaling(digits, targets=False)
    x, y = scaling.inputs(digits.x_train).flatten(1), digits.y_train
    test = scaling.inputs(digits.x_test).flatten(1), digits.y_test

    torch.manual_seed(0)
    model = hs.bayesianize(hs.models.create("mlp-2x100", 64, 10)).to(fabric.device)
    lik = hs.Categorical(10)
    hs.initialize_(model, "iblm", lik, (x, y), seed=0, fabric=fabric)
    before = hs.evaluate(model, lik, test, seed=0, fabric=fabric)
    hs.fit(
        model,
        lik,
        (x, y),
        steps=asked.steps,
        # That of all ranks together.
        batch_size=128,
        checkpoint=asked.checkpoint,
        resume=asked.checkpoint is not None,
        seed=0,
        progress=False,
        fabric=fabric,
    )
    after = hs.evaluate(model, lik, test, seed=0, fabric=fabric)
    if fabric.global_rank == 0:
        print(
            f"{fabric.world_size} ranks: error {before['error']:.4f} at step 0, "
            f"{after['error']:.4f} at the end"
        )
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
