"""The command `hil inspect fit`."""

from __future__ import annotations

from collections.abc import Iterator

from cortex_m_hil.cli.answers import Answer, json_fields
from cortex_m_hil.cli.commands.inspect.group import inspect
from cortex_m_hil.cli.options import ProgramOptions, SeveralTargets, TargetOptions
from cortex_m_hil.cli.output import RAN_FIELDS, fields_of_target, label_of, table
from cortex_m_hil.cli.program_files import ModelArgument, programs_of
from cortex_m_hil.diagnose.memory_fit import Fit, Fitting, Region
from cortex_m_hil.targets.memory import Memory
from cortex_m_hil.targets.resolve import Resolved


@inspect.command(
    "fit",
    log=True,
    epilog=json_fields(
        {
            **RAN_FIELDS,
            "program": "the file, or the model's name",
            "method": "the one that ran",
            "inputs": "where its inputs are from, as text",
            "needs": (
                "a list of region (program, planned or bank NAME, method, stack where it is measured), size (bytes, "
                "proven), step, used (the peak), below (how it fails in size − step; empty where it cannot be "
                "smaller)"
            ),
            "temp": "the most bytes of the method pool that were allocated and freed again",
            "runs": "how often the program was run",
            "compiler": "what the runner was built with",
        }
    ),
)
def fit(
    model: ModelArgument,
    target: SeveralTargets,
    on: TargetOptions,
    given: ProgramOptions,
) -> None:
    """Find the least memory that a program runs in.

    Each figure is proven: the program runs in these sizes, and fails for want of memory in one step less of any.
    Inputs of a .pte file are those of --input, or those that pytest's --keep-programs left beside it, or are generated,
    the same every time.
    """
    choice = on.choose(target)
    program_for = programs_of(model, given)

    def ask(resolved: Resolved) -> Answer:
        program, source = program_for(resolved.target)
        with Fitting(resolved, multiplier=on.timeout_multiplier) as fitting:
            found = fitting.fit(program)
        fields = {**fields_of_target(resolved, found.ran), **_fields(found, model), "method": program.file.method}
        fields |= {"inputs": source}
        return Answer(_text(found, resolved, source), fields)

    choice.answer_each(ask)


def _text(found: Fit, resolved: Resolved, source: str) -> str:
    """Return the sizes with their proof, and the lines for a board's files."""
    numbers = [(f"{need.size}", f"{need.step}", f"{need.used}") for need in found.needs]
    proofs = [need.below.partition(":")[0] or "cannot be smaller" for need in found.needs]
    rows = [(need.region, *row, proof) for need, row, proof in zip(found.needs, numbers, proofs, strict=True)]
    stack = found.size(Region.STACK)
    lines = [
        label_of(resolved),
        table(("region", "bytes", "step", "peak", "one step below"), rows),
        "",
        *_memory_lines(found, resolved.target.board.memory),
        *([] if stack else ["stack        is not measured here"]),
        f"temp         {found.temp} bytes of the method pool are given back after each instruction",
        f"inputs       {source}",
        f"depends on   the inputs' values; {found.ran.runtime} {found.ran.runtime_version}; {found.compiler}",
    ]
    return "\n".join(lines)


def _memory_lines(found: Fit, memory: Memory) -> Iterator[str]:
    """Yield the lines for `memory:` in a board's file, or in a target's entry."""
    yield "memory:"
    yield from (f"  {line}" for line in found.memory(memory).sizes())
    yield ""


def _fields(found: Fit, model: str) -> dict[str, object]:
    return {"program": model, "needs": found.needs, "temp": found.temp, "runs": found.runs, "compiler": found.compiler}
