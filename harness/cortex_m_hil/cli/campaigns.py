"""What the commands of campaigns share: where they are kept, and the folder of the one that is under way."""

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
    """Return what ends a command that is about the same store, if it is not the user's."""
    return f" --store {shlex.quote(str(file))}" if file is not None else ""


def current(kept: Store, kind: str) -> Campaign | None:
    """The last that was begun in the current folder."""
    return kept.latest(kind, os.getcwd())


@contextmanager
def own_folder(kept: Store, campaign: Campaign, stays: Callable[[], bool] = lambda: False) -> Iterator[Path]:
    """That of the campaign, beside the store. ConfigError while another process leads it.

    It is removed in the end unless it `stays`, for what a later process goes on with.
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
