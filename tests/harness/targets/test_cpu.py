"""The table of CPUs: CMake, GCC and the handshake have to agree about each row."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from cortex_m_hil import flow
from cortex_m_hil.errors import ConfigError, ToolchainError
from cortex_m_hil.host import toolchain
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.runner import build
from cortex_m_hil.runner.launchers.qemu import QemuLauncher
from cortex_m_hil.targets.cpu import HOST, Isa, architecture, cpus
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved

ALL = [
    (cpu.name, isa, fpu)
    for cpu in cpus().values()
    for isa in cpu.isas
    for fpu in ((True, False) if cpu.has_fpu else (True,))
    if cpu is not HOST
]
FIRMWARE = package_data("firmware")
BOARD = "targets:\n  mine: {cpu: %s, isa: %s, board: mps2, launcher: {qemu: mps2-an386}}\n"


def flags(cpu: str, isa: Isa, fpu: bool, folder: Path) -> list[str]:
    """Those that CMake takes from its toolchain file."""
    script = folder / "flags.cmake"
    script.write_text(f'include("{FIRMWARE}/cmake/arm-none-eabi.cmake")\nmessage("${{CMAKE_CXX_FLAGS_INIT}}")\n')
    command = ["cmake", f"-DHIL_CPU={cpu}", f"-DHIL_ISA={isa.value}", f"-DHIL_NO_FPU={int(not fpu)}", "-P", str(script)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr.split()


def test_the_cpus_are_those_that_are_promised() -> None:
    promised = {f"cortex-m{name}" for name in ("0", "0plus", "3", "4", "7", "23", "33", "35p", "52", "55", "85")}
    assert cpus().keys() == promised | {"host"}


@pytest.mark.parametrize(
    ("cpu", "isa", "fpu"), ALL, ids=[f"{cpu}-{isa.value}{'' if fpu else '-nofpu'}" for cpu, isa, fpu in ALL]
)
def test_the_compiler_makes_what_the_handshake_will_be_held_against(
    cpu: str, isa: Isa, fpu: bool, tmp_path: Path
) -> None:
    """Or it is too old, and says so: then its version is what the table asks for."""
    macros = f"-DHIL_ISA_{isa.value}=1"
    source = '#include "target_library/isa.h"\nconst char *architecture = HIL_ARCHITECTURE;\n'
    command = [
        "arm-none-eabi-g++",
        *flags(cpu, isa, fpu, tmp_path),
        macros,
        f"-I{FIRMWARE}",
        "-std=c++17",
        "-E",
        "-P",
        "-",
    ]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        assert f"unrecognized -mcpu target: {cpu}" in done.stderr
        assert int(toolchain.find("arm-none-eabi-g++").version.split(".")[0]) < cpus()[cpu].gcc
        return
    said = done.stdout.rpartition("architecture =")[2].replace('"', "").replace(";", "").split()
    assert "".join(said) == architecture(cpu, isa, fpu)


@pytest.mark.parametrize("cpu", [name for name in cpus() if name != "host"])
def test_a_cpu_is_known_by_both_of_executorchs_spellings(cpu: str, tmp_path: Path) -> None:
    file = tmp_path / "targets.yaml"
    file.write_text(BOARD % (f"{cpu}+int8", "scalar"))
    assert load_targets(file)["mine"].cpu == cpu
    file.write_text((BOARD % (cpu, "scalar")).replace("mps2-an386", f"{{machine: it, core: {cpu}+int8}}"))
    launcher = load_targets(file)["mine"].launcher
    assert isinstance(launcher, QemuLauncher) and launcher.core == cpu


@pytest.mark.parametrize("cpu", ["host+int8", "cortex-m55+int16", "cortex-m5+int8", "+int8"])
def test_what_is_no_spelling_of_a_cpu(cpu: str, tmp_path: Path) -> None:
    file = tmp_path / "targets.yaml"
    file.write_text(BOARD % (cpu, "scalar"))
    with pytest.raises(ConfigError, match="unknown cpu"):
        load_targets(file)


def test_a_compiler_older_than_the_cpu_is_a_toolchain_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gcc = toolchain.Tool("arm-none-eabi-g++", Path("/usr/bin/arm-none-eabi-g++"), "arm-none-eabi-g++ (Debian) 12.2.1")
    monkeypatch.setattr(toolchain, "find", lambda name: gcc)
    newer = [cpu for cpu in cpus().values() if cpu.gcc > 12]
    assert {cpu.name for cpu in newer} == {"cortex-m52", "cortex-m85"}
    for cpu in newer:
        (tmp_path / "targets.yaml").write_text(BOARD % (cpu.name, "scalar"))
        target = load_targets(tmp_path / "targets.yaml")["mine"]
        with pytest.raises(ToolchainError, match=f"{gcc.version}, which does not know {cpu.name}") as caught:
            build.build_runner(target)
        assert f"GCC {cpu.gcc} or newer" in caught.value.hint


@pytest.mark.parametrize("cpu", ["cortex-m0", "cortex-m3", "cortex-m23", "host"])
def test_fpu_is_refused_where_there_is_none_to_leave_out(cpu: str, tmp_path: Path) -> None:
    file = tmp_path / "targets.yaml"
    file.write_text(BOARD.replace("board:", "fpu: false, board:") % (cpu, "scalar"))
    with pytest.raises(ConfigError, match=rf"targets\.yaml:2: mine: {cpu} has no FPU") as caught:
        load_targets(file)
    assert "cortex-m4" in caught.value.hint and cpu not in caught.value.hint.split()


@pytest.mark.slow
@pytest.mark.parametrize(("like", "architecture"), [("m4-qemu", "armv7e-m+dsp"), ("m55-qemu", "armv8-m.main+dsp+mve")])
def test_a_runner_without_fpu_runs_and_says_so(like: str, architecture: str) -> None:
    """Soft-float; of MVE the integer half is left. Float operators are in the self-test."""
    target = load_targets()[like]
    without = dataclasses.replace(target, fpu=False)
    assert build.build_runner(without).build_id != build.build_runner(target).build_id
    with flow.open_dut(Resolved(without, without, "builtin")) as dut:
        assert dut.session().identity.architecture == architecture
        flow.selftest(dut)
