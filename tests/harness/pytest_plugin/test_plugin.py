"""The plugin, through real pytest runs: parametrisation, reports, bad options, and what it leaves behind."""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from channel_firmwares import channel_firmware
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.pytest_plugin.scheduling import without_target
from cortex_m_hil.runner.statistics import STATISTICS
from cortex_m_hil.targets.cpu import Isa
from paths import IMPORT_ROOT

pytest_plugins = ["pytester"]

# No torch: what is tested here is the plugin, on the self-test.
SMOKE = """
from cortex_m_hil import flow

def test_self_test(hil_dut):
    flow.selftest(hil_dut)
"""
DEADLINE = 300.0  # seconds, for a run that may have to build runners
CACHE = cache_directory()  # before anything moves HOME


@pytest.fixture(autouse=True)
def shared_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytester moves HOME; without this every test here would build its runners anew."""
    monkeypatch.setenv("HIL_CACHE_DIR", str(CACHE))


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*arguments, timeout=DEADLINE)


def test_each_target_once_and_what_ran_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SMOKE)
    result = run(pytester, "--target=m4-fvp,m0-qemu", "--target=m4-*")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "hil: m4-fvp → m4-qemu · builtin (no ExecuTorch *); FVP_MPS2_Cortex-M4 is not on PATH",
            "hil: m0-qemu · builtin (no ExecuTorch or CMSIS-NN code executed)",
            "*= targets =*",
            "m4-fvp → m4-qemu · builtin (no *)  1 passed  in *.? s",
            "m0-qemu · builtin (no *) * 1 passed  in *.? s",
            "m4-qemu · builtin (no *) * 1 passed  in *.? s",
            "*= 3 passed in *",
        ]
    )
    assert "::test_self_test" not in result.stdout.str() and "rerun:" not in result.stdout.str()


def test_the_whole_table_is_shown_when_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SMOKE)
    result = run(pytester, "--target=m4-fvp,native", "-v")
    result.stdout.fnmatch_lines(["test *m4-fvp → m4-qemu *native", "*::test_self_test *pass *pass", "m4-fvp*1 passed*"])


def test_what_went_wrong_has_its_row_and_its_headline_last(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        SMOKE
        + """
import pytest
from cortex_m_hil.errors import Mismatch, TargetHang

def test_wrong(hil_dut):
    try:
        deep(60)
    except RecursionError as error:
        details = [("cause", "the bias is gone")] if hil_dut.target.name == "native" else []
        raise Mismatch("output 0 is far off", details=details) from error

def deep(more):
    if not more:
        raise RecursionError
    deep(more - 1)

@pytest.mark.xfail_on("*", reason="known", raises=TargetHang)
def test_known(hil_dut): raise TargetHang("as ever")
"""
    )
    result = run(pytester, "--target=native,m4-qemu", "-p", "no:randomly")
    result.assert_outcomes(passed=2, failed=2, xfailed=2)
    lines = result.stdout.lines
    end = lines[next(i for i, line in enumerate(lines) if "test × target" in line) + 1 :]
    name = "test_what_went_wrong_has_its_row_and_its_headline_last.py::test_wrong"
    assert [line.split() for line in end[:2]] == [["test", "native", "m4-qemu"], [name, *["FAIL", "Mismatch"] * 2]]
    assert end[3:5] == [
        f"{name}[native]: Mismatch: output 0 is far off; cause: the bias is gone",
        f"{name}[m4-qemu]: Mismatch: output 0 is far off",
    ]
    assert re.fullmatch(r"native · builtin .*\)   1 passed, 1 failed, 1 xfailed  in [\d.]+ s", end[5])
    assert end[8].startswith("rerun: pytest")


def test_an_error_that_is_among_its_own_causes_is_reported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
def test_again(hil_dut):
    first = ValueError("first")
    try:
        raise RuntimeError("second") from first
    except RuntimeError:
        raise first
"""
    )
    result = run(pytester, "--target=native")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_again *FAIL ValueError"])


