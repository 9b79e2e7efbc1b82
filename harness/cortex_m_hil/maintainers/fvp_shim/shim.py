"""A shim (stand-in) for Arm's FVPs: it has their command line and behaviour, but runs QEMU. It is NOT Arm's model.

With it the FVP launcher can be run on machines without an FVP. It is a stand-alone program on the standard library: it
imports nothing of the harness, and its data about the models (`models/`) was transcribed from public sources,
independently of the launcher. docs/runtimes.md lists the imitated behaviour with its sources, and the guesses.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, NoReturn

COMMAND_LINE_LIMIT = 256  # characters; the rest is cut off silently (executorch #17759)
FEATURES_FILE = ":semihosting-features"
MAGIC, EXIT_EXTENDED = b"SHFB", 0x01
REFUSED = 1  # exit status for a wrong command line; the real status is not documented
LOCKUP = (b"qemu: fatal: Lockup", b"qemu-system-arm: Trying to execute code outside RAM or ROM")
SANDBOX = ("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny")
NOTE = ".shim.json"  # suffix of a file next to an ELF, which names the QEMU machine for the ELF
DATA = Path(__file__).parent / "models"


@dataclass(frozen=True)
class ShimmedModel:
    """A model of Arm's, and the QEMU machine behind its shim.

    Attributes:
        machine: the name of the machine in QEMU.
        cpu: the name of the core's instance in parameters.
        semihosting: the default of the parameter that enables semihosting, 0 or 1.
        clock: the clock in Hz.
        lists: the files in `models/` with the model's parameters.
        remark: the differences of QEMU's machine from the model.
        extra: further arguments of QEMU.
    """

    machine: str
    cpu: str
    semihosting: int
    clock: int
    lists: tuple[str, ...]
    remark: str = ""
    extra: tuple[str, ...] = ()


def _mps2(core: str, machine: str, *lists: str, remark: str = "") -> ShimmedModel:
    return ShimmedModel(machine, f"armcortex{core}ct", 1, 25_000_000, ("mps2", "semihosting", *lists), remark)


def _sse300(*lists: str) -> ShimmedModel:
    remark = (
        "no Ethos-U; BRAM and ISRAM are larger than the FVP's" if lists else "BRAM and ISRAM are larger than the FVP's"
    )
    return ShimmedModel("mps3-an547", "cpu0", 0, 25_000_000, ("sse300", "semihosting", *lists), remark)


_V6M = "a Cortex-M4 executes the ARMv6-M code, and takes what an ARMv6-M core would not"
MODELS: Mapping[str, ShimmedModel] = {
    "FVP_MPS2_Cortex-M0": _mps2("m0", "mps2-an386", remark=_V6M),
    "FVP_MPS2_Cortex-M0plus": _mps2("m0plus", "mps2-an386", "cortex-m0plus", remark=_V6M),
    "FVP_MPS2_Cortex-M3": _mps2("m3", "mps2-an385"),
    "FVP_MPS2_Cortex-M4": _mps2("m4", "mps2-an386", "cortex-m4"),
    "FVP_MPS2_Cortex-M7": _mps2("m7", "mps2-an500", "cortex-m7"),
    "FVP_Corstone_SSE-300": _sse300(),
    "FVP_Corstone_SSE-300_Ethos-U55": _sse300("ethosu"),
    "FVP_Corstone_SSE-300_Ethos-U65": _sse300("ethosu"),
}


class Refusal(Exception):
    """A command line that is wrong, or that requests something that the shim cannot do."""


# --- command line --------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refusal(message)


def _parser(name: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=name, description=f"{name} shim: not Arm's model.", allow_abbrev=False)
    add = parser.add_argument
    add("applications", nargs="*", metavar="APPLICATION")
    add("-a", "--application", action="append", default=[], metavar="[INST=]ELF")
    add("--data", action="append", default=[], metavar="[INST=]FILE@ADDRESS")
    add("-C", "--parameter", action="append", default=[], metavar="INST.PARAM=VALUE")
    add("-f", "--config-file", action="append", default=[], metavar="FILE")
    add("-l", "--list-params", action="store_true")
    add("--version", action="store_true")
    add("-q", "--quiet", action="store_true")
    add("--stat", action="store_true")
    add("-Q", "--quantum", type=int, help="no effect here")
    add("-T", "--timelimit", type=float, metavar="SECONDS", help="of host time")
    add("--cpulimit", type=float, metavar="SECONDS", help="of host CPU time")
    add("--simlimit", type=float, metavar="SECONDS", help="of simulated time; here the host's")
    add("--cyclelimit", type=float, metavar="N", help="here the host's time times the core's clock")
    add("--plugin", action="append", default=[], help="not here: refused")
    return parser


@dataclass(frozen=True)
class Parameter:
    name: str
    default: str
    comment: str


def parameters(model: ShimmedModel) -> dict[str, Parameter]:
    """Return the parameters of a model by name."""
    found = {}
    for name in model.lists:
        text = (DATA / f"{name}.txt").read_text()
        text = text.replace("@cpu@", model.cpu).replace("@semihosting@", str(model.semihosting))
        for line in text.splitlines():
            setting, _, comment = line.partition("#")
            key, _, default = setting.strip().partition("=")
            found[key] = Parameter(key, default, comment.strip())
    return found


def _settings(model: ShimmedModel, options: argparse.Namespace) -> dict[str, str]:
    """Return the values of all parameters: defaults, overridden by configuration files, overridden by -C.

    Raises:
        Refusal: a parameter does not exist, is malformed, or cannot be set in the shim.
    """
    values = {parameter.name: parameter.default for parameter in parameters(model).values()}
    lines = [line for path in options.config_file for line in _config_lines(Path(path))]
    for text in [*lines, *options.parameter]:
        name, equals, value = text.partition("=")
        if not equals:
            raise Refusal(f"parameter {text!r} is not of the form INSTANCE.PARAMETER=VALUE")
        if name not in values:
            raise Refusal(f"the model has no parameter {name!r}; -l lists those it has")
        value = _unquoted(value)
        if (
            re.search(r"(?i)\.uart\d\.(out_file|shutdown_)", name)
            and value not in ("", "0")
            and not _to_output(name, value)
        ):
            raise Refusal(f"the shim has no such UART: {name} cannot be set")
        values[name] = value
    return values


def _unquoted(value: str) -> str:
    """Return a value without the quotes around it, if any.

    ExecuTorch's tests quote values on a command line that no shell reads, and the model accepts that.
    """
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


def _to_output(name: str, value: str) -> bool:
    """Tell whether a setting sends the first UART to the model's standard output."""
    return value == "-" and name.lower().endswith(".uart0.out_file")


