"""A Bayesian net as a LightningModule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import lightning
import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.likelihoods import Likelihood
from headstart.network.inputs import read_batch, read_inputs
from headstart.objective import nelbo
from headstart.predictive import predict

__all__ = ["BayesianModule"]

NOISE_RATE = 10.0
"""The likelihood has few parameters, which may move faster than the weights."""


@final
class BayesianModule(lightning.LightningModule):  # type: ignore[misc]
    """A Bayesian net and its likelihood, trained by Lightning's Trainer.

    A training step logs `nelbo`, `nll` and `kl`, a validation step `val_mnll`, the mean over rows
    of `−log E_q p(y)`: what to monitor in `EarlyStopping` and `ModelCheckpoint`.
    `Trainer.predict` gives the draws of each batch, of which `hs.Predictive` makes predictions:
    `hs.Predictive(torch.cat(trainer.predict(module, loader), 1), likelihood.for_prediction())`.

    Args:
        model: The Bayesian net; initialize it before the Trainer takes over.
        likelihood: The likelihood of its labels.
        num_data: The number of training rows, not of batches.
        lr: The learning rate of the net; that of the likelihood is ten times as large.
        samples: Draws of the weights for each training step.
        predict_samples: Draws of the weights for validation and predictions.
        optimizer: What makes an optimizer of groups of parameters and of `lr`.

    Raises:
        HeadstartError: There is no training row.

    Example:
        >>> import headstart as hs
        >>> from headstart.integrations import BayesianModule
        >>> x = torch.randn(100, 3)
        >>> model, lik = hs.bayesianize(nn.Linear(3, 1)), hs.Gaussian()
        >>> report = hs.initialize_(model, "iblm", lik, (x, x.sum(1)))
        >>> module = BayesianModule(model, lik, num_data=100)
        >>> hs.Predictive(module.predict_step((x[:5], x[:5].sum(1)), 0), lik).std.shape
        torch.Size([5, 1])
    """

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        num_data: int,
        lr: float = 1e-3,
        samples: int = 8,
        predict_samples: int = 32,
        optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
    ) -> None:
        super().__init__()
        if num_data < 1:
            raise HeadstartError(
                f"num_data is the number of training rows; it cannot be {num_data}."
            )
        self.model, self.likelihood = model, likelihood
        self.num_data, self.lr = num_data, lr
        self.samples, self.predict_samples = samples, predict_samples
        self.optimizer = optimizer

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The NELBO of a batch for each training row: gradients do not grow with the data set.

        Args:
            batch: A pair (x, y), or a dictionary with labels.
            batch_idx: Its number.

        Returns:
            The loss, a scalar with gradients.
        """
        loss = nelbo(
            self.model, self.likelihood, batch, num_data=self.num_data, samples=self.samples
        )
        self.log_dict({"nelbo": loss.value, "nll": loss.nll, "kl": loss.kl})
        return loss.value / self.num_data

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log the mean negative log predictive density of a batch.

        Args:
            batch: A pair (x, y), or a dictionary with labels.
            batch_idx: Its number.
        """
        x, y = read_batch(batch)
        found = predict(self.model, self.likelihood, x, self.predict_samples)
        self.log("val_mnll", -found.log_prob(y).mean(), batch_size=len(x))

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        """Draws of the outputs: Lightning passes tensors on, and refuses a frozen `Predictive`.

        Args:
            batch: Inputs, with or without labels.
            batch_idx: Its number.

        Returns:
            The draws, (S, rows, outputs).
        """
        x = read_inputs(batch, f"Batch {batch_idx}")
        return predict(self.model, self.likelihood, x, self.predict_samples).draws

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimizer, faster for the likelihood.

        Returns:
            The optimizer.
        """
        # It was found for the posterior that is about to change.
        self.likelihood.forget_predictive_noise_()
        groups: list[dict[str, Any]] = [
            {"params": list(self.model.parameters())},
            {"params": list(self.likelihood.parameters()), "lr": NOISE_RATE * self.lr},
        ]
        return self.optimizer([group for group in groups if group["params"]], lr=self.lr)