@pytest.mark.slow
def test_uninformative_tests_are_counted_and_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest, torch
        from cortex_m_hil.pytest_plugin.plugin import HilWarning

        class Zero(torch.nn.Linear):
            def forward(self, x):
                y = super().forward(x)
                return y - y

        def test_zero(hil):
            hil.check(Zero(8, 4), (torch.rand(1, 8),))

        def test_other(hil):
            hil.check(torch.nn.Linear(8, 4), (torch.rand(1, 8),))
        """
    )
    result = run(pytester, "--target=native")
    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*test_uninformative_tests_are_counted_and_named.py:10: HilWarning: native: output 0: uninformative: *",
            "uninformative (the reference is constant *",
            "  test_uninformative_tests_are_counted_and_named.py::test_zero",
            "native * 2 passed, 1 uninformative  in *",
        ]
    )


CALLS = {
    "hil.check(module, inputs, qtol=-1)": "qtol=-1: it takes a whole number of quanta, 0 or more",
    "hil.check(module, inputs, qtoll=1)": "hil.check: got an unexpected keyword argument 'qtoll'",
    "hil.check(module)": "inputs are missing: a module is lowered with example inputs",
    "hil.check(module, inputs, isa='dsp')": "hil.check: isa takes Isa, not 'dsp'",
    "hil.check(module, *inputs)": "hil.check: inputs takes tuple or list, not Tensor float32[[]1, 8[]]",
    "hil.check(module, inputs, qtol=inputs[0])": "qtol=Tensor float32[[]1, 8[]]: it takes a whole number of quanta, 0*",
    "hil.check(module, inputs, calibration=[(torch.rand(1, 9),)])": "Linear: calibration sample 0 is (Tensor float32*",
    "hil.check(module, (inputs[0] / 0 * 0,))": "Linear: the inputs have values that are not finite*",
    "hil.run(hil.lower(module, inputs), [*inputs, *inputs])": "the program has 1 input, 2 given*",
    "hil.run(hil.lower(module, inputs), (torch.rand(2, 8),))": "input 0: the program takes float32[[]1, 8[]], not *",
    "hil.lint(module)": "hil.lint: program takes Program, not Linear",
    "hil.check(module, 1.0)": "hil.check: inputs takes tuple or list, not 1.0",
    "hil.lower(module, inputs, calibration=3)": "hil.lower: calibration takes Iterable, not 3",
    "hil.run(3)": "hil.run: program takes Program, not 3",
    "hil.verify(hil, 3)": "hil.verify: program takes Program, not *",
    "run_pte(3)": "run_pte: pte takes Path or str or bytes, not 3",
    "hil.check(module, (torch.rand(1, 9),))": "Linear: the module itself fails on these inputs*",
}


def test_a_mistake_in_a_call_is_an_error_at_its_line_and_nothing_else(pytester: pytest.Pytester) -> None:
    """Neither about the target nor about the program; no marker expects it."""
    tests = [
        f"@pytest.mark.{'xfail' if n % 2 else 'xfail_on'}({'' if n % 2 else chr(34) + '*' + chr(34) + ', '}"
        f"reason='r', raises=Exception)\ndef test_{n}(hil, run_pte):\n    {call}\n"
        for n, call in enumerate(CALLS)
    ]
    pytester.makepyfile(
        "import pytest, torch\nmodule = torch.nn.Linear(8, 4)\ninputs = (torch.rand(1, 8),)\n" + "".join(tests)
    )
    result = run(pytester, "--target=native", "--junit-xml=report.xml")
    result.assert_outcomes(errors=len(CALLS))
    name = "test_a_mistake_in_a_call_is_an_error_at_its_line_and_nothing_else.py"
    for n, (call, said) in enumerate(CALLS.items()):
        pattern = re.sub(r"[][*]", r"[\g<0>]", call)
        result.stdout.fnmatch_lines([f">   *{pattern}", f"E *ConfigError: {said}", f"{name}:{6 + 3 * n}: ConfigError"])
        result.stdout.fnmatch_lines([f"{name}::test_{n} *ERROR ConfigError"])
    assert "INFRA" not in result.stdout.str() and "api_calls.py" not in result.stdout.str()
    assert (pytester.path / "report.xml").read_text().count('"hil_verdict" value="ERROR"') == len(CALLS)


def test_a_marker_that_has_no_effect_is_an_error(pytester: pytest.Pytester) -> None:
    """With targets and without; one of a whole module may be for its other tests."""
    pytester.makepyfile(
        test_plain="""
        import pytest

        @pytest.mark.requires("nonsense")
        def test_nonsense(): pass

        @pytest.mark.requires("mve")
        def test_in_vain(): pass
        """,
        test_mixed="import pytest\npytestmark = pytest.mark.requires('dsp')\ndef test_fine(): pass\n",
    )
    for arguments in ([], ["--target=native"]):
        result = run(pytester, *arguments)
        result.assert_outcomes(errors=2, passed=1)
        result.stdout.fnmatch_lines(
            [
                "test_plain.py:3: ConfigError: requires('nonsense'): known: dsp, mve, scalar",
                "test_plain.py:6: ConfigError: requires has no effect on a test that uses no target",
            ]
        )


def test_a_kernel_without_landlock_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SMOKE)
    assert "Landlock" not in run(pytester, "--target=m4-qemu", "--collect-only").stdout.str()
    pytester.makeconftest("from cortex_m_hil.host import sandbox\nsandbox.landlock_abi = lambda: 0\n")
    result = run(pytester, "--target=m4-qemu", "--collect-only")
    result.stdout.fnmatch_lines(["hil: this kernel has no Landlock: *hil docs security*"])


def test_workers_give_the_same_table(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SMOKE + "\ndef test_wrong(hil_dut):\n    assert hil_dut.target.name == 'm0-qemu'\n")
    tables = []
    for arguments in ([], ["-n2"]):
        result = run(pytester, "--target=m4-qemu,m0-qemu", *arguments)
        result.assert_outcomes(passed=3, failed=1)
        lines = result.stdout.lines
        start = next(i for i, line in enumerate(lines) if "test × target" in line)
        tables.append([re.sub(r"in [\d.]+ s$", "", line).rstrip() for line in lines[start + 1 : start + 9]])
    assert tables[0] == tables[1]
    assert any("rerun: pytest --target=m4-qemu" in line and "test_wrong[m4-qemu]" in line for line in tables[0])


@pytest.mark.parametrize(
    ("node_id", "expected"),
    [
        ("a.py::test_b[m4-qemu]", "a.py::test_b"),
        ("a.py::test_b[m4-qemu-3]", "a.py::test_b[3]"),
        ("a.py::test_b[x-m4-qemu-3]", "a.py::test_b[x-3]"),
        ("a.py::test_b[x-m4]", "a.py::test_b[x]"),
        ("a.py::test_b[m4x-qemu]", "a.py::test_b[m4x-qemu]"),
        ("a.py::test_b[xm4]", "a.py::test_b[xm4]"),
        ("a.py::test_b", "a.py::test_b"),
    ],
)
def test_a_test_is_known_without_its_target(node_id: str, expected: str) -> None:
    assert without_target(node_id, ["m4", "m4-qemu"]) == expected


@pytest.mark.slow
def test_a_worker_runs_a_test_on_all_its_targets(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pathlib, pytest

        @pytest.mark.parametrize("n", range(12))
        def test_a(target_spec, n, worker_id):
            with open(pathlib.Path(__file__).with_name(f"n{n}"), "a") as file:
                print(worker_id, target_spec.name, file=file)
        """
    )
    run(pytester, "--target=m4-qemu,m0-qemu,native", "-n2").assert_outcomes(passed=36)
    lines = [[line.split() for line in path.read_text().splitlines()] for path in pytester.path.glob("n*")]
    assert len(lines) == 12 and {worker for of_test in lines for worker, _ in of_test} == {"gw0", "gw1"}
    for of_test in lines:
        assert len({worker for worker, _ in of_test}) == 1
        assert {target for _, target in of_test} == {"m4-qemu", "m0-qemu", "native"}


