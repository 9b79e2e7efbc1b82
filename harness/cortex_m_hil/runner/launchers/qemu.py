"""The launcher of QEMU's system emulator, over semihosting."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from cortex_m_hil.errors import ConfigError, HarnessError, TargetFault, ToolchainError, did_you_mean
from cortex_m_hil.host import toolchain
from cortex_m_hil.host.folders import build_lock
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.host.sandbox import Sandbox, landlock_abi, program_sandbox
from cortex_m_hil.runner.launchers.process import Process
from cortex_m_hil.runner.launchers.simulator import Simulator
from cortex_m_hil.targets.cpu import cpu_name, cpus
from cortex_m_hil.targets.target import Clock, Strict, Target

# QEMU's own filter of system calls: firmware's SYS_SYSTEM, or any other attempt to start a program, ends QEMU with
# SIGSYS.
QUIET = ("-display", "none", "-monitor", "none")
SANDBOX = ("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny")
# Virtual time is the number of instructions, 128 ns each: at least two ticks of every board's timer, by which the
# runner counts instructions (firmware/platform/ticks_cortex_m.cpp). A sleeping core waits for the host's clock.
ICOUNT = ("-icount", "shift=7")
COMPILE_TIMEOUT = 60.0  # seconds
LIST_TIMEOUT = 20.0  # seconds, for `-machine help`
# Seconds of CPU time for a byte to the UART: QEMU's main loop hands each over in a turn of its own, and while it waits
# for a CPU the firmware goes on. On two cores with twelve busy processes each took 3 ms.
UART_BYTE = 0.01


class _Settings(Strict):
    machine: str
    args: list[str] = Field([])
    core: Annotated[str, AfterValidator(cpu_name)] = ""
    link: Literal["semihosting", "uart"] = "semihosting"


@dataclass(frozen=True)
class QemuLauncher(Simulator):
    """The launcher of a QEMU machine.

    Attributes:
        machine: QEMU's name of the machine.
        args: further arguments; an `-icount` among them replaces ICOUNT.
        core: the machine's CPU, if it is another CPU that executes the target's instructions too; "": the target's CPU.
        link: how the firmware communicates with the host; runners use semihosting.
    """

    settings: ClassVar[type[Strict]] = _Settings
    shorthand: ClassVar[str] = "machine"
    optional: ClassVar[bool] = False
    program: ClassVar[str] = "qemu-system-arm"

    machine: str
    args: tuple[str, ...] = ()
    core: str = ""
    link: Literal["semihosting", "uart"] = "semihosting"

    @classmethod
    def parse(cls, settings: _Settings, where: str) -> QemuLauncher:
        if settings.core and settings.core not in cpus():
            raise ConfigError(f"{where}: unknown core {settings.core!r}", hint=did_you_mean(settings.core, cpus()))
        return cls(settings.machine, tuple(settings.args), settings.core, settings.link)

    def describe(self) -> str:
        return f"qemu {self.machine}"

    def require(self) -> None:
        """Check that QEMU is there and has the machine. Raises ToolchainError or ConfigError."""
        known = _machines(str(toolchain.locate(self.program)))
        if known and self.machine not in known:
            raise ConfigError(
                f"{self.engine('')} has no machine {self.machine!r}", hint=did_you_mean(self.machine, known)
            )

    def engine(self, board: str) -> str:
        core = f" ({self.core})" if self.core else ""
        return f"QEMU {toolchain.find(self.program).version}{core}"

    def clock(self, counts: bool) -> Clock:
        """Return INSTRUCTIONS; MODEL where the runner cannot count them, HOST where `shift=auto` follows that."""
        settings = (_icount(self.args) or ICOUNT[1]).split(",")
        exact = any(re.fullmatch(r"(shift=)?\d+", setting) for setting in settings)
        return Clock.HOST if not exact else Clock.INSTRUCTIONS if counts else Clock.MODEL

    @property
    def takes_foreign_runners(self) -> bool:
        """Tell whether this kernel has Landlock, without which the sandbox protects less."""
        return landlock_abi() > 0

    @property
    def counts_coverage(self) -> bool:
        return True

    @property
    def byte_seconds(self) -> float:
        return UART_BYTE if self.link == "uart" else 0.0

    def command(self, elf: Path, directory: Path, arguments: Sequence[str]) -> list[str]:
        return self._line(elf, arguments, serial="stdio" if self.link == "uart" else "none")

    def launch_command(self, elf: Path, directory: Path, arguments: Sequence[str], seconds: float) -> list[str]:
        return self._line(elf, arguments, serial="stdio")

    def launch(
        self, elf: Path, directory: Path, arguments: Sequence[str], seconds: float, *, count: Path | None = None
    ) -> Process:
        if count is None:
            return super().launch(elf, directory, arguments, seconds)
        plugin = _counter(toolchain.find(self.program).version)
        command = [*self.launch_command(elf, directory, arguments, seconds), "-plugin", f"{plugin},out={count}"]
        sandbox = program_sandbox(toolchain.find(self.program).path, directory, elf, plugin, observed=True)
        return Process(command, cwd=directory, env=self.environment(), sandbox=sandbox, joined=True)

    def _line(self, elf: Path, arguments: Sequence[str], serial: str) -> list[str]:
        """Return the command line; `serial` is the backend of the first UART.

        Semihosting is given no chardev, because with a chardev SYS_READ reports the end of file at once instead of
        waiting (QEMU 7.2, measured).
        """
        semihosting = "enable=on,target=native"
        for argument in arguments:
            semihosting += f",arg={argument.replace(',', ',,')}"
        counting = () if _icount(self.args) else ICOUNT
        machine = ["-M", self.machine, *counting, *self.args]
        quiet = [*QUIET, "-serial", serial, *self._network()]
        path = str(toolchain.find(self.program).path)
        return [path, *machine, *quiet, *SANDBOX, "-semihosting-config", semihosting, "-kernel", str(elf)]

    def memory(self) -> Sequence[range]:
        return _memory(str(toolchain.find(self.program).path), self.machine, self.args)

    def _network(self) -> tuple[str, str]:
        """Return options for a network without IPv6 and without any connection.

        With IPv6 a timer, which expires soon by the virtual clock, makes QEMU open /etc/resolv.conf, which the sandbox
        refuses. Machines with a network interface complain if it is connected to no network.
        """
        return ("-nic", "user,ipv6=off" if self.machine.startswith("mps") else "none")

    def sandbox(self, elf: Path, directory: Path) -> Sandbox:
        """Return a sandbox in which QEMU can read the ELF and change its own folder.

        Accesses to files by semihosting are observed: QEMU makes them in the threads of its virtual processors.
        """
        return program_sandbox(toolchain.find(self.program).path, directory, elf, observed=True)

    def diagnose(self, target: Target, status: int, log: str) -> HarnessError | None:
        if "qemu: Unsupported SemiHosting SWI" in log:
            what = "the firmware made a semihosting call that QEMU does not know"
            return TargetFault(what, target=target.name, log=log)
        return None


def _counter(version: str) -> Path:
    """Return the plugin that counts instructions, for a version of QEMU; it is compiled if it is not in the cache.

    Raises:
        ToolchainError: there is no C++ compiler, or it does not compile.
    """
    # QEMU_PLUGIN_VERSION of the API: below 9.0 up to 1, from there on 2 or more.
    api = 1 if int(version.partition(".")[0]) < 9 else 2
    source = Path(__file__).with_name("qemu_instructions.cpp")
    key = hashlib.sha256(source.read_bytes() + bytes([api])).hexdigest()[:16]
    folder = cache_directory() / "qemu"
    folder.mkdir(parents=True, exist_ok=True)
    plugin = folder / f"instructions-{key}.so"
    with build_lock(plugin.with_suffix(".lock"), 2 * COMPILE_TIMEOUT):
        if not plugin.is_file():
            made = plugin.with_suffix(".new")
            flags = ["-std=c++17", "-O2", "-shared", "-fPIC", f"-DHIL_PLUGIN_VERSION={api}"]
            command = [str(toolchain.locate("g++")), *flags, str(source), "-o", str(made)]
            said = toolchain.run_tool(command, COMPILE_TIMEOUT)
            if said.status != 0:
                raise ToolchainError(
                    f"QEMU's counter of instructions does not compile: {said.err.strip()}",
                    hint=f"QEMU {version} may have another plugin API: try another version, or do without instructions",
                )
            made.replace(plugin)
    return plugin


def _icount(args: Sequence[str]) -> str:
    """Return the value of `-icount` among the arguments, "" if there is none."""
    return next((value for option, value in itertools.pairwise(args) if option in ("-icount", "--icount")), "")


@functools.cache
def _machines(path: str) -> list[str]:
    """Return the lines of QEMU's list of machines, each with a name and a description."""
    with contextlib.suppress(ToolchainError):
        said = toolchain.run_tool([path, "-machine", "help"], LIST_TIMEOUT).out
        if said.startswith("Supported machines are:"):
            return re.findall(r"^(\S+) {2,}", said, re.MULTILINE)
    return []


