"""The command `hil dev fuzz`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from cortex_m_hil import flow
from cortex_m_hil.cli.campaigns import StoreFile, leading
from cortex_m_hil.cli.command_output import Answer, end, json_fields, say
from cortex_m_hil.cli.exit_codes import NO, OK
from cortex_m_hil.cli.options import YEAR, Method, TargetOptions, Targets, folder_to_write, within
from cortex_m_hil.cli.run_result_output import TARGET_FIELDS, fields_of_target, label_of
from cortex_m_hil.cli.tables import table
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.host import files
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.maintainers.commands.dev_group import dev
from cortex_m_hil.maintainers.fuzzing import fuzz_campaign as campaign
from cortex_m_hil.maintainers.fuzzing import mutant_judge as judge
from cortex_m_hil.maintainers.fuzzing import program_mutator as mutate
from cortex_m_hil.maintainers.networks import fuzz_models
from cortex_m_hil.program.bpte_file import read_program

MUTANTS: Final = 10000
NETWORKS: Final = 100


@dataclass(frozen=True)
class Options:
    """The options of `hil dev fuzz`."""

    target: Annotated[
        str, typer.Option("--target", "-t", metavar="NAME", help="A target's name; with --models also a list or a glob")
    ]
    ptes: Annotated[
        list[Path] | None, typer.Argument(metavar="[PROGRAM.pte]...", help="Programs to mutate", show_default=False)
    ] = None
    method: Method = ""
    models: Annotated[bool, typer.Option("--models", help="Run generated networks instead of mutated programs")] = False
    number: Annotated[
        int | None,
        typer.Option(
            "--count", metavar="N", min=1, help="Number of mutants [default: 10000] or of networks [default: 100]"
        ),
    ] = None
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            metavar="SECONDS",
            callback=within(1, YEAR),
            help="With --models: start no new network after this many seconds; without --count there is no other end",
        ),
    ] = None
    seed: Annotated[
        int, typer.Option("--seed", metavar="SEED", help="Seed of the mutants or networks: the same one gives the same")
    ] = 0
    corpus: Annotated[
        Path | None,
        typer.Option(
            "--corpus",
            metavar="FOLDER",
            callback=folder_to_write,
            help="Folder for mutants that show a bug, or for tests of failing networks [default with --models: fuzzed]",
        ),
    ] = None
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", "-j", "-n", metavar="N", min=1, help="With --models: number of networks that are judged at a time"
        ),
    ] = 1
    reset: Annotated[
        bool, typer.Option("--reset", help="With --models: forget the campaign of this folder, and start a new one")
    ] = False
    store_file: StoreFile = None
    runtime: Annotated[
        str,
        typer.Option(
            "--runtime", metavar="RUNTIME", help="builtin or executorch; with --models also both: builtin,executorch"
        ),
    ] = "builtin"
    targets_file: Targets = None


@dev.command(
    "fuzz",
    log=True,
    epilog=json_fields(
        {
            **TARGET_FIELDS,
            "seed": "the seed, as in the call",
            "mutants": "the number of mutants that were run",
            "outcomes": "by outcome, the number of mutants",
            "unsuited": "programs without mutants, since the target refuses the program itself: a list of program, why",
            "bugs": "a list of program, number (of the mutant), edits, detail, saved (the file, or null)",
        }
    )
    + "\n\n"
    + json_fields(
        {
            "outcome": "complete, or under way: networks are left",
            "left": "the number of networks that are left",
            "targets": "the targets, as in the call",
            "runtimes": "the runtimes, as in the call",
            "seed": "the seed, as in the call",
            "programs": "the number of networks that were judged",
            "outcomes": "the number of networks by outcome: passed, refused (everywhere), failed, infra",
            "runs": "by target and runtime, the number of networks that passed there",
            "partly": "the number of networks that passed, and were refused by another target or runtime",
            "defects": (
                "a list of kind, operator, known (the known bug that explains it, or empty), programs (the number of "
                "networks), first (the number of the first of them), places (targets and runtimes), message, fails and "
                "passes (test files)"
            ),
            "refusals": (
                "by reason, the number of networks that were refused for it; reasons that differ only in names and "
                "numbers are one"
            ),
            "would_fail_on_executorch": (
                "by reason, the number of networks that are right on builtin and would fail on ExecuTorch for it"
            ),
            "departed": "the number of networks whose outputs are further from fake-quant than rounding explains",
            "relations": (
                "by relation, the number of networks for which it holds, fails, was refused, does not apply, or was "
                "not compared (quantised differently). A relation changes the network, and says what that does to the "
                "outputs: batch (two inputs at once), permutation (output channels reversed), padding (as an operator "
                "of its own), layout (the other one)"
            ),
            "operators": "by operator and ISA class, the number of networks that have it",
            "classes": "by attribute of networks and ISA class, the number of networks that have it",
            "reached": (
                "files: by file of the compiler, and by ISA class and file of the kernels (DSP linear.cpp), the number "
                "of its lines that the networks executed (reached), and that can be (lines); decisions: a list of the "
                "results of the compiler's checks that occurred, such as CortexMDivCheck.check_pattern: False"
            ),
        },
        each="a campaign of --models",
    ),
)
def fuzz_command(asked: Options) -> None:
    """Run mutated programs or generated networks.

    Mutated programs test the runner; generated networks (--models) test the compiler, the kernels and the runner.

    Mutants are made of each PROGRAM.pte, by default of the program of the target's known-answer self-test. It is no bug
    if a mutant is refused with a typed error, or runs, whatever its outputs. It is a bug if the host or the target
    crashes, a sanitizer reports something, a program without a loop hangs, or host and target read another program.

    With --models, each network is lowered for the ISA class of each target, and run on each. Its outputs have to agree
    with the dialect, and with those of the other targets and runtimes. A campaign that was interrupted goes on when
    the same command is called again in the same folder. Exit status 1 if there is a bug.
    """
    if asked.models:
        end(_networks(asked))
    _require_mutants(asked)
    resolved = TargetOptions(runtime=asked.runtime, targets_file=asked.targets_file).resolve(asked.target)
    programs = [
        read_program(files.read(path, files.PROGRAM_LIMIT), str(path), asked.method) for path in asked.ptes or []
    ]
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
    counts = {outcome.value: tally.number(outcome) for outcome in judge.FuzzOutcome}
    fields = {"seed": asked.seed, "mutants": tally.total, "outcomes": counts, "unsuited": unsuited, "bugs": bugs}
    end(Answer(_text(tally), {**fields_of_target(resolved), **fields}, NO if bugs else OK))


def _networks(asked: Options) -> Answer:
    if asked.ptes or asked.method:
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
        raise ConfigError(f"{' and '.join(names)} without --models", hint="only --models has campaigns: add it")


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
    total = ("all", str(tally.total), *(str(tally.number(outcome)) for outcome in judge.FuzzOutcome))
    counts = table(("kind", "mutants", *(outcome.value for outcome in judge.FuzzOutcome)), [*rows, total])
    aware = f"{tally.field_aware:.0%} of them field-aware"
    return f"{counts}\n\n{tally.total} mutants, {aware}; {counted(len(tally.bugs), 'bug')}"
