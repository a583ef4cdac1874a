"""Bayesian adapters on a frozen body: peft's LoRA, trained as ever, then with its uncertainty.

    pip install peft transformers
    python examples/lora.py

A small BERT learns one task, its body is frozen, and adapters of rank 4 learn another from 64
sentences. The weights of the adapters are the means of a posterior, its covariance comes from the
data (the Laplace approximation), and a few steps of variational inference follow. Nothing is
downloaded: sentences are random words, and their label is a rule.
"""

from __future__ import annotations

from typing import Any

import torch
from peft import LoraConfig, TaskType, get_peft_model
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

import headstart as hs

WORDS, LENGTH, CLASSES = 40, 10, 2
ADAPTERS = "*lora_[AB]*"


def sentences(rows: int, rule: str) -> dict[str, Tensor]:
    """Random words, and whether the first is large, or nearly larger than the second."""
    ids = torch.randint(WORDS, (rows, LENGTH))
    score = ids[:, 0] - WORDS // 2 if rule == "body" else ids[:, 0] - ids[:, 1] // 2
    noise = 5 * torch.randn(rows)
    return {"input_ids": ids, "labels": (score + noise > 0).long()}


def train(net: Any, batch: dict[str, Tensor], steps: int, lr: float) -> None:
    """An ordinary loop: transformers' models compute their loss from labels."""
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=lr)
    net.train()
    for _ in range(steps):
        rows = torch.randint(len(batch["labels"]), (32,))
        loss = net(**{name: part[rows] for name, part in batch.items()}).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()


def plain_nll(net: Any, batch: dict[str, Tensor]) -> float:
    """The NLL of the deterministic net."""
    with torch.no_grad():
        return float(net(**batch).loss)


def main() -> dict[str, float]:
    """Train, and print the NLL of new sentences by each model.

    Returns:
        The NLLs.
    """
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        num_labels=CLASSES,
    )
    body = BertForSequenceClassification(config)
    train(body, sentences(2000, "body"), steps=300, lr=3e-3)

    few, new = sentences(64, "adapter"), sentences(2000, "adapter")
    lora = LoraConfig(TaskType.SEQ_CLS, r=4, lora_alpha=8, target_modules=["query", "value"])
    net = get_peft_model(body, lora)
    train(net, few, steps=300, lr=1e-2)
    found = {"LoRA": plain_nll(net, new)}

    # Only the adapters have a posterior; the body, and peft's copy of the head, stay as they are.
    model, lik = hs.bayesianize(net, where=ADAPTERS, prior="learned"), hs.Categorical(CLASSES)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("posterior" in name)
    hs.initialize_(model, "laplace", lik, few)
    found["Bayesian LoRA, Laplace"] = hs.evaluate(model, lik, new, samples=64, seed=0)["mnll"]
    hs.fit(model, lik, few, steps=200, samples=8, batch_size=32, progress=False, seed=0)
    found["Bayesian LoRA, trained"] = hs.evaluate(model, lik, new, samples=64, seed=0)["mnll"]
    for name, nll in found.items():
        print(f"{name:24s} NLL {nll:.3f}")
    layers = hs.bayesian_layers(model)
    weights = sum(layer.posterior.mean.numel() for layer in layers.values())
    print(
        f"{len(layers)} Bayesian layers, {weights} of {sum(p.numel() for p in model.parameters())}"
    )
    return found


if __name__ == "__main__":
    main()
