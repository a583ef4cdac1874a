"""A net that cannot take its inputs: which layer refused what, in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs

ROWS, WORDS, KNOWN = 8, 3, 10


class _Two(nn.Module):
    """Two inputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 4), nn.Linear(2, 4)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        out: Tensor = self.left(left) + self.right(right)
        return out


class _OfDictionary(_Two):
    """The same of one dictionary."""

    def forward(self, x: dict[str, Tensor]) -> Tensor:  # type: ignore[override]
        return super().forward(x["left"], x["right"])


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.out = nn.GRU(4, 6, batch_first=True), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.cells(x)[0][:, -1])
        return out


def _calls(model: nn.Module, x: Any, outputs: int = 2) -> dict[str, Callable[[], object]]:
    """What a user may do with a net and inputs."""
    lik, y = hs.Gaussian(), torch.randn(ROWS, outputs)
    return {
        "predict": lambda: hs.predict(model, lik, x, samples=2),
        "fit": lambda: hs.fit(model, lik, (x, y), steps=1, progress=False),
        "nelbo": lambda: hs.nelbo(model, lik, x, y, num_data=ROWS),
        "initialize_": lambda: hs.initialize_(model, "iblm", lik, (x, y)),
    }


WAYS = ("predict", "fit", "nelbo", "initialize_")


@pytest.mark.parametrize("call", WAYS)
@pytest.mark.parametrize("where", [None, "last"])
@pytest.mark.parametrize("index", [12, -1])
@pytest.mark.parametrize("known", [False, True])
def test_an_unknown_index_names_the_table(
    call: str, where: str | None, index: int, known: bool
) -> None:
    # Also after a batch that could be taken, and in a row that no probe looks at.
    net = nn.Sequential(nn.Embedding(KNOWN, 4), nn.Flatten(), nn.Linear(4 * WORDS, 2))
    model, x = hs.bayesianize(net, where=where), torch.randint(0, KNOWN, (ROWS, WORDS))
    if known:
        hs.predict(model, hs.Gaussian(), x, samples=2)
    x[6, 1] = index
    wanted = rf"layer '0' \(Embedding\) is a table of 10 rows, 0 to 9, and is given .* {index};"
    with pytest.raises(hs.HeadstartError, match=wanted):
        _calls(model, x)[call]()


@pytest.mark.parametrize("call", WAYS)
@pytest.mark.parametrize("where", [None, "last"])
@pytest.mark.parametrize(
    ("net", "shape", "wanted"),
    [
        (
            nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2)),
            (3,),
            r"\(rows, 3\): layer '0' \(Linear\) takes 4 features and is given 3;",
        ),
        (
            nn.Sequential(nn.Linear(4, 5), nn.Linear(6, 2)),
            (4,),
            r"layer '1' \(Linear\) takes 6 features and is given 5;",
        ),
        (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 2)),
            (1, 6, 6),
            r"layer '0' \(Conv2d\) takes 3 channels and is given 1;",
        ),
        (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 2)),
            (3, 7, 7),
            r"layer '2' \(Linear\) takes 64 features and is given 100;",
        ),
        (_Recurrent(), (5, 3), r"takes? 4.* 3"),
        (
            nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2)),
            (3,),
            r"layer '0' \(LayerNorm\) says: Given normalized_shape",
        ),
    ],
    ids=["first", "second", "channels", "image size", "recurrent", "torch's words"],
)
def test_a_width_names_the_layer(
    call: str, where: str | None, net: nn.Module, shape: tuple[int, ...], wanted: str
) -> None:
    model = hs.bayesianize(net, where=where)
    with pytest.raises(hs.HeadstartError, match=wanted):
        _calls(model, torch.randn(ROWS, *shape))[call]()


@pytest.mark.parametrize("call", ["predict", "fit", "initialize_"])
def test_a_missing_input_is_named(call: str) -> None:
    left, right = torch.randn(ROWS, 3), torch.randn(ROWS, 2)
    for x, wanted in (
        ({"left": left}, r"takes \(left, right\), and the inputs \(left\) lack 'right':"),
        ((left,), r"the inputs \(0\) lack 'right':"),
        ({"left": left, "write": right}, r"\(left, write\) lack 'right' and have 'write' besides:"),
    ):
        with pytest.raises(hs.HeadstartError, match=wanted):
            _calls(hs.bayesianize(_Two()), x, 4)[call]()


@pytest.mark.parametrize("call", ["predict", "fit", "initialize_"])
def test_a_missing_key_is_named(call: str) -> None:
    left = torch.randn(ROWS, 3)
    asked = r"_OfDictionary.forward asks for 'right', which is not among left, more\."
    with pytest.raises(hs.HeadstartError, match=asked):
        _calls(hs.bayesianize(_OfDictionary()), {"left": left, "more": left}, 4)[call]()
    # A dictionary of one tensor is that tensor to most nets.
    with pytest.raises(hs.HeadstartError, match="where it takes a dictionary, pass all of its"):
        _calls(hs.bayesianize(_OfDictionary()), {"left": left}, 4)[call]()


def test_an_error_of_the_net_itself_stays_what_it_is() -> None:
    class Moody(nn.Module):
        def forward(self, input: Tensor) -> Tensor:
            if len(input) == ROWS:
                raise KeyError("a key of its own")
            return input

    model = hs.bayesianize(nn.Sequential(Moody(), nn.Linear(3, 2)))
    with pytest.raises(KeyError, match="a key of its own"):
        hs.predict(model, hs.Gaussian(), torch.randn(ROWS, 3))


class _Patches(nn.Module):
    """A net whose setting has the name of one of torch's, and is no width of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_dim, self.embed, self.out = 6, nn.Linear(4, 6), nn.Linear(6, 2)
        self.position = nn.Parameter(torch.zeros(7, 6))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out((self.embed(x) + self.position).mean(1))
        return out


class _Block(nn.Module):
    """A block that calls one of its parts `op`, which does not see the block's input."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.op = nn.Linear(3, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.op(self.before(x)) + x
        return out


class _Steps(nn.Module):
    """A net that takes the first step of three axes."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(x[:, :, 0])
        return out


@pytest.mark.parametrize(
    ("net", "shape", "wanted"),
    [
        (_Patches(), (5, 4), r"\(rows, 5, 4\): The size of tensor a \(5\) must match"),
        (nn.Sequential(_Block(), nn.Linear(4, 2)), (3,), r"layer '0' \(_Block\) says: The size"),
        (_Steps(), (3,), r"too many indices for tensor of dimension 2"),
    ],
    ids=["net", "block", "axes"],
)
@pytest.mark.filterwarnings("ignore:These stay deterministic")
def test_settings_of_ones_own_modules_are_no_reason(
    net: nn.Module, shape: tuple[int, ...], wanted: str
) -> None:
    model = hs.bayesianize(net, where="last")
    with pytest.raises(hs.HeadstartError, match=wanted):
        hs.predict(model, hs.Gaussian(), torch.randn(ROWS, *shape), samples=2)
