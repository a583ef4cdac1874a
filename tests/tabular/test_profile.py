"""What training rows hold in a column: tails, holes, levels, and back from JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from headstart.errors import HeadstartError
from headstart.tabular.profile import (
    PROFILES,
    DateProfile,
    LevelProfile,
    NumberProfile,
    ParetoTail,
    profile_from_json,
    rarity,
)


def test_a_tail_finds_the_law_it_was_made_from() -> None:
    """Quantiles of a generalized Pareto law give its scale and shape back."""
    shape, scale = 0.3, 2.0
    upper = 1 - np.arange(0.5, 20_000) / 20_000
    values = scale * (upper**-shape - 1) / shape
    tail = ParetoTail.fit(values)
    assert tail.fraction == 0.1
    assert tail.shape == pytest.approx(shape, abs=0.03)
    far = np.quantile(values, [0.95, 0.99, 0.999])
    np.testing.assert_allclose(tail.surprise(far), -np.log([0.05, 0.01, 0.001]), atol=0.05)


def test_surprise_is_the_log_probability_of_the_tail() -> None:
    tail = ParetoTail(start=1.0, scale=2.0, shape=0.5, fraction=0.1)
    found = tail.surprise(np.array([-5.0, 1.0, 5.0]))
    expected = [0.0, 0.0, -math.log(0.1 * (1 + 0.5 * 4 / 2) ** -2)]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("values", [np.zeros(30), np.repeat([0.0, 1.0], 20), np.arange(3.0)])
def test_equal_and_few_values_have_a_tail(values: np.ndarray) -> None:
    tail = ParetoTail.fit(values)
    assert tail.scale > 0
    assert float(tail.surprise(np.array([1000.0]))[0]) > 15


def test_what_was_never_seen_is_rarer_than_what_was() -> None:
    assert rarity(0, 100) > rarity(1, 100) > rarity(50, 100)
    numbers = NumberProfile.learn("a", np.arange(100.0))
    assert numbers.surprise(np.array([np.nan, 50.0])).tolist() == [rarity(0, 100), 0.0]
    levels = LevelProfile.learn("b", np.array(["x"] * 9 + ["y"], object))
    assert levels.surprise(np.array(["x", "y", "z"], object)).tolist() == [
        0.0,
        rarity(1, 10),
        rarity(1, 10),
    ]


def test_differences_in_words() -> None:
    numbers = NumberProfile.learn("a", np.arange(101.0))
    assert numbers.difference(5000.0) == "a is 5,000, above the usual 5 to 95"
    assert numbers.difference(-3.0) == "a is -3, below the usual 5 to 95"
    assert numbers.difference(math.nan) == "a is missing"
    days = DateProfile.learn("d", np.arange(101.0))
    assert days.difference(400.0) == "d is 1971-02-05, above the usual 1970-01-06 to 1970-04-06"
    assert "'z'" in LevelProfile.learn("b", np.array(["x"] * 9, object)).difference("z")


@pytest.mark.parametrize("kind", PROFILES)
def test_profiles_come_back_from_json(kind: str) -> None:
    labels = kind == "category"
    values = np.array(["x", "x", "y"], object) if labels else np.array([1.0, np.nan, 3.0])
    profile = PROFILES[kind].learn("a", values)
    assert profile_from_json(json.loads(json.dumps(profile.to_json()))) == profile


def test_other_profiles_are_refused() -> None:
    with pytest.raises(HeadstartError, match="kind of profile"):
        profile_from_json({"kind": "sound"})
    entry = NumberProfile.learn("a", np.arange(9.0)).to_json()
    with pytest.raises(ValueError, match="quantiles"):
        profile_from_json({**entry, "grid": [1.0]})
