"""`--hil-bundles`: a failure by a verdict leaves one file, which the report names."""

from __future__ import annotations

import re

import pytest

from cortex_m_hil.diagnose.failure_bundle_file import read_bundle
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.pytest_plugin import failure_bundles
from paths import REPOSITORY

pytest_plugins = ["pytester"]

CACHE = cache_directory()  # before pytester moves HOME
DEADLINE = 300.0  # seconds
TESTS = """
import pytest
from cortex_m_hil import Isa
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.errors import LaunchError, LintError

def run(run_pte, isa):
    known = known_answer(isa)
    run_pte(known.program, known.inputs)

def test_fails(run_pte): run(run_pte, Isa.MVE)
def test_passes(run_pte): run(run_pte, Isa.SCALAR)
def test_raises(run_pte):
    with pytest.raises(LintError):
        run(run_pte, Isa.MVE)
    assert False
@pytest.mark.xfail_on("native", reason="another class", raises=LintError)
def test_expected(run_pte): run(run_pte, Isa.MVE)
def test_infra(hil): raise LaunchError("gone")
def test_call(run_pte): run_pte(known_answer(Isa.SCALAR).program, ())
def test_no_program(run_pte): run_pte(b"no program")
"""


@pytest.fixture(autouse=True)
def shared_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIL_CACHE_DIR", str(CACHE))


@pytest.mark.first_only
@pytest.mark.parametrize("workers", [[], ["-n1"]], ids=["single", "xdist"])
def test_the_failure_of_a_program_leaves_one(pytester: pytest.Pytester, workers: list[str]) -> None:
    """Neither what a test expects, nor infra errors, nor what is no program; and a later one takes its place."""
    pytester.makepyfile(test_it=TESTS)
    arguments = ["--target=native", "--hil-bundles=new/out", "--hil-seed=3", "--junit-xml=report.xml", *workers]
    result = pytester.runpytest_subprocess(*arguments, timeout=DEADLINE)
    result.assert_outcomes(passed=1, failed=4, xfailed=1, errors=1)
    (path,) = (pytester.path / "new" / "out").iterdir()
    assert re.fullmatch(r"test_it\.py_test_fails_native_-[0-9a-f]{8}\.hil\.zip", path.name)
    result.stdout.fnmatch_lines(["*- replay -*", f"hil replay new/out/{path.name}"])
    report = (pytester.path / "report.xml").read_text()
    assert report.count(f'<property name="hil_bundle" value="new/out/{path.name}"') == 1
    first = read_bundle(path).description
    assert (first.test, first.seed, first.verdict.type) == ("test_it.py::test_fails[native]", 3, "LintError")
    assert first.rerun == "pytest --hil-target=native --hil-seed=3 'test_it.py::test_fails[native]'"
    if not workers:
        pytester.runpytest_subprocess(*arguments, "--hil-seed=4", "-k", "test_fails", timeout=DEADLINE)
        (again,) = (pytester.path / "new" / "out").iterdir()
        assert again == path and read_bundle(path).description.seed == 4


def test_a_folder_that_cannot_be_written_loses_no_verdict(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=f"{TESTS}\nopen('file', 'w').close()")
    arguments = ["--target=native", "--hil-bundles=file", "-k", "test_fails"]
    result = pytester.runpytest_subprocess(*arguments, timeout=DEADLINE)
    result.assert_outcomes(failed=1, deselected=6)
    result.stdout.fnmatch_lines(["*- replay -*", "no bundle: cannot write *", "*FAIL LintError*"])


@pytest.mark.slow
def test_what_was_localised_is_in_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import torch
        from cortex_m_hil import Isa

        class Model(torch.nn.Linear):
            def forward(self, x):
                return torch.nn.functional.linear(x, self.weight, self.bias)

        def test_linear(hil):
            hil.check(Model(16, 8), (torch.rand(1, 16),), isa=Isa.MVE, lint=False)
        """
    )
    arguments = ["--target=native", "--hil-bundles=out", "--hil-localize"]
    pytester.runpytest_subprocess(*arguments, timeout=DEADLINE).assert_outcomes(failed=1)
    (path,) = (pytester.path / "out").iterdir()
    found = read_bundle(path)
    assert found.description.verdict.type == "Mismatch" and len(found.outputs) == 1
    assert len(found.intermediates) == len(found.task.program.file.instructions) == 3
    assert found.intermediates[1].source.endswith("test_it.py:6") and found.intermediates[1].dialect
    assert found.references.quantized is not None and found.references.disturbed


def test_the_page_names_a_bundle_as_its_test_does() -> None:
    named = re.findall(r"out/(test_\S+\.hil\.zip)", (REPOSITORY / "docs" / "failures.md").read_text())
    assert len(named) >= 3 and {*named} == {failure_bundles._name("test_model.py::test_model[m4-qemu]")}


@pytest.mark.parametrize("option", ["--hil-bundles", "--keep-programs"])
def test_a_folder_that_cannot_be_is_told_before_any_test_runs(pytester: pytest.Pytester, option: str) -> None:
    pytester.makepyfile(test_it=TESTS)
    result = pytester.runpytest_subprocess("--target=native", f"{option}=test_it.py", timeout=DEADLINE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{option} 'test_it.py': * is no folder*"])
