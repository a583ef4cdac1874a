"""The step-0 report, in a table and in words."""

from __future__ import annotations

import torch

import headstart as hs
from tests.cases import chain
from tests.initializers.samples import data


def test_the_report_tells_the_truth_in_a_table_and_in_words() -> None:
    model = hs.bayesianize(hs.models.create("mlp-2x20", 4, 3))
    x, y = data()
    report = hs.initialize_(model, "iblm", hs.Categorical(3), (x, y))
    text = str(report)
    for word in (
        "pre-act. mean",
        "zero fraction",
        "|mean|/sd",
        "KL",
        "seconds",
        "against an expected NLL",
    ):
        assert word in text
    assert all(layer.seconds is not None and layer.seconds > 0 for layer in report.layers)
    bare = hs.initialize_(model, "heuristic")
    assert bare.expected_nll is None
    assert all(layer.sd is None for layer in bare.layers)
    wide = hs.bayesianize(hs.models.create("mlp-5x300", 4, 3))
    exploded = hs.initialize_(wide, "uninformative", hs.Categorical(3), (x, y))
    assert any("explodes" in warning for warning in exploded.warnings)


def test_targets_in_large_units_are_told_to_be_standardized() -> None:
    x = torch.linspace(-1, 1, 50).unsqueeze(1)
    net = hs.models.create("mlp-1x10", 1, 1)
    for lik, told in ((hs.Gaussian(), True), (hs.Gaussian().standardize_(5000 * x), False)):
        report = hs.initialize_(hs.bayesianize(net), "iblm", lik, (x, 5000 * x))
        assert any("standardize_(y)" in warning for warning in report.warnings) is told


def test_a_constant_column_is_named() -> None:
    x, y = data()
    x[:, 2] = 7.0
    report = hs.initialize_(hs.bayesianize(chain()), "iblm", hs.Categorical(3), (x, y))
    assert any("input column 2 constant" in warning for warning in report.warnings)


def test_a_kl_that_exceeds_the_likelihood_by_far_is_said_with_what_to_do() -> None:
    x, y = data()
    wide = hs.initialize_(
        hs.bayesianize(hs.models.create("mlp-5x300", 4, 3)), "iblm", hs.Categorical(3), (x, y)
    )
    assert wide.expected_nll is not None
    assert wide.kl > 30 * wide.expected_nll
    (note,) = (warning for warning in wide.warnings if "times the expected NLL" in warning)
    assert f"{wide.kl / wide.expected_nll:.2g} times" in note
    assert "validation rows" in note
    small = hs.initialize_(hs.bayesianize(chain()), "iblm", hs.Categorical(3), (x, y))
    assert not any("times the expected NLL" in warning for warning in small.warnings)
