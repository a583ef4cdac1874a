"""Batches as users have them: tensors, tuples and dictionaries, in every call."""

from __future__ import annotations

import gc
import weakref
from collections import UserDict
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import headstart as hs
from headstart.network.inputs import as_tensors, fitted, read_batch, read_inputs
from headstart.network.placement import Placement

ROWS = 60
DENSE = ["body", "head"]
pytestmark = pytest.mark.filterwarnings("ignore:These stay deterministic")


class TwoInputs(nn.Module):
    """Real numbers and words, of which some are masked."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.body, self.head = nn.Linear(3 + 4, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        words = self.words(ids)
        if mask is not None:
            words = words * mask.unsqueeze(-1)
        return self.head(self.body(torch.cat([x, words.mean(1)], 1)).relu())


class OneDictionary(TwoInputs):
    def forward(self, batch: dict[str, Tensor]) -> Tensor:  # type: ignore[override]
        return super().forward(batch["x"], batch["ids"], batch["mask"])


class Items(Dataset):  # type: ignore[type-arg]
    """Rows as dictionaries, which the default collate makes batches of."""

    def __init__(self, columns: dict[str, Tensor]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["labels"])

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


def columns() -> dict[str, Tensor]:
    torch.manual_seed(0)
    x, ids = torch.randn(ROWS, 3), torch.randint(7, (ROWS, 5))
    mask = (torch.rand(ROWS, 5) < 0.7).long()
    return {"x": x, "ids": ids, "mask": mask, "labels": x.sum(1) + 0.3 * ids[:, 0]}


def rest(data: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: part for name, part in data.items() if name != "labels"}


def kinds() -> dict[str, Any]:
    data = columns()
    x, y = rest(data), data["labels"]
    halves = [
        {name: part[rows] for name, part in data.items()} for rows in (slice(30), slice(30, 60))
    ]
    return {
        "dictionary": data,
        "pair": (x, y),
        "tuple of inputs": (tuple(x.values()), y),
        "loader of dictionaries": DataLoader(Items(data), batch_size=20),
        "loader of lists": DataLoader(
            list(zip(zip(*x.values(), strict=True), y, strict=True)), batch_size=20
        ),
        "batches": halves,
        "user dictionaries": [UserDict(half) for half in halves],
        "collated": hs.Collated(
            DataLoader(TensorDataset(*data.values()), batch_size=20),
            lambda batch: (tuple(batch[:-1]), batch[-1]),
        ),
    }


@pytest.mark.parametrize("kind", list(kinds()))
@pytest.mark.parametrize("net", [TwoInputs, OneDictionary])
def test_every_kind_of_batch_goes_through_every_call(kind: str, net: type[nn.Module]) -> None:
    by_position = kind in ("tuple of inputs", "loader of lists", "collated")
    if net is OneDictionary and by_position:
        pytest.skip("a tuple has no names")
    torch.manual_seed(1)
    model, lik, data = hs.bayesianize(net(), where=DENSE), hs.Gaussian(), kinds()[kind]
    report = hs.initialize_(model, "iblm", lik, data)
    assert report.expected_nll is not None
    start = hs.evaluate(model, lik, data, samples=32, seed=0)
    spread = float(columns()["labels"].std())
    assert start["rmse"] < spread
    assert len(list(hs.steps(model, lik, data, steps=2, batch_size=20))) == 2
    hs.fit(model, lik, data, steps=20, batch_size=20, progress=False, seed=0, validation=data)
    score = hs.evaluate(model, lik, data, samples=32, seed=0)
    assert score["mnll"] <= start["mnll"] + 0.05
    whole = columns()
    x = tuple(rest(whole).values()) if by_position else rest(whole)
    pred = hs.predict(model, lik, x, samples=8, seed=0)
    assert pred.mean.shape == (ROWS, 1)
    loss = hs.nelbo(model, lik, x, whole["labels"], num_data=ROWS)
    assert torch.isfinite(loss.value)


def test_the_batch_says_what_the_separate_tensors_say() -> None:
    model, lik, data = hs.bayesianize(TwoInputs(), where=DENSE), hs.Gaussian(), columns()
    pred = hs.predict(model, lik, rest(data), samples=4, seed=0)
    loader = DataLoader(Items(data), batch_size=25)
    assert torch.equal(pred.draws, hs.predict(model, lik, loader, samples=4, seed=0).draws)
    torch.manual_seed(0)
    one = hs.nelbo(model, lik, rest(data), data["labels"], num_data=ROWS)
    torch.manual_seed(0)
    assert torch.equal(one.value, hs.nelbo(model, lik, data, num_data=ROWS).value)


def test_each_sample_and_row_is_that_of_the_mean_network() -> None:
    net = TwoInputs()
    model, data = hs.bayesianize(net, where=DENSE), rest(columns())
    for layer in hs.bayesian_layers(model).values():
        layer.posterior.logvar.data.fill_(-60.0)
    for sampler in ("local", "weights", "mean"):
        draws = hs.draw(model, data, samples=3, sampler=sampler)
        torch.testing.assert_close(draws, net(**data).expand(len(draws), -1, -1))


def test_whole_numbers_stay_so_among_several_tensors() -> None:
    seen: dict[str, torch.dtype] = {}

    class Seeing(TwoInputs):
        def forward(self, x: Tensor, ids: Tensor, mask: Tensor | None = None) -> Tensor:
            seen.update(x=x.dtype, ids=ids.dtype)
            return super().forward(x, ids, mask)

    model = hs.bayesianize(Seeing().double(), where=DENSE)
    hs.predict(model, hs.Gaussian(), rest(columns()), samples=2)
    assert seen == {"x": torch.float64, "ids": torch.int64}


def test_a_loader_of_inputs_alone_predicts() -> None:
    model, x = hs.bayesianize(nn.Linear(3, 2)), torch.randn(9, 3)
    want = hs.predict(model, hs.Gaussian(), x, samples=4, seed=0).draws
    for data in (x, torch.zeros(9, 1)), (x,):
        loader = DataLoader(TensorDataset(*data), batch_size=4)
        assert torch.equal(hs.predict(model, hs.Gaussian(), loader, samples=4, seed=0).draws, want)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: read_batch({"x": torch.zeros(2, 1)}), "a dictionary without labels"),
        (lambda: read_batch((1, 2, 3)), r"not a pair \(x, y\) but a tuple of 3; name what makes"),
        (lambda: as_tensors((torch.zeros(3, 1), torch.zeros(2, 1))), r"3 in x\[0\], 2 in x\[1\]"),
        (
            lambda: fitted(as_tensors({"a": [[1.0]], "c": [[1.0]]}), nn.Bilinear(1, 1, 1)),
            r"Bilinear.forward takes .* the inputs \(a, c\) lack 'input1', 'input2' and have",
        ),
        (lambda: read_batch({"x": "text", "labels": [1]}), r"x\['x'\] must hold numbers"),
        (
            lambda: hs.predict(
                hs.bayesianize(nn.Linear(2, 1)),
                hs.Gaussian(),
                {"input": torch.full((2, 2), torch.nan)},
            ),
            r"x\['input'\] holds nan",
        ),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        call()


def test_labels_are_left_aside_for_prediction() -> None:
    x = read_inputs({"input_ids": torch.zeros(2, 3), "labels": torch.zeros(2)})
    assert x.keys == ["input_ids"]  # type: ignore[union-attr]


def test_nobody_remembers_a_net_whose_forward_was_replaced() -> None:
    net = nn.Linear(3, 2)
    net.forward = partial(nn.Linear.forward, net)  # type: ignore[method-assign]
    assert Placement(net).takes_tensor
    alive = weakref.ref(net)
    del net
    gc.collect()
    assert alive() is None