def _config_lines(path: Path) -> Iterator[str]:
    """Yield the settings of a file with lines `instance.parameter=value # comment`, the value quoted or not."""
    try:
        text = path.read_text()
    except OSError as error:
        raise Refusal(f"cannot read {path}: {error.strerror}") from error
    for line in text.splitlines():
        if setting := "".join(shlex.split(line, comments=True)):
            yield setting


def _for_application(model: ShimmedModel, images: Sequence[str]) -> ShimmedModel:
    """Return the machine named in a note next to the application, if there is one, else the model's.

    Arm's models have nothing like it; it is for `--runner`.
    """
    note = Path(f"{images[0]}{NOTE}") if images else None
    if note is None or not note.is_file():
        return model
    wanted = json.loads(note.read_text())
    remark = f"as the runner of {wanted['target']} asks, and not the model's machine"
    return replace(model, machine=wanted["machine"], extra=tuple(wanted["arguments"]), remark=remark)


def _truth(value: str) -> bool:
    return value.lower() not in ("", "0", "false")


def _images(model: ShimmedModel, texts: Sequence[str]) -> list[str]:
    """Return paths without a prefix that names the instance: `cpu0=a.elf`, `cpu0*=a.elf`, `a.elf`."""
    return [re.sub(rf"^{re.escape(model.cpu)}\*?=", "", text) for text in texts]


