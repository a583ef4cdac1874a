"""The paper's experiments by name."""

from __future__ import annotations

import pytest

from headstart import data
from headstart.errors import HeadstartError
from headstart.experiments.catalogue import SUITES
from headstart.experiments.plan import ALL, plan
from headstart.experiments.spec import BUDGETS
from headstart.experiments.variants import INITS, LARGE_NETS, SMALL_NETS
from headstart.initializers import INITIALIZERS
from headstart.initializers.settings import IBLMSettings

PAPERS = [
    name for name, suite in SUITES.items() if suite.paper and len(suite.variants) == len(INITS)
]


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
    # The paper's protocol, but where training itself is compared.
    compares_training = name.startswith(("kept-", "gained-", "far-"))
    compared = {"averaged", "adam"} if compares_training else {"adam"}
    compared = {"averaged"} if name.startswith("far-") else compared
    assert {run.optimizer for run in runs} == compared
    if compares_training:
        return
    if budget == "paper" or SUITES[name].models[0].startswith("mlp"):
        assert {run.samples for run in runs} == {16}


def test_nets_against_dropout_have_the_papers_priors_and_schedules() -> None:
    found = {
        suite: {(run.prior, run.kl_schedule, run.out_of_distribution) for run in plan(suite)}
        for suite in ("lenet-rivals", "alexnet-rivals", "vgg16-rivals")
    }
    assert list(found.values()) == [
        {(1.0, "constant", "notmnist")},
        {("learned", "constant", "")},
        {(1.0, "sigmoid", "")},
    ]
    assert {run.method for run in plan("vgg16-rivals")} == {"svi", "mc-dropout", "noisy-kfac"}


@pytest.mark.parametrize("name", PAPERS)
def test_the_papers_suites_race_all_six_initializers(name: str) -> None:
    runs = plan(name)
    assert {run.init for run in runs} == set(INITS)
    assert {(run.steps, run.label) for run in runs} == {(2000, "")}
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
