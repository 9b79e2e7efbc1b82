"""The store of campaigns and their runs, one SQLite file. Only the process that runs a campaign records its runs.

A run is in the file as soon as `record` returns, even if the process or the machine crashes then.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import platformdirs
from pydantic import TypeAdapter

from cortex_m_hil.errors import ConfigError

_Kind = TypeVar("_Kind")
_Plan = TypeVar("_Plan", bound="Plan")
SCHEMA: Final = 3  # PRAGMA user_version
_BUSY: Final = 10.0  # seconds to wait for another process's transaction
_TABLES: Final = """
CREATE TABLE campaign (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, place TEXT NOT NULL, plan TEXT NOT NULL,
    began REAL NOT NULL, ended REAL
);
CREATE TABLE run (
    campaign INTEGER NOT NULL REFERENCES campaign ON DELETE CASCADE, number INTEGER NOT NULL, key TEXT NOT NULL,
    verdict TEXT NOT NULL, error TEXT NOT NULL, seconds REAL NOT NULL, at REAL NOT NULL, figures TEXT NOT NULL,
    PRIMARY KEY (campaign, number)
);
"""
# Migrations, by the schema that they lead to. A campaign that users knew by its `id` gets it as its ordinal.
_MIGRATIONS: Final = {
    2: ("ALTER TABLE campaign ADD COLUMN name TEXT NOT NULL DEFAULT ''",),
    3: ("ALTER TABLE campaign ADD COLUMN ordinal INTEGER NOT NULL DEFAULT 0", "UPDATE campaign SET ordinal = id"),
}


def default_file() -> Path:
    return platformdirs.user_state_path("hil") / "campaigns.sqlite"


@dataclass(frozen=True)
class Run:
    """One run of a campaign.

    Attributes:
        key: the subject of the run, such as a commit.
        verdict: a word that the kind of campaign defines.
        error: the reason for a bad verdict; empty for a good one.
        seconds: the duration by the host's clock.
        at: the time when the run ended, in seconds since 1970.
        figures: all other results of the run, as values that JSON can have.
    """

    key: str
    verdict: str
    error: str = ""
    seconds: float = 0.0
    at: float = 0.0
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredCampaign:
    """A campaign that the store has.

    Attributes:
        number: a number that is unique in the store.
        kind: the kind of campaign, such as a nightly.
        folder: the folder in which it was begun.
        plan: the settings of the campaign, as values that JSON can have.
        began: the time of its beginning, in seconds since 1970.
        ended: the time of its end, in seconds since 1970; None while it has not ended.
        name: the name that a user gave it; "" if none.
        ordinal: the number that users see; it counts the campaigns of one kind in one folder, from 1.
    """

    number: int
    kind: str
    folder: str
    plan: Mapping[str, Any]
    began: float
    ended: float | None
    name: str = ""
    ordinal: int = 0


def from_fields(kind: type[_Kind], fields: Mapping[str, Any]) -> _Kind:
    """Return a dataclass for fields from `asdict`, even after a round trip through JSON.

    Raises:
        ValueError: the fields are malformed.
    """
    return cast(_Kind, _adapter(cast(Any, kind)).validate_python(fields))


@functools.cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


class Plan:
    """The base of dataclasses with the settings of a campaign or of its workers."""

    @classmethod
    def of(cls: type[_Plan], fields: Mapping[str, Any]) -> _Plan:
        """Return the plan for `fields` from `as_fields`; raise the errors of `from_fields`."""
        return from_fields(cls, fields)

    def as_fields(self) -> dict[str, Any]:
        return asdict(cast(Any, self))


class Store:
    """A file of campaigns. Its methods raise ConfigError, with a hint, where the file cannot be read or written."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with self._explained():
            file.parent.mkdir(parents=True, exist_ok=True)
            self._sqlite = sqlite3.connect(file, timeout=_BUSY, isolation_level=None)
            self._prepare()

    def _prepare(self) -> None:
        (version,) = self._sqlite.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA:
            raise ConfigError(
                f"{self.file} is of a newer hil: its schema is {version}, this hil knows {SCHEMA}",
                hint="use that hil, or another file: --store FILE",
            )
        self._sqlite.execute("PRAGMA journal_mode = WAL")
        self._sqlite.execute("PRAGMA synchronous = FULL")
        self._sqlite.execute("PRAGMA foreign_keys = ON")
        if version < SCHEMA:
            with self._transaction():
                (version,) = self._sqlite.execute("PRAGMA user_version").fetchone()  # another may have been here
                tables = filter(str.strip, _TABLES.split(";")) if version == 0 else ()
                steps = (step for to, steps in _MIGRATIONS.items() if to > version for step in steps)
                for statement in (*tables, *steps):
                    self._sqlite.execute(statement)
                self._sqlite.execute(f"PRAGMA user_version = {SCHEMA}")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            hint = "is there room, and may you write there? What was recorded is kept; or another file: --store FILE"
            raise ConfigError(f"cannot use the store {self.file}: {error}", hint=hint) from error
        except (sqlite3.DatabaseError, json.JSONDecodeError) as error:
            hint = "move it out of the way, or name another file: --store FILE"
            raise ConfigError(f"the store {self.file} is damaged, or is no store: {error}", hint=hint) from error
        except OSError as error:
            raise ConfigError(f"cannot use the store {self.file}: {error.strerror}", hint="--store FILE") from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._explained():
            self._sqlite.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._sqlite.execute("COMMIT")
            except BaseException:
                if self._sqlite.in_transaction:
                    self._sqlite.execute("ROLLBACK")
                raise

    def close(self) -> None:
        self._sqlite.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(
        self, kind: str, folder: str, plan: Mapping[str, Any], began: float | None = None, ordinal: int = 0
    ) -> StoredCampaign:
        """Record the beginning of a campaign.

        Args:
            kind: as in `StoredCampaign`.
            folder: as in `StoredCampaign`.
            plan: as in `StoredCampaign`.
            began: in seconds since 1970; None: now.
            ordinal: the number that the campaign had in another store, which it keeps if the number is free; 0, or a
                number that is taken: the next free one.
        """
        values = kind, folder, json.dumps(plan), time.time() if began is None else began
        with self._transaction():
            known = "SELECT ordinal FROM campaign WHERE kind = ? AND place = ?"
            taken = {number for (number,) in self._sqlite.execute(known, (kind, folder))}
            number = ordinal if ordinal > 0 and ordinal not in taken else max(taken, default=0) + 1
            row = "INSERT INTO campaign (kind, place, plan, began, ordinal) VALUES (?, ?, ?, ?, ?)"
            self._sqlite.execute(row, (*values, number))
        found = self.latest(kind, folder)
        assert found is not None
        return found

    def latest(self, kind: str, folder: str) -> StoredCampaign | None:
        """Return the latest campaign of this kind in this folder; None if there is none."""
        return next((one for one in reversed(self.campaigns(kind)) if one.folder == folder), None)

    def campaigns(self, kind: str) -> list[StoredCampaign]:
        """Return all campaigns of a kind, oldest first."""
        with self._explained():
            rows = self._sqlite.execute(
                "SELECT id, kind, place, plan, began, ended, name, ordinal FROM campaign WHERE kind = ? ORDER BY id",
                (kind,),
            ).fetchall()
            return [StoredCampaign(row[0], row[1], row[2], json.loads(row[3]), *row[4:]) for row in rows]

    def call(self, campaign: StoredCampaign, name: str) -> None:
        """Give a campaign a name, and take that name from any other of its kind in its folder."""
        with self._transaction():
            others = "UPDATE campaign SET name = '' WHERE kind = ? AND place = ? AND name = ?"
            self._sqlite.execute(others, (campaign.kind, campaign.folder, name))
            self._sqlite.execute("UPDATE campaign SET name = ? WHERE id = ?", (name, campaign.number))

    def change_plan(self, campaign: StoredCampaign, plan: Mapping[str, Any]) -> None:
        with self._transaction():
            self._sqlite.execute("UPDATE campaign SET plan = ? WHERE id = ?", (json.dumps(plan), campaign.number))

    def end(self, campaign: StoredCampaign, ended: float | None = None) -> None:
        """Record that a campaign ended at `ended`, in seconds since 1970; None: now."""
        values = time.time() if ended is None else ended, campaign.number
        with self._transaction():
            self._sqlite.execute("UPDATE campaign SET ended = ? WHERE id = ?", values)

    def forget(self, campaign: StoredCampaign) -> None:
        """Remove a campaign with its runs."""
        with self._transaction():
            self._sqlite.execute("DELETE FROM campaign WHERE id = ?", (campaign.number,))

    def record(self, campaign: StoredCampaign, *runs: Run) -> None:
        """Record runs of a campaign in one transaction: if recording one of them fails, none is recorded."""
        with self._transaction():
            for run in runs:
                values = campaign.number, run.key, run.verdict, run.error, run.seconds, run.at, json.dumps(run.figures)
                self._sqlite.execute(
                    "INSERT INTO run (campaign, number, key, verdict, error, seconds, at, figures)"
                    " SELECT ?1, COALESCE(MAX(number), 0) + 1, ?2, ?3, ?4, ?5, ?6, ?7 FROM run WHERE campaign = ?1",
                    values,
                )

    def runs(self, campaign: StoredCampaign) -> list[Run]:
        """Return a campaign's runs in the order in which they were recorded."""
        with self._explained():
            rows = self._sqlite.execute(
                "SELECT key, verdict, error, seconds, at, figures FROM run WHERE campaign = ? ORDER BY number",
                (campaign.number,),
            ).fetchall()
            return [
                Run(key, verdict, error, seconds, at, json.loads(figures))
                for key, verdict, error, seconds, at, figures in rows
            ]