def test_the_rerun_line_reruns_the_failure(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_wrong(hil_dut, n):\n    assert n == 2\n"
    )
    result = run(pytester, "--target=native")
    line = next(line for line in result.stdout.lines if line.startswith("rerun: "))
    command = line.removeprefix("rerun: pytest ").replace("'", "").split()
    again = run(pytester, *command)
    again.assert_outcomes(failed=1)


def test_the_rerun_line_of_many_failures_is_short(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\n@pytest.mark.parametrize('n', range(40))\ndef test_wrong(hil_dut, n):\n    assert n == 2\n"
    )
    result = run(pytester, "--target=native")
    line = next(line for line in result.stdout.lines if line.startswith("rerun: "))
    assert line == "rerun: pytest --target=native --last-failed"
    run(pytester, *line.removeprefix("rerun: pytest ").split()).assert_outcomes(failed=39)


def test_the_rerun_line_of_many_failures_has_the_paths_of_the_call(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntestpaths = tests\nhil_targets = native\n")
    for folder in ("tests", "other"):
        pytester.mkdir(folder)
    (pytester.path / "tests" / "test_good.py").write_text("def test_good(hil_dut): pass\n")
    (pytester.path / "other" / "test_bad.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(12))\ndef test_wrong(hil_dut, n):\n    assert n == 20\n"
    )
    result = run(pytester, "other/test_bad.py")
    line = next(line for line in result.stdout.lines if line.startswith("rerun: "))
    assert line == "rerun: pytest --hil-target=native --last-failed other/test_bad.py"
    run(pytester, *line.removeprefix("rerun: pytest ").split()).assert_outcomes(failed=12)


def test_a_board_that_is_not_there_is_told_at_once(pytester: pytest.Pytester) -> None:
    """Tests lower first, which takes longer; and those for other targets run all the same."""
    board = "{cpu: cortex-m4, board: stm32f4, launcher: {serial: {port: 'vboard:gone', baud: 921600}}}"
    (pytester.path / "targets.yaml").write_text(f"targets: {{gone: {board}}}\n")
    pytester.makepyfile("def test_plain():\n    pass\n")
    result = run(pytester, "--target=gone,native")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["hil: gone *: no port vboard:gone; start it: hil board virtual gone", "hil: native *"])


def test_tests_without_a_target_run_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_plain():\n    pass\n")
    run(pytester, "--target=native,m4-qemu").assert_outcomes(passed=1)
    run(pytester).assert_outcomes(passed=1)


def test_ini_gives_the_default_targets(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nhil_targets = native m4-qemu\n")
    pytester.makepyfile(SMOKE)
    run(pytester).assert_outcomes(passed=2)
    run(pytester, "--target=native").assert_outcomes(passed=1)


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "*no target given: --target=m4-qemu*"),
        (["--target=m4-fpv"], "*unknown target 'm4-fpv'*"),
        (["--target=m4-fvp", "--require-fvp"], "*FVP_MPS2_Cortex-M4 is not on PATH*"),
        (["--target=native", "--runtime=buildin"], "*unknown runtime 'buildin'*"),
        (["--target=native", "--targets-file=absent.yaml"], "*cannot read absent.yaml: No such file*"),
        (["--target=native", "--timeout-multiplier=nan"], "*--timeout-multiplier: a number from 0.01 to 1000, not nan"),
        (["--target=native", "--hil-seed=-1"], "*--hil-seed: a number from 0 to 4294967295, not -1"),
    ],
)
def test_bad_options_are_usage_errors(pytester: pytest.Pytester, arguments: list[str], expected: str) -> None:
    pytester.makepyfile(SMOKE)
    result = run(pytester, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([expected])
    assert "Traceback" not in result.stderr.str() + result.stdout.str()


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--co", "*<Function test_self_test[[]no-target[]]>*"),
        ("--fixtures", "hil -- *"),
        ("--fixtures-per-test", "hil_dut -- *"),
        ("--setup-plan", "*test_self_test[[]no-target[]]*"),
        ("--markers", "@pytest.mark.target_timeout(seconds)*"),
        ("--help", "*--hil-seed=N*"),
    ],
)
def test_what_only_shows_needs_no_target(pytester: pytest.Pytester, option: str, expected: str) -> None:
    pytester.makepyfile(SMOKE)
    (pytester.path / "targets.yaml").write_text("a list, which no run without a target reads\n")
    result = run(pytester, option)
    assert result.ret == 0
    result.stdout.fnmatch_lines([expected])


def test_a_marker_that_makes_no_sense_costs_its_test_alone(pytester: pytest.Pytester) -> None:
    wrong = {
        "requires('helium')": "requires('helium'): known: dsp, mve, scalar",
        "requires(isa=3)": "requires(isa=3): known: *",
        "requires(ram='much')": "requires(ram='much'): 'much' is not a size*",
        "requires(rom='1K')": "*unexpected keyword argument 'rom'",
        "xfail_on('*', reason='no', raises=errors.LaunchError)": "*an infra error such as LaunchError cannot *",
        "xfail_on('*', reason='no', raises='Mismatch')": "*raises is the class of an error, not 'Mismatch'",
        "xfail_on(reason='no')": "*missing 1 required positional argument: 'pattern'",
        "target_timeout(float('nan'))": "target_timeout(nan): a number from 0.01 to 86400, not nan",
        "target_timeout(float('inf'))": "*not inf",
        "target_timeout(-1)": "*not -1",
        "target_timeout('30')": "*not '30'",
        "target_timeout()": "*missing 1 required positional argument: 'seconds'",
    }
    tests = [f"@pytest.mark.{marker}\ndef test_{n}(hil_dut): pass\n" for n, marker in enumerate(wrong)]
    pytester.makepyfile("import pytest\nfrom cortex_m_hil import errors\n" + "".join(tests) + SMOKE)
    result = run(pytester, "--target=native")
    result.assert_outcomes(errors=len(wrong), passed=1)
    name = "test_a_marker_that_makes_no_sense_costs_its_test_alone.py"
    result.stdout.fnmatch_lines([f"{name}:{3 + 2 * n}: ConfigError: {said}" for n, said in enumerate(wrong.values())])
    result.stdout.fnmatch_lines(["  → such as @pytest.mark.target_timeout(120)"])
    result.stdout.fnmatch_lines(["*::test_9 *ERROR ConfigError*"])
    assert "markers.py" not in result.stdout.str()


