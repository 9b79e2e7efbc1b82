"""The command `hil replay`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.command_output import Answer, json_fields, write_log
from cortex_m_hil.cli.exit_codes import NO, OK
from cortex_m_hil.cli.options import BundleOptions
from cortex_m_hil.cli.progress import runner_of, status
from cortex_m_hil.cli.run_result_output import RAN_FIELDS, fields_of_target
from cortex_m_hil.diagnose.failure_bundle import Bundle
from cortex_m_hil.diagnose.failure_bundle_file import read_bundle
from cortex_m_hil.diagnose.replay import OpenedTarget, Replay, fields, open_target, replay, require_target
from cortex_m_hil.errors.text import counted
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.runner.run_results import Ran
from cortex_m_hil.targets.load import load_user_targets
from cortex_m_hil.targets.resolve import Resolved


@app.command(
    "replay",
    log=True,
    epilog=json_fields(
        {
            **RAN_FIELDS,
            "bundle": "the file",
            "test": "the test that failed",
            "reproduced": "whether verdict, operator and all bits of the outputs are the same",
            "recorded": "the recorded verdict: type, message, operator",
            "now": "the verdict of this run, likewise; null where the program passes",
            "differences": "a list of lines: what differs in the result",
            "notices": "a list of lines: what differs in target and runner",
            "outputs_compared": "how many outputs were compared bit for bit; null where the bundle has none",
            "runner": "bundled or built",
            "build_id": "the digest of all that the runner was built from",
            "recorded_target": "the target of the recorded failure",
            "recorded_build_id": "the build id of the runner that failed",
        }
    ),
)
def replay_command(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE.hil.zip", help="The bundle of one failure", show_default=False)
    ],
    on: BundleOptions,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            metavar="NAME",
            help="Target names, globs, comma lists or 'all' [default: the recorded one]",
        ),
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option("--runtime", metavar="RUNTIME", help="builtin or executorch [default: the recorded one]"),
    ] = None,
) -> None:
    """Run a saved failure again, and report whether it recurs.

    The bundle is what pytest's --hil-bundles wrote; torch is not needed. Exit status 1 where the program fails, 0 where
    it passes now.
    """
    found = read_bundle(bundle)
    names = target or [require_target(found, bundle, load_user_targets(on.targets_file))]
    choice = replace(on, runtime=runtime or found.description.machine.runtime).choose(names)
    choice.answer_each(_Order(bundle, found, on.timeout_multiplier).run)


@dataclass(frozen=True)
class _Order:
    """A bundle to replay on each target."""

    path: Path
    bundle: Bundle
    multiplier: float

    def run(self, resolved: Resolved) -> Answer:
        with TemporaryFolder() as folder:
            with status(runner_of(resolved)):
                opened = open_target(self.bundle, resolved, folder, multiplier=self.multiplier)
            with status(f"{resolved.display_name}: started, and running {self.path.name}"), opened.dut as dut:
                found = replay(self.bundle, dut)
                ran = dut.last_ran() or dut.ran()
        write_log(found.log)
        lines = self._lines(resolved, opened, found, ran)
        return Answer("\n".join(lines), self._fields(resolved, opened, found, ran), OK if found.now is None else NO)

    def _lines(self, resolved: Resolved, opened: OpenedTarget, found: Replay, ran: Ran) -> Iterator[str]:
        yield f"bundle    {self.path}: {self.bundle.description.test}"
        yield f"was       {self.bundle.description.verdict}"
        yield f"is        {found.now or 'pass'}"
        reason = f"; {resolved.reasons}" if resolved.reasons else ""
        yield f"ran       {resolved.label} on {ran.engine}{reason}"
        runner = "the bundle's own" if opened.bundled else "built here"
        yield f"runner    {runner}, build id {opened.dut.elf.build_id}"
        yield from (f"notice    {notice}" for notice in opened.notices)
        yield from (f"differs   {difference}" for difference in found.differences)
        if found.reproduced:
            bits = f", {counted(found.compared, 'output')} equal bit for bit" if found.compared is not None else ""
            yield f"reproduced: the same verdict, of the same operator{bits}"

    def _fields(self, resolved: Resolved, opened: OpenedTarget, found: Replay, ran: Ran) -> dict[str, object]:
        runner = {"runner": "bundled" if opened.bundled else "built", "build_id": opened.dut.elf.build_id}
        machine = self.bundle.description.machine
        then = {"recorded_target": machine.target.name, "recorded_build_id": machine.build_id}
        head = {"bundle": self.path, "test": self.bundle.description.test, "notices": opened.notices}
        return {**fields_of_target(resolved, ran), **head, **runner, **then, **fields(found, self.bundle)}
