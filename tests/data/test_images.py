"""Images stay bytes until their batch; flips and shifts are what they say."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import headstart as hs
from headstart.batching import Batches
from headstart.data import Images, Split, standardize

X = torch.randint(256, (50, 3, 6, 5), dtype=torch.uint8)
Y = torch.arange(50)
SCALED, SCALING = standardize(Split(X, Y, X, Y), targets=False)


def test_the_same_batches_as_of_scaled_floats() -> None:
    torch.manual_seed(3)
    lazily = list(Images(X, Y, SCALING, batch_size=16))
    torch.manual_seed(3)
    eagerly = list(Batches((SCALED.x_train, Y), batch_size=16))
    assert [len(x) for x, _ in lazily] == [16, 16, 16, 2]
    for (x, y), (a, b) in zip(lazily, eagerly, strict=True):
        assert torch.equal(x, a)
        assert torch.equal(y, b)


def test_flips_and_shifts_are_found_among_all_possible_ones() -> None:
    torch.manual_seed(0)
    kinds = set()
    for x, y in Images(X, Y, SCALING, batch_size=25, flip=True, shift=2):
        for image, label in zip(x, y, strict=True):
            source = SCALED.x_train[label]
            possible = {
                (flip, down, right): F.pad(source.flip(-1) if flip else source, [2] * 4)[
                    :, down : down + 6, right : right + 5
                ]
                for flip in (False, True)
                for down in range(5)
                for right in range(5)
            }
            found = [kind for kind, candidate in possible.items() if torch.equal(candidate, image)]
            assert found
            kinds.add(found[0])
    # Fifty images have one of fifty kinds each.
    assert len(kinds) > 20


@pytest.mark.slow
def test_they_train_a_net() -> None:
    images = Images(X, Y % 2, SCALING, batch_size=16, flip=True)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(48, 2)
    )
    model, lik = hs.bayesianize(net), hs.Categorical(2)
    report = hs.initialize_(model, "iblm", lik, images)
    assert report.expected_nll is not None
    history = hs.fit(model, lik, images, steps=5, samples=2, progress=False)
    assert len(history.steps) == 5
    assert Batches(images).num_data == 50


@pytest.mark.parametrize(
    ("x", "options", "word"),
    [
        (X.float(), {}, "bytes"),
        (X[:9], {}, "as many"),
        (X, {"shift": 5}, "shift"),
        (X, {"batch_size": 0}, "batch_size"),
    ],
)
def test_what_cannot_be_is_refused(x: torch.Tensor, options: dict[str, int], word: str) -> None:
    with pytest.raises(hs.HeadstartError, match=word):
        Images(x, Y, SCALING, **options)
