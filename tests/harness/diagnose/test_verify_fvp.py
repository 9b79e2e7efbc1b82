"""The FVP driver, through the shim on PATH: not one line here says anything of Arm's models."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cortex_m_hil import flow
from cortex_m_hil.diagnose import verify_fvp as verify
from cortex_m_hil.errors import ConfigError, TargetFault, TargetHang
from cortex_m_hil.maintainers.fvp_shim import shim
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner import launchers
from cortex_m_hil.runner.launchers.fvp import FvpLauncher
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from misbehaving import OPTIONS, bad, ones
from paths import REPOSITORY

pytest_plugins = ["pytester"]
NAMES = ["m4-fvp", "m55-fvp", "m0plus-fvp"]
SHORT = 0.02  # of 30 s of engine time
DEADLINE = 120.0  # seconds
TARGETS = load_targets()
M4 = FvpLauncher("FVP_MPS2_Cortex-M4")


@pytest.fixture(autouse=True)
def models(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("models")
    shim.install(folder)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    left = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    assert [child for child in left if child.status() != psutil.STATUS_ZOMBIE] == []


def run(program: Program, *, multiplier: float = 1.0) -> None:
    with flow.open_dut(resolve("m4-fvp", TARGETS, require_fvp=True), multiplier=multiplier, options=OPTIONS) as dut:
        flow.run(dut, program, ones())


@pytest.mark.slow
def test_the_linear_layer_and_the_names_of_what_ran(pytester: pytest.Pytester) -> None:
    test = REPOSITORY / "tests" / "targets" / "test_linear.py"
    names = ",".join(NAMES)
    result = pytester.runpytest_subprocess(str(test), f"--target={names}", "--require-fvp", timeout=300)
    result.assert_outcomes(passed=4 * len(NAMES))
    for name in NAMES:
        result.stdout.fnmatch_lines([f"hil: {name} → shim (QEMU *) · builtin (no ExecuTorch *"])
    assert not re.search(r"-fvp ·", result.stdout.str())


@pytest.mark.first_only
@pytest.mark.parametrize("name", NAMES)
def test_the_engine_is_called_a_shim(name: str) -> None:
    with flow.open_dut(resolve(name, TARGETS, require_fvp=True)) as dut:
        ran = flow.selftest(dut).ran
    assert re.fullmatch(r"FVP_\S+ shim \(QEMU [\d.]+\)", ran.engine)


def test_a_model_runs_from_a_relative_entry_of_path(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/runtimes.md shows it. A model is started in its run's own folder."""
    monkeypatch.chdir(models.parent)
    monkeypatch.setenv("PATH", f"{models.name}{os.pathsep}{os.environ['PATH'].removeprefix(f'{models}{os.pathsep}')}")
    with flow.open_dut(resolve("m4-fvp", TARGETS, require_fvp=True)) as dut:
        assert "shim" in flow.selftest(dut).ran.engine


@pytest.mark.parametrize(
    ("says", "engine", "display_name"),
    [
        (
            "Fast Models [11.27.42 (Dec  9 2024)]\nCopyright 2000-2024 ARM Limited.",
            "FVP_MPS2_Cortex-M4 11.27.42",
            "m4-fvp",
        ),
        ("mine 1.2.3", "FVP_MPS2_Cortex-M4 mine 1.2.3", "m4-fvp"),
        ("a shim, 11.2.3", "FVP_MPS2_Cortex-M4 a shim, 11.2.3", "m4-fvp → a shim, 11.2.3"),
    ],
)
def test_an_engine_is_what_the_model_says(models: Path, says: str, engine: str, display_name: str) -> None:
    (models / M4.model).write_text(f"#!/bin/sh\ncat <<'E'\n{says}\nE\n")
    assert M4.engine() == engine
    assert resolve("m4-fvp", TARGETS).display_name == display_name


@pytest.mark.slow
def test_a_fault_is_decoded() -> None:
    with pytest.raises(TargetFault, match="UsageFault") as caught:
        run(bad("fault", 1))
    assert caught.value.operator.startswith("hil_test::fault.out")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [0, 1], ids=["busy", "asleep"])
