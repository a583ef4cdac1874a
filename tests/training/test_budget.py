"""Epochs, callbacks and optimizers of one's own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import headstart as hs
from headstart.batching import Batches
from headstart.inference.optimizers import make_optimizer
from headstart.training.budget import steps_of_epochs

X = torch.randn(50, 3)
DATA = (X, X.sum(1))


def model_of() -> tuple[nn.Module, hs.Gaussian]:
    torch.manual_seed(0)
    return hs.bayesianize(nn.Linear(3, 1)), hs.Gaussian()


class Unsized:
    def __iter__(self) -> Any:
        return iter([DATA])


def test_an_epoch_is_a_pass_over_the_batches() -> None:
    loader = DataLoader(TensorDataset(*DATA), batch_size=20)
    for data, steps in ((DATA, 5), (loader, 3), (hs.Collated(loader, tuple), 3), ([DATA], 1)):
        assert steps_of_epochs(Batches(data, batch_size=10), 1) == steps
        history = hs.fit(*model_of(), data, epochs=2, batch_size=10, progress=False, seed=0)
        assert len(history.steps) == 2 * steps
        assert history.stopped == "all steps done"
    with pytest.raises(hs.HeadstartError, match="this loader does not tell: pass steps="):
        hs.fit(*model_of(), Unsized(), epochs=2, num_data=50, progress=False)


def test_steps_take_epochs_too() -> None:
    assert len(list(hs.steps(*model_of(), DATA, epochs=2, batch_size=25))) == 4
    with pytest.raises(hs.HeadstartError, match="pass one of them"):
        hs.steps(*model_of(), DATA)


def test_epochs_are_as_good_as_steps_for_a_schedule() -> None:
    one = hs.fit(*model_of(), DATA, epochs=3, lr_schedule="cosine", progress=False, seed=0)
    other = hs.fit(*model_of(), DATA, steps=3, lr_schedule="cosine", progress=False, seed=0)
    assert [step.nelbo for step in one.steps] == [step.nelbo for step in other.steps]


def test_callbacks_see_every_step_and_may_end_training() -> None:
    seen: list[tuple[int, int]] = []

    def note(record: hs.Step, history: hs.History) -> None:
        seen.append((record.step, len(history.steps)))

    history = hs.fit(
        *model_of(),
        DATA,
        steps=50,
        callbacks=[lambda record, history: record.step == 7, note],
        validation=DATA,
        progress=False,
        seed=0,
    )
    assert seen == [(step, step) for step in range(1, 8)]
    assert history.stopped == "a callback"
    # The last step is evaluated, so that it may be the best one.
    assert history.validation[-1]["step"] == 7


def test_an_optimizer_of_one_s_own_is_that_of_a_loop_of_one_s_own() -> None:
    make = partial(torch.optim.SGD, lr=1e-4, momentum=0.9)
    model, lik = model_of()
    hs.fit(model, lik, [DATA], steps=4, optimizer=make, progress=False, seed=0)
    other, own = model_of()
    # The few parameters of the likelihood move ten times faster.
    groups = [{"params": other.parameters()}, {"params": own.parameters(), "lr": 1e-3}]
    optimizer = make(groups)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(4):
            optimizer.zero_grad()
            hs.nelbo(other, own, *DATA, num_data=50).value.backward()
            optimizer.step()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two)
    torch.testing.assert_close(lik.noise_var, own.noise_var)


def test_groups_of_the_model_s_own_keep_their_rate() -> None:
    """Weight decay for some of the model's parameters, and a noise that is not learned."""

    def make(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        params = [p for group in groups for p in group["params"]]
        decayed = {"params": params[:1], "weight_decay": 0.1}
        return torch.optim.SGD([decayed, {"params": params[1:]}], lr=1e-4)

    model, _ = model_of()
    fixed = make_optimizer(make, model, hs.Gaussian(learn_noise=False), None)
    assert [group["lr"] for group in fixed.param_groups] == [1e-4] * 2
    learned = make_optimizer(torch.optim.SGD, model, hs.Gaussian(), None)
    assert [group["lr"] for group in learned.param_groups] == [1e-3, pytest.approx(1e-2)]


def test_it_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    options: dict[str, Any] = {"optimizer": torch.optim.NAdam, "progress": False, "seed": 0}
    model, lik = model_of()
    hs.fit(model, lik, DATA, steps=20, every=5, **options)
    again, own = model_of()

    def stop(record: hs.Step, history: hs.History) -> bool:
        return record.step == 10

    folder = {"checkpoint": tmp_path, "every": 5, "steps": 20}
    hs.fit(again, own, DATA, callbacks=[stop], **folder, **options)
    third, its = model_of()
    hs.fit(third, its, DATA, resume=True, **folder, **options)
    for one, two in zip(model.parameters(), third.parameters(), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"steps": 3, "epochs": 2}, "steps=3 and epochs=2 both say when training ends"),
        ({"epochs": -1}, "epochs must be a number, at least 0"),
        ({"steps": 1, "optimizer": torch.optim.SGD, "lr": 0.1}, "leave out lr=0.1"),
        ({"steps": 1, "optimizer": lambda params: params}, "it made a list"),
        ({"steps": 1, "optimizer": torch.optim.LBFGS}, "makes no optimizer of groups"),
        ({"steps": 1, "optimizer": "sgd"}, "There is no optimizer 'sgd'"),
        (
            {"steps": 1, "optimizer": torch.optim.SGD, "inference": "noisy-kfac"},
            "its own optimizer",
        ),
    ],
)
def test_what_does_not_fit_gets_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        hs.fit(*model_of(), DATA, progress=False, **options)
