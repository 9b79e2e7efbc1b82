"""Commands of external tools that flash a board, reset it, or switch its power.

This module has values only: templates of commands, the presets, and their syntax in `targets.yaml`.
`boards.board_tools` runs them.

A template is the list of a command's arguments, never a line for a shell. `{name}` is replaced by the value of a
template variable. Arguments in a tuple are left out if a variable in them has no value, and repeated if it has several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pydantic import BaseModel, ConfigDict, Field

from cortex_m_hil.errors import ConfigError, did_you_mean
from cortex_m_hil.host import timeouts

# Template variables that the harness sets itself when it uses a tool.
GIVEN = frozenset({"elf", "port", "python", "script", "coordinator", "place"})
# Template variables that targets.yaml may set.
PARAMETERS = frozenset({"config", "chip", "serial_number", "address", "interface", "speed"})

Variables = Mapping[str, str | tuple[str, ...]]
Template = tuple[str | tuple[str, ...], ...]
_NAME = re.compile(r"\{([A-Za-z_]+)\}")


@dataclass(frozen=True)
class DialogueStep:
    """A step of a dialogue with a tool: wait for `expect` (a regular expression), then send the line `send`."""

    expect: str
    send: str


@dataclass(frozen=True)
class Procedure:
    """The commands that are run one after the other to flash, reset or power-cycle a board.

    Attributes:
        name: the name of the preset, or of the tool.
        commands: templates of the commands.
        script: lines of a file that `{script}` names.
        talk: steps of the dialogue with each command.
        fail: regular expressions; output that matches one of them is a failure, for tools whose exit status is always
            0.
        seconds: the time limit for all commands together.
        variables: values of template variables from targets.yaml.
        origin: the place in targets.yaml, such as "targets.yaml:12: nucleo: flash".
        home: the program in whose folder, `{home}`, all commands run; "": they run in the current folder.
        replaces: whether flashing replaces everything that was flashed before.
    """

    name: str
    commands: tuple[Template, ...]
    script: tuple[str, ...] = ()
    talk: tuple[DialogueStep, ...] = ()
    fail: tuple[str, ...] = ()
    seconds: float = timeouts.BOARD_PROCEDURE
    variables: Variables = field(default_factory=dict)
    origin: str = ""
    home: str = ""
    replaces: bool = False

    def names(self) -> Iterator[tuple[str, bool]]:
        """Yield the name of each template variable of the procedure, and whether the variable must have a value."""
        for template in self.commands:
            for piece in template:
                optional = isinstance(piece, tuple)
                for word in piece if isinstance(piece, tuple) else (piece,):
                    yield from ((name, not optional) for name in _NAME.findall(word))
        for text in (*self.script, *(exchange.send for exchange in self.talk)):
            yield from ((name, True) for name in _NAME.findall(text))

    def bind(self, given: Variables) -> list[list[str]]:
        """Return the commands with all variables replaced; `given` takes precedence over targets.yaml."""
        variables = {**self.variables, **given}
        return [[word for piece in template for word in self._expand(piece, variables)] for template in self.commands]

    def fill(self, text: str, given: Variables) -> str:
        """Return a line of the script or of the dialogue with all variables replaced, as `bind` does."""
        return self._expand(text, {**self.variables, **given})[0]

    def _expand(self, piece: str | tuple[str, ...], variables: Variables) -> list[str]:
        group = (piece,) if isinstance(piece, str) else piece
        names = list(dict.fromkeys(name for word in group for name in _NAME.findall(word)))
        missing = [name for name in names if name not in variables]
        if missing and isinstance(piece, tuple):
            return []
        if missing:
            raise ConfigError(
                f"{self.origin}: no value for {{{missing[0]}}}", hint=f"add {missing[0]}: … below the tool's key"
            )
        several = next((name for name in names if isinstance(variables[name], tuple)), None)
        expanded = []
        for value in variables[several] if several else [""]:
            now = {name: value if name == several else str(variables[name]) for name in names}
            expanded += [_NAME.sub(lambda found, now=now: now[found[1]], word) for word in group]  # type: ignore[misc]
        return expanded


# --- presets -------------------------------------------------------------------------------------------------

_OPENOCD: Template = (
    "openocd", ("-f", "{config}"), ("-c", "adapter serial {serial_number}"), ("-c", "adapter speed {speed}"),
    # OpenOCD's servers have fixed ports, so they are off: a second OpenOCD for a second board would not start.
    "-c", "gdb_port disabled; tcl_port disabled; telnet_port disabled",
)  # fmt: skip
_PYOCD: Template = (("--target", "{chip}"), ("--uid", "{serial_number}"), ("--frequency", "{speed}"))
_PROBE_RS: Template = (
    "--non-interactive", "--chip", "{chip}", ("--probe", "{serial_number}"), ("--protocol", "{interface}"),
    ("--speed", "{speed}"),
)  # fmt: skip
_JLINK: Template = (
    "JLinkExe", "-NoGui", "1", "-ExitOnError", "1", "-AutoConnect", "1", "-Device", "{chip}", "-If", "{interface}",
    "-Speed", "{speed}", ("-USB", "{serial_number}"), "-CommandFile", "{script}",
)  # fmt: skip
_JLINK_DEFAULTS: Variables = {"interface": "SWD", "speed": "4000"}
# Without -ExitOnError: the reset pin resets the secure enclave too, so for a while no core can be attached to.
_JLINK_PIN: Template = (*_JLINK[:3], "-ExitOnError", "0", *_JLINK[5:])
_STM32: Template = (
    "STM32_Programmer_CLI", "-c", "port={interface}", ("sn={serial_number}",), ("freq={speed}",), "mode=UR",
    "reset=HWrst",
)  # fmt: skip
_STM32_ERROR = r"Error: [^\x1b\r\n]+"  # the tool prints it in colour, and sometimes exits with status 0
# SETOOLS read images and write packages in their own folder.
_SETOOLS: tuple[Template, ...] = (
    ("arm-none-eabi-objcopy", "-O", "binary", "{elf}", "{home}/build/images/hil.bin"),
    ("{home}/app-gen-toc", "-f", "{script}"),
    ("{home}/app-write-mram", "-p"),
)
_SETOOLS_TOC = (
    "{",
    '  "DEVICE": {"disabled": false, "binary": "app-device-config.json", "version": "0.5.00", "signed": true},',
    '  "HIL": {"binary": "hil.bin", "version": "1.0.0", "signed": false, "cpu_id": "{chip}",',
    '          "mramAddress": "{address}", "flags": ["boot"]}',
    "}",
)

# Sources. OpenOCD: User's Guide, "Flash Programming" (`program`) and "Debug Adapter Configuration"; run with 0.12 up
# to the missing adapter. pyOCD: `pyocd load --help`, 0.46; without -W it and `pyocd run` wait for a probe for ever.
# probe-rs: `probe-rs download --help`, probe-rs-tools 0.31; --probe takes VID:PID:SERIAL. picotool: its README; -f
# reboots a board into BOOTSEL that has the SDK's USB console, any other must be in BOOTSEL already. J-Link: SEGGER's
# Knowledge Base, "J-Link Commander"; `RSetType 2` is the pin: its "J-Link Cortex-M reset strategies".
# STM32CubeProgrammer: ST's UM2237. SETOOLS: Alif's application note "SE Tool Flashing", and the runner of its Zephyr.
# labgrid: `labgrid-client --help`, 26.0.1; run against its coordinator.
PRESETS: Mapping[str, Mapping[str, Procedure]] = {
    "flash": {
        # OpenOCD's Tcl takes a path with spaces in braces.
        "openocd": Procedure("openocd", ((*_OPENOCD, "-c", "program {{elf}} verify reset exit"),)),
        "pyocd": Procedure("pyocd", (("pyocd", "load", "-W", *_PYOCD, "{elf}"),)),
        "probe-rs": Procedure(
            "probe-rs",
            (("probe-rs", "download", *_PROBE_RS, "--verify", "{elf}"), ("probe-rs", "reset", *_PROBE_RS)),
        ),
        "picotool": Procedure(
            "picotool", (("picotool", "load", "-v", "-x", "{elf}", "-t", "elf", ("--ser", "{serial_number}"), "-f"),)
        ),
        "jlink": Procedure(
            "jlink", (_JLINK,), script=("r", "h", 'loadfile "{elf}"', "r", "g", "qc"), variables=_JLINK_DEFAULTS
        ),
        "stm32cubeprogrammer": Procedure(
            "stm32cubeprogrammer",
            ((*_STM32, "-w", "{elf}", "-v", "-rst"),),
            fail=(_STM32_ERROR,),
            variables={"interface": "SWD"},
        ),
        "setools": Procedure(
            "setools", _SETOOLS, script=_SETOOLS_TOC, fail=(r"\[ERROR\][^\r\n]*",), home="app-gen-toc", replaces=True
        ),
    },
    "reset": {
        "openocd": Procedure("openocd", ((*_OPENOCD, "-c", "init; reset run; shutdown"),)),
        "pyocd": Procedure("pyocd", (("pyocd", "reset", "-W", *_PYOCD),)),
        "probe-rs": Procedure("probe-rs", (("probe-rs", "reset", *_PROBE_RS),)),
        "jlink": Procedure("jlink", (_JLINK,), script=("r", "g", "qc"), variables=_JLINK_DEFAULTS),
        "jlink-pin": Procedure(
            "jlink-pin",
            (_JLINK_PIN,),
            script=("RSetType 2", "r", "g", "qc"),
            variables=_JLINK_DEFAULTS,
            fail=(r"Connecting to J-Link[^\r\n]*FAILED[^\r\n]*", "Cannot connect to the probe/programmer"),
        ),
        "stm32cubeprogrammer": Procedure(
            "stm32cubeprogrammer", ((*_STM32, "-rst"),), fail=(_STM32_ERROR,), variables={"interface": "SWD"}
        ),
    },
    "power": {
        "labgrid": Procedure(
            "labgrid", (("labgrid-client", "-x", "{coordinator}", "-p", "{place}", "power", "cycle"),)
        ),
    },
}
_CHIPS = {"pyocd": "stm32f446retx", "setools": "M55_HP", "jlink-pin": "AE822FA0E5597LS0_M55_HP"}  # else by _EXAMPLES
_EXAMPLES = {
    "config": "board/st_nucleo_f4.cfg", "chip": "STM32F446RE", "serial_number": '"066DFF303435554157123456"',
    "address": "0x80008000", "interface": "SWD", "speed": "4000",
}  # fmt: skip
_REQUIRED = {"openocd": "config", "pyocd": "chip"}  # for each preset the variable that it must have


# --- targets.yaml --------------------------------------------------------------------------------------------


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class RawExchange(_Strict):
    expect: str
    send: str


class RawProcedure(_Strict):
    """A tool in targets.yaml: `{preset: openocd, config: board/x.cfg}` or `{command: [tool, "{elf}"]}`."""

    preset: str | None = None
    command: list[str] | None = None
    script: list[str] = []
    talk: list[RawExchange] = []
    fail: list[str] = []
    seconds: float | None = Field(default=None, gt=0, le=timeouts.LONGEST_WAIT)
    config: str | list[str] | None = None
    chip: str | None = None
    serial_number: str | None = None  # a string, since a number would lose its leading zeros
    address: str | int | None = None
    interface: str | None = None
    speed: str | int | None = None


def parse_procedure(
    raw: str | list[str] | RawProcedure, kind: str, where: str, brought: Iterable[str] = ()
) -> Procedure:
    """Return the checked procedure of a tool.

    Args:
        raw: the tool in targets.yaml; a string is a preset's name, a list a command's arguments.
        kind: `flash`, `reset` or `power`.
        where: the place in targets.yaml, for messages.
        brought: names of template variables whose values come from the board, such as `serial_number`.

    Raises:
        ConfigError: the tool's settings are wrong; the message begins with `where`.
    """
    if isinstance(raw, str):
        raw = RawProcedure(preset=raw)
    elif isinstance(raw, list):
        raw = RawProcedure(command=raw)
    where = f"{where}: {kind}"
    variables: dict[str, str | tuple[str, ...]] = {
        name: _text(name, value) for name in sorted(PARAMETERS) if (value := getattr(raw, name)) is not None
    }
    procedure = (
        _from_preset(raw, kind, where, variables) if raw.preset is not None else _from_command(raw, where, variables)
    )
    _check_names(procedure, frozenset({*procedure.variables, *brought}), raw.preset or "")
    for pattern in (*procedure.fail, *(exchange.expect for exchange in procedure.talk)):
        _check_pattern(pattern, where)
    return procedure


def _text(name: str, value: str | int | list[str]) -> str | tuple[str, ...]:
    if isinstance(value, list):
        return tuple(value)
    return f"{value:#x}" if name == "address" and isinstance(value, int) else str(value)


def _from_preset(raw: RawProcedure, kind: str, where: str, variables: Variables) -> Procedure:
    assert raw.preset is not None
    known = PRESETS[kind]
    if raw.preset not in known:
        raise ConfigError(f"{where}: no preset {raw.preset!r}", hint=did_you_mean(raw.preset, known))
    if raw.command is not None or raw.script or raw.talk:
        raise ConfigError(f"{where}: preset {raw.preset!r} has a command of its own", hint="preset, or command")
    preset = known[raw.preset]
    return replace(
        preset,
        fail=(*preset.fail, *raw.fail),
        seconds=raw.seconds or timeouts.BOARD_PROCEDURE,
        variables={**preset.variables, **variables},
        origin=where,
    )


def _from_command(raw: RawProcedure, where: str, variables: Variables) -> Procedure:
    if not raw.command:
        raise ConfigError(f"{where}: names no tool", hint="a preset's name, or command: [words, of, a, command]")
    talk = tuple(DialogueStep(step.expect, step.send) for step in raw.talk)
    return Procedure(
        raw.command[0], (tuple(raw.command),), tuple(raw.script), talk, tuple(raw.fail),
        raw.seconds or timeouts.BOARD_PROCEDURE, variables, where,
    )  # fmt: skip


def _check_names(procedure: Procedure, valued: frozenset[str], preset: str) -> None:
    """Check that each template variable is known, and has a value if it needs one from targets.yaml.

    Args:
        procedure: the procedure.
        valued: the names of variables that have a value.
        preset: the preset's name; "" for a command.

    Raises:
        ConfigError: a variable is unknown, lacks a value, or has a value that is not used.
    """
    where = procedure.origin
    used = dict.fromkeys(name for name, _ in procedure.names())
    for name in used:
        if name not in GIVEN | PARAMETERS and not (name == "home" and procedure.home):
            hint = did_you_mean(name, GIVEN | PARAMETERS)
            raise ConfigError(f"{where}: unknown placeholder {{{name}}}", hint=hint)
    if "script" in used and not procedure.script:
        raise ConfigError(f"{where}: {{script}} without a script", hint="script: [lines, of, the, file]")
    needed = {name for name, must in procedure.names() if must and name in PARAMETERS}
    needed |= (
        {_REQUIRED[procedure.name]} if procedure.name in _REQUIRED and _REQUIRED[procedure.name] in used else set()
    )
    for name in sorted(needed - valued):
        what = f"preset: {preset}" if preset else f"command: [{procedure.name}, …]"
        missing = (f"{one}: {_example(one, preset)}" for one in sorted(needed - valued))
        raise ConfigError(f"{where}: {procedure.name} needs {name}", hint=f"{{{what}, {', '.join(missing)}}}")
    for name in sorted(set(procedure.variables) - set(used)):
        raise ConfigError(f"{where}: {procedure.name} has no use for {name}", hint=f"used: {', '.join(sorted(used))}")


def _example(name: str, preset: str) -> str:
    """Return an example value of a template variable, for a hint."""
    return _CHIPS.get(preset, _EXAMPLES[name]) if name == "chip" else _EXAMPLES[name]


def _check_pattern(pattern: str, where: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"{where}: {pattern!r} is no regular expression: {error}", hint="a backslash before what is meant literally"
        ) from None
