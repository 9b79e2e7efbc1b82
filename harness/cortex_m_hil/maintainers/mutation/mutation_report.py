"""The report of a campaign of mutants: how many were noticed, by operator, and all survivors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cortex_m_hil.campaigns.store import Run
from cortex_m_hil.errors.text import counted
from cortex_m_hil.maintainers.mutation.mutation_worker import JUDGED, MutantOutcome

SHOWN: Final = 3  # operators named for a place at most


# With --once a mutant may have runs on several targets; the run whose outcome comes first in this order is used.
_DECIDE: Final = (*JUDGED, MutantOutcome.INFRA, MutantOutcome.NOT_BUILT, MutantOutcome.UNCHANGED)


def one_run_per_mutant(runs: Iterable[Run]) -> list[Run]:
    """Return one run for each mutant: the run that judged it, if there is one."""
    found: dict[str, Run] = {}
    for run in runs:
        mutant = run.key.rpartition(" ")[0]
        found[mutant] = min(found.get(mutant, run), run, key=lambda one: _DECIDE.index(MutantOutcome(one.verdict)))
    return list(found.values())


@dataclass(frozen=True)
class KillRate:
    """The number of killed mutants among those that were judged.

    Attributes:
        of: the operator, or the kind of change.
        isa: the ISA class of the target.
    """

    of: str
    target: str
    isa: str
    killed: int
    judged: int

    @property
    def rate(self) -> float:
        return self.killed / self.judged

    def __str__(self) -> str:
        return f"{self.killed} of {self.judged}, {self.rate:.0%}"


@dataclass(frozen=True)
class MutationReport:
    """The results of a campaign's runs.

    Attributes:
        operators: the operators of the campaign's programs. Further operators that are compiled from the same code
            are not reported.
    """

    runs: tuple[Run, ...]
    operators: frozenset[str]

    def runs_with(self, outcome: MutantOutcome) -> list[Run]:
        return [run for run in self.runs if run.verdict == outcome.value]

    @property
    def judged(self) -> list[Run]:
        """Return the runs that judged their mutant: it was killed or survived."""
        return [run for run in self.runs if MutantOutcome(run.verdict) in JUDGED]

    @property
    def survivors(self) -> list[Run]:
        return self.runs_with(MutantOutcome.SURVIVED)

    def rates_by_operator(self) -> list[KillRate]:
        """Return the rates by operator; a mutant in code that several operators share is counted for each of them."""
        return list(self._rates(lambda run: self.operators.intersection(run.figures["operators"])))

    def rates_by_kind(self) -> list[KillRate]:
        return list(self._rates(lambda run: [run.figures["kind"]]))

    def rates_by_purpose(self) -> list[KillRate]:
        return list(self._rates(lambda run: ["refuses arguments" if run.figures["refuses"] else "computes"]))

    def total(self) -> list[KillRate]:
        """Return the rate of each target over all mutants."""
        return list(self._rates(lambda run: ["all"]))

    def _rates(self, groups: Callable[[Run], Iterable[str]]) -> Iterator[KillRate]:
        found: dict[tuple[str, str, str], list[Run]] = {}
        for run in self.judged:
            for group in groups(run):
                found.setdefault((group, run.figures["target"], run.figures["isa"]), []).append(run)
        for (group, target, isa), runs in sorted(found.items()):
            killed = sum(run.verdict == MutantOutcome.KILLED.value for run in runs)
            yield KillRate(group, target, isa, killed, len(runs))

    def localized(self) -> tuple[int, int] | None:
        """Return how many killed mutants were localised to the right operator, and how many were localised.

        None if no mutant was localised.
        """
        looked = [
            run.figures["localized"] for run in self.runs_with(MutantOutcome.KILLED) if "localized" in run.figures
        ]
        return (sum(looked), len(looked)) if looked else None

    def mislocalized(self) -> list[Run]:
        return [run for run in self.runs_with(MutantOutcome.KILLED) if not run.figures.get("localized", True)]

    def fields(self) -> dict[str, Any]:
        """Return the results for the JSON answer."""
        localized = self.localized()
        return {
            **{outcome.name.lower(): len(self.runs_with(outcome)) for outcome in MutantOutcome},
            "rates": [_fields_of(rate) for rate in self.total()],
            "operators": [_fields_of(rate) for rate in self.rates_by_operator()],
            "kinds": [_fields_of(rate) for rate in (*self.rates_by_kind(), *self.rates_by_purpose())],
            "survivors": [_survivor(run) for run in self.survivors],
            "without_verdict": [{"mutant": run.key, "error": run.error} for run in self.runs_with(MutantOutcome.INFRA)],
            "localized": None if localized is None else {"right": localized[0], "of": localized[1]},
            "mislocalized": [
                {"mutant": run.key, "error": run.error, "named": run.figures["named"]} for run in self.mislocalized()
            ],
        }


def _fields_of(rate: KillRate) -> dict[str, Any]:
    names = ("of", "target", "isa", "killed", "judged", "rate")
    return {name: getattr(rate, name) for name in names}


def _survivor(run: Run) -> dict[str, Any]:
    names = ("target", "isa", "path", "line", "column", "function", "kind", "refuses", "operators", "diff")
    return {name: run.figures[name] for name in names}


def place(run: Run) -> str:
    """Return a mutant's place, as `firmware/…/linear.cpp:88:20`."""
    return f"{run.figures['top']}/{run.figures['path']}:{run.figures['line']}:{run.figures['column']}"


def _shown(operators: Sequence[str]) -> str:
    left = len(operators) - SHOWN
    return ", ".join(operators[:SHOWN]) + (f" and {counted(left, 'more operator')}" if left > 0 else "")


def survivors(runs: Sequence[Run]) -> Iterator[str]:
    """Yield each surviving mutant once, as a heading and a diff, with the targets on which it survived."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.key.rpartition(" ")[0], []).append(run)
    for several in found.values():
        first, figures = several[0], several[0].figures
        where = ", ".join(run.figures["target"] for run in several)
        inside = f"in {figures['function']}, " if figures["function"] else ""
        operators = _shown(figures["operators"])
        head = f"{place(first)}: survived on {where} ({inside}{figures['kind']}; {operators})"
        yield f"{head}\n{figures['diff'].rstrip()}"
