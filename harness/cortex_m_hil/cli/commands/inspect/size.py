"""The command `hil inspect size`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cortex_m_hil.cli.command_output import Answer, end, json_fields
from cortex_m_hil.cli.commands.inspect.inspect_group import inspect
from cortex_m_hil.cli.options import Method, file_to_write
from cortex_m_hil.cli.run_result_output import CONSTANTS_HELP, constants_as_fields
from cortex_m_hil.cli.tables import table
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import counted, printable
from cortex_m_hil.host import files
from cortex_m_hil.program import size as of_programs
from cortex_m_hil.program.bpte_file import extract_pte, read_program
from cortex_m_hil.program.plan_picture import plan_svg
from cortex_m_hil.program.pte_reader import read_methods
from cortex_m_hil.runner import elf_size as of_elfs
from cortex_m_hil.targets.elf_architecture import MAGIC

SHOWN: Final = 20  # symbols of an ELF, without --all


@inspect.command(
    "size",
    epilog=json_fields(
        {
            "file": "the file",
            "kind": "pte or elf",
            "bytes": "the file's size; of an ELF what it takes in memory",
            "methods": "names of the methods that compute; empty of an ELF",
            "constants": f"{CONSTANTS_HELP}; empty of an ELF",
            "planned": (
                "a list of method, mem_id, nbytes: planned buffers, and as mem_id 0 inputs and outputs without a plan; "
                "empty of an ELF, whose banks are sections"
            ),
            "sections": "a list of name, nbytes; of an ELF also address, and stored: bytes in the file",
            "operators": (
                "of a .pte: operator, nbytes of the constants that it takes; of an ELF: operator, own (bytes that it "
                "alone needs), reached (all that its kernel refers to); empty where it is no builtin runner for Arm"
            ),
            "parts": (
                "of a .pte: section, what, nbytes, count, method, value, operator, instruction, argument (the "
                "last five are -1 or empty where they do not apply); of an ELF: section, symbol (empty: bytes that no "
                "symbol names), nbytes, operators (empty text: the runner itself)"
            ),
        }
    ),
)
def size(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .pte or an ELF", show_default=False)],
    everything: Annotated[bool, typer.Option("--all", help=f"Every symbol of an ELF, not the {SHOWN} largest")] = False,
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="FILE.svg",
            callback=file_to_write,
            help="Draw the memory plan of the method",
            show_default=False,
        ),
    ] = None,
    method: Method = "",
) -> None:
    """Show what the bytes of a program or an ELF are for. Each byte is counted once.

    Of a .pte: its sections, the constants by the operator that takes them, its methods, and what the constant ones
    return. Of an ELF: its sections and symbols;
    of a builtin runner for Arm also what each operator adds.
    """
    if files.read(file, files.ELF_LIMIT)[: len(MAGIC)] == MAGIC:
        if plan is not None:
            raise ConfigError(f"{file} is an ELF, which has no memory plan", hint="--plan with a .pte")
        end(_elf(file, everything))
    content = files.read(file, files.PROGRAM_LIMIT)
    answer = _program(file, content)
    if plan is not None:
        program = read_program(content, str(file), method)
        files.write_atomically(plan, plan_svg(program).encode(), "--plan takes a file that can be written")
    end(answer)


def _program(path: Path, content: bytes) -> Answer:
    data = extract_pte(content, str(path))
    [method, *_] = methods = read_methods(data, printable(str(path)))
    found = of_programs.measure_pte(method)
    shares = [(one.value, f"{nbytes}", f"{nbytes / found.nbytes:.1%}") for one, nbytes in found.sections.items()]
    parts = [(part.section.value, f"{part.nbytes}", f"{part.count}", part.what, _use(part)) for part in found.parts]
    blocks = [
        table(("section", "bytes", "share"), [*shares, ("all", f"{found.nbytes}", "100.0%")]),
        table(("operator", "bytes of constants"), [(name, f"{nbytes}") for name, nbytes in found.operators.items()]),
        table(("section", "bytes", "count", "what", "taken by"), parts),
    ]
    planned: list[dict[str, Any]] = [
        {"method": one.method, "mem_id": number, "nbytes": nbytes}
        for one in methods
        for number, nbytes in enumerate((one.unplanned_bytes, *one.planned_sizes[1:]))
        if number or nbytes
    ]
    if planned:
        rows = [(one["method"], f"{one['mem_id'] or 'none'}", f"{one['nbytes']}") for one in planned]
        blocks.append(table(("method", "mem_id", "bytes of planned tensors"), rows))
    values = [(name, f"{value}") for name, value in constants_as_fields(method.constants).items()]
    blocks += [table(("constant", "value"), values)] if values else []
    blocks += [f"methods: {', '.join(method.methods)}"] if len(method.methods) > 1 else []
    sections = [{"name": one.value, "nbytes": nbytes} for one, nbytes in found.sections.items()]
    operators = [{"operator": name, "nbytes": nbytes} for name, nbytes in found.operators.items()]
    fields: dict[str, object] = {"methods": method.methods, "constants": constants_as_fields(method.constants)}
    fields |= {"planned": planned, "sections": sections, "operators": operators, "parts": found.parts}
    return Answer("\n\n".join(blocks), {"file": path, "kind": "pte", "bytes": found.nbytes, **fields})


def _use(part: of_programs.PtePart) -> str:
    return f"{part.operator}, argument {part.argument} (operator {part.instruction})" if part.operator else ""


def _elf(path: Path, everything: bool) -> Answer:
    found = of_elfs.measure_elf(path)
    blocks = [
        table(
            ("section", "address", "bytes", "in the file"),
            [(one.name, f"{one.address:#010x}", f"{one.nbytes}", f"{one.stored}") for one in found.sections],
        )
    ]
    if found.operators:
        rows = [(one.operator, f"{one.own}", f"{one.reached}") for one in found.operators]
        blocks.append(table(("operator", "its own", "with what it shares"), rows))
    symbols = sorted((part for part in found.parts if part.symbol), key=lambda part: -part.nbytes)
    shown = symbols if everything else symbols[:SHOWN]
    blocks.append(table(("section", "bytes", "symbol", "operators"), [_row(part) for part in shown]))
    if len(shown) < len(symbols):
        blocks.append(f"{counted(len(symbols) - len(shown), 'more symbol')}: --all")
    fields: dict[str, object] = {"methods": (), "constants": {}}
    fields |= {"planned": (), "sections": found.sections, "operators": found.operators, "parts": found.parts}
    nbytes = sum(one.nbytes for one in found.sections)
    return Answer("\n\n".join(blocks), {"file": path, "kind": "elf", "bytes": nbytes, **fields})


def _row(part: of_elfs.SymbolSize) -> tuple[str, ...]:
    return part.section, f"{part.nbytes}", part.symbol, _operators(part.operators)


def _operators(names: Sequence[str]) -> str:
    named = [name or "the runner" for name in names]
    return ", ".join(named) if len(named) < 3 else f"{len(named)} of them"
