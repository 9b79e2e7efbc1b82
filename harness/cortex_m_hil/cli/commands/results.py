"""The commands of `hil results`."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cortex_m_hil.campaigns.nightly import stored_nightlies as nights
from cortex_m_hil.campaigns.nightly.nightly import KIND, nightly_plan
from cortex_m_hil.campaigns.nightly.report_from_store import report_of
from cortex_m_hil.campaigns.report.changes import ChangeKind
from cortex_m_hil.campaigns.report.markdown import as_markdown
from cortex_m_hil.campaigns.report.nightly_results import FAILED, Night, Result, as_text
from cortex_m_hil.campaigns.report.report_contents import utc_text
from cortex_m_hil.campaigns.report.report_files import write_report
from cortex_m_hil.campaigns.report.terminal_summary import COUNTED, counted_by_verdict, counts
from cortex_m_hil.campaigns.store import Store, StoredCampaign
from cortex_m_hil.cli.app import app, group
from cortex_m_hil.cli.campaigns import StoreFile, in_store, opened
from cortex_m_hil.cli.change_lines import all_changes, lines_of_changes
from cortex_m_hil.cli.command_output import CALL, Answer, end, json_fields, say, write_answer
from cortex_m_hil.cli.exit_codes import CANNOT_TELL, NO, OK
from cortex_m_hil.cli.options import DAY, YEAR, file_to_write, folder_to_write, within
from cortex_m_hil.cli.tables import table
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.host import files
from cortex_m_hil.runner.run_results import Verdict

SUFFIX: Final = ".jsonl.gz"

results = group()
app.add_typer(results, name="results")

_NIGHTLY: Final = "last, last~1, a number, a name, or a commit"
Nightly = Annotated[str, typer.Argument(metavar="[NIGHTLY]", help=_NIGHTLY)]
Markdown = Annotated[
    bool,
    typer.Option("--markdown", help="Print a summary as Markdown, for $GITHUB_STEP_SUMMARY or a comment on GitHub"),
]
File = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", callback=file_to_write, help="Where to write it")
]


@results.callback()
def _results() -> None:
    """Show results of nightly runs, compare and merge them."""


def _found(kept: Store, word: str) -> StoredCampaign:
    """Return the nightly that a word names; print a note where it is incomplete."""
    campaign = nights.find(kept, word)
    if campaign.ended is None:
        say(f"nightly {campaign.ordinal} is incomplete: tests are left")
    return campaign


@results.command(
    "list",
    epilog=json_fields(
        {
            "nightly": "its number",
            "name": 'its name or ""',
            "began": "when it began (UTC)",
            "commit": "as of hil nightly",
            "dirty": "as of hil nightly",
            "tools": "as of hil nightly",
            "verdicts": "as of hil nightly",
            "folder": "the folder that it was started in",
            "shard": "the shard, such as 2/3; 1/1 where it is none",
            "targets": "the names of its targets",
            "complete": "false while tests are left",
        },
        each="each nightly",
    ),
)
def list_(store_file: StoreFile = None) -> None:
    """List all nightlies of the store with their folders, oldest first."""
    with opened(store_file) as kept:
        rows = [_about(campaign, nights.night(kept, campaign)) for campaign in kept.campaigns(KIND)]
    if CALL.get().as_json:
        for row in rows:
            write_answer(Answer("", row))
    elif rows:
        names = ["nightly", "name", "began", "commit", "targets", "results", ""]
        folders = len({row["folder"] for row in rows}) > 1
        say(table((*names, "folder") if folders else names, [_for_people(row, folders=folders) for row in rows]))
    else:
        say("no nightly yet: hil nightly makes one")


def _about(campaign: StoredCampaign, night: Night) -> dict[str, Any]:
    plan = nightly_plan(campaign)
    return {
        "nightly": campaign.ordinal,
        "name": campaign.name,
        "began": utc_text(campaign.began),
        "folder": campaign.folder,
        "commit": plan.commit,
        "dirty": night.dirty,
        "shard": plan.shard,
        "targets": plan.targets,
        "complete": night.complete,
        "verdicts": counts(night),
        "tools": plan.tools,
    }


def _for_people(row: dict[str, Any], *, folders: bool) -> tuple[str, ...]:
    told = ", ".join(counted_by_verdict({one: row["verdicts"][word] for one, word in COUNTED.items()}))
    state = "" if row["complete"] else "incomplete"
    shard = f" (shard {row['shard']})" if row["shard"] != "1/1" else ""
    commit = row["commit"][:10] + (" and changes" if row["dirty"] else "")
    folder = (row["folder"],) if folders else ()
    about = str(row["nightly"]) + shard, row["name"], row["began"], commit
    return (*about, ", ".join(row["targets"]), told, state, *folder)


@results.command(
    "show",
    epilog=json_fields(
        {
            "suite": "the suite of the test",
            "runtime": "builtin or executorch",
            "test": "the test, without its target",
            "target": "the target that was named",
            "ran": "the target that ran",
            "engine": "the simulator with its version, or the board",
            "verdict": f"one of {', '.join(one.value for one in Verdict)}",
            "error_type": "the error's class",
            "headline": "the error's first line",
            "log": "the test's log",
            "earlier": "the outcomes of earlier attempts",
            "seconds": "how long the test took",
            "cpu_seconds": "the CPU time of the test, in seconds",
            "figures": "by name: a list, a value for each program of the test",
            "about": "non-numeric facts by name, each a list: runtime, build_id, program, isa, lowering, …",
            "parts": (
                "by figure, the share of each operator; of quanta, how many elements have each distance (0 … 3, 4-7, "
                "8-15 and so on)"
            ),
            "node_id": "pytest's id of the test",
            "localized": "with --pytest=--hil-localize, where the outputs differ from the references",
            "bundle": "with --bundles, the name of the failure's file",
        },
        each="each result (with --markdown one, of nightly and markdown)",
    ),
)
def show(nightly: Nightly = nights.LAST, markdown: Markdown = False, store_file: StoreFile = None) -> None:
    """Show every result of a nightly. Exit status 1 if one failed.

    With --markdown it shows only failures, and what changed since the nightly before it.
    """
    with opened(store_file) as kept:
        campaign = _found(kept, nightly)
        night = nights.night(kept, campaign)
        before = nights.previous(kept, campaign) if markdown else None
        text = _summary(kept, before, campaign, store_file) if markdown else ""
    failed = any(one.verdict in FAILED for one in night.results.values())
    status = NO if failed else OK
    if markdown:
        end(Answer(text, {"nightly": campaign.ordinal, "markdown": text}, status))
    if CALL.get().as_json:
        for one in night.results.values():
            write_answer(Answer("", one.fields(), status))
        raise typer.Exit(status)
    rows = [_row(one) for one in night.results.values()]
    end(Answer(table(("test", "target", "runtime", "verdict", "instructions", "program"), rows), {}, status))


def _row(one: Result) -> tuple[str, ...]:
    numbers = (as_text(one.total(name)) for name in ("instructions", "pte_bytes"))
    return one.key.test, one.key.target, one.key.runtime, one.ending, *numbers


@results.command(
    "compare",
    epilog=json_fields(
        {
            "old": "the number of the older nightly",
            "new": "the number of the newer nightly",
            "changes": "as of hil nightly",
            "markdown": "with --markdown, the text",
        }
    ),
)
def compare(
    old: Annotated[str, typer.Argument(metavar="[OLD]", help="Compare with this nightly")] = f"{nights.LAST}~1",
    new: Annotated[str, typer.Argument(metavar="[NEW]", help="The nightly that is compared")] = nights.LAST,
    markdown: Markdown = False,
    store_file: StoreFile = None,
) -> None:
    """Report what changed from one nightly to another.

    Exit status 1 for a new failure, and for a figure that is missing or beyond its limit.
    """
    with opened(store_file) as kept:
        one, other = (_found(kept, word) for word in (old, new))
        changed = nights.what_changed(kept, other, nights.night(kept, one), nights.night(kept, other))
        text = _summary(kept, one, other, store_file) if markdown else ""
    bad = any(change.kind in (ChangeKind.NEW_FAILURE, ChangeKind.LIMIT, ChangeKind.MISSING) for change in changed)
    fields = {"old": one.ordinal, "new": other.ordinal, "changes": [one.fields() for one in changed]}
    fields |= {"markdown": text} if markdown else {}
    text = text or "\n".join(lines_of_changes(changed, f"nightly {one.ordinal}"))
    end(Answer(text, fields, NO if bad else OK))


def _summary(kept: Store, before: StoredCampaign | None, campaign: StoredCampaign, store_file: Path | None) -> str:
    """Return the summary in Markdown, without a newline at its end."""
    found = report_of(kept, campaign, before, Path())
    shown = f"hil results show {campaign.ordinal}{in_store(store_file)}"
    return as_markdown(found, shown, all_changes(before, campaign, store_file)).rstrip("\n")


@results.command(
    "report",
    epilog=json_fields(
        {
            "nightly": "its number",
            "compared_with": "the number of the nightly that it is compared with; null if there is none",
            "files": "what was written",
        }
    ),
)
def report(
    folder: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", callback=folder_to_write, help="Folder to write to")
    ],
    nightly: Nightly = nights.LAST,
    against: Annotated[
        str,
        typer.Option("--against", metavar="NIGHTLY", help="The nightly to compare with [default: the one before it]"),
    ] = "",
    store_file: StoreFile = None,
) -> None:
    """Write a nightly as a web page, as JSON and as JUnit XML."""
    with opened(store_file) as kept:
        campaign = _found(kept, nightly)
        before = _found(kept, against) if against else nights.previous(kept, campaign)
        found = report_of(kept, campaign, before, folder)
    written = [str(path) for path in write_report(found, folder)]
    fields = {"nightly": campaign.ordinal, "files": written, "compared_with": before.ordinal if before else None}
    end(Answer(", ".join(written), fields))


@results.command(
    "name",
    epilog=json_fields(
        {
            "nightly": "its number",
            "name": "its name now",
            "was": "the number of the nightly that had the name before; null: none had it",
        }
    ),
)
def name(
    nightly: Annotated[str, typer.Argument(metavar="NIGHTLY", help=_NIGHTLY, show_default=False)],
    called: Annotated[str, typer.Argument(metavar="NAME", help="The name, such as a release; '' removes it")],
    store_file: StoreFile = None,
) -> None:
    """Name a nightly, for --against; prune keeps it."""
    if called.isdecimal() or called.startswith(nights.LAST):
        raise ConfigError(f"{called!r} cannot name a nightly: it means another", hint="a word such as v1.4")
    with opened(store_file) as kept:
        campaign = nights.find(kept, nightly)
        named = [one for one in kept.campaigns(KIND) if called and one.name == called and one != campaign]
        others = [one.ordinal for one in named if one.folder == campaign.folder]
        kept.call(campaign, called)
    lost = f"; nightly {others[0]}, which was, has no name now" if others else ""
    told = f"is {called!r}{lost}" if called else "has no name"
    fields = {"nightly": campaign.ordinal, "name": called, "was": others[0] if others else None}
    end(Answer(f"nightly {campaign.ordinal} {told}", fields))


# --- files ---------------------------------------------------------------------------------------------------


@results.command(
    "export",
    epilog=json_fields(
        {
            "nightly": "its number",
            "file": "the file that was written",
        }
    ),
)
def export(
    nightly: Nightly = nights.LAST,
    output: File = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Write a table of results as CSV instead")] = False,
    store_file: StoreFile = None,
) -> None:
    """Write a nightly into a file, which import reads."""
    with opened(store_file) as kept:
        campaign = _found(kept, nightly)
        path = output or Path(f"nightly-{campaign.ordinal}{'.csv' if as_csv else SUFFIX}")
        if as_csv:
            files.write_atomically(path, _csv(nights.night(kept, campaign)).encode(), "another place: -o FILE")
        else:
            nights.export_nightly(kept, campaign, path)
    end(Answer(f"{path}, {path.stat().st_size} bytes", {"nightly": campaign.ordinal, "file": str(path)}))


def _csv(night: Night) -> str:
    """Return the results as CSV: a row for each result, a column for each figure, summed over a test's programs."""
    figures = sorted({name for one in night.results.values() for name in one.figures if one.total(name) is not None})
    text = io.StringIO()
    writer = csv.writer(text)
    head = ("suite", "runtime", "test", "target", "ran", "engine", "verdict", "error_type", "seconds", "cpu_seconds")
    writer.writerow([*head, *figures])
    for one in night.results.values():
        fields = one.fields()
        writer.writerow([*(_cell(fields[word]) for word in head), *(one.total(figure) for figure in figures)])
    return text.getvalue()


