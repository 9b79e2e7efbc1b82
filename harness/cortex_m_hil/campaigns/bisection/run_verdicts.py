"""Verdicts of single runs: judges a commit by one run of the test.

For pytest the JUnit file decides and not the exit status, which is 1 both for a wrong output and for a missing board.
Other commands are judged by their exit status as by `git bisect run`, `hil` by its own exit statuses.
"""

from __future__ import annotations

import json
import re
import signal
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.campaigns import property_names as prop
from cortex_m_hil.errors import BuildError, ConfigError, HilWarning, ToolchainError
from cortex_m_hil.errors.text import counted, printable
from cortex_m_hil.host import files
from cortex_m_hil.host.api_calls import PERMIT

JUNIT_LIMIT: Final = 256 << 20  # bytes of a JUnit file at most
_PYTEST: Final = ("pytest", "py.test")
# The faulty operator: as localised, else as the error names it. A Mismatch names only the operator of the output,
# or the stage of the firmware's path.
_AT_FAULT: Final = (prop.AT_FAULT, prop.WRONG_LAYOUT)
_OF_OUTPUTS: Final = "Mismatch"
_WARNING: Final = HilWarning.__name__
_JUNIT_OPTIONS: Final = ("--junit-xml", "--junitxml")
_ERROR: Final = re.compile(r"\berror: |^ERROR(?!: usage)|^E  ")  # errors in pytest's output
_SKIP: Final = 125  # the exit status by which git bisect run knows an untestable commit
# Errors that depend only on the commit: another run of it has the same error.
_OF_THE_COMMIT: Final = (ToolchainError.__name__, BuildError.__name__)


class RunVerdict(str, Enum):
    """The verdict of a single run on its commit."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"  # this commit cannot be tested: the command says so, or no part of the test could be run
    BUILD = "build"  # this commit does not build, so it cannot be tested
    ELSEWHERE = "elsewhere"  # another tree was tested in place of this commit
    INFRA = "infra"  # the run says nothing about the commit; another run may


@dataclass(frozen=True)
class Case:
    """A test on a target, by its JUnit properties (docs/writing-tests.md explains these).

    `operators` has a name and a digest for each operator call, if the programs were stepped.
    """

    test: str
    verdict: str
    error: str = ""
    requested: str = ""
    ran: str = ""
    at_fault: str = ""
    outputs: str = ""
    isa: str = ""
    bundle: str = ""
    operators: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class RunJudgement:
    """The result of one run.

    Attributes:
        told: the verdict on the commit.
        why: the reason; "" for a pass.
        cases: the tests that pytest ran.
        hint: the next step; "" where none is known.
    """

    told: RunVerdict
    why: str = ""
    cases: tuple[Case, ...] = field(default=())
    hint: str = ""

    @property
    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = {"cases": [asdict(case) for case in self.cases]} if self.cases else {}
        return {**found, "hint": self.hint} if self.hint else found


@dataclass(frozen=True)
class Rules:
    """The rules for which outcomes are counted.

    Attributes:
        allow_fallback: whether a target may be replaced by its fallback.
        raises: error classes that are counted as a failure; others leave the run undecided. Empty: all are counted
            except HilWarning.

    A HilWarning fails a test only if the filterwarnings of the tested project turn it into an error: the test ended
    before it could have a verdict.
    """

    allow_fallback: bool = False
    raises: tuple[str, ...] = ()

    def count(self, error: str) -> bool:
        """Tell whether a failure with an error of this class is a failed run; otherwise the run is undecided."""
        return error in self.raises if self.raises else error != _WARNING


def with_junit(command: Sequence[str], file: Path, options: Sequence[str] = ()) -> list[str] | None:
    """Return a command with the option that makes pytest write `file`, and others; None if it does not call pytest.

    Raises:
        ConfigError: the command has such an option already.
    """
    for number, word in enumerate(command):
        module = number > 0 and command[number - 1] == "-m"
        if Path(word).name in _PYTEST and (number == 0 or module or _runs_another(command[:number])):
            if given := [one for one in command[number:] if one.partition("=")[0] in _JUNIT_OPTIONS]:
                raise ConfigError(
                    f"{given[0]}: pytest can write one JUnit file, and it is read here", hint="leave it out"
                )
            return [*command[: number + 1], f"--junit-xml={file}", *options, *command[number + 1 :]]
    return None


def _runs_another(words: Sequence[str]) -> bool:
    """Tell whether the words call the command that follows them: `env A=b`, `nice -n 5`, `uv run`."""
    return Path(words[0]).name in ("env", "nice", "timeout", "uv", "poetry", "hatch", "coverage", "xvfb-run", "setsid")


def first_error(said: str) -> str:
    """Return the first line with an error in pytest's output, else the last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it said nothing"]
    return next((line for line in lines if _ERROR.search(line)), lines[-1])


