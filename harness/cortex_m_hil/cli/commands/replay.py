"""The command `hil replay`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil.cli.answers import NO, OK, Answer, answer_each
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.options import Choice, Json, Multiplier, RequireFvp, Targets, Verbose
from cortex_m_hil.cli.output import fields_of_target, log_of_errors, tell_log
from cortex_m_hil.diagnose.bundle import Bundle
from cortex_m_hil.diagnose.bundle_file import read_bundle
from cortex_m_hil.diagnose.replay import OpenedTarget, Replay, fields, open_target, replay, require_target
from cortex_m_hil.errors.text import counted
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.runner.results import Ran
from cortex_m_hil.targets.load import load_user_targets
from cortex_m_hil.targets.resolve import Resolved


@app.command("replay")
def replay_command(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE.hil.zip", show_default=False)],
    target: Annotated[
        list[str] | None,
        typer.Option("--target", "-t", metavar="NAME", help="Names, globs, comma lists, 'all' [default: what ran]"),
    ] = None,
    require_fvp: RequireFvp = False,
    timeout_multiplier: Multiplier = 1.0,
    runtime: Annotated[str | None, typer.Option("--runtime", help="builtin or executorch [default: what did]")] = None,
    targets_file: Targets = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run a failure again, and tell whether it is the same.

    The bundle is what pytest's --hil-bundles wrote; torch is not needed. Exit status 1 where the program fails, 0 where
    it passes now.
    """
    found = read_bundle(bundle)
    names = target or [require_target(found, bundle, load_user_targets(targets_file))]
    choice = Choice(names, targets_file, runtime or found.description.machine.runtime, require_fvp=require_fvp)
    order = _Order(bundle, found, timeout_multiplier, verbose)
    answer_each(choice.names, lambda name: order.run(choice.resolve(name)))


@dataclass(frozen=True)
class _Order:
    """A bundle to replay on each target."""

    path: Path
    bundle: Bundle
    multiplier: float
    verbose: bool

    def run(self, resolved: Resolved) -> Answer:
        with log_of_errors(self.verbose), TemporaryFolder() as folder:
            opened = open_target(self.bundle, resolved, folder, multiplier=self.multiplier)
            with opened.dut as dut:
                found = replay(self.bundle, dut)
                ran = dut.last_ran() or dut.ran()
        tell_log(found.log, self.verbose)
        lines = self._lines(resolved, opened, found, ran)
        return Answer("\n".join(lines), self._fields(resolved, opened, found, ran), OK if found.now is None else NO)

    def _lines(self, resolved: Resolved, opened: OpenedTarget, found: Replay, ran: Ran) -> Iterator[str]:
        yield f"bundle    {self.path}: {self.bundle.description.test}"
        yield f"was       {self.bundle.description.verdict}"
        yield f"is        {found.now or 'pass'}"
        reason = f"; {resolved.fallback_reason}" if resolved.fallback_reason else ""
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
