"""Profiles: what they add up to on each ISA class, JSON, and the comparison of two."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cortex_m_hil as hil
from cortex_m_hil.diagnose.profile import Profile, ProfileRow, pack, unpack
from cortex_m_hil.program.partition import PartitionKind
from cortex_m_hil.runner.run_results import Ran
from cortex_m_hil.targets.target import Clock

RAN = Ran("m4-qemu", "m4-qemu", "QEMU", "builtin", "0.2", Clock.INSTRUCTIONS)


def row(index: int, module: str, operator: str, ticks: int, alive: int = 16, spread: int = 0) -> ProfileRow:
    kind = PartitionKind.CORTEX_M
    low, high = ticks - spread, ticks + spread
    return ProfileRow(
        index, operator, kind, "", module, "", "builtin", 1, ticks, low, high, 0.1, 10, 4, 4, {"sram": alive}
    )


def profile(*rows: ProfileRow, ran: Ran = RAN, planned: int = 64) -> Profile:
    total = sum(one.ticks for one in rows)
    return Profile("net", "forward", "DSP", ran, "", "", "", total, total, total, 1, 0, None, {"sram": planned}, rows)


@pytest.mark.first_only
@pytest.mark.parametrize("target", ["m55-qemu", "m4-qemu", "m0-qemu"])
def test_the_rows_add_up_to_what_a_run_counts(target: str) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 4))
    inputs = (torch.rand(1, 2, 8, 8),)
    with hil.open(target, runtime="builtin") as opened:
        program = opened.lower(module, inputs)
        found, ran = opened.profile(program), opened.run(program)
        zeros = opened.profile(program, (np.zeros((1, 2, 8, 8), np.float32),))
    assert sum(one.ticks for one in found.rows) == found.ticks == ran.instructions and found.outside == 0
    assert found.macs == 4 * 36 * 18 + 144 * 4
    layers = [one for one in found.rows if one.macs]
    assert [one.module for one in layers] == ["0", "3"]
    assert layers[0].bytes_written == 4 * 36 and layers[1].bytes_read >= 144 + 4 * 144
    assert found.peak is not None and found.peak.planned_bytes == program.lifetimes.peak().nbytes
    assert [one.ticks_of_zeros for one in found.rows] == [one.ticks for one in zeros.rows]
    assert (found.ticks_of_zeros, zeros.ticks_of_zeros, zeros.depends_on_inputs) == (zeros.ticks, None, None)
    assert found.depends_on_inputs == ([one.ticks for one in found.rows] != [one.ticks for one in zeros.rows])
    assert Profile.from_json(json.dumps({"command": "profile", **found.as_json()}), "a file") == found


def test_changes_are_matched_by_module_and_what_moved_most_comes_first() -> None:
    before = profile(row(0, "conv", "conv.out", 100), row(1, "head", "linear.out", 50), row(2, "tail", "gone.out", 3))
    after = profile(row(0, "new", "pad.out", 5), row(1, "conv", "conv.out", 110), row(2, "head", "linear.out", 70, 48))
    found = replace(after, banks={"sram": 96}).against(before)
    assert [(one.row.module, one.ticks, one.ratio) for one in found.rows] == [
        ("head", 20, 0.4), ("conv", 10, 0.1), ("new", 5, None), ("tail", -3, -1.0),
    ]  # fmt: skip
    assert (found.ticks, found.banks, found.rows[0].planned) == (32, {"sram": 32}, {"sram": 32})
    assert sum(one.ticks for one in found.rows) == found.ticks
    assert found.moved == found.rows and not any(one.is_within_spread for one in found.rows)


def test_an_operator_that_took_the_place_of_another_is_its_change() -> None:
    before = profile(row(0, "conv", "aten::convolution.out", 900))
    [one] = profile(row(0, "conv", "cortex_m::quantized_conv2d.out", 100)).against(before).rows
    assert one.before == before.rows[0] and one.ticks == -800


def test_cycles_within_the_spread_of_both_are_said_so() -> None:
    board = replace(RAN, clock=Clock.CORE)
    [one] = (
        profile(row(0, "a", "x", 105, spread=3), ran=board)
        .against(profile(row(0, "a", "x", 100, spread=2), ran=board))
        .rows
    )
    assert one.ticks == 5 and one.is_within_spread


def test_ticks_of_two_clocks_or_instruction_sets_are_not_compared() -> None:
    with pytest.raises(hil.errors.ConfigError, match=r"another clock .* has instructions, m4-qemu cycles"):
        profile(ran=replace(RAN, clock=Clock.CORE)).against(profile())
    with pytest.raises(hil.errors.ConfigError, match="another ISA class"):
        replace(profile(), isa="MVE").against(profile())


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.booleans(),
        lambda one: st.lists(one) | st.dictionaries(st.text(), one),
    )
)
def test_what_is_no_profile_is_refused_with_a_reason(value: object) -> None:
    with pytest.raises(hil.errors.ConfigError, match=r"old\.json is no profile that this version reads"):
        Profile.from_json(json.dumps(value), "old.json")


def test_texts_of_a_file_do_not_reach_the_terminal_as_they_are() -> None:
    made = profile(row(0, "a\x1b[2J", "x", 1)).as_json()
    [one] = Profile.from_json(json.dumps(made), "old.json").rows
    assert "\x1b" not in one.module and one.module.startswith("a")
    with pytest.raises(hil.errors.ConfigError, match="JSONDecodeError"):
        Profile.from_json("{", "old.json")


def test_a_packed_profile_is_the_same_without_the_users_files() -> None:
    one = profile(replace(row(0, "first", "x", 1), source="/home/me/net.py:3"))
    assert unpack(pack(one), "nightly 1") == replace(one, rows=(replace(one.rows[0], source=""),))
    for text in ("", "é", "AAAA", pack(one)[:-8]):
        with pytest.raises(hil.errors.ConfigError, match=r"^nightly 1 "):
            unpack(text, "nightly 1")
