"""The command `hil profile`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.command_output import Answer, json_fields, say
from cortex_m_hil.cli.error_output import answer_each_part
from cortex_m_hil.cli.options import ModelOptions, SeveralTargets, TimedOptions
from cortex_m_hil.cli.picture_files import PictureFiles, PictureOptions
from cortex_m_hil.cli.profile_against import AgainstOptions, Order
from cortex_m_hil.cli.profile_files import FileOptions
from cortex_m_hil.cli.profile_output import (
    PROFILE_FIELDS,
    fields_of_changes,
    side_by_side,
    text_of,
    text_of_changes,
)
from cortex_m_hil.cli.program_files import NETWORKS_HELP, programs_of
from cortex_m_hil.cli.run_result_output import TARGET_FIELDS, fields_of_target, label_of
from cortex_m_hil.diagnose.event_counters import GROUPS, events_of
from cortex_m_hil.diagnose.profile import Profile
from cortex_m_hil.diagnose.profile_measurement import RUNS
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.lowering.named_modules import NETWORKS
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.resolve import Resolved

Models = Annotated[
    list[str] | None,
    typer.Argument(metavar="MODEL...", help=f"A .pte or .bpte file; {NETWORKS_HELP} [default: all networks]"),
]


Counters = Annotated[
    str,
    typer.Option(
        metavar="GROUPS",
        show_default=False,
        help=f"Count events by the PMU of a Cortex-M55 or M85, in further runs: a comma list of {', '.join(GROUPS)}",
    ),
]


@app.command("profile", log=True, epilog=json_fields({**TARGET_FIELDS, **PROFILE_FIELDS}))
def profile_command(
    target: SeveralTargets,
    on: TimedOptions,
    given: ModelOptions,
    files: FileOptions,
    pictures: PictureOptions,
    other: AgainstOptions,
    models: Models = None,
    counters: Counters = "",
    runs: Annotated[
        int, typer.Option("--runs", metavar="N", min=1, help="Runs on a board, whose cycles vary; medians are shown")
    ] = RUNS,
) -> None:
    """Show what each operator of a program costs.

    Each operator has a row: CPU instructions or cycles, MACs, bytes, its module and source line. QEMU counts CPU
    instructions exactly: the rows add up to what hil run counts on the same inputs. A board counts cycles. A program's
    file gets the inputs that hil run gives it (P.0.npy, … beside P.pte, or --input). A network or module, unlike a
    program's file, has references: its pictures also show where errors begin.
    """
    chosen = models or list(NETWORKS)
    if given.inputs and len(chosen) > 1:
        raise ConfigError("--input is for one model", hint="inputs beside P.pte are P.0.npy, P.1.npy, …")
    loads = {model: programs_of(model, given) for model in chosen}
    groups = tuple(name.strip() for name in counters.split(",") if name.strip())
    events_of(groups)
    choice, found = on.choose(target), list[Profile]()
    parts = [(name, model) for name in choice.names for model in chosen]
    drawn = PictureFiles.of(pictures, len(parts))
    files.require_one(len(parts))

    def ask(name: str, model: str) -> Answer:
        def look(dut: Dut, program: Program, profile: Profile) -> None:
            written.extend(files.write(dut, program, profile))
            drawn.look(dut, program, profile)

        written: list[str] = []
        order = Order(on, given, name, model, loads[model], runs, groups)
        resolved = choice.resolve(name)
        profile = order.profile(resolved, look, files.require_module)
        found.append(profile)
        lines, fields = _text_and_fields(order, resolved, profile, other, drawn)
        lines += ["", *written] if written else []
        lines[1:1] = [model] if len(chosen) > 1 else []
        return Answer("\n".join([*lines, ""]), fields)

    status = answer_each_part(
        ({"target": name, "model": model}, f"{name}, {model}: " if len(parts) > 1 else "", partial(ask, name, model))
        for name, model in parts
    )
    drawn.write()
    if len(choice.names) > 1:
        _say_side_by_side(chosen, found)
    raise typer.Exit(status)


def _text_and_fields(
    order: Order, resolved: Resolved, profile: Profile, other: AgainstOptions, drawn: PictureFiles
) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the fields of JSON about a profile, and about the one that it is compared with."""
    lines = [label_of(resolved), text_of(profile)]
    fields = {**fields_of_target(resolved), "model": order.model, **profile.as_json(), "against": None}
    if other.against:
        changes = profile.against(other.profile(replace(order, counters=()), resolved, profile))
        drawn.compare(other.against, changes)
        lines += ["", text_of_changes(changes)]
        fields["against"] = fields_of_changes(changes)
    return lines, fields


def _say_side_by_side(models: Sequence[str], profiles: Sequence[Profile]) -> None:
    """Print the figures of several targets for each model."""
    for model in models:
        for text in side_by_side([one for one in profiles if one.program == model or len(models) == 1]):
            say(f"{model}\n{text}\n")
