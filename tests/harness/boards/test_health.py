"""A flash that is cut short, and the recovery_steps: reset, reflash, power cycle, given up."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cortex_m_hil.boards import leases
from cortex_m_hil.boards.board_tools import CommandTools
from cortex_m_hil.boards.health import Health, RecoveryStep, flash, recover, recovery_steps
from cortex_m_hil.errors import BoardWedged, FlashError, LaunchError, SelfTestFailed, ToolchainError
from cortex_m_hil.targets.board_tool_commands import RawProcedure, parse_procedure
from devices import Start


def tools(command: str) -> CommandTools:
    return CommandTools(parse_procedure(["{python}", "-c", command, "{elf}"], "flash", "t"), target="nucleo")


def test_a_completed_flash_is_recorded_in_the_boards_health() -> None:
    with leases.acquire(["a:1"], what="test") as lease:
        flash(lease, tools("pass"), Path("/r.elf"), "build1")
        assert lease.health == Health(build="build1")


def test_power_lost_during_flash_leaves_the_flash_incomplete_until_it_is_done_again() -> None:
    with leases.acquire(["a:1"], what="test") as lease:
        flash(lease, tools("pass"), Path("/r.elf"), "build1")
        with pytest.raises(FlashError, match="was killed"):
            flash(lease, tools("import os; os.kill(os.getpid(), 9)"), Path("/r.elf"), "build1")
    with leases.acquire(["a:1"], what="next test") as lease:
        assert lease.health == Health(failures=1, flashing="build1")
        flash(lease, tools("pass"), Path("/r.elf"), "build1")
        assert lease.health == Health(failures=1, build="build1")


def test_a_worker_killed_while_it_flashes_leaves_the_flash_incomplete(start: Start) -> None:
    worker = start("""
