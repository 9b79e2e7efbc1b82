"""Ways to change what a module computes: none gives a program, or a reference, of before the change.

Each way is lowered, changed and lowered again; then the cache is cleared and it is lowered once more.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil.errors import ConfigError, LoweringError
from cortex_m_hil.lowering import LoweringOptions, clear_cache, compiler_files, lower
from cortex_m_hil.lowering.cache_keys import key_of
from cortex_m_hil.lowering.content_digest import NoContent, digest
from cortex_m_hil.lowering.disk_cache import disk
from cortex_m_hil.lowering.module_export import trace
from cortex_m_hil.lowering.pipeline import cache
from cortex_m_hil.lowering.reference import to_host
from cortex_m_hil.targets.cpu import Isa

nn, F = torch.nn, torch.nn.functional
X = torch.linspace(-2, 2, 8).reshape(2, 4)
FLOAT = LoweringOptions(quantize=False)


@dataclass
class Way:
    """A module with its inputs, and what changes what it computes. `again` gives new inputs after the change."""

    module: Any
    change: Callable[[], object]
    inputs: tuple[Any, ...] = (X,)
    again: Callable[[], tuple[Any, ...]] | None = None


HOMES = "ways_of_tests_"
NUMBERS = itertools.count()
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
    home = types.ModuleType(f"{HOMES}{next(NUMBERS)}")  # Dynamo remembers modules by name
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
    WRAPPED[0] = 2.0
    return Way(Calls(fx_wrapped_helper), lambda: WRAPPED.__setitem__(0, 3.0))


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
    other = types.SimpleNamespace(weight=torch.ones(4))
    return Way(Calls(lambda x: x * other.weight), lambda: other.weight.add_(1))


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

# torch.export refuses these after the change, with a cache and without.
REFUSED = {"global_hook"}


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_default_dtype()
    monkeypatch.setenv("HIL_CACHE_DIR", str(tmp_path / "cache"))
    clear_cache()
    yield
    torch.set_default_dtype(before)
    for name in [name for name in sys.modules if name.startswith(HOMES)]:
        del sys.modules[name]
    clear_cache()


def lowered(module: Any, inputs: tuple[Any, ...]) -> tuple[bytes | str, Any, Any]:
    """The program with the dialect's and the eager module's outputs, or an error's message."""
    try:
        program = lower(module, inputs, isa=Isa.DSP, options=FLOAT)
    except LoweringError as error:
        return (error.message, np.zeros(0), np.zeros(0))
    assert program.reference is not None
    found = program.reference(program.inputs)
    assert found.dialect is not None and found.eager is not None
    return (program.pte, found.dialect[0], found.eager[0])


@contextmanager
def without_disk() -> Iterator[None]:
    before, disk.enabled = disk.enabled, False
    try:
        yield
    finally:
        disk.enabled = before


def same(some: Any, others: Any) -> bool:
    (pte, *arrays), (other_pte, *other_arrays) = some, others
    return pte == other_pte and all(map(functools.partial(np.array_equal, equal_nan=True), arrays, other_arrays))


def called(module: Any, inputs: tuple[Any, ...]) -> Any:
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        return module(*[value.resolve_neg() for value in inputs]).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WAYS))
def test_a_changed_module_is_lowered_anew(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "enabled", True)
    made = WAYS[name](monkeypatch, tmp_path)
    before = lowered(made.module, made.inputs)
    np.testing.assert_array_equal(before[2], called(made.module, made.inputs))
    made.change()
    inputs = made.again() if made.again else made.inputs
    after = lowered(made.module, inputs)
    clear_cache()
    with without_disk():
        assert same(after, lowered(made.module, inputs))
    assert not same(after, before), "the change changed nothing"
    assert isinstance(after[0], str) == (name in REFUSED)
    if name not in REFUSED:
        _, dialect, eager = after
        np.testing.assert_array_equal(eager, called(made.module, inputs))
        np.testing.assert_allclose(dialect, eager, rtol=1e-5, atol=1e-6)  # exported is what the module computes


def test_globals_by_name_are_refused() -> None:
    """torch 2.13's export cannot trace `globals()`, so nothing can be out of date."""
    module, space = program_of('return x * globals()["G"]', G=2.0)
    for value in (2.0, 3.0):
        space["G"] = value
        with pytest.raises(LoweringError, match="export failed"):
            lower(module, (X,), isa=Isa.DSP)