def judge_run(command: Sequence[str], status: int | None, junit: Path | None, rules: Rules) -> RunJudgement:
    """Judge a run of a command.

    Args:
        command: the command.
        status: the exit status; negative: the signal that ended the command; None: it did not end.
        junit: pytest's JUnit file; None: the command is not pytest.
        rules: the rules for which outcomes are counted.

    Raises:
        ConfigError: a fallback ran, and the rules do not allow it.
    """
    if status is None:
        return RunJudgement(RunVerdict.INFRA, "it did not end in time")
    if junit is not None:
        return _of_pytest(status, junit, rules)
    if status < 0:
        return RunJudgement(RunVerdict.INFRA, f"ended by {signal.Signals(-status).name}")
    if status == 0:
        return RunJudgement(RunVerdict.PASS)
    if status == _SKIP:
        return RunJudgement(RunVerdict.SKIP, f"exit status {status}")
    tells = status == 1 if _is_hil(command) else status < 126
    return RunJudgement(RunVerdict.FAIL if tells else RunVerdict.INFRA, f"exit status {status}")


def _is_hil(command: Sequence[str]) -> bool:
    return Path(command[0]).name == "hil" or "cortex_m_hil.cli" in command


def _of_pytest(status: int, junit: Path, rules: Rules) -> RunJudgement:
    try:
        root = ElementTree.fromstring(files.read(junit, JUNIT_LIMIT))
    except ConfigError:
        return RunJudgement(RunVerdict.INFRA, f"pytest wrote no JUnit file (exit status {status})")
    except ElementTree.ParseError as error:
        return RunJudgement(RunVerdict.INFRA, f"pytest's JUnit file cannot be read: {error}")
    cases = tuple(_case(element) for element in _last_attempts(list(root.iter("testcase"))))
    return _of_cases(cases, status, rules)


def _last_attempts(elements: Sequence[ElementTree.Element]) -> list[ElementTree.Element]:
    """Return only the last attempts' elements of tests that a plugin such as pytest-rerunfailures repeated.

    The properties of such an attempt have its verdict, but pytest adds no failure or error to its element; the last
    attempt comes later under the same name. A test that fails in its body and in its teardown has two elements too.
    """
    last = {_name(element): number for number, element in enumerate(elements)}
    return [
        element
        for number, element in enumerate(elements)
        if last[_name(element)] == number or any(element.find(kind) is not None for kind in ("failure", "error"))
    ]