def _cell(value: object) -> object:
    """Return the value of a cell; text that a spreadsheet would interpret as a formula is quoted."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


@results.command(
    "import",
    epilog=json_fields(
        {
            "nightlies": "the numbers of those imported",
            "known": "how many were in the store already",
        }
    ),
)
def import_(
    file: Annotated[
        list[Path], typer.Argument(metavar=f"FILE{SUFFIX}...", help="Files of hil results export", show_default=False)
    ],
    store_file: StoreFile = None,
) -> None:
    """Read nightlies from files. Nightlies that the store has already stay as they are."""
    exported = [nights.read_nightly(path) for path in file]
    with opened(store_file) as kept:
        added = [nights.add_nightly(kept, os.getcwd(), one) for one in sorted(exported, key=lambda one: one.began)]
    new = [one.ordinal for one in added if one is not None]
    text = f"read: {len(new)}, known already: {len(added) - len(new)}"
    end(Answer(text, {"nightlies": new, "known": len(added) - len(new)}))


@results.command(
    "merge",
    epilog=json_fields(
        {
            "nightly": "its number",
            "complete": "false where a shard is missing, or has tests left",
        }
    ),
)
def merge(
    file: Annotated[
        list[Path], typer.Argument(metavar=f"PART{SUFFIX}...", help="Files of hil results export", show_default=False)
    ],
    store_file: StoreFile = None,
) -> None:
    """Put the shards or targets of one nightly together. Exit status 2 where parts or tests are missing."""
    whole = nights.merge([nights.read_nightly(path) for path in file])
    with opened(store_file) as kept:
        campaign = nights.add_nightly(kept, os.getcwd(), whole)
        if campaign is None:
            raise ConfigError("the store has this nightly already", hint="hil results list")
    complete = whole.ended is not None
    text = f"nightly {campaign.ordinal} of {counted(len(file), 'part')}" + ("" if complete else ", incomplete")
    end(Answer(text, {"nightly": campaign.ordinal, "complete": complete}, OK if complete else CANNOT_TELL))


@results.command(
    "prune",
    epilog=json_fields(
        {
            "removed": "the numbers of those removed",
            "kept": "how many are left",
        }
    ),
)
def prune(
    keep: Annotated[
        int, typer.Option("--keep", min=0, metavar="N", help="Keep the last N of each folder, and those with a name")
    ],
    older: Annotated[
        float,
        typer.Option(
            "--older-than",
            callback=within(0, 100 * YEAR / DAY),
            metavar="DAYS",
            help="Remove only nightlies older than this",
        ),
    ] = 0.0,
    store_file: StoreFile = None,
) -> None:
    """Remove old nightlies from the store."""
    with opened(store_file) as kept:
        known: Sequence[StoredCampaign] = kept.campaigns(KIND)
        gone = nights.expired(known, keep, older * DAY)
        for campaign in gone:
            kept.forget(campaign)
    text = f"removed: {len(gone)}, kept: {len(known) - len(gone)}"
    end(Answer(text, {"removed": [one.ordinal for one in gone], "kept": len(known) - len(gone)}))
