"""Generates the header and linker scripts of a runner's build from a board's `memory:`.

`python -m cortex_m_hil.runner.memory_files BOARD FOLDER` writes them for a build by CMake alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from cortex_m_hil.errors import HarnessError
from cortex_m_hil.targets.load import load_board
from cortex_m_hil.targets.memory import Memory
from cortex_m_hil.targets.target import Board

SCRIPT: Final = "runner.ld"  # for the linker's -T, with the folders of all three scripts as -L
_MADE: Final = "Generated of memory: in board.yaml and targets.yaml."


def memory_files(board: Board) -> dict[str, str]:
    """Return the contents of the generated files by their names.

    `memory.h` has the sizes of the pools, for `firmware/runner/pools.cpp`; on the host it is the only file. `runner.ld`
    is the linker script, and `banks.ld` its sections of the banks and of `temp`, which `firmware/platform/sections.ld`
    includes.
    """
    found = {"memory.h": "\n".join([f"// {_MADE}", *_header(board.memory), ""])}
    if board.memory.stack is not None:
        scripts = ["board.ld"] if (board.directory / "board.ld").is_file() else []
        includes = [f"INCLUDE {name}" for name in (*scripts, "sections.ld")]
        found[SCRIPT] = "\n".join([f"/* {_MADE} */", *_script(board.memory), *includes, ""])
        found["banks.ld"] = "\n".join([f"/* {_MADE} */", *_sections(board.memory), ""])
    return found


def write_memory_files(board: Board, folder: Path) -> None:
    """Write the files into a folder, which is created; existing files that would not change are not touched."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in memory_files(board).items():
        path = folder / name
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


def _header(memory: Memory) -> Iterator[str]:
    flash = memory.resident_region
    sizes: Mapping[str, int] = {
        "PROGRAM_POOL": memory.program.size,
        "METHOD_POOL": memory.method.size,
        "TEMP_POOL": memory.temp.size if memory.temp is not None else 0,
        "SHARED_POOL": memory.shared,
        "RESIDENT_ADDRESS": (flash.address or 0) if flash is not None else 0,
        "RESIDENT_SIZE": flash.size if flash is not None else 0,
        "UNPLANNED_BANK": memory.unplanned_bank,
        "FIRST_BANK": memory.banks[0].size,
    }
    yield from (f"#define HIL_{name} {size:#x}u" for name, size in sizes.items())
    yield f'#define HIL_FIRST_BANK_NAME "{memory.banks[0].region}"'
    further = " ".join(f"BANK({bank.region}, {bank.size:#x}u)" for bank in memory.banks[1:])
    yield f"#define HIL_FURTHER_BANKS(BANK) {further}".rstrip()


def _script(memory: Memory) -> Iterator[str]:
    yield "MEMORY"
    yield "{"
    for region in memory.regions:
        flags = "rx" if region.holds == "code" else "rwx"
        yield f"  {region.name} ({flags}) : ORIGIN = {region.address or 0:#010x}, LENGTH = {region.size:#x}"
    yield "}"
    stack = memory.stack
    assert stack is not None
    for alias, region_name in (
        ("CODE", memory.code),
        ("STACK", stack.region),
        ("DATA", memory.data),
        ("PROGRAM_POOL", memory.program.region),
        ("METHOD_POOL", memory.method.region),
    ):
        yield f'REGION_ALIAS("{alias}", {region_name})'
    yield f"HIL_STACK_SIZE = {stack.size};"


def _sections(memory: Memory) -> Iterator[str]:
    """Yield a section for each bank that does not share the program's memory, and for the temporary memory."""
    if memory.temp is not None:
        yield f".temp_pool (NOLOAD) : ALIGN(16) {{ *(.noinit.temp_pool) }} > {memory.temp.region}"
    for bank in memory.banks[1 if memory.shared else 0 :]:
        yield f".bank_{bank.region} (NOLOAD) : ALIGN(16) {{ *(.noinit.bank_{bank.region}) }} > {bank.region}"


def main(arguments: list[str]) -> int:
    """Write the files of a board's folder into another folder; return the exit status."""
    board, folder = map(Path, arguments)
    try:
        write_memory_files(load_board(board), folder)
    except HarnessError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
