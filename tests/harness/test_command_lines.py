"""Every command in README and docs: a test executes it, or a table says why none does; its words are right."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from command_lines import (
    IN_A_CHECKOUT,
    IN_A_USERS_FOLDER,
    NEVER_EXECUTED,
    QUICK,
    TUTORIALS,
    WITH_CHECKOUTS,
    problems,
)
from shown import SHELL, blocks, pages

PAGES: Final = pages()
ELSEWHERE: Final = (  # test_extending.py, test_examples.py, runner/test_target_library.py, test_samples_with_kernels.py
    "docs/extending.md",
    "examples/evaluate/README.md",
    "examples/model_tests/README.md",
    "examples/own_board/README.md",
    "examples/own_firmware/README.md",
    "examples/own_firmware/freertos/README.md",
    "examples/own_firmware/virtual_board/README.md",
    "examples/own_firmware/zephyr/README.md",
    "examples/script/README.md",
)
OF_RECIPES: Final = re.compile(r"hil (cpus|supply)\b")  # commands that recipes of extending.md add


@pytest.fixture
def pytest_options(request: pytest.FixtureRequest) -> Any:
    """This pytest's parser, with the options of its plugins."""
    return request.config._parser


@pytest.mark.parametrize("page", sorted(PAGES))
def test_the_words_of_every_command_are_right(page: str, pytest_options: Any) -> None:
    lines = [shown.command for block in blocks(PAGES[page]) for shown in block.commands()]
    wrong = {line: problems(line, pytest_options) for line in lines if not OF_RECIPES.match(line)}
    assert {line: found for line, found in wrong.items() if found} == {}


@pytest.mark.parametrize("page", sorted(PAGES))
def test_commands_in_a_sentence_are_there_with_their_options(page: str, pytest_options: Any) -> None:
    """They may leave out arguments, and have placeholders."""
    prose = re.sub(r"^( *)```.*?^\1```", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    for line in re.findall(r"`((?:hil|pytest) [^`]+)`", prose):
        if not re.search("…|COMMAND", line) and not OF_RECIPES.match(line):
            found = problems(line.replace("\\|", "|"), pytest_options)
            assert [one for one in found if re.search("(?i)no (such|command)|has no", one)] == [], line


def test_every_command_is_executed_or_the_table_says_why_not() -> None:
    called = {
        page: {shown.command for block in blocks(text) for shown in block.commands()} for page, text in PAGES.items()
    }
    left = {page: lines - set(NEVER_EXECUTED) for page, lines in called.items()}
    executed = {*(page.partition("#")[0] for page in TUTORIALS), *QUICK, *IN_A_USERS_FOLDER, *IN_A_CHECKOUT, *ELSEWHERE}
    assert {page: lines for page, lines in left.items() if lines and page not in executed} == {}
    assert {page for page in executed if not left[page]} == set()


def test_nothing_in_the_table_is_of_the_past() -> None:
    lines = {shown.command for text in PAGES.values() for block in blocks(text) for shown in block.commands()}
    assert {*NEVER_EXECUTED, *WITH_CHECKOUTS} - lines == set()


@pytest.mark.parametrize("page", sorted(PAGES))
def test_no_command_hides_in_a_block_of_another_kind(page: str) -> None:
    program = re.compile(
        r"^(\$ )?(\S*bin/)?(hil|pytest|make|pip|npm|cmake|git|sudo|python3?) [a-z.'\"~-]", re.MULTILINE
    )
    for block in blocks(PAGES[page]):
        if block.language not in SHELL:
            assert not program.search(block.text), block.text


def test_what_is_wrong_is_found(pytest_options: Any) -> None:
    for line in (
        "hil lnit program.pte -t m4-qemu",
        "hil lint program.pte --traget m4-qemu",
        "hil lint -t m4-qemu",
        "cd x && PATH=y:$PATH hil run program.pte --timeout-multiplier 0",
        "hil board virtual f406",
        "hil board virtual f405 run pytest --hil-sed=1",
        "hil dev upstream -t m4-qemu -- --hil-sed=1",
        "hil bisect run -- hil doctor selftest --targt m4-qemu",
        "pytest --hil-sed=1 tests",
        "make tset",
        "python ci/soak.py --rnus 3",
    ):
        assert problems(line, pytest_options), line
