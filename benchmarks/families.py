"""The four posterior families on PROTEIN, mlp-1x100: RMSE, MNLL and seconds at equal steps.

    python benchmarks/families.py --steps 2000 --seeds 2 --out docs/results/families.md

Each row is a mean over seeds (seed k takes split k); I-BLM starts every run; one thread. Seconds
are of this machine and only their ratios mean anything.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from tables import table, write_page

from headstart.experiments.run import run_experiment
from headstart.experiments.spec import Run
from headstart.posteriors import POSTERIORS

FAMILIES = [name for name, family in POSTERIORS.items() if not family.law_is_local]
"""Those with a density."""


def row(family: str, steps: int, seeds: int) -> list[str]:
    """One family's line of the table."""
    last, start = [], time.perf_counter()
    for seed in range(seeds):
        last.append(
            run_experiment(
                Run(
                    "protein",
                    "mlp-1x100",
                    "iblm",
                    posterior=family,
                    steps=steps,
                    seed=seed,
                    split=seed,
                )
            )[-1]
        )
    cells = [family]
    for metric in ("rmse", "mnll", "coverage_95", "seconds"):
        values = [r[metric] for r in last]
        spread = f" ± {statistics.stdev(values):.3f}" if seeds > 1 and metric != "seconds" else ""
        cells.append(
            f"{statistics.mean(values):.3f}{spread}"
            if metric != "seconds"
            else f"{statistics.mean(values):.0f}"
        )
    print(*cells, f"({time.perf_counter() - start:.0f} s in all)", flush=True)
    return cells


def main() -> None:
    """Run and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("docs/results/families.md"))
    arguments = parser.parse_args()
    lines = [row(family, arguments.steps, arguments.seeds) for family in FAMILIES]
    text = table(["posterior", "RMSE (standardized)", "MNLL", "coverage of 95 %", "seconds"], lines)
    command = f"python benchmarks/families.py --steps {arguments.steps} --seeds {arguments.seeds}"
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    write_page(
        arguments.out,
        f"# Posterior families\n\nPROTEIN, mlp-1x100, I-BLM, {arguments.steps} steps of SVI "
        "(16 samples, Adam 1e-3, batch 64, prior variance 1, KL weight 1), mean ± sd over "
        f"{arguments.seeds} seeds and splits (0 to {arguments.seeds - 1}), one thread; "
        f"`{command}`.\n\n{text}\n",
    )


if __name__ == "__main__":
    main()
