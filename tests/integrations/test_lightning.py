"""The module for Lightning's Trainer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import headstart as hs

L = pytest.importorskip("lightning")
# Advice about workers, deprecations: not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")


def problem() -> tuple[nn.Module, hs.Likelihood, Tensor, Tensor]:
    x = torch.randn(300, 4)
    y = x[:, :1].sin() + 0.1 * torch.randn(300, 1)
    model = hs.bayesianize(nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 1)))
    lik = hs.Gaussian()
    hs.initialize_(model, "iblm", lik, (x[:200], y[:200]), seed=0)
    return model, lik, x, y


def trainer(epochs: int = 5, **options: Any) -> Any:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    quiet |= {"enable_checkpointing": False, "accelerator": "cpu"}
    return L.Trainer(max_epochs=epochs, **quiet, **options)


def test_the_trainer_trains_validates_and_predicts() -> None:
    model, lik, x, y = problem()
    module = hs.integrations.BayesianModule(model, lik, num_data=200, lr=3e-3)
    rows, held_out = TensorDataset(x[:200], y[:200]), TensorDataset(x[200:], y[200:])
    validation = DataLoader(held_out, batch_size=50)
    training = trainer()
    (before,) = training.validate(module, validation, verbose=False)
    training.fit(module, DataLoader(rows, batch_size=50, shuffle=True), validation)
    assert float(training.callback_metrics["val_mnll"]) < before["val_mnll"]
    assert {"nelbo", "nll", "kl"} <= training.callback_metrics.keys()
    draws = torch.cat(training.predict(module, validation), 1)
    pred = hs.Predictive(draws, lik)
    assert pred.std.shape == (100, 1)
    assert pred.evaluate(y[200:])["rmse"] < 0.3


def test_a_step_is_the_nelbo_of_a_row() -> None:
    model, lik, x, y = problem()
    module = hs.integrations.BayesianModule(model, lik, num_data=200, samples=4)
    module.log_dict = lambda values: None
    torch.manual_seed(1)
    loss = module.training_step((x[:50], y[:50]), 0)
    torch.manual_seed(1)
    whole = hs.nelbo(model, lik, x[:50], y[:50], num_data=200, samples=4).value
    torch.testing.assert_close(loss, whole / 200)


def test_training_begins_with_the_noise_of_the_bound() -> None:
    """A ratio for predictions alone was found for the posterior that is about to change."""
    model, lik, x, y = problem()
    lik.scale_predictive_noise_(3.0)
    module = hs.integrations.BayesianModule(model, lik, num_data=200)
    trainer(1).fit(module, DataLoader(TensorDataset(x[:200], y[:200]), batch_size=100))
    assert not lik.has_predictive_noise


def test_the_validation_score_is_that_of_evaluate() -> None:
    model, lik, x, y = problem()
    module = hs.integrations.BayesianModule(model, lik, num_data=200, predict_samples=64)
    loader = DataLoader(TensorDataset(x[200:], y[200:]), batch_size=100)
    torch.manual_seed(2)
    (found,) = trainer().validate(module, loader, verbose=False)
    wanted = hs.evaluate(model, lik, (x[200:], y[200:]), samples=1024, seed=0)["mnll"]
    assert found["val_mnll"] == pytest.approx(wanted, abs=0.05)


def test_dictionaries_are_batches_and_the_optimizer_may_be_another() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, features: Tensor) -> Any:
            return self.linear(features)

    rows = [{"features": torch.randn(4), "labels": torch.tensor(i % 2)} for i in range(40)]
    model, lik = hs.bayesianize(Net()), hs.Categorical(2)
    module = hs.integrations.BayesianModule(
        model, lik, num_data=40, lr=0.1, optimizer=torch.optim.SGD
    )
    (groups,) = [module.configure_optimizers().param_groups]
    # A categorical likelihood has nothing to learn.
    assert [group["lr"] for group in groups] == [0.1]
    before = [parameter.detach().clone() for parameter in model.parameters()]
    trainer(epochs=1).fit(module, DataLoader(rows, batch_size=20))
    assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_there_must_be_rows() -> None:
    with pytest.raises(hs.HeadstartError, match="num_data is the number of training rows"):
        hs.integrations.BayesianModule(hs.bayesianize(nn.Linear(2, 1)), hs.Gaussian(), num_data=0)
