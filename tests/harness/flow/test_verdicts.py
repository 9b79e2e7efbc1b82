"""Programs that fail: each gets the verdict that says what happened, and the next program runs."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from executorch.exir import to_edge
from executorch.exir.backend.backend_api import to_backend
from executorch.exir.backend.test.backend_with_compiler_demo import BackendWithCompilerDemo

from cortex_m_hil import flow
from cortex_m_hil.errors import (
    ConfigError,
    OutOfTargetMemory,
    ProgramRejected,
    SelfTestFailed,
    TargetFault,
    TargetHang,
    UnsupportedOperator,
)
from cortex_m_hil.flow import self_test
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.single_run import execute
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.lowering import quiet
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.run_results import RunResult
from cortex_m_hil.runner.session.session import Session
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from misbehaving import ASLEEP, BUSY, OPTIONS, STACK, UNALIGNED, UNDEFINED, UNMAPPED, bad, ones, program

NAMES = ["native", "m4-qemu", "m0-qemu", "m55-qemu"]
CORES = NAMES[1:]
# `multiplier` for hangs: 0.6 s of the engine's time, against milliseconds that the self-test takes.
SHORT = 0.01
TARGETS = load_targets()

nn = torch.nn


def simulators() -> set[int]:
    """What this process has started and is still alive: for each simulator its supervisor, which ends last."""
    return {child.pid for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE}


@pytest.fixture(scope="module")
def duts() -> Iterator[dict[str, Dut]]:
    """With the operators that misbehave, booted when first used."""
    opened = {name: flow.open_dut(resolve(name, TARGETS), options=OPTIONS) for name in NAMES}
    yield opened
    for dut in opened.values():
        dut.close()


# What refuses a program knows nothing of the core: one of them in `make test`.
REFUSING = [*NAMES[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[2:])]


@pytest.fixture(scope="module", params=REFUSING)
def dut(request: pytest.FixtureRequest) -> Iterator[Dut]:
    """With the operators of every day."""
    with flow.open_dut(resolve(request.param, TARGETS)) as opened:
        yield opened


def fault(dut: Dut, kind: int) -> TargetFault:
    """The verdict on a program that faults; afterwards a good program runs on the same Dut."""
    with pytest.raises(TargetFault) as caught:
        flow.run(dut, bad("fault", kind), ones())
    error = caught.value
    assert error.target == dut.target.name
    assert error.operator.startswith("hil_test::fault.out")
    flow.selftest(dut)
    dut.close()
    return error


# --- faults --------------------------------------------------------------------------------------------------

V6M = "HardFault (no status registers on this core)"


@pytest.mark.parametrize(
    ("name", "kind", "cause"),
    [
        ("m4-qemu", UNMAPPED, "BusFault (PRECISERR"),
        ("m55-qemu", UNMAPPED, "BusFault (PRECISERR"),
        ("m0-qemu", UNMAPPED, V6M),
        ("m4-qemu", UNDEFINED, "UsageFault (UNDEFINSTR"),
        ("m55-qemu", UNDEFINED, "UsageFault (UNDEFINSTR"),
        ("m0-qemu", UNDEFINED, V6M),
        ("m4-qemu", UNALIGNED, "UsageFault (UNALIGNED"),
        ("m55-qemu", UNALIGNED, "UsageFault (UNALIGNED"),
        ("m0-qemu", UNALIGNED, V6M),
    ],
)
def test_a_fault_names_exception_cause_function_and_line(
    duts: dict[str, Dut], name: str, kind: int, cause: str
) -> None:
    error = fault(duts[name], kind)
    assert cause in error.message
    function = {UNMAPPED: "read_unmapped", UNDEFINED: "undefined_instruction", UNALIGNED: "unaligned_access"}[kind]
    place = re.search(r"^  pc: +0x[0-9a-f]{8} in (\S+|.*?) at (\S+):(\d+)$", str(error), re.MULTILINE)
    assert place is not None
    assert function in place[1]
    assert place[2].endswith("kernels/testing.cpp")
    assert int(place[3]) > 1
    assert re.search(r"\bpc=0x[0-9a-f]{8} ", error.log)


def test_the_address_of_a_bad_access_is_told(duts: dict[str, Dut]) -> None:
    assert "at address 0xe8000000" in fault(duts["m4-qemu"], UNMAPPED).message


@pytest.mark.first_only
@pytest.mark.parametrize("name", CORES)
def test_a_stack_overflow_is_a_fault(duts: dict[str, Dut], name: str) -> None:
    error = fault(duts[name], STACK)
    if name != "m0-qemu":
        assert "stack" in str(error)


@pytest.mark.parametrize(
    ("kind", "cause"), [(UNMAPPED, "SEGV"), (UNDEFINED, "ILL"), (UNALIGNED, "BUS"), (STACK, "stack-overflow")]
)
def test_a_fault_of_the_native_runner_is_a_fault(duts: dict[str, Dut], kind: int, cause: str) -> None:
    assert cause in fault(duts["native"], kind).message


@pytest.mark.first_only
@pytest.mark.parametrize("name", NAMES)
def test_a_runner_that_leaves_without_a_word(duts: dict[str, Dut], name: str) -> None:
    """exit(3) within an operator: no fault, no kill from outside."""
    dut = duts[name]
    with pytest.raises(Exception, match="ended with status 3") as caught:
        flow.run(dut, bad("exit", 3), ones())
    assert getattr(caught.value, "operator", "").startswith("hil_test::exit.out")
    flow.selftest(dut)
    dut.close()


# --- hangs ---------------------------------------------------------------------------------------------------


@pytest.mark.first_only
@pytest.mark.parametrize("kind", [BUSY, ASLEEP], ids=["busy", "asleep"])
@pytest.mark.parametrize("name", NAMES)
def test_a_hang_names_the_operator_and_leaves_nothing_running(name: str, kind: int) -> None:
    before = simulators()
    with flow.open_dut(resolve(name, TARGETS), multiplier=SHORT, options=OPTIONS) as dut:
        with pytest.raises(TargetHang) as caught:
            flow.run(dut, bad("hang", kind), ones())
        assert caught.value.operator.startswith("hil_test::hang.out")
        assert caught.value.target == dut.target.name
        flow.selftest(dut)
        assert len(simulators() - before) == 1
    assert simulators() <= before


class Copy(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.clone(x)


def endless() -> Program:
    """A copy, and then a jump back to instruction 0, whose condition is always false."""
    from executorch.exir._serialize._program import PTEFile, deserialize_pte_binary, serialize_pte_binary
    from executorch.exir.schema import Bool, EValue, Instruction, JumpFalseCall

    parsed = deserialize_pte_binary(program(Copy()).pte)
    tree = getattr(parsed, "program", parsed)
    plan = tree.execution_plan[0]
    plan.values.append(EValue(Bool(False)))
    plan.chains[0].instructions.append(Instruction(JumpFalseCall(len(plan.values) - 1, 0)))
    return Program.from_bytes(bytes(serialize_pte_binary(PTEFile(program=tree))), "endless.pte")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["native", "m4-qemu"])
def test_a_program_that_never_stops_making_progress_hangs_too(name: str) -> None:
    with flow.open_dut(resolve(name, TARGETS), multiplier=SHORT) as dut:
        with pytest.raises(TargetHang):
            flow.run(dut, endless(), ones())
        flow.selftest(dut)


# --- the self-test ------------------------------------------------------------------------------------------


def test_a_kernel_that_fails_the_self_test_is_named_and_wrong_twice(tmp_path: Path) -> None:
    """quantized_linear without its bias."""
    firmware = tmp_path / "firmware"
    shutil.copytree(package_data("firmware"), firmware)
    linear = firmware / "runtime/builtin/kernels/linear.cpp"
    right = "linear.bias == nullptr ? 0 : linear.bias->as<int32_t>()[feature]"
    assert linear.read_text().count(right) == 1
    linear.write_text(linear.read_text().replace(right, f"0 * ({right})"))
    wrong = pytest.raises(SelfTestFailed, match="the self-test's output is")
    with flow.open_dut(resolve("native", TARGETS), firmware=firmware) as dut, wrong as caught:
        flow.selftest(dut)
    assert "quantized_linear" in caught.value.operator and caught.value.hint == self_test.SAME_AGAIN


def test_a_self_test_that_fails_in_another_way_each_time_is_told(
    duts: dict[str, Dut], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with memory that loses bits: here another input each time."""
    real_execute, values = execute, iter((0.25, 0.5))

    def disturbed(dut: Dut, session: Session, program: Program, inputs: tuple[HostTensor, ...]) -> RunResult:
        shape = inputs[0].array().shape
        return real_execute(dut, session, program, (HostTensor.from_array(np.full(shape, next(values), np.float32)),))

    monkeypatch.setattr(self_test, "execute", disturbed)
    with pytest.raises(SelfTestFailed) as caught:
        flow.selftest(duts["native"])
    assert caught.value.hint == self_test.OTHER_AGAIN


