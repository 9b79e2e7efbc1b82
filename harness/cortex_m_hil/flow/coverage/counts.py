"""Counts how often lines and branches of source files were executed; merges, reads and writes these counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from cortex_m_hil.targets.runtimes import RUNTIMES
from cortex_m_hil.targets.target import Target


@dataclass(frozen=True)
class Share:
    """The number of lines or branches that were executed, and the number of all."""

    covered: int
    all: int

    @classmethod
    def of(cls, counts: Iterable[int]) -> Share:
        every = list(counts)
        return cls(sum(count > 0 for count in every), len(every))

    @property
    def percent(self) -> float:
        return 100 * self.covered / max(self.all, 1)

    def __str__(self) -> str:
        return f"{self.covered}/{self.all} {self.percent:.1f} %"


@dataclass(frozen=True)
class Counts:
    """The counts of one file.

    Attributes:
        lines: for each line number how often the line was executed.
        branches: for each line number how often each of its branches was taken, in gcov's order.
    """

    lines: dict[int, int] = field(default_factory=dict)
    branches: dict[int, list[int]] = field(default_factory=dict)

    def add_line(self, number: int, count: int, branches: Iterable[int]) -> None:
        """Add the counts of a line; counts of the same line are summed.

        A line of a template or an inline function occurs several times.
        """
        self.lines[number] = self.lines.get(number, 0) + count
        taken = [sum(both) for both in zip_longest(self.branches.get(number, ()), branches, fillvalue=0)]
        if taken:
            self.branches[number] = taken

    def add(self, other: Counts) -> None:
        for number, count in other.lines.items():
            self.add_line(number, count, other.branches.get(number, ()))

    @property
    def share_of_lines(self) -> Share:
        return Share.of(self.lines.values())

    @property
    def share_of_branches(self) -> Share:
        return Share.of(count for line in self.branches.values() for count in line)

    @property
    def uncovered(self) -> str:
        """Return the lines that were not executed, as ranges: `12-15, 40`. No executed line lies within a range."""
        return self._spans(number for number, count in self.lines.items() if count == 0)

    def uncovered_since(self, before: Counts) -> str:
        """Return as ranges the lines that were executed `before` and are not now.

        "" if the file's lines are different now. The lines of a file that was edited since cannot be matched.
        """
        if self.lines.keys() != before.lines.keys():
            return ""
        return self._spans(number for number, count in self.lines.items() if count == 0 < before.lines[number])

    def executed_since(self, before: Counts) -> set[int]:
        """Return the lines that were executed more often than in `before`."""
        return {number for number, count in self.lines.items() if count > before.lines.get(number, 0)}

    def _spans(self, wanted: Iterable[int]) -> str:
        """Return the chosen lines as ranges; no other line with code is in a range."""
        chosen = set(wanted)
        spans: list[list[int]] = []
        goes_on = False
        for number in sorted(self.lines):
            if number in chosen and goes_on:
                spans[-1][-1] = number
            elif number in chosen:
                spans.append([number, number])
            goes_on = number in chosen
        return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


Files = dict[str, Counts]


def add_files(to: Files, more: Mapping[str, Counts]) -> None:
    for name, counts in more.items():
        to.setdefault(name, Counts()).add(counts)


def merged(parts: Mapping[Any, Mapping[str, Counts]]) -> Files:
    """Return the counts of several object files together, without source files that have no code."""
    found: Files = {}
    for files in parts.values():
        add_files(found, files)
    return {name: counts for name, counts in found.items() if counts.lines}


def total(files: Mapping[str, Counts]) -> tuple[Share, Share]:
    """Return the shares of lines and of branches that were executed, over all files."""
    lines = [count for one in files.values() for count in one.lines.values()]
    branches = [count for one in files.values() for line in one.branches.values() for count in line]
    return Share.of(lines), Share.of(branches)


@dataclass(frozen=True)
class LostCounts:
    """Counts that are missing: a target or worker ended, and what it executed since the last reading is not known.

    Attributes:
        where: the target or the worker that ended.
        during: the test that was running; "" if none was.
        why: the reason.
    """

    where: str
    during: str  # the test that was running, "" if none was
    why: str

    def __str__(self) -> str:
        return f"{self.where}{f', {self.during}' if self.during else ''}: {self.why}"


def class_of(target: Target, runtime: str) -> str:
    """Return the name of the ISA class that the target's counts belong to.

    The host is a class of its own, since no Cortex-M executed the code. So is each ISA class with ExecuTorch's kernels.
    """
    if target.cpu == "host":
        return f"{target.isa.value} (host)"
    return target.isa.value if runtime == "builtin" else f"{target.isa.value} ({runtime})"


def runtime_of(name: str) -> str:
    """Return the runtime in the name of a class that `class_of` returned."""
    return next((runtime for runtime in RUNTIMES if name.endswith(f" ({runtime})")), "builtin")


@dataclass
class ClassCoverage:
    """The coverage of one ISA class.

    Attributes:
        targets: the names of the targets of the class.
        boots: the number of boots whose counts were read.
        files: the counts of each file.
        tests: for each `TEST@TARGET`, how many lines of each file the test executed; files without executed lines are
            left out.
    """

    targets: set[str] = field(default_factory=set)
    boots: int = 0
    files: Files = field(default_factory=dict)
    tests: dict[str, dict[str, int]] = field(default_factory=dict)

    def add_test(self, name: str, executed: Mapping[str, int]) -> None:
        """Add the numbers of lines that a test executed; of several attempts and reboots the largest number counts."""
        known = self.tests.setdefault(name, {})
        known.update({file: max(lines, known.get(file, 0)) for file, lines in executed.items()})


@dataclass
class Coverage:
    """The coverage of a run.

    Attributes:
        classes: the coverage by the name of the ISA class.
        lost: counts that are missing.
        uncounted: tests that ran on a runner that does not count coverage.
    """

    classes: dict[str, ClassCoverage] = field(default_factory=dict)
    lost: list[LostCounts] = field(default_factory=list)
    uncounted: list[str] = field(default_factory=list)

    def of(self, target: Target, runtime: str) -> ClassCoverage:
        """Return the coverage of the target's ISA class; add it if it is missing."""
        return self.classes.setdefault(class_of(target, runtime), ClassCoverage())

    def of_test(self, test: str, target: str, runtime: str) -> dict[str, tuple[int, int]]:
        """Return for each file how many lines a test executed, and how many lines the file has.

        Files without executed lines are left out.
        """
        for name, one in self.classes.items():
            executed = one.tests.get(f"{test}@{target}")
            if executed is not None and runtime_of(name) == runtime:
                return {file: (lines, len(one.files[file].lines)) for file, lines in executed.items()}
        return {}

    def add_boot(self, target: Target, runtime: str, files: Mapping[str, Counts]) -> None:
        """Add the counts of a target from one boot to its end."""
        found = self.of(target, runtime)
        found.targets.add(target.name)
        found.boots += 1
        add_files(found.files, files)

    def add(self, other: Coverage) -> None:
        for name, more in other.classes.items():
            found = self.classes.setdefault(name, ClassCoverage())
            found.targets |= more.targets
            found.boots += more.boots
            add_files(found.files, more.files)
            for test, executed in more.tests.items():
                found.add_test(test, executed)
        self.lost += other.lost
        self.uncounted += other.uncounted

    def fields(self) -> dict[str, Any]:
        """Return the coverage as values for JSON, which `from_fields` reads."""
        return {
            "classes": {name: _fields_of(one) for name, one in sorted(self.classes.items())},
            "lost": [vars(one) for one in self.lost],
            "uncounted": self.uncounted,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Coverage:
        """Return the coverage that `fields` described.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: the values are malformed.
        """
        classes = {str(name): _class_of_fields(one) for name, one in fields["classes"].items()}
        return cls(
            classes,
            [LostCounts(*(str(one[name]) for name in ("where", "during", "why"))) for one in fields["lost"]],
            [str(one) for one in fields["uncounted"]],
        )


def _fields_of(one: ClassCoverage) -> dict[str, Any]:
    lines, branches = total(one.files)
    return {
        "targets": sorted(one.targets),
        "boots": one.boots,
        "lines": vars(lines),
        "branches": vars(branches),
        "files": {name: _fields_of_file(counts) for name, counts in sorted(one.files.items())},
        "tests": {name: dict(sorted(executed.items())) for name, executed in sorted(one.tests.items())},
    }


def _class_of_fields(one: Mapping[str, Any]) -> ClassCoverage:
    tests = one.get("tests", {})  # absent in files of earlier versions
    return ClassCoverage(
        set(map(str, one["targets"])),
        int(one["boots"]),
        {str(name): _counts(of) for name, of in one["files"].items()},
        {str(name): {str(file): int(lines) for file, lines in of.items()} for name, of in tests.items()},
    )


def _fields_of_file(counts: Counts) -> dict[str, Any]:
    """Return the counts of a file as values for JSON, where line numbers are keys, and therefore text."""
    return {
        "lines": {str(number): count for number, count in sorted(counts.lines.items())},
        "branches": {str(number): taken for number, taken in sorted(counts.branches.items())},
        "uncovered_lines": sorted(number for number, count in counts.lines.items() if not count),
        "uncovered_branches": sorted(number for number, taken in counts.branches.items() if not all(taken)),
    }


def _counts(fields: Mapping[str, Any]) -> Counts:
    return Counts(
        {int(number): int(count) for number, count in fields["lines"].items()},
        {int(number): list(map(int, taken)) for number, taken in fields["branches"].items()},
    )
