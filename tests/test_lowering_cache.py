"""Ways to change what a module computes: none gives a program, or a reference, of before the change.

Each way is lowered, changed and lowered again; then the cache is cleared and it is lowered once more.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.lowering import clear_cache, lower
from harness.program import HostTensor, Program
from harness.targets import Isa

nn, F = torch.nn, torch.nn.functional
X = torch.linspace(-2, 2, 8).reshape(2, 4)


@dataclass
class Way:
    """A module with its inputs, and what changes what it computes. `again` gives new inputs after the change."""

    module: Any
    change: Callable[[], object]
    inputs: tuple[Any, ...] = (X,)
    again: Callable[[], tuple[Any, ...]] | None = None


HOMES = "ways_of_tests_"
Make = Callable[[pytest.MonkeyPatch, Path], Way]
WAYS: dict[str, Make] = {}


def way(make: Make) -> Make:
    WAYS[make.__name__] = make
    return make


class Calls(nn.Module):
    """forward is a function of the input alone, or of module and input."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class Own(nn.Module):
    """Everything of its own that can be changed."""

    kept = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.attribute = 2.0
        self.weight = nn.Parameter(torch.full((4,), 2.0))
        self.register_buffer("buffer", torch.full((4,), 3.0))
        self.register_buffer("passing", torch.full((4,), 4.0), persistent=False)
        self.inner = nn.ReLU()

    @staticmethod
    def static(x: Any) -> Any:
        return x + 1

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return x + cls.kept

    def method(self, x: Any) -> Any:
        return x * self.attribute

    def forward(self, x: Any) -> Any:
        x = self.of_class(self.static(self.method(self.inner(x)))) * self.weight
        return x * self.buffer + self.passing


def package(folder: Path, patch: pytest.MonkeyPatch) -> Any:
    """A new package `ways` with a module `ways.sub`: X, and f, which multiplies by X."""
    (folder / "ways").mkdir()
    (folder / "ways" / "__init__.py").touch()
    (folder / "ways" / "sub.py").write_text("X = 2.0\ndef f(x):\n    return x * X\n")
    patch.syspath_prepend(folder)
    for name in ("ways", "ways.sub"):
        patch.delitem(sys.modules, name, raising=False)
    import ways.sub  # type: ignore[import-not-found]

    return ways


def program_of(source: str, **names: Any) -> Any:
    """`forward` of a class made from source, with globals of its own."""
    home = types.ModuleType(f"{HOMES}{len(sys.modules)}")  # a new name each time: Dynamo remembers modules by name
    sys.modules[home.__name__] = home
    space = vars(home)
    space.update(torch=torch, nn=nn, F=F, **names)
    exec(f"class M(nn.Module):\n    def forward(self, x):\n        {source}\n", space)
    return space["M"](), space


# --- imports --------------------------------------------------------------------------------------------------


