"""Hugging Face's models, in tiny configurations, from their own batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

import headstart as hs

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ROWS, WORDS = 64, 12
SIZES = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def words() -> dict[str, Tensor]:
    ids, mask = torch.randint(5, 50, (ROWS, WORDS)), torch.ones(ROWS, WORDS, dtype=torch.long)
    mask[: ROWS // 2, 9:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def bert(**options: Any) -> Any:
    return transformers.BertConfig(
        vocab_size=50, hidden_size=16, max_position_embeddings=16, **SIZES, **options
    )


def sentences() -> tuple[Any, hs.Likelihood, dict[str, Tensor]]:
    batch = words()
    net = transformers.BertForSequenceClassification(bert(num_labels=2))
    return net, hs.Categorical(2), {**batch, "labels": (batch["input_ids"][:, 1] > 25).long()}


def tokens() -> tuple[Any, hs.Likelihood, dict[str, Tensor]]:
    batch = words()
    labels = (batch["input_ids"] > 25).long()
    labels[batch["attention_mask"] == 0] = -100
    net = transformers.BertForTokenClassification(bert(num_labels=2))
    lik = hs.PerPosition(hs.Categorical(2, ignore_index=-100))
    return net, lik, {**batch, "labels": labels}


def images() -> tuple[Any, hs.Likelihood, dict[str, Tensor]]:
    config = transformers.ViTConfig(
        hidden_size=16, image_size=8, patch_size=4, num_channels=1, num_labels=2, **SIZES
    )
    x = torch.randn(ROWS, 1, 8, 8)
    labels = (x[:, 0, :4, :4].sum((1, 2)) > 0).long()
    net = transformers.ViTForImageClassification(config)
    return net, hs.Categorical(2), {"pixel_values": x, "labels": labels}


def tied_words() -> tuple[Any, hs.Likelihood, dict[str, Tensor]]:
    return next_words(tied=True)


def next_words(tied: bool = False) -> tuple[Any, hs.Likelihood, dict[str, Tensor]]:
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2, tie_word_embeddings=tied
    )
    # The next word is the same again, mostly.
    ids = torch.randint(50, (ROWS, 1)).expand(-1, WORDS).clone()
    labels = torch.cat([ids[:, 1:], torch.full((ROWS, 1), -100)], 1)
    lik = hs.PerPosition(hs.Categorical(50, ignore_index=-100))
    return transformers.GPT2LMHeadModel(config), lik, {"input_ids": ids, "labels": labels}


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self, columns: dict[str, Tensor]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


@pytest.mark.parametrize("make", [sentences, tokens, images, next_words, tied_words])
def test_a_model_starts_trains_and_predicts_from_its_own_batches(make: Any) -> None:
    torch.manual_seed(0)
    net, lik, data = make()
    model, loader = hs.bayesianize(net), DataLoader(Rows(data), batch_size=16, shuffle=True)
    hs.initialize_(model, "iblm", lik, loader)
    start = hs.evaluate(model, lik, loader, samples=16, seed=0)
    classes = 50 if make in (next_words, tied_words) else 2
    assert ("lm_head" in hs.bayesian_layers(model)) == (make is next_words)
    assert start["mnll"] < torch.tensor(float(classes)).log() + 0.02
    hs.fit(model, lik, loader, steps=40, samples=4, progress=False, seed=0)
    trained = hs.evaluate(model, lik, loader, samples=16, seed=0)
    assert trained["mnll"] < start["mnll"] + 0.02
    x = {name: part for name, part in data.items() if name != "labels"}
    pred = hs.predict(model, lik, x, samples=4, seed=0)
    assert pred.probs.shape[0] == ROWS
    assert pred.probs.shape[-1] == classes
    with hs.drawing(model, "mean"):
        model.eval()
        want = model(**x).logits.softmax(-1)
    mean = hs.predict(model, lik, x, samples=1, sampler="mean")
    torch.testing.assert_close(mean.probs, want)
