"""ExecuTorch's own suite through `hil dev upstream` and without it: real lowering, real simulators, exact counts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from cortex_m_hil import flow
from cortex_m_hil.errors import ToolchainError
from cortex_m_hil.maintainers import executorch_suites as suite
from cortex_m_hil.runner.build import WITHOUT_PORTABLE, portable_operators
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from paths import IMPORT_ROOT
from upstream_runs import DEADLINE, SUITE, environment, files, upstream

pytestmark = pytest.mark.usefixtures("programs_preloaded")

TARGETS = load_targets()
# Twelve divisions and four that are expected to fail; pooling in int8; a network; the explicit layout.
SAMPLE = ("ops/test_div.py", "ops/test_nhwc_pool.py", "models/test_deep_autoencoder.py", "test_explicit_layout.py")
DIVISION = "ops/test_div.py::test_implementation_div"


# --- the sample ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sample_gives_what_upstream_expects_with_and_without_workers(tmp_path: Path) -> None:
    """Three targets of three ISA classes, each test lowered for its own, in one process and in two."""
    alone = upstream(tmp_path, "m4-qemu,m0-qemu,m55-qemu", *files(*SAMPLE))
    assert alone.status == 0, alone.text
    assert alone.count() == {
        name: {"PASS": 16, "XFAIL": 4} for name in ("m4-qemu", "m0-qemu", "m55-qemu")
    }, alone.text  # fmt: skip
    xfails = [cell for cells in alone.cells.values() for cell in cells.values() if cell.verdict == "XFAIL"]
    assert {cell.error for cell in xfails} == {"UnsupportedOperator"}
    assert all(len({cell.outputs for cell in cells.values()}) == 1 for cells in alone.cells.values())
    assert " passed" in alone.text and re.search("= (targets|test × target) =", alone.text)
    shared = upstream(tmp_path, "m4-qemu,m0-qemu,m55-qemu", "-n2", "-k", "not int16", *files(*SAMPLE))
    assert shared.status == 0, shared.text
    assert shared.cells == {name: cells for name, cells in alone.cells.items() if "int16" not in name}


@pytest.mark.slow
def test_what_changes_its_inputs_in_place_has_the_same_for_every_target(tmp_path: Path) -> None:
    """Upstream's inputs are made once, with the test's parameters."""
    done = upstream(tmp_path, "native,m4-qemu", "-k", "inplace", *files("ops/test_sub.py"))
    assert done.count() == {name: {"PASS": 1} for name in ("native", "m4-qemu")}, done.text
    (cells,) = done.cells.values()
    assert len({cell.outputs for cell in cells.values()}) == 1


RAN = """
import os

from cortex_m_hil.maintainers import executorch_suites as suite

run = suite._Stages._run


def told(stages, stage):
    with open("ran.txt", "a") as file:
        print(os.environ["PYTEST_CURRENT_TEST"], stage.stage_type().name, file=file)
    return run(stages, stage)


