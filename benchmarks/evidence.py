"""Whether the evidence of a start ranks nets as training does.

    HEADSTART_DATA=folder python benchmarks/evidence.py energy concrete

Each net starts by I-BLM on one half of a table, and its read-out's evidence is that of the other
half; then it is trained on the first half and scored on the second. Both ways around, one seed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import torch

import headstart as hs

NETS = (
    "mlp-1x5",
    "mlp-1x20",
    "mlp-1x50",
    "mlp-1x200",
    "mlp-2x50",
    "mlp-4x50",
    "mlp-1x50-tanh",
    "mlp-2x50-tanh",
)


def main() -> None:
    """Print evidence and negative NLL of each net for a row, and their rank correlation."""
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        path = Path(os.environ["HEADSTART_DATA"]) / name / "data.txt.gz"
        rows = torch.as_tensor(np.loadtxt(path), dtype=torch.float32)
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
        rows = rows[:, rows.std(0) > 0]
        rows = (rows - rows.mean(0)) / rows.std(0)
        halves = [(half[:, :-1], half[:, -1:]) for half in rows.tensor_split(2)]
        found = []
        for net in NETS:
            evidence = score = 0.0
            for data, other in (halves, halves[::-1]):
                model = hs.bayesianize(hs.models.create(net, rows.shape[1] - 1, 1))
                lik = hs.Gaussian()
                hs.initialize_(model, "iblm", lik, data)
                evidence += hs.evidence(model, lik, other).per_row / 2
                hs.fit(
                    model,
                    lik,
                    data,
                    steps=1200,
                    lr=1e-2,
                    lr_schedule="cosine",
                    samples=4,
                    progress=False,
                    seed=0,
                )
                score -= hs.evaluate(model, lik, other, seed=0)["mnll"] / 2
            found.append((evidence, score))
            print(f"{name} {net}: evidence {evidence:.3f}, score {score:.3f}", flush=True)
        ranks = np.argsort(np.argsort(np.array(found), axis=0), axis=0)
        print(f"{name}: rank correlation {np.corrcoef(ranks.T)[0, 1]:.2f}")


if __name__ == "__main__":
    main()
