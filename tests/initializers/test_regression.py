"""The regressions of a hidden layer: targets, mixtures, evidence."""

from __future__ import annotations

import pytest
import torch

import headstart as hs
from headstart.distributed.rows import LOCAL_ROWS
from headstart.initializers.certainty import effective_rows
from headstart.initializers.regression import (
    draw_input_fractions,
    draw_projection,
    mix_with_inputs,
    statistics_of_mixed,
    unit_targets,
    weighted_by_label,
)
from headstart.initializers.settings import IBLMSettings
from headstart.linalg.blm import solve_blm
from tests.initializers.samples import regression

pytestmark = pytest.mark.usefixtures("float64")


def test_standardized_targets_take_their_noise_along() -> None:
    _, y = regression(500)
    t, v = unit_targets(
        hs.Gaussian(0.2), 3 * y, torch.arange(4), IBLMSettings(targets="label"), own_class=False
    )
    torch.testing.assert_close(t.std(0, correction=0), torch.ones(4))
    torch.testing.assert_close(t.mean(0), torch.zeros(4), atol=1e-12, rtol=0)
    torch.testing.assert_close(v, torch.full_like(v, 0.2 / float((3 * y).var(correction=0))))


def test_class_codes_are_as_noisy_as_they_vary() -> None:
    y = torch.randint(4, (50,))
    for lik, labels in ((hs.Categorical(4), y), (hs.Bernoulli(), y % 2)):
        t, v = unit_targets(lik, labels, torch.arange(6), IBLMSettings(), own_class=False)
        torch.testing.assert_close(v, torch.ones_like(v))
        torch.testing.assert_close(t.var(0, correction=0), torch.ones(6))


def test_mixing_keeps_variance_one_and_goes_from_labels_to_inputs() -> None:
    x, t = torch.randn(20_000, 5), torch.randn(20_000, 40)
    t = (t - t.mean(0)) / t.std(0)
    fractions = draw_input_fractions(40, 0.98)
    mixed = mix_with_inputs(t, x, fractions, draw_projection(x, fractions))
    torch.testing.assert_close(mixed.std(0), torch.ones(40), atol=0.03, rtol=0)
    label_part = (mixed * t).mean(0)
    torch.testing.assert_close(label_part, (1 - fractions**2).sqrt().to(t), atol=0.03, rtol=0)
    none = draw_input_fractions(40, 0.0)
    assert draw_projection(x, none) is None
    assert torch.equal(mix_with_inputs(t, x, none, None), t)


@pytest.mark.parametrize("labels", ["classes", "numbers"])
def test_the_gram_matrix_knows_what_inputs_have_to_do_with_their_projections(labels: str) -> None:
    """The statistics of mixed targets that are not written out, and of those that are."""
    x = torch.cat([torch.randn(900, 30) + 2, torch.ones(900, 1)], 1)
    codes = torch.randn(4, 700)
    t = codes[torch.randint(4, (900,))] if labels == "classes" else torch.randn(900, 700)
    noise, fractions = torch.full((900, 1), 0.3), draw_input_fractions(700, 0.98)
    projection = draw_projection(x, fractions)
    found = statistics_of_mixed(t, x, noise, fractions, projection)
    assert found is not None
    plain = solve_blm(x, mix_with_inputs(t, x, fractions, projection), noise, 0.7)
    solved = found.solve(0.7)
    torch.testing.assert_close(solved.mean, plain.mean, atol=1e-9, rtol=0)
    torch.testing.assert_close(solved.precision(), plain.precision(), atol=0, rtol=1e-9)


def test_targets_are_written_out_where_the_gram_matrix_cannot_tell() -> None:
    x, t = torch.randn(50, 3), torch.randn(50, 4)
    fractions = draw_input_fractions(4, 0.98)
    projection, noise = draw_projection(x, fractions), torch.ones(50, 1)
    assert statistics_of_mixed(t, x, noise, fractions, projection) is not None
    assert statistics_of_mixed(t, x, noise, fractions, None) is None
    assert statistics_of_mixed(t[:2], x[:2], noise[:2], fractions, projection) is None
    assert statistics_of_mixed(t, x, torch.rand(50, 1), fractions, projection) is None
    assert statistics_of_mixed(t, x, noise.expand(50, 4), fractions, projection) is None
    assert statistics_of_mixed(t, 1e-9 * x + 1, noise, fractions, projection) is None


def test_fractions_of_the_inputs_are_even_in_variance() -> None:
    fractions = draw_input_fractions(40, 0.98)
    torch.testing.assert_close(
        fractions.square().sort().values, 0.98**2 * (torch.arange(40) + 0.5).double() / 40
    )
    # A unit alone is neither all labels nor all inputs.
    assert 0 < float(draw_input_fractions(1, 0.98)) < 0.98


def test_how_much_evidence_counts() -> None:
    # A hundred weights take all these rows.
    assert effective_rows(10_000, 60_000, size=100, noise_var=1.0) == 10_000
    # A wider unit counts fewer.
    assert effective_rows(10_000, 60_000, size=400, noise_var=1.0) == 5000
    # No more rows count than there are.
    assert effective_rows(10_000, 9000, size=100, noise_var=1.0) == 9000
    # Of few rows with noisy targets a tenth counts.
    assert effective_rows(10_000, 800, size=100, noise_var=1.0) == 80
    assert effective_rows(10_000, 800, size=100, noise_var=0.2) == 800


def test_rows_of_weight_0_say_nothing_with_a_noise_that_is_given_either() -> None:
    x, weights = torch.randn(300, 3), (torch.arange(300) < 150).double()
    given = x[:, 0], x[:, 0].where(weights > 0, 50.0)
    means = []
    for y in given:
        torch.manual_seed(0)
        model = hs.bayesianize(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)))
        lik = hs.Weighted(hs.Gaussian())
        hs.initialize_(model, "iblm", lik, (x, (y, weights)), seed=0, noise_var=0.1)
        means.append(model[0].posterior.mean)
    torch.testing.assert_close(*means, rtol=1e-4, atol=1e-5)


def test_a_shard_without_rows_has_no_weights() -> None:
    lik = hs.Categorical(3, ignore_index=-1)
    rows = weighted_by_label(LOCAL_ROWS, lik, lik.check(torch.zeros(0, dtype=torch.long), 3))
    assert rows.noise_of(torch.ones(0, 1)).shape == (0, 1)
    assert rows.total(0) == 0
