"""The store keeps what was recorded, whatever happens, and says what is wrong with its file."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import environment
from cortex_m_hil.campaigns.store import _TABLES, SCHEMA, Run, Store
from cortex_m_hil.errors import ConfigError

WRITER = """
import sys
from pathlib import Path
from cortex_m_hil.campaigns.store import Run, Store
store = Store(Path(sys.argv[1]))
campaign = store.begin("test", "/place", {})
for number in range(10**9):
    store.record(campaign, Run(str(number), "pass"))
    print(number, flush=True)
"""


def test_what_is_recorded_comes_back(tmp_path: Path) -> None:
    run = Run("abc", "fail", "why", 1.5, 2.5, {"cases": [{"verdict": "FAIL"}], "ünï": None})
    with Store(tmp_path / "below" / "s.sqlite") as store:
        campaign = store.begin("bisect", "/here", {"a": [1, 2]})
        store.record(campaign, run)
        store.record(campaign, Run("def", "pass"))
        store.begin("mutate", "/here", {})
    with Store(tmp_path / "below" / "s.sqlite") as store:
        found = store.latest("bisect", "/here")
        assert found == campaign and found.plan == {"a": [1, 2]} and found.ended is None
        assert store.runs(found) == [run, Run("def", "pass")]
        assert store.latest("bisect", "/there") is None
        store.end(found)
        again = store.latest("bisect", "/here")
        assert again is not None and again.ended is not None
        store.forget(found)
        assert store.latest("bisect", "/here") is None and store.runs(found) == []


def test_a_killed_writer_loses_nothing_that_was_recorded(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, text=True, env=environment()
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) == 20:
                break
        os.kill(child.pid, signal.SIGKILL)
        said = [20, *map(int, child.stdout.read().split())]
    with Store(file) as store:
        campaign = store.latest("test", "/place")
        assert campaign is not None
        keys = [int(run.key) for run in store.runs(campaign)]
    assert keys == list(range(len(keys))) and keys[-1] in (said[-1], said[-1] + 1)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite"
    Store(file).close()
    with sqlite3.connect(file) as database:
        database.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    with pytest.raises(ConfigError, match=rf"newer hil: its schema is {SCHEMA + 1}.*\n.*--store FILE"):
        Store(file)


def test_a_store_of_before_is_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite"
    with sqlite3.connect(file) as database:
        database.executescript(_TABLES + "PRAGMA user_version = 1")
        database.execute("INSERT INTO campaign (kind, place, plan, began) VALUES ('bisect', '/here', '{}', 1)")
    for _ in range(2):
        with Store(file) as store:
            [found] = store.campaigns("bisect")
            assert (found.folder, found.name) == ("/here", "")
            store.call(found, "")
            assert store.runs(found) == []


def test_a_name_is_of_one(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        one, other = (store.begin("nightly", "/here", {}) for _ in range(2))
        elsewhere = store.begin("nightly", "/there", {})
        for named in (elsewhere, one, other):
            store.call(named, "v1")
        assert [found.name for found in store.campaigns("nightly")] == ["", "v1", "v1"]


def test_the_first_of_its_kind_in_a_folder_is_number_1(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        begun = [("bisect", "/a"), ("nightly", "/a"), ("nightly", "/a"), ("nightly", "/b"), ("bisect", "/a")]
        assert [store.begin(*each, {}).ordinal for each in begun] == [1, 1, 2, 1, 2]
        store.forget(store.campaigns("nightly")[0])
        assert store.begin("nightly", "/a", {}).ordinal == 3  # numbers stay what they were
        kept = [store.begin("nightly", "/c", {}, 0.0, ordinal).ordinal for ordinal in (7, 7, 2, 0)]
        assert kept == [7, 8, 2, 9]  # each that is free there, else the next


def test_campaigns_of_a_store_of_before_keep_their_numbers(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite"
    with sqlite3.connect(file) as database:
        name = "ALTER TABLE campaign ADD COLUMN name TEXT NOT NULL DEFAULT ''"
        database.executescript(f"{_TABLES}{name}; PRAGMA user_version = 2")
        row = "INSERT INTO campaign (id, kind, place, plan, began) VALUES (?, 'nightly', ?, '{}', 1)"
        database.executemany(row, [(4, "/here"), (6, "/there")])
    with Store(file) as store:
        assert [one.ordinal for one in store.campaigns("nightly")] == [4, 6]
        assert [store.begin("nightly", place, {}).ordinal for place in ("/here", "/new")] == [5, 1]


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite"
    file.write_bytes(b"no database at all, but long enough to look at" * 100)
    with pytest.raises(ConfigError, match=r"damaged, or is no store.*\n.*another file"):
        Store(file)
    with pytest.raises(ConfigError, match="cannot use the store"):
        Store(tmp_path)
    with pytest.raises(ConfigError, match="cannot use the store"):
        Store(file / "below")


def test_a_damaged_store_is_told(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite"
    with Store(file) as store:
        campaign = store.begin("test", "/place", {})
        for number in range(200):
            store.record(campaign, Run(f"{number}", "pass", "x" * 200))
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    file.write_bytes(data)
    with Store(file) as store, pytest.raises(ConfigError, match="damaged"):
        store.latest("test", "/place")


def test_a_full_disk_is_told_and_what_there_is_stays(tmp_path: Path) -> None:
    """SQLite's own limit of pages: what it meets is SQLITE_FULL, as on a full disk."""
    with Store(tmp_path / "s.sqlite") as store:
        campaign = store.begin("test", "/place", {})
        store.record(campaign, Run("first", "pass"))
        store._sqlite.execute("PRAGMA max_page_count = 8")
        with pytest.raises(ConfigError, match=r"disk is full(.|\n)*is there room"):
            store.record(campaign, Run("second", "pass", "x" * 100_000))
        assert [run.key for run in store.runs(campaign)] == ["first"]
        store._sqlite.execute("PRAGMA max_page_count = 100000")
        store.record(campaign, Run("second", "pass", "x" * 100_000))
        assert len(store.runs(campaign)) == 2
