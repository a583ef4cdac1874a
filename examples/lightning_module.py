"""headstart under Lightning's Trainer. Lightning is not a dependency: pip install lightning."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import headstart as hs

try:
    import lightning as L
except ImportError:
    raise SystemExit(
        "This example needs Lightning, which headstart does not depend on: pip install lightning"
    ) from None


class BayesianModule(L.LightningModule):
    def __init__(self, model, likelihood, num_data, lr=1e-3, samples=16):
        super().__init__()
        self.model, self.likelihood = model, likelihood
        self.num_data, self.lr, self.samples = num_data, lr, samples

    def training_step(self, batch, index):
        loss = hs.nelbo(
            self.model, self.likelihood, *batch, num_data=self.num_data, samples=self.samples
        )
        self.log_dict({"nelbo": loss.value, "nll": loss.nll, "kl": loss.kl})
        return loss.value

    def validation_step(self, batch, index):
        x, y = batch
        log_prob = hs.predict(self.model, self.likelihood, x, samples=32).log_prob(y)
        self.log("val_mnll", -log_prob.mean(), batch_size=len(x))

    def configure_optimizers(self):
        groups = [
            {"params": self.model.parameters()},
            {"params": self.likelihood.parameters(), "lr": 10 * self.lr},
        ]
        return torch.optim.Adam(groups, lr=self.lr)


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(1000, 4)
    y = x[:, :1].sin() + 0.1 * torch.randn(1000, 1)
    train, held_out = TensorDataset(x[:800], y[:800]), TensorDataset(x[800:], y[800:])

    net = nn.Sequential(nn.Linear(4, 50), nn.ReLU(), nn.Linear(50, 1))
    module = BayesianModule(hs.bayesianize(net), hs.Gaussian(), num_data=len(train), lr=3e-3)
    loader, validation = (
        DataLoader(train, batch_size=100, shuffle=True),
        DataLoader(held_out, batch_size=100),
    )
    # Before the Trainer takes over.
    hs.initialize_(module.model, "iblm", module.likelihood, train.tensors)

    trainer = L.Trainer(max_epochs=10, accelerator="cpu", logger=False, enable_checkpointing=False)
    print("before", trainer.validate(module, validation, verbose=False))
    trainer.fit(module, loader, validation)
    print("after ", {name: float(value) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