def _of_cases(cases: tuple[Case, ...], status: int, rules: Rules) -> RunJudgement:
    replaced = [case for case in cases if case.requested and case.ran != case.requested]
    if replaced and not rules.allow_fallback:
        raise ConfigError(
            f"{replaced[0].ran}: a fallback ran in place of the target that was asked for",
            hint="name the target that runs here, or --allow-fallback",
        )
    failed = [case for case in cases if case.verdict in ("FAIL", "XPASS")]
    judged = [case for case in failed if rules.count(case.error)]
    untold = [case for case in cases if case.verdict in ("INFRA", "ERROR")]
    if judged:
        return RunJudgement(RunVerdict.FAIL, _summary(judged), cases)
    if failed or untold:
        again = not failed and any(case.verdict == "INFRA" and case.error not in _OF_THE_COMMIT for case in untold)
        return RunJudgement(RunVerdict.INFRA if again else RunVerdict.SKIP, _summary(failed + untold), cases)
    if any(case.verdict in ("PASS", "XFAIL") for case in cases):
        return RunJudgement(RunVerdict.PASS, "", cases) if status == 0 else _odd(status, cases)
    return RunJudgement(RunVerdict.SKIP, "no test ran" if status in (0, 5) else f"pytest's exit status {status}", cases)


def _odd(status: int, cases: tuple[Case, ...]) -> RunJudgement:
    return RunJudgement(RunVerdict.INFRA, f"no test failed, and pytest's exit status is {status}", cases)


def _summary(cases: Sequence[Case]) -> str:
    """Return the first case in words, as in `FAIL Mismatch test_x [m4-qemu]`, and how many more tests there are."""
    one, more = cases[0], len({(case.test, case.requested) for case in cases}) - 1
    words = [one.verdict, one.error, one.test, f"[{one.ran}]" if one.ran else ""]
    hint = f": {PERMIT}, or count it with --raises {_WARNING}" if one.error == _WARNING else ""
    return " ".join(filter(None, words)) + (f", and {counted(more, 'more test')}" if more else "") + hint


def _name(element: ElementTree.Element) -> str:
    return f"{element.get('classname', '')}::{element.get('name', '')}"


def _properties(element: ElementTree.Element) -> list[tuple[str, str]]:
    """Return names and values of the properties that this package recorded."""
    found = element.iterfind("properties/property")
    return list(prop.recorded((one.get("name", ""), one.get("value", "")) for one in found))


def _case(element: ElementTree.Element) -> Case:
    found = {name: printable(value) for name, value in _properties(element)}
    name = printable(_name(element))
    stage = f"stage {found[prop.STAGE]}" if found.get(prop.STAGE) else ""
    of_error = stage if found.get(prop.ERROR) == _OF_OUTPUTS else found.get(prop.OPERATOR, "")
    return Case(
        test=found.get(prop.TEST, name),
        verdict=found.get(prop.VERDICT) or _without_properties(element),
        error=found.get(prop.ERROR, ""),
        requested=found.get(prop.REQUESTED, ""),
        ran=found.get(prop.RAN, ""),
        at_fault=next(filter(None, map(found.get, _AT_FAULT)), of_error),
        outputs=found.get(prop.OUTPUTS, ""),
        isa=found.get(prop.ISA, ""),
        bundle=found.get(prop.BUNDLE, ""),
        operators=_operators(element),
    )


def _operators(element: ElementTree.Element) -> tuple[tuple[str, str], ...]:
    """Return operators and digests of all programs that the test ran; none where the property is not readable."""
    texts = [value for name, value in _properties(element) if name == prop.OPERATOR_OUTPUTS]
    try:
        return tuple((printable(name), printable(digest)) for text in texts for name, digest in json.loads(text))
    except (TypeError, ValueError):
        return ()


def _without_properties(element: ElementTree.Element) -> str:
    """Return the verdict of a test that uses no target. An error outside the test's body is no verdict."""
    if element.find("failure") is not None:
        return "FAIL"
    if element.find("error") is not None:
        return "ERROR"
    skipped = element.find("skipped")
    if skipped is not None:
        return "XFAIL" if skipped.get("type") == "pytest.xfail" else "SKIP"
    return "PASS"


def cases_of(figures: Mapping[str, Any]) -> list[Case]:
    return [
        Case(**{**case, "operators": tuple(map(tuple, case.get("operators", ())))}) for case in figures.get("cases", ())
    ]
