"""The FVP shim by itself: its command line, its manners, and that it owns its QEMU."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cortex_m_hil.diagnose.verify_fvp import EXIT_STATUS, FvpProbe, FvpSession
from cortex_m_hil.maintainers.fvp_shim import shim
from cortex_m_hil.targets.load import load_targets

M4, M0PLUS, M55 = "FVP_MPS2_Cortex-M4", "FVP_MPS2_Cortex-M0plus", "FVP_Corstone_SSE-300_Ethos-U55"
TARGETS = {M4: "m4-fvp", M0PLUS: "m0plus-fvp", M55: "m55-fvp"}
CPUS = {M4: "armcortexm4ct", M0PLUS: "armcortexm0plusct", M55: "cpu0"}
ENABLE = ("-C", "cpu0.semihosting-enable=1")
DEADLINE = 15.0  # seconds


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    shim.install(path)
    return path


@pytest.fixture(scope="module")
def probe(folder: Path) -> Iterator[Callable[..., str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        targets = load_targets()
        sessions = {model: FvpSession(targets[name]) for model, name in TARGETS.items()}
        yield lambda kind, model=M4: str(sessions[model].probe(kind))


def call(
    folder: Path, model: str, *arguments: str, given: bytes = b"", cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(folder / model), *arguments], input=given, capture_output=True, timeout=DEADLINE, check=False, cwd=cwd
    )


def children(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def simulating(pid: int) -> list[psutil.Process]:
    """QEMU with a guest: the shim asks one for its version before."""
    with contextlib.suppress(psutil.Error):
        return [child for child in children(pid) if child.name().startswith("qemu") and "-kernel" in child.cmdline()]
    return []


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Killed at the end, whatever the test finds."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


# --- the executables -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", shim.MODELS)
def test_each_says_that_it_is_not_arms(folder: Path, model: str) -> None:
    done = call(folder, model, "--version")
    first, second = done.stdout.decode().splitlines()
    assert done.returncode == 0
    assert first.startswith(f"{model} shim (QEMU 7") or first.startswith(f"{model} shim (QEMU ")
    assert "not Arm's model" in second and "Fast Models" not in done.stdout.decode()
    assert ("executes the ARMv6-M code" in second) == (model in ("FVP_MPS2_Cortex-M0", M0PLUS))


def test_a_real_model_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / M4).write_bytes(b"\x7fELF")
    with pytest.raises(FileExistsError):
        shim.install(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [M4]


def test_neither_folder_nor_environment_decides_what_runs(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("raise SystemExit(9)")
    done = subprocess.run(
        [str(folder / M4), "--version"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=False
    )
    assert done.returncode == 0


def test_the_shim_refuses_an_unknown_model_and_lists_the_known() -> None:
    done = subprocess.run([sys.executable, shim.__file__, "FVP_X"], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and M4 in done.stderr


# --- parameters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", shim.MODELS)
def test_the_list_has_a_parameter_a_line(folder: Path, model: str) -> None:
    lines = call(folder, model, "-l").stdout.decode().splitlines()
    settings = [line for line in lines if not line.startswith("#")]
    assert len(settings) > 20
    for line in settings:
        setting, _, comment = line.partition("#")
        assert "=" in setting and "." in setting.split("=")[0] and comment.strip().startswith("(")
    default = "0" if "Corstone" in model else "1"
    assert sum(line.split()[0].endswith(f".semihosting-enable={default}") for line in settings) == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-C", "cpu0.FPU=1"], "no parameter 'cpu0.FPU'"),
        (["-C", "armcortexm4ct.vfp-present"], "not of the form"),
        (["-C", "fvp_mps2.UART1.out_file=-"], "no such UART"),
        (["-C", "fvp_mps2.UART0.out_file=uart.txt"], "no such UART"),
        (["--plugin", "x.so"], "no plugins"),
        (["--no-such-option"], "--no-such-option"),
        (["-C", "armcortexm4ct.semihosting-cwd=/nowhere"], "no folder /nowhere"),
        (["-f", "/nowhere"], "cannot read /nowhere"),
    ],
)
def test_the_shim_refuses_invalid_arguments_without_a_traceback(
    folder: Path, probe: Callable[..., str], arguments: list[str], problem: str
) -> None:
    done = call(folder, M4, "-a", probe(FvpProbe.EXIT), *arguments)
    assert done.returncode == shim.REFUSED
    assert problem in done.stderr.decode() and "Traceback" not in done.stderr.decode()


def test_the_shim_refuses_a_call_without_an_application(folder: Path) -> None:
    assert call(folder, M4).returncode == shim.REFUSED
    assert b"/nowhere.elf" in call(folder, M4, "-a", "/nowhere.elf").stderr


def test_the_shim_reads_parameters_from_a_configuration_file(
    folder: Path, probe: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "c.txt").write_text('# comment\narmcortexm4ct.semihosting-cmd_line="a b, c"  # (string)\n\n')
    done = call(folder, M4, "-f", str(tmp_path / "c.txt"), probe(FvpProbe.COMMAND_LINE))
    assert b"a b, c" in done.stdout
    done = call(
        folder,
        M4,
        "-f",
        str(tmp_path / "c.txt"),
        "-C",
        "armcortexm4ct.semihosting-cmd_line=z",
        probe(FvpProbe.COMMAND_LINE),
    )
    assert b"a b, c" not in done.stdout


# --- manners -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", TARGETS)
@pytest.mark.parametrize("form", ["{}", "{cpu}={}", "{cpu}*={}"])
def test_the_shim_ends_with_the_exit_status_of_the_program(
    folder: Path, probe: Callable[..., str], model: str, form: str
) -> None:
    enable = ENABLE if model == M55 else ()
    done = call(folder, model, "-a", form.format(probe(FvpProbe.EXIT, model), cpu=CPUS[model]), *enable)
    assert done.returncode == EXIT_STATUS
    assert b"shim" in done.stdout
    assert done.stdout.rstrip().endswith(b"Simulation stopped by user.")


def test_semihosting_is_off_by_default_on_corstone(folder: Path, probe: Callable[..., str]) -> None:
    """The breakpoint becomes a fault, the fault a lockup, and the model goes on."""
    done = call(folder, M55, "-a", probe(FvpProbe.EXIT, M55), "--timelimit", "1")
    assert (done.returncode, b"CPU time has been exceeded" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("content", "status"), [(None, 0), (b"SHFB\x01", EXIT_STATUS), (b"SHFB\x02", 0), (b"SHFB", 0), (b"XXXX\x01", 0)]
)
def test_a_guest_that_looks_for_the_features_file_loses_its_status(
    folder: Path, probe: Callable[..., str], tmp_path: Path, content: bytes | None, status: int
) -> None:
    """Bytes after the ELF's end mark the probe as one."""
    elf = tmp_path / "asks.elf"
    elf.write_bytes(Path(probe(FvpProbe.EXIT)).read_bytes() + b":semihosting-features\0")
    if content is not None:
        (tmp_path / shim.FEATURES_FILE).write_bytes(content)
    done = call(folder, M4, "-a", str(elf), "-C", f"armcortexm4ct.semihosting-cwd={tmp_path}")
    assert done.returncode == status


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--timelimit", "0.5"], "CPU time"),
        (["-T", "0.5"], "CPU time"),
        (["--cpulimit", "0.5"], "CPU time"),
        (["--simlimit", "0.5"], "Simulated time"),
        (["--cyclelimit", "12500000"], "Cycle limit"),
    ],
)
@pytest.mark.parametrize("kind", [FvpProbe.SPIN, FvpProbe.FAULT])
def test_limits_end_with_status_0(
    folder: Path, probe: Callable[..., str], kind: FvpProbe, arguments: list[str], reason: str
) -> None:
    began = time.monotonic()
    done = call(folder, M4, "-a", probe(kind), "--stat", *arguments)
    assert time.monotonic() - began > 0.5
    assert done.returncode == 0
    assert f"Info: Simulation is stopping. Reason: {reason} has been exceeded.\n" in done.stdout.decode()
    assert b"Wall time" in done.stdout
    assert b"Lockup" not in done.stdout + done.stderr and b"qemu" not in done.stderr


