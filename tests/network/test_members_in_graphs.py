"""Mixtures in torch's world: copies, compiled steps, exported graphs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import headstart as hs

IMAGES = torch.randn(6, 1, 28, 28)


def lenet() -> nn.Module:
    return hs.bayesianize(hs.models.create("lenet", (1, 28, 28), 10), members=2)


def test_copies_types_devices_and_other_parameters() -> None:
    model = copy.deepcopy(lenet()).double()
    assert hs.draw(model, IMAGES.double(), 4).dtype == torch.float64
    doubled = {name: 2 * tensor for name, tensor in model.state_dict().items()}
    with hs.drawing(model, "mean", 2):
        images = IMAGES.double().repeat(2, 1, 1, 1)
        out = torch.func.functional_call(model, doubled, (images,))
        model.load_state_dict(doubled, strict=True)
        torch.testing.assert_close(out, model(images))
    assert hs.draw(model.to("meta"), IMAGES.double().to("meta"), 4).shape == (4, 6, 10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("sampler", ["local", "weights"])
def test_a_step_compiles_without_a_break(sampler: str) -> None:
    model, likelihood, y = lenet(), hs.Categorical(10), torch.randint(10, (6,))

    def step(x: Tensor, y: Tensor) -> Tensor:
        return hs.nelbo(model, likelihood, x, y, num_data=60, samples=8, sampler=sampler).value

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    torch.manual_seed(0)
    expected = step(IMAGES, y)
    torch.manual_seed(0)
    found = compiled(IMAGES, y)
    found.backward()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_draws_are_exported_and_the_mean_of_each_member() -> None:
    model = lenet().eval()
    with hs.member(model, 1), hs.drawing(model, "mean"):
        program = torch.export.export(model, (IMAGES,))
        torch.testing.assert_close(program.module()(IMAGES), model(IMAGES))

    class Served(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            return hs.draw(self.model, x, 4)

    shapes = ({0: torch.export.Dim("batch")},)
    served = torch.export.export(Served().eval(), (IMAGES,), dynamic_shapes=shapes).module()
    assert served(IMAGES[:4]).shape == (4, 4, 10)
