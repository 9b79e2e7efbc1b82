"""`--hil-coverage`: what tests execute of the kernels, from all workers and targets, in one file."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from cortex_m_hil.host.paths import cache_directory
from paths import REPOSITORY

pytest_plugins = ["pytester"]

CACHE = cache_directory()  # before pytester moves HOME
# Of kernels that count: no figures of the kernels.
NO_FIGURES = {"hil_instructions", "hil_instrumented_ticks", "hil_host_ticks", "hil_stack_bytes", "hil_run_seconds"}
DEADLINE = 600.0  # seconds: a runner may have to be built
TESTS = """
import os, signal
import psutil
import pytest
import torch
from torch import nn
from cortex_m_hil.runner.build import build_runner

IMAGE = (torch.rand(1, 4, 8, 8),)

def test_max(hil): hil.check(nn.MaxPool2d(2), IMAGE)
def test_average(hil): hil.check(nn.AvgPool2d(2), IMAGE, qtol=1)

class TestDies:
    def test_dies(self, hil, hil_dut):
        hil.check(nn.Softmax(-1), (torch.rand(1, 16),))
        (simulator,) = psutil.Process(hil_dut.session()._process.pid).children()
        simulator.kill()
        hil.check(nn.Softmax(-1), (torch.rand(1, 16),))

class TestOwn:
    @pytest.fixture
    def runner_elf(self, target_spec): return build_runner(target_spec.target)
    def test_own(self, hil): hil.check(nn.Softmax(-1), (torch.rand(1, 16),))

class TestWorker:
    def test_worker(self, hil):
        hil.check(nn.Softmax(-1), (torch.rand(1, 16),))
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def shared_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIL_CACHE_DIR", str(CACHE))


def run(pytester: pytest.Pytester, chosen: str, *arguments: str) -> tuple[pytest.RunResult, dict[str, Any]]:
    pytester.makepyfile(test_it=TESTS)
    result = pytester.runpytest_subprocess("--hil-coverage=out.json", "-k", chosen, *arguments, timeout=DEADLINE)
    return result, json.loads((pytester.path / "out.json").read_text())


def line_of(text: str, file: str) -> int:
    source = (REPOSITORY / "firmware" / "runtime" / "builtin" / "kernels" / file).read_text().splitlines()
    (number,) = (number for number, line in enumerate(source, 1) if line == text)
    return number


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "isa"), [pytest.param("m4-qemu", "DSP", marks=pytest.mark.slow), ("native", "SCALAR (host)")]
)
def test_a_path_is_uncovered_until_a_test_takes_it(pytester: pytest.Pytester, target: str, isa: str) -> None:
    where = str(line_of("void average(const Pooling& pooling) {", "pooling.cpp"))
    result, found = run(pytester, "test_max", f"--target={target}")
    result.assert_outcomes(passed=1, deselected=4)
    without = found["classes"][isa]["files"]["pooling.cpp"]
    assert without["lines"][where] == 0 and int(where) in without["uncovered_lines"]
    result, found = run(pytester, "test_max or test_average", f"--target={target}", "--junit-xml=report.xml", "-v")
    result.assert_outcomes(passed=2, deselected=3)
    recorded = set(re.findall(r'name="(hil_\w+)"', (pytester.path / "report.xml").read_text()))
    assert "hil_planned_bytes" in recorded and recorded.isdisjoint(NO_FIGURES)
    tests = {name.partition("::")[2]: files for name, files in found["classes"][isa]["tests"].items()}
    assert tests.keys() == {f"test_max@{target}", f"test_average@{target}"}
    assert all(files["pooling.cpp"] > 0 for files in tests.values())
    both = found["classes"][isa]["files"]["pooling.cpp"]
    assert both["lines"][where] > 0 and int(where) not in both["uncovered_lines"]
    assert set(both["uncovered_lines"]) < set(without["uncovered_lines"])
    assert found["classes"][isa]["targets"] == [target] and found["lost"] == found["uncounted"] == []
    lines = found["classes"][isa]["lines"]
    expected = rf"{re.escape(isa)} +lines +{lines['covered']}/{lines['all']} [0-9.]+ % +branches .* {target}"
    missing = rf"  pooling\.cpp +lines .* not {both['uncovered_lines'][0]}[-,0-9 ]*$"
    result.stdout.re_match_lines([".*coverage of the kernels.*", expected, missing])


@pytest.mark.slow
def test_workers_and_targets_of_a_class_are_merged(pytester: pytest.Pytester) -> None:
    both = "test_max or test_average"
    alone = run(pytester, both, "--target=m4-qemu", "-n0")[1]["classes"]["DSP"]
    workers = run(pytester, both, "--target=m4-qemu", "-n2")[1]["classes"]["DSP"]
    assert (alone["boots"], workers["boots"]) == (1, 2)
    assert alone["files"] == workers["files"]
    targets = run(pytester, both, "--target=m4-qemu,m7-qemu", "-n0")[1]["classes"]["DSP"]
    assert targets["targets"] == ["m4-qemu", "m7-qemu"] and targets["lines"] == alone["lines"]
    for name, file in alone["files"].items():
        for line, taken in file["branches"].items():
            assert targets["files"][name]["branches"][line] == [2 * count for count in taken]


@pytest.mark.slow
def test_what_is_not_counted_is_said(pytester: pytest.Pytester) -> None:
    """What a target executed that died since, and what a test executed on a runner of its own."""
    result, found = run(pytester, "test_max or test_dies or test_own", "--target=m4-qemu")
    result.assert_outcomes(passed=2, failed=1, deselected=2)
    (lost,) = found["lost"]
    assert (lost["where"], lost["during"]) == ("m4-qemu", "test_it.py::TestDies::test_dies[m4-qemu]")
    assert found["uncounted"] == ["test_it.py::TestOwn::test_own[m4-qemu]"]
    counted = found["classes"]["DSP"]["files"]
    assert any(counted["pooling.cpp"]["lines"].values())  # test_max's, read before
    assert not any(counted["softmax.cpp"]["lines"].values())
    result.stdout.fnmatch_lines(["lost, and not in these figures: 1", "  m4-qemu, test_it.py::TestDies::test_dies*"])
    result.stdout.fnmatch_lines(["not counted, on a runner of its test's own: 1"])


@pytest.mark.slow
def test_a_worker_that_dies_is_said_to_have_told_nothing(pytester: pytest.Pytester) -> None:
    _, found = run(pytester, "test_max or test_worker", "--target=native", "-n1")
    assert [(lost["where"], lost["why"]) for lost in found["lost"]] == [("worker gw0", "it ended and told nothing")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target=vboard-f405", "--hil-coverage=out"], "*coverage is collected on QEMU and native only*"),
        (["--target=native", "--hil-coverage=/proc/no/out"], "*--hil-coverage '/proc/no': /proc cannot be written to*"),
    ],
)
def test_what_cannot_be_counted_is_a_usage_error(pytester: pytest.Pytester, arguments: list[str], message: str) -> None:
    result = pytester.runpytest_subprocess(*arguments, timeout=DEADLINE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])
