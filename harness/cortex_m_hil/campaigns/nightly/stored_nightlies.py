"""Nightlies in the store: found by a user's words, written to files and read back, merged from shards."""

from __future__ import annotations

import gzip
import io
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.campaigns.nightly.nightly import (
    KIND,
    NightlyPlan,
    commits_from,
    coverage_of,
    is_coverage,
    is_result,
    night_of,
    nightly_plan,
    profiles_in,
)
from cortex_m_hil.campaigns.report.change_points import LONGEST
from cortex_m_hil.campaigns.report.changes import (
    RECENT,
    Change,
    changes,
    comparable,
    in_order,
    needs_history,
    problems_within,
    programs,
)
from cortex_m_hil.campaigns.report.fail_if_limits import beyond_limits
from cortex_m_hil.campaigns.report.nightly_results import FAILED, Night, Result
from cortex_m_hil.campaigns.store import Run, Store, StoredCampaign
from cortex_m_hil.errors import ConfigError, did_you_mean
from cortex_m_hil.host import files
from cortex_m_hil.runner.run_results import Verdict

FORMAT: Final = 1
LIMIT: Final = 1 << 30  # bytes of a file, packed and unpacked, at most
LAST: Final = "last"


@dataclass(frozen=True)
class ExportedNightly:
    """A nightly and its runs, in the form of an exported file.

    Attributes:
        began: in seconds since 1970.
        ended: in seconds since 1970; None: the nightly is not complete.
        name: the name that a user gave it; "" without one.
        number: the number by which users know it; 0 where it has none yet.
    """

    plan: NightlyPlan
    began: float
    ended: float | None
    name: str
    runs: tuple[Run, ...]
    number: int = 0


def find(kept: Store, word: str, *, complete: bool = False) -> StoredCampaign:
    """Return the nightly that a user's word names.

    `last` is the newest nightly that was begun in the current folder (or in any folder, if none was), complete or not;
    `last~1` and so on are the complete nightlies before it. A number or a name is looked up in the current folder, or
    in the only other folder that has it. The first characters of a commit, 7 at least, name its last nightly. Any other
    revision that git knows in the current folder, such as a branch or a tag, stands for its commit, or for the nearest
    first-parent ancestor that has a nightly.

    Args:
        kept: the store.
        word: `last`, `last~2`, a number, a name, the beginning of a commit, or a revision that git knows.
        complete: whether `last` must be complete, too.

    Raises:
        ConfigError: there is no such nightly, or several other folders have one.
    """
    known = kept.campaigns(KIND)
    found = _by_age(known, word, complete) or _by_word(known, word) or _by_revision(known, word)
    if found is None:
        words = dict.fromkeys([LAST, *(str(one.ordinal) for one in known), *filter(None, (one.name for one in known))])
        more = "a commit, a branch or a tag names one, too; hil results list shows them"
        hint = f"{did_you_mean(word, list(words))}; {more}" if known else "hil nightly makes one"
        raise ConfigError(f"no nightly {word!r} in {kept.file}", hint=hint)
    return found


def _by_age(known: Sequence[StoredCampaign], word: str, complete: bool) -> StoredCampaign | None:
    head, tilde, back = word.partition("~")
    if head != LAST or (tilde and not back.isdecimal()):
        return None
    here = [one for one in known if one.folder == os.getcwd()] or list(known)
    wanted = [one for one in here if one.ended is not None or (one is here[-1] and not complete)]
    age = int(back or 0)
    return wanted[-1 - age] if age < len(wanted) else None


def _by_word(known: Sequence[StoredCampaign], word: str) -> StoredCampaign | None:
    """Return the last nightly with this number, name or commit, preferably of the current folder.

    None if there is none.

    Raises:
        ConfigError: several other folders, but not the current one, have a nightly with that number or name.
    """
    ways: list[Callable[[StoredCampaign], bool]] = [
        lambda one: word in (str(one.ordinal), one.name),
        lambda one: len(word) >= 7 and nightly_plan(one).commit.startswith(word),
    ]
    for matches in ways:
        found = [one for one in known if matches(one)]
        here = [one for one in found if one.folder == os.getcwd()] or found
        folders = sorted({one.folder for one in here})
        if len(folders) > 1 and word in (str(here[-1].ordinal), here[-1].name):
            hint = "call hil in one of them, or give a commit; hil results list shows them"
            raise ConfigError(f"nightly {word} is there in several folders: {', '.join(folders)}", hint=hint)
        if here:
            return here[-1]
    return None


