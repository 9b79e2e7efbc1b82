"""The external programs that this harness calls: finds them, checks versions, and tells how to install them."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cortex_m_hil.errors import ToolchainError

# Debian's package for each program that the default targets need.
PACKAGES = {
    "arm-none-eabi-g++": "gcc-arm-none-eabi libnewlib-arm-none-eabi libstdc++-arm-none-eabi-newlib",
    "arm-none-eabi-addr2line": "binutils-arm-none-eabi",
    "arm-none-eabi-objdump": "binutils-arm-none-eabi",
    "arm-none-eabi-readelf": "binutils-arm-none-eabi",
    "g++": "g++",
    "qemu-system-arm": "qemu-system-arm",
    "flatc": "flatbuffers-compiler libflatbuffers-dev",
    "cmake": "cmake",
    "ninja": "ninja-build",
    "setpriv": "util-linux",
}
# How to install programs that only some boards or commands need; `hil doctor` does not try them.
_OPTIONAL = {
    "openocd": "apt-get install openocd",
    "picotool": "apt-get install picotool",
    "pyocd": "pip install pyocd",
    "probe-rs": "cargo install probe-rs-tools, or see https://probe.rs",
    "STM32_Programmer_CLI": "install ST's STM32CubeProgrammer, and put its folder bin on PATH",
    "app-gen-toc": "get SETOOLS from Alif Semiconductor, and put its folder on PATH",
    "arm-none-eabi-objcopy": "apt-get install binutils-arm-none-eabi",
    "JLinkExe": "install SEGGER's J-Link Software and Documentation Pack",
    "labgrid-client": "pip install labgrid, best into an environment of its own",
    "node": "apt-get install nodejs npm",
    "git": "apt-get install git",
    "arm-none-eabi-gcov": "apt-get install gcc-arm-none-eabi",
    "gcov": "apt-get install gcc",
}
VERSION_TIMEOUT = 20.0  # seconds for --version for --version
OUTPUT_LIMIT = 16 << 20  # bytes: an FVP lists thousands of parameters
_SHOWN = 200  # characters of a line, in messages and names
RP2040JS = "1.4.1"  # this version exactly, as harness/cortex_m_hil/boards/virtual/pico.cjs replaces parts of it


@dataclass(frozen=True)
class Tool:
    """A program of a known version.

    Attributes:
        name: the program's name on PATH.
        path: the program's path.
        banner: the first line of its output for --version; `version` is the number in it.
    """

    name: str
    path: Path
    banner: str

    @property
    def version(self) -> str:
        # Distributions put their package versions into parentheses.
        match = re.search(r"\d+(?:\.\d+)+", re.sub(r"\(.*?\)", "", self.banner))
        return match[0] if match else "unknown"


def install_hint(name: str) -> str:
    """Return the command that installs `name` on Debian or Ubuntu, or another way to get it."""
    package = PACKAGES.get(name)
    return f"apt-get install {package}" if package else _OPTIONAL.get(name, f"put {name} on PATH")


@dataclass(frozen=True)
class ToolOutput:
    """The output of a tool, and its exit status (negative: the signal that ended it)."""

    status: int
    out: str
    err: str


def run_tool(
    command: Sequence[str],
    seconds: float,
    limit: int = OUTPUT_LIMIT,
    *,
    given: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> ToolOutput:
    """Run a tool to its end and return its output. All its child processes end with it.

    Args:
        command: the tool and its arguments.
        seconds: the tool's time limit.
        limit: the most bytes that the tool may print.
        given: the bytes of its standard input.
        env: the tool's environment variables; None: this process's.
        cwd: the tool's folder; None: the current one.

    Raises:
        ToolchainError: the tool does not start, does not end in time, or prints more than `limit` bytes.
    """
    what = " ".join(command[:2])
    try:
        with tempfile.TemporaryFile() as file:
            file.write(given)
            file.seek(0)
            child = subprocess.Popen(
                list(command), stdin=file if given else subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True, env=env, cwd=cwd,
            )  # fmt: skip
    except (OSError, ValueError) as error:
        raise ToolchainError(f"{what}: {error}", hint=install_hint(Path(command[0]).name)) from error
    deadline = time.monotonic() + seconds
    try:
        out, err = _read_both(child, deadline, limit, what)
        status = child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise ToolchainError(f"{what}: no end after {seconds:g} s", hint="run it by hand") from None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for stream in (child.stdout, child.stderr):
            assert stream is not None
            stream.close()
    return ToolOutput(status, out.decode(errors="replace"), err.decode(errors="replace"))


def _read_both(child: subprocess.Popen[bytes], deadline: float, limit: int, what: str) -> tuple[bytes, bytes]:
    """Return all of standard output and standard error.

    Args:
        child: the process.
        deadline: the deadline on the clock time.monotonic().
        limit: the most bytes of both streams together.
        what: the tool's name in messages.

    Raises:
        TimeoutExpired: the streams are not closed at the deadline.
        ToolchainError: there are more than `limit` bytes.
    """
    said = {child.stdout: bytearray(), child.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for stream in said:
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(what, 0)
            for key, _ in selector.select(left):
                data = os.read(key.fd, 1 << 16)
                said[key.fileobj] += data  # type: ignore[index]
                if not data:
                    selector.unregister(key.fileobj)
            if sum(map(len, said.values())) > limit:
                raise ToolchainError(f"{what}: says more than {limit} bytes", hint="run it by hand")
    return bytes(said[child.stdout]), bytes(said[child.stderr])


def version_text(path: str, said: ToolOutput) -> str:
    """Return a tool's output for --version, from either stream.

    Raises:
        ToolchainError: the tool failed, or printed nothing.
    """
    text = said.out.strip() or said.err.strip()
    if said.status != 0 or not text:
        why = f"exit status {said.status}" if said.status else "it says nothing"
        last = (said.err.strip() or text).splitlines()[-1:]
        complaint = f": {last[0][:_SHOWN]}" if last else ""
        raise ToolchainError(f"{path} --version: {why}{complaint}", hint=install_hint(Path(path).name))
    return text


@functools.cache
def _banner(path: str) -> str:
    said = run_tool([path, "--version"], VERSION_TIMEOUT)
    return version_text(path, said).splitlines()[0][:_SHOWN]


def locate(name: str) -> Path:
    """Return the path of a program on PATH.

    Raises:
        ToolchainError: the program is missing; the hint has a command to install it.
    """
    path = shutil.which(name)
    if path is None:
        raise ToolchainError(f"{name} is not on PATH", hint=install_hint(name))
    return Path(path).absolute()  # PATH may have relative folders; an empty entry is the current folder


def find(name: str) -> Tool:
    """Return a program on PATH with its version.

    Raises:
        ToolchainError: the program is missing, or does not tell its version.
    """
    path = locate(name)
    return Tool(name, path, _banner(str(path)))


@dataclass(frozen=True)
class FlatBuffers:
    """The compiler flatc and headers of the same version, as its generated code compiles only with these."""

    flatc: Tool
    include: Path


def flatbuffers() -> FlatBuffers:
    """Return the first flatc on PATH that has headers of its own version.

    Several flatc on PATH are common: the executorch wheel puts one into the virtual environment, and its version
    differs from Debian's headers.

    Raises:
        ToolchainError: there is no such pair.
    """
    tools = _flatcs()
    for tool in tools:
        for prefix in (tool.path.parent.parent, Path("/usr"), Path("/usr/local")):
            if _header_version(prefix / "include") == tool.version:
                return FlatBuffers(tool, prefix / "include")
    seen = ", ".join(f"{tool.path} {tool.version}" for tool in tools) or "no flatc on PATH"
    raise ToolchainError(f"no flatc with headers of its own version ({seen})", hint=install_hint("flatc"))


def flatc_for(include: Path) -> Tool | None:
    """Return the first flatc on PATH with the version of these headers, or None."""
    version = _header_version(include)
    return next((tool for tool in _flatcs() if tool.version == version), None)


def _flatcs() -> list[Tool]:
    found = [Path(folder).absolute() / "flatc" for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    return [Tool("flatc", path, _banner(str(path))) for path in found if path.is_file() and os.access(path, os.X_OK)]


def _header_version(include: Path) -> str:
    try:
        text = (include / "flatbuffers" / "base.h").read_text()
    except OSError:
        return ""
    return ".".join(re.findall(r"#define FLATBUFFERS_VERSION_(?:MAJOR|MINOR|REVISION) (\d+)", text))


@dataclass(frozen=True)
class Package:
    """An npm package, and the node that runs it."""

    node: Path
    folder: Path


def rp2040js() -> Package:
    """Return the npm package rp2040js, installed next to the Python interpreter or in a folder of NODE_PATH.

    Raises:
        ToolchainError: node is not on PATH, or the package of the right version is not installed.
    """
    node = locate("node")
    beside = str(Path(sys.prefix) / "node_modules")
    for modules in (beside, *filter(None, os.environ.get("NODE_PATH", "").split(os.pathsep))):
        folder = Path(modules) / "rp2040js"
        with contextlib.suppress(OSError, ValueError, KeyError):
            found = json.loads((folder / "package.json").read_text())["version"]
            if found == RP2040JS:
                return Package(node, folder)
    raise ToolchainError(
        f"the npm package rp2040js {RP2040JS} is not installed",
        hint=f"npm install --prefix {sys.prefix} rp2040js@{RP2040JS}",
    )


def executorch_package() -> Path:
    """Return the folder of the installed executorch, found without importing it (which costs seconds).

    Raises:
        ToolchainError: executorch is not installed.
    """
    spec = importlib.util.find_spec("executorch")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        return Path(location)
    raise ToolchainError("the Python package executorch is not installed", hint="pip install 'executorch[ethos-u]'")


def schema_directory() -> Path:
    """Return the folder with `program.fbs`, the schema by which the installed executorch writes programs.

    Raises:
        ToolchainError: executorch is not installed, or has no such file.
    """
    package = executorch_package()
    for folder in (package / "schema", package / "exir" / "_serialize"):
        if (folder / "program.fbs").is_file() and (folder / "scalar_type.fbs").is_file():
            return folder
    raise ToolchainError(f"no schema/program.fbs in {package}", hint="reinstall executorch")
