"""Which tree a command's Python processes import from: the repository's checkout fails, its worktree passes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cortex_m_hil.campaigns.bisection.bisect import run_test
from cortex_m_hil.campaigns.bisection.run_verdicts import Rules, RunJudgement, RunVerdict
from cortex_m_hil.campaigns.git_history import Repository, Worktree, variables
from cortex_m_hil.campaigns.provenance import Provenance
from repositories import Repository as Made

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hil"]
INI = '[tool.pytest.ini_options]\npythonpath = ["src"]\n'
TEST = "from net import WEIGHT\n\ndef test_net():\n    assert WEIGHT == 1\n"
LOAD = """
import importlib.util, pathlib, sys
spec = importlib.util.spec_from_file_location("net", pathlib.Path(__file__).parent / "src/net.py")
sys.modules["net"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["net"])
"""
# As setuptools writes one for packages that lie in several folders.
FINDER = """
import sys
from importlib.util import spec_from_file_location

MAPPING = {{"net": {path!r}}}

class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return spec_from_file_location(name, MAPPING[name]) if name in MAPPING else None

def install():
    sys.meta_path.append(Finder)
"""


@dataclass
class Project:
    """A repository of two commits, of which the old one is in a worktree; the new one's weight is wrong."""

    made: Made
    tree: Path
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    built: float | None = None
    unseen_build: bool = False

    @property
    def top(self) -> Path:
        return self.made.path

    def judge(self, *command: object, python: str = "") -> RunJudgement:
        words = [str(one).replace("{worktree}", str(self.tree)) for one in command]
        old = self.made.commits[0]
        environment = {**variables(self.tree, python, old), **self.environment}
        tested = Provenance(
            Repository(self.top), self.tree, self.folder / "provenance", self.made.commits, python, self.built,
            unseen_build=self.unseen_build,
        )  # fmt: skip
        return run_test(words, Rules(), 120, self.folder, self.folder / "log", environment, provenance=tested)


Begin = Callable[..., Project]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """A project of these files; `weight` is the one that differs."""
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def begun(weight: str = "src/net.py", **files: str) -> Project:
        made = Made(tmp_path / "project")
        made.commit({**files, weight: "WEIGHT = 1\n"})
        made.commit({weight: "WEIGHT = 0\n"})
        tree = Worktree(Repository(made.path), tmp_path / "tree", incremental=False)
        tree.add(made.commits[0])
        tree.check_out(made.commits[0])
        (tmp_path / "work").mkdir()
        monkeypatch.chdir(made.path)
        return Project(made, tree.path, tmp_path / "work")

    return begun


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# --- imports that come from the worktree ----------------------------------------------------------------------


@pytest.mark.first_only
@pytest.mark.parametrize(
    "option", [(), ("--import-mode=importlib",), ("-n", "1")], ids=["prepend", "importlib", "xdist"]
)
def test_a_folder_of_pytests_configuration(option: tuple[str, ...], begin: Begin) -> None:
    project = begin(**{"pyproject.toml": INI, "tests/__init__.py": ""})
    test = write(project.top / "tests/test_new.py", TEST)  # no commit has it
    assert project.judge(*PYTEST, *option, test).told is RunVerdict.PASS


@pytest.mark.slow
def test_pythonpath_to_another_checkout_still_imports_the_worktree(begin: Begin) -> None:
    project = begin(**{"test_net.py": TEST})
    assert project.judge("env", f"PYTHONPATH={project.top}/src", *PYTEST).told is RunVerdict.PASS
    project.environment["PYTHONPATH"] = "src"
    assert project.judge(sys.executable, "-c", TEST + "test_net()").told is RunVerdict.PASS


