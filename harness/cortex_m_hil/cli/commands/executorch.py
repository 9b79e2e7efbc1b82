"""The commands of `hil executorch`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil.cli.app import app, group
from cortex_m_hil.cli.command_output import Answer, json_fields, write_answer
from cortex_m_hil.cli.error_output import answer_each
from cortex_m_hil.cli.options import OptionalTarget
from cortex_m_hil.cli.progress import Progress, going_on
from cortex_m_hil.errors import ConfigError, PortNotFound, ToolchainError
from cortex_m_hil.runner import executorch_build, executorch_checkout
from cortex_m_hil.runner.executorch_build import BuildRequest, InstalledPrefix
from cortex_m_hil.runner.executorch_checkout import Checkout, fetch_checkout, release_of_wheel
from cortex_m_hil.targets.cpu import HOST, cpu_name
from cortex_m_hil.targets.executorch_prefix import STANDS_IN
from cortex_m_hil.targets.load import load_user_targets
from cortex_m_hil.targets.resolve import Resolved, resolve, select
from cortex_m_hil.targets.target import Target

executorch = group()
app.add_typer(executorch, name="executorch")


@executorch.callback()
def _executorch() -> None:
    """Build ExecuTorch's C++ runtime with CMSIS-NN."""


Cpus = Annotated[
    list[str] | None,
    typer.Option("--cpu", metavar="NAME", help="A CPU, such as cortex-m4; repeatable", show_default=False),
]
Source = Annotated[
    Path | None,
    typer.Option("--source", metavar="FOLDER", help="A checkout of ExecuTorch: nothing is fetched", show_default=False),
]
Ref = Annotated[
    str,
    typer.Option(
        "--ref",
        metavar="REF",
        help="The tag, branch or commit [default: the installed executorch's]",
        show_default=False,
    ),
]
Repository = Annotated[str, typer.Option("--repository", metavar="URL", help="Where ExecuTorch is fetched from")]
CmsisNn = Annotated[
    Path | None,
    typer.Option(
        "--cmsis-nn",
        metavar="FOLDER",
        help="A checkout of CMSIS-NN [default: what ExecuTorch pins]",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Sources:
    """Options about the sources that are built."""

    source: Source = None
    ref: Ref = ""
    repository: Repository = executorch_checkout.REPOSITORY
    cmsis_nn: CmsisNn = None

    def refuse_both(self) -> None:
        """Raise ConfigError if both a checkout and a version to fetch are given."""
        if self.source is not None and (self.ref or self.repository != executorch_checkout.REPOSITORY):
            raise ConfigError(
                "--source is a checkout that is there, --ref and --repository say what to fetch",
                hint="leave out --source, or the others",
            )

    def checkout(self) -> Checkout:
        """Return the checkouts to build; they are fetched if none is named."""
        if self.source is not None:
            return Checkout(self.source, self.cmsis_nn)
        with going_on("the same command goes on where it ended"), Progress("ExecuTorch") as told:
            found = fetch_checkout(self.ref or release_of_wheel(), self.repository, told)
        return replace(found, cmsis_nn=self.cmsis_nn or found.cmsis_nn)


@executorch.command(
    "install",
    epilog=json_fields(
        {
            "cpu": "the CPU",
            "version": "the checkout's version and commit",
            "directory": "the prefix: the folder of the installation",
            "coverage": "whether its kernels were built to measure coverage",
            "built": "false where it was installed already",
            "tested": "the target on which the self-test passed; null where none of that CPU runs here",
        },
        each="each CPU; an error has its name in target",
    ),
)
def install(
    what: Sources,
    target: OptionalTarget = None,
    cpu: Cpus = None,
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- -DNAME=VALUE...]", help="Options for CMake", show_default=False)
    ] = None,
    link: Annotated[
        str,
        typer.Option(
            "--link",
            metavar="PATH",
            help="Make PATH a symlink to the install, {cpu} replaced by the CPU; targets use it if "
            "HIL_EXECUTORCH_PREFIX names it",
        ),
    ] = "",
    coverage: Annotated[
        bool, typer.Option("--coverage", help="Build the kernels so that --hil-coverage can measure them")
    ] = False,
) -> None:
    """Build ExecuTorch for the CPUs of targets, and install it.

    Without --source it is the release of the installed executorch, fetched from its public repository, with the
    submodules and the CMSIS-NN that a Cortex-M build needs. Without -t and --cpu it is built for the CPUs of all
    targets that can run here. The build uses ExecuTorch's own preset for bare metal. Then the self-test runs on a
    target of each CPU, and targets of that CPU run ExecuTorch with --runtime=executorch; with --link only where
    HIL_EXECUTORCH_PREFIX names that link. A fetch or build that was interrupted resumes.
    """
    what.refuse_both()
    known = load_user_targets()
    names = _cpus(known, cpu or (), target or ())
    if link and "{cpu}" not in link and len(names) > 1:
        raise ConfigError(f"--link {link} is one place, and there are {len(names)} CPUs", hint="--link 'prefix-{cpu}'")
    checkout = what.checkout()

    def ask(name: str) -> Answer:
        request = BuildRequest(checkout.source, name, checkout.cmsis_nn, tuple(options or ()), coverage)
        with going_on("the same command goes on where it ended"), Progress(name) as told:
            found = executorch_build.install_prefix(request, told, Path(link.replace("{cpu}", name)) if link else None)
            tested = "" if link or coverage else _self_test(known, name)
        state = "installed" if found.built else "was installed already"
        passed = f"; the self-test passed on {tested}" if tested else ""
        return Answer(
            f"{_line(found)} {state}{passed}", {**_fields(found), "built": found.built, "tested": tested or None}
        )

    answer_each(names, ask)


