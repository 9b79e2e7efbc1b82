"""Nightlies in the store: found by what a user calls them, written to files and read back, put together from shards."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.campaigns.nightly import KIND, Plan, coverage_of, is_coverage, is_result, night_of
from cortex_m_hil.campaigns.store import Campaign, Run, Store
from cortex_m_hil.errors import ConfigError, did_you_mean
from cortex_m_hil.host import files
from cortex_m_hil.report.changes import CYCLES, Change, changes, in_order
from cortex_m_hil.report.limits import beyond
from cortex_m_hil.report.night import Night, Result
from cortex_m_hil.report.series import LONGEST

FORMAT: Final = 1
LIMIT: Final = 1 << 30  # bytes of a file, and of what it unpacks to
LAST: Final = "last"


@dataclass(frozen=True)
class Exported:
    """What a file has: a nightly and its runs."""

    plan: Plan
    began: float
    ended: float | None
    name: str
    runs: tuple[Run, ...]


def find(kept: Store, word: str) -> Campaign:
    """`last`, `last~2`, a number, a name, or the first characters of a commit: then the last of that commit.

    ConfigError where there is none.
    """
    known = kept.campaigns(KIND)
    found = _by_age(known, word) or _by_name(known, word)
    if found is None:
        names = [LAST, *(str(one.number) for one in known), *filter(None, (one.name for one in known))]
        hint = f"{did_you_mean(word, names)}; hil results list shows them" if known else "hil nightly makes one"
        raise ConfigError(f"no nightly {word!r} in {kept.file.name}", hint=hint)
    return found


def _by_age(known: Sequence[Campaign], word: str) -> Campaign | None:
    head, tilde, back = word.partition("~")
    if head != LAST or (tilde and not back.isdecimal()):
        return None
    ended = [one for one in known if one.ended is not None]
    age = int(back or 0)
    return ended[-1 - age] if age < len(ended) else None


def _by_name(known: Sequence[Campaign], word: str) -> Campaign | None:
    for matches in (
        lambda one: one.name == word,
        lambda one: str(one.number) == word,
        lambda one: len(word) >= 7 and Plan.of(one.plan).commit.startswith(word),
    ):
        if found := [one for one in known if matches(one)]:
            return found[-1]
    return None


def night(kept: Store, campaign: Campaign) -> Night:
    return night_of(campaign, kept.runs(campaign))


def earlier(kept: Store, campaign: Campaign) -> list[Campaign]:
    """The complete ones of the same folder before it, oldest first."""
    known = [one for one in kept.campaigns(KIND) if one.number < campaign.number and one.place == campaign.place]
    return [one for one in known if one.ended is not None]


def previous(kept: Store, campaign: Campaign) -> Campaign | None:
    """The last of those."""
    return next(reversed(earlier(kept, campaign)), None)


def series(kept: Store, campaign: Campaign) -> list[Campaign]:
    """Those of the same tools: their figures can be compared."""
    tools = Plan.of(campaign.plan).tools
    return [one for one in earlier(kept, campaign) if Plan.of(one.plan).tools == tools]


def what_changed(kept: Store, campaign: Campaign, old: Night | None, new: Night) -> list[Change]:
    """From one to the other, which is the campaign's, and what is beyond its limits.

    Where boards were measured, the course before it counts too.
    """
    plan = Plan.of(campaign.plan)
    limits = beyond(plan.limits, old, new, whole=new.complete and plan.shard == "1/1")
    found = {(one.kind, one.key, one.figure, one.limit): one for one in limits}
    if old is None:
        return in_order(found.values())
    history: list[Night] = []
    if any(CYCLES in one.figures for one in new.results.values()):
        history = [night(kept, one) for one in series(kept, campaign)[-LONGEST:]]
    found.update({(one.kind, one.key, one.figure, one.limit): one for one in changes(old, new, history)})
    return in_order(found.values())


# --- files ---------------------------------------------------------------------------------------------------


def export(kept: Store, campaign: Campaign, file: Path) -> None:
    """One JSON object a line, compressed: the nightly, then its runs. The same nightly gives the same bytes."""
    head = {"hil_nightly": FORMAT, "began": campaign.began, "ended": campaign.ended, "name": campaign.name}
    rows = [{**head, "plan": campaign.plan}, *(asdict(run) for run in kept.runs(campaign))]
    text = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    files.write_whole(file, gzip.compress(text.encode(), mtime=0), "another place: -o FILE")


def read(file: Path) -> Exported:
    """ConfigError for what is no such file, with its line."""
    line = 1
    try:
        rows = _unpacked(files.read(file, LIMIT)).decode().splitlines()
        if not rows:
            raise ValueError("it is empty")
        head, runs = _head(json.loads(rows[0]), file), []
        for line, row in enumerate(rows[1:], 2):  # noqa: B007 - for the message below
            runs.append(_checked_run(json.loads(row)))
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


def _head(fields: dict[str, Any], file: Path) -> Exported:
    """Without its runs."""
    if fields["hil_nightly"] > FORMAT:
        raise ConfigError(f"{file} is of a newer hil", hint="use that hil")
    ended = None if fields["ended"] is None else float(fields["ended"])
    return Exported(Plan.of(fields["plan"]), float(fields["began"]), ended, str(fields["name"]), ())


def _checked_run(fields: dict[str, Any]) -> Run:
    run = Run(**fields)
    if is_result(run):
        Result.of_fields(run.figures)
    elif is_coverage(run):
        coverage_of([run])
    return run


def add(kept: Store, place: str, exported: Exported) -> Campaign | None:
    """Into the store, as it is. None where that nightly is there already."""
    if (exported.began, exported.plan) in [(one.began, Plan.of(one.plan)) for one in kept.campaigns(KIND)]:
        return None
    campaign = kept.begin(KIND, place, exported.plan.as_fields(), exported.began)
    kept.record(campaign, *exported.runs)
    if exported.name:
        kept.call(campaign, exported.name)
    if exported.ended is not None:
        kept.end(campaign, exported.ended)
    return campaign


def put_together(shards: Sequence[Exported]) -> Exported:
    """One nightly from its shards. It is complete if all are there, and complete.

    ConfigError where they are not of one nightly: code, tools or what was asked for differ, or one is there twice.
    """
    if len({json.dumps({**one.plan.as_fields(), "shard": ""}, sort_keys=True) for one in shards}) > 1:
        raise ConfigError(
            "these are shards of different nightlies", hint="same code, tools, tests, targets and options"
        )
    numbers = [tuple(map(int, one.plan.shard.split("/"))) for one in shards]
    if len({of for _, of in numbers}) > 1 or len(set(numbers)) < len(numbers):
        named = ", ".join(one.plan.shard for one in shards)
        raise ConfigError(f"these are no shards of one nightly: {named}", hint="each of 1/n … n/n once")
    ends = [one.ended for one in shards if one.ended is not None]
    complete = len(shards) == numbers[0][1] and len(ends) == len(shards)
    runs: dict[str, Run] = {}
    for run in (run for one in shards for run in one.runs):
        both = [runs[run.key], run] if is_coverage(run) and run.key in runs else []
        runs[run.key] = replace(run, figures=coverage_of(both).fields()) if both else run
    began, ended = min(one.began for one in shards), max(ends) if complete else None
    plan = replace(shards[0].plan, shard="1/1")
    return Exported(plan, began, ended, shards[0].name, tuple(runs[key] for key in sorted(runs)))
