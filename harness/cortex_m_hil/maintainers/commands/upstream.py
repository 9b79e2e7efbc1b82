"""The command `hil dev upstream`."""

from __future__ import annotations

from typing import Annotated

import typer

from cortex_m_hil.cli.app import TakesPytestOptions
from cortex_m_hil.cli.exit_codes import CANNOT_TELL, INTERRUPTED, NO
from cortex_m_hil.cli.options import RuntimeOptions, SeveralTargets
from cortex_m_hil.host import subprocesses
from cortex_m_hil.maintainers.commands.dev_group import dev
from cortex_m_hil.maintainers.suite_runs import upstream_command
from cortex_m_hil.targets.load import load_user_targets
from cortex_m_hil.targets.resolve import resolve, select


@dev.command("upstream", json=False, cls=TakesPytestOptions)
def upstream(
    target: SeveralTargets,
    on: RuntimeOptions,
    pytest_args: Annotated[
        list[str] | None, typer.Argument(metavar="[-- PYTEST ARGS]", help="Such as -n 2, -k linear, FILE::TEST")
    ] = None,
    backend_suite: Annotated[
        bool, typer.Option("--backend-suite", help="Run ExecuTorch's backend suite instead, with its Cortex-M flow")
    ] = False,
) -> None:
    """Run ExecuTorch's Cortex-M tests, or its backend suite.

    The tests are ExecuTorch's own files, unchanged; their programs run on the targets.
    """
    known = load_user_targets(on.targets_file)
    for name in select(target, known):  # shown here in one line, as it would make every test fail
        resolve(name, known, runtime=on.runtime).target.launcher.require()
    command = upstream_command(backend_suite=backend_suite)
    command += on.for_pytest(target)
    raise typer.Exit(_PYTEST_STATUS.get(subprocesses.foreground([*command, *(pytest_args or [])]), CANNOT_TELL))


# pytest's exit statuses: all passed, some failed, interrupted. Any other, such as for a wrong option, is no result.
_PYTEST_STATUS = {0: 0, 1: NO, 2: INTERRUPTED}
