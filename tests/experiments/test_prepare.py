"""How rows are chosen and scaled, and how images reach the model."""

from __future__ import annotations

import torch

from headstart import data
from headstart.batching import Batches
from headstart.experiments.prepare import evenly_spaced, prepare
from headstart.experiments.spec import Run


def test_thinned_rows_are_evenly_spaced() -> None:
    chosen = evenly_spaced(10_000, 300)
    assert len(chosen.unique()) == 300
    assert {int(step) for step in chosen.diff()} == {33, 34}


def test_images_stay_bytes_and_give_the_batches_that_floats_would() -> None:
    pictures, labels = (
        torch.randint(256, (1300, 1, 6, 6), dtype=torch.uint8),
        torch.arange(1300) % 10,
    )
    names = tuple("0123456789")
    images = data.Dataset(
        "mnist",
        "noise",
        "classification",
        pictures[:1200],
        labels[:1200],
        (pictures[1200:], labels[1200:]),
        (),
        "",
        names,
    )
    parts = prepare(Run("mnist", "lenet", "iblm"), images, targets=False)
    scaled, _ = data.standardize(data.split(images, 0), targets=False)
    torch.manual_seed(0)
    x, y = next(iter(Batches(parts.train)))
    torch.manual_seed(0)
    x_float, y_float = next(iter(Batches((scaled.x_train, scaled.y_train))))
    torch.testing.assert_close(x, x_float, rtol=0, atol=0)
    assert torch.equal(y, y_float)
    assert parts.train.x.dtype == torch.uint8
    assert torch.equal(parts.first[0], scaled.x_train[:1024])
    assert torch.equal(parts.x_test, scaled.x_test)
