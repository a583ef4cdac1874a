"""The training loop: `steps` yields a record per step, `Training` can stop and go on."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headstart.batching import Batches, Data
from headstart.distributed.collectives import group_of
from headstart.distributed.fabric import Fabric
from headstart.errors import HeadstartError, unknown
from headstart.inference import PRECISIONS, Inference, make_inference
from headstart.likelihoods import Likelihood
from headstart.network.layer import bayesian_layers
from headstart.objective import KLSchedule, make_schedule

LR_SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1 + math.cos(math.pi * progress)),
}
"""The learning rate's factor as a function of the share of steps done."""


@dataclass(frozen=True)
class Step:
    """A step done: its number (from 1), the objective on its batch before the update, and the seconds since the start."""

    step: int
    nelbo: float
    nll: float
    kl: float
    seconds: float


class Training:
    """The loop, a record for each step; `state` tells where it stands, and `load_state_` takes it up there, to the last bit.

    Its options are those of `steps`.
    """

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        batches: Data,
        *,
        steps: int,
        samples: int = 16,
        lr: float = 1e-3,
        batch_size: int = 64,
        inference: str | Inference = "svi",
        kl_schedule: str | KLSchedule = "constant",
        temperature: float = 1.0,
        lr_schedule: str = "constant",
        clip: float | None = None,
        prior_every: int = 100,
        precision: str = "float32",
        num_data: int | None = None,
        fabric: Fabric | None = None,
    ) -> None:
        if lr_schedule not in LR_SCHEDULES:
            raise unknown("learning-rate schedule", lr_schedule, LR_SCHEDULES)
        if precision not in PRECISIONS:
            raise unknown("precision", precision, PRECISIONS)
        group = group_of(fabric, model)
        data = Batches(batches, batch_size=batch_size, num_data=num_data, like=model, group=group)
        self.model, self.likelihood, self.total, self.done = model, likelihood, steps, 0
        self.lr, self.temperature, self.prior_every = lr, temperature, prior_every
        self.kl_weight, self.method = make_schedule(kl_schedule), make_inference(inference)
        self.method.precision, self.method.group, self.group = precision, group, group
        if not group.is_alone and not self.method.pools:
            raise HeadstartError(
                f"{self.method.name} learns from one process only; on {group.size} ranks use inference='svi', 'mc-dropout' or 'noisy-kfac'."
            )
        group.broadcast_(model, likelihood)
        optimizer = self.method.bind(
            model, likelihood, num_data=data.num_data, samples=samples, lr=lr, clip=clip
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: LR_SCHEDULES[lr_schedule](step / max(1, steps))
        )
        self.stream = data.forever(group.separate_rng_())
        self.seconds = 0.0
        self.identity = {
            "method": self.method.name, "steps": steps, "samples": samples, "lr": lr, "batch_size": batch_size,
            "rows": data.num_data, "temperature": temperature, "lr_schedule": lr_schedule, "precision": precision, "clip": clip, "prior_every": prior_every,
            "likelihood": [likelihood.name, likelihood.config()], "sampler": self.method.sampler,
            "kl_schedule": kl_schedule if isinstance(kl_schedule, str) else "own", "data": data.digest(), **group.identity(),
            "parameters": {name: list(p.shape) for name, p in self._parts().named_parameters()},
        }  # fmt: skip
        """What a checkpoint must share with the run that takes it up."""

    def __iter__(self) -> Iterator[Step]:
        if (
            not self.model.training
        ):  # a model that trains keeps the modes of its parts: a frozen BatchNorm stays frozen
            self.model.train()
        start = time.perf_counter() - self.seconds
        while self.done < self.total:
            x, y = next(self.stream)
            value, nll, kl = self._step(x, y, self.done + 1)
            self.done += 1
            self.seconds = time.perf_counter() - start
            yield Step(self.done, value, nll, kl, self.seconds)

    def _step(self, x: Tensor, y: Tensor, step: int) -> tuple[float, float, float]:
        if step % self.prior_every == 0:
            for layer in bayesian_layers(self.model).values():
                layer.prior.update_(layer.posterior)
        loss = self.method.update(x, y, self.temperature * self.kl_weight(step, self.total))
        value, nll, kl = (float(part) for part in loss)
        if not math.isfinite(value):
            raise HeadstartError(
                f"The loss became {value} at step {step} (nll {nll:.4g}, KL {kl:.4g}). {self._advice()}"
            )
        self.schedule.step()
        return value, nll, kl

    def check(self) -> None:
        """Refuse parameters that a gradient without end has spoilt: the next loss would tell, but not before they are kept."""
        for name, parameter in self._parts().named_parameters():
            if not bool(torch.isfinite(parameter).all()):
                raise HeadstartError(
                    f"{name.partition('.')[2]} is not finite after step {self.done}: a gradient was not. {self._advice()}"
                )

    def _advice(self) -> str:
        return f"Try a smaller lr than {self.lr:g}, clip=1.0, standardised inputs, or initialize_(model, 'iblm', ...) first."

    def state(self) -> dict[str, Any]:
        """All that the next steps depend on."""
        return {
            "done": self.done,
            "seconds": self.seconds,
            "parts": self._parts().state_dict(),
            "method": self.method.state(),
            "schedule": {
                "last_epoch": self.schedule.last_epoch,
                "_last_lr": self.schedule.get_last_lr(),
            },
            "data": self.group.gather_position(self.stream.position()),
            **self.group.random_state(),
        }

    def load_state_(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.done, self.seconds = int(state["done"]), float(state["seconds"])
        if not 0 <= self.done <= self.total:
            raise HeadstartError(f"The state is that after step {self.done} of {self.total}.")
        self._parts().load_state_dict(state["parts"])
        self.method.load_state_(state["method"])
        self.schedule.load_state_dict({**self.schedule.state_dict(), **state["schedule"]})
        self.stream.seek_(self.group.own_position(state["data"]))
        self.group.load_random_state_(state)

    def _parts(self) -> nn.ModuleList:
        return nn.ModuleList([self.model, self.likelihood])


def steps(
    model: nn.Module, likelihood: Likelihood, batches: Data, **options: Any
) -> Iterator[Step]:
    """Train step by step, yielding a record after each; stop whenever you like.

    `steps` is their number, `samples` (16) the draws of each, `lr` (1e-3) Adam's rate, which `lr_schedule` (`constant`, `linear`,
    `cosine`) lowers, `clip` a bound on the gradient's norm. `inference` is `svi`, `mc-dropout`, `noisy-kfac` or an object.
    `temperature` multiplies the KL (1: the evidence lower bound), `kl_schedule` (`constant`, `warmup`, `sigmoid`, or a function
    of step and steps) besides. Priors learned in closed form are renewed every `prior_every` (100) steps. `precision="bfloat16"`
    runs the net under autocast. `batch_size` (64) is for a pair of arrays; a loader brings its own, and `num_data` where its
    length cannot be told. With `fabric`, a launched `lightning.fabric.Fabric`, all its ranks train the model together, on a share
    of each batch (docs/cluster.md).

    Example:
        >>> import headstart as hs
        >>> x = torch.randn(100, 3)
        >>> model, lik = hs.bayesianize(nn.Linear(3, 1)), hs.Gaussian()
        >>> [record.step for record in hs.steps(model, lik, (x, x.sum(1)), steps=3)]
        [1, 2, 3]
    """
    return iter(Training(model, likelihood, batches, **options))


steps.__signature__ = inspect.signature(Training)  # type: ignore[attr-defined]  # for help() and editors
