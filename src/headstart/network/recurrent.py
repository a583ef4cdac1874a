"""Recurrent modules with layers in their inside: from inputs to gates, and from states to gates.

The weights of a recurrent net are the same at every step of a sequence. So its layers draw their
weights once for each sample of a sequence, also where other layers draw outputs
(`headstart.network.layer.one_draw`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from headstart.errors import HeadstartError
from headstart.network.decomposed import Decomposed, fill_weights_, linear_layer
from headstart.network.layer import one_draw

State = tuple[Tensor, ...]
"""h, (rows, width), and for an LSTM c beside it."""
SEQUENCES: dict[type[nn.Module], str] = {nn.LSTM: "LSTM", nn.GRU: "GRU", nn.RNN: "RNN"}
CELLS: dict[type[nn.Module], str] = {
    nn.LSTMCell: "LSTM",
    nn.GRUCell: "GRU",
    nn.RNNCell: "RNN",
}


def recurrent_step(kind: str, given: Tensor, kept: Tensor, state: State) -> State:
    """The state after one step.

    Args:
        kind: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU".
        given: what the input gives to the gates, (rows, gates · width).
        kept: what the state gives to them.
        state: the state before.

    Example:
        >>> h = torch.zeros(2, 3)
        >>> recurrent_step("RNN_TANH", torch.zeros(2, 3), torch.zeros(2, 3), (h,))[0].shape
        torch.Size([2, 3])
    """
    if kind == "LSTM":
        entry, forget, new, out = (given + kept).chunk(4, -1)
        c = forget.sigmoid() * state[1] + entry.sigmoid() * new.tanh()
        return out.sigmoid() * c.tanh(), c
    if kind == "GRU":
        (reset, update, new), (reset_h, update_h, new_h) = given.chunk(3, -1), kept.chunk(3, -1)
        candidate = (new + (reset + reset_h).sigmoid() * new_h).tanh()
        keep = (update + update_h).sigmoid()
        return ((1 - keep) * candidate + keep * state[0],)
    total = given + kept
    return (total.relu() if kind == "RNN_RELU" else total.tanh(),)


class Recurrent(Decomposed):
    """`nn.LSTM`, `nn.GRU` or `nn.RNN` with its layers apart, called as the stock module is.

    Args:
        stock: the stock module, whose weights are copied.

    Example:
        >>> net = nn.LSTM(3, 5, num_layers=2, bidirectional=True, batch_first=True)
        >>> x = torch.randn(4, 7, 3)
        >>> torch.allclose(Recurrent(net)(x)[0], net(x)[0], atol=1e-6)
        True
    """

    def __init__(self, stock: nn.RNNBase) -> None:
        super().__init__()
        self.kind, self.width, self.inputs = stock.mode, stock.hidden_size, stock.input_size
        self.num_layers, self.bidirectional = stock.num_layers, stock.bidirectional
        self.batch_first, self.dropout = stock.batch_first, stock.dropout
        self.has_bias, self.proj_size = stock.bias, stock.proj_size
        for name in self._names():
            for part, layer in (("ih", f"input_{name}"), ("hh", f"hidden_{name}")):
                bias = getattr(stock, f"bias_{part}_{name}") if stock.bias else None
                setattr(self, layer, linear_layer(getattr(stock, f"weight_{part}_{name}"), bias))
            if stock.proj_size:
                setattr(
                    self, f"proj_{name}", linear_layer(getattr(stock, f"weight_hr_{name}"), None)
                )
        self.train(stock.training)

    def _names(self) -> Iterator[str]:
        """What torch calls the weights of each layer and direction, in its order."""
        directions = ("", "_reverse") if self.bidirectional else ("",)
        for layer, direction in product(range(self.num_layers), directions):
            yield f"l{layer}{direction}"

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
        """The outputs of all steps and the last states, as the stock module gives them.

        Args:
            input: (rows, steps, inputs), or with `batch_first=False` (steps, rows, inputs).
            hx: the first states, zero by default.

        Raises:
            HeadstartError: The sequences are packed, or there is no axis of rows.
        """
        if isinstance(input, PackedSequence):
            raise HeadstartError(
                f"A Bayesian {self.kind} takes sequences as one tensor (rows, steps, inputs), not "
                "packed: pad them, and take each row's output at its own last step."
            )
        if input.ndim != 3:
            raise HeadstartError(
                f"A Bayesian {self.kind} takes (rows, steps, inputs), not a tensor of shape "
                f"{tuple(input.shape)}: add an axis for the rows."
            )
        x = input if self.batch_first else input.transpose(0, 1)
        first = self._first_states(x, hx)
        last: list[State] = []
        with one_draw(self.children()):
            for number, names in enumerate(_by_layer(list(self._names()), self.num_layers)):
                if number > 0:
                    x = F.dropout(x, self.dropout, self.training)
                runs = [self._run(name, x, first[len(last) + i]) for i, name in enumerate(names)]
                x = torch.cat([outputs for outputs, _ in runs], dim=-1)
                last += [state for _, state in runs]
        states = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
        return x if self.batch_first else x.transpose(0, 1), states if len(states) > 1 else states[
            0
        ]

    def _first_states(self, x: Tensor, hx: Any) -> list[State]:
        """The first state of each layer and direction."""
        count = self.num_layers * (1 + self.bidirectional)
        if hx is None:
            widths = [self.proj_size or self.width, self.width]
            zeros = [x.new_zeros(count, x.shape[0], width) for width in widths]
            hx = tuple(zeros) if self.kind == "LSTM" else zeros[0]
        parts = hx if self.kind == "LSTM" else (hx,)
        return list(zip(*(part.unbind(0) for part in parts), strict=True))

    def _run(self, name: str, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One layer in one direction: the outputs of all steps, and the last state."""
        steps = getattr(self, f"input_{name}")(x).unbind(1)
        hidden, outputs = getattr(self, f"hidden_{name}"), []
        backward = name.endswith("_reverse")
        for given in reversed(steps) if backward else steps:
            state = recurrent_step(self.kind, given, hidden(state[0]), state)
            if self.proj_size:
                state = (getattr(self, f"proj_{name}")(state[0]), *state[1:])
            outputs.append(state[0])
        return torch.stack(outputs[::-1] if backward else outputs, dim=1), state

    def stock(self) -> nn.RNNBase:
        """The stock module with the weights that the layers have now."""
        kind = self.kind.partition("_")[0]
        options: dict[str, Any] = {"nonlinearity": self.kind[4:].lower()} if kind == "RNN" else {}
        if self.proj_size:
            options["proj_size"] = self.proj_size
        made: nn.RNNBase = getattr(nn, kind)(
            self.inputs,
            self.width,
            self.num_layers,
            bias=self.has_bias,
            batch_first=self.batch_first,
            dropout=self.dropout,
            bidirectional=self.bidirectional,
            device="meta",
            **options,
        )
        for name in self._names():
            given, kept = getattr(self, f"input_{name}"), getattr(self, f"hidden_{name}")
            weights = {f"weight_ih_{name}": given.weight, f"weight_hh_{name}": kept.weight}
            weights |= {f"bias_ih_{name}": given.bias, f"bias_hh_{name}": kept.bias}
            if self.proj_size:
                weights[f"weight_hr_{name}"] = getattr(self, f"proj_{name}").weight
            fill_weights_(made, weights)
        return made.train(self.training)

    def extra_repr(self) -> str:
        return f"{self.kind}, {self.inputs}, {self.width}"


