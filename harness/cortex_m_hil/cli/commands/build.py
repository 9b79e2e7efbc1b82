"""The command `hil build`."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil import flow
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.command_output import Answer, end, json_fields, write_log
from cortex_m_hil.cli.options import OptionalTarget, RuntimeOptions, folder_to_write
from cortex_m_hil.cli.progress import runner_of, status
from cortex_m_hil.cli.run_result_output import TARGET_FIELDS, fields_of_target, label_of
from cortex_m_hil.errors import ConfigError, ToolchainError
from cortex_m_hil.host import files, toolchain
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.runner.target_library import MAKEFILE, write_target_library
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.resolve import Resolved

LOG_LIMIT = 16 << 20  # bytes of a build's log
SIZE_TIMEOUT = 20.0  # seconds for binutils' `size`


@app.command(
    "build",
    log=True,
    epilog=json_fields(
        {
            **TARGET_FIELDS,
            "runner": "the path of the ELF",
            "build_id": "the digest of all that the ELF was built from",
            "config": "cpu/isa/board",
            "size": "bytes: text, data, bss; empty where binutils' size is missing. With --library "
            "there is library, its folder, instead",
        }
    ),
)
def build(
    on: RuntimeOptions,
    target: OptionalTarget = None,
    library: Annotated[
        Path | None,
        typer.Option(
            "--library",
            metavar="FOLDER",
            callback=folder_to_write,
            help="Write the library that firmware of your own links, and build nothing",
        ),
    ] = None,
) -> None:
    """Build the runner, the test firmware, for each target. What was built before is found in the cache."""
    if library is not None:
        write_target_library(library)
        text = f"library   {library}\nnext      README and hil_target.h in {library / Path(MAKEFILE).parent}"
        end(Answer(text, {"library": library}))

    def ask(resolved: Resolved) -> Answer:
        with contextlib.suppress(ToolchainError):  # a runner is built even if no launcher can run it
            flow.require(resolved)
        with status(runner_of(resolved)):
            elf = build_runner(resolved.target, resolved.runtime)
        write_log(_log(elf))
        sizes, problem = _sizes(elf)
        shown = ", ".join(f"{section} {size}" for section, size in sizes.items()) or f"unknown ({problem})"
        what = f"{label_of(resolved)}{', ' if elf.config else ''}{elf.config}"
        text = f"runner    {elf.path}\nbuild id  {elf.build_id}\nfor       {what}"
        fields = {"runner": elf.path, "build_id": elf.build_id, "config": elf.config, "size": sizes}
        return Answer(f"{text}\nsize      {shown}", {**fields_of_target(resolved), **fields})

    on.choose(target or [], live=False).answer_each(ask)


def _log(elf: Elf) -> str:
    try:
        return files.read(elf.path.parent / "build.log", LOG_LIMIT).decode(errors="replace")
    except ConfigError as error:
        return f"no log of its build: {error.message}"


def _sizes(elf: Elf) -> tuple[dict[str, int], str]:
    """Return bytes by kind of section, by binutils' `size`; without it no bytes, and the reason."""
    tool = shutil.which("size" if elf.config.startswith("host/") else "arm-none-eabi-size")
    if tool is None:
        return {}, "no arm-none-eabi-size on PATH"
    try:
        said = toolchain.run_tool([tool, str(elf.path)], SIZE_TIMEOUT)
    except ToolchainError as error:
        return {}, error.message
    lines = said.out.splitlines()
    if said.status != 0 or len(lines) < 2:
        return {}, said.err.strip()
    return dict(zip(("text", "data", "bss"), map(int, lines[1].split()[:3]), strict=True)), ""
