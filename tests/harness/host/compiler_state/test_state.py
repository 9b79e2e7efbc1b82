"""Ways to change the compiler in memory: each is noticed, and then nothing is found or kept."""

from __future__ import annotations

import copy
import importlib
import math
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from command_line import environment
from cortex_m_hil.errors import LoweringError
from cortex_m_hil.host.compiler_state.state import compiler_state
from cortex_m_hil.lowering import clear_cache, executorch_api, lower
from cortex_m_hil.lowering.cache_keys import key_or_reason
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa
from trust import trust_again

CORTEX_M = "executorch.backends.cortex_m"
Change = Callable[[pytest.MonkeyPatch], object]
WAYS: dict[str, tuple[Change, str]] = {}  # with what is said of it


def way(said: str) -> Callable[[Change], Change]:
    def add(change: Change) -> Change:
        WAYS[change.__name__] = change, said
        return change

    return add


def module(name: str) -> Any:
    return importlib.import_module(f"{CORTEX_M}.{name}")


def utils() -> Any:
    return module("passes.passes_utils")


def manager() -> Any:
    return module("passes.cortex_m_pass_manager").CortexMPassManager


@way("math.frexp")
def function_of_math(patch: pytest.MonkeyPatch) -> None:
    exact = math.frexp
    patch.setattr(math, "frexp", lambda value: (exact(value)[0] * 0.75, exact(value)[1]))


@way(f"{CORTEX_M}.passes.passes_utils.quantize_multiplier_aot")
def function(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(utils(), "quantize_multiplier_aot", lambda scale: (1 << 30, 0))


@way(f"{CORTEX_M}.passes.passes_utils.quantize_multiplier_aot")
def code_of_a_function(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(utils().quantize_multiplier_aot, "__code__", (lambda scale: (1 << 30, 0)).__code__)


@way(f"{CORTEX_M}.passes.passes_utils.build_activation_lut")
def default_argument(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(utils().build_activation_lut, "__defaults__", (0,))


@way(f"{CORTEX_M}.passes.passes_utils.SHIFT_INT8")
def constant(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(utils(), "SHIFT_INT8", 19)


@way(f"{CORTEX_M}.passes.passes_utils.MORE")
def another_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(utils(), "MORE", 19, raising=False)


@way(f"{CORTEX_M}.passes.passes_utils.SHIFT_INT8")
def a_name_fewer(patch: pytest.MonkeyPatch) -> None:
    patch.delattr(utils(), "SHIFT_INT8")


@way(f"{CORTEX_M}.passes.cortex_m_pass_manager.CortexMPassManager.pass_list_transform_for_annotation")
def list_of_passes(patch: pytest.MonkeyPatch) -> None:
    passes = manager().pass_list_transform_for_annotation
    before = list(passes)
    passes[:] = [*before, before[-1]]
    patch.setattr(manager(), "pass_list_transform_for_annotation", passes)  # put back by name, and its items below
    UNDO.append(lambda: passes.__setitem__(slice(None), before))


@way("quant_max")
def field_of_a_frozen_value(patch: pytest.MonkeyPatch) -> None:
    spec = module("quantizer.quantization_configs").INT8_ACTIVATION_PER_TENSOR_QSPEC
    patch.setitem(vars(spec), "quant_max", 63)


@way(CORTEX_M)
def table_of_what_is_supported(patch: pytest.MonkeyPatch) -> None:
    table = module("quantizer.quantizer_support").CORTEX_M_QUANTIZER_SUPPORT_DICT
    before = dict(table)
    table.clear()
    UNDO.append(lambda: table.update(before))


@way(f"{CORTEX_M}.passes.cortex_m_pass_manager.CortexMPassManager.transform")
def method_by_another_of_the_compilers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(manager(), "transform", manager().transform_for_annotation)


@way(f"{CORTEX_M}.passes.replace_quant_nodes_pass.ReplaceQuantNodesPass.call")
def mock_of_a_method(patch: pytest.MonkeyPatch) -> None:
    patched = mock.patch.object(module("passes.replace_quant_nodes_pass").ReplaceQuantNodesPass, "call")
    patched.start()
    UNDO.append(patched.stop)


@way("torch.fx.graph.Graph.eliminate_dead_code")
def method_of_torch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torch.fx.Graph, "eliminate_dead_code", lambda self, *args, **kwargs: False)


@way("torch.nn.functional.silu")
def function_of_torch_by_another_of_torch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torch.nn.functional, "silu", torch.nn.functional.relu)


@way("torch.nn.functional.silu")
def function_of_torch_by_one_that_torch_wrapped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torch.nn.functional, "silu", torch.no_grad()(lambda x: x))


@way("the kernel aten/hardswish/CPU")
def kernel_of_torch(patch: pytest.MonkeyPatch) -> None:
    registry: Any = torch.library
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = registry.Library("aten", "IMPL")
        library.impl("hardswish", lambda x: x, "CPU")
    UNDO.append(library._destroy)


@way(f"{CORTEX_M}.passes.passes_utils")
def module_in_sys_modules(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sys.modules, utils().__name__, types.ModuleType("another"))


@way("executorch.more")
def module_that_nobody_imported(patch: pytest.MonkeyPatch) -> None:
    more = types.ModuleType("executorch.more")
    more.constant = 1  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "executorch.more", more)