def _cpus(known: Mapping[str, Target], cpus: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the CPUs to build for: those named, those of the targets named, or those of all targets that run here.

    Raises:
        ConfigError: there is no such CPU.
    """
    named = [cpu_name(cpu) for cpu in cpus] + [known[name].cpu for name in select(patterns, known)]
    if not cpus and not patterns:
        named = [one.target.cpu for one in _running_here(known) if not one.target.launcher.is_hardware]
    found = [*dict.fromkeys(STANDS_IN.get(cpu, cpu) for cpu in named if cpu != HOST.name or cpu in cpus)]
    if not found:
        what = "no target is on a Cortex-M" if patterns else "no target of a Cortex-M can run here"
        raise ConfigError(what, hint="-t m4-qemu, or --cpu cortex-m4; hil targets lists them")
    return found


def _running_here(known: Mapping[str, Target]) -> Iterator[Resolved]:
    """Yield the known targets that can run on this machine, resolved for the runtime `executorch`."""
    for name in known:
        with contextlib.suppress(ToolchainError, PortNotFound):
            yield resolve(name, known, runtime="executorch")


def _self_test(known: Mapping[str, Target], cpu: str) -> str:
    """Run the self-test with ExecuTorch on a simulated target of a CPU; return its name, "" where none runs here."""
    from cortex_m_hil import flow

    for one in _running_here(known):
        if STANDS_IN.get(one.target.cpu, one.target.cpu) == cpu and not one.target.launcher.is_hardware:
            with flow.open_dut(one) as dut:
                flow.selftest(dut)
            return one.target.name
    return ""


@executorch.command(
    "list",
    epilog=json_fields(
        {
            "cpu": "the CPU",
            "version": "the checkout's version and commit; null where nothing is installed",
            "directory": "the prefix; null where nothing is installed",
            "coverage": "whether its kernels were built to measure coverage; null where nothing is installed",
        }
    ),
)
def list_installed() -> None:
    """List the installed builds of ExecuTorch, by CPU."""
    found = executorch_build.selected_prefixes()
    if not found:
        nothing = {"cpu": None, "version": None, "directory": None, "coverage": None}
        write_answer(Answer("none: hil executorch install", nothing))
    for one in found:
        write_answer(Answer(_line(one), _fields(one)))


def _line(one: InstalledPrefix) -> str:
    return f"{one.cpu}: ExecuTorch {one.version}{', which counts coverage,' if one.coverage else ''} in {one.directory}"


def _fields(one: InstalledPrefix) -> dict[str, object]:
    return {"cpu": one.cpu, "version": one.version, "directory": one.directory, "coverage": one.coverage}
