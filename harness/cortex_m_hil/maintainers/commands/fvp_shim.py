"""The commands `hil dev fvp-shim`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil.cli.app import group
from cortex_m_hil.cli.command_output import Answer, json_fields, write_answer
from cortex_m_hil.cli.options import RuntimeOptions
from cortex_m_hil.cli.run_result_output import label_of
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.maintainers.commands.dev_group import dev
from cortex_m_hil.maintainers.executorch_suites import find_suite
from cortex_m_hil.maintainers.fvp_shim import shim as fvp_shim
from cortex_m_hil.runner.build import WITHOUT_PORTABLE, build_runner
from cortex_m_hil.runner.launchers.qemu import QemuLauncher
from cortex_m_hil.targets.cpu import cpus
from cortex_m_hil.targets.load import load_user_targets
from cortex_m_hil.targets.resolve import Resolved, select

shim = group()
dev.add_typer(shim, name="fvp-shim")


@shim.callback()
def _shim() -> None:
    """Write shims for Arm's FVPs. They are NOT Arm's models: QEMU runs behind their command line."""


@shim.command(
    "install",
    epilog=json_fields(
        {
            "folder": "the folder that was written to",
            "files": "the files that were written",
            "commands": "for each --runner the command that runs ExecuTorch's tests on it",
        }
    ),
)
def install_shim(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write to", show_default=False)],
    on: RuntimeOptions,
    runner: Annotated[
        list[str] | None,
        typer.Option(
            "--runner", metavar="TARGET", help="Also a target's runner, for ExecuTorch's own tests; repeatable"
        ),
    ] = None,
) -> None:
    """Write shims for Arm's FVPs into a folder.

    They are NOT Arm's models, and serve to test code that starts those.

    With --runner, ExecuTorch's Cortex-M tests run on that target without a plugin: they look for the model on PATH,
    and for the runner below EXECUTORCH_ROOT. The shim then starts the target's QEMU machine, not the model's.
    """
    runners = [on.resolve(name) for name in select(runner or [], load_user_targets(on.targets_file))]
    _check_runners(runners)
    paths = fvp_shim.install(folder)
    paths += [_install_runner(folder, resolved) for resolved in runners]
    text = [*map(str, paths), _NOT_ARMS.format(number=len(fvp_shim.MODELS), path=shlex.quote(str(folder.absolute())))]
    commands = [_pytest_command(folder, resolved) for resolved in runners]
    text += [f"\nExecuTorch's tests on {label_of(one)}:\n  {line}" for one, line in zip(runners, commands, strict=True)]
    write_answer(Answer("\n".join(text), {"folder": folder.absolute(), "files": paths, "commands": commands}))


_NOT_ARMS = """
{number} of these are shims and NOT Arm's models: QEMU runs behind their command line.
Results on them say "shim", and show nothing of Arm's models. Put the folder on PATH only where that is
wanted:
  PATH={path}:$PATH"""


def _pytest_command(folder: Path, resolved: Resolved) -> str:
    """Return the command that runs ExecuTorch's tests with the runner in the folder."""
    where, suite = shlex.quote(str(folder.absolute())), shlex.quote(str(find_suite() / "ops"))
    return f"EXECUTORCH_ROOT={where} PATH={where}:$PATH pytest --cortex-m-target={resolved.target.cpu} {suite}"


def _check_runners(runners: Sequence[Resolved]) -> None:
    """Raise ConfigError for targets that ExecuTorch's tests cannot name, or that the shim cannot run."""
    taken: dict[str, str] = {}
    for resolved in runners:
        target = resolved.target
        if not isinstance(target.launcher, QemuLauncher):
            raise ConfigError(
                f"--runner {resolved.name}: not on QEMU, which is what the shim runs",
                hint="m4-qemu, or another target on QEMU: hil targets",
            )
        strongest = cpus()[target.cpu].isas[0]
        if target.isa is not strongest:
            raise ConfigError(
                f"--runner {resolved.name}: ExecuTorch's tests know {target.cpu} only as {strongest.value}",
                hint=f"hil dev upstream --target {resolved.name}",
            )
        if target.cpu in taken:
            raise ConfigError(
                f"--runner {resolved.name}: {taken[target.cpu]} is for {target.cpu} too",
                hint="one --runner for each CPU",
            )
        taken[target.cpu] = resolved.name


def _install_runner(folder: Path, resolved: Resolved) -> Path:
    """Build a target's runner, write it below the folder and return its path.

    It has the operators of ExecuTorch's own test runner, so that tests that are expected to fail there also fail here.
    """
    target = resolved.target
    assert isinstance(target.launcher, QemuLauncher)
    elf = build_runner(target, resolved.runtime, WITHOUT_PORTABLE)
    return fvp_shim.install_runner(
        folder, elf.path, target.cpu, target=resolved.display_name, machine=target.launcher.machine,
        arguments=target.launcher.args,
    )  # fmt: skip
