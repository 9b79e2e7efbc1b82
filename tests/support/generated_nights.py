"""Generated nightlies of any size, for tests of reports."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cortex_m_hil.campaigns.report.changes import changes
from cortex_m_hil.campaigns.report.nightly_results import Figure, Key, Night, Result, by_key
from cortex_m_hil.campaigns.report.report_contents import ReportContents
from cortex_m_hil.runner.results import Verdict

DAY: Final = 86400.0
TARGETS: Final = ("m0-qemu", "m4-qemu", "m55-qemu", "native")
OPERATORS: Final = tuple(f"cortex_m::quantized_operator_{number}.out" for number in range(40))
# A text that reports must show unchanged everywhere.
HOSTILE: Final = "</script><img src=x onerror=document.title='broken'><!--&amp;\"'`{{7*7}}\u2028\x00\x1b[31m"


def report(cells: int, nights: int, seed: int = 1, moving: float = 0.01, failing: float = 0.05) -> ReportContents:
    """Return a report on `nights` nights of `cells` results; the share `moving` of figures changes each night."""
    chance = random.Random(seed)
    night = Night("1", "c0ffee0001", False, 1.8e9, {"torch": "2.13.0"}, True, by_key(_first(cells, chance)))
    found = [night]
    for number in range(2, nights + 1):
        results = by_key(_moved(one, chance, moving, failing) for one in night.results.values())
        began, commit = night.began + DAY, f"c0ffee{number:04}"
        night = replace(night, name=str(number), commit=commit, began=began, results=results)
        found.append(night)
    return of(found)


def of(nights: Sequence[Night]) -> ReportContents:
    """Return a report on the last of the nights, compared with the one before."""
    *history, night = nights
    against = history[-1] if history else None
    return ReportContents(night, against, changes(against, night) if against else [], history)


def _first(cells: int, chance: random.Random) -> list[Result]:
    tests = -(-cells // len(TARGETS))
    names = [
        f"tests/targets/test_family_{number % 30}.py::test_operator_of_family[shape{number}-int8]"
        for number in range(tests)
    ]
    keys = [Key("tests", "builtin", name, target) for name in names for target in TARGETS][:cells]
    return [_result(key, chance) for key in keys]


def _result(key: Key, chance: random.Random) -> Result:
    parts = {name: chance.randrange(100, 100_000) for name in chance.sample(OPERATORS, 8)}
    sized = ("pte", "program", "planned", "method", "stack")
    figures: dict[str, tuple[Figure, ...]] = {
        **{f"{name}_bytes": (chance.randrange(1000, 90_000),) for name in sized},
        "outputs": (f"{chance.getrandbits(64):016x}",), "instructions": (sum(parts.values()),),
        "host_ticks": (chance.randrange(1 << 30),), "max_quanta": (0,), "fake_quant_quanta": (chance.randrange(3),),
        "sqnr_db": (round(chance.uniform(20, 60), 1),), "max_abs_error": (chance.uniform(0, 0.01),),
    }  # fmt: skip
    path, _, name = key.test.partition("::")
    node_id = f"{path}::{name.replace('[', f'[{key.target}-')}"
    return Result(
        key, key.target, "QEMU 7.2.22", Verdict.PASS, seconds=1.234, cpu_seconds=1.1, figures=figures,
        parts={**_parts(figures), "instructions": parts}, node_id=node_id,
        about={"runtime": ("builtin 4",), "build_id": (f"{chance.getrandbits(64):016x}",), "seed": (0,)},
    )  # fmt: skip


def _parts(figures: dict[str, tuple[Figure, ...]]) -> dict[str, dict[str, int]]:
    total = int(figures["pte_bytes"][0])
    sections = {"constants": total * 3 // 4, "tables": total - total * 3 // 4}
    return {"max_quanta": {"0": 950, "1": 50}, "pte_bytes": sections}


def _moved(one: Result, chance: random.Random, moving: float, failing: float) -> Result:
    figures = dict(one.figures)
    for name, (value, *_) in one.figures.items():
        if isinstance(value, int) and chance.random() < moving:
            figures[name] = (value + chance.randrange(1, 100),)
    if chance.random() < failing:
        said = f"output 0: quanta: {chance.randrange(99)} of 1000 elements off, by up to 3 quanta"
        log = "\n".join(f"{number}: {chance.getrandbits(200):x}" for number in range(250))
        failed = replace(one, verdict=Verdict.FAIL, error="Mismatch", headline=said, figures=figures)
        return replace(failed, log=log, localized=_localized(one, chance))
    return replace(one, verdict=Verdict.PASS, error="", headline="", log="", localized="", figures=figures)


def _localized(one: Result, chance: random.Random) -> str:
    """Return a text like that of `--hil-localize`: a row for each operator, the faulty one, and a plot."""
    rows = [
        f"{number:>3}  {name:<44} {chance.randrange(200)} of {chance.randrange(200, 9000)} off, by up to 3 quanta"
        for number, name in enumerate(one.parts["instructions"])
    ]
    plot = [f"{chance.uniform(0, 90):6.1f} dB |{'#' * chance.randrange(60)}" for _ in range(20)]
    return "\n".join([*rows, "", f"at fault: {rows[0]}", "", *plot])


def hostile() -> ReportContents:
    """Return a report on a few results whose every text is `HOSTILE`, in two nights."""
    nights = []
    for number in (1, 2):
        keys = [Key(HOSTILE, HOSTILE, f"{HOSTILE}{test}", HOSTILE) for test in range(3)]
        results = [_hostile(key, number) for key in keys]
        nights.append(Night(HOSTILE, f"c{number}", False, 1.8e9, {HOSTILE: HOSTILE}, True, by_key(results)))
    found = of(nights)
    return replace(found, options=(HOSTILE,), bundles=frozenset({HOSTILE}))


def _hostile(key: Key, number: int) -> Result:
    verdict = Verdict.PASS if key.test.endswith("0") else Verdict.FAIL
    figures: dict[str, tuple[Figure, ...]] = {
        "instructions": (number,),
        HOSTILE: (HOSTILE,),
        f"{HOSTILE}_bytes": (number,),
    }
    return Result(
        key, HOSTILE, HOSTILE, verdict, HOSTILE, HOSTILE, 1.0, 1.0, (HOSTILE,), figures,
        {"instructions": {HOSTILE: number}}, HOSTILE, HOSTILE, HOSTILE, HOSTILE,
    )  # fmt: skip