# --- programs that do not fit --------------------------------------------------------------------------------


class Exotic(nn.Module):
    """Many operators that no runner of this project has; one that gets a kernel leaves this list."""

    NAMES = (
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "expm1",
        "log2",
    )

    def forward(self, x: Any) -> Any:
        for name in self.NAMES:
            x = getattr(torch, name)(x)
        return x


@functools.cache
def many_unknown_operators() -> Program:
    return program(Exotic())


@pytest.mark.parametrize("linted", [True, False], ids=["by-lint", "by-the-runner"])
def test_all_missing_operators_are_named(dut: Dut, linted: bool) -> None:
    exotic = many_unknown_operators()
    missing = [instruction.operator for instruction in exotic.file.instructions]
    assert len(set(missing)) == len(Exotic.NAMES)
    with pytest.raises(UnsupportedOperator) as caught:
        flow.run(dut, exotic, ones(), linted=linted)
    assert [name for name in missing if name not in caught.value.message] == []
    assert caught.value.operator == missing[0]
    assert caught.value.target == dut.target.name
    flow.selftest(dut)


@pytest.mark.parametrize("linted", [True, False], ids=["by-lint", "by-the-runner"])
def test_an_ordinary_runner_has_no_misbehaving_kernels(dut: Dut, linted: bool) -> None:
    with pytest.raises(UnsupportedOperator, match=r"hil_test::hang\.out"):
        flow.run(dut, bad("hang", BUSY), ones(), linted=linted)


