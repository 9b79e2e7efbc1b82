"""The runtime of an installed ExecuTorch: its adapter with the wheel's own libraries on the host, its sources with the
wheel's headers for every ISA class, and which prefixes are refused. No prefix for a Cortex-M is needed here: with one,
`pytest --runtime=executorch tests/targets` shows the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest
import torch
from torch import nn

from command_line import answer
from cortex_m_hil import export, flow
from cortex_m_hil.diagnose.compare_runtimes import compare_runtimes
from cortex_m_hil.errors import (
    BuildError,
    ConfigError,
    LintError,
    OutOfTargetMemory,
    ProgramRejected,
    ProtocolError,
    TargetFault,
    ToolchainError,
    UnsupportedOperator,
)
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.single_run import execute
from cortex_m_hil.host import timeouts, toolchain
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner import linked_executorch
from cortex_m_hil.runner.links.protocol import MemoryRegion, PayloadReader, Request
from cortex_m_hil.targets import executorch_prefix
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from cortex_m_hil.targets.target import ExecutorchInstall, Target
from dim_orders import Form, relaid
from installed import NAMED, executorch_of_this_machine
from networks import Apply
from portable_operators import BY_TORCH_ALONE, FAMILIES, NOT_IN_FORM, REFUSED, Compared, agree
from prefixes import FLAGS, make_prefix

TARGETS = load_targets()
CPUS = {"m0-qemu": "cortex-m0", "m4-qemu": "cortex-m4", "m55-qemu": "cortex-m55"}


# --- the adapter on the host ---------------------------------------------------------------------------------


class Floats(nn.Module):
    """Portable operators only: the wheel has no Cortex-M ones."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4 * 36, 5)

    def forward(self, x: Any) -> Any:
        return torch.softmax(self.head(torch.flatten(torch.relu(self.conv(x)), 1)), dim=-1)


@pytest.fixture(scope="module")
def dut() -> Iterator[Dut]:
    with flow.open_dut(resolve("native", TARGETS, runtime="executorch")) as opened:
        yield opened


@pytest.fixture(scope="module")
def program() -> Program:
    torch.manual_seed(3)
    return flow.lower(Floats(), (torch.randn(1, 3, 8, 8),), isa=Isa.SCALAR, quantize=False)


def eager(program: Program) -> Any:
    assert program.reference is not None
    references = program.reference(program.inputs)
    assert references.eager is not None
    return references.eager[0]


@pytest.mark.slow
def test_the_handshake_says_whose_runtime_this_is(dut: Dut) -> None:
    identity = dut.session().identity
    assert identity.runtime == "executorch"
    assert identity.runtime_version.startswith("1.")
    # More than one answer of the protocol holds.
    assert len("".join(identity.operators)) > identity.max_payload
    assert "aten::convolution.out" in identity.operators and "aten::add.out" in identity.operators
    assert "no Cortex-M operators" in dut.resolved.label


def test_environments_do_not_share_a_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner on the host finds the wheel's library by its path: one from an environment that is gone cannot start."""
    ours = linked_executorch.find_prefix(TARGETS["native"], tmp_path)
    shutil.copytree(ours.directory / "lib", tmp_path / "other" / "lib")
    shutil.copy(ours.directory / "version.py", tmp_path / "other")
    monkeypatch.setattr(toolchain, "executorch_package", lambda: tmp_path / "other")
    assert linked_executorch.find_prefix(TARGETS["native"], tmp_path).digest != ours.digest


def test_a_portable_program_gives_what_eager_gives(dut: Dut, program: Program) -> None:
    result = flow.run(dut, program)
    np.testing.assert_allclose(result.outputs[0].array(), eager(program), rtol=1e-5)
    assert not result.unwritten[0].any()
    assert 0 < result.stats["method"].used < result.stats["method"].size
    assert result.stats["planned"].used == program.file.planned_bytes
    assert result.stats["temp"].used > 0
    assert result.ticks > 0


def test_stepping_is_executing(dut: Dut, program: Program) -> None:
    """And every value is there after the step that writes it."""
    wanted = flow.run(dut, program).outputs[0]
    session = dut.session()
    session.load(program.pte)
    flow.prepare(session, program.inputs, flow.POISON)
    for instruction in program.file.instructions:
        step = session.step(1, dut.seconds)
        value = instruction.args[-1]
        spec = program.file.values[value].spec
        assert spec is not None and session.describe(MemoryRegion.VALUE, value) == spec
        poison = zlib.crc32(bytes([flow.POISON]) * spec.nbytes)
        assert session.digest(MemoryRegion.VALUE, value) != poison
    assert (step.next, step.done) == (0, True)
    assert session.get_output(0).data == wanted.data


