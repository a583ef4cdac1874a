"""Mistakes of the first hour: each is refused in a sentence that says what to do instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.errors import unknown
from headstart.estimators import BayesianRegressor
from headstart.tabular.columns import warn_of_unit
from headstart.tabular.schema import Schema, column_of
from headstart.tabular.words import unlike_in_words
from headstart.training.recipe import Recipe

X, Y = torch.randn(12, 3), torch.randn(12, 1)


def small() -> nn.Module:
    return hs.bayesianize(nn.Linear(3, 1))


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.head(torch.cat([left, right], 1))


def test_names_of_classes_are_not_their_number() -> None:
    with pytest.raises(hs.HeadstartError, match=r"number of classes.*not \['a', 'b'\]"):
        hs.Categorical(["a", "b"])  # type: ignore[arg-type]
    assert hs.Categorical(np.int64(3)).num_classes == 3  # type: ignore[arg-type]


def test_labels_in_words_are_named_as_labels() -> None:
    model, lik = hs.bayesianize(nn.Linear(3, 2)), hs.Categorical(2)
    with pytest.raises(hs.HeadstartError, match="y must hold numbers"):
        hs.initialize_(model, "iblm", lik, (X, ["a", "b"] * 6))


def test_labels_in_a_list_are_labels() -> None:
    report = hs.initialize_(small(), "iblm", hs.Gaussian(), (X, Y[:, 0].tolist()))
    assert report.layers


def test_inputs_without_labels_are_no_batches() -> None:
    with pytest.raises(hs.HeadstartError, match=r"a pair of arrays, not Tensor"):
        hs.initialize_(small(), "iblm", hs.Gaussian(), X)


@pytest.mark.parametrize("given", [hs.Gaussian, nn.MSELoss(), "gaussian"])
def test_what_is_no_likelihood_is_refused(given: Any) -> None:
    model = small()
    for call in (
        lambda: hs.initialize_(model, "iblm", given, (X, Y)),
        lambda: hs.fit(model, given, (X, Y), steps=1, progress=False),
        lambda: hs.predict(model, given, X),
        lambda: hs.condition(model, given, (X, Y)),
    ):
        with pytest.raises(hs.HeadstartError, match=r"likelihood.*hs\.Gaussian\(\)"):
            call()


def test_a_class_is_no_module() -> None:
    with pytest.raises(hs.HeadstartError, match="the class Linear"):
        hs.bayesianize(nn.Linear)  # type: ignore[arg-type]
    with pytest.raises(hs.HeadstartError, match="not a str"):
        hs.bayesianize("lenet")  # type: ignore[arg-type]


def test_one_tensor_is_not_enough_for_two_inputs() -> None:
    model = hs.bayesianize(TwoInputs())
    with pytest.raises(hs.HeadstartError, match=r"TwoInputs\.forward.*tuple or dictionary"):
        hs.predict(model, hs.Gaussian(), X)
    left, right = X, X[:, :2]
    assert hs.predict(model, hs.Gaussian(), (left, right), samples=2).mean.shape == (12, 1)


def test_steps_of_an_estimator_are_called_steps() -> None:
    with pytest.raises(hs.HeadstartError, match=r"^steps must be a whole number, not 1\.5"):
        Recipe(steps=1.5)  # type: ignore[arg-type]


def test_the_net_of_a_table_is_a_dense_one() -> None:
    with pytest.raises(hs.HeadstartError, match=r"no model 'mlp' for tables.*mlp-DEPTHxWIDTH"):
        Recipe(model="mlp")
    assert Recipe(model="mlp-2x30-tanh").model == "mlp-2x30-tanh"


def test_words_are_no_quantity() -> None:
    with pytest.raises(ValueError, match="BayesianClassifier"):
        BayesianRegressor().fit(X.numpy(), ["a", "b"] * 6)


def test_names_with_commas_and_spaces_are_quoted() -> None:
    said = str(unknown("column", "price", ["Dear all", "size", "a, b"]))
    assert said.endswith("Choose from: 'Dear all', 'a, b', size.")


def test_a_text_that_is_no_table_is_told() -> None:
    letter = pd.DataFrame({"Dear friends": ["this is a letter", "and no table"]})
    with pytest.raises(hs.HeadstartError, match=r"a single column, 'Dear friends'.*header"):
        column_of(letter, "price")


def test_dates_are_asked_about_their_time_and_not_their_units() -> None:
    asked = "is it complete, or are its dates earlier or later than in the training rows?"
    late, odd = unlike_in_words({"sold": 9, "size": 8}, 10, dates={"sold"})
    assert late.endswith("in 'sold': " + asked)
    assert odd.endswith("in 'size': is it complete, and in the same units?")


def test_labels_are_not_given_to_predict() -> None:
    for first in (nn.Identity(), nn.Flatten()):
        model = hs.bayesianize(nn.Sequential(first, nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
        with pytest.raises(hs.HeadstartError, match=r"one tensor: .* alone, without labels"):
            hs.predict(model, hs.Gaussian(), (X, Y))


def test_inputs_without_columns_are_told_how_to_get_one() -> None:
    for call in (
        lambda: hs.predict(small(), hs.Gaussian(), X[0]),
        lambda: hs.initialize_(small(), "iblm", hs.Gaussian(), (X[:, 0], Y)),
    ):
        with pytest.raises(hs.HeadstartError, match=r"no columns: .*x\.unsqueeze\(1\)"):
            call()


def test_inputs_beside_each_other_are_one_collection() -> None:
    with pytest.raises(hs.HeadstartError, match=r"pass \(\(a, b\), y\)"):
        hs.initialize_(hs.bayesianize(TwoInputs()), "iblm", hs.Gaussian(), (X, X[:, :2], Y))


def test_columns_that_are_no_numbers_are_named() -> None:
    frame = pd.DataFrame(X.numpy(), columns=["a", "b", "c"])
    frame["b"] = ["u", "v"] * 6
    frame["c"] = pd.date_range("2020-01-01", periods=12)
    with pytest.raises(hs.HeadstartError, match=r"values in 'b', 'c'\. .*headstart\.estimators"):
        hs.predict(small(), hs.Gaussian(), frame)
    wide = pd.DataFrame({str(i): ["a"] * 12 for i in range(5)})
    with pytest.raises(hs.HeadstartError, match=r"'0', '1', '2' and 2 more"):
        hs.predict(small(), hs.Gaussian(), wide)


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (torch.arange(12) % 2 * 1.0, r"\(take y\.long\(\)\)"),
        ((torch.arange(12) % 2)[:, None], r"\(take y\.squeeze\(1\)\)"),
        ((torch.arange(12) % 2 * 1.0)[:, None], r"\(take y\.squeeze\(1\)\.long\(\)\)"),
        (torch.arange(12) / 2, r"of shape \(12,\)\.$"),
        (torch.arange(12) % 2 + 1, "found 1…2; subtract 1"),
    ],
)
def test_labels_of_another_kind_are_told_how_to_become_classes(
    labels: Tensor, sentence: str
) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        hs.initialize_(hs.bayesianize(nn.Linear(3, 2)), "iblm", hs.Categorical(2), (X, labels))


def test_a_report_is_a_table_in_a_notebook() -> None:
    report = hs.initialize_(small(), "iblm", hs.Gaussian(), (X, Y))
    assert repr(report) == str(report)


@pytest.mark.parametrize("digits", [0, 6])
def test_numbers_with_a_unit_are_told(digits: int) -> None:
    """Many equal ones are categories, and cells that are all different are not used at all."""
    rng, warnings = np.random.default_rng(0), list[str]()
    cells = pd.Series([f"{v:.{digits}f} kg" for v in rng.gamma(2, 2, 100)])
    warn_of_unit("weight", cells, warnings)
    warn_of_unit("city", pd.Series(["Bonn", "Ulm 2", "3"] * 30), warnings)
    assert len(warnings) == 1
    assert "'weight' are numbers with 'kg' behind" in warnings[0]
    frame = pd.DataFrame({"weight": cells, "x": rng.normal(size=100), "y": rng.normal(size=100)})
    assert warnings[0] in Schema.learn(frame, "y").warnings
