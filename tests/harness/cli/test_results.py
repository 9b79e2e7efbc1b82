"""hil results: nightlies by name, pruned, in files, as a table for a spreadsheet."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import pytest

from command_line import CANNOT_TELL, NO, OK, Hil, answer, answers
from cortex_m_hil.campaigns.nightly import stored_nightlies as nights
from cortex_m_hil.campaigns.nightly.nightly import NightlyPlan, run_of
from cortex_m_hil.campaigns.nightly.stored_nightlies import ExportedNightly
from cortex_m_hil.campaigns.report.nightly_results import Key, Result
from cortex_m_hil.campaigns.store import Store
from cortex_m_hil.runner.run_results import Verdict

DAY = 86400.0
PLAN = NightlyPlan(("t",), None, ("m4-qemu",), ("builtin",), "", (), "1/1", (), {}, (), "", "", {"gcc": "12"})


def result(test: str, instructions: int, verdict: Verdict = Verdict.PASS, error: str = "") -> Result:
    figures = {"instructions": (instructions,)} if verdict is Verdict.PASS else {}
    return Result(Key("tests", "builtin", test, "m4-qemu"), "m4-qemu", "QEMU 7.2", verdict, error, figures=figures)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Four nightlies, the oldest four days old; one instruction more in the last."""
    file = tmp_path / "s.sqlite"
    now = time.time()
    with Store(file) as kept:
        for age, count in ((4, 100), (3, 100), (2, 100), (1, 101)):
            runs = tuple(map(run_of, [result("=one()", count), result("t::two", 7)]))
            nights.add_nightly(
                kept, str(tmp_path), ExportedNightly(PLAN, now - age * DAY, now - age * DAY + 60, "", runs)
            )
    return file


def numbers(hil: Hil, store: Path) -> list[tuple[int, str]]:
    done = hil("results", "list", "--json", "--store", store)
    return [(one["nightly"], one["name"]) for one in answers(done.out)]


def test_a_name_finds_a_nightly_and_moves_with_it(hil: Hil, store: Path) -> None:
    assert hil("results", "name", "1", "v1.4", "--store", store).out == "nightly 1 is 'v1.4'\n"
    assert hil("results", "name", "last~1", "v1.4", "--store", store).status == OK
    assert numbers(hil, store) == [(1, ""), (2, ""), (3, "v1.4"), (4, "")]
    done = hil("results", "compare", "v1.4", "--store", store)
    assert done.status == OK and "slower (more instructions) 100 → 101" in done.out
    for taken in ("12", "last", "last~1"):
        wrong = hil("results", "name", "1", taken, "--store", store)
        assert wrong.status == CANNOT_TELL and f"'{taken}' cannot name a nightly" in wrong.err
    unknown = hil("results", "show", "v1.5", "--store", store)
    assert unknown.status == CANNOT_TELL and "did you mean 'v1.4'?" in unknown.err


def test_pruning_leaves_the_last_ones_and_those_with_a_name(hil: Hil, store: Path) -> None:
    hil("results", "name", "1", "release", "--store", store)
    none = answer(hil("results", "prune", "--keep", "1", "--older-than", "3.5", "--json", "--store", store).out)
    assert (none["removed"], none["kept"]) == ([], 4)  # the only one so old has a name
    assert hil("results", "prune", "--keep", "1", "--store", store).out == "removed: 2, kept: 2\n"
    assert numbers(hil, store) == [(1, "release"), (4, "")]
    assert hil("results", "prune", "--keep", "-1", "--store", store).status == CANNOT_TELL


def test_a_store_is_made_again_from_files_of_which_one_is_missing(hil: Hil, store: Path, tmp_path: Path) -> None:
    files = []
    for number in (1, 2, 4):
        files.append(tmp_path / f"{number}.jsonl.gz")
        assert hil("results", "export", number, "-o", files[-1], "--store", store).status == OK
    again = tmp_path / "again.sqlite"
    assert hil("results", "import", *reversed(files), "--store", again).out == "read: 3, known already: 0\n"
    assert hil("results", "import", *files, "--store", again).out == "read: 0, known already: 3\n"
    shown = [hil("results", "show", "--json", "--store", one).out for one in (store, again)]
    assert shown[0] == shown[1] != ""
    assert "slower (more instructions) 100 → 101" in hil("results", "compare", "--store", again).out
    files[0].write_bytes(b"no gzip")
    wrong = hil("results", "import", *files, "--store", tmp_path / "third.sqlite")
    assert wrong.status == CANNOT_TELL and "1.jsonl.gz is not compressed by gzip" in wrong.err


def test_a_table_for_a_spreadsheet_has_a_row_for_each_result_and_no_formula(
    hil: Hil, store: Path, tmp_path: Path
) -> None:
    assert hil("results", "export", "--csv", "-o", tmp_path / "t.csv", "--store", store).status == OK
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = {row["test"]: row for row in csv.DictReader(file)}
    assert {name: row["instructions"] for name, row in rows.items()} == {"'=one()": "101", "t::two": "7"}
    assert {row["verdict"] for row in rows.values()} == {"PASS"}


def test_a_failure_is_the_exit_status_of_show_and_of_compare(hil: Hil, store: Path, tmp_path: Path) -> None:
    bad = tuple(map(run_of, [result("=one()", 0, Verdict.FAIL, "Mismatch"), result("t::two", 7)]))
    with Store(store) as kept:
        nights.add_nightly(kept, str(tmp_path), ExportedNightly(PLAN, time.time(), time.time(), "", bad))
    shown = hil("results", "show", "--store", store)
    assert shown.status == NO and "FAIL Mismatch" in shown.out
    compared = hil("results", "compare", "--store", store)
    assert compared.status == NO and "new failure" in compared.out
    back = hil("results", "compare", "last", "last~1", "--store", store)
    assert back.status == OK and "fixed" in back.out
