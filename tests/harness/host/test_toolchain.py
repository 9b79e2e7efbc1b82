"""What tools say when they are asked, and tools that say nothing, everything, or never end."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest

from cortex_m_hil.errors import LaunchError, ToolchainError
from cortex_m_hil.host import toolchain
from cortex_m_hil.runner.launchers import fvp
from cortex_m_hil.runner.launchers.fvp import FvpLauncher

MODEL = "FVP_MPS2_Cortex-M4"
BOUND = 15.0  # seconds for what has one


def tool(folder: Path, body: str, name: str = "cmake") -> str:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return name


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first on PATH. Tools have a second to answer."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(toolchain, "VERSION_TIMEOUT", 1.0)
    monkeypatch.setattr(fvp, "LIST_TIMEOUT", 1.0)
    monkeypatch.setattr(toolchain, "OUTPUT_LIMIT", 1 << 20)
    return tmp_path / "bin"


BAD = {
    "empty": ("exit 0", "it says nothing"),
    "blank": ("echo; echo", "it says nothing"),
    "fails": ("echo cmake 3; echo 'no libfoo.so' >&2; exit 127", "exit status 127: no libfoo.so"),
    "crashes": ("kill -SEGV $$", "exit status -11"),
    "endless": ("while :; do echo version; done", "no end after 1 s|says more than"),
    "fast-and-endless": ("exec cat /dev/zero", "says more than|no end after"),
    "endless-beside": ("exec cat /dev/zero >&2", "says more than|no end after"),
    "silent": ("exec sleep 60", "no end after 1 s"),
    "leaves-a-child": ("sleep 60 & echo cmake 3", "no end after 1 s"),
    "no-program": ("", "Exec format error|it says nothing"),
}


@pytest.mark.first_only
@pytest.mark.parametrize(("body", "said"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("name", ["cmake", MODEL])
def test_a_tool_that_does_not_say_its_version(first: Path, body: str, said: str, name: str) -> None:
    tool(first, body, name)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(ToolchainError, match=f"bin/{name} --version: .*({said})"):
        toolchain.find(name) if name == "cmake" else FvpLauncher(MODEL).engine()
    assert time.monotonic() - began < BOUND
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 128 << 10  # KiB


def test_a_tool_that_is_no_program(first: Path) -> None:
    (first / tool(first, "")).write_bytes(b"\x7fELF garbage")
    with pytest.raises(ToolchainError, match=r"cmake --version: .*Exec format error"):
        toolchain.find("cmake")


def test_a_version_that_is_not_utf8_is_read_all_the_same(first: Path) -> None:
    tool(first, r"printf 'cmake\377\376 version 3.25.1 \033[0m\n\377\n'")
    assert toolchain.find("cmake").version == "3.25.1"


def test_a_line_without_end_is_cut(first: Path) -> None:
    tool(first, "printf 'cmake version 3.25.1 %0100000d' 1")
    assert len(toolchain.find("cmake").banner) <= 200


def test_a_model_without_a_licence_is_still_said_to_be_one(first: Path) -> None:
    tool(first, "echo 'no license for this feature' >&2; exit 1", MODEL)
    with pytest.raises(LaunchError, match="has no licence"):
        FvpLauncher(MODEL).engine()


@pytest.mark.parametrize("entry", ["", ".", "tools"])
def test_an_entry_of_path_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    """An empty one is the current folder, as for a shell. What is found has an absolute path: it is used elsewhere."""
    for name in ("cmake", "flatc"):
        tool(tmp_path / entry, f"echo {name} 1.2.3", name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{entry}{os.pathsep}/nonexistent")
    assert toolchain.find("cmake").path == (tmp_path / entry / "cmake")
    assert toolchain.find("cmake").version == "1.2.3"
    with pytest.raises(ToolchainError, match=f"no flatc with headers .*{tmp_path / entry / 'flatc'} 1.2.3"):
        toolchain.flatbuffers()
