"""Probes of `hil doctor`, which check that all that the default targets need is here and works.

Each tries something, and does not only look at PATH.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

from cortex_m_hil.errors import ConfigError, HarnessError, LaunchError, ToolchainError
from cortex_m_hil.host import sandbox, toolchain
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.host.paths import cache_advice, cache_directory
from cortex_m_hil.runner.launchers.process import Process
from cortex_m_hil.targets.resolve import resolve
from cortex_m_hil.targets.target import Launcher, Target

ROUND_TRIPS: Final = ("m4-qemu", "m0-qemu", "m55-qemu", "native")  # one per ISA class and compiler
ONLY_FOR_MESSAGES: Final = frozenset({"arm-none-eabi-addr2line", "arm-none-eabi-objdump"})
FREE_SPACE: Final = 200 << 20  # bytes; a build takes some 30 MB while it lasts
PROBE_TIMEOUT: Final = 60.0  # seconds

MVE_SOURCE: Final = """\
#include <arm_mve.h>
int8x16_t sum(int8x16_t a, int8x16_t b);
int8x16_t sum(int8x16_t a, int8x16_t b) { return vaddq_s8(a, b); }
"""


class State(str, Enum):
    OK = "ok"
    ABSENT = "absent"  # not here, and nothing necessary depends on it
    FAILED = "FAIL"


@dataclass(frozen=True)
class Check:
    """The result of a probe. `action` says what to do; "" where there is nothing to do."""

    name: str
    state: State
    found: str
    action: str = ""


@dataclass(frozen=True)
class Probe:
    """A probe of one tool or ability.

    Attributes:
        look: returns the probe's finding, or raises an error.
        necessary: the default targets do not work without it.
        slow: says what takes long, while it does.
        thorough: whether the probe imports ExecuTorch or runs a program.
    """

    name: str
    look: Callable[[], str]
    necessary: bool = True
    slow: str = ""
    thorough: bool = False

    @property
    def status(self) -> str:
        return f"{self.name} ({self.slow})" if self.slow else self.name

    def examine(self) -> Check:
        try:
            return Check(self.name, State.OK, self.look())
        except HarnessError as error:
            problem, action = error.message, error.hint
        except Exception as error:  # a broken installation raises anything, and the rows after it still count
            problem, action = f"{type(error).__name__}: {error}", "reinstall it"
        state = State.FAILED if self.necessary else State.ABSENT
        return Check(self.name, state, problem.strip().splitlines()[0], action or "see the message")


def probes(targets: Mapping[str, Target]) -> Iterator[Probe]:
    """Yield the probes in the order in which one depends on another: the first failing row is the cause to look at."""
    for name in toolchain.PACKAGES:
        if name != "flatc":
            yield Probe(name, lambda name=name: _tool(name), name not in ONLY_FOR_MESSAGES)  # type: ignore[misc]
    yield Probe("flatc and headers", _flatbuffers)
    yield Probe("child processes", _child_processes)
    yield Probe("Landlock", _landlock, necessary=False)
    yield Probe("MVE compile", _mve)
    yield Probe("cache", _cache)
    yield Probe("executorch", _executorch)
    yield Probe("tosa_serializer", lambda: _importable("tosa_serializer"), thorough=True)
    yield Probe("cmsis_nn", _cmsis_nn, thorough=True)
    yield Probe("lowering", _lowering, slow="importing torch and ExecuTorch …", thorough=True)
    yield Probe("shortcuts", _shortcuts, necessary=False, thorough=True)
    yield from _simulators(targets)
    for name in (*ROUND_TRIPS, *_on_present_simulators(targets)):
        if name in targets:
            look = partial(_round_trip, name, targets)
            yield Probe(f"round trip {name}", look, slow="building runner, unless it is in the cache …", thorough=True)


def _tool(name: str) -> str:
    tool = toolchain.find(name)
    return f"{tool.version} ({tool.path})"


def _flatbuffers() -> str:
    pair = toolchain.flatbuffers()
    return f"{pair.flatc.version} ({pair.flatc.path}, {pair.include})"


def _child_processes() -> str:
    """Check that child processes can be supervised, and return a text on what this ensures.

    A kernel or a container that lacks pidfd_open or a subreaper would let simulators outlive their test.

    Raises:
        LaunchError: child processes cannot be supervised.
    """
    with closing(Process(["true"])) as process:
        if process.wait(PROBE_TIMEOUT) != 0:
            said = process.log.decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise LaunchError(f"children cannot be supervised: {said[-1]}", hint="Linux 5.4 or newer")
    return "all that a test starts ends with it"


def _landlock() -> str:
    """Check that Landlock refuses a file to a probe, and return its ABI.

    It is tried, since a container may forbid the call though the kernel has it.

    Raises:
        ToolchainError: the kernel has no Landlock, or Landlock refuses nothing.
    """
    if not sandbox.landlock_abi():
        hint = "Linux 5.13 with landlock in its LSM list; hil docs security says what protects without it"
        raise ToolchainError("the kernel offers none: firmware in a simulator can reach files of this user", hint=hint)
    with TemporaryFolder() as folder:
        outside = folder / "outside"
        outside.touch()
        box = sandbox.program_sandbox(toolchain.locate("cat"), folder / "inside")
        box.folder.mkdir()
        said = toolchain.run_tool(box.command([str(toolchain.locate("cat")), str(outside)]), PROBE_TIMEOUT)
    if "Permission denied" not in said.err:
        what = f"it does not hold: {said.err.strip() or 'a file outside was read'}"
        raise ToolchainError(what, hint="run only programs that you trust: hil docs security")
    return f"ABI {sandbox.landlock_abi()}: a simulator sees its own folder only"


def _mve() -> str:
    compiler = "arm-none-eabi-g++"
    path = toolchain.find(compiler).path
    with TemporaryFolder() as folder:
        source = folder / "mve.cpp"
        source.write_text(MVE_SOURCE)
        flags = ["-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard", "-O2", "-c"]
        command = [str(path), *flags, str(source), "-o", str(folder / "mve.o")]
        _succeed(command, "the compiler does not know MVE's intrinsics", compiler)
    return "vaddq_s8 compiles for cortex-m55"


def _succeed(command: list[str], problem: str, tool: str) -> None:
    said = toolchain.run_tool(command, PROBE_TIMEOUT)
    if said.status != 0:
        lines = (said.err or said.out).strip().splitlines() or [f"exit status {said.status}"]
        cause = next((line for line in lines if "error" in line), lines[0])
        raise ToolchainError(f"{problem}: {cause}", hint=toolchain.install_hint(tool))


def _cache() -> str:
    folder = cache_directory()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}", hint=cache_advice()) from error
    if free < FREE_SPACE:
        hint = f"free {FREE_SPACE >> 20} MB, or set HIL_CACHE_DIR to another disk"
        raise ConfigError(f"{folder} has {free >> 20} MB left", hint=hint)
    return f"{folder}, {free >> 20} MB free"


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown version"


def _executorch() -> str:
    package, schema = toolchain.executorch_package(), toolchain.schema_directory()
    return f"{_version('executorch')} ({package}, schema in {schema.relative_to(package)})"


def _importable(module: str) -> str:
    from cortex_m_hil.lowering import installed_executorch

    with installed_executorch.quiet():
        found = installed_executorch.feature(module)
    return str(getattr(found, "__file__", module))


def _cmsis_nn() -> str:
    from cortex_m_hil.lowering import installed_executorch

    with installed_executorch.quiet():
        binding = installed_executorch.feature("executorch.backends.cortex_m.library.cmsis_nn")
        installed_executorch.require_sizes(binding)
    return "sizes of scratch buffers can be asked for"


def _lowering() -> str:
    from cortex_m_hil.lowering import executorch_api

    layout = "channels_last and explicit" if executorch_api().explicit_layout else "channels_last only"
    return f"torch {_version('torch')}, torchao {_version('torchao')}; layouts: {layout}"


def _shortcuts() -> str:
    """Return how many private functions of torch and torchao are replaced by faster ones.

    Raises:
        ToolchainError: one of the functions has changed in torch; nothing is wrong, but lowering is slower.
    """
    from cortex_m_hil.lowering.torch_shortcuts import SHORTCUTS

    if lost := [said for said in (one.lost() for one in SHORTCUTS) if said]:
        raise ToolchainError("; ".join(lost), hint="nothing: programs are the same, and lowering takes longer")
    return f"{len(SHORTCUTS)} of {len(SHORTCUTS)} functions that lowering replaces by faster ones are known"


def _simulators(targets: Mapping[str, Target]) -> Iterator[Probe]:
    """Yield a probe for each launcher that may be missing.

    A missing launcher is no error. A launcher that does not work is one, since it would be chosen.
    """
    launchers = [target.launcher for target in targets.values() if target.launcher.optional]
    for launcher in dict.fromkeys(launchers):
        yield Probe(launcher.program, lambda launcher=launcher: _simulator(launcher, targets), _is_here(launcher))  # type: ignore[misc]


def _is_here(launcher: Launcher) -> bool:
    try:
        launcher.require()
    except HarnessError:
        return False
    return True


def _simulator(launcher: Launcher, targets: Mapping[str, Target]) -> str:
    try:
        launcher.require()
    except HarnessError as error:
        users = [_fallback_text(target.name, targets) for target in targets.values() if target.launcher == launcher]
        raise ToolchainError("; ".join(["not found", *users]), hint=f"{error.hint} to run on it") from error
    with TemporaryFolder() as folder:
        return f"{launcher.check(folder)} ({shutil.which(launcher.program)})"


def _fallback_text(name: str, targets: Mapping[str, Target]) -> str:
    try:
        return f"{name} → falls back to {resolve(name, targets).target.name}"
    except ToolchainError:
        return f"{name} cannot run"


def _on_present_simulators(targets: Mapping[str, Target]) -> Iterator[str]:
    for target in targets.values():
        if target.launcher.optional and _is_here(target.launcher):
            yield target.name


def _round_trip(name: str, targets: Mapping[str, Target]) -> str:
    from cortex_m_hil import flow

    with flow.open_dut(resolve(name, targets)) as dut:
        return f"self-test passes: {flow.selftest(dut).ran.label}"