def _by_revision(known: Sequence[StoredCampaign], word: str) -> StoredCampaign | None:
    """Return the last complete nightly of a revision that git knows, or of its nearest ancestor by first parents.

    Nightlies with changes that are not in the commit are ignored. None if there is no nightly.
    """
    plans = ((one, nightly_plan(one)) for one in known if one.ended is not None)
    latest = {plan.commit: one for one, plan in plans if not plan.difference}
    return next((latest[commit] for commit in commits_from(word) if commit in latest), None)


def night(kept: Store, campaign: StoredCampaign) -> Night:
    return night_of(campaign, kept.runs(campaign))


def earlier(kept: Store, campaign: StoredCampaign) -> list[StoredCampaign]:
    """Return the earlier complete nightlies of the same folder, oldest first."""
    known = [one for one in kept.campaigns(KIND) if one.number < campaign.number and one.folder == campaign.folder]
    return [one for one in known if one.ended is not None]


def previous(kept: Store, campaign: StoredCampaign) -> StoredCampaign | None:
    """Return the last earlier nightly of the same tests and targets, or else the last earlier one.

    None if there is none.
    """
    known, scope = earlier(kept, campaign), nightly_plan(campaign).scope
    alike = [one for one in known if nightly_plan(one).scope == scope]
    return next(reversed(alike or known), None)


def series(kept: Store, campaign: StoredCampaign) -> list[StoredCampaign]:
    """Return the earlier nightlies with the same tools, whose figures can be compared, oldest first."""
    tools = nightly_plan(campaign).tools
    return [one for one in earlier(kept, campaign) if comparable(nightly_plan(one).tools, tools)]


def expired(known: Sequence[StoredCampaign], keep: int, older: float) -> list[StoredCampaign]:
    """Return the nightlies to remove: neither named, nor among the last `keep` of their folder, nor newer.

    Args:
        known: all nightlies, oldest first.
        keep: how many of each folder are kept.
        older: only nightlies that began more than so many seconds ago are removed.
    """
    last = [one for of in _by_folder(known).values() for one in of[-keep:]] if keep else []
    limit = time.time() - older
    return [one for one in known if one not in last and not one.name and one.began <= limit]


def _by_folder(known: Sequence[StoredCampaign]) -> dict[str, list[StoredCampaign]]:
    """Return the nightlies by the folder in which they were begun, oldest first."""
    found: dict[str, list[StoredCampaign]] = {}
    for one in known:
        found.setdefault(one.folder, []).append(one)
    return found


def what_changed(kept: Store, campaign: StoredCampaign, old: Night | None, new: Night) -> list[Change]:
    """Return the changes from one nightly to another, and the figures that are beyond their limits.

    Earlier nightlies are used too: to find verdicts that differ without a change of the code, and for boards'
    measurements or tests that did not pass in the old nightly.

    Args:
        kept: the store.
        campaign: the new nightly.
        old: the results to compare with; None: there are none.
        new: the results of `campaign`.
    """
    plan = nightly_plan(campaign)
    limits = beyond_limits(plan.limits, old, new, whole=new.complete and plan.shard == "1/1")
    found = {(one.kind, one.key, one.figure, one.limit): one for one in limits}
    history: list[Night] = []
    if old is not None:
        length = LONGEST if needs_history(old, new) else RECENT
        history = [night(kept, one) for one in series(kept, campaign)[-length:]]
    told = problems_within(new) if old is None else changes(old, new, history)
    found.update({(one.kind, one.key, one.figure, one.limit): one for one in told})
    names = programs(new)
    return in_order(replace(one, program=names.get(one.key, "")) for one in found.values())


