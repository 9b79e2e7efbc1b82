"""The steps shared by all commands that run a campaign; each command has its own options, planner and answer."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cortex_m_hil.campaigns import planner, store
from cortex_m_hil.campaigns.store import Run, Store
from cortex_m_hil.cli.command_output import say
from cortex_m_hil.cli.options import YEAR, within
from cortex_m_hil.cli.progress import going_on, status
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.host.folders import OwnFolder

StoreFile = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="The database of nightlies, searches and other long runs [default: in the user's state folder]",
    ),
]
Budget = Annotated[
    float,
    typer.Option(
        "--budget",
        metavar="SECONDS",
        callback=within(0, YEAR),
        help="Start no new run after this many seconds [default: no limit]",
        show_default=False,
    ),
]
UNDER_WAY: Final = "something else is under way in this folder"


def opened(file: Path | None) -> Store:
    return Store(file.absolute() if file else store.default_file())


@contextmanager
def leading(file: Path | None) -> Iterator[Store]:
    """Yield the store for a campaign of this process; an interrupt within the block prints how to resume."""
    with going_on("what has ended is kept: the same command in this folder goes on"), opened(file) as kept:
        yield kept


def in_store(file: Path | None) -> str:
    """Return the option that names the store, for the end of a command in a message; "" for the user's own store."""
    return f" --store {shlex.quote(str(file))}" if file is not None else ""


@dataclass(frozen=True)
class CampaignOptions:
    """The options that every command with a campaign has: the store, the time budget and so on."""

    budget: Budget = YEAR
    store_file: StoreFile = None

    def store(self) -> AbstractContextManager[Store]:
        return leading(self.store_file)


class Campaign:
    """A campaign of the current folder that this process runs.

    Attributes:
        kept: the store that has the campaign.
        record: the campaign's record in the store.
    """

    def __init__(self, kept: Store, record: store.StoredCampaign) -> None:
        self.kept, self.record = kept, record

    @classmethod
    def last(cls, kept: Store, kind: str) -> Campaign | None:
        """Return the latest campaign of a kind; None if there is none."""
        found = kept.latest(kind, os.getcwd())
        return None if found is None else cls(kept, found)

    @classmethod
    def begin(cls, kept: Store, kind: str, plan: Mapping[str, Any]) -> Campaign:
        return cls(kept, kept.begin(kind, os.getcwd(), plan))

    @classmethod
    def go_on(
        cls, kept: Store, kind: str, plan: Mapping[str, Any], is_same: Callable[[store.StoredCampaign], bool]
    ) -> Campaign:
        """Return the latest campaign for which `is_same` is true if it has not ended, or begin a new one."""
        here = [one for one in kept.campaigns(kind) if one.folder == os.getcwd() and one.ended is None and is_same(one)]
        return cls(kept, here[-1]) if here else cls.begin(kept, kind, plan)

    @property
    def plan(self) -> Mapping[str, Any]:
        return self.record.plan

    @property
    def runs(self) -> list[Run]:
        """Return all runs so far."""
        return self.kept.runs(self.record)

    @property
    def has_ended(self) -> bool:
        return self.record.ended is not None

    @property
    def path(self) -> Path:
        """Return the campaign's folder, which is next to the store."""
        return self.kept.file.parent / f"{self.kept.file.stem}-{self.record.number}"

    @contextmanager
    def folder(self, stays: Callable[[], bool] = lambda: False) -> Iterator[Path]:
        """Yield the campaign's folder, and remove it after the block.

        Args:
            stays: tells, at the end of the block, whether to keep the folder for a process that resumes the campaign.

        Raises:
            ConfigError: another process is running the campaign.
        """
        self.path.mkdir(exist_ok=True)
        try:
            folder = OwnFolder(self.path)
        except (BlockingIOError, FileNotFoundError):
            what = f"another process is at work on this campaign ({self.record.kind})"
            raise ConfigError(
                what, hint="wait for it, or end it; a command in another folder has a campaign of its own"
            ) from None
        try:
            yield self.path
        finally:
            if stays():
                folder.release()
            else:
                folder.remove()

    def work(
        self,
        of: planner.Planner,
        budget: Deadline,
        row: Callable[[list[Run]], str] = lambda _: "",
        jobs: int = 0,
        *,
        ends: bool = True,
        display: bool = True,
    ) -> list[Run]:
        """Execute the remaining runs within the budget, and return all runs; if none remains, the campaign has ended.

        Args:
            of: the planner.
            budget: the deadline after which no run begins.
            row: returns the line that is printed after a run, given all runs so far; "" for none.
            jobs: the number of parallel runs; 0: they are done in this thread.
            ends: whether the campaign has ended when the planner has no run left; False: other runs follow.
            display: whether to show the current runs on a terminal; False: the planner does so.
        """
        line = status()

        def told(before: list[Run], key: str) -> None:
            left = of.left(before)
            line.update(f"{len(before)} done, about {left} left{_time_left(before, left, jobs)}: {key}")

        with line if display else nullcontext():
            for runs in planner.work(of, self.kept, self.record, budget, told, jobs):
                if text := row(runs):
                    say(text)
        if ends and not of.left(self.runs):
            self.end()
        return self.runs

    def change(self, plan: Mapping[str, Any]) -> None:
        """Replace the campaign's plan in the store."""
        self.kept.change_plan(self.record, plan)

    def end(self) -> None:
        self.kept.end(self.record)
        self.record = replace(self.record, ended=time.time())

    def forget(self) -> None:
        """Remove the campaign from the store."""
        with self.folder():
            self.kept.forget(self.record)


def _time_left(runs: Sequence[Run], left: int, jobs: int) -> str:
    if not (runs and left):
        return ""
    seconds = left * sum(run.seconds for run in runs) / len(runs) / max(jobs, 1)
    return f", {seconds / 60:.0f} min to go" if seconds >= 60 else f", {seconds:.0f} s to go"