suite._Stages._run = told
"""


@pytest.mark.slow
def test_what_is_in_the_cache_is_not_lowered_again(tmp_path: Path) -> None:
    (tmp_path / "ran.py").write_text(RAN)
    ran = tmp_path / "ran.txt"
    tests = ("-k", "linear_rank2 or broadcast_1", *files("ops/test_linear.py", "ops/test_add.py"))
    made = upstream(tmp_path, "native", "-p", "ran", *tests)
    ran.unlink(missing_ok=True)  # somebody may have lowered them before
    found = upstream(tmp_path, "native", "-p", "ran", *tests)
    assert not ran.exists(), ran.read_text()
    assert found.count() == {"native": {"PASS": 2}} and found.cells == made.cells, found.text
    assert {cell.lowering for cells in found.cells.values() for cell in cells.values()} == {"found"}
    (tmp_path / "unknown.py").write_text(
        "from cortex_m_hil.maintainers import executorch_suites as suite\n"
        "suite._Stage._settings = lambda stage: object()\n"
    )
    anew = upstream(tmp_path, "native", "-v", "-p", "ran", "-p", "unknown", *tests)
    assert {cells["native"].lowering for cells in anew.cells.values()} == {"no key: a builtins.object"}
    assert "lowering: 0 found in the cache, 2 made" in anew.text and "a builtins.object" in anew.text
    assert {line.split()[-1] for line in ran.read_text().splitlines()} == {
        "QUANTIZE", "EXPORT", "TO_EDGE", "RUN_PASSES", "TO_EXECUTORCH", "SERIALIZE",
    }  # fmt: skip


# --- honesty -------------------------------------------------------------------------------------------------


def no_simulator(folder: Path) -> Path:
    """A folder for PATH, with a QEMU that tells its version and does not start."""
    broken = folder / "qemu-system-arm"
    broken.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'QEMU emulator version 7.2.0' && exit 0\nexit 3\n")
    broken.chmod(0o755)
    return folder


@pytest.mark.slow
def test_an_infra_error_is_no_expected_failure(tmp_path: Path) -> None:
    """With a simulator that does not start nothing is learnt, whatever a test expects."""
    path = str(no_simulator(tmp_path))
    done = upstream(tmp_path, "m4-qemu", "-k", "broadcast_1 and not int16", *files("ops/test_div.py"), path=path)
    assert done.status == 1
    assert done.count() == {"m4-qemu": {"INFRA": 1}}, done.text
    assert done.cells[f"{DIVISION}[broadcast_1]"]["m4-qemu"].error == "LaunchError"
    assert "1 failed" in done.text and "xfailed" not in done.text


@pytest.mark.slow
def test_the_operators_that_upstream_lacks_are_excluded_with_a_reason(tmp_path: Path) -> None:
    done = upstream(tmp_path, "native", "--runxfail", "-k", "broadcast_1 and not int16", *files("ops/test_div.py"))
    assert done.count() == {"native": {"FAIL": 1}}, done.text
    assert "no aten::div.out" in done.text and "excluded from ExecuTorch's tests" in done.text


SABOTAGE = """
import dataclasses

import pytest

import misbehaving
from cortex_m_hil.pytest_plugin import fixtures
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.maintainers import executorch_suites as suite

BAD = {"[m4-qemu-self_rank_1]": ("hang", misbehaving.BUSY), "[m4-qemu-self_rank_4]": ("fault", misbehaving.UNMAPPED)}


# A fixture of this name would win or lose by the order in which plugins are registered.
fixtures.build_runner = lambda target, runtime, _: build_runner(target, runtime, misbehaving.OPTIONS)


@pytest.fixture(autouse=True)
def sabotage(request, monkeypatch):
    for name, bad in BAD.items():
        if name in request.node.name:
            program = dataclasses.replace(misbehaving.bad(*bad), inputs=misbehaving.ones())
            monkeypatch.setattr(suite._Takeover, "_program", lambda *_: program)
"""


@pytest.mark.slow
def test_a_hang_and_a_crash_cost_only_themselves(tmp_path: Path) -> None:
    (tmp_path / "sabotage.py").write_text(SABOTAGE)
    chosen = ("-k", "not int16 and (self_rank or tensor_pos or broadcast_1)", *files("ops/test_div.py"))
    done = upstream(tmp_path, "m4-qemu", "-p", "sabotage", "--timeout-multiplier=0.1", *chosen)
    assert done.count() == {"m4-qemu": {"PASS": 1, "FAIL": 2, "XFAIL": 1}}, done.text
    assert done.cells[f"{DIVISION}[self_rank_1]"]["m4-qemu"].error == "TargetHang"
    assert done.cells[f"{DIVISION}[self_rank_4]"]["m4-qemu"].error == "TargetFault"
    assert "rerun: hil dev upstream --target=m4-qemu -- " in done.text


WRONG = """
import dataclasses

import pytest

from cortex_m_hil.flow import checking


@pytest.fixture(autouse=True)
def wrong(monkeypatch):
    execute = checking.execute

    def off_by_one(dut, session, program, *args):
        # The dialect alone sees it: the float output moves by one quantum, which upstream's tolerance allows.
        result = execute(dut, session, program, *args)
        (output,) = result.outputs
        array = output.array().copy()
        array.flat[0] -= program.file.dataflow.output_quantizations[0].scale
        return dataclasses.replace(result, outputs=(type(output).from_array(array, output.spec.dim_order),))

    monkeypatch.setattr(checking, "execute", off_by_one)