def test_what_cannot_be_parametrised_is_told_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        SMOKE
        + """
import pytest
import unittest

class TestOld(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take(self, hil_dut): pass

    def test_old(self): pass

def test_late(request):
    request.getfixturevalue("hil_dut")
"""
    )
    result = run(pytester, "--target=native")
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["native * 1 passed  in *", "without a target  2 errors"])
    assert (
        len([line for line in result.stdout.lines if re.match(r"test_what_\S+::test_late: ConfigError: a t", line)])
        == 1
    )
    result.stdout.fnmatch_lines(
        ["*test_what_cannot*.py:*: ConfigError: a target is a parameter of a test, and pytest gives none to methods*"]
    )
    result.stdout.fnmatch_lines(["E *ConfigError: a target is a parameter*"])
    assert "no target given" not in result.stdout.str()


def test_what_torch_says_of_a_failed_export_is_there_once(pytester: pytest.Pytester) -> None:
    """Below our own headline."""
    pytester.makepyfile(
        """
        import torch

        class Branches(torch.nn.Module):
            def forward(self, x):
                if x.sum() > 0:
                    return x
                return -x

        def test_branches(hil):
            hil.check(Branches(), (torch.rand(1, 8),))
        """
    )
    result = run(pytester, "--target=native")
    result.assert_outcomes(failed=1)
    said = result.stdout.str() + result.stderr.str()
    assert said.count("Explanation: Detected data-dependent branching") == 1 and "class GraphModule" not in said
    headline = said.index("E       cortex_m_hil.errors.LoweringError: Branches: export failed at ")
    assert headline < said.index("Explanation: ") < said.index("Traceback (most recent call last)")
    result.stdout.fnmatch_lines(["Unsupported: see details"])


LOWERED = """
import pytest
import torch
from cortex_m_hil.checks.comparison.tolerance import Tolerance

lowered = []

@pytest.fixture(scope="module")
def for_module(hil_lower, target_spec):
    lowered.append(target_spec.name)
    return hil_lower(torch.nn.Linear(8, 4), (torch.rand(1, 8),))

def test_run(hil, for_module, for_session):
    assert for_module.isa is for_session.isa is hil.isa
    hil.run(for_module)

def test_verify(hil, for_module, for_session):
    assert hil.verify(for_module, Tolerance()).comparison.outputs[0].max_quanta == 0
    assert lowered.count(hil.dut.resolved.name) == 1
    print("watched" if for_module.size_without_redzones else "as it is")

def test_itself(hil, hil_lower):
    hil.run(hil_lower(torch.nn.Linear(8, 4), (torch.rand(1, 8),)))
"""


def _expect_peaks(report: str, table: str) -> None:
    """Each statistic of the runner is a property of each test, and its largest value on each target is in the table."""
    for statistic in STATISTICS:
        values = [int(value) for value in re.findall(rf'"hil_{statistic.figure}" value="(\d+)"', report)]
        shown = re.search(rf"^most {statistic.name} {statistic.unit} +(\d+) +(\d+)$", table, re.MULTILINE)
        assert values and shown and max(values) == max(map(int, shown.groups()))
    assert '"hil_host_ticks"' in report and '"hil_instructions"' in report
    assert re.search(r"^most instructions +- +\d+$", table, re.MULTILINE)


@pytest.mark.slow
def test_a_fixture_of_any_scope_lowers_for_the_target(pytester: pytest.Pytester) -> None:
    """Two ISA classes; each is lowered for once in a module, and what it draws does not depend on workers."""
    pytester.makeconftest(
        "import pytest, torch\n@pytest.fixture(scope='session')\ndef for_session(hil_lower):\n"
        "    return hil_lower(torch.nn.Linear(4, 4), (torch.rand(1, 4),))\n"
    )
    pytester.makepyfile(LOWERED)
    digests = []
    for arguments in (["-rP"], ["-n2"], ["-k", "test_verify", "--redzones", "-rP"]):
        result = run(pytester, "-v", "--target=native,m55-qemu", "--junit-xml=report.xml", *arguments)
        result.assert_outcomes(passed=2 if "-k" in arguments else 6, deselected=4 if "-k" in arguments else 0)
        assert ("watched" in result.stdout.str()) == ("--redzones" in arguments)
        report = (pytester.path / "report.xml").read_text()
        digests.append(re.findall(r'"hil_outputs" value="(\w+)"', report))
        _expect_peaks(report, result.stdout.str())
    assert sorted(digests[0]) == sorted(digests[1]) and set(digests[2]) <= set(digests[0])


def test_targets_follow_each_other_unless_a_wide_fixture_needs_them_grouped(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_narrow="def test_a(target_spec): pass\ndef test_b(hil_lower): pass\n",
        test_wide="import pytest\n@pytest.fixture(scope='module')\ndef wide(hil_lower): pass\n"
        "def test_c(wide): pass\ndef test_d(wide): pass\n",
    )
    result = run(pytester, "--target=native,m4-qemu", "-v")
    order = [line.split("::")[1].split()[0] for line in result.stdout.lines if " PASSED" in line]
    assert order == [
        "test_a[native]", "test_a[m4-qemu]", "test_b[native]", "test_b[m4-qemu]",
        "test_c[native]", "test_d[native]", "test_c[m4-qemu]", "test_d[m4-qemu]",
    ]  # fmt: skip