@functools.cache
def _memory(path: str, machine: str, args: tuple[str, ...]) -> tuple[range, ...]:
    """Return the memory that the machine's core can access, from QEMU's `info mtree -f` (7.2).

    Adjoining regions are joined. A region behind a memory protection controller (`tz-mpc`) counts as memory. Empty
    where QEMU does not tell.
    """
    orders = [
        {"execute": "qmp_capabilities"},
        {"execute": "human-monitor-command", "arguments": {"command-line": "info mtree -f"}},
        {"execute": "quit"},
    ]
    quiet = [*QUIET, "-serial", "none"]
    line = [path, "-M", machine, *args, "-S", *quiet, "-qmp", "stdio"]
    given = "\n".join(map(json.dumps, orders)).encode()
    views: list[str] = []
    with contextlib.suppress(ToolchainError, ValueError):
        answers = [json.loads(one) for one in toolchain.run_tool(line, LIST_TIMEOUT, given=given).out.splitlines()]
        views = [view for one in answers for view in str(one.get("return")).split("FlatView #")]
    view = next((one for one in views if ' AS "cpu-memory-0"' in one), "")
    kinds = "ram|rom|romd|i/o\\): tz-mpc-upstream"
    regions = re.findall(rf"^ +(\w+)-(\w+) \(prio -?\d+, (?:{kinds})", view, re.MULTILINE)
    joined: list[range] = []
    for first, last in sorted((int(first, 16), int(last, 16)) for first, last in regions):
        if joined and joined[-1].stop == first:
            joined[-1] = range(joined[-1].start, last + 1)
        else:
            joined.append(range(first, last + 1))
    return tuple(joined)