def test_a_path_that_a_conftest_inserts(begin: Begin) -> None:
    """Beside a helper of the tests, one that no commit has, and a module of the project that is named as a test is."""
    inserts = 'import pathlib, sys\nsys.path.insert(0, str(pathlib.Path(__file__).parent / "src"))\n'
    project = begin(**{"conftest.py": inserts, "src/test_weight.py": "from net import WEIGHT\n"})
    write(project.top / "helper.py", "import test_weight\n\ndef right():\n    return test_weight.WEIGHT == 1\n")
    test = write(project.top / "test_net.py", "import helper\n\ndef test_net():\n    assert helper.right()\n")
    assert project.judge(*PYTEST, test).told is RunVerdict.PASS


def test_modules_beside_the_test_are_imported_from_the_worktree(begin: Begin) -> None:
    project = begin("net.py", **{"test_net.py": TEST})
    assert project.judge(*PYTEST).told is RunVerdict.PASS


def test_the_worktrees_own_test_and_configuration(begin: Begin) -> None:
    project = begin(**{"pyproject.toml": INI, "tests/conftest.py": "", "tests/test_net.py": TEST})
    write(project.top / "tests/test_net.py", TEST.replace("1", "2"))
    assert project.judge(*PYTEST, "{worktree}/tests").told is RunVerdict.PASS


def environment_with(path: Path, name: str, line: str) -> Path:
    """The interpreter of a virtual environment that sees this one's packages, with a line of a .pth file."""
    venv.create(path, symlinks=True, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(path), "platbase": str(path)}))
    write(site / f"{name}.pth", line)
    write(site / "_outer.pth", sysconfig.get_path("purelib") + "\n")
    return path / "bin/python"