def test_values_are_what_the_file_says(dut: Dut, program: Program) -> None:
    session = dut.session()
    loaded = session.load(program.pte)
    assert loaded.values == len(program.file.values)
    assert loaded.instructions == len(program.file.instructions)
    for value in program.file.values:
        if value.spec is not None:
            assert session.describe(MemoryRegion.VALUE, value.index) == value.spec
        if value.constant is not None and value.spec is not None:
            offset, size = value.constant
            constant = program.pte[offset : offset + size]
            assert session.read(MemoryRegion.VALUE, value.index, value.spec.nbytes) == constant[: value.spec.nbytes]
            with pytest.raises(ProtocolError, match="read only"):
                session.write(MemoryRegion.VALUE, value.index, b"\0")
            session = dut.session()
            session.load(program.pte)
    with pytest.raises(ProtocolError, match="no such value"):
        session.describe(MemoryRegion.VALUE, len(program.file.values))


def test_all_operators_that_are_missing_are_named(dut: Dut) -> None:
    module = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    lowered = flow.lower(module, (torch.randn(1, 8),), isa=Isa.SCALAR)
    with pytest.raises(UnsupportedOperator) as caught:
        dut.session().load(lowered.pte)
    for name in lowered.file.operators:
        assert name in caught.value.message


def test_mutated_bytes_are_refused_and_the_session_lives(dut: Dut, program: Program) -> None:
    session = dut.session()
    damaged = bytearray(program.pte)
    for at in range(64, 512, 5):
        damaged[at] ^= 0x5A
    for bytes_ in (b"", b"\0" * 64, program.pte[:200], bytes(damaged)):
        with pytest.raises(ProgramRejected):
            session.load(bytes_)
    assert flow.run(dut, program).outputs[0].array().shape == (1, 5)


@pytest.fixture(scope="module")
def cramped() -> Iterator[Dut]:
    """With pools of 1K and 512 bytes."""
    native = TARGETS["native"]
    memory = native.board.memory.resized(banks=[1024], method=512)
    small = dataclasses.replace(native, board=dataclasses.replace(native.board, memory=memory))
    with flow.open_dut(resolve("native", {"native": small}, runtime="executorch")) as opened:
        yield opened


def test_an_arena_larger_than_its_pool(cramped: Dut, program: Program) -> None:
    with pytest.raises(
        OutOfTargetMemory, match=rf"planned pool is too small.*: {program.file.planned_bytes} bytes requested"
    ):
        cramped.session().load(program.pte)


def test_a_method_that_needs_more_than_its_pool(cramped: Dut) -> None:
    lowered = flow.lower(Sums(), (torch.randn(4),), isa=Isa.SCALAR, quantize=False)
    with pytest.raises(OutOfTargetMemory, match=r"method pool is too small.*: [0-9]+ bytes requested, 512 available"):
        cramped.session().load(lowered.pte)


class PlusNumber(nn.Module):
    def forward(self, x: Any, dim: int) -> Any:
        return x + dim


def test_a_number_as_input_is_the_one_of_the_trace(dut: Dut) -> None:
    """ExecuTorch's own rule, in its own words."""
    lowered = flow.lower(PlusNumber(), (torch.ones(3), 2), isa=Isa.SCALAR, quantize=False)
    numbers = [index for index, spec in enumerate(lowered.file.input_specs()) if not spec.shape]
    result = flow.run(dut, lowered)
    assert result.outputs[0].array().tolist() == [3.0, 3.0, 3.0]
    given = list(lowered.inputs)
    given[numbers[0]] = HostTensor.from_scalar(5)
    with pytest.raises(ProgramRejected, match=r"set_input: Error::InvalidArgument: .* should have the same value"):
        execute(dut, dut.session(), lowered, tuple(given))
    with pytest.raises(ConfigError, match=r"input \d is 5, and the program was lowered with 2"):
        flow.run(dut, lowered, tuple(given))


def test_what_executorch_logs_reaches_the_host(dut: Dut, program: Program) -> None:
    """A kernel that refuses its arguments: its error's name, its line, its operator."""
    narrow = bytearray(program.pte)
    spec = program.file.values[program.file.instructions[0].args[-1]].spec
    assert spec is not None
    shape = np.array(spec.shape, "<i4").tobytes()
    at = narrow.find(shape)
    assert at > 0
    narrow[at + 8 : at + 12] = np.array([spec.shape[2] - 1], "<i4").tobytes()
    session = dut.session()
    session.load(bytes(narrow))
    flow.prepare(session, program.inputs, flow.POISON)
    with pytest.raises(ProgramRejected) as caught:
        session.execute(dut.seconds)
    assert "Method::step: Error::InvalidArgument: " in caught.value.message and ".cpp:" in caught.value.message
    where = re.search(r"\(operator (\d+)\)", caught.value.message)
    assert where is not None
    assert caught.value.operator == program.file.instructions[int(where[1])].operator
    assert "[error]" in session.log
    assert flow.run(dut, program).outputs  # and the next program runs