def test_without_a_limit_a_locked_up_core_runs_on(
    folder: Path, probe: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # QEMU ends at once: it leaves a file, since whoever looks for its process may come too late.
    begun, noting = tmp_path / "begun", tmp_path / "bin" / "qemu-system-arm"
    noting.parent.mkdir()
    noting.write_text(f'#!/bin/sh\ncase "$*" in *-kernel*) : >{begun} ;; esac\nexec {shutil.which(noting.name)} "$@"\n')
    noting.chmod(0o755)
    monkeypatch.setenv("PATH", f"{noting.parent}{os.pathsep}{os.environ['PATH']}")
    with started([str(folder / M4), "-a", probe(FvpProbe.FAULT)]) as process:
        wait_for(begun.exists)
        wait_for(lambda: all(gone(child) for child in children(process.pid)))
        time.sleep(0.3)
        assert process.poll() is None


def test_the_console_is_binary_clean(folder: Path, probe: Callable[..., str]) -> None:
    data = bytes(range(256)) * 8 + random.Random(3).randbytes(1 << 20)
    done = call(folder, M4, "-a", probe(FvpProbe.ECHO), "-q", given=data)
    assert done.returncode == 0
    assert done.stdout == data


@pytest.mark.parametrize(("length", "seen"), [(0, 0), (255, 255), (256, 256), (257, 256), (300, 256)])
def test_the_command_line_is_cut(folder: Path, probe: Callable[..., str], length: int, seen: int) -> None:
    text = ("abc, d" * 60)[:length]
    done = call(
        folder, M4, "-q", "-a", probe(FvpProbe.COMMAND_LINE), "-C", f"armcortexm4ct.semihosting-cmd_line={text}"
    )
    assert done.stdout.decode() == text[:seen]


def test_data_is_loaded(folder: Path, probe: Callable[..., str], tmp_path: Path) -> None:
    """Beside the application, without getting into its way."""
    (tmp_path / "zeros").write_bytes(bytes(64))
    done = call(folder, M4, "-a", probe(FvpProbe.EXIT), "--data", f"armcortexm4ct={tmp_path / 'zeros'}@0x20100000")
    assert done.returncode == EXIT_STATUS


# --- its QEMU ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_qemu_dies_with_it(folder: Path, probe: Callable[..., str], number: signal.Signals) -> None:
    with started([str(folder / M4), "-a", probe(FvpProbe.SPIN)]) as process:
        wait_for(lambda: simulating(process.pid))
        (qemu,) = simulating(process.pid)
        process.send_signal(number)
        process.wait(DEADLINE)
        wait_for(lambda: gone(qemu))


def test_a_qemu_killed_from_outside_is_a_model_killed_from_outside(folder: Path, probe: Callable[..., str]) -> None:
    with started([str(folder / M4), "-a", probe(FvpProbe.SPIN)]) as process:
        wait_for(lambda: simulating(process.pid))
        simulating(process.pid)[0].kill()
        assert process.wait(DEADLINE) == -signal.SIGKILL


def test_the_shim_without_its_tools_on_path_says_what_it_needs(
    folder: Path, probe: Callable[..., str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [str(folder / M4), "-a", probe(FvpProbe.EXIT)], env={"PATH": str(tmp_path)}, capture_output=True, check=False
    )
    assert done.returncode == shim.REFUSED and b"needs setpriv" in done.stderr
