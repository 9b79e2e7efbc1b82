"""A short report as GitHub's Markdown: `hil results show --markdown` and `compare --markdown`.

Texts from tests and targets are put into code spans, so that they cannot be markup, links or mentions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from cortex_m_hil.campaigns.report.change_groups import ChangeGroup, groups, values
from cortex_m_hil.campaigns.report.changes import judged
from cortex_m_hil.campaigns.report.nightly_results import BUILTIN, FAILED, PASSED, Result
from cortex_m_hil.campaigns.report.report_contents import ReportContents
from cortex_m_hil.campaigns.report.terminal_summary import counted_by_verdict
from cortex_m_hil.errors.text import counted, printable

LIMIT: Final = 1 << 16  # bytes in UTF-8; characters of a comment on GitHub. A job's summary may have 1 MiB
_PART: Final = LIMIT // 4  # bytes for each of table, failures and changes at most
_LONGEST: Final = 400  # characters of a text from a test or a target at most
_ROWS: Final = 10  # lines of a group of changes at most


def as_markdown(report: ReportContents, all_results: str, all_changes: str) -> str:
    """Return a short report: the verdict, a table of targets, failures with the commands to rerun them, and changes.

    Args:
        report: the contents of the report.
        all_results: the command that shows results for which there is no room.
        all_changes: the command that shows changes for which there is no room.
    """
    bad = [one for one in report.night.tests if one.verdict.is_bad]
    blocks = [_head(report), *_fitting(_table(report), "line", all_results)]
    if bad:
        blocks += ["\n#### What failed\n", *_fitting((_failure(report, one) for one in bad), "failure", all_results)]
    if report.changes:
        since = f"What changed since nightly {report.against.name}" if report.against else "What is not as it has to be"
        blocks += [
            f"\n#### {since}\n",
            *_fitting((_entry(one, all_changes) for one in groups(report.changes)), "change", all_changes),
        ]
    elif report.against is not None and report.night.tests:
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
    night = report.night
    told = ", ".join(counted_by_verdict(night.verdicts)) or "no test was run"
    at_fault, unknown = judged(night, report.changes)
    word = "Failed" if at_fault else "Not all could be tested" if unknown else "Passed"
    commit = f", commit {_code(night.commit[:10])}{' and changes' if night.dirty else ''}" if night.commit else ""
    left = "; tests are left" if not night.complete else ""
    return f"### {word}: {told}\n\nNightly {night.name}{commit}, {counted(len(night.tests), 'result')}{left}.\n"


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


def _failure(report: ReportContents, one: Result) -> str:
    place = f" on {_code(one.key.target)}" if one.key.target else ""
    said = one.headline.removeprefix(f"{one.error}: ")
    lines = [f"- {_code(one.key.test)}{place}: **{_code(one.ending)}**", f"  {_code(said)}" if said else ""]
    if command := report.command(one):
        lines.append(f"  again: {_code(command)}")
    return "  \n".join(filter(None, lines))


def _entry(group: ChangeGroup, rest: str) -> str:
    """Return the entry of a group: the change, its tests and targets, and values that differ from the first's."""
    first, *rows = group.rows
    lines = [" ".join(filter(None, (f"- **{group.example.kind.value}**", _code(group.what), _code(first.where))))]
    for row in rows[:_ROWS]:
        other = values(row.change) if group.what and values(row.change) != values(first.change) else ""
        lines.append(f"  - {' '.join(filter(None, (_code(other), _code(row.where))))}")
    if rows[_ROWS:]:
        lines.append(f"  - and {counted(len(rows) - _ROWS, 'more line')}: {_code(rest)}")
    return "\n".join(lines)
