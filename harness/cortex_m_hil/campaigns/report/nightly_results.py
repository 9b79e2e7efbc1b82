"""The results of one nightly, for each test, target and runtime, with the versions of code and tools."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cortex_m_hil import errors
from cortex_m_hil.campaigns import property_names as prop
from cortex_m_hil.campaigns.store import from_fields
from cortex_m_hil.flow.coverage.counts import Coverage
from cortex_m_hil.runner.run_results import Verdict
from cortex_m_hil.runner.statistics import STATISTICS
from cortex_m_hil.targets.target import Clock

Figure: TypeAlias = "int | float | str"
TargetRuntime: TypeAlias = "tuple[str, str]"  # target, runtime
Figures: TypeAlias = "tuple[Figure, ...]"  # a value for each program of a test, in order
FAILED: Final = (Verdict.FAIL, Verdict.XPASS, Verdict.ERROR)
PASSED: Final = (Verdict.PASS, Verdict.XFAIL)
WORST: Final = {
    prop.MAX_QUANTA: max,
    prop.FAKE_QUANT_QUANTA: max,
    prop.MAX_ABS_ERROR: max,
    prop.SQNR_DB: min,
    prop.CORTEX_M_MACS: min,
    prop.CORTEX_M_OPERATORS: min,
}
"""Figures for which a test has the worst value of its programs, not the sum; with the function that finds it."""
FIGURES: Final = frozenset(
    (
        *WORST,
        *(clock.value for clock in Clock),
        *(one.figure for one in STATISTICS),
        *map(prop.fit_bytes, ("program", "planned", "method", "stack")),
        *(
            prop.LATENCY_TICKS,
            prop.PTE_BYTES,
            prop.ELF_BYTES,
            prop.ELF_STORED_BYTES,
            prop.WATCHED_BYTES,
            prop.UNINFORMATIVE,
        ),
    )
)
"""The names of all figures that are numbers, and can have a limit."""
BUILTIN: Final = "builtin"  # the runtime that is this project's own
RUNNER: Final = "(runner)"  # stands for a test's name if a result is about the runner's ELF
# Fields that pytest reports to `hil nightly` in addition to results: the number of tests, and the begin of a test.
COLLECTED, BEGUN = "collected", "begun"


@dataclass(frozen=True, order=True)
class Key:
    """The key of a result: the test, its suite, the runtime and the target.

    Attributes:
        suite: a path of tests, or `upstream`.
        target: the requested target.
    """

    suite: str
    runtime: str
    test: str
    target: str

    @property
    def target_runtime(self) -> TargetRuntime:
        return self.target, self.runtime

    def __str__(self) -> str:
        return f"{self.suite}|{self.runtime}|{self.test}@{self.target}"


@dataclass(frozen=True)
class Result:
    """The result of a test on a target, by a runtime.

    Attributes:
        ran: the target that really ran; "" if none ran.
        engine: the simulator with its version, or the board; "" if none ran.
        verdict: how the test ended.
        error: the class of the error.
        headline: the first line of the error's message.
        seconds: the host's time for setup, call and teardown.
        cpu_seconds: the CPU time of the test's process.
        earlier: the outcomes of attempts before the last.
        figures: figures by their names in JUnit files without `hil_`; a value for each program that the test ran.
        about: facts that are no figures, by their names in JUnit files without `hil_`; a value for each program that
            the test ran. They are the runtime with its version, the runner's build id, a digest of the program, the ISA
            class, the seed, where the program came from, seconds of lowering and runs.
        profiles: the packed profile of each program that passed and was counted; the store keeps them apart.
        parts: for some of the figures, the share of each operator or section: `{"instructions": {"aten::add": 90}}`.
        node_id: pytest's id of the test.
        localized: the operators that differ from the references, with `--hil-localize`.
        bundle: the name of the failure's bundle; "" if none.
    """

    key: Key
    ran: str
    engine: str
    verdict: Verdict
    error: str = ""
    headline: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    earlier: tuple[str, ...] = ()
    figures: Mapping[str, tuple[Figure, ...]] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    node_id: str = ""
    log: str = field(default="", repr=False)
    localized: str = field(default="", repr=False)
    bundle: str = ""
    about: Mapping[str, tuple[Figure, ...]] = field(default_factory=dict)
    profiles: tuple[str, ...] = field(default=(), repr=False)

    @property
    def ending(self) -> str:
        return f"{self.verdict.value} {self.error}".strip()

    @property
    def origin(self) -> tuple[str, ...]:
        """Return the environment of the figures: only figures of the same origin are compared.

        It is the engine and the installed ExecuTorch, which does not belong to the code under test.
        """
        return self.engine, *(self.installed if self.key.runtime != BUILTIN else ())

    @property
    def installed(self) -> tuple[str, ...]:
        """Return the runtime with its version, which has a digest of an ExecuTorch's libraries."""
        return tuple(dict.fromkeys(map(str, self.about.get(prop.RUNTIME, ()))))

    @property
    def went_wrong(self) -> bool:
        """Tell whether the program failed by a VerdictError, so its figures must not be compared."""
        kind = vars(errors).get(self.error)
        wrong = isinstance(kind, type) and issubclass(kind, errors.VerdictError)
        return wrong and self.verdict not in PASSED

    def total(self, figure: str) -> float | None:
        """Return the sum of a figure over the programs of the test; None where the figure is missing or no number."""
        values = _numbers(self.figures.get(figure, ()))
        return sum(values) if values else None

    def value(self, figure: str) -> float | None:
        """Return a figure for all programs of the test: the sum, or the worst value for figures in `WORST`."""
        return combined(figure, self.figures.get(figure, ()))

    def parts_of(self, figure: str) -> Mapping[str, int]:
        """Return the parts of a figure; empty for a failed test that has them only for some programs."""
        parts = self.parts.get(figure, {})
        return parts if self.verdict in PASSED or sum(parts.values()) == self.total(figure) else {}

    def fields(self) -> dict[str, Any]:
        """Return the result as fields for JSON, which `of_fields` reads."""
        names = ("ran", "engine", "headline", "seconds", "cpu_seconds", "earlier", "figures", "parts", "about")
        return {
            **vars(self.key),
            "verdict": self.verdict.name,
            "error_type": self.error,
            **{name: getattr(self, name) for name in (*names, "node_id", "log", "localized", "bundle")},
        }

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> Result:
        """Build a result from the value of `fields`.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: the fields are malformed.
        """
        key = {name: fields[name] for name in ("suite", "runtime", "test", "target")}
        renamed = {"key": key, "verdict": Verdict[str(fields["verdict"])], "error": fields["error_type"]}
        renamed["node_id"] = fields.get("node_id", fields.get("rerun", ""))  # "rerun" is in older stores
        return from_fields(cls, {**fields, **renamed})


