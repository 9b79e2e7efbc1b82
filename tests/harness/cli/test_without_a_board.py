"""A board that is not plugged in: what commands answer all the same, and which need it."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer.main

from command_line import CANNOT_TELL, NO, OK, Files, Hil, answer, answers, expect
from cortex_m_hil.cli import __main__ as cli
from cortex_m_hil.cli.commands.lint import UNMEASURED
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.targets.cpu import Isa

BOARD = "{cpu: cortex-m4, board: stm32f4, launcher: {serial: {port: 'vboard:gone', baud: 921600}}"
# Every command with --target, and what it needs of a board: nothing, its port for a part of the answer, or all of it.
NEEDS = {
    "build": "nothing",
    "lint": "nothing",
    "executorch install": "nothing",
    "inspect partition": "a part",
    "inspect fit": "refused",
    "dev fuzz": "refused with --models",
    "dev mutate": "refused",
    **dict.fromkeys(
        (
            *("profile", "compare-runtimes", "evaluate", "launch", "localize", "nightly"),
            *("replay", "run", "doctor selftest", "shrink", "dev upstream"),
        ),
        "all",
    ),
}


@pytest.fixture(autouse=True)
def gone(tmp_path: Path) -> None:
    """Two boards; another target may take the place of one."""
    named = f"targets:\n  gone: {BOARD}}}\n  replaced: {BOARD}, fallback: m4-qemu}}\n"
    (tmp_path / "targets.yaml").write_text(named)


def with_target() -> set[str]:
    """Commands with that option, by what is typed."""
    waiting, found = [("", typer.main.get_command(cli.load_commands()))], set()
    while waiting:
        path, command = waiting.pop()
        waiting += [(f"{path} {name}".strip(), one) for name, one in getattr(command, "commands", {}).items()]
        if any("--target" in one.opts for one in command.params):
            found.add(path)
    return found


def test_it_is_known_of_every_command_what_it_needs() -> None:
    assert with_target() == {*NEEDS}


def test_lint_and_build_take_a_board_as_it_is_described(hil: Hil, files: Files) -> None:
    """Neither its port nor a fallback is looked for; the runner's operators are known from its ELF."""
    built = answers(hil("build", "-t", "gone,replaced", "--json").out)
    assert [(one["runs_as"], one["config"]) for one in built] == [
        ("gone", "cortex-m4/dsp/stm32f4"), ("replaced", "cortex-m4/dsp/stm32f4"),
    ]  # fmt: skip
    linted = answers(hil("lint", files.pte, "-t", "gone,replaced", "--json").out)
    assert [(one["runs_as"], one["fits"], one["not_checked"]) for one in linted] == [
        ("gone", True, UNMEASURED), ("replaced", True, UNMEASURED),
    ]  # fmt: skip
    files.pte.write_bytes(known_answer(Isa.MVE).program)
    assert hil("lint", files.pte, "-t", "gone").status == NO


def test_partition_tells_what_it_did_not_count(hil: Hil, files: Files) -> None:
    done = hil("inspect", "partition", files.pte, "-t", "gone", "--json")
    found = answer(done.out)
    assert (done.status, found["cortex_m_macs"], found["ran"]) == (OK, 1.0, None)
    assert found["not_counted"] == "no port vboard:gone" and found["instructions"] is found["cycles"] is None
    assert "NOT counted: no port vboard:gone\n" in hil("inspect", "partition", files.pte, "-t", "gone").out


def test_what_needs_the_board_says_so(hil: Hil, files: Files) -> None:
    expect(hil("profile", files.pte, "-t", "gone"), CANNOT_TELL, "PortNotFound: no port vboard:gone")
    done = hil("inspect", "fit", files.pte, "-t", "gone")
    expect(done, CANNOT_TELL, "flashed ten times", "a simulator of a cortex-m4")