from pathlib import Path
from cortex_m_hil.boards import leases
from cortex_m_hil.boards.health import flash
from cortex_m_hil.boards.board_tools import CommandTools
from cortex_m_hil.targets.board_tool_commands import parse_procedure
lease = leases.acquire(["a:1"], what="test")
code = "import time; time.sleep(60)"
tools = CommandTools(parse_procedure(["{python}", "-c", code, "{elf}"], "flash", "t"))
print("flashing", flush=True)
flash(lease, tools, Path("x"), "build1")
""")
    assert worker.stdout
    worker.stdout.readline()
    while not leases.read_health("a:1").flashing:
        assert worker.poll() is None
        time.sleep(0.02)
    worker.kill()
    with leases.acquire(["a:1"], what="next test", wait=10) as lease:
        assert lease.health.flashing == "build1"


class Sick:
    """A board that one recovery step helps."""

    def __init__(self, helps: str) -> None:
        self.helps = helps
        self.well = False
        self.tried: list[str] = []

    def steps(self) -> list[RecoveryStep]:
        return [RecoveryStep(name, self._step(name)) for name in ("reset", "reflash", "power cycle")]

    def _step(self, name: str) -> Callable[[], None]:
        def run() -> None:
            self.tried.append(name)
            self.well = name == self.helps
            if name == "reflash" and not self.well:
                raise FlashError("flash: openocd ended with status 1")

        return run

    def self_test(self) -> None:
        if not self.well:
            raise LaunchError("the self-test does not end")


@pytest.mark.parametrize("helps", ["reset", "reflash", "power cycle"])
def test_each_recovery_step_can_be_what_helps(helps: str) -> None:
    sick = Sick(helps)
    with leases.acquire(["a:1"], what="test") as lease:
        assert recover(lease, LaunchError("it hangs"), sick.steps(), sick.self_test) == helps
        assert lease.health == Health(failures=1)
    assert sick.tried[-1] == helps


def test_a_board_that_nothing_helps_is_wedged_and_later_runs_are_told_why() -> None:
    sick = Sick("a hammer")
    cause = LaunchError("it hangs", target="nucleo", log="its log")
    with leases.acquire(["a:1"], what="test") as lease, pytest.raises(BoardWedged) as caught:
        recover(lease, cause, sick.steps(), sick.self_test)
    assert caught.value.__cause__ is cause
    assert caught.value.log == "its log"
    assert sick.tried == ["reset", "reflash", "power cycle"]
    with pytest.raises(BoardWedged) as later:
        leases.acquire(["a:1"], what="next run")
    with leases.acquire(["a:1"], what="another's run", setup="another") as lease, pytest.raises(BoardWedged):
        recover(lease, cause, sick.steps(), sick.self_test)
    assert leases.read_health("a:1").wedged_for == ("", "another")
    for part in (
        "it hangs", "after reset: the self-test does not end", "after reflash: flash: openocd ended with status 1",
        "after power cycle: the self-test does not end", "hil board clear a:1",
    ):  # fmt: skip
        assert part in str(later.value)


@pytest.mark.parametrize(
    ("outputs", "error"), [([1, 1, 1], SelfTestFailed), ([1, 1, 2], BoardWedged)], ids=["the-same", "another"]
)
def test_a_board_that_computes_the_same_wrong_answer_after_each_step_is_told_from_a_silent_one(
    outputs: list[int], error: type[LaunchError]
) -> None:
    """It is refused to this build all the same."""
    answers = iter(outputs)

    def self_test() -> None:
        what = f"the self-test's output is [{next(answers)}]"
        raise SelfTestFailed(what, operator="quantized_linear", hint="a kernel")

    steps = Sick("").steps()
    steps = [RecoveryStep(step.name, lambda: None) for step in steps]
    with leases.acquire(["a:1"], what="test") as lease, pytest.raises((SelfTestFailed, BoardWedged)) as caught:
        recover(lease, LaunchError("it hangs"), steps, self_test)
    assert type(caught.value) is error
    assert (caught.value.operator, "a kernel" in caught.value.hint) == (
        ("quantized_linear", True) if error is SelfTestFailed else ("", False)
    )
    with pytest.raises(BoardWedged, match=r"it hangs; after reset: the self-test's output is \[1\]"):
        leases.acquire(["a:1"], what="next run")


def test_what_the_boot_did_already_is_not_done_again() -> None:
    sick = Sick("power cycle")
    with leases.acquire(["a:1"], what="test") as lease:
        cause = LaunchError("it is silent")
        assert recover(lease, cause, sick.steps(), sick.self_test, {"reset", "reflash"}) == "power cycle"
        assert sick.tried == ["power cycle"]
        with pytest.raises(
            BoardWedged, match="it is silent; after reset: the same error; after reflash: the same error"
        ):
            recover(lease, cause, sick.steps()[:2], sick.self_test, {"reset", "reflash"})
        assert sick.tried == ["power cycle"]


def test_a_missing_tool_does_not_make_a_board_wedged(monkeypatch: pytest.MonkeyPatch) -> None:
    procedure = parse_procedure(RawProcedure(preset="openocd", config="x"), "reset", "t")
    monkeypatch.setenv("PATH", "/nowhere")
    with leases.acquire(["a:1"], what="test") as lease:
        steps = recovery_steps(lease, CommandTools(resetting=procedure), Path("/r.elf"), "build1")
        assert [step.name for step in steps] == ["reset"]
        with pytest.raises(ToolchainError, match="openocd"):
            recover(lease, LaunchError("it hangs"), steps, lambda: None)
        assert not lease.health.wedged


def test_the_ladder_has_what_the_target_names(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = ["{python}", "-c", f"import sys; open({str(log)!r}, 'a').write(sys.argv[1] + '.')"]
    tools = CommandTools(
        parse_procedure([*command, "flash {elf}"], "flash", "t"), parse_procedure([*command, "reset"], "reset", "t"),
        parse_procedure([*command, "power"], "power", "t"),
    )  # fmt: skip
    with leases.acquire(["a:1"], what="test") as lease:
        steps = recovery_steps(lease, tools, Path("/r.elf"), "build1")
        with pytest.raises(BoardWedged):
            recover(lease, LaunchError("it hangs"), steps, Sick("").self_test)
        assert lease.health.build == "build1"
    assert log.read_text() == "reset.flash /r.elf.power."
