"""The launcher of Arm's Fixed Virtual Platforms, over semihosting.

Everything here comes from public sources (CMSIS_6 CoreValidation's model_config.txt, Zephyr's boards/arm/mps2 and mps3,
the AVH fvp_config files, ExecuTorch's backends/arm) and has not been executed on Arm's binaries; so every parameter is
checked against the model's own list of parameters.
"""

from __future__ import annotations

import functools
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from cortex_m_hil.errors import ConfigError, LaunchError, ToolchainError, did_you_mean
from cortex_m_hil.host import timeouts, toolchain
from cortex_m_hil.runner.launchers.simulator import Simulator
from cortex_m_hil.targets.target import Clock, Strict

COMMAND_LINE_LIMIT = 256  # characters of semihosting-cmd_line; a model cuts off the rest (executorch #17759)
LIST_TIMEOUT = 60.0  # seconds, for `-l` and `--version`: a model may ask its licence server first
LIMIT_MARGIN = 60  # seconds by which a model's own time limit is longer than the harness's
TIME_LIMIT = 3600  # seconds of host time; the model ends by itself if this process cannot end it
# Without this file in the semihosting folder a model reports no extensions, so a C library falls
# back from SYS_EXIT_EXTENDED to SYS_EXIT and the exit status is lost.
FEATURES_FILE = ":semihosting-features"
FEATURES = b"SHFB\x01"

_OLD_CORES = {"M0": "m0", "M0plus": "m0plus", "M3": "m3", "M4": "m4", "M7": "m7"}


@dataclass(frozen=True)
class ModelFamily:
    """The names of parameters that differ between families of models.

    Attributes:
        cpu: the instance name of the core.
        quiet: parameters and values that turn off terminals and windows.
        uart: the instance name of the first UART.
    """

    cpu: str
    quiet: tuple[tuple[str, str], ...]
    uart: str


def model_family(model: str) -> ModelFamily:
    """Return the family of a model, by the name of its executable. Raises ConfigError for an unknown name."""
    if mps2 := re.fullmatch(r"(?:FVP|VHT)_MPS2_Cortex-(M\w+)", model):
        core = _OLD_CORES.get(mps2[1])
        cpu = f"armcortex{core}ct" if core else "cpu0"
        off = [(f"fvp_mps2.telnetterminal{n}.start_telnet", "0") for n in (0, 1, 2)]
        return ModelFamily(cpu, (*off, ("fvp_mps2.mps2_visualisation.disable-visualisation", "1")), "fvp_mps2.UART0")
    if re.fullmatch(r"(?:FVP|VHT)_Corstone_SSE-3[01]0(?:_Ethos-U\d+)?", model):
        off = [(f"mps3_board.telnetterminal{n}.start_telnet", "0") for n in (0, 1, 2, 5)]
        return ModelFamily("cpu0", (*off, ("mps3_board.visualisation.disable-visualisation", "1")), "mps3_board.uart0")
    if re.fullmatch(r"(?:FVP|VHT)_Corstone_SSE-3(?:15|20)", model):
        off = [(f"mps4_board.telnetterminal{n}.start_telnet", "0") for n in (0, 1, 2, 5)]
        quiet = ("mps4_board.visualisation.disable-visualisation", "1")
        picture = ("vis_hdlcd.disable_visualisation", "1")
        return ModelFamily("mps4_board.subsystem.cpu0", (*off, quiet, picture), "mps4_board.uart0")
    raise ConfigError(
        f"no description of the FVP {model!r}", hint="add its family to harness/cortex_m_hil/runner/launchers/fvp.py"
    )


def executable(model: str) -> Path:
    path = shutil.which(model)
    if path is None:
        raise ToolchainError(f"{model} is not on PATH", hint="install Arm's FVP")
    return Path(path).absolute()  # absolute, because a model is started in the folder of its run


class _Settings(Strict):
    model: str
    parameters: dict[str, str | int] = Field({})


