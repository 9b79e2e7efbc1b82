"""Generated nightlies of any size, for tests of reports."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from cortex_m_hil.campaigns.report.changes import changes
from cortex_m_hil.campaigns.report.nightly_results import Figure, Key, Night, Result, by_key
from cortex_m_hil.campaigns.report.report_contents import ReportContents
from cortex_m_hil.runner.run_results import Verdict

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
    return report_on(found)


def report_on(nights: Sequence[Night]) -> ReportContents:
    """Return a report on the last of the nights, compared with the one before."""
    *history, night = nights
    against = history[-1] if history else None
    return ReportContents(night, against, changes(against, night, history) if against else [], history)


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


# --- a week in which known things happened ---------------------------------------------------------------------

MONDAY: Final = 1_795_396_620.0  # 2026-11-23 01:17 UTC
SLOWER: Final = "cortex_m::quantized_depthwise_conv2d.out"  # on m4-qemu and m55-qemu since Tuesday, by an eighth
SLOWER_LAYER: Final = f"{SLOWER} in stages.1.conv"  # it has three quarters of that
AT_PEAK: Final = "cortex_m::quantized_conv2d.out"
LARGER: Final = "sram"  # the bank that is larger on Friday, by 768 bytes
_COMMITS: Final = ("c0ffee01",) * 3 + ("c0ffee02", "c0ffee03", "c0ffee03", "c0ffee04", "c0ffee05")
_FILES: Final = ("mobilenet", "keyword_spotting", "pooling", "lstm", "softmax", "residual", "linear", "conv1d")


def eventful(files: int = 6) -> list[Night]:
    """Return eight nightlies, from Friday to Friday, of four tests in each of `files` files on four targets.

    On the last Friday a test is newly wrong on two targets (`SLOWER` is in its program), one is wrong since Tuesday,
    one is flaky, one is mended, one is skipped now; `native` does not start in one file, and `m4-fvp` is left out.
    The tests of the first file share one program, whose bank `LARGER` grew. That of softmax shrank on Thursday.
    """
    chance = random.Random(7)
    names = [f"{_FILES[number % 8]}{number // 8 or ''}" for number in range(files)]
    first = [
        _result_of_first_night(
            Key("tests", "builtin", f"tests/models/test_{name}.py::test_{what}", target), chance, index == 0
        )
        for index, name in enumerate(names)
        for what in ("float_io", "int8_io", "frames", "saturates")
        for target in TARGETS
    ]
    nights = []
    for number, commit in enumerate(_COMMITS):
        results = by_key(_on_night(one, number) for one in first)
        left_out = {"m4-fvp": "FVP_MPS2_Cortex-M4 is not on PATH"} if number == 7 else {}
        night = Night(str(number + 1), commit, False, MONDAY + DAY * (number - 3), {"torch": "2.13.0"}, True, results)
        nights.append(replace(night, left_out=left_out))
    return nights


def _result_of_first_night(key: Key, chance: random.Random, shared: bool) -> Result:
    """Return a result of the first night. Tests of a `shared` program have the same figures on a target."""
    chance = random.Random(key.target) if shared else chance
    one = _result(key, chance)
    scale = {"m0-qemu": 9, "m4-qemu": 3}.get(key.target, 1)
    parts = {SLOWER: 40_000 * scale, AT_PEAK: 300_000 * scale, "cortex_m::quantized_linear.out": 9_000, "the rest": 700}
    planned = {LARGER: 3072, "dtcm": 1024} if key.target == "m55-qemu" else {LARGER: 4096}
    program = f"{chance.getrandbits(64):016x}"
    figures = {**one.figures, "instructions": (sum(parts.values()),), "planned_bytes": (sum(planned.values()),)}
    if key.target == "native":
        del figures["instructions"], parts
    held = {f"{bank}: {AT_PEAK}": nbytes for bank, nbytes in planned.items()}
    layers = {SLOWER_LAYER: 30_000 * scale, f"{SLOWER} in stem": 10_000 * scale}
    every = {**one.parts, "planned_bytes": planned, "planned_peak": held, "layers": layers}
    every = {**every, "instructions": parts} if key.target != "native" else _without(every, "instructions")
    return replace(one, figures=figures, parts=every, about={**one.about, "program": (program,)})


def _without(parts: Mapping[str, Mapping[str, int]], name: str) -> dict[str, Mapping[str, int]]:
    return {figure: of for figure, of in parts.items() if figure != name}


def _on_night(one: Result, number: int) -> Result:
    file, _, test = one.key.test.partition("::test_")
    if number >= 4 and one.key.target in ("m4-qemu", "m55-qemu"):
        one = _in_layer(_grown(one, "instructions", SLOWER, one.parts["instructions"][SLOWER] // 8))
    if number >= 6 and "softmax" in file:
        one = _grown(one, "planned_bytes", LARGER, -512)
    if number == 7 and "mobilenet.py" in file:
        one = _grown(one, "planned_bytes", LARGER, 768)
    wrong = replace(
        one, verdict=Verdict.FAIL, error="Mismatch", headline="output 0: quanta: 3 of 10 elements off", log="0\n"
    )
    if "keyword" in file and test == "frames" and one.key.target in ("m4-qemu", "m55-qemu") and number == 7:
        return wrong
    if "keyword" in file and test == "int8_io" and number >= 4:
        return replace(
            wrong, error="OutOfTargetMemory", headline="planned: 70 000 bytes, 65 536 are there", figures={}, parts={}
        )
    if "pooling" in file and test == "saturates" and one.key.target == "m0-qemu" and number in (1, 7):
        return wrong
    if "pooling" in file and test == "float_io" and number == 6:
        return wrong
    if "lstm" in file and number == 7 and one.key.target == "native":
        said = "native: the runner ended before its handshake"
        return replace(one, verdict=Verdict.INFRA, error="LaunchError", headline=said, figures={}, parts={})
    if "softmax" in file and test == "frames" and one.key.target == "m0-qemu" and number == 7:
        return replace(one, verdict=Verdict.SKIP, figures={}, parts={})
    return one


def _grown(one: Result, figure: str, part: str, more: int) -> Result:
    (value, *_), parts = one.figures[figure], dict(one.parts[figure])
    assert isinstance(value, int)
    parts[part] += more
    return replace(one, figures={**one.figures, figure: (value + more,)}, parts={**one.parts, figure: parts})


def _in_layer(one: Result) -> Result:
    layers = {name: nth + nth // 8 for name, nth in one.parts["layers"].items()}
    return replace(one, parts={**one.parts, "layers": layers})


def hostile() -> ReportContents:
    """Return a report on a few results whose every text is `HOSTILE`, in two nights."""
    nights = []
    for number in (1, 2):
        keys = [Key(HOSTILE, HOSTILE, f"{HOSTILE}{test}", HOSTILE) for test in range(3)]
        results = [_hostile(key, number) for key in keys]
        nights.append(Night(HOSTILE, f"c{number}", False, 1.8e9, {HOSTILE: HOSTILE}, True, by_key(results)))
    found = report_on(nights)
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
