"""Many draws of a single row through a chain of modules, by the shortest way.

The samples of the row are channels as long as layers are convolutions: nothing is copied between
them, and a maximum over positions sees hundreds of channels at once, where with the few of one
sample it takes longer than the convolution. The numbers are those of the plan that `forward` makes
of the same request, to the bit, from the same random numbers in the same order.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, cast

import torch
from torch import Tensor, nn

from headstart.kernels import private as torch_private
from headstart.kernels.few_rows import (
    are_few,
    convolve_wide,
    one_by_one,
    shared_patches,
    widen_patches,
)
from headstart.kernels.fused import autocasting
from headstart.linalg.affine import affine_each, is_dense, is_plain_conv2d
from headstart.nested import TensorTree
from headstart.network.chain import chain_elements, is_torchs
from headstart.network.layer import Bayesian, bayesian_layers
from headstart.network.probe import check_rows

BY_CHANNEL = (
    *(nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus),
    *(nn.Identity, nn.Dropout, nn.MaxPool2d, nn.AvgPool2d),
)
"""Modules that treat each channel of an image by itself, in evaluation mode."""
SAMPLES_AT_ONCE = 64
"""Samples that are channels at a time: with more of them the C library gives the memory of each
block back to the kernel, which clears the pages of the next one."""


def single_row_chain(model: nn.Module, x: TensorTree) -> list[nn.Module]:
    """The modules of a net that `draw_chain` can run; none of any other net.

    Args:
        model: a converted net, in evaluation mode.
        x: its inputs.
    """
    if not isinstance(x, Tensor) or x.ndim != 4 or len(x) != 1 or autocasting(x):
        return []
    check_rows(model, x)
    elements = chain_elements(model)
    layers = [each for each in elements if isinstance(each, Bayesian)]
    plain = all(isinstance(each, Bayesian) or is_torchs(each) for each in elements)
    return elements if plain and _are_known(layers, model) else []


def _are_known(layers: list[Bayesian], model: nn.Module) -> bool:
    """Whether the net calls these layers once each and no others, and the first is a convolution.

    Another first layer would have to say where samples branch.
    """
    once = len({id(each) for each in layers}) == len(layers) == len(bayesian_layers(model))
    return once and is_plain_conv2d(layers[0].op) and all(_is_known(each) for each in layers)


def _is_known(layer: Bayesian) -> bool:
    if torch_private.has_hooks(layer):
        return False
    return is_plain_conv2d(layer.op) or (is_dense(layer.op) and layer.posterior.local_is_cheap)


def draw_chain(elements: list[nn.Module], x: TensorTree, samples: int) -> Tensor | None:
    """Draws of the outputs of one row, (S, 1, ...).

    Convolutions draw their weights, and dense layers their outputs, which have the same law where
    each sample meets them once.

    Args:
        elements: what `single_row_chain` returned.
        x: the row.
        samples: the number of samples S.

    Returns:
        None where there are no elements or few draws, or the net does not give a row for each.
    """
    if not elements or not isinstance(x, Tensor) or not are_few(x, samples, shared=True):
        return None
    first = next(i for i, each in enumerate(elements) if isinstance(each, Bayesian))
    last = next((i for i in range(first, len(elements)) if not _is_wide(elements[i])), None)
    after = [] if last is None else elements[last:]
    flat = [type(each) for each in after[:1]] == [nn.Flatten]
    h = reduce(lambda found, element: element(found), elements[:first], x)
    h = _through_images(elements[first:last], h, samples, flat)
    for element in after:
        h = _called(element, h, samples)
    return h.unsqueeze(1) if len(h) == samples else None


def _is_wide(element: nn.Module) -> bool:
    """Whether the samples may be channels where it is called."""
    if isinstance(element, Bayesian):
        return is_plain_conv2d(element.op)
    return type(element) in BY_CHANNEL and not torch_private.has_hooks(element)


def _through_images(elements: list[nn.Module], x: Tensor, samples: int, flat: bool) -> Tensor:
    """What comes of S samples of one image, (S, C, H, W), a few of them at a time.

    The first of the elements is a convolution. With `flat` the numbers lie in memory in that order,
    as who flattens them wants it; else with the channels last.
    """
    first, *others = _maxima_first(elements)
    *posteriors, last = [each.posterior for each in elements if isinstance(each, Bayesian)]
    drawn, found = [posterior.sample(samples) for posterior in posteriors], []
    size = cast(Bayesian, first).posterior.size
    patches, sides = shared_patches(x, size, *_settings(cast(Bayesian, first)))
    for start in range(0, samples, SAMPLES_AT_ONCE):
        count = min(SAMPLES_AT_ONCE, samples - start)
        # The last weights, most often the most, when they are needed: the random numbers are those
        # of all at once.
        left = iter([*(draws[start : start + count] for draws in drawn), last.sample(count)])
        h = widen_patches(patches, sides, next(left))
        for element in others:
            if isinstance(element, Bayesian):
                h = convolve_wide(h, next(left), *_settings(element))
            else:
                # Nobody else has seen h, and a block of memory less is a block less to clear.
                h = h.relu_() if type(element) is nn.ReLU else element(h)
        found.append(one_by_one(h, count, not flat))
    return found[0] if len(found) == 1 else torch.cat(found)


def _settings(layer: Bayesian) -> tuple[Any, ...]:
    """Of a convolution: kernel, stride, padding and dilation."""
    op: Any = layer.op
    return op.kernel_size, op.stride, op.padding, op.dilation


def _maxima_first(elements: list[nn.Module]) -> list[nn.Module]:
    """The same with a maximum over positions before a ReLU that it follows.

    The two can change places, to the bit, and a ReLU of fewer positions costs less.
    """
    found = list(elements)
    for i in range(1, len(found)):
        if type(found[i - 1]) is nn.ReLU and type(found[i]) is nn.MaxPool2d:
            found[i - 1], found[i] = found[i], found[i - 1]
    return found


def _called(element: nn.Module, x: Tensor, samples: int) -> Tensor:
    """What becomes of samples as rows: where they meet weights once, a layer draws its outputs."""
    if not isinstance(element, Bayesian):
        return element(x)
    op, posterior = element.op, element.posterior
    if is_plain_conv2d(op):
        return affine_each(op, x, posterior.sample(samples))
    return posterior.local(op, x, 1) if x.ndim == 2 else posterior.functions(samples)(op, x, False)