UNDO: list[Callable[[], object]] = []


@pytest.fixture(autouse=True)
def everything_undone() -> Any:
    executorch_api()
    if compiler_state.problem():
        trust_again()  # operators that tests before these registered in this process
    assert compiler_state.problem() == ""
    yield
    while UNDO:
        UNDO.pop()()


@pytest.mark.slow
def test_what_is_warned_of_at_an_import_is_no_error_of_the_users() -> None:
    """Of ExecuTorch 1.5 on Python 3.11 or 3.12: it reads a resource in a way that is deprecated there."""
    code = "import cortex_m_hil, executorch.exir, warnings; warnings.warn('the user is warned as ever')"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.stderr.splitlines()[-1] == "UserWarning: the user is warned as ever"


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_a_changed_compiler_gives_no_key_from_then_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, said = WAYS[name]
    change(monkeypatch)
    key, reason = key_or_reason("anything")
    assert key is None and said in reason and reason.endswith("was changed in memory")
    monkeypatch.undo()
    assert key_or_reason("anything") == (None, reason)


def lowered() -> Program:
    torch.manual_seed(0)
    clear_cache()
    return lower(torch.nn.Linear(4, 4), (torch.rand(2, 4),), isa=Isa.DSP)


@pytest.mark.first_only
@pytest.mark.parametrize("change", [function_of_math, code_of_a_function, table_of_what_is_supported])
def test_what_a_changed_compiler_lowers_is_not_kept_and_nothing_is_found(
    change: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.MonkeyPatch.context() as place:
        place.setenv("HIL_CACHE_DIR", str(tmp_path))
        made, found = lowered(), lowered()
        assert not made.remembered and found.remembered
        entries = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        change(monkeypatch)
        try:
            assert lowered().pte != made.pte
        except LoweringError:
            assert change is table_of_what_is_supported
        monkeypatch.undo()
        assert not lowered().remembered
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == entries


def test_what_the_compiler_changes_itself_is_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIL_CACHE_DIR", str(tmp_path))
    program = lowered()
    assert program.reference is not None
    program.reference(program.inputs)
    assert compiler_state.problem() == ""
    copy.copy(module("target_config").CortexMTargetConfig.from_target_string("cortex-m4"))  # notes __slotnames__
    later = "executorch.exir.passes.cse_pass"  # a module of the compiler that no lowering here imports
    assert later not in sys.modules
    importlib.import_module(later)
    torch.compile(torch.nn.Linear(2, 2))  # puts wrappers around functions of torch
    assert compiler_state.problem() == ""


LATE = """
import importlib, sys
from cortex_m_hil.host.compiler_state.state import compiler_state
import executorch.exir
with compiler_state.shared_work("an operator of theirs"):
    if len(sys.argv) > 1:
        sys.modules["executorch.exir"].added = 3
    schema = importlib.import_module("executorch.extension.flat_tensor.serialize.flat_tensor_schema")
print(compiler_state.problem())
schema.TensorMetadata = None
print(compiler_state.problem())
"""


@pytest.mark.slow
@pytest.mark.parametrize("changes", [False, True])
def test_a_part_of_the_compiler_that_is_imported_late_is_no_change_and_is_watched(changes: bool) -> None:
    """As ExecuTorch's serialisation is, by the first lowering, be it one without a key."""
    name = "executorch.extension.flat_tensor.serialize.flat_tensor_schema.TensorMetadata"
    by_hand = "executorch.exir.added was changed while code of the user's may have run: an operator of theirs"
    command = [sys.executable, "-c", LATE, *(("change",) if changes else ())]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True, timeout=120)
    assert done.stdout.splitlines() == ([by_hand] * 2 if changes else ["", f"{name} was changed in memory"])


def test_what_code_of_the_users_changes_within_a_lowering_is_not_taken_for_the_compilers_own() -> None:
    with compiler_state.shared_work("an operator of theirs"):
        executorch_api()
    assert compiler_state.problem() == ""
    with compiler_state.shared_work("an operator of theirs"):
        list_of_passes(pytest.MonkeyPatch())
    assert compiler_state.problem().endswith("code of the user's may have run: an operator of theirs")
