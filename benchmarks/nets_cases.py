"""Thirty kinds of nets as their users write them, each with small data of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import headstart as hs

WIDTH, CLASSES, TRAIN, VOCABULARY = 24, 10, 1200, 30


@dataclass(frozen=True)
class Kind:
    """A kind of net.

    Args:
        name: what users call it.
        make: the plain net.
        data: inputs and labels of all rows, and how many of them are to be trained on.
        likelihood: that of the labels.
    """

    name: str
    make: Callable[[], nn.Module]
    data: Callable[[], tuple[Any, Any]]
    likelihood: Callable[[], hs.Likelihood] = lambda: hs.Categorical(CLASSES)
    train: int = TRAIN


def digits() -> tuple[Tensor, Tensor]:
    """Images (rows, 64) between 0 and 1 in random order, and their classes."""
    found = load_digits()
    order = torch.randperm(len(found.target), generator=torch.Generator().manual_seed(0))
    x = torch.as_tensor(found.data, dtype=torch.float32)[order] / 16
    return x, torch.as_tensor(found.target, dtype=torch.long)[order]


def shaped(*shape: int) -> Callable[[], tuple[Tensor, Tensor]]:
    """Digits in another shape."""

    def make() -> tuple[Tensor, Tensor]:
        x, y = digits()
        return x.reshape(len(x), *shape), y

    return make


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tokens() -> tuple[Tensor, Tensor]:
    """Sentences of ten tokens, 0 for padding; the class is the third that their sum falls in."""
    x = torch.randint(1, VOCABULARY, (2000, 10), generator=generator())
    length = torch.randint(5, 11, (2000, 1), generator=generator(1))
    x = torch.where(torch.arange(10) < length, x, 0)
    worth = torch.linspace(-1, 1, VOCABULARY).pow(3)
    worth[0] = 0.0
    return x, torch.bucketize(worth[x].sum(1), torch.tensor([-0.4, 0.4]))


def tagged() -> tuple[Tensor, Tensor]:
    """Tokens, and at each the class of the sum up to there; padding has no label."""
    x, _ = tokens()
    worth = torch.linspace(-1, 1, VOCABULARY).pow(3)
    y = torch.bucketize(worth[x].cumsum(1), torch.tensor([-0.4, 0.4]))
    return x, torch.where(x == 0, -100, y)


def points() -> tuple[Tensor, Tensor]:
    """Sets of twelve points on a ring whose radius is the label."""
    radius = 0.5 + torch.rand(2000, 1, generator=generator())
    angle = 6.3 * torch.rand(2000, 12, generator=generator(1))
    noise = 0.2 * torch.randn(2000, 12, 2, generator=generator(2))
    x = torch.stack([angle.cos(), angle.sin()], -1) * radius.unsqueeze(-1) + noise
    return x, radius


def table() -> tuple[Tensor, Tensor]:
    """Six numbers; the label is wavy, and noisier where the first is large."""
    x = torch.randn(2000, 6, generator=generator())
    noise = torch.randn(2000, 1, generator=generator(1)) * (0.1 + 0.4 * x[:, :1].sigmoid())
    return x, (2 * x[:, :1]).sin() + x[:, 1:2] * x[:, 2:3] + noise


def pairs() -> tuple[Tensor, Tensor]:
    """Two digits, and whether they are the same class."""
    x, y = digits()
    other = torch.randperm(len(x), generator=generator())
    # Half of the pairs are alike.
    order = y.argsort()
    alike = torch.arange(len(x)) % 2 == 0
    mates = torch.where(alike[order.argsort()], order.roll(1)[order.argsort()], other)
    return torch.stack([x, x[mates]], 1), (y == y[mates]).long()


def two_tables() -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Users and items, and a rating that is a bilinear form of them."""
    users, items = (torch.randn(2000, 5, generator=generator(seed)) for seed in (0, 1))
    form = torch.randn(5, 5, generator=generator(2)) / 3
    noise = 0.2 * torch.randn(2000, 1, generator=generator(3))
    return (users, items), torch.einsum("ni,ij,nj->n", users, form, items).unsqueeze(1) + noise


def mixed() -> tuple[dict[str, Tensor], Tensor]:
    """A category, a mask and numbers, by name."""
    kind = torch.randint(8, (2000,), generator=generator())
    numbers = torch.randn(2000, 4, generator=generator(1))
    worth = torch.randn(8, generator=generator(2))
    noise = 0.2 * torch.randn(2000, 1, generator=generator(3))
    y = worth[kind].unsqueeze(1) + numbers[:, :1] * numbers[:, 1:2] + noise
    return {"kind": kind, "numbers": numbers}, y


def noisy_images() -> tuple[Tensor, Tensor]:
    """Noisy digits, and the digits themselves."""
    x = shaped(1, 8, 8)()[0][:700]
    return x + 0.3 * torch.randn(x.shape, generator=generator()), x


def masks() -> tuple[Tensor, Tensor]:
    """Noisy digits, and which pixels are ink."""
    x, clean = noisy_images()
    return x, clean.squeeze(1).gt(0.5).long()


def two_labels() -> tuple[Tensor, dict[str, Tensor]]:
    """Digits, their classes, and how much ink there is."""
    x, y = digits()
    return x, {"digit": y, "ink": x.mean(1, keepdim=True) * 10}