def test_an_unchanged_module_is_lowered_once() -> None:
    module = Own()
    first, second = (lower(module, (X,), isa=isa, options=FLOAT) for isa in (Isa.DSP, Isa.MVE))
    assert (cache.misses, cache.hits, cache.unkeyed) == (1, 1, 0) and first.isa is not second.isa
    with without_disk():
        assert lower(Own(), (X.clone(),), isa=Isa.DSP, options=FLOAT).pte == first.pte
    assert (cache.misses, cache.hits, cache.unkeyed) == (1, 2, 0)


@pytest.mark.slow
def test_calibration_options_and_ambient_state_are_in_the_key() -> None:
    module = nn.Linear(4, 4)

    def programs(**options: Any) -> int:
        lower(module, (X,), isa=Isa.DSP, options=LoweringOptions(**options))
        return cache.misses

    assert [programs(), programs(calibration=[(X,)]), programs(calibration=[(2 * X,)]), programs(quantize=False)] == [
        1, 1, 2, 3,
    ]  # fmt: skip
    with torch.autocast("cpu", enabled=False):
        assert programs() == 3
    with torch.device("cpu"):  # a mode over torch's functions: what it changes cannot be known
        assert "mode" in lower(module, (X,), isa=Isa.DSP).no_key
    assert (cache.misses, cache.unkeyed) == (3, 1)


def test_an_operator_of_the_users_has_no_key() -> None:
    """What it computes is Python code, and calibrating runs it."""

    @torch.library.custom_op("ways::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    exported = torch.export.export(Calls(lambda x: torch.ops.ways.twice(x) + 0), (X,), strict=True)
    assert key_of(exported) is None
    assert key_of(torch.export.export(Calls(lambda x: x * 2), (X,), strict=True)) is not None


def key_after(function: Callable[[Any], Any], x: Any = X) -> str | None:
    return key_of(torch.export.export(Calls(function), (x,), strict=True))


@pytest.mark.slow
def test_layout_sharing_and_branches_are_in_the_key() -> None:
    image = torch.rand(1, 2, 3, 3)
    assert key_after(torch.relu, image) != key_after(torch.relu, image.to(memory_format=torch.channels_last))
    one, other = nn.Linear(4, 4), nn.Linear(4, 4)
    other.load_state_dict(one.state_dict())
    apart, tied = (torch.export.export(nn.Sequential(one, last), (X,), strict=True) for last in (other, one))
    assert key_of(apart) != key_of(tied)
    whole = torch.rand(8)
    views, copies = [whole[:4], whole[4:]], [whole[:4].clone(), whole[4:].clone()]
    assert key_of(views) != key_of(copies)

    def branched(taken: Callable[[Any], Any]) -> str | None:
        return key_after(lambda x: torch.cond(x.sum() > 0, taken, lambda x: x * 2, (x,)))

    plus, minus, again = branched(lambda x: x + 1), branched(lambda x: x - 1), branched(lambda x: x + 1)
    assert plus is not None and minus is not None and plus == again != minus


numbers = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=3))
values = st.recursive(numbers, lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple))


@given(values, values)
def test_digests_are_equal_for_equal_values_only(some: Any, other: Any) -> None:
    assert (digest(some) == digest(other)) == (repr(some) == repr(other))


def test_no_value_of_an_unknown_type_has_a_digest() -> None:
    for value in (object(), Scale(1.0), scaled, lambda: 0, Own, np.zeros(2), torch.zeros(2).to_sparse()):
        with pytest.raises(NoContent):
            digest([value])


def test_the_files_of_the_compiler_are_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone edits a pass in site-packages, and the next process has other keys."""
    (tmp_path / "watched").mkdir()
    edited = tmp_path / "watched" / "__init__.py"
    edited.write_text("A = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    contents = compiler_files.files_digest.__wrapped__
    before = contents("watched")
    assert before == contents("watched")
    edited.write_text("A = 2\n")
    os.utime(edited, ns=(0, 1))
    changed = contents("watched")
    assert before != changed
    (tmp_path / "watched").rename(tmp_path / "elsewhere")
    shutil.copytree(tmp_path / "elsewhere", tmp_path / "copy" / "watched")
    monkeypatch.syspath_prepend(tmp_path / "copy")
    assert contents("watched") == changed  # another place and time, the same contents
    (tmp_path / "copy" / "watched" / "data.yaml").write_text("a: 1")
    assert contents("watched") != changed


def test_files_behind_links_are_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout's `src/executorch` consists of links: two commits of it once had the same keys."""
    passes = tmp_path / "backends" / "passes.py"
    passes.parent.mkdir()
    passes.write_text("A = 1\n")
    (tmp_path / "src" / "linked").mkdir(parents=True)
    (tmp_path / "src" / "linked" / "backends").symlink_to("../../backends")
    monkeypatch.syspath_prepend(tmp_path / "src")
    contents = compiler_files.files_digest.__wrapped__
    before = contents("linked")
    passes.write_text("A = 22\n")
    assert contents("linked") != before


