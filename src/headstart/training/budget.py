"""How many steps a training takes, and what its options may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headstart.batching import Batches
from headstart.errors import HeadstartError
from headstart.training.convergence import MAX_CHECKS, MIN_EPOCHS, MIN_STEPS


def max_steps(data: Batches) -> int:
    """How many steps a training until convergence takes at most.

    Args:
        data: The training rows.
    """
    return max(MIN_STEPS, MIN_EPOCHS * data.batches_per_pass)


def steps_of_epochs(data: Batches, epochs: int) -> int:
    """How many steps so many passes over the data take.

    Args:
        data: The training rows.
        epochs: The number of passes.

    Raises:
        HeadstartError: The loader does not know how many batches it has.
    """
    if not data.knows_length:
        raise HeadstartError(
            f"epochs={epochs} needs to know how many batches a pass has, and this loader does not "
            "tell: pass steps= in its place."
        )
    return epochs * data.batches_per_pass


def default_interval(total: int, exact: bool) -> int:
    """Steps between two evaluations.

    Args:
        total: The steps of the training, or a bound on them.
        exact: Whether it takes exactly so many.
    """
    return 100 if exact else max(10, total // MAX_CHECKS)


def check_whole(options: Mapping[str, Any]) -> None:
    """Refuse fractions of steps, rows or samples.

    Args:
        options: Each option with its value; None is allowed for all.

    Raises:
        HeadstartError: Which option is wrong.
    """
    for name, value in options.items():
        if isinstance(value, float) and not value.is_integer():
            raise HeadstartError(f"{name} must be a whole number, not {value!r}.")


def check_limits(
    least: Mapping[str, tuple[float | None, float]],
    ends: Mapping[str, int | None],
    schedules: Iterable[Any],
) -> None:
    """Refuse options out of range, and more than one of those that say when training ends.

    Args:
        least: Each option with its smallest value; None is allowed for all.
        ends: The steps, the epochs and a bound on the steps, of which one may be given.
        schedules: Those of the KL and of the learning rate.

    Raises:
        HeadstartError: Which option is wrong.
    """
    for name, (value, smallest) in least.items():
        if value is not None and not (isinstance(value, (int, float)) and value >= smallest):
            raise HeadstartError(f"{name} must be a number, at least {smallest:g}, not {value!r}.")
    check_whole(ends)
    given = {name: value for name, value in ends.items() if value is not None}
    if len(given) > 1:
        words = " and ".join(f"{name}={value}" for name, value in given.items())
        raise HeadstartError(
            f"{words} both say when training ends (steps and epochs exactly, max_steps as a "
            "bound): pass one of them."
        )
    if not given.keys() & {"steps", "epochs"} and set(schedules) != {"constant"}:
        raise HeadstartError("A schedule needs to know its end: pass steps= with it.")