class Sine(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.sin(x)


@functools.cache
def delegated() -> Program:
    with quiet():
        edge = to_edge(torch.export.export(Sine(), (torch.ones(4),), strict=True)).exported_program()
        lowered = to_backend(BackendWithCompilerDemo.__name__, edge, [])
        return Program.from_bytes(bytes(lowered.buffer()), "delegated.pte")


@pytest.mark.parametrize("linted", [True, False], ids=["by-lint", "by-the-runner"])
def test_a_delegate_is_refused_by_name(dut: Dut, linted: bool) -> None:
    assert delegated().file.delegates == (BackendWithCompilerDemo.__name__,)
    with pytest.raises(UnsupportedOperator, match=BackendWithCompilerDemo.__name__) as caught:
        flow.run(dut, delegated(), ones(), linted=linted)
    assert "delegate" in caught.value.message
    flow.selftest(dut)


@pytest.mark.first_only
@pytest.mark.parametrize("linted", [True, False], ids=["by-lint", "by-the-runner"])
def test_too_much_planned_memory_says_how_much(dut: Dut, linted: bool) -> None:
    had = dut.target.board.memory.planned
    shape = (had // 4 + 16,)
    large = program(Copy(), (torch.ones(shape),))
    asked = large.file.planned_bytes
    assert asked > had
    with pytest.raises(OutOfTargetMemory) as caught:
        flow.run(dut, large, ones(shape), linted=linted)
    numbers = [int(number) for number in re.findall(r"\d+", caught.value.message)]
    assert had in numbers
    assert any(asked <= number < asked + 16 for number in numbers)  # the runner aligns each buffer to 16
    assert {"needs", "peak", "held"} <= {label for label, _ in caught.value.details}
    isa = dut.target.isa.value
    assert (
        f"no other target of {isa} holds it: the nearest, " in caught.value.hint
        or f"targets of {isa} that hold it: " in caught.value.hint
    )
    flow.selftest(dut)


@pytest.mark.parametrize("linted", [True, False], ids=["by-lint", "by-the-host"])
def test_too_large_a_file_says_how_large(dut: Dut, linted: bool) -> None:
    had = dut.target.board.memory.program.size
    large = Program.from_bytes(known_answer(dut.target.isa).program + bytes(had), "large.pte")
    with pytest.raises(OutOfTargetMemory) as caught:
        flow.run(dut, large, known_answer(dut.target.isa).inputs, linted=linted)
    assert {str(len(large.pte)), str(had)} <= set(re.findall(r"\d+", caught.value.message))
    flow.selftest(dut)


# --- bytes that are no program -------------------------------------------------------------------------------


def test_every_truncation_is_rejected_by_the_target(dut: Dut) -> None:
    whole = known_answer(dut.target.isa).program
    session = dut.session()
    for size in (*range(0, 64, 7), *range(64, len(whole), len(whole) // 23), len(whole) - 1):
        with pytest.raises(ProgramRejected) as caught:
            session.load(whole[:size])
        assert caught.value.target == dut.target.name
        assert caught.value.message
    flow.selftest(dut)
    assert dut.session() is session


def test_random_bytes_are_rejected_by_the_target(dut: Dut) -> None:
    random = np.random.default_rng(7)
    session = dut.session()
    for size in (1, 8, 64, 1000, 5000):
        for head in (b"", known_answer(dut.target.isa).program[:40]):
            with pytest.raises(ProgramRejected):
                session.load(head + random.bytes(size))
    flow.selftest(dut)


def test_a_rejection_says_why(dut: Dut) -> None:
    session: Session = dut.session()
    whole = known_answer(dut.target.isa).program
    for rubbish, why in ((b"x" * 100, "not a .pte"), (whole[:-8], "truncated"), (b"abc", "truncated")):
        with pytest.raises(ProgramRejected, match=re.escape(why)):
            session.load(rubbish)


def test_inputs_that_do_not_fit_are_refused_before_the_run_even_unlinted(dut: Dut) -> None:
    known = known_answer(dut.target.isa)
    wrong = HostTensor.from_array(np.ones((1, 15), np.float32))
    for inputs in ((), (wrong,), (*known.inputs, wrong)):
        with pytest.raises(ConfigError, match="input"):
            flow.run(dut, Program.from_bytes(known.program), inputs, linted=False)