def test_the_rerun_line_has_all_that_may_change_a_verdict(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_wrong(hil_dut):\n    assert hil_dut.seconds == 0\n")
    options = ["--dut-scope=function", "--timeout-multiplier=2.5", "--hil-seed=9", "--redzones"]
    result = run(pytester, "--target=native", *options)
    line = next(line for line in result.stdout.lines if line.startswith("rerun: "))
    assert set(options) <= set(shlex.split(line))
    again = run(pytester, *shlex.split(line)[2:])
    again.stdout.fnmatch_lines(["E *assert 75.0 == 0*"])
    assert line in again.stdout.lines


def test_unselected_hardware_tests_need_no_target(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SMOKE + "\ndef test_plain():\n    pass\n")
    run(pytester, "-k", "plain").assert_outcomes(passed=1, deselected=1)


@pytest.mark.parametrize("kind", ["bomb", "pipe"])
def test_a_targets_file_that_cannot_be_read_holds_nobody_up(pytester: pytest.Pytester, kind: str) -> None:
    """It is said at once. Tests that need no target do not ask for it."""
    pytester.makepyfile("def test_plain():\n    pass\n")
    path = pytester.path / "targets.yaml"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text("a: &a [x,x,x,x,x,x]\n" + "".join(f"b{n}: &a [*a,*a,*a,*a,*a,*a]\n" for n in range(99)))
    run(pytester).assert_outcomes(passed=1)
    result = run(pytester, "--target=native")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*ConfigError*targets.yaml*"])


def test_a_malformed_targets_file_is_named_with_its_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SMOKE)
    text = "targets:\n  mine:\n    cpu: cortex-m4\n    bord: mps2\n    launcher: {qemu: mps2-an386}\n"
    (pytester.path / "targets.yaml").write_text(text)
    result = run(pytester, "--target=native")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*targets.yaml:4: unknown key 'bord'*", "*did you mean 'board'?*"])


def test_a_missing_simulator_is_infra_with_the_command_that_installs_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytester.makepyfile(SMOKE)
    run(pytester, "--target=m4-qemu").assert_outcomes(passed=1)  # the runner is in the cache from here on
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("arm-none-eabi-g++", "flatc", "setpriv", "git"):
        found = next((p for p in (Path("/usr/bin") / name, Path("/bin") / name) if p.exists()), None)
        if found:
            (tools / name).symlink_to(found)
    (tmp_path / "include").symlink_to("/usr/include")
    monkeypatch.setenv("PATH", str(tools))
    result = run(pytester, "--target=m4-qemu")
    result.assert_outcomes(errors=1)  # before the runner is built, so before the test
    result.stdout.fnmatch_lines(["*qemu-system-arm is not on PATH*", "*apt-get install qemu-system-arm*"])
    result.stdout.fnmatch_lines(["*::test_self_test *INFRA ToolchainError*"])


def test_markers_skip_and_xfail_by_target_and_verdict(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from cortex_m_hil.errors import LaunchError, Mismatch

        @pytest.mark.requires("mve")
        def test_mve(hil_dut): pass

        @pytest.mark.requires(ram="1G")
        def test_ram(hil_dut): pass

        @pytest.mark.requires("dsp", ram="64K", flash="64K")
        def test_fits(hil_dut): pass

        @pytest.mark.xfail_on("m4*", reason="known", raises=Mismatch)
        def test_known(hil_dut): raise Mismatch("as expected")

        @pytest.mark.xfail_on("m4*", reason="known")
        def test_infra_is_no_xfail(hil_dut): raise LaunchError("no")

        @pytest.mark.xfail_on("m4*", reason="known")
        def test_fixed_meanwhile(hil_dut): pass

        @pytest.mark.xfail_on("m0*", reason="elsewhere")
        def test_elsewhere(hil_dut): pass
        """
    )
    result = run(pytester, "--target=m4-qemu", "-rs", "-v")
    result.assert_outcomes(skipped=2, passed=2, xfailed=1, failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "*::test_mve *skip*",
            "*::test_known *xfail*",
            "*::test_infra_is_no_xfail *INFRA LaunchError*",
            "*::test_fixed_meanwhile *XPASS*",
            "SKIPPED*m4-qemu is DSP; needs mve*",
            "SKIPPED*m4-qemu has 4194304 bytes of ram for programs; needs 1G*",
        ]
    )


def test_errors_show_the_test_and_not_the_harness(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_bad(run_pte):\n    run_pte(b'not a program')\n")
    result = run(pytester, "--target=native")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "flow.py" not in text and "session.py" not in text
    result.stdout.fnmatch_lines([">*run_pte(b'not a program')*", "E*ProgramRejected*"])


def test_an_error_comes_first_and_its_cause_below_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import torch

        class Branch(torch.nn.Module):
            def forward(self, x):
                return x + 1 if x.sum() > 0 else x

        def test_bad(hil):
            hil.check(Branch(), (torch.rand(1, 4),))
        """
    )
    result = run(pytester, "--target=native")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["hil = *", ">*hil.check(*", "E*LoweringError*", "*  → *", "test_*LoweringError", "*- cause -*", "Traceback *"],
    )
    above, headline, _ = result.stdout.str().partition("LoweringError")
    assert headline and "Traceback" not in above and "direct cause" not in result.stdout.str()


def test_a_mismatch_shows_the_test_the_details_and_the_name_that_was_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import torch
        from cortex_m_hil.targets.cpu import Isa

        def test_bad(hil):
            inputs = (torch.rand(1, 64) * 0.002,)
            hil.check(torch.nn.Linear(64, 10), inputs, isa=Isa.MVE, lint=False)
        """
    )
    result = run(pytester, "--target=m0plus-fvp")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert not any(f"{name}.py:" in text for name in ("flow", "compare", "fixtures"))
    result.stdout.fnmatch_lines(
        [
            ">*hil.check(*",
            "E*Mismatch: output 0: collapse: *m0plus-fvp → m0-qemu*",
            "E*lint: *operator 1, *: MVE layout on a SCALAR target*; lint was off (lint=False)",
            "*details*",
            "output 0: collapse*",
        ]
    )


@pytest.mark.slow
def test_what_a_target_said_of_one_program_is_not_told_of_the_next(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import torch

        class Clone(torch.nn.Module):
            def forward(self, x):
                return torch.clone(x)

        def test_refused(hil):  # known bug 38
            hil.check(Clone(), (torch.rand(2, 1, 4, 5),), quantize=False, lint=False)

        def test_next(hil):
            hil.check(torch.nn.ReLU(), (torch.rand(2, 3),), quantize=False)
            assert 0
        """
    )
    result = run(pytester, "--target=native", "--runtime=executorch")
    result.assert_outcomes(failed=2)
    refused, _, following = result.stdout.str().partition("_ test_next[native] _")
    assert "[error]" in refused and "[error]" not in following.partition("= test × target")[0]