@dataclass(frozen=True)
class Night:
    """A nightly and its results.

    Attributes:
        name: the nightly's number.
        called: the name that a user gave it; "" if none.
        commit: the commit of the folder in which it was run; "" outside of a repository.
        dirty: whether files differed from the commit.
        began: seconds since 1970.
        tools: the tools that figures depend on, with versions; if one changes, figures are not compared.
        complete: False while tests are left.
        results: the results, one for each key.
        coverage: the coverage of the kernels; None if it was not requested.
        fit: patterns of the tests whose programs' least memory was requested.
        models: patterns of the tests in the table of models.
        shard: `i/n`, the part of the tests that it has.
        left_out: requested targets that could not run, and why.
        runtime_reasons: targets that `auto` ran on `builtin`, and why.
    """

    name: str
    commit: str
    dirty: bool
    began: float
    tools: Mapping[str, str]
    complete: bool
    results: Mapping[Key, Result] = field(repr=False)
    coverage: Coverage | None = field(default=None, repr=False)
    fit: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    shard: str = "1/1"
    called: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    runtime_reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def tests(self) -> list[Result]:
        """Return the results of tests, without those of runners."""
        return [one for key, one in self.results.items() if key.test != RUNNER]

    @property
    def verdicts(self) -> Counter[Verdict]:
        """Return how many tests ended with each verdict."""
        return Counter(one.verdict for one in self.tests)

    @property
    def by_target_runtime(self) -> dict[TargetRuntime, list[Result]]:
        """Return the results of tests by target and runtime, in the order of their first results."""
        found: dict[TargetRuntime, list[Result]] = {}
        for one in self.tests:
            found.setdefault(one.key.target_runtime, []).append(one)
        return found

    def fits(self, test: str) -> bool:
        """Tell whether the least memory of this test's programs was requested."""
        return is_named(test, self.fit)


def _numbers(values: Figures) -> list[int | float]:
    return [value for value in values if not isinstance(value, str)]


def combined(figure: str, values: Figures) -> float | None:
    """Return the sum of a figure's values, or the worst for figures in `WORST`; None without a number."""
    numbers = _numbers(values)
    return WORST.get(figure, sum)(numbers) if numbers else None


def comparable_values(before: Result, after: Result, figure: str) -> tuple[Figures, Figures] | None:
    """Return the values of a figure, earlier and later, that can be compared, whatever the verdicts.

    A test that did not pass may have ended before it ran all of its programs; its figures are compared with those of
    the same programs. None where the earlier result has fewer.
    """
    was, is_now = (one.figures.get(figure, ()) for one in (before, after))
    if after.verdict in PASSED:
        return (was, is_now) if before.verdict in PASSED or len(was) == len(is_now) else None
    return (was[: len(is_now)], is_now) if 0 < len(is_now) <= len(was) else None


def by_key(results: Iterable[Result]) -> dict[Key, Result]:
    """Return results by their keys, in order; of several with the same key the last."""
    found = {one.key: one for one in results}
    return {key: found[key] for key in sorted(found)}


def matches(test: str, target: str, test_pattern: str, target_pattern: str) -> bool:
    """Tell whether globs match a test, by its id without the target, and a target. Brackets are those of parameters."""
    pattern = test_pattern.replace("[", "[[]")
    return fnmatch.fnmatchcase(test, pattern) and fnmatch.fnmatchcase(target, target_pattern)


def is_named(test: str, patterns: Iterable[str]) -> bool:
    """Tell whether any of several globs matches a test, on any target."""
    return any(matches(test, "", pattern, "*") for pattern in patterns)


def count(results: Iterable[Result], verdicts: Collection[Verdict]) -> int:
    return sum(one.verdict in verdicts for one in results)


def as_text(total: float | None) -> str:
    """Return a figure as it is shown: counts in full, None as `-`."""
    return "-" if total is None else f"{total:.15g}"