# --- files ---------------------------------------------------------------------------------------------------


def export_nightly(kept: Store, campaign: StoredCampaign, file: Path) -> None:
    """Write a nightly to a file compressed by gzip, one JSON object a line: the nightly, then its runs.

    The same nightly gives the same bytes. The file has no folder names of this machine.
    """
    head = {"hil_nightly": FORMAT, "began": campaign.began, "ended": campaign.ended, "name": campaign.name}
    head["number"] = campaign.ordinal
    plan = nightly_plan(campaign).without_places(campaign.folder)
    rows = [{**head, "plan": plan.as_fields()}, *(asdict(run) for run in kept.runs(campaign))]
    text = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    files.write_atomically(file, gzip.compress(text.encode(), mtime=0), "another place: -o FILE")


def read_nightly(file: Path) -> ExportedNightly:
    """Read a nightly from a file that `export_nightly` wrote.

    Raises:
        ConfigError: the file is malformed (the message has the line), or of a newer hil.
    """
    line = 1
    try:
        rows = _unpacked(files.read(file, LIMIT)).decode().splitlines()
        if not rows:
            raise ValueError("it is empty")
        head, runs = _head(json.loads(rows[0]), file), []
        for line, row in enumerate(rows[1:], 2):  # noqa: B007 - for the message below
            runs.append(_checked_run(json.loads(row)))
    except gzip.BadGzipFile as error:
        what = f"{file} is not compressed by gzip, so no exported nightly"
        raise ConfigError(what, hint="hil results export writes what is read here") from error
    except (AttributeError, KeyError, TypeError, ValueError, EOFError, zlib.error, OSError) as error:
        what = f"{file}:{line}: no nightly: {error or type(error).__name__}"
        raise ConfigError(what, hint="hil results export writes what is read here") from error
    return replace(head, runs=tuple(runs))


def _unpacked(data: bytes) -> bytes:
    with gzip.open(io.BytesIO(data)) as stream:
        unpacked = stream.read(LIMIT + 1)
    if len(unpacked) > LIMIT:
        raise ValueError(f"it unpacks to more than {LIMIT} bytes")
    return unpacked


def _head(fields: dict[str, Any], file: Path) -> ExportedNightly:
    """Return the nightly that the first line of a file describes, without its runs.

    Raises:
        ConfigError: the file is of a newer hil.
    """
    if fields["hil_nightly"] > FORMAT:
        raise ConfigError(f"{file} is of a newer hil", hint="use that hil")
    ended = None if fields["ended"] is None else float(fields["ended"])
    number = int(fields.get("number", 0))  # absent in files of earlier versions
    return ExportedNightly(
        NightlyPlan.from_fields(fields["plan"]), float(fields["began"]), ended, str(fields["name"]), (), number
    )


def _checked_run(fields: dict[str, Any]) -> Run:
    run = Run(**fields)
    if is_result(run):
        Result.of_fields(run.figures)
    elif is_coverage(run):
        coverage_of([run])
    else:
        list(profiles_in([run]))
    return run


def add_nightly(kept: Store, folder: str, exported: ExportedNightly) -> StoredCampaign | None:
    """Add a nightly to the store, as a nightly of `folder`; return None if the store has it already."""
    known = [(one.began, nightly_plan(one).without_places(one.folder)) for one in kept.campaigns(KIND)]
    if (exported.began, exported.plan.without_places(folder)) in known:
        return None
    campaign = kept.begin(KIND, folder, exported.plan.as_fields(), exported.began, exported.number)
    kept.record(campaign, *exported.runs)
    if exported.name:
        kept.call(campaign, exported.name)
    if exported.ended is not None:
        kept.end(campaign, exported.ended)
    return replace(campaign, ended=exported.ended, name=exported.name)