def test_run_pte_takes_arrays(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from cortex_m_hil.program.known_answer import known_answer

        def test_pte(run_pte, hil_dut):
            known = known_answer(hil_dut.target.isa)
            result = run_pte(known.program, [known.inputs[0].array()])
            assert result.outputs[0].data == known.expected[0].data
        """
    )
    run(pytester, "--target=native,m4-qemu").assert_outcomes(passed=2)


def test_programs_that_ran_are_kept_with_their_inputs(pytester: pytest.Pytester) -> None:
    """Each once, whatever became of it; `hil run` takes them as they are."""
    pytester.makepyfile("""
        import pytest
        from cortex_m_hil import Isa
        from cortex_m_hil.program.known_answer import known_answer

        @pytest.mark.parametrize("isa", [Isa.SCALAR, Isa.MVE], ids=["fits", "foreign"])
        def test_it(run_pte, isa):
            known = known_answer(isa)
            for _ in range(2):
                run_pte(known.program, known.inputs)
    """)
    result = run(pytester, "--target=native", "--keep-programs=kept/here")
    result.assert_outcomes(passed=1, failed=1)
    names = sorted(path.name for path in (pytester.path / "kept" / "here").iterdir())
    stem = names[0].removesuffix(".0.npy")
    assert stem.startswith("test_programs_that_ran_are_kept_with_their_inputs.py_test_it_native-fits_")
    assert names[:2] == [f"{stem}.0.npy", f"{stem}.pte"]
    assert all("_native-foreign_" in name for name in names[2:]) and len(names) == 4
    path = pytester.path / "kept" / "here" / stem
    assert Path(f"{path}.pte").read_bytes() == known_answer(Isa.SCALAR).program
    given = np.load(f"{path}.0.npy")
    np.testing.assert_array_equal(given, known_answer(Isa.SCALAR).inputs[0].array())


@pytest.mark.slow
def test_what_the_cache_on_disk_was_used_for_is_told(pytester: pytest.Pytester) -> None:
    """Of every program that ran, and why one of them is in no cache. It is not used where that is asked for."""
    pytester.makepyfile(
        f"""
        import torch

        class Scale(torch.nn.Module):
            def forward(self, x):
                return torch.relu(x) * {random.SystemRandom().random()!r}

        def test_two(hil):
            hil.check(Scale(), (torch.rand(1, 4),))
            with torch.device("cpu"):
                hil.check(Scale(), (torch.rand(1, 4),))
        """
    )
    for arguments, found in (([], 0), ([], 1), (["--hil-no-cache"], 0)):
        result = run(pytester, "--target=native", "-v", *arguments)
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(
            [
                f"lowering: {found} found in the cache, {2 - found} made",
                "  *::test_two[[]native]: no key: a mode that overrides torch's functions*",
            ]
        )


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], pytest.param(["-n1"], marks=pytest.mark.slow)], ids=["single", "xdist"])
def test_a_pass_that_a_test_patches_ends_the_use_of_the_cache_and_is_named(
    pytester: pytest.Pytester, workers: list[str]
) -> None:
    pytester.makepyfile(
        f"""
        import torch
        from executorch.backends.cortex_m.passes import passes_utils

        class Scale(torch.nn.Module):
            def forward(self, x):
                return torch.relu(x) * {random.SystemRandom().random()!r}

        def test_one(hil):
            hil.check(Scale(), (torch.rand(1, 4),))

        def test_two(hil, monkeypatch):
            monkeypatch.setattr(passes_utils, "_NHWC_DIM_ORDER", [0, 2, 3, 1])
            hil.check(Scale(), (torch.rand(1, 5),))

        def test_three(hil):
            hil.check(Scale(), (torch.rand(1, 4),))
        """
    )
    for found in (0, 1):
        result = run(pytester, "--target=native", "-v", *workers)
        result.assert_outcomes(passed=3)
        result.stdout.fnmatch_lines(
            [
                f"lowering: {found} found in the cache, {3 - found} made",
                "  *::test_two[[]native] and 1 more program: no key: *.passes_utils._NHWC_DIM_ORDER was changed in "
                "memory",
            ]
        )


def test_a_machine_that_qemu_does_not_have_is_told_before_a_build(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIL_CACHE_DIR", str(pytester.path / "cache"))
    (pytester.path / "targets.yaml").write_text(
        "targets:\n  mine: {cpu: cortex-m3, board: mps2, launcher: {qemu: an358}}\n"
    )
    pytester.makepyfile(SMOKE)
    result = run(pytester, "--target=mine")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["E *ConfigError: targets.yaml:2: QEMU * has no machine 'an358'*"])
    result.stdout.no_fnmatch_line("*entries are hidden*")
    assert not (pytester.path / "cache" / "runners").exists()


def test_a_user_fixture_can_replace_the_runner(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest
        from cortex_m_hil.runner.build import build_runner

        @pytest.fixture
        def runner_elf(target_spec):
            return build_runner(target_spec.target, options={"HIL_TEST_KERNELS": "ON"})
        """
    )
    pytester.makepyfile(
        "def test_ops(hil_dut):\n    assert 'hil_test::hang.out' in hil_dut.session().identity.operators\n"
    )
    run(pytester, "--target=native").assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_runner_is_looked_up_once_for_each_target(pytester: pytest.Pytester) -> None:
    """In a worker tests go from target to target, and pytest makes its fixture anew each time."""
    pytester.makeconftest(
        """
        from cortex_m_hil.pytest_plugin import fixtures

        build_runner = fixtures.build_runner

        def noted(target, *args):
            with open("asked", "a") as file:
                file.write(f"{target.name}\\n")
            return build_runner(target, *args)

        fixtures.build_runner = noted
        """
    )
    pytester.makepyfile("def test_a(runner_elf): pass\ndef test_b(runner_elf): pass\ndef test_c(runner_elf): pass\n")
    run(pytester, "-n1", "--target=native,m4-qemu").assert_outcomes(passed=6)
    assert sorted((pytester.path / "asked").read_text().split()) == ["m4-qemu", "native"]


