"""`hil doctor`: on this machine, and on machines with something missing or broken."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import answer
from cortex_m_hil.cli.doctor_probes import MVE_SOURCE, Check, Probe, State, probes
from cortex_m_hil.cli.tables import row_of, table
from cortex_m_hil.errors import ToolchainError
from cortex_m_hil.host import sandbox, supervisor
from cortex_m_hil.host.toolchain import PACKAGES
from cortex_m_hil.targets.load import load_targets
from paths import IMPORT_ROOT

TIMEOUT = 600.0  # seconds; the shared cache may be cold


def doctor(*arguments: str, cwd: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "cortex_m_hil.cli", "doctor", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(IMPORT_ROOT), **changes},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


def check(name: str, extra: Path | None = None) -> Check:
    """One row, of the default targets and those of `extra`."""
    (probe,) = (probe for probe in probes(load_targets(extra)) if probe.name == name)
    return probe.examine()


def stub(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder of PATH, empty at first."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.mark.slow
def test_doctor_finds_no_failure_on_this_machine(tmp_path: Path) -> None:
    done = doctor("--json", cwd=tmp_path, PATH="/usr/bin:/bin")
    report = answer(done.stdout)
    rows = {row["name"]: row for row in report["checks"]}
    failed = [row for row in rows.values() if row["state"] == "FAIL"]
    assert (done.returncode, report["exit_status"], failed) == (0, 0, [])
    assert {*PACKAGES} - {"flatc"} <= set(rows)
    for target in ("m4-qemu", "m0-qemu", "m55-qemu", "native"):
        assert rows[f"round trip {target}"]["found"].startswith(f"self-test passes: {target} · builtin")
    assert rows["FVP_MPS2_Cortex-M4"]["state"] == "absent"
    assert rows["FVP_MPS2_Cortex-M4"]["found"] == "not found; m4-fvp → falls back to m4-qemu"


@pytest.mark.slow
def test_an_empty_machine_is_told_what_to_install(tmp_path: Path) -> None:
    done = doctor(cwd=tmp_path, PATH=str(tmp_path), HIL_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 1
    rows = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    tools = [name for name in PACKAGES if name not in ("flatc", "arm-none-eabi-addr2line", "arm-none-eabi-objdump")]
    for name in tools:
        row = next(row for row in rows if row.split()[1] == name)
        assert f" {name} is not on PATH " in row and row.endswith(f"  → apt-get install {PACKAGES[name]}")
    for name in ("MVE compile", "flatc and headers", "round trip m4-qemu", "round trip native"):
        assert next(row for row in rows if name in row).split("  → ")[-1].startswith("apt-get install ")
    assert "\x1b" not in done.stdout and done.stderr == ""


@pytest.mark.slow
def test_a_row_is_there_when_its_probe_ends_and_a_terminal_shows_what_takes_long(tmp_path: Path) -> None:
    """Half a minute without a word looks like a hang."""
    terminal, other_end = pty.openpty()
    command = [sys.executable, "-m", "cortex_m_hil.cli", "doctor"]
    env = {**os.environ, "PYTHONPATH": str(IMPORT_ROOT), "PATH": str(tmp_path), "TERM": "xterm"}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=other_end, text=True) as done:
        os.close(other_end)
        assert done.stdout is not None
        first = done.stdout.readline()
        assert done.poll() is None and first.split()[0] == "FAIL"
        shown = b""
        with contextlib.suppress(OSError):  # a terminal's end
            while read := os.read(terminal, 65536):
                shown += read
        rest = done.stdout.read()
    os.close(terminal)
    assert b"round trip m4-qemu (building runner, unless it is in the cache" in shown
    assert rest.rstrip().endswith("The default targets do not all work: see FAIL.") and "\x1b" not in rest


@pytest.mark.parametrize("name", ["arm-none-eabi-addr2line", "arm-none-eabi-objdump"])
def test_what_only_improves_messages_is_not_necessary(only: Path, name: str) -> None:
    assert check(name) == Check(name, State.ABSENT, f"{name} is not on PATH", "apt-get install binutils-arm-none-eabi")


def test_doctor_fails_for_a_compiler_without_mve_intrinsics(only: Path) -> None:
    complaint = "mve.cpp:1:10: fatal error: arm_mve.h: No such file or directory"
    stub(only, "arm-none-eabi-g++", f"[ $1 = --version ] && echo g++ 12.2 && exit; echo '{complaint}' >&2; exit 1")
    row = check("MVE compile")
    assert row.state is State.FAILED
    assert "does not know MVE's intrinsics" in row.found and "fatal error: arm_mve.h" in row.found
    assert row.action.startswith("apt-get install gcc-arm-none-eabi")


def test_the_mve_probe_is_three_lines() -> None:
    assert len(MVE_SOURCE.splitlines()) == 3


def test_children_that_cannot_be_supervised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert check("child processes").state is State.OK
    old = tmp_path / "supervisor.py"
    old.write_text("raise OSError(38, 'Function not implemented')")
    monkeypatch.setattr(supervisor, "__file__", str(old))
    row = check("child processes")
    assert (row.state, row.action) == (State.FAILED, "Linux 5.4 or newer")
    assert "Function not implemented" in row.found


@pytest.mark.skipif(not sandbox.landlock_abi(), reason="this kernel has no Landlock")
def test_landlock_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    row = check("Landlock")
    assert row.state is State.OK and row.found.startswith(f"ABI {sandbox.landlock_abi()}: ")
    monkeypatch.setattr(sandbox.Sandbox, "command", lambda self, command: list(command))
    assert check("Landlock").found == "it does not hold: a file outside was read"


def test_a_kernel_without_landlock_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "landlock_abi", lambda: 0)
    row = check("Landlock")
    assert row.state is State.ABSENT and "hil docs security" in row.action


def test_a_flatc_without_headers_of_its_version(only: Path) -> None:
    stub(only, "flatc", "echo flatc version 99.1.2")
    row = check("flatc and headers")
    assert row.state is State.FAILED
    assert f"{only}/flatc 99.1.2" in row.found and "libflatbuffers-dev" in row.action


def test_a_tool_that_does_not_start(only: Path) -> None:
    (only / "ninja").write_bytes(b"\x7fELF, but not really")
    (only / "ninja").chmod(0o755)
    assert check("ninja").state is State.FAILED


def test_a_missing_model_is_no_error(only: Path, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        "targets: {mine: {cpu: cortex-m7, board: mps2, launcher: {fvp: FVP_MPS2_Cortex-M7}}}"
    )
    row = check("FVP_MPS2_Cortex-M7", tmp_path / "t.yaml")
    assert (row.state, row.found) == (State.ABSENT, "not found; mine cannot run")
    assert row.action


def test_a_model_that_is_there_must_work(only: Path) -> None:
    """It would be chosen instead of its fallback."""
    name = "FVP_MPS2_Cortex-M4"
    stub(only, name, "echo 'license checkout failed: no server' >&2; exit 1")
    row = check(name)
    assert row.state is State.FAILED
    assert "has no licence" in row.found and "ARMLM" in row.action
    assert "round trip m4-fvp" in [probe.name for probe in probes(load_targets())]


def test_a_model_that_lacks_a_parameter(only: Path) -> None:
    stub(only, "FVP_MPS2_Cortex-M4", "echo armcortexm4ct.semihosting-enable=1")
    row = check("FVP_MPS2_Cortex-M4")
    assert row.state is State.FAILED and "has no parameter" in row.found


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIL_CACHE_DIR", "/dev/null/cache")
    row = check("cache")
    assert (row.state, row.found) == (State.FAILED, "cannot write to /dev/null/cache: Not a directory")
    assert "HIL_CACHE_DIR" in row.action


def test_a_probe_may_fail_in_any_way() -> None:
    def look() -> str:
        raise RuntimeError("two copies of libtorch\nand more")

    assert Probe("torch", look).examine() == Check(
        "torch", State.FAILED, "RuntimeError: two copies of libtorch", "reinstall it"
    )


def test_every_failing_row_says_what_to_do() -> None:
    def look() -> str:
        raise ToolchainError("it is broken")

    assert Probe("it", look).examine().action
    assert Probe("it", look, necessary=False).examine().state is State.ABSENT


def test_brackets_in_messages_are_shown() -> None:
    shown = table(("", "what"), [("FAIL", "error: [bold]operand[/bold] :warning:")])
    assert "error: [bold]operand[/bold] :warning:" in shown
    assert (
        row_of(("FAIL", "it", "[bold]it[/bold]", "→ :warning:"), (6, 3)) == "FAIL    it   [bold]it[/bold]  → :warning:"
    )
