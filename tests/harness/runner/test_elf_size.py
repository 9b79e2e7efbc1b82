"""`runner.elf_size`: sections, symbols and operators of real runners, held against binutils."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from cortex_m_hil import flow
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.runner.elf_size import ElfSize, measure_elf
from cortex_m_hil.runner.elf_size import builtin_operators as operators_of
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve

TARGETS = load_targets()
CORES = ("m4-qemu", "m55-qemu", "m0-qemu")


def elf(name: str) -> Path:
    return build_runner(TARGETS[name]).path


@pytest.fixture(scope="module", params=CORES)
def size(request: pytest.FixtureRequest) -> ElfSize:
    return measure_elf(elf(request.param))


@pytest.mark.parametrize("name", [*CORES, "native"])
def test_parts_sum_to_the_sections_that_binutils_tells(name: str) -> None:
    found = measure_elf(elf(name))
    tool = "size" if name == "native" else "arm-none-eabi-size"
    said = subprocess.run([tool, "-A", str(elf(name))], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in said.splitlines()[2:]]
    told = {row[0]: int(row[1]) for row in rows if len(row) == 3 and row[0] != "Total" and int(row[1])}
    assert {one.name: one.nbytes for one in found.sections}.items() <= told.items()
    assert {".text", ".data", ".bss"} <= {one.name for one in found.sections}
    for section in found.sections:
        parts = [part for part in found.parts if part.section == section.name]
        assert sum(part.nbytes for part in parts) == section.nbytes and min(part.nbytes for part in parts) > 0
    assert not any(one.name.startswith(".debug") for one in found.sections)


def test_pools_are_symbols_of_their_size() -> None:
    pools = {
        part.symbol.rpartition("::")[2]: part.nbytes
        for part in measure_elf(elf("m4-qemu")).parts
        if "_pool" in part.section or part.section.startswith(".bank_")
    }
    assert pools == {"program": 8 << 20, "planned": 4 << 20, "method": 256 << 10}


def operators(size: ElfSize, function: str) -> tuple[str, ...]:
    [part] = [part for part in size.parts if part.symbol.endswith(f"{function}(hil::builtin::KernelContext&)")]
    return part.operators


def test_a_kernel_belongs_to_its_operator(size: ElfSize) -> None:
    assert operators(size, "hil::builtin::quantized_linear") == ("cortex_m::quantized_linear.out",)
    assert operators(size, "hil::builtin::convolution") == ("aten::convolution.out",)
    names = {one.operator for one in size.operators}
    rows = (package_data("firmware") / "runtime/builtin/operators.inc").read_text()
    kernels = dict(re.findall(r'^HIL_OPERATOR\("((?!hil_test)[^"]+)", (\w+)', rows, re.M))
    assert names == set(kernels) and "cortex_m::pad.out" in names
    for one in size.operators:
        is_shared = [*kernels.values()].count(kernels[one.operator]) > 1  # and then no single operator's own
        assert 0 <= one.own <= one.reached and (one.own == 0) == is_shared


@pytest.mark.parametrize("name", CORES)
def test_the_operators_of_an_elf_are_those_that_its_runner_tells(name: str) -> None:
    """So lint needs no live target; where the ELF has no such table, a simulator is asked."""
    resolved = resolve(name, TARGETS)
    with flow.open_dut(resolved) as dut:
        told = dut.session().identity.operators
    assert told and operators_of(elf(name)) == told and flow.runner_operators(resolved) == (told, "")
    assert operators_of(elf("native")) == ()


def test_what_two_operators_share_is_no_ones_own(size: ElfSize) -> None:
    shared = [part for part in size.parts if "quantized_conv2d_in(" in part.symbol]
    assert {part.operators for part in shared} == {
        ("cortex_m::quantized_conv2d.out", "cortex_m::quantized_conv2d_nhwc.out")
    }
    rows = {one.operator: one for one in size.operators}
    one = rows["cortex_m::quantized_conv2d.out"]
    assert one.own < 100 < shared[0].nbytes < one.reached


def test_the_runner_itself_is_no_operators(size: ElfSize) -> None:
    for symbol in ("open_program", "hil::runner_main"):
        assert next(part.operators for part in size.parts if symbol in part.symbol) in ((), ("",))


def test_arbitrary_bytes_are_a_config_error_or_an_elf(tmp_path: Path) -> None:
    """Headers damaged at random; nothing but ConfigError comes out."""
    data, path = elf("native").read_bytes(), tmp_path / "damaged.elf"
    table = int.from_bytes(data[40:48], "little")
    draw = random.Random(20261122)
    refused = 0
    for _ in range(40):
        changed = bytearray(data)
        for _ in range(6):
            changed[draw.choice([draw.randrange(4, 64), draw.randrange(table, len(data))])] = draw.randrange(256)
        path.write_bytes(changed[: draw.choice([len(data), draw.randrange(len(data))])])
        try:
            found = measure_elf(path)
        except ConfigError:
            refused += 1
        else:
            assert all(part.nbytes >= 0 for part in found.parts)
    assert refused > 10


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\1\2" + bytes(80), b"\x7fELF\2\1" + bytes(20)])
def test_an_incomplete_elf_is_a_config_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.elf").write_bytes(data)
    for read in (measure_elf, operators_of):
        with pytest.raises(ConfigError, match="no whole ELF"):
            read(tmp_path / "a.elf")
