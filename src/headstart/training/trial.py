"""One training of a net on a table: features, initialization, steps, what it says of new rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headstart.initializers import initialize_
from headstart.initializers.report import InitReport
from headstart.kernels.devices import usable_device
from headstart.kernels.random_state import seeded
from headstart.likelihoods import Likelihood, Weighted
from headstart.likelihoods.weighted import rows_as_counted
from headstart.linalg.precision import exact_device
from headstart.models import create
from headstart.network.convert import bayesianize
from headstart.predictive import Predictive, predict
from headstart.training.derived import Derived, Prepared, derive
from headstart.training.fit import fit
from headstart.training.history import History
from headstart.training.labels import Labels
from headstart.training.recipe import Recipe

MAX_EVALUATIONS = 20
"""Evaluations of a training on its validation rows."""
MIN_STEPS_BETWEEN = 10
"""Steps between two evaluations."""
EVALUATION_SAMPLES = 32
"""Draws of the weights for an evaluation."""
SCORE_SAMPLES = 128
"""Draws of the weights for the predictions of held-out rows."""
BOUND_ROWS = 5000
"""Training rows that tell the range of a noise that varies."""


NO_HIDDEN_LAYER, PERIODIC = "mlp-0x1", "-periodic4"
"""A net without hidden layers; what the name of a net with waves of its features ends in."""


class Candidate(NamedTuple):
    """What is chosen between by validation rows.

    Args:
        trees: Whether the net sees what boosted trees say.
        noise: The noise model of the labels.
        linear: Whether the net, or what is on top of the trees, has no hidden layer.
        periodic: Whether the net sees waves of the features too (`headstart.models.mlp.Periodic`).
    """

    trees: bool
    noise: str
    linear: bool = False
    periodic: bool = False

    @property
    def kind(self) -> str:
        """What predicts, in a few words."""
        net = "linear model" if self.linear else "neural network"
        net += " with periodic features" if self.periodic else ""
        return f"{net} on top of boosted trees" if self.trees else net

    def net(self, model: str) -> str:
        """The name of its net.

        Args:
            model: The name of a plain one.
        """
        return NO_HIDDEN_LAYER if self.linear else model + (PERIODIC if self.periodic else "")

    def __str__(self) -> str:
        return f"{self.kind}, {NOISES_IN_WORDS.get(self.noise, self.noise)}"


NOISES_IN_WORDS = {
    "constant": "constant noise",
    "varying": "noise that varies from row to row",
    "student-t": "Student-t noise",
    "power": "constant noise on a power of the target",
    "power-varying": "varying noise on a power of the target",
    "poisson": "Poisson counts",
    "negative-binomial": "negative-binomial counts",
    "categorical": "class probabilities",
}


@dataclass
class Trial:
    """A trained net.

    Args:
        model: The net, in evaluation mode.
        likelihood: Its likelihood, in the user's units.
        derived: What makes the features that it takes behind those of the columns.
        report: What the initializer reported.
        history: What training reported.
        rows: The validation rows.
        predicted: The predictive distribution of those rows, in the user's units.
        nll: The negative log predictive density of each of them, in the user's units, times what
            the row counts beside a row of the mean weight.
        seconds: What all of it took.
    """

    model: nn.Module
    likelihood: Likelihood
    derived: Derived
    report: InitReport
    history: History
    rows: Tensor
    predicted: Predictive | None
    nll: Tensor
    seconds: float


@dataclass(frozen=True)
class Bench:
    """All that the trainings of one table have in common.

    Args:
        x: Standardized features in single precision, (rows, features).
        labels: Their labels.
        recipe: The settings; what they leave open follows from the rows of each training.
        groups: Rows with the same number are never divided among folds; None: all may be.
        weights: What each row counts, as `scaled_weights` has it; None: all count alike.
        progress: Whether to show progress bars.
        keys: The numbers of levels of categories with many levels, (rows, key columns), −1 for
            unknown ones; None: there are none.
    """

    x: Tensor
    labels: Labels
    recipe: Recipe
    groups: Any = None
    weights: Tensor | None = None
    progress: bool = False
    keys: Any = None

    def prepare(self, noise: str, rows: Tensor, *, trees: bool) -> Prepared:
        """What is derived from these rows alone, on the scale of a noise model.

        Args:
            noise: The noise model.
            rows: Indices of the rows.
            trees: Whether trees are grown.
        """
        scale = self.labels.scale(noise, rows)
        groups = None if self.groups is None else self.groups[rows.numpy()]
        return derive(
            self.x[rows].numpy(),
            scale.y[rows].numpy(),
            scale.loss,
            keys=self._keys(rows),
            trees=trees,
            classes=0 if scale.y.is_floating_point() else int(scale.y.max()) + 1,
            seed=self.recipe.seed,
            groups=groups,
            weights=None if self.weights is None else self.weights[rows].numpy(),
            sizes=self.recipe.tree_sizes(len(rows)),
        )

    def _keys(self, rows: Tensor) -> Any:
        return None if self.keys is None else self.keys[rows.numpy()]

    def train(
        self,
        candidate: Candidate,
        train: Tensor,
        held_out: Tensor,
        *,
        prepared: Prepared,
        steps: int | None = None,
        time_limit: float | None = None,
        checkpoint: Path | None = None,
    ) -> Trial:
        """Train a net, and predict the validation rows.

        Args:
            candidate: What kind of net.
            train: Indices of the training rows.
            held_out: Indices of the validation rows, which stop the training; maybe none.
            prepared: What is derived from the training rows, with trees if the candidate has any.
            steps: Exactly so many steps; None: until validation rows gain nothing more.
            time_limit: Seconds for the steps.
            checkpoint: A folder for the state of training, which is resumed.
        """
        begun, recipe = time.perf_counter(), self.recipe.sized(len(train), candidate.trees)
        scale = self.labels.scale(candidate.noise, train)
        likelihood, outputs = self.labels.likelihood(candidate.noise)
        counted = self._counted_likelihood(likelihood)
        data = torch.from_numpy(prepared.own), self._counted_labels(scale.y, train)
        checked = self._inputs(held_out, prepared.derived), scale.y[held_out]
        device = usable_device(recipe.device)
        with seeded(recipe.seed, device):
            assert recipe.model is not None
            trees = prepared.derived.trees
            skip = "" if trees is None else f"-skip{trees.outputs}"
            name = candidate.net(recipe.model) + ("" if candidate.linear else skip)
            net = create(name, data[0].shape[1], outputs)
            model = bayesianize(
                net,
                posterior=recipe.posterior,
                prior=recipe.prior,
                members=recipe.members or 1,
            )
            model.to(device)
            counted.to(exact_device(device))
            report = initialize_(model, recipe.init, counted, data, seed=recipe.seed)
            if time_limit is not None:
                time_limit = max(0.0, time_limit - (time.perf_counter() - begun))
            history = fit(
                model,
                counted,
                data,
                validation=self._as_counted(checked, held_out) if len(held_out) else None,
                samples=recipe.samples,
                batch_size=recipe.batch_size or 64,
                validation_samples=EVALUATION_SAMPLES,
                time_limit=time_limit,
                patience=recipe.patience,
                checkpoint=checkpoint,
                resume=checkpoint is not None,
                refine=recipe.refine,
                progress=self.progress,
                seed=recipe.seed,
                **_steps_and_rates(recipe, steps),
            )
        model.cpu().eval()
        counted.cpu()
        some = data[0][:BOUND_ROWS]
        likelihood.bound_(self._draw(model, likelihood, some, EVALUATION_SAMPLES).draws)
        found, nll = None, torch.zeros(0)
        if len(held_out):
            found = self._draw(model, likelihood, checked[0], SCORE_SAMPLES)
            nll = -found.log_prob(checked[1]).double() - scale.log_slope[held_out]
            nll = nll * self._relative_weights(held_out)
        likelihood = self.labels.in_units(candidate.noise, likelihood, train)
        if found is not None:
            found = replace(
                found, draws=found.draws.double(), likelihood=likelihood.for_prediction()
            )
        made, spent = prepared.derived, time.perf_counter() - begun
        return Trial(model, likelihood, made, report, history, held_out, found, nll, spent)

    def _counted_labels(self, y: Tensor, rows: Tensor) -> Any:
        """The labels of rows, with what each counts."""
        return y[rows] if self.weights is None else (y[rows], self.weights[rows].float())

    def _counted_likelihood(self, likelihood: Likelihood) -> Likelihood:
        return likelihood if self.weights is None else Weighted(likelihood)

    def _relative_weights(self, rows: Tensor) -> Tensor:
        """What rows count beside one of the mean weight."""
        return torch.ones(1) if self.weights is None else self.weights[rows] / self.weights.mean()

    def _as_counted(self, checked: tuple[Tensor, Tensor], rows: Tensor) -> tuple[Tensor, Tensor]:
        """Validation rows taken as often as they count: a mean over them is a weighted one."""
        if self.weights is None or not bool((self.weights[rows] > 0).any()):
            return checked
        chosen = rows_as_counted(self.weights[rows])
        return checked[0][chosen], checked[1][chosen]

    def _inputs(self, rows: Tensor, derived: Derived) -> Tensor:
        """What the net takes of rows that nothing was derived from."""
        return torch.from_numpy(derived.extend(self.x[rows].numpy(), self._keys(rows)))

    def _draw(
        self, model: nn.Module, likelihood: Likelihood, x: Tensor, samples: int
    ) -> Predictive:
        return predict(model, likelihood, x, samples, sampler="weights", seed=self.recipe.seed)


def _steps_and_rates(recipe: Recipe, exact: int | None) -> dict[str, Any]:
    """How many steps of which size, and how many between two evaluations."""
    steps = recipe.steps if exact is None else exact
    assert steps is not None
    every = max(MIN_STEPS_BETWEEN, steps // MAX_EVALUATIONS)
    if recipe.lr is not None:
        return {"steps": steps, "every": every, "lr": recipe.lr, "lr_schedule": "cosine"}
    if exact is not None or steps == 0:
        return {"steps": steps, "every": every}
    return {"max_steps": steps, "every": every}
