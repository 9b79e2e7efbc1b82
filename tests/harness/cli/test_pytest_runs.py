"""Paths of tests that commands are given: one that is not there is told, before anything is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import CANNOT_TELL, OK, Hil
from cortex_m_hil.cli.pytest_runs import files_of_tests, named_tests
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.maintainers import executorch_suites as suite
from repositories import history


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    for name in ("test_it.py", "test_something_else.py", "deep/test_it.py"):
        (tmp_path / "tests" / name).write_text("def test_it(): pass\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["tests"], ["tests"]),
        (["tests/test_it.py::test_it[a::b]"], ["tests/test_it.py::test_it[a::b]"]),
        (["tests/test_*.py", "tests/deep"], ["tests/test_it.py", "tests/test_something_else.py", "tests/deep"]),
        (["tests/**/test_it.py::test_it"], ["tests/deep/test_it.py::test_it", "tests/test_it.py::test_it"]),
        (["tests", "-k", "none of it"], ["tests", "-k", "none of it"]),
        (["--pyargs", "a.package"], ["--pyargs", "a.package"]),
        (["@words"], ["@words"]),
        ([], []),
    ],
)
def test_what_is_there_is_taken_and_globs_are_what_they_stand_for(words: list[str], found: list[str]) -> None:
    assert named_tests(words) == found


@pytest.mark.parametrize(
    ("word", "said", "hint"),
    [
        ("tests/test_if.py", "tests/test_if.py: there is no such file or folder", "did you mean 'tests/test_it.py'?"),
        ("tests/test_if.py::t", "tests/test_if.py: there is", "did you mean 'tests/test_it.py'?"),
        ("test/deep/test_it.py", "test/deep/test_it.py: there is", "did you mean 'tests/deep/test_it.py'?"),
        ("tests/check_*.py", "tests/check_*.py: there is", ""),
        ("elsewhere", "elsewhere: there is", "a relative name begins at the current folder"),
        ("\0", "there is no such file", ""),
    ],
)
def test_what_is_not_there_is_told_with_what_is_near(word: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        named_tests(["tests", word])
    assert said in str(caught.value) and hint in caught.value.hint
    absolute = str(Path(word).absolute())
    with pytest.raises(ConfigError):
        named_tests([absolute])


def test_a_path_may_begin_at_executorchs_suite() -> None:
    folders = [Path(), suite.find_suite()]
    assert named_tests(["ops/test_add.py", "tests/test_it.py"], folders) == ["ops/test_add.py", "tests/test_it.py"]
    with pytest.raises(ConfigError, match=r"did you mean 'ops/test_add\.py'"):
        named_tests(["ops/test_adds.py"], folders)


def test_files_of_tests_in_a_command_are_told_from_other_words() -> None:
    command = [
        "env",
        "A=b.py",
        "pytest",
        "-q",
        "-o",
        "python_files=a.py",
        "tests/test_it.py::t",
        "{worktree}/a.py",
        "b",
    ]
    assert files_of_tests(command) == ["tests/test_it.py::t"]


WRONG = "tests/test_if.py"
PLAN = f"targets: [native]\ntests:\n  - tests/test_it.py\n  - {WRONG}::test_it\n"


@pytest.mark.parametrize(
    "words",
    [
        ("nightly", "tests/test_it.py", WRONG, "-t", "native", "-j", "2"),
        ("dev", "mutate", WRONG, "-t", "native"),
        ("localize", WRONG, "-t", "native"),
        ("shrink", f"{WRONG}::test_it", "-t", "native"),
        ("bisect", "run", "--", "pytest", "-q", f"{WRONG}::test_it"),
    ],
    ids=lambda words: words[0],
)
def test_every_command_tells_the_path_that_is_not_there(hil: Hil, folder: Path, words: tuple[str, ...]) -> None:
    where = ["--store", folder / "s.sqlite"] if words[0] in ("nightly", "dev", "bisect") else []
    if words[0] == "bisect":
        made = history(folder / "source", 2, lambda number: {"value": f"{number}\n"})
        ends = (made.commits[1], made.commits[0], "--source", made.path)
        assert hil("bisect", "start", *ends, *where).status == OK
        words = ("bisect", "run", *map(str, where), *words[2:])
        where = []
    done = hil(*words, *where)
    assert done.status == CANNOT_TELL
    assert done.err == (
        f"ConfigError: {WRONG}: there is no such file or folder\n  → did you mean 'tests/test_it.py'?\n"
    ), done


def test_a_path_of_a_plan_is_told_with_its_line(hil: Hil, folder: Path) -> None:
    (folder / "nightly.yaml").write_text(PLAN)
    done = hil("nightly", "--store", folder / "s.sqlite")
    assert done.status == CANNOT_TELL and f"nightly.yaml:4: {WRONG}: there is no such file or folder" in done.err
    (folder / "nightly.yaml").write_text("targets: [native]\nupstream: [ops/test_adds.py]\n")
    done = hil("nightly", "--store", folder / "s.sqlite")
    assert "nightly.yaml:2: ops/test_adds.py: there is" in done.err and "'ops/test_add.py'" in done.err


@pytest.mark.slow
def test_a_test_that_its_file_has_not_is_told_as_pytest_does_by_workers_too(hil: Hil, folder: Path) -> None:
    """pytest's workers leave it out without a word, and "no test is run" was said."""
    for jobs in ("0", "1"):
        call = ("nightly", "tests/test_it.py::test_if", "-t", "native", "-j", jobs)
        done = hil(*call, "--store", folder / "s.sqlite")
        assert done.status == CANNOT_TELL and "ERROR: not found: " in done.err and "::test_if" in done.err


@pytest.mark.slow
def test_a_glob_is_run_as_the_files_that_it_stands_for(hil: Hil, folder: Path) -> None:
    done = hil("nightly", "tests/test_*.py", "-t", "native", "--store", folder / "s.sqlite")
    assert done.status == OK and "2 passed" in done.out


def test_a_file_of_any_command_is_told_with_what_is_near(hil: Hil, folder: Path) -> None:
    (folder / "network.pte").write_bytes(b"")
    for words in (
        ("lint", "netwrk.pte", "-t", "native"),
        ("inspect", "fit", "netwrk.pte", "-t", "native"),
        ("replay", "netwrk.pte"),
    ):
        done = hil(*words)
        assert done.status == CANNOT_TELL and "did you mean 'network.pte'?" in done.err, words
