"""hil fuzz."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil import flow
from cortex_m_hil.api import load_program
from cortex_m_hil.cli.answers import NO, OK, Answer, end, say
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.options import Json, OneTarget, Runtime, Targets, resolve_target
from cortex_m_hil.cli.output import fields_of_target, label_of, table
from cortex_m_hil.fuzz import campaign, judge, mutate
from cortex_m_hil.text import counted


@app.command("fuzz")
def fuzz_command(
    target: OneTarget,
    ptes: Annotated[list[Path] | None, typer.Argument(metavar="[PROGRAM.pte]...", show_default=False)] = None,
    number: Annotated[int, typer.Option("--count", min=1, help="Mutants, the programs taking turns")] = 10000,
    seed: Annotated[int, typer.Option("--seed", help="The same seed makes the same mutants")] = 0,
    corpus: Annotated[Path | None, typer.Option("--corpus", help="A folder for mutants that find a bug")] = None,
    runtime: Runtime = "builtin",
    targets_file: Targets = None,
    as_json: Json = False,
) -> None:
    """Run mutated programs, and look for bugs of the runner. Exit status 1 if there is one.

    Without a program those of the target's known-answer self-test are mutated.
    A mutant may be refused with a type, or end with the program's own outputs bit for bit, or with others, which a
    test calls a Mismatch. A crash, a sanitizer's report, a hang without a loop, a host and a target that disagree:
    these are bugs.
    """
    resolved = resolve_target(target, targets_file, runtime)
    programs = [load_program(path) for path in ptes or []]
    with flow.open_dut(resolved) as dut:
        fuzzers = [judge.Fuzzer(dut, program) for program in programs] or [campaign.known_answer_fuzzer(dut)]
        for fuzzer in (one for one in fuzzers if one.unsuited):
            say(f"note      {fuzzer.program.name}: none can pass here: {fuzzer.unsuited}")
        say(f"fuzzing   {label_of(resolved)}, seed {seed}")
        bugs: list[dict[str, object]] = []
        tally = campaign.campaign(fuzzers, number, seed, lambda one, judged: bugs.extend(_bug(one, judged, corpus)))
        unsuited = [{"program": one.program.name, "why": one.unsuited} for one in fuzzers if one.unsuited]
    counts = {outcome.value: tally.of(outcome) for outcome in judge.Outcome}
    fields = {"seed": seed, "mutants": tally.total, "outcomes": counts, "unsuited": unsuited, "bugs": bugs}
    end(Answer(_text(tally), {**fields_of_target(resolved), **fields}, NO if bugs else OK))


def _bug(fuzzer: judge.Fuzzer, judged: judge.Judgement, corpus: Path | None) -> Iterator[dict[str, object]]:
    """A bug, told as it is found; nothing for any other judgement."""
    if judged.outcome is not judge.Outcome.BUG:
        return
    path = campaign.save(corpus, fuzzer, judged) if corpus is not None else None
    mutant = judged.mutant
    where = f" ({path})" if path is not None else ""
    say(f"BUG       {fuzzer.program.name} {mutant.number}: {'; '.join(mutant.edits)}: {judged.detail}{where}")
    told = {"program": fuzzer.program.name, "number": mutant.number, "edits": mutant.edits}
    yield {**told, "detail": judged.detail, "saved": path}


def _text(tally: campaign.Tally) -> str:
    rows = [
        (kind.value, str(tally.of_kind(kind)), *(str(tally.counts[kind, outcome] or "-") for outcome in judge.Outcome))
        for kind in mutate.Kind
    ]
    total = ("all", str(tally.total), *(str(tally.of(outcome)) for outcome in judge.Outcome))
    counts = table(("kind", "mutants", *(outcome.value for outcome in judge.Outcome)), [*rows, total])
    aware = f"{tally.field_aware:.0%} of them field-aware"
    return f"{counts}\n\n{tally.total} mutants, {aware}; {counted(len(tally.bugs), 'bug')}"