WAITING = """
import pathlib, time
from cortex_m_hil import flow

def test_waits(hil_dut):
    flow.selftest(hil_dut)
    pathlib.Path("started").touch()
    time.sleep(600)
"""


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("workers", "how"),
    [
        pytest.param([], signal.SIGINT, id="single-ctrl-c"),
        pytest.param(["-n1"], signal.SIGKILL, id="xdist-kill-9"),
        pytest.param([], signal.SIGKILL, id="single-kill-9", marks=pytest.mark.slow),
        pytest.param(["-n1"], signal.SIGINT, id="xdist-ctrl-c", marks=pytest.mark.slow),
    ],
)
def test_no_simulator_survives(pytester: pytest.Pytester, how: signal.Signals, workers: list[str]) -> None:
    pytester.makepyfile(WAITING)
    command = [sys.executable, "-m", "pytest", "--target=m4-qemu", *workers]
    process = subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        simulators = wait_for_simulators(process, pytester.path / "started")
        process.send_signal(how)
        _, alive = psutil.wait_procs(simulators, timeout=30)
        assert simulators and not alive
        output, _ = process.communicate(timeout=60)
        assert process.returncode != 0
        assert how is signal.SIGKILL or b"KeyboardInterrupt" in output
    finally:
        process.kill()
        process.communicate()


def wait_for_simulators(process: subprocess.Popen[bytes], started: Path) -> list[psutil.Process]:
    """QEMU processes below `process` once the test has touched `started`."""
    watched = psutil.Process(process.pid)
    while not started.exists():
        assert process.poll() is None, process.stdout.read().decode() if process.stdout else ""
        psutil.wait_procs([watched], timeout=0.05)
    return [child for child in watched.children(recursive=True) if child.name().startswith("qemu")]


# Each registers names that this package would have as well, after it or before it.
NEIGHBOURS = """
def pytest_addoption(parser):
    group = parser.getgroup("theirs")
    group.addoption("--target", help="their target")
    group.addoption("--runtime", type=int, default=7)
"""
ASKS = """
def test_theirs(hil_dut, pytestconfig):
    assert hil_dut.resolved.runtime == "builtin"
    assert (pytestconfig.getoption("--target"), pytestconfig.getoption("--runtime")) == ("mine", 8)
    assert pytestconfig.getoption("--hil-dut-scope") == pytestconfig.getoption("--dut-scope") == "function"
    raise ValueError("for the rerun line")
"""


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("file", "load", "owner"),
    [
        ("conftest.py", [], "conftest.py"),
        ("tests/conftest.py", [], "tests/conftest.py"),
        ("another_plugin.py", ["-p", "another_plugin"], "the plugin another_plugin (*another_plugin.py"),
    ],
    ids=["conftest", "folder", "plugin"],
)
def test_options_of_others_and_ours_are_there_both(
    pytester: pytest.Pytester, file: str, load: list[str], owner: str
) -> None:
    pytester.mkdir("tests")
    (pytester.path / file).write_text(NEIGHBOURS)
    (pytester.path / "tests" / "test_it.py").write_text(ASKS)
    options = [*load, "--target=mine", "--runtime", "8", "--dut-scope=function"]
    result = run(pytester, *options, "--hil-target", "native")
    result.stdout.fnmatch_lines([f"hil: --target is that of {owner}:4*; that of this package is --hil-target"])
    result.stdout.fnmatch_lines([f"hil: --runtime is that of {owner}:5*; that of this package is --hil-runtime"])
    result.stdout.fnmatch_lines(["E *ValueError: for the rerun line"])
    result.stdout.fnmatch_lines(["rerun: pytest --hil-target=native --dut-scope=function *"])
    without = run(pytester, *options)
    assert without.ret == pytest.ExitCode.USAGE_ERROR
    without.stderr.fnmatch_lines([f"*no target given: --hil-target=*; --target is that of {owner}:4*"])
    assert "Traceback" not in without.stderr.str()


def test_every_option_that_is_asked_for_is_there(pytestconfig: pytest.Config) -> None:
    """Those of `hil_` are this package's, some of plugins that are loaded for a command only."""
    texts = [path.read_text() for path in (IMPORT_ROOT / "cortex_m_hil" / "pytest_plugin").glob("*.py")]
    names = {name for text in texts for name in re.findall(r'getoption\("([\w-]+)"', text)}
    assert names
    for name in names:
        assert name.startswith(("hil_", "--hil-")) or pytestconfig.getoption(name, "absent") != "absent", name


@pytest.mark.slow
def test_a_conftest_that_is_met_too_late_is_one_error(pytester: pytest.Pytester) -> None:
    folder = pytester.path / "some" / "deep"
    folder.mkdir(parents=True)
    (folder / "conftest.py").write_text(NEIGHBOURS)
    (folder / "test_it.py").write_text("def test_it(hil_dut): pass\n")
    result = run(pytester, "--hil-target=native")
    assert result.ret == pytest.ExitCode.USAGE_ERROR and "Traceback" not in result.stderr.str()
    told = (
        "*some/deep/conftest.py:4 registers --target, which cortex_m_hil.* has * (--hil-target is *: * pytest some/deep"
    )
    result.stderr.fnmatch_lines([told])
    workers = run(pytester, "--hil-target=native", "-n1")
    workers.stdout.fnmatch_lines([told])
    assert "argparse.py" not in workers.stdout.str()
    run(pytester, "--hil-target=native", "some/deep").assert_outcomes(passed=1)