def _by_layer(names: list[str], layers: int) -> Iterator[list[str]]:
    each = len(names) // layers
    for start in range(0, len(names), each):
        yield names[start : start + each]


class RecurrentCell(Decomposed):
    """`nn.LSTMCell`, `nn.GRUCell` or `nn.RNNCell` with its two layers apart.

    Args:
        stock: the stock module, whose weights are copied.

    Example:
        >>> cell, x, h = nn.GRUCell(3, 5), torch.randn(4, 3), torch.randn(4, 5)
        >>> torch.allclose(RecurrentCell(cell)(x, h), cell(x, h), atol=1e-6)
        True
    """

    def __init__(self, stock: nn.RNNCellBase) -> None:
        super().__init__()
        self.kind, self.width, self.inputs = (
            CELLS[type(stock)],
            stock.hidden_size,
            stock.input_size,
        )
        if self.kind == "RNN":
            self.kind = f"RNN_{stock.nonlinearity.upper()}"  # type: ignore[union-attr,operator]
        self.input = linear_layer(stock.weight_ih, stock.bias_ih)
        self.hidden = linear_layer(stock.weight_hh, stock.bias_hh)
        self.train(stock.training)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """The state after one step, as the stock module gives it.

        Args:
            input: (rows, inputs).
            hx: the state before, zero by default.

        Raises:
            HeadstartError: There is no axis of rows.
        """
        if input.ndim != 2:
            raise HeadstartError(
                f"A Bayesian {self.kind} cell takes (rows, inputs), not a tensor of shape "
                f"{tuple(input.shape)}."
            )
        if hx is None:
            zero = input.new_zeros(input.shape[0], self.width)
            hx = (zero, zero) if self.kind == "LSTM" else zero
        state = hx if self.kind == "LSTM" else (hx,)
        found = recurrent_step(self.kind, self.input(input), self.hidden(state[0]), state)
        return found if self.kind == "LSTM" else found[0]

    def stock(self) -> nn.RNNCellBase:
        """The stock module with the weights that the layers have now."""
        kind, _, bent = self.kind.partition("_")
        options = {"nonlinearity": bent.lower()} if bent else {}
        made: nn.RNNCellBase = getattr(nn, f"{kind}Cell")(
            self.inputs, self.width, bias=self.input.bias is not None, device="meta", **options
        )
        fill_weights_(made, {"weight_ih": self.input.weight, "weight_hh": self.hidden.weight})
        fill_weights_(made, {"bias_ih": self.input.bias, "bias_hh": self.hidden.bias})
        return made.train(self.training)

    def extra_repr(self) -> str:
        return f"{self.kind}, {self.inputs}, {self.width}"
