"""Text and JSON fields of profiles and of their changes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from cortex_m_hil.cli.tables import table
from cortex_m_hil.diagnose.profile import Profile, ProfileChanges, ProfileRow, RowChange
from cortex_m_hil.diagnose.profile_pictures.picture_data import share_text
from cortex_m_hil.errors.text import change_in_percent, counted
from cortex_m_hil.program.partition import PartitionKind

_BAR: Final = 12  # characters of the longest bar
_NAMED: Final = 12  # rows that depend on the inputs, which are named up to this number
_HOT, _WARM = 0.2, 0.1  # shares from which on a row is coloured
# Columns that a narrow terminal leaves out, the least important first; a pipe and --json have them all.
_DROPPED: Final = ("kernel", "written", "read", "per MAC", "line")
_NUMBERS: Final = ("#", "spread", "share", "MACs", "per MAC", "read", "written", "before", "after", "change")
PROFILE_FIELDS: Final[Mapping[str, str]] = {
    "model": "the program as it was named",
    "program": "the program's own name",
    "method": "the method that ran",
    "isa": "the ISA class that the kernels were compiled for",
    "ran": "display_name, target, engine, runtime, runtime_version, clock (instructions or cycles), firmware",
    "inputs": "where the inputs are from, as text",
    "inputs_digest": "a digest of the inputs; equal: the same inputs",
    "ticks": "of the whole run, in units of ran.clock: the sum of all rows and outside; the median of several runs",
    "low": "the least ticks of a whole run",
    "high": "the most ticks of a whole run",
    "runs": "how many whole runs, and as many again operator by operator; 1 where the count is exact",
    "outside": "ticks of the whole run that are in no row",
    "ticks_of_zeros": "ticks of a run with zeros for inputs; null: not tried, or it failed",
    "depends_on_inputs": "whether any row's ticks differ from those with zeros; null: not known",
    "banks": "bytes of the memory plan by bank",
    "rows": (
        "a list of index, operator, kind, node, module, source (file:line), kernel, calls, ticks, low, high, share, "
        "macs, ticks_per_mac, bytes_read, bytes_written, alive (bytes of the memory plan in use, by bank), "
        "ticks_of_zeros, depends_on_inputs, events (with --counters: counts of the PMU's events by name; null: more "
        "than 32 bits hold)"
    ),
    "events": "with --counters: who counted them, and in how many runs",
    "figures": (
        "for each figure its unit, its source (counted, counted by the core's PMU, measured, planned, computed) and "
        "what it excludes"
    ),
    "profile_version": "the version of this JSON, which --against FILE.json checks",
    "against": (
        "with --against: before (the other profile, without rows), ticks, ratio, outside, banks, same_inputs, and "
        "rows, a list of index, index_before (null where there is none), operator, operator_before, module, source, "
        "ticks_before, ticks_after, ticks, ratio, within_spread, planned (bytes by bank); what moved most first. "
        "Otherwise null"
    ),
}


def text_of(profile: Profile) -> str:
    """Return a table with a row for each instruction, what it adds up to, and what its figures are."""
    lines = [f"inputs: {profile.inputs}", _table(profile), "", *_sums(profile), *_legend(profile)]
    lines += ["", *_events(profile)] if profile.events else []
    return "\n".join(lines)


def _table(profile: Profile) -> str:
    most = max((row.share for row in profile.rows), default=0.0)
    columns = [*_columns(profile, sys.stdout.isatty())]
    rows = [tuple(cells[name] for name in columns) for cells in (_cells(profile, row, most) for row in profile.rows)]
    dropped: list[str] = []
    while sys.stdout.isatty() and _width(columns, rows) > shutil.get_terminal_size().columns and len(dropped) < 5:
        name = _DROPPED[len(dropped)]
        at = columns.index(name)
        columns, rows = [*columns[:at], *columns[at + 1 :]], [(*row[:at], *row[at + 1 :]) for row in rows]
        dropped.append(name)
    drawn = table(columns, rows, (profile.clock.value, *_NUMBERS))
    return f"{drawn}\nnot shown for want of width: {', '.join(dropped)}; --json has all" if dropped else drawn


def _columns(profile: Profile, bars: bool) -> Iterator[str]:
    yield from ("#", "module", "operator", profile.clock.value)
    if profile.runs > 1:
        yield "spread"
    yield from ("share", *(("",) * bars), "MACs", "per MAC", "read", "written", "alive", "kernel", "line")


def _width(columns: Sequence[str], rows: Sequence[tuple[str | Text, ...]]) -> int:
    return sum(max(map(len, cells)) + 2 for cells in zip(columns, *rows, strict=True))


def _cells(profile: Profile, row: ProfileRow, most: float) -> dict[str, str | Text]:
    style = "bold red" if row.share >= _HOT else "yellow" if row.share >= _WARM else "cyan"
    per_mac = row.ticks_per_mac
    return {
        "#": f"{row.index}",
        "module": row.module or row.node or "-",
        "operator": f"{row.operator} ×{row.calls}" if row.calls != 1 else row.operator,
        profile.clock.value: f"{row.ticks}",
        "spread": f"{row.high - row.low}",
        "share": share_text(row.share),
        "": Text("█" * round(_BAR * row.share / most) if most else "", style=style),
        "MACs": "not known" if row.macs is None else f"{row.macs}",
        "per MAC": "-" if per_mac is None else f"{per_mac:.2f}",
        "read": f"{row.bytes_read}",
        "written": f"{row.bytes_written}",
        "alive": _banks(row.alive),
        "kernel": row.kernel,
        "line": _line(row),
    }


def _line(row: ProfileRow) -> str:
    """Return the user's line, with a file in the current folder by its relative path."""
    return row.source.removeprefix(f"{os.getcwd()}{os.sep}") or "-"