@pytest.mark.parametrize("kind", ["path", "finder"])
def test_an_editable_install_still_imports_the_worktree(kind: str, begin: Begin, tmp_path: Path) -> None:
    project = begin(**{"test_net.py": TEST})
    file = write(tmp_path / "site/editable.py", FINDER.format(path=str(project.top / "src/net.py")))
    lines = {
        "path": f"{project.top}/src\n",
        "finder": f"import sys; sys.path.append({str(file.parent)!r}); import editable; editable.install()\n",
    }
    python = environment_with(project.top / ".venv", "net", lines[kind])  # in the repository, of which it is no source
    assert project.judge(python, *PYTEST[1:]).told is RunVerdict.PASS


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hatchling", "setuptools"])
def test_an_editable_install_by_pip_still_imports_the_worktree(backend: str, begin: Begin, tmp_path: Path) -> None:
    build = {"hatchling": "hatchling.build", "setuptools": "setuptools.build_meta"}
    lines = ["[build-system]", f'requires = ["{backend}"]', f'build-backend = "{build[backend]}"']
    lines += ["[project]", 'name = "net"', 'version = "1"', "[tool.hatch.build.targets.wheel]"]
    lines += ['only-include = ["src"]', 'dev-mode-dirs = ["src"]', "[tool.setuptools]", 'py-modules = ["net"]']
    lines += ['package-dir = {"" = "src"}']
    project = begin(**{"pyproject.toml": "\n".join(lines), "test_net.py": TEST})
    python = environment_with(tmp_path / "venv", "none", "")
    install = [python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index", "-e", project.top]
    subprocess.run([str(word) for word in install], check=True, timeout=300)
    assert project.judge(python, *PYTEST[1:]).told is RunVerdict.PASS


@pytest.mark.slow
def test_a_clone_of_the_same_project_is_mapped_to_the_worktree_or_refused(begin: Begin, tmp_path: Path) -> None:
    """By the project's name it is mapped; without one it is known by its commits, and told."""
    project = begin(**{"pyproject.toml": '[project]\nname = "the-net"\n', "test_net.py": TEST})
    clone = tmp_path / "clone"
    project.made.git("clone", "--quiet", str(project.top), str(clone))
    project.environment["PYTHONPATH"] = str(clone / "src")
    assert project.judge(*PYTEST).told is RunVerdict.PASS
    for top in (clone, project.tree):
        (top / "pyproject.toml").unlink()
    elsewhere(project.judge(*PYTEST), f"src/net.py (net) was executed from {clone}, and not from the")
    Made(tmp_path / "stranger").commit({"src/net.py": "WEIGHT = 1\n"})  # as another project may be called
    project.environment["PYTHONPATH"] = str(tmp_path / "stranger/src")
    assert project.judge(*PYTEST, "{worktree}/test_net.py").told is RunVerdict.PASS


NAMESPACE = """
import importlib.resources, pathlib, subprocess, sys
import spaced.net, weighty

def test_net(tmp_path):
    assert spaced.net.WEIGHT == 1
    assert all("project" not in one for one in spaced.__path__)
    assert weighty.data() == b"1"
    command = [sys.executable, "-c", "import spaced.net; assert spaced.net.WEIGHT == 1"]
    subprocess.run(command, env={"PYTHONPATH": str(pathlib.Path(__file__).parent / "src")}, cwd=tmp_path, check=True)
"""


def test_namespaces_data_beside_modules_and_processes_that_tests_start(begin: Begin) -> None:
    data = 'from pathlib import Path\n\ndef data():\n    return (Path(__file__).parent / "data").read_bytes()\n'
    files = {"pyproject.toml": INI, "src/weighty/__init__.py": data, "src/weighty/data": "1", "test_net.py": NAMESPACE}
    project = begin("src/spaced/net.py", **files)
    write(project.top / "src/weighty/data", "0")
    assert project.judge(*PYTEST).told is RunVerdict.PASS


# --- what is no source of the project -------------------------------------------------------------------------


def test_packages_in_the_repository_that_are_none_of_its_sources(begin: Begin) -> None:
    """An environment's, those of `pip install --target`, and another repository's, which only its own git tracks."""
    imports = "import installed, vendored, nested\n" + TEST
    project = begin(**{"pyproject.toml": INI, ".gitignore": "vendor\nnested\n.venv\n", "test_net.py": imports})
    write(project.top / ".venv/lib/python3/site-packages/installed.py", "")
    write(project.top / "vendor/vendored-1.dist-info/METADATA", "Name: vendored\n")
    write(project.top / "vendor/vendored.py", "")
    Made(project.top / "nested").commit({"nested.py": ""})
    folders = [".venv/lib/python3/site-packages", "vendor", "nested"]
    project.environment["PYTHONPATH"] = os.pathsep.join(str(project.top / one) for one in folders)
    assert project.judge(*PYTEST).told is RunVerdict.PASS


def test_the_users_sitecustomize_is_executed_as_well(begin: Begin, tmp_path: Path) -> None:
    project = begin()
    write(tmp_path / "site/sitecustomize.py", "import builtins\nbuiltins.there = True\n")
    project.environment["PYTHONPATH"] = str(tmp_path / "site")
    assert project.judge(sys.executable, "-c", "assert there").told is RunVerdict.PASS


# --- what is no verdict on the worktree -----------------------------------------------------------------------


def elsewhere(judged: RunJudgement, *texts: str) -> None:
    assert judged.told is RunVerdict.ELSEWHERE
    for text in texts:
        assert text in f"{judged.why}; {judged.hint}"


def test_a_module_that_is_loaded_by_its_path(begin: Begin) -> None:
    project = begin(**{"conftest.py": LOAD, "test_net.py": TEST})
    line = f"{project.top}/conftest.py:5 loads it by its path"
    elsewhere(
        project.judge(*PYTEST), f"src/net.py (net) was executed from {project.top}", line, "import it by its name"
    )


@pytest.mark.slow
def test_build_products_that_only_the_checkout_has(begin: Begin) -> None:
    """A generated module that git ignores, and an extension module that it does not know."""
    project = begin(**{"pyproject.toml": INI, ".gitignore": "version.py\n", "src/pack/__init__.py": ""})
    write(project.top / "src/pack/version.py", "")
    test = write(project.top / "test_net.py", "import pack.version\n" + TEST)
    elsewhere(project.judge(*PYTEST), "src/pack/version.py (pack.version), a build product", "--build LINE make")
    found = importlib.util.find_spec("markupsafe._speedups")
    assert found is not None and found.origin is not None
    product = project.top / "src/pack" / Path(found.origin).name
    product.write_bytes(Path(found.origin).read_bytes())
    write(test, "import pack._speedups\n" + TEST)
    elsewhere(project.judge(*PYTEST), f"src/pack/{product.name}", "a build product")


def test_a_module_that_this_commit_lacks(begin: Begin) -> None:
    """The user's test asks for what came later: the checkout's is not this commit's."""
    project = begin(**{"pyproject.toml": INI, "test_net.py": "import later\n" + TEST})
    project.made.commit({"src/later.py": ""})
    hint = f"--build 'mkdir -p src; cp {project.top}/src/later.py src/later.py'"
    elsewhere(project.judge(*PYTEST), "import src/later.py (later), which this commit lacks", hint)


def installed_copy(site: Path, top: Path) -> None:
    write(site / "net.py", "WEIGHT = 1\n")
    write(site / "net-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: net\nVersion: 1\n")
    write(site / "net-1.dist-info/RECORD", "net.py,,\n")
    write(site / "net-1.dist-info/direct_url.json", f'{{"url": "file://{top}", "dir_info": {{}}}}')


@pytest.mark.slow
def test_a_copy_of_the_project_that_is_installed(begin: Begin, tmp_path: Path) -> None:
    """Also where the test is the worktree's. A copy that the build has installed is this commit's."""
    project = begin(**{"test_net.py": TEST})
    installed_copy(tmp_path / "site", project.top)
    project.environment["PYTHONPATH"] = str(tmp_path / "site")
    expected = f"{tmp_path}/site/net.py was executed, of net 1 as it is installed, and not src/net.py", "--python src"
    elsewhere(project.judge(*PYTEST), *expected)
    elsewhere(project.judge(*PYTEST, "{worktree}/test_net.py"), *expected)
    project.built = time.time() + 3600
    elsewhere(project.judge(*PYTEST), "the tests used nothing of the commit's worktree")
    project.built = time.time() - 3600
    assert project.judge(*PYTEST).told is RunVerdict.PASS
    project.built, project.unseen_build = None, True  # as for git bisect run: a copy like the commit's may be of it
    assert project.judge(*PYTEST).told is RunVerdict.PASS
    write(tmp_path / "site/net.py", "WEIGHT = 1  # of another commit\n")
    elsewhere(project.judge(*PYTEST), *expected)


@pytest.mark.slow
def test_a_run_that_uses_nothing_of_the_worktree_is_refused(begin: Begin, tmp_path: Path) -> None:
    """A module of the same name somewhere else, and no module at all; a file of it is something."""
    project = begin(**{"test_net.py": TEST})
    write(tmp_path / "other/net.py", "WEIGHT = 1\n")
    project.environment["PYTHONPATH"] = str(tmp_path / "other")
    elsewhere(project.judge(*PYTEST), f"net was imported from {tmp_path}/other/net.py", "--python src")
    write(project.top / "test_net.py", "def test_net():\n    assert True\n")
    elsewhere(project.judge(*PYTEST), "no module of it was imported, no file opened", "{worktree} in COMMAND")
    reads = 'import os\n\ndef test_net():\n    open(os.environ["HIL_BISECT_WORKTREE"] + "/src/net.py").close()\n'
    write(project.top / "test_net.py", reads)
    assert project.judge(*PYTEST).told is RunVerdict.PASS


def test_an_interpreter_that_takes_no_notice_of_pythonpath(begin: Begin) -> None:
    project = begin(**{"pyproject.toml": INI, "test_net.py": TEST.replace("1", "0")})
    elsewhere(project.judge(sys.executable, "-E", *PYTEST[1:]), "cannot be seen", "python -I and -E ignore it")
