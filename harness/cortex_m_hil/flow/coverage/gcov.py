"""Reads coverage from gcov's report, since the format of GCC's data files changes from version to version."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.errors import ToolchainError
from cortex_m_hil.flow.coverage.counts import Counts, Files, merged
from cortex_m_hil.host import toolchain
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.cpu import HOST
from cortex_m_hil.targets.target import Target

SOURCES: Final = "firmware/"  # the name of the source tree in the notes, by -ffile-prefix-map
# Folders of kernels' sources in gcov's notes, and their names in reports: this project's folder, and the folders of an
# installed ExecuTorch, which firmware/cmake/counting_executorch.cmake names in this way.
KERNELS: Final[Mapping[str, str]] = {
    f"{SOURCES}runtime/builtin/kernels/": "",
    "executorch/backends/cortex_m/": "cortex_m/",
    "CMSIS-NN/": "CMSIS-NN/",
}
SECONDS: Final = 120.0  # time limit for gcov


def tool(target: Target) -> Path:
    """Return the gcov of the target's compiler. Raises ToolchainError where it is missing."""
    return toolchain.locate("gcov" if target.cpu == HOST.name else "arm-none-eabi-gcov")


def kernels(target: Target, elf: Elf, counted: Mapping[str, bytes]) -> Files:
    """Return how often the kernels of a runner that counts coverage have executed each line.

    Args:
        target: the target.
        elf: the runner.
        counted: the runner's data files by name, from `Session.coverage`.

    Raises:
        ToolchainError: gcov is missing, or does not understand the data.
    """
    return merged(by_object(target, elf, counted, counted))


def by_object(target: Target, elf: Elf, counted: Mapping[str, bytes], wanted: Iterable[str]) -> dict[str, Files]:
    """Return the counts of each object file of the kernels, by the name of its data file.

    Args:
        target: the target.
        elf: its runner.
        counted: the runner's data files by name, as `Session.coverage` gives them.
        wanted: the names of the data files to read.

    Raises:
        ToolchainError: gcov is missing or does not understand the data, or the runner counts other files than were
            compiled.
    """
    notes = {path.with_suffix(".gcda").name: path for path in elf.notes.glob("*.gcno")}
    if notes.keys() != counted.keys():
        odd = ", ".join(sorted(notes.keys() ^ counted.keys()))
        what = f"the runner counts other files than were compiled: {odd}"
        raise ToolchainError(what, hint="a defect of this harness: report it")
    names = sorted(wanted)
    with TemporaryFolder() as folder:
        for name in names:
            shutil.copy2(notes[name], folder)
            (folder / name).write_bytes(counted[name])
        found = _counts_by_data_file(tool(target), [folder / name for name in names], KERNELS)
    return {path.name: files for path, files in found.items()}


def files(gcov: Path, data: Sequence[Path], folders: Mapping[str, str]) -> Files:
    """Return the counts of all source files below some folders.

    Args:
        gcov: the path of gcov.
        data: `.gcda` files, in the same folder as their notes.
        folders: beginnings of source files' names, with their replacements in the result.
    """
    return merged(_counts_by_data_file(gcov, data, folders))


def _counts_by_data_file(gcov: Path, data: Sequence[Path], folders: Mapping[str, str]) -> dict[Path, Files]:
    found: dict[Path, Files] = {path: {} for path in data}
    by_name = {path.name: path for path in data}
    for report in _reports(gcov, data) if data else ():
        of = found[by_name[Path(report["data_file"]).name]]
        for file in report["files"]:
            folder = next((one for one in folders if file["file"].startswith(one)), None)
            if folder is None:
                continue
            counts = of.setdefault(folders[folder] + file["file"].removeprefix(folder), Counts())
            for line in file["lines"]:
                counts.add_line(line["line_number"], line["count"], [branch["count"] for branch in line["branches"]])
    return found


def _reports(gcov: Path, data: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield gcov's report of each data file; raise ToolchainError for any complaint, such as notes of another build.

    gcov itself only warns of that. It is run in the folder of its data: in a checkout it would find the sources by
    their names, and complain if they are newer than the runner, even if their content is the same.
    """
    paths = (str(path.absolute()) for path in data)
    command = [str(gcov), "--json-format", "--stdout", "--branch-probabilities", *paths]
    said = toolchain.run_tool(command, SECONDS, cwd=data[0].parent)
    complaint = said.err.strip()
    if said.status != 0 or complaint:
        last = complaint.splitlines()[0] if complaint else f"exit status {said.status}"
        raise ToolchainError(f"{gcov.name}: {last}", hint="is it of the compiler's version?", log=complaint)
    try:
        yield from (json.loads(line) for line in said.out.splitlines() if line.startswith("{"))
    except ValueError as error:
        raise ToolchainError(f"{gcov.name} --json-format: {error}", hint="is it of the compiler's version?") from error