def volumes() -> tuple[Tensor, Tensor]:
    """Three noisy copies of a digit, one behind another."""
    x, y = shaped(1, 1, 8, 8)()
    return x.expand(-1, -1, 3, -1, -1) + 0.2 * torch.randn(len(x), 1, 3, 8, 8), y


def graph() -> tuple[Any, Tensor]:
    """Nodes of three groups that are linked to their own more often; half of them have labels."""
    y = torch.arange(400) % 3
    same = y.unsqueeze(0) == y.unsqueeze(1)
    chance = torch.where(same, 0.05, 0.005)
    links = torch.rand(400, 400, generator=generator()) < chance
    links = (links | links.T | torch.eye(400).bool()).float()
    features = torch.randn(400, 6, generator=generator(1)) + F.one_hot(y, 6)
    return hs.whole(features, links / links.sum(1, keepdim=True)), y


class Residual(nn.Module):
    """x + body(x)."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Experts(nn.Module):
    """Three experts, and a gate that weighs them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(64, 3)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU()) for _ in range(3)
        )
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        each = torch.stack([expert(x) for expert in self.experts], -1)
        return self.head((each * self.gate(x).softmax(-1).unsqueeze(1)).sum(-1))


class Mixer(nn.Module):
    """An MLP over rows of an image, then one over its columns."""

    def __init__(self) -> None:
        super().__init__()
        self.across, self.along = nn.Linear(8, 8), nn.Linear(8, WIDTH)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.norm(x).mT).relu().mT
        return self.head(self.along(x).relu().mean(1))


class VisionTransformer(nn.Module):
    """Patches, a class token, embeddings of positions, an encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 16, 4, stride=4)
        self.token, self.places = nn.Parameter(torch.zeros(1, 1, 16)), nn.Embedding(5, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.patches(x).flatten(2).mT
        seen = torch.cat([self.token.expand(len(x), -1, -1), seen], 1)
        places = torch.arange(5, device=x.device).expand(len(x), -1)
        return self.head(self.encoder(seen + self.places(places))[:, 0])


class UNet(nn.Module):
    """Down, up again, and a path beside."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 2, stride=2)
        self.up, self.last = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(8, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        beside = self.first(x).relu()
        return self.last(torch.cat([beside, self.up(self.down(beside).relu()).relu()], 1))


class Recurrent(nn.Module):
    """The last output of a recurrent module."""

    def __init__(self, rnn: nn.Module, width: int = WIDTH) -> None:
        super().__init__()
        self.rnn, self.head = rnn, nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


class CellLoop(nn.Module):
    """A GRU cell in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(8, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], WIDTH)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.head(state)


class OwnCell(nn.Module):
    """A gated cell by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.given, self.kept = nn.Linear(8, 2 * WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], WIDTH)
        for step in x.unbind(1):
            gate, new = (self.given(step) + self.kept(state)).chunk(2, 1)
            state = state + gate.sigmoid() * (new.tanh() - state)
        return self.head(state)


class Encoder(nn.Module):
    """A TransformerEncoder of two layers on rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.linspace(-1, 1, x.shape[1]).unsqueeze(1)
        return self.head(self.encoder(self.embed(x) + places).mean(1))


class CausalTagger(nn.Module):
    """Attention to what came before, an output at every token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16, padding_idx=0)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.hidden, self.head = nn.Linear(16, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        h = h + self.attention(h, h, h, attn_mask=later, need_weights=False)[0]
        return self.head(self.hidden(h).relu())


class BagOfWords(nn.Module):
    """The mean of embeddings, padding not counted."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.hidden, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        count = (x != 0).sum(1, keepdim=True)
        return self.head(self.hidden(self.embed(x).sum(1) / count.sqrt()).relu())


class TextLSTM(nn.Module):
    """Embeddings through an LSTM, the mean of its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8, padding_idx=0)
        self.rnn, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(self.embed(x))[0].mean(1))


class DeepSet(nn.Module):
    """What is done with each point, then with their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.point, self.hidden = nn.Linear(2, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(self.point(x).relu().mean(1)).relu())


class Siamese(nn.Module):
    """Two images stacked into one batch, through the same body."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.hidden = nn.Linear(64, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.body(torch.cat([x[:, 0], x[:, 1]])).relu().chunk(2)
        return self.head(self.hidden((first - second).abs()).relu())


class TwoTowers(nn.Module):
    """A bilinear form of two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.form, self.head = nn.Bilinear(5, 5, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        return self.head(self.form(users, items).tanh())


class ByName(nn.Module):
    """A category and numbers, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.hidden = nn.Embedding(8, 4), nn.Linear(8, 2 * WIDTH)
        self.head = nn.Linear(2 * WIDTH, 1)

    def forward(self, kind: Tensor, numbers: Tensor) -> Tensor:
        return self.head(self.hidden(torch.cat([self.embed(kind), numbers], 1)).relu())


class TwoHeads(nn.Module):
    """A class and a number from one body."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(64, WIDTH)
        self.digit, self.ink = nn.Linear(WIDTH, CLASSES), nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.body(x).relu()
        return {"digit": self.digit(h), "ink": self.ink(h)}


class GraphNet(nn.Module):
    """Two graph convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, nodes: Tensor, links: Tensor) -> Tensor:
        return links @ self.second((links @ self.first(nodes)).relu())