"""


def test_one_quantum_off_the_dialect_is_a_mismatch_though_upstream_tolerates_it(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    name = "ops/test_linear.py::test_implementation_linear[linear_rank1]"
    done = upstream(tmp_path, "native", "-p", "wrong", "-k", "linear_rank1", *files("ops/test_linear.py"))
    assert done.status == 1
    cell = done.cells[name]["native"]
    assert (cell.verdict, cell.error) == ("FAIL", "Mismatch"), done.text


@pytest.mark.slow
def test_a_test_that_runs_nothing_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "idle.py").write_text(
        textwrap.dedent(
            """
            import pytest
            from executorch.backends.cortex_m.test.tester import CortexMTester

            @pytest.fixture(autouse=True)
            def idle(monkeypatch):
                monkeypatch.setattr(CortexMTester, "test_implementation", lambda *args, **options: None)
            """
        )
    )
    done = upstream(tmp_path, "native", "-p", "idle", "-k", "broadcast_1 or tensor_pos", *files("ops/test_div.py"))
    # Those of test_implementation_div_int16 drive the tester by themselves.
    assert done.count() == {"native": {"INFRA": 2, "PASS": 1, "XFAIL": 1}}, done.text
    assert "passed and ran no program" in done.text


PEEKING = """
import dataclasses

import pytest

import misbehaving
from cortex_m_hil.pytest_plugin import fixtures
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.maintainers import executorch_suites as suite

fixtures.build_runner = lambda target, runtime, _: build_runner(target, runtime, misbehaving.OPTIONS)


@pytest.fixture(autouse=True)
def peeking(request, monkeypatch):
    if "linear_rank1" in request.node.name:
        program = dataclasses.replace(
            misbehaving.with_redzones(misbehaving.Misbehaving("peek", 64)), size_without_redzones=None
        )
        monkeypatch.setattr(suite._Takeover, "_program", lambda *_: program)
"""


@pytest.mark.slow
def test_redzones_watches_the_suites_programs_in_their_own_plans(tmp_path: Path) -> None:
    (tmp_path / "peeking.py").write_text(PEEKING)
    tests = ("-p", "peeking", "-k", "linear_rank1 or linear_bias", *files("ops/test_linear.py"))
    done = upstream(tmp_path, "native", "--redzones", *tests)
    one, other = (f"ops/test_linear.py::test_implementation_linear[linear_{case}]" for case in ("rank1", "bias"))
    assert (done.cells[one]["native"].error, done.cells[other]["native"].verdict) == ("LifetimeViolation", "PASS")
    assert "reads memory that holds no tensor" in done.text and "HilWarning" not in done.text
    assert re.search(r"^red zones: \d+ bytes? watched in 2 programs", done.text, re.MULTILINE)
    plain = upstream(tmp_path, "native", *tests).text
    assert "LifetimeViolation" not in plain and "red zones" not in plain
    assert "not run" not in plain and "cannot be imported" not in plain  # all can be


# --- the backend suite ---------------------------------------------------------------------------------------

STRICT = """
from executorch.backends.test.suite.flows.cortex_m import CORTEX_M_TEST_FLOW

