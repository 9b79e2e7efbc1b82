"""Pages whose commands take a second or some: nightlies, CI, shared boards; as they stand, in their order."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from command_lines import NOT_EXECUTED
from cortex_m_hil.campaigns.nightly import stored_nightlies as nights
from cortex_m_hil.campaigns.nightly.nightly import NightlyPlan, run_of
from cortex_m_hil.campaigns.nightly.stored_nightlies import ExportedNightly
from cortex_m_hil.campaigns.report.nightly_results import Key, Result
from cortex_m_hil.campaigns.store import Store
from cortex_m_hil.runner.run_results import Verdict
from documented import Shell, environment_of, shell, write
from file_texts import TEST_OF_KNOWN_ANSWER
from shown import blocks, text_of

PLAN: Final = NightlyPlan(
    ("tests/targets",), None, ("m4-qemu",), ("builtin",), "", (), "1/1", (), {}, (), "", "", {"gcc": "12"}
)
DAY: Final = 86400.0
NIGHTLIES: Final = 100
SAID: Final = {
    "hil nightly": "nightly 101, 1 result\n",
    "hil nightly --budget 7200": "nothing changed since nightly 101\n",
    "hil nightly --against v1.4": "changed since nightly 3 (v1.4):",
    "hil nightly --report report": "report: report/index.html\nnothing changed since nightly 103\n",
    "hil results report v1.4 -o report": "report/index.html, report/results.json, report/junit.xml\n",
    "hil results list": "3        v1.4 ",
    "hil results show last": "tests/targets/test_it.py::test_runs  m4-qemu  builtin  pass ",
    "hil results compare v1.4 last": "changed since nightly 3:",
    "hil results show --markdown": "### Passed: 1 passed\n",
    "hil results name 12 v1.4": "nightly 12 is 'v1.4'; nightly 3, which was, has no name now\n",
    "hil results export last -o last.jsonl.gz": "last.jsonl.gz, ",
    "hil results import nightly-*.jsonl.gz": "read: 2, known already: 0\n",
    "hil results merge part-*.jsonl.gz": "nightly 107 of 2 parts\n",
    "hil results prune --keep 90": "removed: 16, kept: 91\n",  # the one with a name is older
    'hil nightly tests -t "$TARGET" --store job.sqlite': "nightly 1, 1 result\n",
    'hil results export 1 -o "parts/$TARGET.jsonl.gz" --store job.sqlite': ".jsonl.gz, ",
}

SAID_OF_PARTS: Final = {
    "[ ! -d history ] || hil results import history/*.jsonl.gz": "",
    "hil results merge parts/*.jsonl.gz": " part",
    "hil results report -o report": "report/index.html",
    'hil results export -o "history/$(date +%F).jsonl.gz"': "history/",
}


def nightly_of(
    age: float, test: str = "tests/targets/test_it.py::test_runs", name: str = "", part: str = ""
) -> ExportedNightly:
    """One of so many days ago, or the part `part` of one."""
    result = Result(Key("tests", "builtin", test, "m4-qemu"), "m4-qemu", "QEMU 7.2", Verdict.PASS, "")
    began = time.time() - age * DAY
    return ExportedNightly(replace(PLAN, shard=part or "1/1"), began, began + 60, name, (run_of(result),))


def exported(file: Path, nightly: ExportedNightly) -> None:
    with Store(file.with_suffix(".sqlite")) as kept:
        found = nights.add_nightly(kept, str(file.parent), nightly)
        assert found is not None
        file.parent.mkdir(exist_ok=True)
        nights.export_nightly(kept, found, file)


@pytest.fixture
def opened(user_path: str, tmp_path: Path) -> Iterator[Shell]:
    """A folder with a test and a store of its own."""
    (tmp_path / "mine").mkdir()
    write(tmp_path / "mine", {"tests/targets/test_it.py": TEST_OF_KNOWN_ANSWER})
    with shell(tmp_path / "mine", environment_of(user_path, tmp_path)) as ready:
        yield ready


def commands_of(text: str) -> list[str]:
    return [shown.command for block in blocks(text) for shown in block.commands()]


def execute(opened: Shell, lines: Iterable[str], said: Mapping[str, str]) -> None:
    for line in lines:
        if line not in NOT_EXECUTED:
            done = opened.run(line)
            assert done.status == 0 and said[line] in done.said, f"$ {line}\n{done.status}\n{done.said}"


@pytest.mark.slow
def test_the_page_on_nightlies(opened: Shell) -> None:
    """With nightlies before, the third of which has a name, and files of others."""
    folder, store = opened.folder, Path(opened.environment["XDG_STATE_HOME"]) / "hil" / "campaigns.sqlite"
    write(folder, {"nightly.yaml": "tests: [tests/targets]\ntargets: [m4-qemu]\n"})
    store.parent.mkdir(parents=True)
    with Store(store) as kept:
        for number in range(1, NIGHTLIES + 1):
            nights.add_nightly(
                kept, str(folder), nightly_of(NIGHTLIES + 1 - number, name="v1.4" if number == 3 else "")
            )
    for number in (1, 2):
        exported(folder / f"nightly-{number}.jsonl.gz", nightly_of(NIGHTLIES + 1 + number))
        exported(folder / f"part-{number}.jsonl.gz", nightly_of(0.1, f"t::test_{number}", part=f"{number}/2"))
    execute(opened, commands_of(text_of("docs/nightly.md").replace(text_of("docs/nightly.md#ci"), "")), SAID)


@pytest.mark.slow
@pytest.mark.parametrize("nights_before", [1, 0])
def test_the_page_on_ci(opened: Shell, nights_before: int) -> None:
    """Jobs on two targets, then the one that puts them together; on the first night, and on another."""
    own = blocks(text_of("docs/nightly.md#ci"))
    job, last = ([one.command for one in block.commands()] for block in own if block.language == "sh")
    assert len(job) + len(last) >= 7
    if nights_before:
        exported(opened.folder / "history" / "before.jsonl.gz", nightly_of(1))
        for target in ("m4-qemu", "m0-qemu"):
            opened.run(f"TARGET={target}")
            execute(opened, job, SAID)
            (opened.folder / "job.sqlite").unlink()  # each is a machine of its own
    else:
        exported(opened.folder / "parts" / "m4-qemu.jsonl.gz", nightly_of(0.1))
    execute(opened, last[:-1], SAID_OF_PARTS)
    kept = sorted(file.name for file in (opened.folder / "history").glob("*.gz"))
    assert len(kept) == 1 + nights_before and re.match(r"\d{4}-\d\d-\d\d\.jsonl\.gz", kept[0])
    compared = opened.run(last[-1])
    if nights_before:
        assert (compared.status, "changed since nightly 1" in compared.said) == (0, True), compared.said
    else:
        assert (compared.status, "no nightly 'last~1'" in compared.said) == (2, True), compared.said


@pytest.mark.slow
def test_the_page_on_shared_boards(opened: Shell) -> None:
    """Of the targets.yaml that it begins with; no board is there, and none is needed to keep others away from it."""
    page = text_of("docs/boards.md")
    entries = next(block.text for block in blocks(page) if block.text.startswith("targets:"))
    write(opened.folder, {"targets.yaml": entries})
    hold, clear, release = [one for one in commands_of(page) if re.match("hil board (hold|clear|release) ", one)]
    execute(opened, [hold], {hold: " is yours for 30 minutes"})
    assert "for loose cable" in opened.run("hil board status").said
    execute(opened, [clear, release], {clear: " is in use again\n", release: " was held by "})
    assert "for loose cable" not in opened.run("hil board status").said
