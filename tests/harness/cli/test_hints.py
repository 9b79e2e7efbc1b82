"""What an error says to do next names options that its command has. Every call of `hil` in these tests is checked."""

from __future__ import annotations

import pytest

from cortex_m_hil import errors
from hints import check_hints, strange_options

CLASSES = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.HarnessError)]


@pytest.mark.parametrize(
    ("called", "hint", "strange"),
    [
        ("board virtual f405", "--verbose shows the log, or another --name", ["--verbose"]),
        ("run x.pte", "--verbose shows the log; leave --nothing out", ["--nothing"]),
        ("run x.pte", "hil bisect start --assert-old; hil doctor --assert-old", ["--assert-old"]),
        ("bisect start", "git fetch --unshallow, and --exclude it", []),
        ("nothing", "hil --help; pytest --target=m4-qemu", []),
        ("bisect run", "hil bisect run -- pytest --target=m4-qemu FILE::TEST", []),
    ],
)
def test_an_option_that_is_not_there_is_found(called: str, hint: str, strange: list[str]) -> None:
    assert strange_options(called.split(), hint) == strange


def test_a_call_with_such_a_hint_fails_its_test() -> None:
    head = '{"schema_version": 1, "error": {"hint": "--nothing"}}'
    for out, err in (("", "LaunchError: it does not start\n  it says: no\n  → --nothing\n"), (f"{head}\n", "")):
        with pytest.raises(AssertionError, match="hil board virtual f405"):
            check_hints(["board", "virtual", "f405"], out, err)


@pytest.mark.parametrize("error", CLASSES)
def test_the_hint_of_a_class_names_no_option_since_any_command_may_print_it(error: type[errors.HarnessError]) -> None:
    assert "--" not in error.default_hint


@pytest.mark.parametrize(
    "command",
    [
        "compare-runtimes",
        "inspect fit",
        "localize",
        "profile",
        "replay",
        "run",
        "doctor selftest",
        "shrink",
    ],
)
def test_a_program_that_hangs_can_be_given_more_time(command: str) -> None:
    """By the option that TargetHang names."""
    assert strange_options(command.split(), "--timeout-multiplier, if the program is only slow") == []
