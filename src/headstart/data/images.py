"""Images for training: kept as bytes, scaled batch by batch, flipped and shifted where asked."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.data.splits import Scaling
from headstart.errors import HeadstartError


class Images:
    """Batches `(x, y)` of byte images, in a new order each pass: a quarter of the memory of floats.

    Random numbers are torch's own.

    Args:
        x: Images as bytes, (N, C, H, W).
        y: Their labels, (N,).
        scaling: Makes floats of bytes, as `standardize` or `fit_scaling` found it.
        batch_size: The images of a batch.
        shuffle: Whether each pass has an order of its own.
        flip: Whether every second image, at random, is mirrored.
        shift: By up to how many pixels each image is moved in both directions, over a border of
            zeros (the mean of the training images).
        channels_last: Whether batches lie so in memory. On a CPU, forward passes of wide
            convolutions are faster then, but a net that calls `view` on its feature maps fails.

    Example:
        >>> from headstart.data.splits import Split, standardize
        >>> x, y = torch.randint(256, (10, 1, 8, 8), dtype=torch.uint8), torch.arange(10)
        >>> _, scaling = standardize(Split(x, y, x, y), targets=False)
        >>> [batch.shape for batch, _ in Images(x, y, scaling, batch_size=6, flip=True, shift=1)]
        [torch.Size([6, 1, 8, 8]), torch.Size([4, 1, 8, 8])]
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        scaling: Scaling,
        *,
        batch_size: int = 64,
        shuffle: bool = True,
        flip: bool = False,
        shift: int = 0,
        channels_last: bool = False,
    ) -> None:
        if x.dtype != torch.uint8 or x.ndim != 4:
            raise HeadstartError(
                "Images are bytes of shape (rows, channels, height, width), "
                f"not {x.dtype} {tuple(x.shape)}."
            )
        if len(x) != len(y):
            raise HeadstartError(
                f"There are {len(x)} images and {len(y)} labels; they must be as many."
            )
        if batch_size < 1 or not 0 <= shift < min(x.shape[2:]):
            raise HeadstartError(
                f"batch_size={batch_size} must be positive, "
                f"shift={shift} less than the image's sides."
            )
        self.x, self.y, self.scaling = x, y, scaling
        self.batch_size, self.shuffle, self.flip, self.shift = batch_size, shuffle, flip, shift
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        # As in a DataLoader: what knows the number of rows.
        self.dataset = y

    def __len__(self) -> int:
        """The number of batches."""
        return -(-len(self.x) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.take_rows(len(self.x))

    def take_rows(self, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The first `count` images of a pass; the others are not touched.

        Args:
            count: How many images.
        """
        order = torch.randperm(len(self.x)) if self.shuffle else torch.arange(len(self.x))
        for rows in order[:count].split(self.batch_size):
            x = self._changed(self.scaling.inputs(self.x[rows]))
            yield x.contiguous(memory_format=self.layout), self.y[rows]

    def _changed(self, x: Tensor) -> Tensor:
        if self.flip:
            mirrored = torch.rand(len(x)) < 0.5
            x = torch.where(mirrored[:, None, None, None], x.flip(-1), x)
        if self.shift:
            height, width = x.shape[2:]
            padded = F.pad(x, [self.shift] * 4)
            down, right = (torch.randint(2 * self.shift + 1, (len(x), 1)) for _ in range(2))
            rows, columns = down + torch.arange(height), right + torch.arange(width)
            image = torch.arange(len(x))[:, None, None, None]
            channel = torch.arange(x.shape[1])[None, :, None, None]
            x = padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]
        return x