def test_the_plugin_may_be_named_by_a_conftest(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(SMOKE)
    pytester.makeconftest('pytest_plugins = ["cortex_m_hil.pytest_plugin.plugin"]')
    run(pytester, "--target=native", "--runtime=builtin").assert_outcomes(passed=1)


def test_a_value_of_a_short_name_is_no_file(pytester: pytest.Pytester) -> None:
    """pytest looks for conftest.py files where files are named, and in `testpaths` only where none are."""
    (pytester.mkdir("native") / "conftest.py").write_text("raise RuntimeError('not meant')")
    (pytester.mkdir("own") / "conftest.py").write_text("def pytest_addoption(parser): parser.addoption('--own')\n")
    (pytester.path / "own" / "test_it.py").write_text(SMOKE)
    pytester.makeini("[pytest]\ntestpaths = own\n")
    run(pytester, "--target", "native", "--own=1").assert_outcomes(passed=1)


OWN_ELF = """
import subprocess, sys

def test_own(target_spec, tmp_path):
    source = tmp_path / "own.c"
    source.write_text("int main(void) { return 0; }")
    subprocess.run(["cc", source, "-o", tmp_path / "own"], check=True)
    command = [sys.executable, "-m", "cortex_m_hil.cli", "launch", tmp_path / "own", "-t", target_spec.name]
    subprocess.run(command, check=True)
"""


CHANNELS = """
import numpy as np

FRAME = np.full(64, 7, np.uint8)  # which it tells on its console

def test_stages(hil_app):
    app = hil_app("channels")
    app.send("samples", FRAME)
    app.compare({"doubled": (FRAME * 2).astype(np.int8)})
    app.record("samples", [FRAME], {"sum": "int32"})

def test_wrong(hil_app):
    app = hil_app()
    app.send("samples", FRAME)
    app.compare({"doubled": np.zeros(64, np.int8)})

def test_misspelt(hil_app):
    hil_app("chanels")
"""


def test_the_application_of_firmware_of_ones_own(pytester: pytest.Pytester) -> None:
    """What is for it is skipped on a target with a runner."""
    channel_firmware(pytester.path)
    pytester.makepyfile(CHANNELS)
    result = run(pytester, "--target=channels,native", "--junit-xml=junit.xml", "-v", "-rs")
    result.assert_outcomes(passed=1, failed=1, errors=2, skipped=2)
    result.stdout.fnmatch_lines_random(
        [
            "hil: channels · own firmware firmware.elf, builtin *",
            "E *Mismatch: the stage doubled departs first: 64 of 64 elements wrong, the first at 0: 14, expected 0; *",
            "*took a frame*",
            "*hil_app('chanels'): no target has such a name*",
            "SKIPPED *: is for channels",
            "SKIPPED *: the runner of native has no channels: it is no firmware of your own",
        ]
    )
    junit = (pytester.path / "junit.xml").read_text()
    assert 'name="hil_latency_ticks" value="' in junit and 'name="hil_engine" value="host ' in junit


LAUNCHES = """
import subprocess

def test_own(hil_launch, tmp_path):
    (tmp_path / "own.c").write_text('#include <stdio.h>\\nint main(void) { puts("ready"); return 4; }')
    subprocess.run(["cc", tmp_path / "own.c", "-o", tmp_path / "own"], check=True)
    program = hil_launch(tmp_path / "own", files={"in.txt": "text"})
    program.expect("ready")
    assert program.wait() == 4 and (program.folder / "in.txt").read_text() == "text"
"""


def test_an_elf_that_a_test_starts_is_told_in_the_header(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(LAUNCHES)
    result = run(pytester, "--target=native", "--junit-xml=junit.xml")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["hil: on a target, with an own ELF, by hil_launch: 1 test"])
    assert 'name="hil_engine" value="host ' in (pytester.path / "junit.xml").read_text()


@pytest.mark.slow
def test_what_ran_is_not_the_runner_where_tests_launch_an_elf_of_their_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_own=OWN_ELF)
    result = run(pytester, "--target=native", "--junit-xml=junit.xml")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "hil: on a target, with no runner (own ELF or none): 1 test",
            "native · no runner (own ELF or none)  1 passed *",
        ]
    )
    assert 'name="hil_runtime" value="no runner (own ELF or none)"' in (pytester.path / "junit.xml").read_text()
    pytester.makepyfile(test_smoke="def test_late(target_spec, request): request.getfixturevalue('hil_dut')\n")
    both = run(pytester, "--target=native")
    both.stdout.fnmatch_lines(["native · builtin (no *)  2 passed, 1 no runner (own ELF or none)  in *"])


@pytest.mark.slow
def test_a_target_of_the_command_line_replaces_those_of_addopts(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(SMOKE)
    pytester.makeini("[pytest]\naddopts = --target m4-qemu\n")
    run(pytester, "--co", "-q").stdout.fnmatch_lines(["*[[]m4-qemu[]]"])
    result = run(pytester, "--target=native,m0-*", "--hil-target", "m55-qemu", "-n1")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "hil: --target of addopts (m4-qemu) is replaced by that of the command line",
            "hil: native *",
            "hil: m0-qemu *",
            "hil: m55-qemu *",
        ]
    )
    assert "hil: m4-qemu" not in result.stdout.str()
    monkeypatch.setenv("PYTEST_ADDOPTS", "--hil-target=native")
    run(pytester).stdout.fnmatch_lines(
        ["hil: --target of addopts (m4-qemu) is replaced by that of PYTEST_ADDOPTS", "hil: native *", "*1 passed*"]
    )


def test_a_target_that_fails_its_self_test_before_or_after_gives_no_verdict(pytester: pytest.Pytester) -> None:
    """After a test that breaks it, and before the next one; what a broken target said is no verdict."""
    pytester.makepyfile(
        """
        import pytest
        from cortex_m_hil.errors import LaunchError, Mismatch
        from cortex_m_hil.flow import dut as module

        def test_well(hil_dut): pass

        def test_breaks_it(hil_dut):
            def broken(dut): raise LaunchError("the self-test's output is wrong")
            module.selftest = broken
            raise Mismatch("wrong")

        def test_after(hil_dut): pass
        """
    )
    result = pytester.runpytest_subprocess("--target=native", "--hil-self-test", "--junit-xml=junit.xml", timeout=300)
    result.stdout.fnmatch_lines(["*INFRA LaunchError*"])
    text = (pytester.path / "junit.xml").read_text()
    assert text.count('name="hil_verdict" value="PASS"') == 1
    assert text.count('name="hil_verdict" value="INFRA"') >= 2
