"""`hil inspect fit` and `hil inspect size`: what they answer, to people and to machines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from command_line import CANNOT_TELL, NO, OK, Files, Hil, answer, answers, expect
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.pte_reader import parse_pte
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from paths import REPOSITORY


@pytest.mark.slow
def test_fit_answers_for_each_target(hil: Hil, files: Files) -> None:
    done = hil("inspect", "fit", files.pte, "-t", "m4-qemu,native", "-i", files.input, "--json")
    core, host = answers(done.out)
    assert (done.status, done.err, core["program"]) == (OK, "", str(files.pte))
    assert [need["region"] for need in core["needs"]] == ["program", "planned", "method", "stack"]
    assert [need["region"] for need in host["needs"]] == ["program", "planned", "method"]
    assert core["needs"][0]["size"] == host["needs"][0]["size"] == 2336
    assert core["inputs"] == f"those of {files.input}"
    assert core["compiler"].startswith("arm-none-eabi-g++") and core["runs"] >= 7 and core["temp"] == 0


PLACES = {"stack": "ram", "program": "psram", "method": "ram"}


@pytest.mark.slow
def test_fit_gives_lines_for_a_boards_files(hil: Hil, files: Files) -> None:
    shown = hil("inspect", "fit", files.pte, "-t", "m4-qemu").out
    sizes = dict(re.findall(r"^(\w+) +(\d+) +\d+ +\d+ +(?:OutOfTargetMemory|TargetFault)$", shown, re.M))
    assert sizes.keys() == {"program", "planned", "method", "stack"}
    lines = [f"{key}: {{region: {region}, size: {sizes[key]}}}" for key, region in PLACES.items()]
    bank = f"  - {{region: psram, size: {sizes['planned']}}}"
    assert "\n  ".join(["memory:", *lines, "banks:", bank]) + "\n" in shown
    assert "inputs       made by a formula, since none are given" in shown
    assert "depends on   the inputs' values; builtin 7; arm-none-eabi-g++" in shown


TWO_BANKS = """\
targets:
  m7-banks:
    cpu: cortex-m7
    board: mps2-an500
    launcher: {qemu: mps2-an500}
    memory: {banks: [{region: ram, size: 256}, {region: psram, size: 64K}]}
"""
NET = """\
import torch
def net():
    torch.manual_seed(1)
    return torch.nn.Linear(64, 8), (torch.rand(1, 64),)
"""


@pytest.mark.slow
def test_fit_tries_the_orders_of_the_banks(hil: Hil, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TWO_BANKS)
    (tmp_path / "little.py").write_text(NET)
    called = ("inspect", "fit", "little:net", "-t", "m7-banks", "--targets-file", "t.yaml", "--banks")
    found = answer(hil(*called, "--json").out)
    orders = {tuple(one["banks"]): one for one in found["orders"]}
    assert (
        orders.keys() == {("ram", "psram"), ("psram", "ram")}
        and not found["ticks_show_memory_speed"]
        and found["runs"] == 2
    )
    spilled = {one["region"]: one["nbytes"] for one in orders["ram", "psram"]["arenas"]}
    assert 0 < spilled["ram"] <= 256 < 256 + spilled["psram"]
    shown = hil(*called).out
    assert re.search(r"^ram, psram +\d+ +\d+ +\d+ +fits$", shown, re.M)
    assert " cannot tell the orders apart: its instructions are exact, wherever memory lies" in shown


@pytest.mark.slow
def test_fit_refuses_boards_unknown_networks_and_other_isa_classes(hil: Hil, files: Files, tmp_path: Path) -> None:
    expect(hil("inspect", "fit", "resnet", "-t", "m4-qemu"), CANNOT_TELL, "ConfigError: no network 'resnet'")
    for board, simulator in (("nucleo-f446re", "m4-qemu"), ("alif-e8", "m55-qemu"), ("rpi-pico", "m0plus-fvp")):
        done = hil("inspect", "fit", files.pte, "-t", board)
        expect(done, CANNOT_TELL, "a board would be flashed ten times", f"-t {simulator}: its pools need the same")
    expect(hil("inspect", "fit", files.pte, "-t", "m4-qemu", "--banks"), CANNOT_TELL, "its tensors are planned already")
    expect(
        hil("inspect", "fit", "ds_cnn", "-t", "m4-qemu", "--banks"), CANNOT_TELL, "1 bank, orders can be compared of"
    )
    done = hil("inspect", "fit", "ds_cnn", "-t", "m4-qemu", "-i", files.input)
    expect(done, CANNOT_TELL, "--input is for a .pte file")
    (tmp_path / "mve.pte").write_bytes(known_answer(Isa.MVE).program)
    expect(hil("inspect", "fit", "mve.pte", "-t", "m4-qemu"), NO, "LintError: ")


def test_size_of_a_program(hil: Hil, files: Files) -> None:
    found = answer(hil("inspect", "size", files.pte, "--json").out)
    assert (found["kind"], found["bytes"]) == ("pte", files.pte.stat().st_size)
    assert sum(one["nbytes"] for one in found["sections"]) == sum(one["nbytes"] for one in found["parts"]) == 2336
    assert found["operators"] == [{"operator": "cortex_m::quantized_linear.out", "nbytes": 8 * 16 + 8 * 4}]
    file = parse_pte(files.pte.read_bytes(), "it")
    assert found["planned"] == [{"method": "forward", "mem_id": 1, "nbytes": file.planned_bytes}]
    shown = hil("inspect", "size", files.pte).out
    assert re.search(rf"^forward +1 +{file.planned_bytes}$", shown, re.M)
    assert re.search(r"^all +2336 +100\.0%$", shown, re.M)
    assert "cortex_m::quantized_linear.out, argument 2 (operator 1)" in shown


def test_size_of_an_elf(hil: Hil) -> None:
    runner = build_runner(load_targets()["m4-qemu"]).path
    found = answer(hil("inspect", "size", runner, "--json").out)
    assert found["kind"] == "elf" and found["bytes"] == sum(one["nbytes"] for one in found["sections"])
    assert {"operator", "own", "reached"} == set(found["operators"][0])
    shown, everything = hil("inspect", "size", runner).out, hil("inspect", "size", runner, "--all").out
    assert re.search(r"^\d+ more symbols: --all$", shown, re.M)
    assert len(everything.splitlines()) > len(shown.splitlines()) and "more symbols" not in everything


def test_the_plan_of_a_method_is_drawn(hil: Hil, tmp_path: Path) -> None:
    methods = REPOSITORY / "tests" / "fuzz_seeds" / "methods.pte"
    assert hil("inspect", "size", methods, "--plan", "plan.svg", "--method", "decode").status == 0
    assert "methods, method decode: " in (tmp_path / "plan.svg").read_text()
    wrong = hil("inspect", "size", methods, "--plan", "plan.svg", "--method", "other")
    assert wrong.status == CANNOT_TELL and "other" in wrong.err
    (tmp_path / "runner.elf").write_bytes(build_runner(load_targets()["m4-qemu"]).path.read_bytes())
    refused = hil("inspect", "size", "runner.elf", "--plan", "plan.svg")
    assert refused.status == CANNOT_TELL and "is an ELF, which has no memory plan" in refused.err


@pytest.mark.parametrize("content", [b"", b"neither", b"\x7fELF"])
def test_size_of_neither_a_pte_nor_an_elf_is_refused(hil: Hil, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    done = hil("inspect", "size", "file")
    assert done.status in (NO, CANNOT_TELL) and ("not a .pte" in done.err or "no whole ELF" in done.err)
