"""A look at a model on its way: scores, the objective, and what pictures are drawn from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headstart import data, metrics
from headstart.experiments.parts import Parts, thin
from headstart.experiments.tasks import Task
from headstart.inference import make_inference
from headstart.likelihoods import Likelihood
from headstart.network.probe import evaluating
from headstart.objective import nelbo
from headstart.predictive import Predictive, predict

if TYPE_CHECKING:
    from headstart.experiments.run import Run

Numbers = dict[str, Any]
LINE_POINTS = 91
ENTROPY_BINS = 30
NELBO_NUMBERS = 2**24
"""Numbers in the inputs of one pass that estimates the NELBO; where there are more, it goes batch by batch."""


@dataclass(frozen=True)
class Look:
    """Look at the model as it is: scores on the test part, the objective on the training part, and what the run asks for besides."""

    run: Run
    task: Task
    model: nn.Module
    likelihood: Likelihood
    parts: Parts
    outsiders: data.Dataset | None = None

    def __call__(self) -> Numbers:
        pred = self._predict(self.parts.x_test)
        scores = self.task.scores(pred, self.parts.y_test, self.parts.y_train, self.parts.scaling)
        return {
            **scores,
            **self._objective(),
            **self._band(),
            **self._reliability(pred),
            **self._puzzled(pred),
        }

    def _predict(self, x: Tensor, sampler: str | None = None) -> Predictive:
        run = self.run
        sampler = sampler or make_inference(run.method).test_sampler
        pred = predict(
            self.model, self.likelihood, x, run.eval_samples, sampler=sampler, seed=run.seed
        )
        return Predictive(pred.draws.float().cpu(), pred.likelihood.cpu())

    @torch.no_grad()
    def _objective(self) -> Numbers:
        """KL and NELBO, its likelihood part estimated on the first training rows."""
        run = self.run
        x, y = (part.to(run.device) for part in self.parts.first)
        at_once = len(x) if x.numel() * run.samples <= NELBO_NUMBERS else run.batch
        value, kl = 0.0, 0.0
        with torch.random.fork_rng([x.device] if x.is_cuda else []), evaluating(self.model):
            torch.manual_seed(run.seed)
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

    def _band(self) -> Numbers:
        """Predictions along `line`, in the units of the data."""
        if self.run.line is None:
            return {}
        x = torch.linspace(*self.run.line, LINE_POINTS).unsqueeze(1)
        scaling = self.parts.scaling
        pred = self._predict(scaling.inputs(x), "weights")  # whole functions: smooth bands
        scale = float(scaling.y_scale)
        found = {
            "x": x,
            "mean": scaling.in_units(pred.mean),
            "epistemic_std": scale * pred.epistemic_std,
            "std": scale * pred.std,
        }
        return {"band": {name: _rounded(part.flatten()) for name, part in found.items()}}

    def _reliability(self, pred: Predictive) -> Numbers:
        """Rows, confidence and accuracy of each bin of confidence."""
        if not self.run.diagrams:
            return {}
        found = metrics.reliability(pred.probs, self.parts.y_test)
        names = ("rows", "confidence", "accuracy")
        return {
            "reliability": {name: _rounded(part) for name, part in zip(names, found, strict=True)}
        }

    def _puzzled(self, pred: Predictive) -> Numbers:
        """How well the entropy of a prediction tells test rows from the outsiders, at most as many."""
        if self.outsiders is None:
            return {}
        x = self.outsiders.x[thin(len(self.outsiders.x), len(self.parts.y_test))]
        inside, outside = pred.entropy, self._predict(self.parts.scaling.inputs(x)).entropy
        found: Numbers = {
            name: float(metric(inside, outside)) for name, metric in OUTSIDERS.items()
        }
        found |= {"entropy_inside": float(inside.mean()), "entropy_outside": float(outside.mean())}
        if self.run.diagrams:
            top = math.log(pred.probs.shape[1])
            shares = (
                _rounded(part.clamp_max(top).histc(ENTROPY_BINS, 0.0, top) / len(part))
                for part in (inside, outside)
            )
            found["entropies"] = {
                "top": top,
                **dict(zip(("inside", "outside"), shares, strict=True)),
            }
        return found


OUTSIDERS = {"auroc": metrics.auroc, "aupr": metrics.aupr, "fpr95": metrics.fpr95}
"""How well a score tells outsiders from insiders."""


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]
