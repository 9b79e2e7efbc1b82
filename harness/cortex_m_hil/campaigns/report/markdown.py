"""A short report as GitHub's Markdown: `hil results show --markdown` and `compare --markdown`.

Texts from tests and targets are put into code spans, so that they cannot be markup, links or mentions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from cortex_m_hil.campaigns.report.change_groups import ChangeGroup, before_after, values
from cortex_m_hil.campaigns.report.changes import COUNTED
from cortex_m_hil.campaigns.report.failure_kinds import (
    FailureGroup,
    FailureKind,
    headline,
    moved_figures,
    other_changes,
    sorted_failures,
)
from cortex_m_hil.campaigns.report.nightly_results import BUILTIN, FAILED, PASSED, Night
from cortex_m_hil.campaigns.report.report_contents import ReportContents
from cortex_m_hil.campaigns.report.terminal_summary import counted_by_verdict
from cortex_m_hil.errors.text import counted, printable

LIMIT: Final = 1 << 16  # bytes in UTF-8; characters of a comment on GitHub. A job's summary may have 1 MiB
_PART: Final = LIMIT // 8  # bytes for each table, each kind of failures, and the other changes at most
_LONGEST: Final = 400  # characters of a text from a test or a target at most
_ROWS: Final = 10  # lines of a group at most
_MOVED: Final = (
    "|  | figure | before → after | change | by operator, section or bank | tests |\n|---|---|---|---|---|---|"
)


def as_markdown(report: ReportContents, all_results: str, all_changes: str) -> str:
    """Return a short report: the verdict, a table of targets, failures by kind, figures that moved, other changes.

    New failures have the commands to rerun them.

    Args:
        report: the contents of the report.
        all_results: the command that shows results for which there is no room, or what else has them.
        all_changes: the same for changes.
    """
    blocks = [_head(report), *_fitting(_table(report), "line", all_results)]
    for kind, failures in sorted_failures(report).items():
        told = (_failure(report, one, kind, all_results) for one in failures)
        blocks += [f"\n#### {kind.value[0].upper()}{kind.value[1:]}\n", *_fitting(told, "cause", all_results)]
    if moved := moved_figures(report.changes):
        rows = (_moved(one) for _, of in moved for one in of)
        blocks += [f"\n#### Figures that moved\n\n{_MOVED}", *_fitting(rows, "cause", all_changes)]
        if any(one.others for _, of in moved for one in of):
            blocks.append(f"\nEach of these tests: {_code(all_changes)}")
    if others := other_changes(report.changes):
        told = (_entry(one, all_changes) for _, of in others for one in of)
        title = "What else changed" if report.against is not None else "What else was found"
        blocks += [f"\n#### {title}\n", *_fitting(told, "change", all_changes)]
    if report.against is not None and not report.changes and report.night.tests:
        blocks.append(f"\nNothing changed since nightly {report.against.name}.")
    return "\n".join(blocks) + "\n"


def _fitting(blocks: Iterable[str], what: str, rest: str) -> Iterator[str]:
    """Yield blocks while there is room, and then a line that says how many more `what` there are."""
    found, room = list(blocks), _PART
    for number, block in enumerate(found):
        room -= len(block.encode(errors="backslashreplace")) + 1
        if room < 0:
            yield f"\nand {counted(len(found) - number, f'more {what}')}: {_code(rest)}"
            return
        yield block


def _code(text: str, *, in_table: bool = False) -> str:
    """Return a text from a test or a target as one code span, which no backtick in it can end."""
    line = printable(" ".join(text.split()))
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
    line = line.replace("|", "\\|") if in_table else line
    fence = "`" * (max((len(run) for run in re.findall(r"`+", line)), default=0) + 1)
    space = " " if line[:1] == "`" or line[-1:] == "`" else ""
    return f"{fence}{space}{line}{space}{fence}" if line else ""


def _head(report: ReportContents) -> str:
    night, against = report.night, report.against
    left = "; tests are left" if not night.complete else ""
    base = "There is no nightly to compare with."
    if against is not None:
        base = (
            f"Compared with nightly {against.name}{f', commit {_code(against.commit[:10])}' if against.commit else ''}."
        )
    about = f"Nightly {night.name}{_commit(night)}, {counted(len(night.tests), 'result')}{left}. {base}"
    return f"### {headline(report)}\n\n{about}\n"


def _commit(night: Night) -> str:
    return f", commit {_code(night.commit[:10])}{' and changes' if night.dirty else ''}" if night.commit else ""


def _table(report: ReportContents) -> Iterator[str]:
    """Yield the lines of a table with a row for each target and runtime."""
    found = report.night.by_target_runtime
    if found:
        yield "| target | runtime | ran on | passed | failed | other |\n|---|---|---|---|---|---|"
    for (target, runtime), here in found.items():
        verdicts = Counter(one.verdict for one in here)
        passed, failed = (sum(verdicts.pop(one, 0) for one in of) for of in (PASSED, FAILED))
        ran = next((f"{one.ran} · {one.engine}" for one in here if one.engine), "")
        if runtime == BUILTIN and (why := report.night.runtime_reasons.get(target)):
            ran = f"{ran}; {why}"
        names = (_code(text, in_table=True) for text in (target or "(no target)", runtime, ran))
        yield f"| {' | '.join(names)} | {passed} | {failed} | {', '.join(counted_by_verdict(verdicts))} |"


def _failure(report: ReportContents, group: FailureGroup, kind: FailureKind, rest: str) -> str:
    """Return the entry of a group of failures: the error, its tests and targets, and the command that runs it again."""
    first, *rows = group.rows
    evidence = f" {_code(group.evidence)}" if group.evidence else ""
    lines = [f"- **{_code(group.example.ending)}** {_code(first.where)}{evidence}"]
    lines += [f"  {_code(group.said)}"] if group.said else []
    if kind in (FailureKind.NEW, FailureKind.ALL) and (command := report.command(group.example)):
        lines.append(f"  again: {_code(command)}")
    text = "  \n".join(lines)
    return "\n".join([text, *_further((_code(row.where) for row in rows), rest)])


def _further(rows: Iterable[str], rest: str) -> Iterator[str]:
    """Yield the further tests of a group as lines of a list, and how many there are beside them."""
    found = list(rows)
    yield from (f"  - {row}" for row in found[:_ROWS])
    if found[_ROWS:]:
        yield f"  - and {counted(len(found) - _ROWS, 'more test')}: {_code(rest)}"


def _moved(group: ChangeGroup) -> str:
    """Return the row of a group of changes of a figure, with the figures of each target where they differ."""
    one, more = group.example, f" and {group.others}" if group.others else ""
    where = _code(group.rows[0].where, in_table=True)
    by = "; ".join(_code(text, in_table=True) for text in group.causes[:_ROWS])
    targets = group.by_target[:_ROWS]
    moves = [f"{each.targets}: " * (len(targets) > 1) + before_after(each.change) for each in targets]
    told = _code(one.figure, in_table=True), "; ".join(_code(move, in_table=True) for move in moves)
    by_how_much = "; ".join(each.by for each in targets)
    meant = f" ({COUNTED[one.kind]} {_code(one.figure, in_table=True)})" if one.kind in COUNTED else ""
    cells = f"**{one.kind.value}**{meant}", *told, by_how_much, by, f"{where}{more}"
    return f"| {' | '.join(cells)} |"


def _entry(group: ChangeGroup, rest: str) -> str:
    """Return the entry of a group: the change, its tests and targets, and values that differ from the first's."""
    first, *rows = group.rows
    head = " ".join(filter(None, (f"- **{group.kind.value}**", _code(group.what), _code(first.where))))
    others = (_code(values(row.change)) if values(row.change) != values(first.change) else "" for row in rows)
    told = (" ".join(filter(None, (other, _code(row.where)))) for other, row in zip(others, rows, strict=True))
    return "\n".join([head, *_further(told, rest)])