# --- QEMU ----------------------------------------------------------------------------------------------------


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise Refusal(f"the shim needs {name}, which is not on PATH")
    return path


def _qemu_version() -> str:
    done = subprocess.run(
        [_tool("qemu-system-arm"), "--version"], capture_output=True, text=True, timeout=20, check=False
    )
    found = re.search(r"version (\d[\d.]*)", done.stdout)
    return found[1] if found else "of unknown version"


def _command(model: ShimmedModel, options: argparse.Namespace, settings: Mapping[str, str]) -> list[str]:
    """Return the command line of QEMU. Raise Refusal where there is no application or it cannot be read.

    It has no chardev, because with a chardev reading the console ends at once instead of waiting (QEMU 7.2).
    """
    images = _images(model, [*options.application, *options.applications])
    if not images:
        raise Refusal("no application: give one with -a")
    for path in images:
        if not os.access(path, os.R_OK):
            raise Refusal(f"cannot read the application {path}")
    # The child dies with the shim, even if that is killed by SIGKILL.
    line = [_tool("setpriv"), "--pdeathsig", "KILL", "--", _tool("qemu-system-arm"), "-M", model.machine, *model.extra]
    uart = "file:/dev/stdout" if any(_to_output(name, value) for name, value in settings.items()) else "none"
    line += [*SANDBOX, "-display", "none", "-serial", uart, "-monitor", "none"]
    if _truth(settings[f"{model.cpu}.semihosting-enable"]):
        text = settings[f"{model.cpu}.semihosting-cmd_line"][:COMMAND_LINE_LIMIT]
        line += ["-semihosting-config", f"enable=on,target=native,arg={text.replace(',', ',,')}"]
    line += ["-kernel", os.path.abspath(images[0])]
    for path in images[1:]:
        line += ["-device", f"loader,file={os.path.abspath(path)}"]
    for text in _images(model, options.data):
        path, _, address = text.rpartition("@")
        line += ["-device", f"loader,file={os.path.abspath(path)},addr={address},force-raw=on"]
    return line


def _loses_status(images: Sequence[str], folder: Path) -> bool:
    """Tell whether the guest's exit status is lost, since its C library finds no features file and calls SYS_EXIT.

    QEMU itself answers firmware that looks for this file, so the effect of a folder without it is determined here.
    Firmware that never looks for it calls SYS_EXIT_EXTENDED, which passes the status on.
    """
    if not any(FEATURES_FILE.encode() in Path(path).read_bytes() for path in images):
        return False
    try:
        data = (folder / FEATURES_FILE).read_bytes()
    except OSError:
        return True
    return not (data[:4] == MAGIC and len(data) > 4 and data[4] & EXIT_EXTENDED)


# --- the run -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SimulationLimit:
    """A limit of a simulation.

    Attributes:
        most: the limit in seconds.
        used: returns how many seconds are used; it never runs faster than the wall clock.
        reason: the text that is printed when the limit is reached.
    """

    most: float
    used: Callable[[], float]
    reason: str

    @property
    def left(self) -> float:
        return self.most - self.used()


