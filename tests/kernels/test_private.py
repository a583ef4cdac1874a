"""Without torch's private functions everything runs by public ones, to the same numbers."""

from __future__ import annotations

import ast
import gc
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import optimizer

import headstart as hs
from headstart.kernels import private as torch_private
from tests.conftest import go_public

SOURCE = Path(torch_private.__file__)
PAIRS = [name.removeprefix("public_") for name in vars(torch_private) if name.startswith("public_")]


def test_this_torch_has_them_all() -> None:
    """Else a version that we promise is slower than it could be."""
    assert len(PAIRS) == 10
    for name in PAIRS:
        assert getattr(torch_private, name) is getattr(torch_private, f"_{name}")


class Bare:
    """A module that keeps what it is given elsewhere."""

    def add_module(self, name: str, module: Any) -> None: ...
    def register_parameter(self, name: str, parameter: Any) -> None: ...


def of_other_signature(one: Any, two: Any, three: Any) -> None: ...


def of_other_effect(*inputs: Any, **settings: Any) -> None: ...


def missing(*inputs: Any) -> None:
    raise AttributeError


CHANGES: dict[str, tuple[str, Any, str, list[Any]]] = {
    "autocast": ("autocast_anywhere", torch._C, "_is_any_autocast_enabled", []),
    "transforms": ("transforming", torch._C, "_are_functorch_transforms_active", []),
    "functions": ("apply", torch.autograd, "Function", [type("Function", (), {})]),
    "views": ("is_view", torch.Tensor, "_is_view", []),
    "hooks": ("has_hooks", nn, "Module", [Bare]),
    "children": ("children", nn, "Module", [Bare]),
    "parameters": ("own_parameters", nn, "Module", [Bare]),
    "Adam": ("adam_is_direct", torch, "_fused_adam_", []),
    "Adam's counts": ("adam_is_direct", torch, "_foreach_add_", []),
    "Adam without momentum": ("rms_step", torch, "_fused_adam_", []),
    "its counts": ("rms_step", torch, "_foreach_add_", []),
    "lerp": ("lerp_all", torch, "_foreach_lerp_", []),
}
"""What is chosen anew where a name in some place is something else: these, or any of the usual."""


