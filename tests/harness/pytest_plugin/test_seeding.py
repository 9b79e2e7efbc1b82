"""What a test draws follows from `--hil-seed` alone: not from its name, the order, the process or other tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
DEADLINE = 300.0  # seconds

CONFTEST = """
import json
import os
import random
import numpy
import pytest
import shared

LEVEL = random.random()

def fixture(scope):
    @pytest.fixture(scope=scope, name=f"of_{scope}")
    def weights():
        yield [random.random(), float(numpy.random.rand())]
        random.random()
    return weights

of_session, of_package, of_module, of_class, of_function = map(
    fixture, ("session", "package", "module", "class", "function"))

@pytest.fixture(scope="module")
def changing(request):
    yield random.random()
    random.random()  # within the setup of the next test, where the parameter is another

@pytest.fixture
def level():
    return LEVEL

@pytest.fixture
def record():
    def write(**found):
        with open(os.environ["RECORD"], "a") as file:
            file.write(json.dumps(found) + "\\n")
    return write
"""
SHARED = "import random\nLEVEL = random.random()\n"
MODULE = """
import random
import pytest
import shared

LEVEL = random.random()

def pytest_generate_tests(metafunc):
    if "generated" in metafunc.fixturenames:
        metafunc.parametrize("generated", [random.random()], ids=["x"])

def test_plain(record, of_session):
    record(plain=random.random())

@pytest.mark.parametrize("changing", [1, 2], indirect=True)
def test_changing(target_spec, changing, of_function, record):
    record(of_function=of_function, own=random.random(), wide=changing)

def test_session(target_spec, of_session, record):
    record(of_session=of_session, own=random.random(), level=LEVEL)

def test_package(target_spec, of_package, record):
    record(of_package=of_package, own=random.random(), shared=shared.LEVEL)

def test_module(target_spec, of_module, level, record):
    record(of_module=of_module, own=random.random(), conftest=level)

class TestIt:
    def test_class(self, target_spec, of_class, record):
        record(of_class=of_class, own=random.random())

def test_function(target_spec, of_function, request, record):
    record(of_function=of_function, own=random.random(), of_module=request.getfixturevalue("of_module"))

def test_all(target_spec, of_function, of_class, of_module, of_package, of_session, generated, record):
    record(of_session=of_session, of_class=of_class, of_function=of_function, own=random.random(), made=generated)
    assert False
"""


class Suite:
    """A suite that writes down what its tests draw."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pytester = pytester
        self._record = pytester.path / "record"
        monkeypatch.setenv("RECORD", str(self._record))
        pytester.makepyfile(**{"conftest": CONFTEST, "shared": SHARED, "test_one": MODULE, "test_two": MODULE})
        pytester.makeini("[pytest]\npythonpath = .\n")

    @property
    def folder(self) -> Path:
        return self._pytester.path

    def run(self, *arguments: str) -> dict[str, object]:
        """What was drawn, by what it is; "own" and the fixtures must be the same in all tests of the run."""
        self._record.unlink(missing_ok=True)
        self.result = self._pytester.runpytest_subprocess("--target=native", *arguments, timeout=DEADLINE)
        found: dict[str, object] = {}
        for line in self._record.read_text().splitlines():
            for name, value in json.loads(line).items():
                assert name == "plain" or found.setdefault(name, value) == value, (line, found)
                found[name] = value
        return found


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    return Suite(pytester, monkeypatch)


@pytest.mark.slow
def test_what_a_test_draws_depends_on_nothing_but_the_seed(suite: Suite) -> None:
    """Both modules, one test alone, workers, the last failed, the first failed: each number is what it was."""
    every = suite.run()
    suite.result.assert_outcomes(passed=16, failed=2)
    rerun = next(line for line in suite.result.stdout.lines if line.startswith("rerun: pytest "))
    drawn = [json.dumps(value) for value in every.values()]
    assert len(set(drawn)) == len(drawn) - 3, every  # the four that are drawn for a module are the same
    again = rerun.removeprefix("rerun: pytest ").replace("'", "").split()
    runs = [
        ["-k", "test_package"],
        ["-k", "TestIt"],
        ["-n2"],
        ["--lf"],
        ["-x", "-p", "no:randomly", "test_two.py"],
        again,
    ]
    for arguments in runs:
        found = suite.run(*arguments)
        assert found and found.pop("plain", None) != every["plain"], arguments
        assert found.items() <= every.items(), arguments


def test_a_renamed_test_draws_the_same(suite: Suite) -> None:
    before = suite.run("-k", "test_all")
    suite.folder.joinpath("test_two.py").unlink()
    suite.folder.joinpath("test_one.py").write_text(MODULE.replace("test_all", "test_it"))
    assert suite.run("-k", "test_it") == before


def test_another_seed_changes_everything_and_is_told(suite: Suite) -> None:
    first, second = suite.run("-k", "test_all"), suite.run("-k", "test_all", "--hil-seed=3", "--junit-xml=report.xml")
    assert not any(first[name] == second[name] for name in first)
    suite.result.stdout.fnmatch_lines(["hil: seed 3", "*- seed -*", "--hil-seed=3", "rerun: pytest*--hil-seed=3*"])
    assert '<property name="hil_seed" value="3"' in (suite.folder / "report.xml").read_text()


SEEDING_PLUGIN = """
import random

def pytest_runtest_setup(item):
    random.seed()

def pytest_runtest_call(item):
    random.seed()
"""


@pytest.mark.first_only
@pytest.mark.parametrize("order", ["entry point", "late"])
def test_another_plugin_that_seeds_changes_nothing(suite: Suite, order: str) -> None:
    """In the manner of pytest-randomly, whose seed is another in each run."""
    before = suite.run("-k", "not plain")
    suite.folder.joinpath("other.py").write_text(SEEDING_PLUGIN)
    if order == "late":
        suite.folder.joinpath("conftest.py").write_text(CONFTEST + SEEDING_PLUGIN)
    assert suite.run("-k", "not plain", *(["-p", "other"] if order == "entry point" else [])) == before


def test_without_a_target_nothing_is_seeded(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import random, sys
        LEVEL = random.random()
        def test_it():
            open("record", "a").write(f"{LEVEL} {random.random()}\\n")
            assert not any(type(one).__name__ == "ModuleSeeder" for one in sys.meta_path)
    """)
    for _ in range(2):
        pytester.runpytest_subprocess(timeout=DEADLINE).assert_outcomes(passed=1)
    lines = (pytester.path / "record").read_text().split()
    assert len(set(lines)) == 4