CORTEX_M_TEST_FLOW.xfail_patterns = ["test_divide_f32_bcast_second"]
"""
WITHOUT_TORCHVISION = "import sys\nsys.modules['torchvision'] = None\n"
OPERATORS = (
    "operators/test_div.py::test_divide_f32_bcast_second",
    "operators/test_hardswish.py::test_hardswish_f32_single_dim",
    "operators/test_linear.py::test_linear_feature_sizes",
    "operators/test_linear.py::test_linear_no_bias",  # 64 features for a layer that takes 67
    "models/test_torchvision.py",
)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], pytest.param(["-n1"], marks=pytest.mark.slow)], ids=["single", "xdist"])
def test_the_cortex_m_flow_of_the_backend_suite_runs(tmp_path: Path, workers: list[str]) -> None:
    """No FVP on PATH. What failed is told in its own words, not in those of the suite's runner."""
    (tmp_path / "without.py").write_text(WITHOUT_TORCHVISION)
    done = upstream(tmp_path, "native", "-p", "without", "-rs", *workers, *OPERATORS, backend_suite=True)
    assert done.status == 1, done.text
    found = {
        test.partition("::")[2]: (cells["native"].verdict, cells["native"].error) for test, cells in done.cells.items()
    }
    assert found == {
        "test_divide_f32_bcast_second[cortex_m]": ("PASS", ""),
        "test_hardswish_f32_single_dim[cortex_m]": ("FAIL", "LintError"),
        "test_linear_feature_sizes[cortex_m]": ("PASS", ""),
        "test_linear_no_bias[cortex_m]": ("SKIP", ""),
    }
    assert "operator 2, aten_hardswish_default: self is int8[20], the operator takes float32, and " in done.text
    assert "ExecuTorch has no aten::hardswish.out: 1 test for builtin alone" in done.text
    assert "for reasons other than backend failure" in done.text
    assert "models/test_torchvision.py: no package torchvision; 20 test functions not run" in done.text
    assert "rerun: hil dev upstream --backend-suite --target=native -- " in done.text


@pytest.mark.slow
def test_what_its_flow_expects_to_fail_lacks_the_operators_that_upstream_lacks(tmp_path: Path) -> None:
    (tmp_path / "strict.py").write_text(STRICT)
    done = upstream(tmp_path, "native", "-p", "strict", OPERATORS[0], backend_suite=True)
    (cells,) = done.cells.values()
    assert done.status == 0 and (cells["native"].verdict, cells["native"].error) == ("XFAIL", "UnsupportedOperator")