def _banks(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {nbytes}" for name, nbytes in sizes.items()) or "0"


def _sums(profile: Profile) -> Iterator[str]:
    unit, total = profile.clock.value, profile.ticks
    rows = sum(row.ticks for row in profile.rows)
    spread = f", {profile.low} to {profile.high} in {profile.runs} runs, medians shown" if profile.runs > 1 else ""
    yield f"whole run  {total} {unit}{spread}: {rows} in {counted(len(profile.rows), 'row')}, {profile.outside} outside"
    kinds = {kind.value: sum(row.share for row in profile.rows if row.kind is kind) for kind in PartitionKind}
    kinds["outside"] = profile.outside / total if total else 0.0
    yield f"by kind    {', '.join(f'{kind} {share_text(share)}' for kind, share in kinds.items() if share)}"
    if profile.depends_on_inputs is not None:
        moved = [f"{row.index}" for row in profile.rows if row.depends_on_inputs]
        names = f"rows {', '.join(moved)}" if len(moved) <= _NAMED else f"{len(moved)} of {len(profile.rows)} rows"
        told = f"{names} differ" if moved else "all rows are the same"
        yield f"inputs     with zeros as inputs {profile.ticks_of_zeros} {unit}: {told}"
    peak = profile.peak
    if peak is not None:
        most = f"{peak.planned_bytes} at {peak.index}, {peak.place}"
        yield f"plan       {_banks(profile.banks)} bytes; most of them in use: {most}"


def _legend(profile: Profile) -> Iterator[str]:
    figures = profile.figures
    shown = {
        profile.clock.value: "ticks",
        "outside": "outside",
        "MACs": "macs",
        "read, written": "bytes_read",
        "alive": "alive",
    }
    for name, field in shown.items():
        yield f"{name}: {figures[field]}"


def _events(profile: Profile) -> Iterator[str]:
    """Yield a table of the PMU's counts by instruction, and what is counted by whom."""
    names = profile.event_names
    rows = [
        (f"{row.index}", row.place, row.operator, *(_count(row.events.get(name, 0)) for name in names))
        for row in profile.rows
    ]
    yield table(["#", "module", "operator", *names], rows, ("#", *names))
    yield f"{profile.events}; 0 may mean that this core does not have the event"
    yield from (f"{name}: {profile.figures[name]}" for name in names)


def _count(count: int | None) -> str:
    return "overflow" if count is None else f"{count}"


# --- changes -------------------------------------------------------------------------------------------------


def text_of_changes(changes: ProfileChanges) -> str:
    """Return a table of the instructions that moved, what moved most first, and the changes of the whole."""
    before, after, unit = changes.before, changes.after, changes.after.clock.value
    lines = [
        f"against    {before.program} · {before.ran.label}",
        f"whole run  {before.ticks} → {after.ticks} {unit}: {_by(before.ticks, after.ticks)}",
    ]
    lines += [f"plan       {_growth(changes.banks)} bytes"] if changes.banks else []
    if not changes.same_inputs:
        lines.append("inputs     other inputs: what depends on values may differ by that alone")
    if changes.moved:
        lines += ["", _table_of_changes(changes)]
    still = len(changes.rows) - len(changes.moved)
    return "\n".join([*lines, f"{counted(still, 'operator')} the same; {_signed(changes.outside)} {unit} outside"])


def _table_of_changes(changes: ProfileChanges) -> str:
    columns = ["module", "operator", "before", "after", "change", "", "planned", "line"]
    return table(columns, [_cells_of_change(one) for one in changes.moved], _NUMBERS)


def _cells_of_change(one: RowChange) -> tuple[str | Text, ...]:
    before, after = one.before, one.after
    operator = one.row.operator
    if before and after and before.operator != after.operator:
        operator = f"{before.operator} → {after.operator}"
    part = change_in_percent(before.ticks, after.ticks) if before and after and one.ticks else ""
    part = "within the spread" if one.ticks and one.is_within_spread else part
    style = "red" if one.ticks > 0 else "green"
    return (
        one.row.place, operator, f"{before.ticks}" if before else "-", f"{after.ticks}" if after else "-",
        Text(_signed(one.ticks), style=style), part, _growth(one.planned), _line(one.row),
    )  # fmt: skip


def _signed(number: int) -> str:
    return f"{number:+}" if number else "0"


def _by(before: int, after: int) -> str:
    percent = change_in_percent(before, after) if before != after else ""
    return f"{_signed(after - before)}{f' ({percent})' if percent else ''}"


def _growth(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {growth:+}" for name, growth in sizes.items()) or "-"


def fields_of_changes(changes: ProfileChanges) -> dict[str, Any]:
    before = {name: value for name, value in changes.before.as_json().items() if name not in ("rows", "figures")}
    rows = [
        {
            "index": one.after.index if one.after else None,
            "index_before": one.before.index if one.before else None,
            "operator": one.after.operator if one.after else None,
            "operator_before": one.before.operator if one.before else None,
            "module": one.row.module,
            "source": one.row.source,
            "ticks_before": one.before.ticks if one.before else None,
            "ticks_after": one.after.ticks if one.after else None,
            "ticks": one.ticks,
            "ratio": one.ratio,
            "within_spread": one.is_within_spread,
            "planned": one.planned,
        }
        for one in changes.rows
    ]
    whole = {name: getattr(changes, name) for name in ("ticks", "ratio", "outside", "banks", "same_inputs")}
    return {"before": before, **whole, "rows": rows}


def side_by_side(profiles: Sequence[Profile]) -> Iterator[str]:
    """Yield for each clock of at least two profiles a table of their ticks by module, a column for each target."""
    for clock in dict.fromkeys(one.clock for one in profiles):
        same = [one for one in profiles if one.clock is clock]
        if len(same) < 2:
            continue
        sums = [_ticks_by_place(one) for one in same]
        places = dict.fromkeys(place for one in sums for place in one)
        rows = [(place, *(f"{one.get(place, 0)}" for one in sums)) for place in places]
        rows.append(("whole run", *(f"{one.ticks}" for one in same)))
        names = [f"{one.ran.display_name} {one.ran.runtime}" for one in same]
        yield table([f"{clock.value} by module", *names], rows, names)


def _ticks_by_place(profile: Profile) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in profile.rows:
        place = row.module or f"{row.index} {row.operator}"
        found[place] = found.get(place, 0) + row.ticks
    return found
