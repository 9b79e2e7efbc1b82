"""hil fuzz."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil import flow
from cortex_m_hil.cli.app import NO, app
from cortex_m_hil.cli.files import read_program
from cortex_m_hil.cli.options import OneTarget, Runtime, Targets, resolve_target
from cortex_m_hil.cli.output import counted, label_of, print_table
from cortex_m_hil.fuzz import campaign, judge, mutate


@app.command("fuzz")
def fuzz_command(
    target: OneTarget,
    ptes: Annotated[list[Path] | None, typer.Argument(metavar="[PROGRAM.pte]...", show_default=False)] = None,
    number: Annotated[int, typer.Option("--count", min=1, help="Mutants, the programs taking turns")] = 10000,
    seed: Annotated[int, typer.Option("--seed", help="The same seed makes the same mutants")] = 0,
    corpus: Annotated[Path | None, typer.Option("--corpus", help="A folder for mutants that find a bug")] = None,
    runtime: Runtime = "builtin",
    targets_file: Targets = None,
) -> None:
    """Run hostile mutants of programs, by default of the target's canary. Exit status 1 if one finds a bug.

    A mutant may be refused with a type, or end with the program's own outputs bit for bit, or with others, which a
    test calls a Mismatch. A crash, a sanitizer's report, a hang without a loop, a host and a target that disagree:
    these are bugs.
    """
    resolved = resolve_target(target, targets_file, runtime)
    programs = [read_program(path) for path in ptes or []]
    with flow.open_dut(resolved) as dut:
        fuzzers = [judge.Fuzzer(dut, program) for program in programs] or [campaign.canary_fuzzer(dut)]
        for unsuited in (one for one in fuzzers if one.unsuited):
            print(f"note      {unsuited.program.name}: none can pass here: {unsuited.unsuited}")
        print(f"fuzzing   {label_of(resolved)}, seed {seed}", flush=True)
        tally = campaign.campaign(fuzzers, number, seed, lambda one, judged: _tell_judgement(one, judged, corpus))
    _tell_tally(tally)
    raise typer.Exit(NO if tally.bugs else 0)


def _tell_judgement(fuzzer: judge.Fuzzer, judged: judge.Judgement, corpus: Path | None) -> None:
    """Bugs, as they are found."""
    if judged.outcome is not judge.Outcome.BUG:
        return
    where = f" ({campaign.save(corpus, fuzzer, judged)})" if corpus is not None else ""
    edits = "; ".join(judged.mutant.edits)
    print(f"BUG       {fuzzer.program.name} {judged.mutant.number}: {edits}: {judged.detail}{where}", flush=True)


def _tell_tally(tally: campaign.Tally) -> None:
    rows = [
        (kind.value, str(tally.of_kind(kind)), *(str(tally.counts[kind, outcome] or "-") for outcome in judge.Outcome))
        for kind in mutate.Kind
    ]
    total = ("all", str(tally.total), *(str(tally.of(outcome)) for outcome in judge.Outcome))
    print_table(("kind", "mutants", *(outcome.value for outcome in judge.Outcome)), [*rows, total])
    print(f"\n{tally.total} mutants, {tally.field_aware:.0%} of them field-aware; {counted(len(tally.bugs), 'bug')}")