# --- what is left behind --------------------------------------------------------------------------------------

SEEN: list[Any] = []
TABLES: dict[str, Any] = {}


@functools.lru_cache
def table(size: int) -> Any:
    return torch.arange(float(size))


class Keeps(nn.Module):
    """Keeps tensors wherever Python can."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.drop = nn.Dropout()
        self.cache: Any = None
        self.history: list[Any] = []
        self.scale = Scale(2.0)
        self.calls = 0

    def forward(self, x: Any) -> Any:
        if self.cache is None:
            self.cache = torch.arange(4.0) * 2
        self.calls += 1
        self.history.append(x)
        SEEN.append(x)
        TABLES["last"] = x * 2
        self.scale.last = x  # type: ignore[attr-defined]
        return self.drop(self.layer(x)) + self.cache + table(4)


@pytest.mark.slow
def test_a_module_that_keeps_tensors_is_unchanged_and_sees_no_fake_ones() -> None:
    module = Keeps()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    table.cache_clear()
    for isa in (Isa.DSP, Isa.MVE):
        program = lower(module, (X,), isa=isa)
    assert (module.cache, module.history, module.calls, vars(module.scale)) == (None, [], 0, {"by": 2.0})
    assert module.training and module.drop.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    for kept in (*SEEN, *TABLES.values(), table(4)):
        assert type(kept) is torch.Tensor
    assert program.reference is not None
    eager = program.reference(program.inputs).eager
    assert eager is not None
    np.testing.assert_array_equal(eager[0], module.eval()(X).detach().numpy())
    assert cache.misses == 1


@pytest.mark.slow
def test_a_function_that_uses_the_original_runs_in_eval_mode_and_changes_nothing() -> None:
    module = nn.Sequential(nn.Conv2d(2, 2, 1), nn.Dropout(0.9), nn.BatchNorm2d(2))
    module.forward = lambda x: module[2](module[1](module[0](x)))  # type: ignore[method-assign]
    image = torch.randn(1, 2, 3, 3)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    program = lower(module, (image,), isa=Isa.DSP, options=FLOAT)
    assert module.training and module[1].training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(value.is_contiguous() for value in module.state_dict().values())
    assert program.reference is not None
    found = program.reference(program.inputs)
    assert found.eager is not None and found.dialect is not None
    np.testing.assert_allclose(found.eager[0], module.eval()(image).detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(found.eager[0], found.dialect[0], atol=1e-5)


def test_an_export_keeps_the_layout_that_it_was_made_with() -> None:
    """The module's own weights are contiguous again when it is lowered."""
    module = nn.Conv2d(4, 4, 3)
    exported = trace(module, (torch.randn(1, 4, 5, 5).to(memory_format=torch.channels_last),), "channels_last")
    weight = exported.program.state_dict["weight"]
    assert weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
    assert module.weight.is_contiguous() and torch.equal(module.weight, weight)


def test_lowering_draws_no_random_numbers() -> None:
    torch.manual_seed(3)
    wanted = torch.rand(3)
    for hits in (0, 1):
        torch.manual_seed(3)
        lower(Calls(lambda x: x + 1), (X,), isa=Isa.DSP)
        assert torch.equal(torch.rand(3), wanted) and cache.hits == hits
    torch.manual_seed(3)
    with pytest.raises(LoweringError, match="draws random numbers"):
        lower(Calls(lambda x: x + torch.rand(4)), (X,), isa=Isa.DSP)
    assert torch.equal(torch.rand(3), wanted)


