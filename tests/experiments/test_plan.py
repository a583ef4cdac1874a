"""The paper's experiments by name."""

from __future__ import annotations

import inspect

import pytest

from headstart import data
from headstart.errors import HeadstartError
from headstart.experiments.catalogue import SUITES
from headstart.experiments.plan import ALL, plan
from headstart.experiments.spec import BUDGETS
from headstart.experiments.variants import (
    DEFAULTS_LABEL,
    INITS,
    LARGE_NETS,
    PAPER_RACE_VARIANTS,
    SMALL_NETS,
)
from headstart.initializers import INITIALIZERS
from headstart.initializers.settings import IBLMSettings
from headstart.training.fit import fit

PAPERS = [name for name, suite in SUITES.items() if suite.variants == PAPER_RACE_VARIANTS]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", SUITES)
def test_every_suite_is_a_product_of_data_sets_nets_splits_and_variants(
    name: str, budget: str
) -> None:
    suite, runs = SUITES[name], plan(name, budget)
    raced = sum(
        not variant.models or model in variant.models
        for model in suite.models
        for variant in suite.variants
    )
    assert len(runs) == len(suite.datasets) * suite.budget(budget).splits * raced
    assert len({run.key for run in runs}) == len(runs)
    assert {run.label or run.init for run in runs} == {variant.label for variant in suite.variants}
    assert set(suite.datasets) <= set(data.NAMES)
    assert all(run.seed == run.split for run in runs)
    assert all((run.steps is None) != (run.epochs is None) for run in runs)
    assert all((run.batch, run.lr, run.kl_weight) == (64, None, 1.0) for run in runs)
    # The paper's protocol, but where training itself is compared and in the line of our defaults.
    if name.startswith(("kept-", "gained-", "far-")):
        assert {run.optimizer for run in runs} == {"averaged", "adam"}
        return
    assert {run.optimizer for run in runs if run.label != DEFAULTS_LABEL} == {"adam"}
    assert {run.optimizer for run in runs if run.label == DEFAULTS_LABEL} <= {"averaged"}
    if budget == "paper" or (budget == "quick" and SUITES[name].models[0].startswith("mlp")):
        assert {run.samples for run in runs} == {16}


def test_nets_against_dropout_have_the_papers_priors_and_schedules() -> None:
    found = {
        suite: {
            (run.prior, run.kl_schedule, run.out_of_distribution)
            for run in plan(suite)
            if run.label != DEFAULTS_LABEL
        }
        for suite in ("lenet-rivals", "alexnet-rivals", "vgg16-rivals")
    }
    assert list(found.values()) == [
        {(1.0, "constant", "notmnist")},
        {("learned", "constant", "")},
        {(1.0, "sigmoid", "")},
    ]
    assert {run.method for run in plan("vgg16-rivals")} == {"svi", "mc-dropout", "noisy-kfac"}


@pytest.mark.parametrize("name", [name for name, suite in SUITES.items() if suite.paper])
def test_the_papers_suites_have_a_line_of_the_library_as_it_is(name: str) -> None:
    """What `fit` does at the budget's samples: its own optimizer, batches of 64, prior 1."""
    (run, *_) = [run for run in plan(name, "paper") if run.label == DEFAULTS_LABEL]
    defaults = {key: value.default for key, value in inspect.signature(fit).parameters.items()}
    assert (run.init, run.optimizer, run.prior) == ("iblm", "averaged", 1.0)
    assert (run.samples, run.batch) == (
        SUITES[name].budget("paper").samples,
        defaults["batch_size"],
    )
    assert (run.kl_schedule, run.kl_weight) == (defaults["kl_schedule"], defaults["temperature"])
    assert (run.lr, run.method) == (defaults["lr"], defaults["inference"])


def test_a_part_of_a_suite_is_chosen_by_data_set_model_and_label() -> None:
    chosen = {"datasets": ["spam"], "labels": ["iblm", DEFAULTS_LABEL]}
    runs = plan("classification-deep", "paper", splits=2, **chosen)
    assert {(run.dataset, run.label or run.init, run.split) for run in runs} == {
        ("spam", label, split) for label in ("iblm", DEFAULTS_LABEL) for split in (0, 1)
    }
    # They are the runs of the whole suite: nothing is run twice.
    assert {run.key for run in runs} <= {run.key for run in plan("classification-deep", "paper")}
    assert {run.model for run in plan("kept-mnist", models=["lenet"])} == {"lenet"}
    with pytest.raises(HeadstartError, match="There is no label of classification-deep 'ibml'"):
        plan("classification-deep", labels=["ibml"])
    with pytest.raises(HeadstartError, match="Name a suite"):
        plan(ALL, labels=["iblm"])


@pytest.mark.parametrize("name", PAPERS)
def test_the_papers_suites_race_all_six_initializers(name: str) -> None:
    runs = plan(name)
    assert {run.init for run in runs} == set(INITS)
    assert {(run.steps, run.label) for run in runs} == {(2000, ""), (2000, DEFAULTS_LABEL)}
    assert {run.split for run in runs} == ({0} if name.startswith("lenet") else {0, 1, 2})


def test_the_options_of_variants_are_ones_that_i_blm_takes() -> None:
    for run in plan(ALL):
        assert run.init_options.keys() <= set(INITIALIZERS[run.init].options)
        if run.init_options:
            # Refuses what makes no sense.
            IBLMSettings(**run.init_options)


def test_labels_are_unique_in_a_suite() -> None:
    for suite in SUITES.values():
        assert len({variant.label for variant in suite.variants}) == len(suite.variants)


def test_the_large_nets_are_for_iblm_alone() -> None:
    found = {(run.model, run.init) for run in plan("deep-starts")}
    assert {init for model, init in found if model in SMALL_NETS} == {"orthogonal", "lsuv", "iblm"}
    assert {init for model, init in found if model in LARGE_NETS} == {"iblm"}
    assert {model for model, _ in found} == {*SMALL_NETS, *LARGE_NETS}


def test_the_papers_budget() -> None:
    run = plan("classification-deep", "paper")[-1]
    assert (run.epochs, run.eval_samples, run.split) == (100, 128, 4)


def test_all_is_all() -> None:
    assert {run.suite for run in plan(ALL)} == set(SUITES)


def test_overrides_leave_a_suite_without_training_alone() -> None:
    assert {run.steps for run in plan(ALL, "paper", steps=7, splits=1)} == {0, 7}
    assert {run.split for run in plan(ALL, "paper", steps=7, splits=1)} == {0}


def test_unknown_suites_and_budgets_are_one_sentence_with_a_suggestion() -> None:
    with pytest.raises(HeadstartError, match="did you mean 'regression-deep'"):
        plan("regresion-deep")
    with pytest.raises(HeadstartError, match="There is no budget 'slow'"):
        plan("regression-deep", "slow")
