"""The command `hil dev fuzz`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from cortex_m_hil import flow
from cortex_m_hil.cli.answers import NO, OK, Answer, end, json_fields, say
from cortex_m_hil.cli.campaigns import StoreFile, leading
from cortex_m_hil.cli.options import YEAR, TargetOptions, Targets, folder_to_write, within
from cortex_m_hil.cli.output import TARGET_FIELDS, fields_of_target, label_of, table
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.host import files
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.maintainers.commands.group import dev
from cortex_m_hil.maintainers.fuzzing import fuzz_campaign as campaign
from cortex_m_hil.maintainers.fuzzing import mutant_judge as judge
from cortex_m_hil.maintainers.fuzzing import program_mutator as mutate
from cortex_m_hil.maintainers.networks import fuzz_models
from cortex_m_hil.program.bundled import read_program

MUTANTS: Final = 10000
NETWORKS: Final = 100


@dataclass(frozen=True)
class Options:
    """The options of fuzzing."""

    target: Annotated[str, typer.Option("--target", "-t", metavar="NAME", help="With --models also a list or a glob")]
    ptes: Annotated[list[Path] | None, typer.Argument(metavar="[PROGRAM.pte]...", show_default=False)] = None
    models: Annotated[bool, typer.Option("--models", help="Generated networks instead of mutated programs")] = False
    number: Annotated[
        int | None,
        typer.Option("--count", min=1, help="Mutants [default: 10000], or generated networks [default: 100]"),
    ] = None
    seconds: Annotated[
        float | None,
        typer.Option(
            callback=within(1, YEAR), help="With --models: begin none after so many; the only end without --count"
        ),
    ] = None
    seed: Annotated[int, typer.Option("--seed", help="The same seed makes the same mutants or networks")] = 0
    corpus: Annotated[
        Path | None,
        typer.Option(
            "--corpus", callback=folder_to_write, help="A folder for what finds a bug [default with --models: fuzzed]"
        ),
    ] = None
    jobs: Annotated[int, typer.Option("--jobs", "-j", "-n", min=1, help="With --models: networks at a time")] = 1
    reset: Annotated[bool, typer.Option("--reset", help="With --models: begin anew what was begun in this folder")] = (
        False
    )
    store_file: StoreFile = None
    runtime: Annotated[str, typer.Option("--runtime", help="builtin or executorch; with --models also both: a,b")] = (
        "builtin"
    )
    targets_file: Targets = None


@dev.command(
    "fuzz",
    log=True,
    epilog=json_fields(
        {
            **TARGET_FIELDS,
            "seed, mutants": "the seed, and how many were run",
            "outcomes": "how many ended in which way",
            "unsuited": "programs that the target refuses unchanged: program, why",
            "bugs": "a list of program, number, edits, detail, saved (the file, or null)",
        }
    )
    + "\n\n"
    + json_fields(
        {
            "outcome, left": "complete, or under way and how many networks are left",
            "targets, runtimes, seed, programs": "what was asked, and how many networks were judged",
            "outcomes": "how many passed, were refused everywhere, failed, or told nothing (infra)",
            "runs": "how many passed, by target and runtime",
            "partly": "how many of those that passed were refused on some target or runtime",
            "defects": (
                "a list of kind, operator, known (the known bug that it is, or empty), programs (how many), first (its "
                "number), places, message, fails and passes (test files)"
            ),
            "refusals": "networks by reason, of reasons that differ only in names and numbers the first",
            "departed": "how many were further from fake-quant than rounding explains",
            "relations": "of each relation, how often it holds, fails, was quantised otherwise, refused, or not asked",
            "operators, classes": "of operators and of attributes, in how many networks by ISA class",
            "reached": (
                "files: lines reached of lines in each file of the compiler, and of the kernels by ISA class (DSP "
                "linear.cpp); decisions of checks and passes"
            ),
        },
        each="a campaign of --models",
    ),
)
def fuzz_command(asked: Options) -> None:
    """Run mutated programs or generated networks.

    Mutated programs look for bugs of the runner; generated networks, with --models, for bugs of any part.

    Without a program those of the target's known-answer self-test are mutated.
    A mutant may be refused with a type, or end with the program's own outputs bit for bit, or with others, which a
    test calls a Mismatch. A crash, a sanitizer's report, a hang without a loop, a host and a target that disagree:
    these are bugs.

    A network is lowered for the ISA class of each target and run on each. Its outputs must be those of the dialect, and
    those of the other targets and runtimes. What is begun in a folder goes on there, whatever ended it. Exit status 1
    if there is a bug.
    """
    if asked.models:
        end(_networks(asked))
    _require_mutants(asked)
    resolved = TargetOptions(runtime=asked.runtime, targets_file=asked.targets_file).resolve(asked.target)
    programs = [read_program(files.read(path, files.PROGRAM_LIMIT), str(path)) for path in asked.ptes or []]
    with flow.open_dut(resolved) as dut:
        fuzzers = [judge.Fuzzer(dut, program) for program in programs] or [campaign.known_answer_fuzzer(dut)]
        for fuzzer in (one for one in fuzzers if one.unsuited):
            say(f"note      {fuzzer.program.name}: none can pass here: {fuzzer.unsuited}")
        say(f"fuzzing   {label_of(resolved)}, seed {asked.seed}")
        bugs: list[dict[str, object]] = []
        tally = campaign.campaign(
            fuzzers,
            asked.number or MUTANTS,
            asked.seed,
            lambda one, judged: bugs.extend(_bug(one, judged, asked.corpus)),
        )
        unsuited = [{"program": one.program.name, "why": one.unsuited} for one in fuzzers if one.unsuited]
    counts = {outcome.value: tally.of(outcome) for outcome in judge.FuzzOutcome}
    fields = {"seed": asked.seed, "mutants": tally.total, "outcomes": counts, "unsuited": unsuited, "bugs": bugs}
    end(Answer(_text(tally), {**fields_of_target(resolved), **fields}, NO if bugs else OK))


def _networks(asked: Options) -> Answer:
    if asked.ptes:
        raise ConfigError("--models generates its programs, and takes none", hint="leave out --models, or the programs")
    count = asked.number or (0 if asked.seconds else NETWORKS)
    plan = fuzz_models.network_plan(asked.target, asked.runtime, count, asked.seed, asked.targets_file)
    with leading(asked.store_file) as kept:
        under_way = fuzz_models.begun(kept, plan, reset=asked.reset)
        out = (asked.corpus or Path("fuzzed")).absolute()
        return fuzz_models.run(under_way, asked.jobs, Deadline.after(asked.seconds or YEAR), out)


def _require_mutants(asked: Options) -> None:
    given = {
        "--seconds": asked.seconds is not None, "--jobs": asked.jobs > 1, "--store": asked.store_file is not None,
        "--reset": asked.reset,
    }  # fmt: skip
    if names := [name for name, is_given in given.items() if is_given]:
        raise ConfigError(f"{' and '.join(names)}: of mutated programs there are no campaigns", hint="with --models")


def _bug(fuzzer: judge.Fuzzer, judged: judge.MutantJudgement, corpus: Path | None) -> Iterator[dict[str, object]]:
    """Print and yield a bug as soon as it is found; yield nothing for any other judgement."""
    if judged.outcome is not judge.FuzzOutcome.BUG:
        return
    path = campaign.save(corpus, fuzzer, judged) if corpus is not None else None
    mutant = judged.mutant
    where = f" ({path})" if path is not None else ""
    say(f"BUG       {fuzzer.program.name} {mutant.number}: {'; '.join(mutant.edits)}: {judged.detail}{where}")
    told = {"program": fuzzer.program.name, "number": mutant.number, "edits": mutant.edits}
    yield {**told, "detail": judged.detail, "saved": path}


def _text(tally: campaign.Tally) -> str:
    rows = [
        (
            kind.value,
            str(tally.of_kind(kind)),
            *(str(tally.counts[kind, outcome] or "-") for outcome in judge.FuzzOutcome),
        )
        for kind in mutate.FieldEdit
    ]
    total = ("all", str(tally.total), *(str(tally.of(outcome)) for outcome in judge.FuzzOutcome))
    counts = table(("kind", "mutants", *(outcome.value for outcome in judge.FuzzOutcome)), [*rows, total])
    aware = f"{tally.field_aware:.0%} of them field-aware"
    return f"{counts}\n\n{tally.total} mutants, {aware}; {counted(len(tally.bugs), 'bug')}"
