"""The commands of `hil executorch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil.cli.answers import Answer, answer_each, json_fields, write_answer
from cortex_m_hil.cli.app import app, group
from cortex_m_hil.cli.output import Progress, going_on
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.runner import executorch_build
from cortex_m_hil.runner.executorch_build import BuildRequest, InstalledPrefix
from cortex_m_hil.targets.cpu import cpu_name

executorch = group()
app.add_typer(executorch, name="executorch")


@executorch.callback()
def _executorch() -> None:
    """Install an ExecuTorch checkout of yours for a CPU."""


@executorch.command(
    "install",
    epilog=json_fields(
        {
            "cpu, version, directory": "the CPU, the checkout's version and commit, and the prefix",
            "coverage": "whether its kernels were built to measure coverage",
            "built": "false where it was installed already",
        },
        each="each CPU; an error has its name in target",
    ),
)
def install(
    source: Annotated[Path, typer.Option("--source", help="A checkout of ExecuTorch", show_default=False)],
    cpu: Annotated[list[str], typer.Option("--cpu", metavar="NAME", help="The CPU, such as cortex-m4; repeatable")],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- -DNAME=VALUE...]", help="Options for CMake", show_default=False)
    ] = None,
    cmsis_nn: Annotated[
        Path | None, typer.Option("--cmsis-nn", help="A checkout of CMSIS-NN", show_default=False)
    ] = None,
    link: Annotated[
        str,
        typer.Option(
            "--link",
            metavar="PATH",
            help="Make PATH a link to the install, which is not selected for targets; {cpu} is replaced by the CPU",
        ),
    ] = "",
    coverage: Annotated[
        bool, typer.Option("--coverage", help="Build the kernels so that --hil-coverage can measure them")
    ] = False,
) -> None:
    """Build a checkout of ExecuTorch for a CPU, and install it.

    The build uses ExecuTorch's own preset for bare metal. Targets of that CPU then run it with --runtime=executorch;
    with --link only where HIL_EXECUTORCH_PREFIX names that link. Nothing is downloaded: an error names what the
    checkout lacks. A build that was interrupted resumes.
    """
    if link and "{cpu}" not in link and len(cpu) > 1:
        raise ConfigError(f"--link {link} is one place, and there are {len(cpu)} CPUs", hint="--link 'prefix-{cpu}'")

    def ask(name: str) -> Answer:
        request = BuildRequest(source, name, cmsis_nn, tuple(options or ()), coverage)
        with going_on("the same command goes on where it ended"), Progress(name) as told:
            found = executorch_build.install_prefix(request, told, Path(link.replace("{cpu}", name)) if link else None)
        state = "installed" if found.built else "was installed already"
        return Answer(f"{_line(found)} {state}", {**_fields(found), "built": found.built})

    answer_each(list(map(cpu_name, cpu)), ask)


@executorch.command(
    "list",
    epilog=json_fields(
        {
            "cpu, version, directory, coverage": "as of hil executorch install; null where nothing is installed",
        }
    ),
)
def list_installed() -> None:
    """List what is installed, for each CPU."""
    found = executorch_build.selected_prefixes()
    if not found:
        nothing = {"cpu": None, "version": None, "directory": None, "coverage": None}
        write_answer(Answer("none: hil executorch install --source CHECKOUT --cpu NAME", nothing))
    for one in found:
        write_answer(Answer(_line(one), _fields(one)))


def _line(one: InstalledPrefix) -> str:
    return f"{one.cpu}: ExecuTorch {one.version}{', which counts coverage,' if one.coverage else ''} in {one.directory}"


def _fields(one: InstalledPrefix) -> dict[str, object]:
    return {"cpu": one.cpu, "version": one.version, "directory": one.directory, "coverage": one.coverage}