@dataclass(frozen=True)
class FvpLauncher(Simulator):
    settings: ClassVar[type[Strict]] = _Settings
    shorthand: ClassVar[str] = "model"

    model: str
    parameters: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, settings: _Settings, where: str) -> FvpLauncher:
        return cls(settings.model, tuple((key, str(value)) for key, value in settings.parameters.items()))

    @property
    def program(self) -> str:
        return self.model

    def clock(self, counts: bool) -> Clock:
        return Clock.MODEL

    def describe(self) -> str:
        return f"fvp {self.model}"

    def require(self) -> None:
        executable(self.model)

    def engine(self, board: str = "") -> str:
        """Return `FVP_MPS2_Cortex-M4 11.27.42` for a Fast Model.

        For any other program the version text that it prints.
        """
        text = self.version_text()
        if fast_model := re.search(r"Fast Models \[(\d+\.\d+\.\d+)", text):
            return f"{self.model} {fast_model[1]}"
        first = text.splitlines()[0].strip()
        return first if first.startswith(self.model) else f"{self.model} {first}"

    def version_text(self) -> str:
        return _version(str(executable(self.model)))

    def shim(self) -> str:
        """Return `shim (QEMU 7.2.22)` where the executable reports that it is not Arm's model, else ""."""
        name = self.engine().removeprefix(self.model).strip()
        return name if "shim" in self.version_text() else ""

    def check(self, folder: Path) -> str:
        """Check that the model knows every parameter; return its name and version."""
        self.command(folder / "runner.elf", folder, ())
        return self.engine()

    def command(
        self, elf: Path, directory: Path, arguments: Sequence[str], *, time_limit: int = TIME_LIMIT,
        uart: bool = False,
    ) -> list[str]:  # fmt: skip
        """Return the command line, and write the file of semihosting features into `directory`.

        Args:
            elf: the program.
            directory: the semihosting folder.
            arguments: the program's command line; it may be empty.
            time_limit: seconds of host time after which the model ends by itself.
            uart: whether the first UART is written to standard output.

        Raises:
            ConfigError: the model lacks a parameter, or the command line is too long for semihosting.
            ToolchainError: the model is not on PATH.
        """
        path = executable(self.model)
        parameters = _parameters(self, directory, arguments, uart)
        _check(str(path), self.model, [name for name, _ in parameters])
        (directory / FEATURES_FILE).write_bytes(FEATURES)
        line = [str(path), "-a", str(elf), "--timelimit", str(time_limit)]
        for name, value in parameters:
            line += ["-C", f"{name}={value}"]
        return line

    def launch_command(self, elf: Path, directory: Path, arguments: Sequence[str], seconds: float) -> list[str]:
        """Return the command line for a user's program; the model's own time limit is longer than the harness's.

        A model that reaches its own limit, which is wall time, exits with status 0 and would look like a success.
        """
        limit = math.ceil(seconds * timeouts.WALL_PER_CPU_SECOND) + LIMIT_MARGIN
        return self.command(elf, directory, arguments, time_limit=limit, uart=True)


def _parameters(launcher: FvpLauncher, directory: Path, arguments: Sequence[str], uart: bool) -> list[tuple[str, str]]:
    family = model_family(launcher.model)
    cpu = family.cpu
    chosen = [
        (f"{cpu}.semihosting-enable", "1"),  # off by default on Corstone
        (f"{cpu}.semihosting-cwd", str(directory)),
        (f"{cpu}.semihosting-stack_base", "0"),
        (f"{cpu}.semihosting-heap_limit", "0"),
        *family.quiet,
    ]
    if uart:
        chosen += [(f"{family.uart}.out_file", "-"), (f"{family.uart}.unbuffered_output", "1")]
    if "SSE-300" in launcher.model or "SSE-310" in launcher.model:
        chosen += [("cpu0.FPU", "1"), ("cpu0.MVE", "2")]
    if launcher.model.endswith("MPS2_Cortex-M4") or launcher.model.endswith("MPS2_Cortex-M7"):
        chosen.append((f"{cpu}.vfp-present", "1"))
    if arguments:
        text = " ".join(arguments)
        if len(text) > COMMAND_LINE_LIMIT:
            raise ConfigError(
                f"the command line has {len(text)} characters; an FVP cuts it at {COMMAND_LINE_LIMIT}",
                hint="use shorter file names, or serve mode, which needs no command line",
            )
        chosen.append((f"{cpu}.semihosting-cmd_line", text))
    return chosen + list(launcher.parameters)


def _ask(path: str, option: str) -> toolchain.ToolOutput:
    said = toolchain.run_tool([path, option], LIST_TIMEOUT)
    text = said.out + said.err
    if "license" in text.lower() and said.status != 0:
        raise LaunchError(
            f"{Path(path).name} has no licence for this user: {text.strip().splitlines()[-1]}",
            hint="set ARMLM_CACHED_LICENSES_LOCATION or ARMLMD_LICENSE_FILE",
        )
    return said


@functools.cache
def _version(path: str) -> str:
    return toolchain.version_text(path, _ask(path, "--version"))


@functools.cache
def _listed(path: str) -> frozenset[str]:
    """Return the parameter names that the model lists with `-l`: a `name=value` on each line, comments after `#`."""
    lines = (line.split("#")[0].strip() for line in _ask(path, "-l").out.splitlines())
    return frozenset(line.split("=")[0].strip() for line in lines if "=" in line)


def _check(path: str, model: str, names: Sequence[str]) -> None:
    known = _listed(path)
    if not known:
        raise LaunchError(f"{model} -l lists no parameters", hint=f"run '{model} -l' by hand")
    for name in names:
        if name not in known:
            raise ConfigError(f"{model} has no parameter {name!r}", hint=did_you_mean(name, known))
