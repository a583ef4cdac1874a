"""The step-0 report: the net before the first gradient step, in numbers and in words."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from headstart.initializers.plain_start import SAME_INPUTS, why_plain
from headstart.initializers.walk import observe_layers
from headstart.likelihoods import Likelihood
from headstart.linalg.precision import in_double
from headstart.nested import TensorTree
from headstart.network.layer import Bayesian, bayesian_layers
from headstart.network.members import member

MAX_KL_RATIO = 30.0
"""Beyond which the KL decides what a long training does: nets of many weights and few rows."""
MAX_COLUMNS = 512
"""Beyond which constant input columns are no news: images have empty corners."""


@dataclass(frozen=True)
class LayerReport:
    """One layer at step 0.

    Args:
        name: of the layer.
        kind: the type of its module.
        mean: of its pre-activations; None where no data was given.
        sd: their standard deviation.
        zero_fraction: the fraction of zeros in what the next layer receives.
        signal_to_noise: `|mean| / sd` of its weights, on average.
        kl: of its posterior from its prior.
        seconds: that its initialization took.
    """

    name: str
    kind: str
    mean: float | None
    sd: float | None
    zero_fraction: float | None
    signal_to_noise: float
    kl: float
    seconds: float | None = None

    @property
    def zero_share(self) -> float | None:
        """Deprecated: now `zero_fraction`."""
        message = "LayerReport.zero_share is now zero_fraction."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return self.zero_fraction


@dataclass(frozen=True, repr=False)
class InitReport:
    """What `initialize_` returns; printed, or shown by a notebook, it is a table.

    Args:
        initializer: its name.
        layers: a report for each layer, in the order in which they are called.
        kl: of all layers.
        expected_nll: of the whole data set, beside `kl` the other half of the objective at step 0;
            None where no data was given.
        seconds: that the initialization took.
        warnings: sentences about what will not train.
    """

    initializer: str
    layers: tuple[LayerReport, ...]
    kl: float
    expected_nll: float | None
    seconds: float
    warnings: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        head = (
            "layer",
            "kind",
            "pre-act. mean",
            "sd",
            "zero fraction",
            "|mean|/sd",
            "KL",
            "seconds",
        )
        rows = [
            (
                r.name or "-",
                r.kind,
                *(
                    _three_digits(v)
                    for v in (r.mean, r.sd, r.zero_fraction, r.signal_to_noise, r.kl, r.seconds)
                ),
            )
            for r in self.layers
        ]
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
        lines = [
            "  ".join(
                c.ljust(w) if i < 2 else c.rjust(w)
                for i, (c, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in [head, *rows]
        ]
        nll = (
            ""
            if self.expected_nll is None
            else f" against an expected NLL of {_three_digits(self.expected_nll)}"
        )
        total = f"{self.initializer}: KL {_three_digits(self.kl)}{nll}, {self.seconds:.2f} s"
        return "\n".join(
            [lines[0], "-" * len(lines[0]), *lines[1:], total, *(f"! {w}" for w in self.warnings)]
        )

    __repr__ = __str__


def _three_digits(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if abs(value) < 1e4 else f"{value:.2e}"


@torch.no_grad()
def make_report(
    initializer: str,
    model: nn.Module,
    likelihood: Likelihood | None,
    batch: tuple[Tensor, Tensor] | None,
    num_data: int | None,
    seconds: dict[str, float],
) -> InitReport:
    """Measure every layer once, on a batch where there is one.

    Args:
        initializer: its name.
        model: the net.
        likelihood: for the expected NLL, where it is given.
        batch: inputs and labels.
        num_data: the rows of the data set.
        seconds: that each layer took, by its name.
    """
    layers = bayesian_layers(model)
    seen, expected_nll, notes = _Observed({}, {}, [], {}), None, []
    if batch is not None:
        x, y = batch
        f = observe_layers(model, x, seen.add)
        layers = {name: layers[name] for name in dict.fromkeys(seen.order)} | layers
        if likelihood is not None and num_data:
            f = likelihood.read(f)
            log_prob = likelihood.log_prob(f, likelihood.check(y, likelihood.outputs_of(f)))
            expected_nll = -float(in_double(log_prob).mean()) * num_data
        notes += [*_constant_columns(x), *_not_from_data(model, layers, x, seen)]
    reports = [
        _layer_report(name, layer, seen, seconds.get(name)) for name, layer in layers.items()
    ]
    notes += [note for report in reports for note in _diagnose(report)]
    kl, total = sum(r.kl for r in reports), sum(seconds.values())
    notes += _overwhelming_kl(kl, expected_nll)
    return InitReport(initializer, tuple(reports), kl, expected_nll, total, tuple(notes))


@dataclass(frozen=True)
class _Observed:
    """What a forward pass shows of each layer."""

    moments: dict[str, tuple[float, float]]
    """Mean and standard deviation of the pre-activations of its first call."""
    zeros: dict[str, tuple[str, float]]
    """The next layer, and the fraction of zeros in what it receives."""
    order: list[str]
    """The names of the layers, call by call."""
    constant: dict[str, bool]
    """Whether the inputs of all calls are the same for every row."""

    def add(self, name: str, inputs: Tensor, output: Tensor) -> None:
        if self.order and inputs.is_floating_point():
            zeros = float(in_double(inputs == 0).mean())
            self.zeros.setdefault(self.order[-1], (name, zeros))
        self.order.append(name)
        same = len(inputs) > 1 and bool((inputs == inputs[:1]).all())
        self.constant[name] = same and self.constant.get(name, True)
        numbers = in_double(output)
        self.moments.setdefault(name, (float(numbers.mean()), float(numbers.std(correction=0))))

    def zero_fraction(self, name: str) -> float | None:
        """Of what the next layer receives; the first state of a layer called again says nothing."""
        follower, zeros = self.zeros.get(name, ("", 0.0))
        return zeros if self.order.count(follower) == 1 else None


def _layer_report(
    name: str, layer: Bayesian, seen: _Observed, seconds: float | None
) -> LayerReport:
    posterior = layer.posterior
    mean, sd = seen.moments.get(name, (None, None))
    ratio = float((posterior.mean.abs() / posterior.variance().sqrt()).mean())
    kind, zeros = type(layer.op).__name__, seen.zero_fraction(name)
    return LayerReport(name, kind, mean, sd, zeros, ratio, float(layer.kl()), seconds)


def _diagnose(layer: LayerReport) -> list[str]:
    """Plain words for what will not train."""
    where = f"layer {layer.name!r}"
    if layer.sd is None:
        return []
    if not math.isfinite(layer.sd) or layer.sd > 100:
        return [
            f"{where} explodes: its pre-activations have a standard deviation of {layer.sd:.3g}; "
            "expect a huge loss or NaN; standardize the inputs, and real targets by "
            "hs.Gaussian().standardize_(y), or take another initializer."
        ]
    notes = []
    if layer.sd < 1e-3:
        notes.append(
            f"{where} has collapsed: its pre-activations hardly vary "
            f"(standard deviation {layer.sd:.3g})."
        )
    if layer.zero_fraction is not None and layer.zero_fraction > 0.9:
        notes.append(
            f"{where} is nearly dead: {layer.zero_fraction:.0%} of the activations after it are "
            "zero, so little gets through."
        )
    return notes


def _overwhelming_kl(kl: float, expected_nll: float | None) -> list[str]:
    if expected_nll is None or not 0 < MAX_KL_RATIO * expected_nll < kl < math.inf:
        return []
    return [
        f"the KL is {kl / expected_nll:.2g} times the expected NLL, so a long training gives up "
        "fit to lower it: give fit validation rows, so that the model ends with the best of them, "
        "or convert the net with prior='fan-in'."
    ]


def _not_from_data(
    model: nn.Module, layers: Mapping[str, Bayesian], x: TensorTree, seen: _Observed
) -> list[str]:
    """Layers whose start data cannot choose."""
    notes, few = [], x[:2]
    with member(model, 0):
        for name, layer in layers.items():
            constant = seen.constant.get(name, False)
            calls = seen.order.count(name)
            why = SAME_INPUTS if constant else why_plain(model, layer, few, calls)
            if why:
                notes.append(f"layer {name!r} {why}: data cannot start it, I-BLM keeps its mean.")
    return notes


def _constant_columns(x: TensorTree) -> list[str]:
    if not isinstance(x, Tensor) or x.ndim != 2 or not x.is_floating_point() or len(x) < 2:
        return []
    constant = ((x.amax(0) - x.amin(0)) == 0).nonzero().flatten().tolist()
    if len(constant) == x.shape[1]:
        return ["every input column is constant: there is nothing to learn from."]
    if not constant or x.shape[1] > MAX_COLUMNS:
        return []
    shown = ", ".join(map(str, constant[:5])) + (", …" if len(constant) > 5 else "")
    return [
        f"input column{'s' * (len(constant) > 1)} {shown} constant in the batch read; "
        "such columns carry no information."
    ]
