"""The markers `requires`, `xfail_on`, `target_timeout`, `hil_budget`, `hil_known`, and their effect on a target.

A marker with wrong arguments raises a ConfigError, which is an error of that test alone.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import pytest

from cortex_m_hil.checks.executorch_verdict import accepted_causes
from cortex_m_hil.diagnose.budgets import Budget
from cortex_m_hil.errors import ConfigError, InfraError, NotOffered, VerdictError, did_you_mean
from cortex_m_hil.errors.text import shown
from cortex_m_hil.host import timeouts
from cortex_m_hil.host.numbers import in_range
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.memory import parse_size
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.runtimes import RUNTIMES

DESCRIPTIONS: Final = (
    'requires(isa=None, *, ram=None, flash=None): skip on targets without this ISA class ("mve", "dsp") or memory',
    "xfail_on(pattern, *, reason, raises=VerdictError): strictly expected to fail on matching targets",
    "target_timeout(seconds): time for each program of this test: a simulator's CPU time, on a board by the clock",
    'hil_budget(pattern="*", *, instructions=None, flash=None, ram=None, bank=None): the most that each program of '
    "this test may take on matching targets",
    "hil_known(*causes): known bugs of ExecuTorch, by number, and operators that it lacks, by name, which are accepted",
)
Found = TypeVar("Found")


def expectations(item: pytest.Item, resolved: Resolved) -> Iterator[pytest.MarkDecorator]:
    """Yield pytest's skip and xfail markers that result from a test's markers on a target.

    Raises:
        ConfigError: a marker's arguments make no sense.
    """
    for marker in item.iter_markers("requires"):
        lacking = _understand(marker, requires)(resolved)
        if lacking:
            yield pytest.mark.skip(reason=f"{resolved.display_name} {lacking}")
    for marker in item.iter_markers("xfail_on"):
        expected = _understand(marker, xfail_on)(resolved)
        if expected is not None:
            yield expected
    seconds(item)
    budget(item, resolved)
    known(item)
    if "hil" not in getattr(item, "fixturenames", ()):
        for name in ("hil_budget", "hil_known"):
            _refuse_own(item, name, "has no effect on a test without the fixture hil")


def check_without_target(item: pytest.Item) -> None:
    """Check the markers of a test that uses no target.

    A marker of its module or class is allowed, as it may be meant for other tests.

    Raises:
        ConfigError: a marker's arguments make no sense, or the test itself has one of these markers.
    """
    for name, meaning in _MEANINGS.items():
        for marker in item.iter_markers(name):
            _understand(marker, meaning)
        _refuse_own(item, name, "has no effect on a test that uses no target")


def is_own(item: pytest.Item, name: str) -> bool:
    """Tell whether a test has a marker itself, and not only its module or class."""
    return any(marker.name == name for marker in item.own_markers)


def _refuse_own(item: pytest.Item, name: str, why: str) -> None:
    if is_own(item, name):
        raise ConfigError(f"{name} {why}", hint="give the test an argument hil")


def budget(item: pytest.Item, resolved: Resolved) -> Budget | None:
    """Return the budget of a test on a target, each limit from the nearest marker; None without a marker.

    Raises:
        ConfigError: a marker's arguments make no sense.
    """
    found = [_understand(marker, hil_budget)(resolved) for marker in item.iter_markers("hil_budget")]
    given = [vars(one) for one in found if one is not None]
    if not given:
        return None
    return Budget(**{name: next((one[name] for one in given if one[name] is not None), None) for name in given[0]})


def known(item: pytest.Item, *, own: bool = False) -> frozenset[int | str]:
    """Return the causes that `hil_known` accepts for a test; with `own` only from markers of the test itself.

    Raises:
        ConfigError: a marker's arguments make no sense.
    """
    markers = item.iter_markers("hil_known")
    found = [_understand(one, hil_known) for one in markers if not own or one in item.own_markers]
    return frozenset().union(*found)


def seconds(item: pytest.Item) -> float:
    """Return the seconds of the simulator's CPU time that a program of this test may take, before the multiplier.

    Raises:
        ConfigError: the argument of `target_timeout` makes no sense.
    """
    marker = item.get_closest_marker("target_timeout")
    return timeouts.EXECUTION if marker is None else _understand(marker, target_timeout)


def _understand(marker: pytest.Mark, meaning: Callable[..., Found]) -> Found:
    try:
        return meaning(*marker.args, **marker.kwargs)
    except (TypeError, ValueError) as error:
        given = [*map(shown, marker.args), *(f"{name}={shown(value)}" for name, value in marker.kwargs.items())]
        raise ConfigError(
            f"{marker.name}({', '.join(given)}): {error}", hint=f"such as @pytest.mark.{_EXAMPLES[marker.name]}"
        ) from error


def requires(isa: str | None = None, *, ram: Any = None, flash: Any = None) -> Callable[[Resolved], str]:
    """Interpret `@pytest.mark.requires(…)`: the test is skipped on targets that lack something.

    Args:
        isa: "scalar", "dsp" (which MVE targets have too) or "mve".
        ram: bytes for the tensors of a program, as a number or as `"256K"`.
        flash: bytes for a program, in the same form.

    Returns:
        A function that describes what a target lacks; "" if it lacks nothing.

    Raises:
        ValueError: there is no such ISA class, or a size is malformed.
    """
    order = [Isa.SCALAR, Isa.DSP, Isa.MVE]
    if isa is not None and str(isa).upper() not in Isa.__members__:
        raise ValueError(did_you_mean(str(isa), [one.value.lower() for one in order]))
    sizes = {"ram": ram, "flash": flash}
    wanted = {name: parse_size(size) for name, size in sizes.items() if size is not None}

    def lacking(resolved: Resolved) -> str:
        target = resolved.target
        if isa is not None and order.index(target.isa) < order.index(Isa[isa.upper()]):
            return f"is {target.isa.value}; needs {isa}"
        available = {"ram": target.board.memory.planned, "flash": target.board.memory.program_room}
        for name, size in wanted.items():
            if size > available[name]:
                return f"has {available[name]} bytes of {name} for programs; needs {sizes[name]}"
        return ""

    return lacking


def xfail_on(
    pattern: str, *, reason: str, raises: type[BaseException] = VerdictError
) -> Callable[[Resolved], pytest.MarkDecorator | None]:
    """Interpret `@pytest.mark.xfail_on(…)`: the test is strictly expected to fail on some targets.

    Args:
        pattern: a glob that matches the name of the requested target, or of the target that runs.
        reason: why the test fails, for the report.
        raises: the class of the expected error. An infra error is never expected.

    Returns:
        A function that returns pytest's marker for a target; None where the pattern does not match.

    Raises:
        TypeError: `pattern` is no text, or `raises` no class of an exception.
        ValueError: `raises` is an infra error.
    """
    matches = _matching(pattern)
    if not (isinstance(raises, type) and issubclass(raises, BaseException)):
        raise TypeError(f"raises is the class of an error, not {shown(raises)}")
    if issubclass(raises, InfraError):
        raise ValueError(f"an infra error such as {raises.__name__} cannot be expected")

    def expected(resolved: Resolved) -> pytest.MarkDecorator | None:
        return pytest.mark.xfail(reason=reason, raises=raises, strict=True) if matches(resolved) else None

    return expected


def target_timeout(seconds: float) -> float:
    """Check and return the argument of `@pytest.mark.target_timeout(seconds)`: the time limit of the test's programs.

    Args:
        seconds: the simulator's CPU time, or wall time on a board, from 0.01 to 86400, before `--timeout-multiplier`.

    Raises:
        ValueError: the time is out of this range.
    """
    return in_range(seconds, timeouts.SHORTEST_EXECUTION, timeouts.LONGEST_EXECUTION)


def hil_budget(
    pattern: str = "*", *, instructions: Any = None, flash: Any = None, ram: Any = None, bank: Any = None
) -> Callable[[Resolved], Budget | None]:
    """Interpret `@pytest.mark.hil_budget(…)`: limits for each program of the test on some targets.

    Args:
        pattern: a glob, as in `xfail_on`.
        instructions: as in `OpenTarget.budget`.
        flash: as in `OpenTarget.budget`.
        ram: as in `OpenTarget.budget`.
        bank: as in `OpenTarget.budget`.

    Returns:
        A function that returns the budget for a target; None where the pattern does not match. It raises ConfigError
        where the pattern matches no existing target.

    Raises:
        TypeError: `pattern` is no text.
        ValueError: a limit makes no sense, or there is none.
    """
    limits, matches = Budget.parse(instructions, flash, ram, bank), _matching(pattern)

    def limited(resolved: Resolved) -> Budget | None:
        known = _known(resolved)
        every = [*known, *(f"{name}-{runtime}" for name in known for runtime in RUNTIMES)]
        if not fnmatch.filter(every, pattern):  # otherwise a misspelt name would be a budget without effect
            what = f"hil_budget({shown(pattern)}): no target has such a name"
            raise ConfigError(what, hint=did_you_mean(pattern, {*known}))
        return limits if matches(resolved) else None

    return limited


def hil_known(*causes: int | str) -> frozenset[int | str]:
    """Check and return the arguments of `@pytest.mark.hil_known(…)`.

    Args:
        causes: numbers of known bugs of ExecuTorch, or names of operators that it lacks.

    Raises:
        ValueError: there are no causes, or one is neither.
    """
    if not causes:
        raise ValueError("what is accepted?")
    try:
        return frozenset(accepted_causes(causes))
    except ConfigError as error:
        raise ValueError(f"{error.message}: {error.hint}") from error


def limit_to(name: str, resolved: Resolved) -> None:
    """Require that a test is for a target; "" is for all.

    Raises:
        ConfigError: no target has that name.
        NotOffered: it is for a target of another name.
    """
    if name and name not in _known(resolved):
        raise ConfigError(
            f"hil_app({shown(name)}): no target has such a name", hint=did_you_mean(name, _known(resolved))
        )
    if name and name not in (resolved.name, resolved.target.name):
        raise NotOffered(f"is for {name}", target=resolved.target.name)


def _known(resolved: Resolved) -> list[str]:
    """Return the names of all targets that there are."""
    return [resolved.name, resolved.target.name, *(one.name for one in resolved.target.alternatives)]


def _matching(pattern: str) -> Callable[[Resolved], bool]:
    """Return a function that tells whether a glob matches a target: the requested one, or the one that runs.

    Raises:
        TypeError: `pattern` is no text.
    """
    if not isinstance(pattern, str):
        raise TypeError(f"a target's name or a pattern, not {shown(pattern)}")
    return lambda resolved: bool(fnmatch.filter(_names(resolved), pattern))


def _names(resolved: Resolved) -> list[str]:
    """Return what a pattern may match: the target that was asked for, with and without the runtime, or that runs."""
    return [resolved.name, resolved.target.name, resolved.name_with_runtime]


_EXAMPLES: Final[Mapping[str, str]] = {
    "requires": 'requires("mve", ram="256K")',
    "xfail_on": 'xfail_on("m4*", reason="no convolution yet")',
    "target_timeout": "target_timeout(120)",
    "hil_budget": 'hil_budget("*-qemu", instructions=12_000)',
    "hil_known": "hil_known(10)",
}
_MEANINGS: Final[Mapping[str, Callable[..., object]]] = {
    "requires": requires,
    "xfail_on": xfail_on,
    "target_timeout": target_timeout,
    "hil_budget": hil_budget,
    "hil_known": hil_known,
}