def test_what_was_lowered_does_not_change_with_the_module() -> None:
    """Weights, and a constant of another's, are shared with nothing that is remembered."""
    constant = torch.ones(4)
    layer = nn.Conv2d(2, 4, 1)
    module = nn.Sequential(layer, nn.BatchNorm2d(4), Calls(lambda x: x * constant)).eval()
    image = torch.randn(1, 2, 4, 4).to(memory_format=torch.channels_last)
    program = lower(module, (image,), isa=Isa.DSP)
    assert program.reference is not None
    other = (to_host(image + 1),)
    before = [program.reference(inputs) for inputs in (program.inputs, other)]
    with torch.no_grad():
        assert before[1].eager is not None
        np.testing.assert_allclose(before[1].eager[0], module(image + 1).numpy(), atol=1e-6)
        for parameter in layer.parameters():
            parameter.add_(1)
        constant.add_(1)
    after = [program.reference(inputs) for inputs in (program.inputs, other)]
    for some, others in zip(before, after, strict=True):
        for kind in ("dialect", "quantized", "eager"):
            np.testing.assert_array_equal(getattr(some, kind)[0], getattr(others, kind)[0])


# --- whose fault it is ----------------------------------------------------------------------------------------


class Counts(nn.Module):
    count: torch.Tensor
    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))
        self.register_buffer("mean", torch.zeros(4))
        self.table = torch.zeros(4)

    def forward(self, x: Any) -> Any:
        self.table[:2].add_(x.sum())  # the line
        return x + self.table


class Replaces(Counts):
    def forward(self, x: Any) -> Any:
        self.count = self.count + 1
        return x + self.count


class Averages(Counts):
    """What writes to its buffers says nothing of that in its schema."""

    def forward(self, x: Any) -> Any:
        return F.batch_norm(x, self.mean, self.count, training=True)


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith(text))


@pytest.mark.slow
def test_what_changes_and_is_no_state_is_refused_with_its_place() -> None:
    place = f"table at {__file__}:{line_of('# the line')}, which is no buffer"
    unseen = "in a way that torch.export does not see"
    refused = ((Counts(), place), (Replaces(), f"count {unseen}"), (Averages(), f"count, mean {unseen}"))
    for module, text in refused:
        with pytest.raises(LoweringError, match=f"forward changes {text}") as caught:
            lower(module, (X,), isa=Isa.DSP)
        assert "registered buffer" in caught.value.hint
        assert not module.get_buffer("count").any() and not module.table.any()


class Fresh(nn.Module):
    """What it makes anew in each call, and then writes to, is no constant of it; `detach_` of it writes nothing."""

    sum: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        table = torch.tensor([1.0, 2.0, 3.0, 4.0])
        table.add_(x[0])
        self.sum.add_(table)
        return x * self.sum + torch.index_select(x, 1, torch.tensor([2, 0, 3, 1]))


@pytest.mark.slow
def test_a_tensor_that_forward_makes_may_be_changed() -> None:
    module = Fresh()
    assert lower(module, (X,), isa=Isa.DSP).state_names == ("sum",)


class Divides(nn.Module):
    def forward(self, x: Any) -> Any:
        return x @ torch.ones(3, 3)  # the wrong line


@pytest.mark.parametrize(
    ("module", "inputs", "where"),
    [
        (Divides(), (X,), f"{__file__}:{line_of('# the wrong line')}: RuntimeError"),
        (nn.Linear(3, 3), (X,), "RuntimeError"),
        (nn.Linear(4, 4), (X.double(),), "RuntimeError"),
        (nn.Linear(4, 4), (X, X), "TypeError"),
    ],
)
def test_a_module_that_fails_by_itself_is_not_lowered(module: Any, inputs: tuple[Any, ...], where: str) -> None:
    with pytest.raises(ConfigError, match=f"itself fails on these inputs, before anything is lowered, at .*{where}"):
        lower(module, inputs, isa=Isa.DSP)


def test_other_wrong_calls_say_what_is_wrong() -> None:
    with pytest.raises(ConfigError, match="an input is a ndarray"):
        lower(nn.Linear(4, 4), (X.numpy(),), isa=Isa.DSP)
    with pytest.raises(ConfigError, match="ExportedProgram, not a function"):
        lower(scaled, (X,), isa=Isa.DSP)
    with pytest.raises(ConfigError, match="calibration sample 1 is") as caught:
        lower(nn.Linear(4, 4), (X,), isa=Isa.DSP, options=LoweringOptions(calibration=[(X,), (X[:, :3],)]))
    assert "quantize=False" not in caught.value.hint and "like the inputs" in caught.value.hint


def test_values_of_numpy_are_refused_with_their_place() -> None:
    module, _ = program_of("return x + torch.from_numpy(self.array)")
    module.array = np.ones(4, np.float32)
    with pytest.raises(LoweringError, match="lost the values of a constant") as caught:
        lower(module, (X,), isa=Isa.DSP)
    assert "register_buffer" in caught.value.hint
