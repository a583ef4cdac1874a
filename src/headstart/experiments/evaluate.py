"""An evaluation of a model on its way: scores, the objective, and what pictures are drawn from."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headstart import data, metrics
from headstart.experiments.prepare import PreparedData, evenly_spaced
from headstart.experiments.spec import ResultRow, Run
from headstart.experiments.tasks import ExperimentTask
from headstart.inference import make_inference
from headstart.kernels.random_state import seeded
from headstart.likelihoods import Likelihood
from headstart.network.probe import evaluating
from headstart.objective import nelbo
from headstart.predictive import Predictive, predict

LINE_POINTS = 91
ENTROPY_BINS = 30
MAX_NELBO_NUMBERS = 2**24
"""Numbers in the inputs of one pass that estimates the NELBO; beyond that it goes in batches."""


@dataclass(frozen=True)
class Evaluation:
    """Evaluates the model as it is, each time it is called.

    Args:
        run: What the run asks for.
        task: How predictions are scored.
        model: The Bayesian net, in training.
        likelihood: Its likelihood.
        parts: The data.
        out_of_distribution: Other inputs, to be told from the test rows.
    """

    run: Run
    task: ExperimentTask
    model: nn.Module
    likelihood: Likelihood
    parts: PreparedData
    out_of_distribution: data.Dataset | None = None

    def __call__(self) -> ResultRow:
        """Scores on test rows, the objective on training rows, and what else the run asks for."""
        pred = self._predict(self.parts.x_test)
        scores = self.task.scores(pred, self.parts.y_test, self.parts.y_train, self.parts.scaling)
        return {
            **scores,
            **self._objective(),
            **self._band(),
            **self._reliability(pred),
            **self._detection(pred),
        }

    def _predict(self, x: Tensor, sampler: str | None = None) -> Predictive:
        run = self.run
        sampler = sampler or make_inference(run.method).test_sampler
        pred = predict(
            self.model, self.likelihood, x, run.eval_samples, sampler=sampler, seed=run.seed
        )
        return Predictive(pred.draws.float().cpu(), pred.likelihood.cpu())

    @torch.no_grad()
    def _objective(self) -> ResultRow:
        """KL and NELBO, its likelihood part estimated on the first training rows."""
        run = self.run
        x, y = (part.to(run.device) for part in self.parts.first)
        at_once = len(x) if x.numel() * run.samples <= MAX_NELBO_NUMBERS else run.batch
        value, kl = 0.0, 0.0
        with seeded(run.seed, x), evaluating(self.model):
            for part, labels in zip(x.split(at_once), y.split(at_once), strict=True):
                loss = nelbo(
                    self.model,
                    self.likelihood,
                    part,
                    labels,
                    num_data=self.parts.num_data,
                    samples=run.samples,
                    kl_weight=run.kl_weight,
                )
                value, kl = value + float(loss.value) * len(part) / len(x), float(loss.kl)
        return {"kl": kl, "nelbo": value}

    def _band(self) -> ResultRow:
        """Predictions along `line`, in the units of the data."""
        if self.run.line is None:
            return {}
        x = torch.linspace(*self.run.line, LINE_POINTS).unsqueeze(1)
        scaling = self.parts.scaling
        # Samples of the weights are whole functions: their bands are smooth.
        pred = self._predict(scaling.inputs(x), "weights")
        scale = float(scaling.y_scale)
        found = {
            "x": x,
            "mean": scaling.in_units(pred.mean),
            "epistemic_std": scale * pred.epistemic_std,
            "std": scale * pred.std,
        }
        return {"band": {name: _rounded(part.flatten()) for name, part in found.items()}}

    def _reliability(self, pred: Predictive) -> ResultRow:
        """Rows, confidence and accuracy of each bin of confidence."""
        if not self.run.diagrams:
            return {}
        found = metrics.reliability(pred.probs, self.parts.y_test)
        names = ("rows", "confidence", "accuracy")
        return {
            "reliability": {name: _rounded(part) for name, part in zip(names, found, strict=True)}
        }

    def _detection(self, pred: Predictive) -> ResultRow:
        """How well predictive entropy tells test rows from out-of-distribution ones."""
        if self.out_of_distribution is None:
            return {}
        inputs = self.out_of_distribution.x
        x = inputs[evenly_spaced(len(inputs), len(self.parts.y_test))]
        inside, outside = pred.entropy, self._predict(self.parts.scaling.inputs(x)).entropy
        parts = dict(zip(DISTRIBUTIONS, (inside, outside), strict=True))
        found: ResultRow = {
            name: float(metric(inside, outside)) for name, metric in DETECTION_METRICS.items()
        }
        found |= {f"entropy_{name}": float(part.mean()) for name, part in parts.items()}
        if self.run.diagrams:
            top = math.log(pred.probs.shape[1])
            found["entropies"] = {
                "top": top,
                **{
                    name: _rounded(part.clamp_max(top).histc(ENTROPY_BINS, 0.0, top) / len(part))
                    for name, part in parts.items()
                },
            }
        return found


DISTRIBUTIONS = ("in_distribution", "out_of_distribution")
DETECTION_METRICS = {"auroc": metrics.auroc, "aupr": metrics.aupr, "fpr95": metrics.fpr95}
"""How well a score tells out-of-distribution rows from test rows."""


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]
