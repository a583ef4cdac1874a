"""The table of the kinds of nets that `nets.py` tries."""

from __future__ import annotations

import nets_cases as n
from nets_cases import CLASSES, WIDTH, Kind, shaped
from torch import nn

import headstart as hs

FLAT, IMAGE, STEPS = n.digits, shaped(1, 8, 8), shaped(8, 8)


def mlp(inputs: int = 64, outputs: int = CLASSES) -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()),
        nn.Linear(WIDTH, outputs),
    )


def residual_mlp() -> nn.Module:
    block = n.Residual(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    return nn.Sequential(nn.Linear(64, WIDTH), block, nn.Linear(WIDTH, CLASSES))


def cnn(norm: nn.Module | None = None) -> nn.Module:
    between = [] if norm is None else [norm]
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3), *between, nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(72, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)),
    )


def residual_cnn() -> nn.Module:
    block = n.Residual(nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3), block, nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(72, CLASSES)),
    )


def depthwise_cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 16, 1)),
        *(nn.ReLU(), nn.Flatten(), nn.Linear(256, CLASSES)),
    )


def dilated_cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv1d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 16, 3, dilation=2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(64, CLASSES)),
    )


def volume_cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv3d(1, 6, (2, 3, 3)), nn.ReLU(), nn.MaxPool3d((2, 2, 2))),
        *(nn.Flatten(), nn.Linear(54, CLASSES)),
    )


def two_ways() -> nn.Module:
    rnn = nn.LSTM(8, 12, 2, bidirectional=True, batch_first=True)
    return n.Recurrent(rnn)


def three() -> hs.Likelihood:
    return hs.Categorical(3)


def nodes() -> hs.Likelihood:
    return hs.Categorical(3, ignore_index=-100)


def tags() -> hs.Likelihood:
    return hs.PerPosition(hs.Categorical(3, ignore_index=-100))


def joint() -> hs.Likelihood:
    return hs.Joint({"digit": hs.Categorical(CLASSES), "ink": hs.Gaussian()})


KINDS = (
    Kind("MLP", mlp, FLAT),
    Kind("residual MLP, LayerNorm", residual_mlp, FLAT),
    Kind("mixture of experts", n.Experts, FLAT),
    Kind("MLP-Mixer", n.Mixer, STEPS),
    Kind("heteroscedastic regression", lambda: mlp(6, 2), n.table, hs.Heteroscedastic),
    Kind("CNN", cnn, IMAGE),
    Kind("CNN, frozen BatchNorm", lambda: cnn(nn.BatchNorm2d(8).eval()), IMAGE),
    Kind("residual CNN, GroupNorm", residual_cnn, IMAGE),
    Kind("depthwise CNN", depthwise_cnn, IMAGE),
    Kind("dilated Conv1d", dilated_cnn, STEPS),
    Kind("Conv3d", volume_cnn, n.volumes),
    Kind(
        "U-Net, segmentation",
        lambda: n.UNet(2),
        n.masks,
        lambda: hs.PerPosition(hs.Categorical(2), axis=1),
        train=500,
    ),
    Kind(
        "U-Net, denoising",
        lambda: n.UNet(1),
        n.noisy_images,
        lambda: hs.PerPosition(hs.Gaussian(), axis=1),
        train=500,
    ),
    Kind("vision transformer", n.VisionTransformer, IMAGE),
    Kind("TransformerEncoder", n.Encoder, STEPS),
    Kind("causal attention, a label at each token", n.CausalTagger, n.tagged, tags),
    Kind("LSTM", lambda: n.Recurrent(nn.LSTM(8, WIDTH, batch_first=True)), STEPS),
    Kind("GRU", lambda: n.Recurrent(nn.GRU(8, WIDTH, batch_first=True)), STEPS),
    Kind("RNN", lambda: n.Recurrent(nn.RNN(8, WIDTH, batch_first=True)), STEPS),
    Kind("LSTM, two layers, both ways", two_ways, STEPS),
    Kind("GRU cell in a loop", n.CellLoop, STEPS),
    Kind("gated cell by hand", n.OwnCell, STEPS),
    Kind("bag of words", n.BagOfWords, n.tokens, three),
    Kind("text, LSTM", n.TextLSTM, n.tokens, three),
    Kind("sets of points", n.DeepSet, n.points, hs.Gaussian),
    Kind("siamese, stacked batches", n.Siamese, n.pairs, lambda: hs.Categorical(2)),
    Kind("two inputs, bilinear", n.TwoTowers, n.two_tables, hs.Gaussian),
    Kind("inputs by name, embedding", n.ByName, n.mixed, hs.Gaussian),
    Kind("two heads", n.TwoHeads, n.two_labels, joint),
    Kind("whole graph, some nodes labeled", n.GraphNet, n.graph, nodes, train=200),
)
