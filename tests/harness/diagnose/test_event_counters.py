"""Events of a PMU: how the firmware reads its registers, and what a profile makes of them."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cortex_m_hil import flow
from cortex_m_hil.diagnose.event_counters import _WITH_PMU, GROUPS, counters_of, events_of
from cortex_m_hil.diagnose.profile import Profile
from cortex_m_hil.diagnose.profile_measurement import profile
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner.launchers.native import NativeLauncher
from cortex_m_hil.targets.cpu import Isa, cpus
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved, resolve
from cortex_m_hil.targets.target import Clock
from misbehaving import OPTIONS
from paths import REPOSITORY

OVERFLOWING = 0x2B8  # an event of which the model counts more than 32 bits hold
MAIN = """
#include <assert.h>
#include "target_library/pmu.h"
extern bool hil_pmu_model_is_prohibited;
static int32_t instruction = -1;
int32_t hil_current_instruction(void) { return instruction; }
static void nothing(void) {}
static hil_event_count counted(size_t number) {
  size_t count;
  const hil_event_count* counts = hil_pmu_counts(&count);
  assert(number < count);
  return counts[number];
}
int main(void) {
  const uint16_t events[] = {0x08, 0x228, 0x2B8, 0x11};
  assert(hil_pmu_counters() == 4 && hil_pmu_is_counting());
  hil_pmu_start();  /* nothing is chosen */
  hil_pmu_stop();
  hil_pmu_choose(events, 4, nothing);
  for (int32_t i = 0; i < 2; ++i) {
    instruction = i;
    hil_pmu_start();
    hil_pmu_stop();
  }
  instruction = -1;
  assert(counted(0).count == 2 * 8000 + 100 && !counted(0).overflowed);
  assert(counted(1).count == 2 * 552000 + 100 && !counted(1).overflowed);  /* more than 16 bits hold */
  assert(counted(2).overflowed && !counted(3).overflowed);
  assert(hil_pmu_is_counting() && counted(1).count == 2 * 552000 + 100);  /* asking changes nothing */
  hil_pmu_clear();
  assert(counted(0).count == 0 && !counted(2).overflowed);
  instruction = 0;
  hil_pmu_start();
  hil_pmu_stop();
  assert(counted(3).count == 17000 && counted(2).overflowed);
  hil_pmu_model_is_prohibited = true;
  assert(hil_pmu_counters() == 4 && !hil_pmu_is_counting());
  return 0;
}
"""


def test_the_firmware_reads_the_registers(tmp_path: Path) -> None:
    """It chains counters of 16 bits to 32, sees an overflow of these, and takes off what measuring costs."""
    (tmp_path / "main.c").write_text(MAIN)
    firmware = REPOSITORY / "firmware"
    sources = [tmp_path / "main.c", firmware / "target_library/pmu.c", firmware / "tests/pmu_model.c"]
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-DHIL_PMU_MODEL=1", "-fsanitize=address,undefined"]
    subprocess.run(["gcc", *flags, f"-I{firmware}", *sources, "-o", tmp_path / "main"], check=True)
    subprocess.run([tmp_path / "main"], check=True)


@dataclass(frozen=True)
class Cycles(NativeLauncher):
    """The host as if it were a core with cycles, and with the model of a PMU that a build of tests has."""

    def clock(self, counts: bool) -> Clock:
        return Clock.CORE


def test_each_event_is_counted_at_each_instruction_in_as_many_runs_as_there_is_room_for() -> None:
    known = known_answer(Isa.SCALAR)
    program = Program.from_bytes(known.program, "known_answer.pte")
    target = replace(load_targets()["native"], launcher=Cycles())
    with flow.open_dut(Resolved(target, target, "builtin"), options=OPTIONS) as dut:
        found = profile(dut, program, known.inputs, "its own", runs=1, counters=("mve", "cache", "mve"))
        session = dut.session()
        session.load(program.pte, file=program.file)
        assert session.choose_events([OVERFLOWING]).counts == {OVERFLOWING: 0}
        session.step(1, 60.0)
        assert session.event_counts().counts == {OVERFLOWING: None}
    events = events_of(["mve", "cache"])
    assert found.events == "the core's PMU, 4 counters of 32 bits, 2 runs by single steps"
    assert found.event_names == tuple(event.name for event in events) and len(events) == 8
    for row in found.rows:
        assert row.events == {event.name: row.calls * (event.number * 1000 + row.index * 100) for event in events}
    assert str(found.figures["l1d_cache"]).startswith("accesses to the data cache, counted by the core's PMU; without")
    assert Profile.from_json(json.dumps(found.as_json()), "a file") == found


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("m55-qemu", r"QEMU [\d.]+ gives none to its cortex-m55: PMU_TYPE reads as 0"),
        ("m0-qemu", "the firmware knows those of cortex-m55, cortex-m85, and this is a cortex-m0"),
    ],
)
def test_a_target_without_a_pmu_is_refused(name: str, why: str) -> None:
    wanted = pytest.raises(ConfigError, match=f"{name} has no PMU: {why}")
    with flow.open_dut(resolve(name, load_targets(), runtime="builtin")) as dut, wanted:
        counters_of(dut)


def test_host_and_firmware_know_the_same_cores() -> None:
    parts = re.findall(r"part == (0x\w+)", (REPOSITORY / "firmware/target_library/pmu.c").read_text())
    assert [int(part, 0) for part in parts] == [cpus()[name].part for name in _WITH_PMU]


def test_an_unknown_group_is_refused() -> None:
    with pytest.raises(ConfigError, match="no group of counters 'caches'") as caught:
        events_of(["mve", "caches"])
    assert "cache" in caught.value.hint
    numbers = [event.number for group in GROUPS.values() for event in group]
    assert len(set(numbers)) == len(numbers)