@pytest.mark.slow
def test_one_quantum_off_the_dialect_is_a_mismatch_though_its_flow_tolerates_a_tenth(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    done = upstream(tmp_path, "native", "-p", "wrong", OPERATORS[2], backend_suite=True)
    (cells,) = done.cells.values()
    assert (cells["native"].verdict, cells["native"].error) == ("FAIL", "Mismatch"), done.text


@pytest.mark.slow
def test_an_infra_error_is_not_lost_in_its_runner(tmp_path: Path) -> None:
    done = upstream(tmp_path, "m4-qemu", OPERATORS[2], path=str(no_simulator(tmp_path)), backend_suite=True)
    (cells,) = done.cells.values()
    assert (cells["m4-qemu"].verdict, cells["m4-qemu"].error) == ("INFRA", "LaunchError"), done.text


# --- what is not run, and what is not taken ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-n1"]], ids=["single", "xdist"])
def test_a_module_that_cannot_be_imported_is_named_and_counted(tmp_path: Path, workers: list[str]) -> None:
    (tmp_path / "without.py").write_text(WITHOUT_TORCHVISION)
    named = files("models/test_mobilenet_v2.py", "models/test_deep_autoencoder.py")
    done = upstream(tmp_path, "native", "-p", "without", *workers, *named)
    assert done.status == 0 and done.count() == {"native": {"PASS": 1}}, done.text
    assert "1 module that cannot be imported" in done.text
    line = "models/test_mobilenet_v2.py: no package torchvision; 1 test function not run"
    assert f"{line} (pip install 'executorch-cortex-m-hil[upstream]')" in done.text


@pytest.mark.slow
def test_a_test_is_named_from_the_suites_folder(tmp_path: Path) -> None:
    """As a report names it, and nightly.yaml may."""
    done = upstream(tmp_path, "native", "ops/test_add.py::test_implementation_add", "--collect-only", "-q")
    assert done.status == 0 and "ops/test_add.py::test_implementation_add" in done.text, done.text


@pytest.mark.slow
def test_wrong_options_are_told_in_a_line(tmp_path: Path) -> None:
    unknown = upstream(tmp_path, "m4-qem")
    assert unknown.status == 2 and "did you mean 'm4-qemu'" in unknown.text
    other = upstream(tmp_path, "native", "operators/test_add.py")
    assert other.status == 2 and "is of ExecuTorch's backend tests: with --backend-suite" in other.text
    elsewhere = upstream(tmp_path, "native", "test_add.py")
    assert elsewhere.status == 2 and "is it ops/test_add.py?" in elsewhere.text
    theirs = upstream(tmp_path, "native", "--cortex-m-target=cortex-m4")
    assert theirs.status == 2 and "--target names what the suite is run on" in theirs.text
    assert "Traceback" not in unknown.text + theirs.text


def test_a_board_that_is_not_there_is_told_once(tmp_path: Path) -> None:
    done = upstream(tmp_path, "native,rpi-pico")
    assert done.status == 2 and "PortNotFound: no port" in done.text and "collected" not in done.text


def test_an_option_of_pytest_before_the_dashes_is_told_where_it_goes(tmp_path: Path) -> None:
    call = [sys.executable, "-m", "cortex_m_hil.cli", "dev", "upstream", "-t", "native", "-k", "linear"]
    done = subprocess.run(
        call, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 2 and "No such option: -k; pytest's own options go after --: -- -k …" in done.stderr


# --- the parts -----------------------------------------------------------------------------------------------


def test_implementation_tests_are_known_without_an_import() -> None:
    found = {path.name: suite.implementation_tests(path) for path in SUITE.rglob("test_*.py")}
    assert found["test_mobilenet_v2.py"] == {"test_implementation_mv2"}
    assert found["test_portable_int8.py"] == {"test_shared_qspec_portable_int8_ops_fvp"}
    assert found["test_explicit_layout.py"] == {"test_explicit_conv1d_runs_on_fvp"}
    assert found["test_pattern_matcher.py"] == frozenset()
    assert not any(name.startswith("test_dialect") for names in found.values() for name in names)
    backends = suite.find_backend_suite()
    assert len(suite.implementation_tests(backends / "models" / "test_torchvision.py")) == 20
    assert len(suite.implementation_tests(backends / "operators" / "test_linear.py")) == 7
    assert suite.implementation_tests(backends / "tests" / "test_reporting.py") == frozenset()


@pytest.mark.slow
def test_the_suite_of_a_checkout_is_found(tmp_path: Path) -> None:
    package = tmp_path / "executorch" / "backends" / "cortex_m"
    for folder in (package.parents[1], package.parent, package):
        folder.mkdir(exist_ok=True, parents=True)
        (folder / "__init__.py").touch()
    call = [
        sys.executable,
        "-c",
        "from cortex_m_hil.maintainers import executorch_suites; print(executorch_suites.find_suite())",
    ]
    there = environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{IMPORT_ROOT}")
    missing = subprocess.run(call, env=there, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert missing.returncode != 0 and ToolchainError.__name__ in missing.stderr
    (package / "test").mkdir()
    (package / "test" / "tester.py").touch()
    found = subprocess.run(call, env=there, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert found.stdout.strip() == str((package / "test").resolve()), found.stderr
    older = subprocess.run(
        [*call[:2], call[2].replace("find_suite()", "find_backend_suite()")], env=there, capture_output=True, text=True,
        timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert "no backend suite with a Cortex-M flow" in older.stderr


@pytest.mark.parametrize(
    ("name", "cpu", "isa"),
    [("m4-qemu", "M4", "DSP"), ("m55-dsp-qemu", "M55", "DSP"), ("m0plus-fvp", "M0PLUS", "SCALAR")],
)
def test_a_configuration_has_the_cpu_and_the_class(name: str, cpu: str, isa: str) -> None:
    config = suite.configuration(TARGETS[name])
    assert (config.cpu.name, config.backend.name) == (cpu, isa)


@pytest.mark.slow
def test_sharing_the_front_of_the_lowering_changes_no_byte() -> None:
    """The same module for three targets in a row, and each of them by upstream's tester alone."""
    import torch
    from executorch.backends.cortex_m.target_config import CortexMTargetConfig
    from executorch.backends.cortex_m.test.tester import CortexMTester

    module: Any = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4)
    )
    inputs = (torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last),)

    def lowered(target: str) -> bytes:
        config = CortexMTargetConfig.from_target_string(target)
        tester = CortexMTester(module.to(memory_format=torch.channels_last), inputs, target_config=config)
        tester.quantize().export().to_edge().run_passes().to_executorch().serialize()
        return bytes(tester.get_artifact())

    suite.clear_cache()
    programs = {}
    for name in ("m55-qemu", "m4-qemu", "m0-qemu"):
        with suite.taken_over("test", TARGETS[name], lambda _: ()):
            # The argument is what upstream's own model tests pass; the target's configuration counts.
            programs[name] = lowered("cortex-m55")
    # Quantised, exported and brought to edge once for all three.
    assert (suite.stages.misses, suite.stages.hits, suite.stages.unkeyed) == (3, 6, 0)
    assert programs == {name: lowered(TARGETS[name].cpu) for name in programs}
    assert programs["m55-qemu"] != programs["m4-qemu"]
    assert {TARGETS[name].isa for name in programs} == set(Isa)


SPY = """
import hashlib

def pytest_collection_finish(session):
    drawn = hashlib.sha256()
    for item in session.items:
        module = getattr(item.callspec.params["test_case"], "model", None)
        for name, value in module.state_dict().items():
            drawn.update(name.encode() + value.numpy().tobytes())
    print("weights", drawn.hexdigest())
"""


@pytest.mark.slow
def test_modules_have_the_weights_that_upstreams_own_command_gives_them(tmp_path: Path) -> None:
    """They are drawn when test files are imported, which upstream seeds; a tolerance of its own may fit no others."""
    (tmp_path / "spy.py").write_text(SPY)
    chosen = ["--collect-only", "-pspy", "-s", "-k", "test_implementation", *files("ops/test_activation_quant.py")]
    here = upstream(tmp_path, "native", *chosen)
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "no:cacheprovider", *chosen]
    there = subprocess.run(
        command, env=environment(PYTHONPATH=path), cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE,
        check=False,
    )  # fmt: skip
    (drawn,) = re.findall("^weights (.*)", there.stdout, re.MULTILINE)
    assert re.findall("^weights (.*)", here.text, re.MULTILINE) == [drawn]


@pytest.mark.slow
def test_the_suites_own_seed_is_that_of_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ["--collect-only", "--hil-seed=3", *files("ops/test_div.py")]
    assert "TEST_SEED=3" in upstream(tmp_path, "native", *chosen).text
    monkeypatch.setenv("TEST_SEED", "5")
    done = upstream(tmp_path, "native", *chosen)
    assert done.status == 2 and "TEST_SEED has no meaning here: --hil-seed=N" in done.text


# --- without a plugin ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_upstreams_own_command_runs_on_an_installed_runner(tmp_path: Path) -> None:
    """No code of this project in that pytest: its tests find a model on PATH and a runner in EXECUTORCH_ROOT."""
    shim = tmp_path / "shim"
    install = [sys.executable, "-m", "cortex_m_hil.cli", "dev", "fvp-shim", "install", str(shim), "--runner", "m0-qemu"]
    subprocess.run(install, env=environment(), check=True, capture_output=True, timeout=DEADLINE)
    call = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "no:cacheprovider", "--cortex-m-target=cortex-m0"]
    call += [*files("ops/test_div.py"), "-k", "implementation_div and not int16 and (broadcast or tensor_pos)"]
    there = environment(EXECUTORCH_ROOT=str(shim), PATH=f"{shim}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(call, env=there, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout and "2 xfailed" in done.stdout


@pytest.mark.slow
def test_a_runner_for_upstream_lacks_what_the_plugin_withholds_and_nothing_else() -> None:
    native = resolve("native", TARGETS)
    with flow.open_dut(native) as whole, flow.open_dut(native, options=WITHOUT_PORTABLE) as lacking:
        left_out = set(whole.session().identity.operators) - set(lacking.session().identity.operators)
    assert left_out == set(portable_operators())
    assert {"aten::div.out", "aten::_softmax.out", "aten::relu.out"} <= left_out


def test_a_runner_that_upstream_cannot_name_is_refused(tmp_path: Path) -> None:
    for name, reason in (("m55-dsp-qemu", "only as MVE"), ("native", "not on QEMU")):
        install = [
            sys.executable,
            "-m",
            "cortex_m_hil.cli",
            "fvp-shim",
            "install",
            str(tmp_path / "x"),
            "--runner",
            name,
        ]
        done = subprocess.run(install, env=environment(), capture_output=True, text=True, timeout=DEADLINE, check=False)
        assert done.returncode == 2 and reason in done.stderr
        assert not (tmp_path / "x").exists()
