"""What several test modules use: the wheel, installed as a user does it; a compiler that is trusted."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex_m_hil.compiler_state.state import compiler_state
from cortex_m_hil.lowering.stages import observed_by
from paths import REPOSITORY
from tracing import untraced
from trust import trust_again

DEADLINE = 300.0  # seconds


@pytest.fixture(scope="module", autouse=True)
def coverage_of_own_code() -> Iterator[None]:
    with observed_by(untraced):
        yield


@pytest.fixture(autouse=True)
def trusted_compiler() -> Iterator[None]:
    """Tests that change the compiler, or torch, take that back; the next ones expect a cache."""
    yield
    if compiler_state._problem:
        trust_again()


@pytest.fixture(scope="session")
def installed_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the wheel installed; torch and the other dependencies come from this environment."""
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
    """A PATH on which `python`, `pytest` and `hil` are those of the environment with the wheel."""
    folder = installed_python.parent
    script = f"#!{installed_python}\nimport sys\nfrom pytest import console_main\nsys.exit(console_main())\n"
    (folder / "pytest").write_text(script)
    (folder / "pytest").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