def chosen_anew() -> ModuleType:
    """The file as another torch would find it."""
    spec = importlib.util.spec_from_file_location("another", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("which", CHANGES)
def test_the_public_one_is_chosen_where_torch_has_changed(which: str) -> None:
    chosen, place, name, others = CHANGES[which]
    for other in others or [missing, of_other_signature, of_other_effect]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(place, name, other)
            found = chosen_anew()
        assert getattr(found, chosen) is getattr(found, f"public_{chosen}")
        unchanged = {pair for pair in PAIRS if getattr(found, pair) is getattr(found, f"_{pair}")}
        affected = {each for each, *where, _ in CHANGES.values() if where == [place, name]}
        assert unchanged | affected == set(PAIRS)


def test_an_optimizer_that_keeps_its_hooks_elsewhere_takes_torchs_own_steps() -> None:
    assert not torch_private.adam_is_direct(SimpleNamespace())  # type: ignore[arg-type]
    adam = torch.optim.Adam([torch.zeros(1)])
    assert torch_private.adam_is_direct(adam)
    adam.register_step_pre_hook(lambda *_: None)
    assert not torch_private.adam_is_direct(adam)


def test_views() -> None:
    whole = torch.randn(2, 3, 4)
    for ask in (torch_private.is_view, torch_private.public_is_view):
        assert ask(whole.flatten(0, 1), whole)
        assert not ask(whole.mT.flatten(1), whole)


class Convolutional(nn.Module):
    """Of its own making, so that a module holds modules that hold modules."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3, padding="same"))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).relu().mean((2, 3)))


FITS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], hs.Likelihood | Any]] = {
    "dense": (lambda: hs.models.create("mlp-2x30", (4,), 1), (4,), hs.Gaussian),
    "convolutional": (Convolutional, (1, 8, 8), lambda: hs.Categorical(3)),
}


def fitted(net: str, sampler: str) -> list[Tensor]:
    make, shape, likelihood = FITS[net]
    torch.manual_seed(0)
    x = torch.randn(40, *shape)
    lik = likelihood()
    y = torch.randint(3, (40,)) if net == "convolutional" else x.sum(1)
    model = hs.bayesianize(make())
    hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    fit: dict[str, Any] = {
        "steps": 12,
        "samples": 8,
        "batch_size": 20,
        "lr": 1e-2,
        "progress": False,
    }
    hs.fit(model, lik, (x, y), inference=hs.SVI(sampler=sampler), seed=0, **fit)
    with torch.no_grad():
        draws = hs.draw(model, x[:5], 4, sampler)
    return [*(p.detach().clone() for p in model.parameters()), draws]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("sampler", ["local", "weights"])
@pytest.mark.parametrize("net", FITS)
def test_a_fit_comes_to_the_same_numbers(
    net: str, sampler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit with the same expressions; the plain ones add in another order."""
    private = fitted(net, sampler)
    go_public(monkeypatch, but="transforming")
    for mine, theirs in zip(fitted(net, sampler), private, strict=True):
        assert torch.equal(mine, theirs)
    go_public(monkeypatch)
    assert torch_private.transforming()
    torch.testing.assert_close(fitted(net, sampler), private, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_compiled_step_does_not_know_of_other_nets() -> None:
    """What another net's backward pass has left behind may vanish while a step is compiled."""
    lik, x = hs.Gaussian(), torch.randn(8, 3)
    model, other = (hs.bayesianize(nn.Sequential(nn.Linear(3, 1))) for _ in range(2))
    hs.nelbo(other, lik, x, x.sum(1), num_data=8, samples=4).value.backward()

    def backend(graph: Any, inputs: Any) -> Any:
        nonlocal other
        del other
        gc.collect()
        return graph

    def step(x: Tensor) -> Tensor:
        return hs.nelbo(model, lik, x, x.sum(1), num_data=8, samples=4).value

    torch._dynamo.reset()
    assert torch.compile(step, fullgraph=True, backend=backend)(x).isfinite()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("autocast", [False, True])
def test_a_step_by_public_names_compiles(autocast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    go_public(monkeypatch)
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    model, lik, x = hs.bayesianize(net), hs.Gaussian(), torch.randn(8, 3)

    def step(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return hs.nelbo(model, lik, x, x.sum(1), num_data=8, samples=4).value

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    torch.manual_seed(0)
    expected = step(x)
    torch.manual_seed(0)
    torch.testing.assert_close(compiled(x), expected)


def private_names(*places: Any) -> set[str]:
    return {name for place in places for name in dir(place) if name[0] == "_" != name[1]}


def test_no_other_file_names_what_is_private_to_torch() -> None:
    adam, layers = torch.optim.Adam([torch.zeros(1)]), (nn.Conv2d(1, 1, 1), nn.BatchNorm1d(1))
    names = private_names(torch, torch._C, torch.Tensor, optimizer, adam, *layers)
    found: list[str] = []
    for path in SOURCE.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr[0] == "_" != node.attr[1:2]:
                owner = ast.unparse(node.value).split(".")[0]
                of_torch = owner in ("torch", "nn") or node.attr in names
                found += [f"{path.name}: {owner}.{node.attr}"] if of_torch else []
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
                private = [each.name for each in node.names if each.name[0] == "_"]
                found += [
                    f"{path.name}: {name}" for name in (*private, node.module) if "._" in f".{name}"
                ]
    assert {entry.split(":")[0] for entry in found} == {SOURCE.name}, found


def test_an_optimizer_begins_without_the_compiler_and_steps_alike() -> None:
    """In a process of its own: here the compiler may be imported already."""
    code = """
import sys, torch
from headstart.kernels.private import sparing_compiler
class Plain(torch.optim.Optimizer):
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            parameter.data -= 0.5 * parameter.grad
def step():
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = Plain([parameter], {})
    optimizer.zero_grad()
    parameter.sum().backward()
    optimizer.step()
    return parameter.tolist()
with sparing_compiler():
    assert step() == [0.5, 0.5]
    assert "torch._dynamo" not in sys.modules
assert step() == [0.5, 0.5]
assert "torch._dynamo" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("ask", [torch_private.has_hooks, torch_private.public_has_hooks])
def test_hooks_of_a_forward_pass_are_seen(ask: Callable[[nn.Module], bool]) -> None:
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        module = nn.Sequential(nn.ReLU())
        assert not ask(module)
        handle = getattr(module, register)(lambda *given: None)
        assert ask(module)
        handle.remove()
        assert not ask(module)