class Simulation:
    """QEMU as a child process that has the shim's own standard input and output, and the limits on it."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._child = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, bufsize=0)
        assert self._child.stderr is not None
        self._errors: IO[bytes] = self._child.stderr
        self._began = time.monotonic()
        self._locked_up: float | None = None
        self._cpu = 0.0
        self._held = b""
        self.limits: list[SimulationLimit] = []

    def wall(self) -> float:
        return time.monotonic() - self._began

    def cpu(self) -> float:
        """Return the CPU seconds that the model has used. A locked-up core spins, so its time goes on."""
        with contextlib.suppress(OSError, IndexError):
            fields = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()
            self._cpu = max(self._cpu, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
        return self._cpu + (time.monotonic() - self._locked_up if self._locked_up else 0.0)

    def run(self) -> tuple[int, str]:
        """Wait for the end, and return the guest's exit status, or 0 and the reason where a limit ended it."""
        while True:
            for limit in self.limits:
                if limit.left <= 0:
                    return 0, limit.reason
            timeout = min([limit.left for limit in self.limits], default=None)
            if self._locked_up is not None:
                time.sleep(3600 if timeout is None else max(timeout, 0.01))
            elif select.select([self._errors], [], [], timeout)[0] and not self._relay():
                status = self._child.wait()
                if self._locked_up is None:
                    return self._status(status), ""

    def _status(self, status: int) -> int:
        if status < 0:  # killed from outside, as the model would have been
            os.kill(os.getpid(), -status)
        return status

    def _relay(self) -> bool:
        """Copy SYS_WRITE0's text, which QEMU puts on standard error, to standard output. Return False at the end."""
        data = os.read(self._errors.fileno(), 1 << 16)
        text = self._held + data
        at = min((text.find(mark) for mark in LOCKUP if mark in text), default=-1)
        if at >= 0 and self._locked_up is None:
            self._locked_up = time.monotonic()
        if self._locked_up is not None:
            text = text[: max(at, 0)]
            self._held = b""
        else:
            cut = _possible_start(text) if data else len(text)
            text, self._held = text[:cut], text[cut:]
        _write(2 if text.startswith(b"qemu-system-arm: ") else 1, text)
        return bool(data)


def _possible_start(text: bytes) -> int:
    """Return the position in `text` where a lockup's message may begin that is not complete yet.

    Return the length of `text` if there is no such position.
    """
    for at in range(max(0, len(text) - max(map(len, LOCKUP))), len(text)):
        if any(mark.startswith(text[at:]) for mark in LOCKUP):
            return at
    return len(text)


