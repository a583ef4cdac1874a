"""Your own training loop: a DataLoader, an optimizer, a schedule, and the NELBO as the loss."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import headstart as hs

EPOCHS, LR, WARM_UP = 20, 1e-2, 100


def main() -> None:
    torch.manual_seed(0)
    x = 2 * torch.randn(2000, 1)
    y = x.sin() + 0.2 * torch.randn(2000, 1)
    train, held_out = TensorDataset(x[:1600], y[:1600]), (x[1600:], y[1600:])
    loader = DataLoader(train, batch_size=100, shuffle=True)

    net = nn.Sequential(nn.Linear(1, 50), nn.ReLU(), nn.Linear(50, 1))
    model, lik = hs.bayesianize(net), hs.Gaussian()
    # The loader would do, too; tensors are faster.
    print(hs.initialize_(model, "iblm", lik, train.tensors))

    groups = [{"params": model.parameters()}, {"params": lik.parameters(), "lr": 10 * LR}]
    # No weight decay: that is the prior's part.
    optimizer = torch.optim.Adam(groups, lr=LR)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    step = 0
    for epoch in range(1, EPOCHS + 1):
        for x_batch, y_batch in loader:
            step += 1
            loss = hs.nelbo(
                model,
                lik,
                x_batch,
                y_batch,
                num_data=len(train),
                samples=8,
                kl_weight=min(1.0, step / WARM_UP),
            )
            optimizer.zero_grad()
            loss.value.backward()
            optimizer.step()
            schedule.step()
        if epoch % 5 == 0:
            scores = hs.evaluate(model, lik, held_out, samples=32, seed=0)
            print(
                f"epoch {epoch:2d}  KL {loss.kl.item():.0f}  "
                + "  ".join(f"{k} {v:.3f}" for k, v in scores.items())
            )

    pred = hs.predict(model, lik, torch.tensor([[0.0], [3.0], [15.0]]), seed=0)
    print("x = 0, 3 and 15, far from the data")
    print("mean          ", [round(v, 2) for v in pred.mean.flatten().tolist()])
    print("epistemic std ", [round(v, 2) for v in pred.epistemic_std.flatten().tolist()])
    print("noise sd        true 0.2, learned", round(lik.noise_var.sqrt().item(), 2))


if __name__ == "__main__":
    main()
