"""Helpers of the commands that lead campaigns: the store, and the folder of the campaign that is under way."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil.campaigns import store
from cortex_m_hil.campaigns.store import Campaign, Store
from cortex_m_hil.cli.options import YEAR, within
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.host.folders import OwnFolder

StoreFile = Annotated[
    Path | None, typer.Option("--store", help="Where campaigns are kept [default: the user's state folder]")
]
Budget = Annotated[float, typer.Option("--budget", callback=within(0, YEAR), help="Begin no run after so many seconds")]


def opened(file: Path | None) -> Store:
    return Store(file.absolute() if file else store.default_file())


def in_store(file: Path | None) -> str:
    """Return the option that names the store, for the end of a command in a message; "" for the user's own store."""
    return f" --store {shlex.quote(str(file))}" if file is not None else ""


def current(kept: Store, kind: str) -> Campaign | None:
    """Return the last campaign of a kind that was begun in the current folder; None if there is none."""
    return kept.latest(kind, os.getcwd())


@contextmanager
def own_folder(kept: Store, campaign: Campaign, stays: Callable[[], bool] = lambda: False) -> Iterator[Path]:
    """Yield the folder of a campaign, beside the store, and remove it in the end.

    Args:
        kept: the store.
        campaign: the campaign.
        stays: is asked in the end whether the folder stays, for what a later process goes on with.

    Raises:
        ConfigError: another process leads the campaign.
        KeyboardInterrupt: the block was interrupted; the message says how to go on.
    """
    path = kept.file.parent / f"{kept.file.stem}-{campaign.number}"
    path.mkdir(exist_ok=True)
    try:
        folder = OwnFolder(path)
    except (BlockingIOError, FileNotFoundError):
        what = f"another process is at work on this campaign ({campaign.kind})"
        raise ConfigError(what, hint="wait for it, or end it; in another folder another one begins") from None
    try:
        yield path
    except KeyboardInterrupt:
        raise KeyboardInterrupt("what has ended is kept: the same command in this folder goes on") from None
    finally:
        if stays():
            folder.release()
        else:
            folder.remove()
