"""Which mutant is judged next, on which target; and which of its verdicts counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cortex_m_hil.campaigns.store import Run
from cortex_m_hil.maintainers.mutation.mutation_campaign import Mutation, MutationPlan, MutationWorkers
from cortex_m_hil.maintainers.mutation.mutation_report import MutationReport, one_run_per_mutant
from cortex_m_hil.maintainers.mutation.mutation_worker import MutantOutcome
from cortex_m_hil.maintainers.mutation.source_mutants import mutants_of

TARGETS = "native", "m4-qemu", "m55-qemu"
MUTANTS = tuple(mutants_of("x.cpp", "int f(int a, int b) {\n  return a + b < 3;\n}\n"))[:2]
FIRST, SECOND = (one.name for one in MUTANTS)


def mutation(*, once: bool) -> Mutation:
    plan = MutationPlan(("test_it.py",), TARGETS, 2, 0, "", once=once)
    return Mutation(plan, MUTANTS, MutationWorkers(plan.settings(Path()), Path()))


def run(mutant: str, target: str, outcome: MutantOutcome) -> Run:
    return Run(f"{mutant} {target}", outcome.value, "", 1.0, 0.0, {"target": target, "isa": "SCALAR"})


def test_what_one_target_judged_is_left_to_no_other() -> None:
    campaign = mutation(once=True)
    assert campaign.next([]) == f"{FIRST} native"
    assert campaign.next([], [f"{FIRST} native"]) == f"{SECOND} native"
    assert campaign.next([], [f"{FIRST} native", f"{SECOND} native"]) is None
    for outcome in (MutantOutcome.KILLED, MutantOutcome.SURVIVED):
        runs = [run(FIRST, "native", outcome), run(SECOND, "native", MutantOutcome.UNCHANGED)]
        assert campaign.next(runs) == f"{SECOND} m4-qemu"
        assert campaign.keys_left(runs) == [f"{SECOND} m4-qemu", f"{SECOND} m55-qemu"]


def test_otherwise_each_target_judges_each_mutant() -> None:
    campaign = mutation(once=False)
    assert campaign.next([], [f"{FIRST} native"]) == f"{FIRST} m4-qemu"
    assert campaign.left([run(FIRST, "native", MutantOutcome.KILLED)]) == len(MUTANTS) * len(TARGETS) - 1


def test_of_several_targets_the_one_that_judged_it_counts() -> None:
    runs = [
        run(FIRST, "native", MutantOutcome.UNCHANGED),
        run(SECOND, "native", MutantOutcome.UNCHANGED),
        run(FIRST, "m4-qemu", MutantOutcome.SURVIVED),
        run(SECOND, "m4-qemu", MutantOutcome.INFRA),
        run(SECOND, "m55-qemu", MutantOutcome.UNCHANGED),
    ]
    first, second = one_run_per_mutant(runs)
    assert (first.verdict, first.figures["target"]) == ("survived", "m4-qemu")
    assert second.verdict == "infra"  # nobody knows whether it would be noticed


def test_what_was_named_wrongly_is_listed() -> None:
    def killed(mutant: str, *named: str, right: bool) -> Run:
        one = run(mutant, "native", MutantOutcome.KILLED)
        return replace(one, figures={**one.figures, "named": list(named), "localized": right})

    report = MutationReport((killed(FIRST, "aten::add.out", right=True), killed(SECOND, right=False)), frozenset())
    assert report.localized() == (1, 2)
    assert [one.key for one in report.mislocalized()] == [f"{SECOND} native"]
