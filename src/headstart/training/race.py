"""The race of candidates: trained part by part, until held-out rows say that they are behind."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.training.boosting import MIN_TREE_ROWS, can_boost
from headstart.training.derived import Prepared
from headstart.training.labels import Labels
from headstart.training.recipe import Recipe
from headstart.training.trial import Bench, Candidate, Trial

CLEARLY_WORSE = 2.0
"""Standard errors of the difference beyond which a candidate leaves the race."""
KINDS_OF_NETS: dict[str, list[dict[str, bool]]] = {
    "few": [{}],
    "common": [{}, {"linear": True}],
    "all": [{}, {"linear": True}, {"periodic": True}],
}
"""What is tried beside a plain dense net, by how much is tried."""
SPARED, MAX_SPARED, SPARED_SECONDS = 0.1, 0.2, 4.0
"""What a time limit leaves to start, scores and report: a tenth of it, at least four seconds, but
never more than a fifth."""


class Clock:
    """What is left of a time limit.

    Args:
        recipe: The settings, of which the limit is one.
    """

    def __init__(self, recipe: Recipe | None) -> None:
        self.begun = time.perf_counter()
        self.limit = None if recipe is None else recipe.time_limit

    def share(self, trainings: int) -> float | None:
        """Seconds for the next of so many trainings; None: as many as it takes.

        Args:
            trainings: How many are still to come.
        """
        if self.limit is None:
            return None
        spared = max(SPARED * self.limit, min(SPARED_SECONDS, MAX_SPARED * self.limit))
        left = self.limit - spared - (time.perf_counter() - self.begun)
        return max(0.0, left / max(1, trainings))


class Race:
    """Candidates, trained on one part after another until they are clearly behind.

    Args:
        bench: What their trainings have in common.
        parts: Training rows and validation rows, each part once.
        clock: What is left of the time limit.
        checkpoint: A folder for the states of their trainings.
    """

    def __init__(
        self,
        bench: Bench,
        parts: list[tuple[Tensor, Tensor]],
        clock: Clock,
        checkpoint: Path | None,
    ) -> None:
        self.bench, self.parts, self.clock, self.checkpoint = bench, parts, clock, checkpoint
        self.trials: dict[Candidate, list[Trial]] = {}
        self._prepared: dict[tuple[str, bool, int], Prepared] = {}

    def choose(self) -> Candidate:
        """With trees or without, by the plainest noise model; then the noise model."""
        labels, recipe = self.bench.labels, self.bench.recipe
        noises = _noises(labels, recipe)
        first = _first_candidates(self._can_grow(noises[0]), noises[0], recipe)
        best = self._run(first, later=(len(noises) - 1) * len(self.parts))
        if len(noises) > 1:
            best = self._run([best, *(best._replace(noise=noise) for noise in noises[1:])], 0)
        return best

    def _can_grow(self, noise: str) -> bool:
        """Whether trees can be grown on the training rows of every part, and on all rows."""
        scale, groups = self.bench.labels.scale(noise), self.bench.groups
        everywhere = [train.numpy() for train, _ in self.parts]
        everywhere.append(np.arange(len(scale.y)))
        return all(
            can_boost(
                scale.y.numpy()[rows],
                scale.loss,
                seed=self.bench.recipe.seed,
                groups=None if groups is None else groups[rows],
            )
            for rows in everywhere
        )

    def _run(self, candidates: Iterable[Candidate], later: int) -> Candidate:
        """The candidate with the best likelihood of all held-out rows."""
        alive = list(candidates)
        for part in range(len(self.parts)):
            for place, candidate in enumerate(alive):
                done = self.trials.setdefault(candidate, [])
                if len(done) <= part:
                    after = (len(self.parts) - part - 1) * len(alive)
                    left = len(alive) - place + after + later + 1
                    done.append(self._train(candidate, part, left))
            alive = self._still_in(alive, part + 1)
        return min(alive, key=lambda c: float(self._nll(c, len(self.parts)).mean()))

    def _still_in(self, alive: list[Candidate], parts: int) -> list[Candidate]:
        """Those that are not clearly behind the best, row by row."""
        best = min(alive, key=lambda c: float(self._nll(c, parts).mean()))
        kept = []
        for candidate in alive:
            behind, error = self._behind(candidate, best, parts)
            if candidate == best or behind <= CLEARLY_WORSE * error:
                kept.append(candidate)
        return kept

    def _behind(self, candidate: Candidate, other: Candidate, parts: int) -> tuple[float, float]:
        """By how much the NLL of a row is above that of another candidate, and its error."""
        each = self._nll(candidate, parts) - self._nll(other, parts)
        error = float(each.std()) / math.sqrt(len(each)) if len(each) > 1 else math.inf
        return float(each.mean()), error

    def _nll(self, candidate: Candidate, parts: int) -> Tensor:
        return torch.cat([trial.nll for trial in self.trials[candidate][:parts]])

    def _train(self, candidate: Candidate, part: int, left: int) -> Trial:
        """Train a candidate on a part, with `left` trainings to come, this one among them."""
        train, held_out = self.parts[part]
        share = self.clock.share(left)
        begun = time.perf_counter()
        prepared = self._prepare(candidate, part)
        if share is not None:
            share = max(0.0, share - (time.perf_counter() - begun))
        return self.bench.train(
            candidate,
            train,
            held_out,
            prepared=prepared,
            time_limit=share,
            checkpoint=self._folder(f"{candidate.kind.replace(' ', '-')}-{candidate.noise}-{part}"),
        )

    def _prepare(self, candidate: Candidate, part: int) -> Prepared:
        """What is derived from a part: the same for all noise models on one scale of the labels."""
        noise, trees = candidate.noise, candidate.trees
        known = self.bench.labels.scale_name(noise), trees, part
        if known not in self._prepared:
            self._prepared[known] = self.bench.prepare(noise, self.parts[part][0], trees=trees)
        return self._prepared[known]

    def refit(self, best: Candidate) -> Trial:
        """Train on all rows, for as many steps as held-out rows found best on average.

        Args:
            best: The candidate.
        """
        rows, none = torch.arange(len(self.bench.x)), torch.arange(0)
        share, begun = self.clock.share(1), time.perf_counter()
        prepared = self.bench.prepare(best.noise, rows, trees=best.trees)
        if share is not None:
            share = max(0.0, share - (time.perf_counter() - begun))
        steps = [trial.history.best_step or 0 for trial in self.trials[best]]
        final = self.bench.train(
            best,
            rows,
            none,
            prepared=prepared,
            steps=round(sum(steps) / len(steps)),
            time_limit=share,
            checkpoint=self._folder("final"),
        )
        final.history.best_step = len(final.history.steps)
        final.history.validation = self.trials[best][0].history.validation
        return final

    def _folder(self, name: str) -> Path | None:
        return None if self.checkpoint is None else self.checkpoint / name

    def tried(self) -> list[dict[str, Any]]:
        """What each candidate was worth on held-out rows, the best first."""
        found = []
        for candidate, trials in self.trials.items():
            nll = self._nll(candidate, len(trials))
            error = float(nll.std()) / math.sqrt(len(nll)) if len(nll) > 1 else math.nan
            found.append(
                {
                    "kind": candidate.kind,
                    "trees": candidate.trees,
                    "noise": candidate.noise,
                    "nll": float(nll.mean()),
                    "standard_error": error,
                    "rows": len(nll),
                    "parts": len(trials),
                }
            )
        return sorted(found, key=lambda entry: (-entry["parts"], entry["nll"]))

    def reasons(self, best: Candidate, steps: int, rows: int) -> list[str]:
        """What was chosen and why, in sentences.

        Args:
            best: The candidate that was chosen.
            steps: The steps that it was trained for.
            rows: The rows that it was trained on.
        """
        held = sum(len(trial.rows) for trial in self.trials[best])
        how = (
            f"{len(self.parts)}-fold cross-validation"
            if len(self.parts) > 1
            else f"{held} held-out rows"
        )
        nll = float(self._nll(best, len(self.parts)).mean())
        sentences = [f"Selected: {best}. NLL {nll:.3f} per row by {how}, which selected it."]
        for candidate, trials in self.trials.items():
            if candidate != best:
                behind, error = self._behind(candidate, best, len(trials))
                sentences.append(
                    f"Also tried: {candidate}. NLL {behind:+.3f} relative to the selected model "
                    f"(standard error {error:.3f})."
                )
        trained = f"for {steps} steps" if steps else "in closed form: no training step was better"
        return [*sentences, f"Trained on {rows} rows {trained}."]


def _noises(labels: Labels, recipe: Recipe) -> tuple[str, ...]:
    """The noise models that are tried."""
    if recipe.noise is not None:
        labels.check_noise(recipe.noise)
        return (recipe.noise,)
    tries = recipe.work.tries
    return (
        labels.noises if tries == "all" else labels.common_noises[: 2 if tries == "few" else None]
    )


def _first_candidates(can_grow: bool, noise: str, recipe: Recipe) -> list[Candidate]:
    """With trees and without; where the net is left open, each in its kinds too."""
    possible = can_grow and "-skip" not in (recipe.model or "")
    if recipe.trees and not possible:
        raise HeadstartError(
            f"There can be no trees here: they take at least {MIN_TREE_ROWS} rows, two rows of "
            "every class, in different groups, and a net without skip features. "
            "Leave trees open (no --trees, trees=None)."
        )
    trees = (recipe.trees,) if recipe.trees is not None else (True, False)
    kinds = [{}] if recipe.model is not None else KINDS_OF_NETS[recipe.work.tries]
    return [
        Candidate(grown, noise, **kind)
        for grown in trees
        if possible or not grown
        for kind in kinds
    ]
