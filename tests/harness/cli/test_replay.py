"""`hil replay`: a failure once more, on the same target or another, without torch; what ran it is not executed here."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from command_line import CANNOT_TELL, FIRST_BUILD, NO, OK, Hil, answer, answers, environment, expect
from cortex_m_hil import flow
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.diagnose.failure_bundle import Bundle, BundleTask
from cortex_m_hil.diagnose.failure_bundle_file import write_bundle
from cortex_m_hil.diagnose.failure_bundle_schema import TargetEntry
from cortex_m_hil.diagnose.replay import open_target
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.program.program import References
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from failure_bundles import TEST, failure, mismatch
from file_texts import HIL_AND_ITS_IMPORTS
from planting import BUGS, network


def opened(name: str, **more: Any) -> Dut:
    return flow.open_dut(resolve(name, load_targets()), **more)


@pytest.fixture(scope="module")
def on_native() -> Bundle:
    with opened("native") as dut:
        return mismatch(dut)


@pytest.fixture
def path(on_native: Bundle, tmp_path: Path) -> Path:
    write_bundle(on_native, tmp_path / "it.hil.zip")
    return tmp_path / "it.hil.zip"


def changed(bundle: Bundle, **machine: Any) -> Bundle:
    found = bundle.description.machine.model_copy(update=machine)
    return replace(bundle, description=bundle.description.model_copy(update={"machine": found}))


def test_a_failure_is_reproduced(hil: Hil, path: Path) -> None:
    done = hil("replay", path)
    assert (done.status, done.err) == (NO, "")
    for text in (TEST, "was       Mismatch: output 0", "is        Mismatch: output 0", "runner    built here"):
        assert text in done.out
    assert "reproduced: the same verdict, of the same operator, 1 output equal bit for bit" in done.out
    assert "notice" not in done.out and "differs" not in done.out
    one = answer(hil("replay", path, "--json").out)
    assert (one["exit_status"], one["reproduced"], one["runner"]) == (NO, True, "built")
    assert one["recorded"] == one["now"] and one["now"]["type"] == "Mismatch"
    assert (one["outputs_compared"], one["differences"], one["notices"]) == (1, [], [])


def test_what_passes_now_or_gives_other_bits(hil: Hil, on_native: Bundle, tmp_path: Path) -> None:
    """The references are those of the bundle: here they are right, as after a fix."""
    right = References(dialect=tuple(one.array() for one in on_native.outputs))
    said = on_native.description.model_copy(
        update={"references": on_native.description.references.model_copy(update={"eager": None})}
    )
    other = replace(on_native.outputs[0], data=bytes(len(on_native.outputs[0].data)))
    passes = replace(on_native, references=right, description=said)
    write_bundle(replace(passes, outputs=(other,)), tmp_path / "it.hil.zip")
    done = hil("replay", "it.hil.zip")
    assert done.status == OK
    assert "is        pass\n" in done.out
    assert "differs   it passes now, and was recorded with Mismatch\n" in done.out
    assert "differs   output 0: 8 of 8 elements have other bits\n" in done.out
    assert "reproduced" not in done.out


def test_replay_on_a_target_of_another_class_is_a_lint_error(hil: Hil, path: Path) -> None:
    """Each of them is asked; the program is for another class, and lint says so."""
    done = hil("replay", path, "-t", "m4-qemu,native", "--json")
    foreign, own = answers(done.out)
    assert (done.status, foreign["now"]["type"], own["reproduced"]) == (NO, "LintError", True)
    assert foreign["notices"] == ["it ran on native"] and foreign["runner"] == "built"
    assert foreign["differences"][0] == "it ends with LintError now, and was recorded with Mismatch"


def test_a_target_that_is_not_here(hil: Hil, on_native: Bundle, tmp_path: Path) -> None:
    entry = TargetEntry(name="all", entry={"cpu": "cortex-m4", "launcher": {"serial": {"flash": "rm\x1b -rf"}}})
    write_bundle(changed(on_native, target=entry), tmp_path / "it.hil.zip")
    done = hil("replay", "it.hil.zip")
    expect(done, CANNOT_TELL, "ConfigError: it.hil.zip ran on 'all'", '"flash": "rm\\u001b -rf"', "-t NAME", "read it")
    assert hil("replay", "it.hil.zip", "-t", "native").status == NO


def test_a_target_that_is_another_here(hil: Hil, on_native: Bundle, tmp_path: Path) -> None:
    entry = TargetEntry(name="native", entry={"cpu": "host", "board": "native", "launcher": "native"})
    write_bundle(changed(on_native, target=entry, build_id="0" * 16), tmp_path / "it.hil.zip")
    done = hil("replay", "it.hil.zip")
    assert 'notice    native is another target here: isa: "scalar", and it was null\n' in done.out
    write_bundle(changed(on_native, build_id="0" * 16), tmp_path / "it.hil.zip")
    assert "is not the one that ran (0000000000000000)\n" in hil("replay", "it.hil.zip").out


def test_replay_of_no_zip_file_is_a_config_error(hil: Hil, tmp_path: Path) -> None:
    (tmp_path / "it.hil.zip").write_bytes(b"no zip")
    expect(hil("replay", "it.hil.zip"), CANNOT_TELL, "ConfigError: cannot read it.hil.zip", "it is no zip file")
    expect(hil("replay", "none"), CANNOT_TELL, "ConfigError: cannot read none")


def test_a_runtime_that_there_is_none_of(hil: Hil, on_native: Bundle, tmp_path: Path) -> None:
    write_bundle(changed(on_native, runtime="evil"), tmp_path / "it.hil.zip")
    expect(hil("replay", "it.hil.zip"), CANNOT_TELL, "unknown runtime 'evil'")


@pytest.mark.parametrize("name", ["native", "vboard-f405", "m4-fvp", "m4-qemu"])
def test_a_strangers_runner_runs_emulated_and_confined_only(
    name: str, on_native: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as machine code of this machine, not on a board, and not in a model that nothing confines."""
    with opened("native") as dut:
        on_this_machine = dut.elf
    monkeypatch.setattr("cortex_m_hil.diagnose.replay.build_runner", lambda *_: on_this_machine)
    monkeypatch.setattr("cortex_m_hil.diagnose.replay.flow.require", lambda _: None)  # as if the model were installed
    target = load_targets()[name]
    resolved = replace(resolve("native", load_targets()), requested=target, target=target)
    said = changed(on_native, target=TargetEntry.of(target))
    monkeypatch.setattr("cortex_m_hil.runner.launchers.qemu.landlock_abi", lambda: 0)
    assert not open_target(said, resolved, tmp_path).bundled
    monkeypatch.setattr("cortex_m_hil.runner.launchers.qemu.landlock_abi", lambda: 1)
    found = open_target(said, resolved, tmp_path)
    assert found.bundled is (name == "m4-qemu")
    if found.bundled:
        assert found.dut.elf.path.read_bytes() == on_native.elf and found.dut.elf.foreign
        assert found.dut.elf.path.parent == tmp_path
    else:
        assert found.dut.elf is on_this_machine and list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_bug_of_a_kernel_is_replayed_by_the_runner_that_has_it(hil: Hil, tmp_path: Path) -> None:
    """Bit for bit, in a process that imports neither torch nor executorch; and not where the kernel is right."""
    module, inputs = network()
    with opened("m4-qemu", firmware=BUGS["bias_dropped"].plant(tmp_path)) as dut:
        program = flow.lower(module, inputs, isa=dut.target.isa)
        found = failure(dut, BundleTask(program, program.inputs, Tolerance()))
        bundle = found.bundle(TEST)
    assert bundle.description.verdict.type == "Mismatch" and bundle.description.program.scratch
    write_bundle(bundle, tmp_path / "it.hil.zip")
    done = subprocess.run(
        [sys.executable, "-c", HIL_AND_ITS_IMPORTS, "replay", "it.hil.zip"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=FIRST_BUILD, check=False,
    )  # fmt: skip
    assert done.returncode == NO, done.stdout + done.stderr
    assert f"runner    the bundle's own, build id {bundle.description.machine.build_id}\n" in done.stdout
    assert "reproduced: the same verdict, of the same operator, 1 output equal bit for bit\n" in done.stdout
    assert done.stdout.endswith("imported\n")
    repaired = answer(hil("replay", "it.hil.zip", "-t", "m7-qemu", "--json").out)
    assert (repaired["exit_status"], repaired["now"], repaired["runner"]) == (OK, None, "built")
    assert repaired["differences"][0] == "it passes now, and was recorded with Mismatch"
