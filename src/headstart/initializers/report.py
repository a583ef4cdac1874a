"""The step-0 report: what the net looks like before the first gradient step, in numbers and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from headstart.initializers.walk import observe
from headstart.likelihoods import Likelihood
from headstart.network.forward import check_outputs
from headstart.network.layer import bayesian_layers


@dataclass(frozen=True)
class LayerReport:
    """One layer at step 0. `zero_share` is that of what the next layer receives; None where no data was given."""

    name: str
    kind: str
    mean: float | None
    sd: float | None
    zero_share: float | None
    signal_to_noise: float
    kl: float
    seconds: float | None = None


@dataclass(frozen=True)
class InitReport:
    """What `initialize_` returns; print it for a table.

    `expected_nll` is that of the whole data set, to be held against `kl`: the two halves of the objective at step 0.
    """

    initializer: str
    layers: tuple[LayerReport, ...]
    kl: float
    expected_nll: float | None
    seconds: float
    warnings: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        head = ("layer", "kind", "pre-act. mean", "sd", "zero share", "|mean|/sd", "KL", "seconds")
        rows = [
            (
                r.name or "-",
                r.kind,
                *(
                    _show(v)
                    for v in (r.mean, r.sd, r.zero_share, r.signal_to_noise, r.kl, r.seconds)
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
            else f" against an expected NLL of {_show(self.expected_nll)}"
        )
        total = f"{self.initializer}: KL {_show(self.kl)}{nll}, {self.seconds:.2f} s"
        return "\n".join(
            [lines[0], "-" * len(lines[0]), *lines[1:], total, *(f"! {w}" for w in self.warnings)]
        )


def _show(value: float | None) -> str:
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
    """Look at every layer once, with a batch where there is one."""
    layers = bayesian_layers(model)
    seen: dict[str, tuple[float, float]] = {}
    zeros: dict[str, float] = {}
    expected_nll = None
    notes: list[str] = []
    if batch is not None:
        x, y = batch
        before: list[str] = []

        def see(name: str, inputs: Tensor, output: Tensor) -> None:
            if before:
                zeros.setdefault(before[-1], float((inputs == 0).double().mean()))
            before.append(name)
            seen.setdefault(
                name, (float(output.double().mean()), float(output.double().std(correction=0)))
            )

        f = check_outputs(observe(model, x, see).unsqueeze(0))[0]
        layers = {name: layers[name] for name in dict.fromkeys(before)} | layers
        if likelihood is not None and num_data:
            log_prob = likelihood.log_prob(f, likelihood.check(y, f.shape[-1]))
            expected_nll = -float(log_prob.double().mean()) * num_data
        notes += _constant_columns(x)
    reports = []
    for name, layer in layers.items():
        mean, sd = seen.get(name, (None, None))
        posterior = layer.posterior
        snr = float((posterior.mean.abs() / posterior.variance().sqrt()).mean())
        reports.append(
            LayerReport(
                name,
                type(layer.op).__name__,
                mean,
                sd,
                zeros.get(name),
                snr,
                float(layer.kl()),
                seconds.get(name),
            )
        )
    notes += [note for report in reports for note in _diagnose(report)]
    return InitReport(
        initializer,
        tuple(reports),
        sum(r.kl for r in reports),
        expected_nll,
        sum(seconds.values()),
        tuple(notes),
    )


def _diagnose(layer: LayerReport) -> list[str]:
    """Plain words for what will not train."""
    where = f"layer {layer.name!r}"
    if layer.sd is None:
        return []
    if not math.isfinite(layer.sd) or layer.sd > 100:
        return [
            f"{where} explodes: its pre-activations have a standard deviation of {layer.sd:.3g}; expect a huge loss or NaN."
        ]
    notes = []
    if layer.sd < 1e-3:
        notes.append(
            f"{where} has collapsed: its pre-activations hardly vary (standard deviation {layer.sd:.3g})."
        )
    if layer.zero_share is not None and layer.zero_share > 0.9:
        notes.append(
            f"{where} is nearly dead: {layer.zero_share:.0%} of the activations after it are zero, so little gets through."
        )
    return notes


def _constant_columns(x: Tensor) -> list[str]:
    if x.ndim != 2 or not x.is_floating_point() or len(x) < 2:
        return []
    constant = ((x.amax(0) - x.amin(0)) == 0).nonzero().flatten().tolist()
    if (
        not constant or x.shape[1] > 512 or len(constant) == x.shape[1]
    ):  # images have empty corners: no news
        return (
            []
            if len(constant) < x.shape[1]
            else ["every input column is constant: there is nothing to learn from."]
        )
    shown = ", ".join(map(str, constant[:5])) + (", …" if len(constant) > 5 else "")
    return [
        f"input column{'s' * (len(constant) > 1)} {shown} constant in the batch looked at; such columns carry no information."
    ]
