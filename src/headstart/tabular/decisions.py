"""When to answer and when to abstain: the risk of what is answered, and thresholds by cost.

Abstaining costs as much as a share of an error (classes: Chow's rule), or as an error of a size in
the units of the target (quantities): a row is answered where its expected cost is smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.predictive import Predictive
from headstart.tabular.target import Target

CURVE_STEPS = 20
"""Places of a risk-coverage curve."""
CLASS_COSTS = (0.02, 0.05, 0.1, 0.2, 0.3)
"""Costs of abstaining that a report lists, an error being 1."""
QUANTITY_LEVELS = (0.25, 0.5, 0.75, 0.9)
"""Quantiles of the predicted sd at which a report lists costs."""


@dataclass(frozen=True)
class Decision:
    """What a cost of abstaining comes to on some rows.

    Args:
        cost: Of abstaining.
        answered: The fraction of rows that are answered.
        risk: Of these, the fraction of errors, or the root mean square error.
        saved: The mean cost of a row less, beside answering all of them.
    """

    cost: float
    answered: float
    risk: float
    saved: float


def expected_cost(pred: Predictive, target: Target) -> Tensor:
    """What an answer is expected to cost, (B,): the probability of an error, or the sd."""
    return 1 - pred.probs.max(1).values if target.classes else pred.std[:, 0]


def check_cost(cost: float, target: Target) -> float:
    """The cost of abstaining; refuses one that decides nothing."""
    if not cost > 0 or (target.classes and cost >= 1):
        unit = "an error costs 1" if target.classes else f"in the units of {target.name}"
        limit = "between 0 and 1" if target.classes else "above 0"
        raise HeadstartError(f"The cost of abstaining lies {limit} ({unit}), not at {cost:g}.")
    return cost


def abstains(pred: Predictive, target: Target, cost: float) -> Tensor:
    """Where abstaining is cheaper than what an answer is expected to cost, (B,)."""
    return expected_cost(pred, target) > check_cost(cost, target)


def true_loss(pred: Predictive, y: Tensor, target: Target) -> Tensor:
    """What an answer did cost, (B,): an error as 1, or the squared error."""
    if target.classes:
        return (pred.probs.argmax(1) != y).double()
    return (pred.mean[:, 0] - y).square()


def risk_coverage(pred: Predictive, y: Tensor, target: Target) -> dict[str, list[float]]:
    """The risk of the rows with the smallest expected cost, by their fraction.

    Example:
        >>> from headstart.likelihoods import Gaussian
        >>> pred = Predictive(torch.zeros(2, 4, 1), Gaussian(1.0, learn_noise=False))
        >>> found = risk_coverage(pred, torch.tensor([1.0, 1, 1, 1]), Target("y", "regression"))
        >>> found["coverage"][-1], found["risk"][-1]
        (1.0, 1.0)
    """
    loss = true_loss(pred, y, target)[expected_cost(pred, target).argsort(stable=True)]
    risk = loss.cumsum(0) / torch.arange(1, len(loss) + 1)
    counts = sorted({max(1, round(len(loss) * k / CURVE_STEPS)) for k in range(1, CURVE_STEPS + 1)})
    chosen = torch.tensor([float(risk[count - 1]) for count in counts])
    chosen = chosen if target.classes else chosen.sqrt()
    return {"coverage": [count / len(loss) for count in counts], "risk": chosen.tolist()}


def weigh_cost(pred: Predictive, y: Tensor, target: Target, cost: float) -> Decision:
    """What a cost of abstaining comes to on labeled rows."""
    answered = ~abstains(pred, target, cost)
    loss = true_loss(pred, y, target)
    risk = loss[answered].mean() if bool(answered.any()) else loss.new_zeros(())
    price = cost if target.classes else cost**2
    saved = loss.mean() - torch.where(answered, loss, loss.new_tensor(price)).mean()
    return Decision(
        cost,
        float(answered.double().mean()),
        float(risk if target.classes else risk.sqrt()),
        float(saved),
    )


def decisions(pred: Predictive, y: Tensor, target: Target) -> dict[str, Any]:
    """What a report shows: the curve, and some costs."""
    costs = list(CLASS_COSTS)
    if not target.classes:
        levels = torch.tensor(QUANTITY_LEVELS, dtype=torch.double)
        costs = torch.quantile(pred.std[:, 0].double(), levels).tolist()
    rows = [vars(weigh_cost(pred, y, target, cost)) for cost in costs]
    return {"curve": risk_coverage(pred, y, target), "costs": rows}
