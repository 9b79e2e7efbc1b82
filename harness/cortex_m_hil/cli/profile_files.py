"""The files of other tools that `hil profile` writes: ExecuTorch's ETDump and ETRecord, Model Explorer's node data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Final

import typer

from cortex_m_hil.cli.options import file_to_write, folder_to_write
from cortex_m_hil.diagnose.etdump import etdump, traced_run
from cortex_m_hil.diagnose.model_explorer import node_data
from cortex_m_hil.diagnose.profile import Profile
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host.files import write_atomically
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.target import Clock

_ELSEWHERE: Final = "a file in a folder that you may write to"
_OF_MODULES: Final = "hil profile package.module:function, which lowers the module"


def _file(text: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(metavar="FILE", callback=file_to_write, show_default=False, help=text)
    return found


@dataclass(frozen=True)
class FileOptions:
    """Options about files for other tools."""

    etdump: Annotated[
        Path | None,
        _file("Write an ETDump of a run that stops after each operator, for ExecuTorch's Inspector; times are ticks"),
    ] = None
    debug_buffer: Annotated[
        Path | None, _file("With --etdump: the tensors that each operator wrote, Inspector's debug_buffer_path")
    ] = None
    etrecord: Annotated[Path | None, _file("Write the ETRecord of a module that hil lowers")] = None
    model_explorer: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            callback=folder_to_write,
            show_default=False,
            help="Write node data for Model Explorer there, a .json for each figure",
        ),
    ] = None

    def require_one(self, parts: int) -> None:
        """Raise ConfigError where files are to be written of several profiles, or a buffer without its ETDump."""
        for one in fields(self):
            if getattr(self, one.name) is not None and parts > 1:
                option = f"--{one.name.replace('_', '-')}"
                raise ConfigError(f"{option} is for one program on one target", hint="-t m4-qemu, and one MODEL")
        if self.debug_buffer is not None and self.etdump is None:
            raise ConfigError(
                "--debug-buffer without --etdump", hint="--etdump FILE as well: the buffer is a part of it"
            )

    def require_module(self, program: Program) -> None:
        """Raise ConfigError where an ETRecord is asked of a program that hil did not lower."""
        if self.etrecord is not None and program.etrecord is None:
            what = f"--etrecord: {program.name} was lowered before, and its graph is not in the file"
            raise ConfigError(what, hint=_OF_MODULES)

    def write(self, dut: Dut, program: Program, profile: Profile) -> Iterator[str]:
        """Write the files that are asked for; yield a line about each kind."""
        if self.etdump is not None:
            yield self._etdump(self.etdump, dut, program, profile)
        if self.etrecord is not None and program.etrecord is not None:
            write_atomically(self.etrecord, program.etrecord(program.inputs), _ELSEWHERE)
            yield f"wrote {self.etrecord}; before Inspector reads it: import executorch.backends.cortex_m.passes"
        if self.model_explorer is not None:
            _write_all(self.model_explorer, node_data(profile, program))
            yield f"wrote {self.model_explorer}/*.json, for model-explorer of the .pte or of the exported module"

    def _etdump(self, path: Path, dut: Dut, program: Program, profile: Profile) -> str:
        runs = 1 if profile.clock is Clock.INSTRUCTIONS else profile.runs
        tensors = self.debug_buffer is not None
        traced = [traced_run(dut, program, program.inputs, profile.ticks, outputs=tensors) for _ in range(runs)]
        dump, buffer = etdump(program, traced)
        write_atomically(path, dump, _ELSEWHERE)
        if self.debug_buffer is not None:
            write_atomically(self.debug_buffer, buffer, _ELSEWHERE)
        return (
            f"wrote {path}: times are {profile.figures['ticks'].unit}; "
            "Inspector(…, source_time_scale=TimeScale.CYCLES, target_time_scale=TimeScale.CYCLES)"
        )


def _write_all(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        write_atomically(folder / name, text.encode(), _ELSEWHERE)
