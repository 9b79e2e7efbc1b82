"""What a command is given of options that several have: one frozen value for a group of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from command_line import CANNOT_TELL, Files, Hil, expect
from cortex_m_hil import flow
from cortex_m_hil.cli.app import App
from cortex_m_hil.cli.command_output import CALL

NUMBER = Annotated[int, typer.Option("--number")]


@dataclass(frozen=True)
class Group:
    name: Annotated[str, typer.Option("--name")]
    number: NUMBER = 3
    other: Annotated[bool, typer.Option("--other")] = False


Numbered = Annotated[Group, ("name", "number")]


def called(function: Any, *words: str, **more: Any) -> Any:
    made = App(add_completion=False, rich_markup_mode=None)
    made.command("it", **more)(function)
    return CliRunner().invoke(made, words)


def test_a_group_is_one_value_and_its_defaults_are_the_fields() -> None:
    found: list[object] = []

    def command(given: Group, own: NUMBER = 1) -> None:
        found.append(given)

    assert called(command, "--name", "x", "--other").exit_code == 0
    assert found == [Group("x", 3, True)]
    assert called(command).exit_code == 2  # --name is required


def test_of_a_group_only_what_is_named_is_offered() -> None:
    found: list[object] = []

    def command(given: Numbered) -> None:
        found.append(given)

    assert called(command, "--name", "x", "--other").exit_code == 2
    assert called(command, "--name", "x", "--number", "4").exit_code == 0
    assert found == [Group("x", 4)]


@pytest.mark.parametrize(
    ("more", "words", "status"),
    [
        ({}, ("--json",), 0),
        ({"json": False}, ("--json",), 2),
        ({}, ("--verbose",), 2),
        ({"log": True}, ("-v", "--json"), 0),
    ],
)
def test_each_command_has_json_and_verbose_where_it_has_a_log(
    more: dict[str, Any], words: tuple[str, ...], status: int
) -> None:
    seen: list[bool | None] = []

    def command() -> None:
        seen.append(CALL.get().verbose)

    assert called(command, *words, **more).exit_code == status
    assert seen == ([] if status else [True if more else None])


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("build", "--library"),
        ("inspect size {pte}", "--plan"),
        ("nightly tests -t m4-qemu", "--report"),
        ("nightly tests -t m4-qemu", "--hil-trace"),
        *(
            ("profile {pte} -t m4-qemu", option)
            for option in ("--html", "--svg=memory", "--etdump", "--etrecord", "--model-explorer")
        ),
        ("profile {pte} -t m4-qemu --etdump trace", "--debug-buffer"),
        ("results report", "--output"),
        ("results export", "--output"),
        ("run {pte} -t m4-qemu", "--output"),
        ("run {pte} -t m4-qemu", "--hil-trace"),
        ("shrink test_it.py::test_it -t m4-qemu", "--out"),
        ("dev fuzz {pte} --target native", "--corpus"),
    ],
)
def test_a_place_that_cannot_be_written_to_is_refused_before_the_work(
    hil: Hil, files: Files, command: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere by access rights, yet makes no folder in /proc."""
    monkeypatch.setattr(flow, "open_dut", None)
    done = hil(*command.format(pte=files.pte).split(), f"{option}=/proc/none/file")
    expect(done, CANNOT_TELL, f"{option.partition('=')[0]} '/proc/none", "/proc cannot be written to")