def _write(stream: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # a closed output must not end the simulation
        while data:
            data = data[os.write(stream, data) :]


def _say(text: str) -> None:
    _write(1, f"{text}\n".encode())


def _simulate(name: str, model: ShimmedModel, options: argparse.Namespace) -> int:
    settings = _settings(model, options)
    model = _for_application(model, _images(model, [*options.application, *options.applications]))
    if options.plugin:
        raise Refusal("the shim loads no plugins")
    command = _command(model, options, settings)
    folder = Path(settings[f"{model.cpu}.semihosting-cwd"] or ".")
    if not folder.is_dir():
        raise Refusal(f"semihosting-cwd: no folder {folder}")
    lossy = _loses_status(_images(model, [*options.application, *options.applications]), folder)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # QEMU aborts at a lockup
    if not options.quiet:
        _say(f"\n{_banner(name, model)}\n")
    simulation = Simulation(command, folder)
    simulation.limits = list(_limits(model, options, simulation))
    try:
        status, reason = simulation.run()
    except KeyboardInterrupt:
        status, reason = 0, ""
        _say("\nStopping simulation...")
    _stop(simulation, options, reason)
    return 0 if lossy else status


def _limits(model: ShimmedModel, options: argparse.Namespace, simulation: Simulation) -> Iterator[SimulationLimit]:
    if options.timelimit is not None:
        yield SimulationLimit(options.timelimit, simulation.wall, "CPU time has been exceeded.")
    if options.cpulimit is not None:
        yield SimulationLimit(options.cpulimit, simulation.cpu, "CPU time has been exceeded.")
    if options.simlimit is not None:
        yield SimulationLimit(options.simlimit, simulation.wall, "Simulated time has been exceeded.")
    if options.cyclelimit is not None:
        yield SimulationLimit(options.cyclelimit / model.clock, simulation.wall, "Cycle limit has been exceeded.")


def _stop(simulation: Simulation, options: argparse.Namespace, reason: str) -> None:
    if reason:
        _say(f"\nInfo: Simulation is stopping. Reason: {reason}")
    if not options.quiet:
        _say("\nInfo: /OSCI/SystemC: Simulation stopped by user.")
    if options.stat:
        _say(
            f"\n--- shim statistics: {'-' * 54}\n"
            f"{'Host CPU time':<40}: {simulation.cpu():.6f}s\n"
            f"{'Wall time':<40}: {simulation.wall():.6f}s\n"
            f"{'Instructions':<40}: not counted by the shim\n{'-' * 79}"
        )


def _banner(name: str, model: ShimmedModel) -> str:
    """Return the banner, whose first line the harness shows as the engine."""
    remark = f" ({model.remark})" if model.remark else ""
    return (
        f"{name} shim (QEMU {_qemu_version()})\n"
        f"This shim is not Arm's model: QEMU's {model.machine} runs behind the model's command line{remark}."
    )


# --- the executables -----------------------------------------------------------------------------------------


def install(folder: Path, names: Sequence[str] = tuple(MODELS)) -> list[Path]:
    """Write an executable for each model into `folder`. Raise FileExistsError for a file there that is not a shim."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in names]
    for path in paths:
        if path.exists() and b"shim" not in path.read_bytes()[:1024]:
            raise FileExistsError(17, "not a shim, so it is not overwritten", str(path))
    for path in paths:
        # -I: the current folder and the environment must not affect what Python runs.
        call = shlex.join([sys.executable, "-I", os.path.abspath(__file__), path.name])
        path.write_text(f'#!/bin/sh\n# A shim (QEMU) for {path.name}; NOT Arm\'s model.\nexec {call} "$@"\n')
        path.chmod(0o755)
    return paths


def install_runner(root: Path, elf: Path, cpu: str, *, target: str, machine: str, arguments: Sequence[str]) -> Path:
    """Copy a runner to the place below $EXECUTORCH_ROOT where ExecuTorch's tests look for it, with a note for the shim.

    Source of the place: `_elf_path_candidates` in backends/arm/test/runner_utils.py and the tester's suffix.

    Args:
        root: the folder that will be $EXECUTORCH_ROOT.
        elf: the runner.
        cpu: the name of the CPU in ExecuTorch's tests.
        target: the target's name, for the shim's banner.
        machine: the name of the machine in QEMU.
        arguments: further arguments of QEMU.
    """
    place = root / "arm_test" / f"arm_semihosting_executor_runner_corstone-300_{cpu}" / "arm_executor_runner"
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(elf, place)
    note = {"target": target, "machine": machine, "arguments": list(arguments)}
    Path(f"{place}{NOTE}").write_text(json.dumps(note) + "\n")
    return place


def main(arguments: Sequence[str]) -> int:
    """Run the shim and return its exit status; `arguments` are the model's name and its command line."""
    if not arguments or arguments[0] not in MODELS:
        print(f"usage: fvp_shim MODEL [OPTION]…\nmodels: {' '.join(MODELS)}", file=sys.stderr)
        return REFUSED
    name, model = arguments[0], MODELS[arguments[0]]
    try:
        options = _parser(name).parse_args(arguments[1:])
        if options.version:
            _say(_banner(name, model))
            return 0
        if options.list_params:
            _list(model)
            return 0
        return _simulate(name, model, options)
    except Refusal as error:
        print(f"Error: {name} shim: {error}", file=sys.stderr)
        return REFUSED


def _list(model: ShimmedModel) -> None:
    rule = "#" + "-" * 78
    _say(f"# Parameters:\n# instance.parameter=value       #(type, mode) default = 'def value' : description\n{rule}")
    for one in sorted(parameters(model).values(), key=lambda parameter: parameter.name):
        setting = f"{one.name}={one.default}"
        _say(f"{setting:<60}  # {one.comment}")
    _say(rule)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