def merge(parts: Sequence[ExportedNightly]) -> ExportedNightly:
    """Merge shards of a nightly, or nightlies of the same tests on different targets, or both, into one nightly.

    It is complete if all shards exist and are complete.

    Raises:
        ConfigError: code, tools or settings differ, or a part is given twice.
    """
    if len({json.dumps({**one.plan.as_fields(), **_APART}, sort_keys=True) for one in parts}) > 1:
        raise ConfigError(
            "these are parts of different nightlies", hint="merge parts of the same code, tests, runtimes and options"
        )
    groups: dict[tuple[str, ...], list[ExportedNightly]] = {}
    for one in parts:
        groups.setdefault(one.plan.targets, []).append(one)
    targets = sorted(name for names in groups for name in names)
    if twice := sorted({name for name in targets if targets.count(name) > 1}):
        what = f"{', '.join(twice)}: in nightlies of different targets"
        raise ConfigError(what, hint="each target in one nightly, or in all of its shards")
    whole = [_all_shards(group) for group in groups.values()]
    ends = [one.ended for one in parts if one.ended is not None]
    began, ended = min(one.began for one in parts), max(ends) if all(whole) else None
    left_out = {name: why for one in parts for name, why in one.plan.left_out.items() if name not in targets}
    plan = replace(
        parts[0].plan,
        shard="1/1",
        targets=tuple(targets),
        coverage=_joined([one.plan.coverage for one in parts]),
        tools=_all_tools(parts),
        left_out=left_out,
        automatic=_joined([one.plan.automatic for one in parts]),
        runtime_reasons={name: why for one in parts for name, why in one.plan.runtime_reasons.items()},
    )
    return ExportedNightly(plan, began, ended, parts[0].name, tuple(_gravest(parts)))


_APART: Final = {
    "shard": "",
    "targets": (),
    "coverage": {},
    "tools": {},
    "left_out": {},
    "automatic": {},
    "runtime_reasons": {},
}  # fields in which the plans of a nightly's parts may differ


def _joined(parts: Sequence[Mapping[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """Merge the targets of each runtime that the parts of a nightly have (each a run on some targets or shards)."""
    found: dict[str, set[str]] = {}
    for one in parts:
        for runtime, names in one.items():
            found.setdefault(runtime, set()).update(names)
    return {runtime: tuple(sorted(found[runtime])) for runtime in sorted(found)}


def _all_shards(group: Sequence[ExportedNightly]) -> bool:
    """Tell whether these parts, which have the same targets, are all shards, and complete.

    Raises:
        ConfigError: a shard is given twice, or they are shards of different divisions.
    """
    numbers = [tuple(map(int, one.plan.shard.split("/"))) for one in group]
    if len({of for _, of in numbers}) > 1 or len(set(numbers)) < len(numbers):
        named = ", ".join(one.plan.shard for one in group)
        raise ConfigError(f"these are no shards of one nightly: {named}", hint="each of 1/n … n/n once")
    return len(group) == numbers[0][1] and all(one.ended is not None for one in group)


def _all_tools(parts: Sequence[ExportedNightly]) -> dict[str, str]:
    """Return the versions of the tools of all parts; each part has only the tools of its targets.

    Raises:
        ConfigError: two parts have different versions of a tool.
    """
    found: dict[str, str] = {}
    for name, version in sorted((name, version) for one in parts for name, version in one.plan.tools.items()):
        if found.setdefault(name, version) != version:
            what = f"these are parts of different nightlies: {name} is {found[name]} and {version}"
            raise ConfigError(what, hint="the same tools on each machine")
    return found


def _gravest(parts: Sequence[ExportedNightly]) -> Iterator[Run]:
    """Yield one run for each key, in the order of keys: the one with the gravest verdict.

    Tests without a target are run in each part; a failure in one part is kept. Coverage is merged.
    """
    found: dict[str, Run] = {}
    for run in (run for one in parts for run in one.runs):
        before = found.setdefault(run.key, run)
        if is_coverage(run) and before is not run:
            found[run.key] = replace(run, figures=coverage_of([before, run]).fields())
        elif _gravity(run) > _gravity(before):
            found[run.key] = run
    yield from (found[key] for key in sorted(found))


def _gravity(run: Run) -> int:
    return 2 if run.verdict in (one.value for one in FAILED) else int(run.verdict == Verdict.INFRA.value)