@way
def submodules_global(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    found = package(folder, patch)
    return Way(program_of("return x * ways.sub.X", ways=found)[0], lambda: patch.setattr(found.sub, "X", 3.0))


@way
def submodules_function(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    found = package(folder, patch)
    return Way(program_of("return ways.sub.f(x)", ways=found)[0], lambda: patch.setattr(found.sub, "f", torch.neg))


@way
def global_of_submodules_function(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    found = package(folder, patch)
    return Way(program_of("return ways.sub.f(x)", ways=found)[0], lambda: patch.setattr(found.sub, "X", 3.0))


@way
def import_inside_forward(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    found = package(folder, patch)
    return Way(program_of("import ways.sub; return x * ways.sub.X")[0], lambda: patch.setattr(found.sub, "X", 3.0))


@way
def from_import_inside_forward(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    found = package(folder, patch)
    return Way(program_of("from ways.sub import X; return x * X")[0], lambda: patch.setattr(found.sub, "X", 3.0))


@way
def module_in_a_closure(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    sub = package(folder, patch).sub
    return Way(Calls(lambda x: x * sub.X), lambda: patch.setattr(sub, "X", 3.0))


@way
def module_as_class_attribute(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    found = package(folder, patch)
    module, _ = program_of("return x * self.sub.X")
    type(module).sub = found.sub
    return Way(module, lambda: patch.setattr(found.sub, "X", 3.0))


@way
def name_built_at_run_time(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    sub = package(folder, patch).sub
    return Way(program_of('return x * getattr(sub, "X".upper())', sub=sub)[0], lambda: patch.setattr(sub, "X", 3.0))


@way
def globals_by_name(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    module, space = program_of('return x * globals()["G"]', G=2.0)
    return Way(module, lambda: space.update(G=3.0))


@way
def global_read_directly(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    module, space = program_of("return x * G", G=2.0)
    return Way(module, lambda: space.update(G=3.0))


# --- methods --------------------------------------------------------------------------------------------------


@way
def forward_replaced_by_a_lambda(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    module = Own()
    return Way(module, lambda: setattr(module, "forward", lambda x: x / 0))


@way
def forward_replaced_by_a_function_of_its_name(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    module = Own()

    def forward(x: Any) -> Any:
        return module.inner(x) - 1

    return Way(module, lambda: setattr(module, "forward", forward))


@way
def forward_replaced_by_a_function_of_the_classs_name(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    module = Own()

    def other(self: Any, x: Any) -> Any:
        return self.inner(x) - self.weight

    other.__qualname__ = Own.forward.__qualname__
    other.__name__ = "forward"
    return Way(module, lambda: setattr(module, "forward", types.MethodType(other, module)))


@way
def another_method_replaced(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    module = Own()
    return Way(module, lambda: setattr(module, "method", lambda x: x - 7))


@way
def submodules_forward_replaced(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    module = Own()
    return Way(module, lambda: setattr(module.inner, "forward", torch.neg))


class Scale:
    def __init__(self, by: float) -> None:
        self.by = by

    def apply(self, x: Any) -> Any:
        return x * self.by


GLOBAL_SCALE = Scale(2.0)


@way
def bound_method_of_another_object(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    scale = Scale(2.0)
    return Way(Calls(scale.apply), lambda: setattr(scale, "by", 3.0))


@way
def bound_method_of_a_global_object(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    return Way(Calls(GLOBAL_SCALE.apply), lambda: patch.setattr(GLOBAL_SCALE, "by", 3.0))


@way
def bound_method_in_a_list(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    scale = Scale(2.0)
    steps = [scale.apply]
    return Way(Calls(lambda x: steps[0](x) + 0), lambda: setattr(scale, "by", 3.0))


@way
def static_method(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    return Way(Own(), lambda: patch.setattr(Own, "static", staticmethod(lambda x: x - 1)))


@way
def class_method(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    return Way(Own(), lambda: patch.setattr(Own, "of_class", classmethod(lambda cls, x: x - cls.kept)))


@way
def class_attribute(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    return Way(Own(), lambda: patch.setattr(Own, "kept", 9.0))


@way
def code_swapped(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    def helper(x: Any) -> Any:
        return x + 1

    return Way(Calls(helper), lambda: setattr(helper, "__code__", (lambda x: x - 1).__code__))


@way
def default_argument(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    def helper(x: Any, by: float = 2.0) -> Any:
        return x * by

    return Way(Calls(helper), lambda: setattr(helper, "__defaults__", (3.0,)))


@way
def closure_over_a_list(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    numbers = [2.0]
    return Way(Calls(lambda x: x * numbers[0]), lambda: numbers.__setitem__(0, 3.0))


def scaled(x: Any, by: Any) -> Any:
    return x * by[0]


@way
def functools_partial(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    numbers = [2.0]
    return Way(Calls(functools.partial(scaled, by=numbers)), lambda: numbers.__setitem__(0, 3.0))


@way
def decorated(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    numbers = [2.0]

    @torch.no_grad()
    def helper(x: Any) -> Any:
        return x * numbers[0]

    return Way(Calls(helper), lambda: numbers.__setitem__(0, 3.0))


# --- helpers --------------------------------------------------------------------------------------------------


def attributed(x: Any) -> Any:
    return x * attributed.scale  # type: ignore[attr-defined]


@way
def function_attribute(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    patch.setattr(attributed, "scale", 2.0, raising=False)
    return Way(Calls(attributed), lambda: patch.setattr(attributed, "scale", 3.0))


@way
def functools_wraps(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    def wrapped(by: float) -> Any:
        @functools.wraps(F.relu)
        def relu(x: Any) -> Any:
            return x * by

        return relu

    module, space = program_of("return relu(x)", relu=wrapped(2.0))
    return Way(module, lambda: space.update(relu=wrapped(3.0)))


@way
def lru_cache_redefined(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    def cached() -> Any:
        return functools.lru_cache(lambda: space["G"])

    module, space = program_of("return x * scale()", G=2.0)
    space["scale"] = cached()
    return Way(module, lambda: space.update(G=3.0, scale=cached()))


@torch.fx.wrap  # type: ignore[untyped-decorator, unused-ignore]
def fx_wrapped_helper(x: Any) -> Any:
    return x * WRAPPED[0]


WRAPPED = [2.0]


@way
def fx_wrap(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    return Way(Calls(fx_wrapped_helper), lambda: patch.setitem(WRAPPED, 0, 3.0))  # type: ignore[call-overload]


@way
def edited_graph_module(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    module = torch.fx.symbolic_trace(Calls(lambda x: torch.add(x, 1)))

    def change() -> None:
        next(node for node in module.graph.nodes if node.op == "call_function").target = torch.sub
        module.recompile()

    return Way(module, change)


# --- state ----------------------------------------------------------------------------------------------------


class Singleton:
    by = 2.0

    def __reduce__(self) -> str:
        return "SINGLETON"


SINGLETON = Singleton()


@way
def singleton(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    module, _ = program_of("return x * self.one.by")
    module.one = SINGLETON
    return Way(module, lambda: patch.setattr(SINGLETON, "by", 3.0))


class Forgetful(nn.Module):
    by = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.by = 2.0

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "by"}

    def forward(self, x: Any) -> Any:
        return x * self.by


@way
def getstate_drops_a_field(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    module = Forgetful()
    return Way(module, lambda: setattr(module, "by", 3.0))


FORGETFUL = Forgetful()


@way
def getstate_of_a_global_drops_a_field(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    return Way(Calls(lambda x: FORGETFUL(x) + 0), lambda: patch.setattr(FORGETFUL, "by", 3.0))


def changed(name: str, how: Callable[[Any], object]) -> Make:
    def make(patch: pytest.MonkeyPatch, folder: Path) -> Way:
        module = Own()
        return Way(module, lambda: how(getattr(module, name)))

    return make


WAYS["weight"] = changed("weight", lambda weight: weight.detach().add_(1))
WAYS["buffer"] = changed("buffer", lambda buffer: buffer.add_(1))
WAYS["non_persistent_buffer"] = changed("passing", lambda buffer: buffer.add_(1))
WAYS["data_of_a_weight"] = changed("weight", lambda weight: setattr(weight, "data", torch.ones(4)))
WAYS["module_hook"] = changed("inner", lambda inner: inner.register_forward_hook(lambda *call: call[-1] + 1))


@way
def global_hook(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    hooks = nn.modules.module._global_forward_hooks

    def change() -> None:
        patch.setitem(hooks, -1, lambda module, args, output: output + 1)

    return Way(Own(), change)


@way
def default_dtype(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    module = Calls(lambda x: x * torch.tensor(2.0).to(torch.float32) + torch.get_default_dtype().itemsize)
    return Way(module, lambda: torch.set_default_dtype(torch.float64))


@way
def constant_of_math(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    return Way(Calls(lambda x: x * math.pi), lambda: patch.setattr(math, "pi", 3.0))


@way
def state_of_another_module(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    other = nn.Linear(4, 4)
    return Way(Calls(lambda x: x * other.weight[0]), lambda: other.weight.data.add_(1))


@way
def environment(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    patch.setenv("WAYS_SCALE", "2")
    module = Calls(lambda x: x * float(os.environ["WAYS_SCALE"]))
    return Way(module, lambda: patch.setenv("WAYS_SCALE", "3"))


# --- torch itself ---------------------------------------------------------------------------------------------


@way
def functional_replaced(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    return Way(nn.SiLU(), lambda: patch.setattr(F, "silu", lambda x, inplace=False: x * 3))


@way
def layers_forward_replaced(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    return Way(nn.Linear(4, 4), lambda: patch.setattr(nn.Linear, "forward", lambda self, x: F.linear(x, self.weight)))


@way
def compiled_module(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    module = Own()
    return Way(torch.compile(module), lambda: setattr(module, "attribute", 3.0))


@way
def negative_bit(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    return Way(Own(), lambda: None, again=lambda: (torch._neg_view(X),))


@way
def conjugate_bit(patch: pytest.MonkeyPatch, folder: Path) -> Way:
    """The imaginary part of a conjugate: its memory is the part's of the number itself."""
    numbers = torch.complex(X, X + 1)
    return Way(Own(), lambda: None, (numbers.imag.clone(),), lambda: (numbers.conj().imag,))


# --- the tests ------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    before = torch.get_default_dtype()
    clear_cache()
    yield
    torch.set_default_dtype(before)
    for name in [name for name in sys.modules if name.startswith(HOMES)]:
        del sys.modules[name]
    clear_cache()


@dataclass
class Lowered:
    """A program as it came, and what its reference says; `pte` is the error's text where there is none."""

    pte: bytes | str
    references: tuple[Any, ...] = ()

    def same(self, other: Lowered) -> bool:
        equal = functools.partial(np.array_equal, equal_nan=True)
        return self.pte == other.pte and all(map(equal, self.references, other.references))


def lowered(module: Any, inputs: tuple[Any, ...]) -> Lowered:
    program = lower(module, inputs, isa=Isa.DSP, quantize=False)
    return Lowered(program.pte, outputs(program))


def outputs(program: Program, inputs: tuple[HostTensor, ...] | None = None) -> tuple[Any, ...]:
    """Outputs of the dialect and of the eager module."""
    assert program.reference is not None
    found = program.reference(program.inputs if inputs is None else inputs)
    assert found.dialect is not None and found.eager is not None
    return (*found.dialect, *found.eager)


def called(module: Any, inputs: tuple[Any, ...]) -> Any:
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        return module(*inputs).numpy()


@pytest.mark.parametrize("name", sorted(WAYS))
def test_a_changed_module_is_lowered_anew(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = WAYS[name](monkeypatch, tmp_path)
    before = lowered(made.module, made.inputs)
    np.testing.assert_array_equal(before.references[1], called(made.module, made.inputs))
    made.change()
    inputs = made.again() if made.again else made.inputs
    after = lowered(made.module, inputs)
    np.testing.assert_array_equal(after.references[1], called(made.module, inputs))
    clear_cache()
    assert after.same(lowered(made.module, inputs))
    assert not after.same(before), "the change changed nothing"
    dialect, eager = after.references
    assert np.allclose(dialect, eager, rtol=1e-5, atol=1e-6, equal_nan=True), "exported is what the module computes"
