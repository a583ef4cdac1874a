"""The training loop: `steps` yields a record per step, `Training` can stop and go on."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from headstart.batching import Batches, Data
from headstart.distributed.collectives import group_of
from headstart.distributed.fabric import Fabric
from headstart.errors import HeadstartError, unknown
from headstart.inference import PRECISIONS, Inference, OptimizerChoice, is_own, make_inference
from headstart.kernels.random_state import devices_of
from headstart.likelihoods import Likelihood
from headstart.likelihoods.base import require_likelihood
from headstart.linalg.precision import exact_device
from headstart.network.layer import bayesian_layers, count_members
from headstart.training.budget import check_whole, max_steps, steps_of_epochs
from headstart.training.history import Step
from headstart.training.schedules import KLSchedule, make_kl_schedule, make_lr_schedule

Result = TypeVar("Result")


class Training:
    """The loop: iterating it trains, and yields a record for each step.

    `state` says where it stands, and `load_state_` goes on from there, to the last bit.
    An inference method that the caller made is copied before it is bound to the model: the
    caller's own object stays as it was.

    Args:
        model: The Bayesian net, trained in place.
        likelihood: The likelihood of its labels; its parameters are trained too.
        batches: Training rows.
        steps: As in `headstart.steps`, and so are the options that follow; None: at most
            2000 steps, or 30 epochs where these are more.
        epochs: Passes over the data, in the place of `steps`.
    """

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        batches: Data,
        *,
        steps: int | None,
        samples: int = 8,
        lr: float | None = None,
        optimizer: OptimizerChoice = None,
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
        epochs: int | None = None,
    ) -> None:
        if precision not in PRECISIONS:
            raise unknown("precision", precision, PRECISIONS)
        require_likelihood(likelihood)
        _check_options(lr, temperature, samples, prior_every, clip)
        check_whole({"steps": steps, "samples": samples, "batch_size": batch_size})
        group, self.method = group_of(fabric, model), copy.copy(make_inference(inference))
        own = is_own(self.method)
        data = Batches(
            batches, batch_size=batch_size, num_data=num_data, like=model, group=group, move_y=own
        )
        # Shards may differ in length, so that one rank decides.
        total = group.run_on_first(lambda: _total_steps(data, steps, epochs))
        self.model, self.likelihood, self.total, self.done = model, likelihood, total, 0
        self.lr, self.prior_every, self.lr_factor = lr, prior_every, make_lr_schedule(lr_schedule)
        self.temperature, self.kl_weight = temperature, make_kl_schedule(kl_schedule)
        self.method.precision, self.method.group, self.group = precision, group, group
        if not group.is_alone and not self.method.pools:
            raise HeadstartError(
                f"{self.method.name} learns from one process only; on {group.size} ranks "
                "use inference='svi', 'mc-dropout' or 'noisy-kfac'."
            )
        self.method.refuse_members(count_members(model))
        group.broadcast_(model, likelihood.to(exact_device(devices_of(model)[-1])))
        if optimizer is not None and not self.method.optimizers:
            raise HeadstartError(f"{self.method.name} has its own optimizer: leave out optimizer=.")
        # It was found for the posterior that is about to change.
        likelihood.forget_predictive_noise_()
        self.optimizer: torch.optim.Optimizer = self.method.bind(
            model,
            likelihood,
            num_data=data.num_data,
            samples=samples,
            lr=lr,
            clip=clip,
            optimizer=optimizer,
        )
        for parameters in self.optimizer.param_groups:
            parameters.setdefault("initial_lr", parameters["lr"])
        self.stream = data.forever(group.separate_rng_())
        self.num_data, self.seconds = data.num_data, 0.0
        self.identity = {
            "method": self.method.name,
            "steps": self.total,
            "samples": samples,
            "lr": lr,
            "batch_size": batch_size,
            "rows": data.num_data,
            "temperature": temperature,
            "lr_schedule": lr_schedule,
            "precision": precision,
            "clip": clip,
            "prior_every": prior_every,
            "likelihood": likelihood.identity(),
            "sampler": self.method.sampler,
            "kl_schedule": kl_schedule if isinstance(kl_schedule, str) else "own",
            "data": data.digest(),
            **group.identity(),
            **self.method.identity(),
            "priors": {
                name: [layer.prior.name, layer.prior.config()]
                for name, layer in bayesian_layers(model).items()
            },
            "parameters": {name: list(p.shape) for name, p in self._modules().named_parameters()},
        }
        """What a checkpoint must have in common with the run that goes on from it."""

    def __iter__(self) -> Iterator[Step]:
        # A model in training mode keeps the modes of its parts: a frozen BatchNorm stays frozen.
        if not self.model.training:
            self.model.train()
        start = time.perf_counter() - self.seconds
        while self.done < self.total:
            x, y = next(self.stream)
            value, nll, kl = self._step(x, y, self.done + 1)
            self.done += 1
            self.seconds = time.perf_counter() - start
            yield Step(self.done, value, nll, kl, self.seconds)

    def _step(self, x: Tensor, y: Tensor, step: int) -> tuple[float, float, float]:
        # A learned prior begins at the posterior that training begins with.
        if step == 1 or step % self.prior_every == 0:
            for layer in bayesian_layers(self.model).values():
                layer.prior.update_(layer.posterior)
        factor = self.lr_factor((step - 1) / max(1, self.total))
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor
        loss = self.method.update(x, y, self.temperature * self.kl_weight(step, self.total))
        value, nll, kl = (float(part) for part in loss)
        if not math.isfinite(value):
            raise HeadstartError(
                f"The loss became {value} at step {step} (nll {nll:.4g}, KL {kl:.4g}). "
                f"{self._advice()}"
            )
        return value, nll, kl

    def check(self) -> None:
        """Refuse non-finite parameters: the next loss would tell, but only after they are kept.

        Raises:
            HeadstartError: A parameter is not finite.
        """
        for name, parameter in self._modules().named_parameters():
            if not bool(torch.isfinite(parameter).all()):
                raise HeadstartError(
                    f"{name.partition('.')[2]} is not finite after step {self.done}: "
                    f"a gradient was not. {self._advice()}"
                )

    @property
    def leads(self) -> bool:
        """Whether this process is the one that reads, writes and shows progress."""
        return self.group.is_first

    def lead(self, act: Callable[[], Result]) -> Result:
        """Let the leading process act.

        Args:
            act: What it does.

        Returns:
            What that returned, on every rank.
        """
        return self.group.run_on_first(act)

    def agreed(self, wish: bool, due: bool) -> bool:
        """Whether to stop for a wish of this process, a Ctrl-C or the end of its time.

        Several ranks ask each other where an evaluation is due, so that all stop together.

        Args:
            wish: Whether this process wishes to stop.
            due: Whether the step is one that every rank asks at.
        """
        if self.group.is_alone:
            return wish
        return due and self.group.any(wish)

    def _advice(self) -> str:
        slower = "a smaller lr" + (", 1e-4 say" if self.lr is None else f" than {self.lr:g}")
        return (
            f"Try {slower}, clip=1.0, standardized inputs, "
            "or initialize_(model, 'iblm', ...) first."
        )

    def state(self) -> dict[str, Any]:
        """All that the next steps depend on."""
        return {
            "done": self.done,
            "seconds": self.seconds,
            "parts": self._modules().state_dict(),
            "method": self.method.state(),
            "data": self.group.gather_position(self.stream.position()),
            **self.group.random_state(self.model),
        }

    def load_state_(self, state: dict[str, Any]) -> None:
        """Go on from there.

        Args:
            state: What `state` returned.

        Raises:
            HeadstartError: It is the state of a longer training.
        """
        self.done, self.seconds = int(state["done"]), float(state["seconds"])
        if not 0 <= self.done <= self.total:
            raise HeadstartError(f"The state is that after step {self.done} of {self.total}.")
        self._modules().load_state_dict(state["parts"])
        self.method.load_state_(state["method"])
        self.stream.seek_(self.group.own_position(state["data"]))
        self.group.load_random_state_(state, self.model)

    def _modules(self) -> nn.ModuleList:
        return nn.ModuleList([self.model, self.likelihood])


def _total_steps(data: Batches, steps: int | None, epochs: int | None) -> int:
    if steps is not None:
        return steps
    return max_steps(data) if epochs is None else steps_of_epochs(data, epochs)


def _check_options(
    lr: float | None, temperature: float, samples: int, prior_every: int, clip: float | None
) -> None:
    positive = {"lr": lr, "samples": samples, "prior_every": prior_every, "clip": clip}
    for name, value in positive.items():
        if value is not None and not (isinstance(value, (int, float)) and value > 0):
            raise HeadstartError(f"{name} must be a number above 0, not {value!r}.")
    if not (isinstance(temperature, (int, float)) and temperature >= 0):
        raise HeadstartError(f"temperature must be a number, at least 0, not {temperature!r}.")


def steps(
    model: nn.Module,
    likelihood: Likelihood,
    batches: Data,
    *,
    steps: int | None = None,
    samples: int = 8,
    lr: float | None = None,
    optimizer: OptimizerChoice = None,
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
    epochs: int | None = None,
) -> Iterator[Step]:
    """Train step by step, yielding a record after each; stop whenever you like.

    A step descends along the gradient of `NELBO = E_q[−log p(y|x, W)] + temperature · KL(q‖p)`.

    Args:
        model: The Bayesian net, trained in place.
        likelihood: The likelihood of its labels; its parameters are trained too.
        batches: Training rows: a pair (x, y) of tensors or arrays, or a loader of such pairs.
        steps: How many steps to take; or `epochs`.
        samples: Draws of the weights for each step.
        lr: The learning rate. None: step sizes are chosen from the layers' inputs on the first
            batch (docs/step-sizes.md); a number alone means Adam at that rate.
        optimizer: As in `headstart.fit`.
        batch_size: Rows of a step, where `batches` is a pair; a loader brings its own.
        inference: `svi`, `mc-dropout`, `noisy-kfac`, or an object; an object stays as it was.
        kl_schedule: The KL's weight over time: `constant`, `warmup`, `sigmoid`, or a function of
            (step, steps) that returns it.
        temperature: Multiplies the KL; 1 is the evidence lower bound.
        lr_schedule: The learning rate over time: `constant`, `linear` or `cosine`.
        clip: The largest norm of a gradient; None: any.
        prior_every: Priors learned in closed form are renewed every so many steps.
        precision: `float32`, or `bfloat16` to run the net under autocast.
        num_data: The number of training rows, where a loader's length does not tell.
        fabric: A launched `lightning.fabric.Fabric`: all its ranks train the model together, each
            on its shard of every batch (docs/cluster.md).
        epochs: How many passes over the data to take, in the place of `steps`.

    Returns:
        An iterator of records, one for each step; a step is taken when its record is asked for.

    Raises:
        HeadstartError: An option is out of range, or the loss is no longer finite.

    Example:
        >>> import headstart as hs
        >>> x = torch.randn(100, 3)
        >>> model, lik = hs.bayesianize(nn.Linear(3, 1)), hs.Gaussian()
        >>> [record.step for record in hs.steps(model, lik, (x, x.sum(1)), steps=3)]
        [1, 2, 3]
    """
    if (steps is None) == (epochs is None):
        raise HeadstartError("steps takes a number of steps or of epochs: pass one of them.")
    training = Training(
        model,
        likelihood,
        batches,
        steps=steps,
        samples=samples,
        lr=lr,
        optimizer=optimizer,
        batch_size=batch_size,
        inference=inference,
        kl_schedule=kl_schedule,
        temperature=temperature,
        lr_schedule=lr_schedule,
        clip=clip,
        prior_every=prior_every,
        precision=precision,
        num_data=num_data,
        fabric=fabric,
        epochs=epochs,
    )
    return iter(training)