def test_a_hang_is_bounded(kind: int) -> None:
    with pytest.raises(TargetHang) as caught:
        run(bad("hang", kind), multiplier=SHORT)
    assert caught.value.operator.startswith("hil_test::hang.out")


def test_engine_time_is_that_of_the_models_children(tmp_path: Path) -> None:
    """Behind a shim, or a wrapper script, the child itself uses none."""
    target = TARGETS["m4-fvp"]
    process = launchers.start(target, verify_fvp_spin(), tmp_path)
    try:
        deadline = time.monotonic() + DEADLINE
        while process.cpu_seconds() < 1.0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert psutil.Process(process.pid).cpu_times().user < 0.9
    finally:
        process.close()


def verify_fvp_spin() -> Elf:
    return Elf(verify.FvpSession(TARGETS["m4-fvp"]).probe(verify.FvpProbe.SPIN), "", "")


def test_a_long_command_line_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="300 characters"):
        M4.command(tmp_path / "x.elf", tmp_path, ["x" * 300])
    assert "--timelimit" in M4.command(tmp_path / "x.elf", tmp_path, ["x" * 256])


def test_a_parameter_that_the_model_lacks(tmp_path: Path) -> None:
    launcher = FvpLauncher(M4.model, (("fvp_mps2.platform_typ", "0"),))
    with pytest.raises(ConfigError, match=r"no parameter 'fvp_mps2\.platform_typ'") as caught:
        launcher.command(tmp_path / "x.elf", tmp_path, ())
    assert "fvp_mps2.platform_type" in caught.value.hint


def test_a_killed_harness_leaves_nothing(tmp_path: Path) -> None:
    script = (
        "import time\nfrom cortex_m_hil import flow\nfrom cortex_m_hil.targets.resolve import resolve\n"
        "from cortex_m_hil.targets.load import load_targets\n"
        "dut = flow.open_dut(resolve('m4-fvp', load_targets(), require_fvp=True))\n"
        "dut.session()\nprint('up', flush=True)\ntime.sleep(60)\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "up\n"
            children = psutil.Process(process.pid).children(recursive=True)
            assert any(child.name().startswith("qemu") for child in children)
        finally:
            process.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=10)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []


# --- hil doctor --verify-fvp ---------------------------------------------------------------------------------


def examined(name: str) -> dict[str, verify.ExaminedAssumption]:
    session = verify.FvpSession(verify.target_of_model(name, TARGETS))
    return {one.text: one.examine() for one in verify.assumptions(session)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["m4-fvp", "FVP_MPS2_Cortex-M0plus"])
def test_all_that_is_relied_on_holds_for_the_shim(name: str) -> None:
    found = examined(name)
    assert [finding for finding in found.values() if finding.state is verify.AssumptionState.FAILS] == []
    other = [text for text, finding in found.items() if finding.state is verify.AssumptionState.DIFFERS]
    assert other == ([] if name == "m4-fvp" else ["the core is a cortex-m0plus, by its CPUID"])
    page = verify.assumptions_as_markdown(
        verify.FvpSession(verify.target_of_model(name, TARGETS)), list(found.values())
    )
    assert "**This is a shim and not Arm's model" in page and str(Path.home()) not in page


@pytest.mark.slow
def test_a_model_unlike_our_idea_of_it_fails(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that keeps 200 characters of a command line, and whose exit status is lost."""
    model = models / M4.model
    true = model.rename(models / "true")
    model.write_text(
        f'#!/bin/sh\nfor word; do case "$word" in *cmd_line=*) word=$(echo "$word" | cut -c1-230);; esac\n'
        f'set -- "$@" "$word"; shift; done\n{true} "$@"; exit 0\n'
    )
    model.chmod(0o755)
    found = examined("m4-fvp")
    failed = {text for text, finding in found.items() if finding.state is verify.AssumptionState.FAILS}
    assert "SYS_EXIT_EXTENDED's status is the model's, with the features file" in failed
    assert "a command line of 256 characters arrives whole" in failed
    assert "the runner answers its handshake, and the self-test passes" not in failed


def test_a_name_that_no_target_uses() -> None:
    with pytest.raises(ConfigError, match="no target runs on") as caught:
        verify.target_of_model("FVP_MPS2_Cortex-M5", TARGETS)
    assert "FVP_MPS2_Cortex-M4" in caught.value.hint