def test_an_abort_says_which_assertion_failed(dut: Dut) -> None:
    """A number where the operator takes a tensor: ExecuTorch's registry asserts."""
    lowered = flow.lower(Sums(), (torch.randn(4),), isa=Isa.SCALAR, quantize=False)
    x, _, alpha, *_ = lowered.file.instructions[0].args
    bad = bytearray(lowered.pte)
    at = bad.find(struct.pack("<iii", x, x, alpha))
    assert at > 0
    bad[at : at + 4] = struct.pack("<i", alpha)
    with pytest.raises(TargetFault, match=r"it: ExecuTorch aborted: .*isTensor\(\).*evalue\.h") as caught:
        flow.run(dut, dataclasses.replace(lowered, pte=bytes(bad)), linted=False)
    assert caught.value.operator == "aten::add.out (aten_add_tensor)"
    assert flow.run(dut, lowered).outputs


# --- compare-runtimes ----------------------------------------------------------------------------------------


class Copies(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.cat([x[0], x[1]], dim=0).unsqueeze(0)


def test_compare_runtimes_finds_no_difference_between_equal_kernels(dut: Dut) -> None:
    lowered = flow.lower(Copies(), (torch.randn(2, 3, 4),), isa=Isa.SCALAR, quantize=False)
    with flow.open_dut(resolve("native", TARGETS)) as builtin:
        found = list(compare_runtimes(builtin, dut, lowered, lowered.inputs))
    assert len(found) == len(lowered.file.instructions) and not any(found)


@pytest.mark.first_only
@pytest.mark.parametrize("family", [name for name, one in FAMILIES.items() if one.in_executorch])
def test_portable_operators_compute_what_executorchs_do(dut: Dut, family: str) -> None:
    """Bit for bit, but for libm's functions and for sums that the wheel's kernels, which are not all the portable ones,
    add in vectors. Random shapes: tests/nightly has more.
    """
    with flow.open_dut(resolve("native", TARGETS)) as builtin:
        agree(builtin, dut, family, seed=1)


SHOWS_ALL = 10
"""A seed whose families show all operators in all forms."""


@pytest.mark.slow
def test_portable_operators_compute_what_executorchs_do_in_other_dim_orders(dut: Dut) -> None:
    """And what torch does, where those refuse. Operators that are not shown in a form, or not compared, have a row."""
    with flow.open_dut(resolve("native", TARGETS)) as builtin:
        operators = {name for name in builtin.session().identity.operators if not name.startswith("cortex_m::")}
        for form, excepted in NOT_IN_FORM.items():
            found = Compared()
            for family in FAMILIES:
                found |= agree(builtin, dut, family, SHOWS_ALL, form)
            assert operators - found.met == set(itertools.chain(*excepted.values())), form
            assert found.met - found.computed <= set(itertools.chain(*REFUSED[form].values())), form
            if form is Form.CHANNELS_LAST:
                assert found.computed - found.by_both == set(BY_TORCH_ALONE)


def test_a_softmax_of_channels_last_images_writes_outside_of_them(dut: Dut) -> None:
    """Known bug 37 (docs/known_bugs.md): of two channels over the width, over what lies behind: x, which abs takes."""
    x = torch.randn(1, 2, 3, 4)
    module = Apply(lambda x: (torch.softmax(x, 3), x.abs()))
    lowered = flow.lower(export(module, (x,), layout="explicit"), isa=Isa.SCALAR, quantize=False)
    images = relaid(lowered, Form.CHANNELS_LAST, 0)
    softmax = images.file.values[images.file.outputs[0]].planned
    assert softmax is not None and softmax.offset + 2 * softmax.nbytes <= images.file.planned_bytes
    with pytest.raises(LintError, match=r"takes it contiguous.*runtime executorch"):
        flow.run(dut, images)
    _, wrong = flow.run(dut, images, linted=False).outputs
    assert not np.allclose(wrong.array(), x.abs().numpy())
    _, right = flow.run(dut, lowered).outputs
    np.testing.assert_array_equal(right.array(), x.abs().numpy())


def test_two_runtimes_that_differ_are_told_apart_at_the_operator(dut: Dut) -> None:
    """The second of three sums starts from a NaN in one runtime only: what the host wrote there in between."""
    lowered = flow.lower(Sums(), (torch.randn(4),), isa=Isa.SCALAR, quantize=False)
    with flow.open_dut(resolve("native", TARGETS)) as builtin:
        session = dut.session()
        step = session.step
        victim = lowered.file.instructions[1].args[-1]

        def spoil(count: int, seconds: float) -> Any:
            done = step(count, seconds)
            if done.next == 2:
                session.write(MemoryRegion.VALUE, victim, np.float32(1e6).tobytes())
            return done

        session.step = spoil  # type: ignore[method-assign]
        try:
            found = list(compare_runtimes(builtin, dut, lowered, lowered.inputs))
        finally:
            session.step = step  # type: ignore[method-assign]
    assert [one is not None for one in found] == [False, True, False]
    assert found[1] is not None and (found[1].instruction, found[1].elements, found[1].numel) == (1, 1, 4)


def test_a_program_of_a_newer_executorch_is_not_counted_as_refused(dut: Dut, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = flow.lower(nn.Linear(8, 4), (torch.randn(1, 8),), isa=Isa.SCALAR)
    with flow.open_dut(resolve("native", TARGETS)) as builtin:
        with pytest.raises(UnsupportedOperator, match=r"^executorch: "):
            list(compare_runtimes(builtin, dut, lowered, lowered.inputs))
        monkeypatch.setattr(executorch_prefix, "lacking_operators", lambda _: ("cortex_m::quantized_linear.out",))
        with pytest.raises(ToolchainError, match=r"^executorch: .*quantized_linear"):
            list(compare_runtimes(builtin, dut, lowered, lowered.inputs))


def compare(*arguments: object) -> tuple[int, str]:
    """`hil compare-runtimes` on the host, where the wheel is the installed ExecuTorch."""
    command = [sys.executable, "-m", "cortex_m_hil.cli", "compare-runtimes", "-t", "native", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_programs_that_were_kept_are_compared_on_their_inputs(
    dut: Dut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dut, "keep", tmp_path)
    for name, module, x, quantize in (
        ("copies", Copies(), torch.randn(2, 3, 4), False),
        ("linear", nn.Linear(8, 4), torch.randn(1, 8), True),
    ):
        monkeypatch.setattr(dut, "what", name)
        with contextlib.suppress(UnsupportedOperator):
            flow.run(dut, flow.lower(module, (x,), isa=Isa.SCALAR, quantize=quantize))
    copies, linear = sorted(tmp_path.glob("*.pte"))
    status, said = compare(copies, linear)
    assert status == 1
    assert "UnsupportedOperator: executorch: " in said and "cortex_m::quantized_linear.out" in said
    assert said.splitlines()[-1] == "2 programs, 4 results compared: 0 differ; 1 program not compared"
    assert compare(copies)[0] == 0
    found = answer(compare(copies, linear, "--json")[1])
    assert [one["compared"] for one in found["programs"]] == [4, 0] and found["programs"][0]["differences"] == []
    assert found["programs"][1]["error"]["type"] == "UnsupportedOperator"
    assert [one["runtime"] for one in found["runtimes"]] == ["builtin", "executorch"]
    np.save(flow.kept_input(copies, 0), np.zeros(3))  # and not inputs of another origin
    status, said = compare(copies)
    assert status == 2 and f"{flow.kept_input(copies, 0)} is float64[3]" in said


class Sums(nn.Module):
    def forward(self, x: Any) -> Any:
        return ((x + x) + x) + x


# --- its sources, for every ISA class ------------------------------------------------------------------------


@pytest.mark.first_only
@pytest.mark.parametrize(
    "name", ["m0-qemu", *(pytest.param(name, marks=pytest.mark.slow) for name in ("m4-qemu", "m55-qemu"))]
)
@pytest.mark.parametrize(
    "source",
    ["runtime.cpp", "pal.cpp", "memory.cpp", "portable_operators.cpp", "printf.cpp", "method_access_check.cpp"],
)
def test_the_adapter_compiles_with_the_wheels_headers(name: str, source: str, tmp_path: Path) -> None:
    firmware = package_data("firmware")
    include = toolchain.executorch_package() / "include"
    command = [
        str(toolchain.find("arm-none-eabi-g++").path), "-mthumb", *FLAGS[name], "-std=c++17", "-O2",
        "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wno-deprecated-declarations", "-Wno-psabi",
        "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics",
        "-DC10_USING_CUSTOM_GENERATED_MACROS", '-DHIL_EXECUTORCH_VERSION="x"',
        f"-I{firmware}", "-isystem", str(include),
        "-isystem", str(include / "executorch" / "runtime" / "core" / "portable_type" / "c10"),
        "-c", str(firmware / "runtime" / "executorch" / source), "-o", str(tmp_path / "out.o"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    symbols = subprocess.run(
        ["arm-none-eabi-nm", "-u", str(tmp_path / "out.o")], capture_output=True, text=True, check=True
    ).stdout
    assert not {"_Znwj", "malloc", "free", "calloc", "realloc"} & set(symbols.split())  # no heap in our code


FORMATS = """
#include <cstdarg>
#include <cstdio>
#include <cstring>
#undef vsnprintf
#undef snprintf
extern "C" int hil_snprintf(char*, size_t, const char*, ...);
#define CHECK(...) do { char a[64], b[64]; int n = hil_snprintf(a, sizeof a, __VA_ARGS__); \\
  int m = std::snprintf(b, sizeof b, __VA_ARGS__); \\
  if (n != m || std::strcmp(a, b) != 0) { std::printf("%s, not %s\\n", a, b); bad = 1; } } while (0)
int main() {
  int bad = 0;
  CHECK("%zu:%zu in %s.%s", size_t(3), size_t(4), "a", "b");
  CHECK("%d %i %u %x", -12, 34, 56u, 0xabcu);
  CHECK("%lld %llu", -1234567890123LL, 18446744073709551615ULL);
  CHECK("%hhu %hd", 200, -3);
  CHECK("%.4s|%8s|%-8s|%c|%%", "ET12xx", "right", "left", 'c');
  CHECK("%08x %#x %5d|%-5d|%05d", 0xbeefu, 0x1fu, 42, 42, -42);
  CHECK("%f %f %f", 0.1, -2.5, 1234567.875);
  CHECK("%*d %.*s", 6, 7, 2, "abc");
  CHECK("cut off: %s", "a long text that does not fit into the sixty-four bytes there are");
  CHECK("%zd %td", (long)-5, (long)6);
  return bad;
}
"""


def test_log_lines_are_formatted_as_the_hosts_library_would(tmp_path: Path) -> None:
    """What ExecuTorch's messages use. newlib as Debian builds it knows no %zu."""
    (tmp_path / "main.cpp").write_text(FORMATS)
    source = package_data("firmware") / "runtime" / "executorch" / "printf.cpp"
    rename = ["-Dvsnprintf=hil_vsnprintf", "-Dsnprintf=hil_snprintf"]
    for command in (
        ["g++", "-std=c++17", "-w", *rename, "-fpermissive", "-c", str(source), "-o", str(tmp_path / "printf.o")],
        [
            "g++",
            "-std=c++17",
            "-w",
            str(tmp_path / "main.cpp"),
            str(tmp_path / "printf.o"),
            "-o",
            str(tmp_path / "main"),
        ],
        [str(tmp_path / "main")],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


# --- prefixes ------------------------------------------------------------------------------------------------


def with_install(name: str, path: str, **more: Any) -> Target:
    return dataclasses.replace(TARGETS[name], executorch=ExecutorchInstall(path, "targets.yaml:3", **more))


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(executorch_prefix.VARIABLE, raising=False)


@pytest.mark.parametrize("name", FLAGS)
def test_a_prefix_for_this_cpu_is_taken(name: str, tmp_path: Path) -> None:
    folder = make_prefix(tmp_path / CPUS[name], FLAGS[name])
    found = linked_executorch.find_prefix(with_install(name, f"{tmp_path}/{{cpu}}"), tmp_path / "cache")
    assert found.directory == folder
    assert found.digest[:8] in found.version


def test_a_prefix_for_the_m0plus_is_taken_for_the_m0(tmp_path: Path) -> None:
    make_prefix(tmp_path / "cortex-m0plus", ["-mcpu=cortex-m0plus"])
    target = with_install("m0-qemu", f"{tmp_path}/{{cpu}}")
    assert linked_executorch.find_prefix(target, tmp_path / "cache").directory.name == "cortex-m0plus"
    make_prefix(tmp_path / "cortex-m0", ["-mcpu=cortex-m0"])
    assert linked_executorch.find_prefix(target, tmp_path / "cache").directory.name == "cortex-m0"


@pytest.mark.parametrize(
    "built_for, wants, said",
    [
        (
            "m55-qemu",
            "m4-qemu",
            "are for armv8-m.main+fp.dp+dsp+mve.fp, cortex-m4/dsp/mps2-an386 needs armv7e-m+fp+dsp",
        ),
        ("m4-qemu", "m55-qemu", "are for armv7e-m+fp+dsp"),
        ("m0-qemu", "m4-qemu", "are for armv6-m,"),
        ("m55-qemu", "m55-scalar-qemu", "needs armv8-m.main+fp.dp"),  # the right core, another path of CMSIS-NN
    ],
)
def test_a_prefix_for_another_cpu_is_refused(built_for: str, wants: str, said: str, tmp_path: Path) -> None:
    make_prefix(tmp_path / "prefix", FLAGS[built_for])
    with pytest.raises(ConfigError, match="TARGET_CPU=") as caught:
        linked_executorch.find_prefix(with_install(wants, str(tmp_path / "prefix")), tmp_path)
    assert said in caught.value.message


def test_a_soft_float_prefix_is_refused(tmp_path: Path) -> None:
    make_prefix(tmp_path / "prefix", ["-mcpu=cortex-m4", "-mfloat-abi=soft"])
    with pytest.raises(ConfigError, match=r"are for armv7e-m\+dsp"):
        linked_executorch.find_prefix(with_install("m4-qemu", str(tmp_path / "prefix")), tmp_path)


def test_a_prefix_of_the_host_is_refused(tmp_path: Path) -> None:
    make_prefix(tmp_path / "prefix", FLAGS["m4-qemu"])
    core = tmp_path / "prefix" / "lib" / "libexecutorch_core.a"
    core.unlink()
    source = tmp_path / "x.c"
    source.write_text('const char identifier[] = "ET12";\n')
    subprocess.run(["gcc", "-c", str(source), "-o", str(tmp_path / "x.o")], check=True)
    subprocess.run(["ar", "rc", str(core), str(tmp_path / "x.o")], check=True)
    with pytest.raises(ConfigError, match="are for no Cortex-M"):
        linked_executorch.find_prefix(with_install("m4-qemu", str(tmp_path / "prefix")), tmp_path)


def test_a_prefix_without_cortex_m_operators_is_refused(tmp_path: Path) -> None:
    make_prefix(tmp_path / "prefix", FLAGS["m4-qemu"])
    (tmp_path / "prefix" / "lib" / "libcortex_m_ops_lib.a").unlink()
    with pytest.raises(ConfigError, match="without the Cortex-M operators"):
        linked_executorch.find_prefix(with_install("m4-qemu", str(tmp_path / "prefix")), tmp_path)


def test_a_prefix_of_another_schema_is_refused(tmp_path: Path) -> None:
    make_prefix(tmp_path / "prefix", FLAGS["m4-qemu"], identifier="ET11")
    with pytest.raises(ConfigError, match="another schema than ET12"):
        linked_executorch.find_prefix(with_install("m4-qemu", str(tmp_path / "prefix")), tmp_path)


def test_a_missing_executorch_install_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no ExecuTorch is installed there"):
        linked_executorch.find_prefix(with_install("m4-qemu", str(tmp_path)), tmp_path)
    with pytest.raises(ConfigError, match="no ExecuTorch is installed for cortex-m4") as caught:
        linked_executorch.find_prefix(TARGETS["m4-qemu"], tmp_path)
    assert executorch_prefix.VARIABLE in caught.value.hint


def test_the_variable_goes_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_prefix(tmp_path / "cortex-m4", FLAGS["m4-qemu"])
    monkeypatch.setenv(executorch_prefix.VARIABLE, f"{tmp_path}/{{cpu}}")
    assert (
        linked_executorch.find_prefix(with_install("m4-qemu", "/nowhere"), tmp_path).directory == tmp_path / "cortex-m4"
    )


def test_a_registry_that_the_prefix_does_not_have(tmp_path: Path) -> None:
    make_prefix(tmp_path / "prefix", FLAGS["m4-qemu"])
    target = with_install("m4-qemu", str(tmp_path / "prefix"), libraries=("portable_ops_lib",))
    with pytest.raises(ConfigError, match="no libportable_ops_lib") as caught:
        linked_executorch.find_prefix(target, tmp_path)
    assert "cortex_m_ops_lib" in caught.value.hint


def test_what_is_installed_is_in_its_version(tmp_path: Path) -> None:
    make_prefix(tmp_path / "prefix", FLAGS["m4-qemu"])
    target = with_install("m4-qemu", str(tmp_path / "prefix"))
    before = linked_executorch.find_prefix(target, tmp_path)
    (tmp_path / "prefix" / "lib" / "libcmsis-nn.a").write_bytes(b"another kernel")
    after = linked_executorch.find_prefix(target, tmp_path)
    assert before.digest != after.digest and before.version != after.version


# --- the user's own build ------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "kernel.cpp").write_text("// a kernel\n")
    (folder / "version.txt").write_text("1.9.9\n")
    os.utime(folder / "kernel.cpp", (1e9, 1e9))
    os.utime(folder / "version.txt", (1e9, 1e9))
    return folder


def built(tmp_path: Path, source: Path, command: str) -> Target:
    return with_install("m4-qemu", f"{tmp_path}/{{cpu}}", source=source, build=command, base=tmp_path)


def test_a_build_runs_when_the_source_is_newer_and_only_then(tmp_path: Path, source: Path) -> None:
    ready = make_prefix(tmp_path / "ready", FLAGS["m4-qemu"])
    command = f'echo "$HIL_CPU $HIL_SOURCE" >> calls; mkdir -p "$HIL_PREFIX"; cp -rp {ready}/. "$HIL_PREFIX"'
    target = built(tmp_path, source, command)
    calls = tmp_path / "calls"
    for _ in range(2):
        found = linked_executorch.find_prefix(target, tmp_path / "cache")
    assert calls.read_text() == f"cortex-m4 {source}\n"
    assert found.version.startswith("1.9.9")
    os.utime(source / "kernel.cpp", None)
    linked_executorch.find_prefix(target, tmp_path / "cache")
    linked_executorch.find_prefix(
        target, tmp_path / "cache"
    )  # although the install left the libraries as old as they were
    assert len(calls.read_text().splitlines()) == 2


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, source: Path) -> None:
    with pytest.raises(ConfigError, match="in /dev/null/prefixes: Not a directory") as caught:
        linked_executorch.find_prefix(built(tmp_path, source, "true"), Path("/dev/null"))
    assert "HIL_CACHE_DIR" in caught.value.hint


def test_a_build_that_another_process_does_not_finish_is_told(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "EXECUTORCH_BUILD", 0.01)
    cache, target = tmp_path / "cache", built(tmp_path, source, "sleep 600")
    with pytest.raises(BuildError):
        linked_executorch.find_prefix(target, cache)
    [lock] = (cache / "prefixes").glob("*.lock")
    with filelock.FileLock(lock), pytest.raises(BuildError, match="another process") as caught:
        linked_executorch.find_prefix(target, cache)
    assert str(lock) in caught.value.message and "end" in caught.value.hint


def test_what_a_build_writes_into_the_source_does_not_make_the_prefix_old(tmp_path: Path, source: Path) -> None:
    ready = make_prefix(tmp_path / "ready", FLAGS["m4-qemu"])
    command = (
        "echo again >> calls; mkdir -p source/out; touch source/out/CMakeCache.txt source/out/made.cpp;"
        f' mkdir -p "$HIL_PREFIX"; cp -rp {ready}/. "$HIL_PREFIX"'
    )
    target = built(tmp_path, source, command)
    linked_executorch.find_prefix(target, tmp_path / "cache")
    os.utime(source / "out" / "made.cpp", (4e9, 4e9))
    linked_executorch.find_prefix(target, tmp_path / "cache")
    assert (tmp_path / "calls").read_text() == "again\n"


def test_a_build_that_fails_is_a_build_error_with_its_log(tmp_path: Path, source: Path) -> None:
    target = built(tmp_path, source, "echo a compiler complains; exit 3")
    with pytest.raises(BuildError, match="ended with status 3") as caught:
        linked_executorch.find_prefix(target, tmp_path / "cache")
    assert "a compiler complains" in caught.value.log
    log = Path(caught.value.hint.rsplit(" ", 1)[1])
    assert "a compiler complains" in log.read_text()


def test_a_build_that_fails_names_the_first_error(tmp_path: Path, source: Path) -> None:
    (source / "kernel.cpp").write_text("int first() {\n  return missing;\n}\nint second() { return absent; }\n")
    with pytest.raises(BuildError) as caught:
        linked_executorch.find_prefix(
            built(tmp_path, source, "arm-none-eabi-g++ -c source/kernel.cpp"), tmp_path / "cache"
        )
    assert re.search(r"status 1: source/kernel.cpp:2:10: error: .missing. was not declared", caught.value.message)
    assert "submodule" not in caught.value.hint


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, timeout=60)


def test_submodules_that_a_build_misses_are_named_with_the_command_that_gets_them(tmp_path: Path) -> None:
    """Of a checkout with four: one is there, one was copied there, one is needed and absent, one is absent."""
    names = ("json", "json-more", "flatcc", "tokenizers")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "CMakeLists.txt").write_text("message(STATUS ${CMAKE_CURRENT_SOURCE_DIR})\n")
        git(tmp_path / name, "init", "-q")
        git(tmp_path / name, "add", ".")
        git(tmp_path / name, "commit", "-qm", "one")
    origin, checkout = tmp_path / "origin", tmp_path / "my checkout"
    origin.mkdir()
    git(origin, "init", "-q")
    for name in names:
        git(origin, "submodule", "add", "-q", str(tmp_path / name), f"third-party/{name}")
    text = "cmake_minimum_required(VERSION 3.19)\nproject(p NONE)\nadd_subdirectory(third-party/json-more)\n"
    text += "add_subdirectory(third-party/flatcc)\nadd_subdirectory(third-party/json)\n"
    (origin / "CMakeLists.txt").write_text(text)
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "one")
    git(tmp_path, "clone", "-q", str(origin), str(checkout))
    git(checkout, "submodule", "update", "-q", "--init", "third-party/json-more")
    shutil.copy(tmp_path / "flatcc" / "CMakeLists.txt", checkout / "third-party" / "flatcc")
    with pytest.raises(BuildError, match=r"status 1: .*my checkout lacks 1 submodule: third-party/json\n") as caught:
        linked_executorch.find_prefix(built(tmp_path, checkout, 'cmake -S "$HIL_SOURCE" -B out'), tmp_path / "cache")
    command, _, rest = caught.value.hint.partition("; ")
    assert command == f"git -C '{checkout}' submodule update --init --depth 1 third-party/json"
    assert rest.startswith("the whole of what it said is in ")


def test_a_build_that_leaves_no_prefix_is_told(tmp_path: Path, source: Path) -> None:
    with pytest.raises(ConfigError, match="no ExecuTorch is installed there"):
        linked_executorch.find_prefix(built(tmp_path, source, "true"), tmp_path / "cache")


# --- targets.yaml --------------------------------------------------------------------------------------------


def runtimes(folder: Path, text: str) -> Target:
    path = folder / "targets.yaml"
    path.write_text(text)
    return load_targets(path)["m4-qemu"]


def test_targets_yaml_says_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    target = runtimes(
        tmp_path,
        "runtimes:\n  executorch:\n    prefix: out/{cpu}\n    source: src\n    build: make\n    libraries: [a, b]\n",
    )
    assert target.executorch == ExecutorchInstall(
        f"{tmp_path}/out/{{cpu}}", "targets.yaml:2", tmp_path / "src", "make", ("a", "b"), tmp_path
    )


@pytest.mark.parametrize(
    "text, said",
    [
        ("runtimes: {executorch: {prefx: x}}", "unknown key 'prefx'"),
        ("runtimes: {executorsh: {prefix: x}}", "unknown key 'executorsh'"),
        ("runtimes: {executorch: {prefix: 'x/{isa}'}}", "{isa} has no meaning"),
        ("runtimes: {executorch: {prefix: x, build: make}}", "build: needs source:"),
        ("runtimes: {executorch: {prefix: x, source: nowhere}}", "no folder"),
        ("runtimes: {executorch: {source: .}}", "prefix: missing"),
        ("runtimes: {}\nruntime: {}", "unknown key 'runtime'"),
    ],
)
def test_targets_yaml_is_strict_about_it(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        runtimes(tmp_path, text + "\n")
    assert said in str(caught.value)


def test_the_request_for_further_operators_has_an_end(dut: Dut) -> None:
    session = dut.session()
    count = len(session.identity.operators)
    for first in (count, count + 1, 2**32 - 1):
        asked = struct.pack("<II", first, session.identity.max_payload)
        assert session._ask(Request.OPERATORS, asked, PayloadReader.rest) == struct.pack("<I", count)


def test_an_input_has_any_size_up_to_its_upper_bounds(dut: Dut) -> None:
    """Until the next load, and no larger; one of fixed shape has its own."""
    given, shapes = (torch.rand(4, 6),), ({0: torch.export.Dim("rows", min=1, max=8)},)
    lowered = flow.lower(nn.ReLU(), given, isa=Isa.SCALAR, quantize=False, dynamic_shapes=shapes)
    fixed = flow.lower(nn.ReLU(), given, isa=Isa.SCALAR, quantize=False)

    def shape_after(program: Program, *sizes: int) -> tuple[int, ...]:
        session = dut.session()
        session.load(program.pte)
        session._ask(Request.RESIZE, struct.pack(f"<IB{len(sizes)}i", 0, len(sizes), *sizes))
        spec = session.describe(MemoryRegion.INPUT, 0)
        assert spec is not None and len(session.read(MemoryRegion.INPUT, 0, spec.nbytes)) == spec.nbytes
        session.load(program.pte)
        assert session.describe(MemoryRegion.INPUT, 0) == program.file.input_specs()[0]
        return spec.shape

    assert [shape_after(lowered, rows, 6) for rows in (8, 1, 3)] == [(8, 6), (1, 6), (3, 6)]
    assert shape_after(fixed, 4, 6) == (4, 6)
    for program, sizes in ((lowered, (9, 6)), (lowered, (3,)), (fixed, (3, 6))):
        with pytest.raises(ProtocolError, match=r"RESIZE: BAD_REQUEST: resize_tensor: Error::\w+: .*\.cpp:\d+"):
            shape_after(program, *sizes)


@pytest.mark.parametrize(("hidden", "found"), [(None, "/mine"), ("", None), ("/named", "/named")])
def test_a_test_that_asks_for_the_machines_executorch_has_it_also_where_a_runtime_is_named(
    hidden: str | None, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--runtime` leaves it as the user named it; else it is hidden, and NAMED has what the user named."""
    monkeypatch.setenv(executorch_prefix.VARIABLE, "/mine" if hidden is None else "")
    monkeypatch.delenv(NAMED, raising=False)
    if hidden is not None:
        monkeypatch.setenv(NAMED, hidden)
    with executorch_of_this_machine():
        assert os.environ.get(executorch_prefix.VARIABLE) == found
