"""peft's LoRA over a frozen body with Bayesian adapters: the example, as it stands."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import headstart as hs

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
EXAMPLE = Path(__file__).parents[1] / "examples/lora.py"


def test_the_example_runs_and_adapters_know_what_they_do_not_know() -> None:
    found: dict[str, float] = runpy.run_path(str(EXAMPLE))["main"]()
    plain, laplace, trained = found.values()
    assert trained < laplace < plain


def test_only_the_adapters_are_bayesian_and_the_body_stays() -> None:
    torch.manual_seed(0)
    example: dict[str, Any] = runpy.run_path(str(EXAMPLE))
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=10, num_labels=2,
    )  # fmt: skip
    body = transformers.BertForSequenceClassification(config)
    lora = peft.LoraConfig(peft.TaskType.SEQ_CLS, r=2, target_modules=["query"])
    net = peft.get_peft_model(body, lora).eval()
    model, batch = hs.bayesianize(net, where=example["ADAPTERS"]), example["sentences"](32, "body")
    names = list(hs.bayesian_layers(model))
    assert len(names) == 2
    assert all("lora_" in name for name in names)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("posterior" in name)
    before = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    with hs.drawing(model, "mean"):
        x = {"input_ids": batch["input_ids"]}
        torch.testing.assert_close(model(**x).logits, net(**x).logits)
    hs.fit(model, hs.Categorical(2), batch, steps=5, progress=False, seed=0)
    for name, parameter in model.named_parameters():
        if name in before:
            assert torch.equal(parameter, before[name]), name
