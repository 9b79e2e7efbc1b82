"""Set-up of all tests, and a fixture with the wheel installed as a user does it."""

from __future__ import annotations

import os
import re
import signal
import site
import subprocess
import sys
import venv
from collections.abc import Generator
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

from cortex_m_hil.errors import ToolchainError
from installed import hide_executorch
from paths import REPOSITORY
from preloaded import __file__ as preloaded_program
from preloaded import write_interpreter

DEADLINE = 300.0  # seconds

# The seconds that it takes to draw inputs depend on how busy the machine is, and not on what is tested.
settings.register_profile("hil", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hil")

# A shell's background job ignores SIGINT and SIGQUIT, and what nohup starts SIGHUP. What the tests start would inherit
# that, and some of them send it.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


# A pytest that a test starts would import plugins of other packages that are installed here: more CPU time than pytest
# and this project's plugin together take.
WITHOUT_OTHER_PLUGINS = " ".join(
    f"-p no:{name}" for name in ("anyio", "hydra_pytest", "hypothesispytest", "kgb", "platformdirs", "pytest_cov")
)


@pytest.fixture(scope="session", autouse=True)
def without_other_plugins() -> None:
    """Leave other plugins out of test runs that tests start; xdist's workers, which begin before, have them."""
    os.environ["PYTEST_ADDOPTS"] = WITHOUT_OTHER_PLUGINS


def pytest_configure(config: pytest.Config) -> None:
    """Hide the ExecuTorch of this machine, unless a runtime is named: what tests show must not depend on it."""
    if config.getoption("hil_runtime") is None:
        hide_executorch()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what `first_only` leaves to the nightly, before pytest selects by marks."""
    seen: set[str] = set()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if item.get_closest_marker("first_only") and name in seen:
            item.add_marker(pytest.mark.slow)
        seen.add(name)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Skip a test on what an older ExecuTorch than the pinned one or the wheel lacks, with the harness's reason."""
    try:
        return (yield)
    except ToolchainError as error:
        import wheel  # and torch with it

        of_wheel = re.match(r"executorch \S+ has no ", error.message) and wheel.is_older()
        if of_wheel or "this ExecuTorch has no " in error.message:
            pytest.skip(error.message)
        raise


@pytest.fixture(scope="session")
def preloaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an interpreter that has imported torch, ExecuTorch and this package: one for all workers of a run."""
    folder, owner = tmp_path_factory.getbasetemp(), os.getpid()
    if hasattr(request.config, "workerinput"):
        folder, owner = folder.parent, os.getppid()
    python, address = folder / "python", folder / "socket"
    with FileLock(folder / "preloaded.lock"):
        if not python.exists():
            # setsid lets go of it: it serves all workers, and tests look for children that one of them has left.
            server = subprocess.Popen(
                ["setsid", "--fork", sys.executable, preloaded_program, "--serve", address, str(owner)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            assert server.stdout
            with server.stdout as said:
                assert said.readline() == b"ready\n" and server.wait(DEADLINE) == 0
            write_interpreter(python, address)
    return str(python)


@pytest.fixture
def programs_preloaded(preloaded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this package start modules, such as pytest, by the preloaded Python."""
    monkeypatch.setattr(sys, "executable", preloaded)


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, preloaded: str) -> pytest.Pytester:
    """Return pytest's own `pytester`, without PYTEST_ADDOPTS, and with a new Python for each run."""
    monkeypatch.setenv("PYTEST_ADDOPTS", WITHOUT_OTHER_PLUGINS)
    monkeypatch.setattr(pytester, "_getpytestargs", lambda: (preloaded, "-m", "pytest"))
    return pytester


@pytest.fixture(scope="session")
def installed_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter with the wheel installed; torch and other dependencies come from this environment."""
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(REPOSITORY)]
    subprocess.run(build, check=True, capture_output=True, timeout=DEADLINE)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=True)
    interpreter = folder / "venv" / "bin" / "python"
    install = [str(interpreter), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, timeout=DEADLINE)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # A plain path line: .pth files in there, such as the editable install's, are not followed.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return interpreter


@pytest.fixture(scope="session")
def user_path(installed_python: Path) -> str:
    """Return a PATH on which `python`, `pytest` and `hil` are those of the environment with the wheel."""
    folder = installed_python.parent
    script = f"#!{installed_python}\nimport sys\nfrom pytest import console_main\nsys.exit(console_main())\n"
    (folder / "pytest").write_text(script)
    (folder / "pytest").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
