"""Options that several commands have. Modules that only some commands need are imported where they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.host.files import check_folder
from cortex_m_hil.host.numbers import MULTIPLIERS, in_range

if TYPE_CHECKING:
    from cortex_m_hil.targets.resolve import Resolved

Targets = Annotated[
    Path | None,
    typer.Option("--targets-file", help="More targets [default: ./targets.yaml, if there is one]", show_default=False),
]
OneTarget = Annotated[str, typer.Option("--target", "-t", metavar="NAME", help="A target's name; see 'hil targets'")]
SeveralTargets = Annotated[
    list[str],
    typer.Option("--target", "-t", metavar="NAME", help="Names, globs, comma lists or 'all'; repeatable"),
]
Runtime = Annotated[str, typer.Option("--runtime", help="What executes the program: builtin or executorch")]
Pte = Annotated[Path, typer.Argument(metavar="PROGRAM.pte", show_default=False)]
Inputs = Annotated[
    list[Path] | None, typer.Option("--input", "-i", metavar="FILE.npy", help="One .npy per input, in order")
]
# Only declared: what a command answers is written by `answers`, and `app` sees the word before typer does.
Json = Annotated[bool, typer.Option("--json", help="For machines: one JSON object per line")]
RequireFvp = Annotated[bool, typer.Option("--require-fvp", help="An error instead of a fallback")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="The log, on standard error")]


def within(low: float, high: float) -> Callable[[float], float]:
    """Return the callback of an option that checks a range: typer's own `min` and `max` let NaN through."""

    def check(value: float) -> float:
        try:
            return in_range(value, low, high)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return check


def folder_to_write(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Check the folder of an option, as its callback: now, and not when what is to be written is there.

    Raises:
        ConfigError: files could not be written into the folder.
    """
    if value is not None:
        check_folder(value, param.opts[0])
    return value


DAY, YEAR = 86400.0, 365 * 86400.0  # seconds
Multiplier = Annotated[
    float, typer.Option("--timeout-multiplier", callback=within(*MULTIPLIERS), help="For slow programs")
]


class Choice:
    """The targets that a command is asked about, and the runtime that executes programs on them."""

    def __init__(
        self, patterns: Sequence[str], file: Path | None, runtime: str, *, require_fvp: bool = False, live: bool = True
    ) -> None:
        """Select the targets.

        Args:
            patterns: names, globs, comma lists or `all`.
            file: the file of --targets-file; None: the default.
            runtime: `builtin` or `executorch`.
            require_fvp: a fallback is an error.
            live: as of `targets.resolve.resolve`; False: no board is needed.

        Raises:
            ConfigError: a pattern or the runtime matches nothing there is.
        """
        from cortex_m_hil.targets.load import load_user_targets
        from cortex_m_hil.targets.resolve import check_runtime, select

        check_runtime(runtime)
        self._known, self._runtime = load_user_targets(file), runtime
        self._require_fvp, self._live = require_fvp, live
        self.names = select(patterns, self._known)
        if not self.names:
            raise ConfigError("no target is named", hint="--target NAME; hil targets lists them")

    def resolve(self, name: str) -> Resolved:
        """Return the target of a name with what it runs as here.

        Raises:
            ToolchainError: the target cannot run here.
        """
        from cortex_m_hil.targets.resolve import resolve

        return resolve(name, self._known, runtime=self._runtime, require_fvp=self._require_fvp, live=self._live)


def runtimes_of(given: Iterable[str]) -> list[str]:
    """Return the runtimes in names and comma lists, in order, each once.

    Raises:
        ConfigError: there is no such runtime.
    """
    from cortex_m_hil.targets.resolve import check_runtime

    found = list(dict.fromkeys(part.strip() for text in given for part in text.split(",")))
    for name in found:
        check_runtime(name)
    return found


def resolve_target(name: str, file: Path | None, runtime: str, *, require_fvp: bool = False) -> Resolved:
    """Return the target of a name with what it runs as here.

    Args:
        name: the target's.
        file: the file of --targets-file; None: the default.
        runtime: `builtin` or `executorch`.
        require_fvp: a fallback is an error.

    Raises:
        ToolchainError: the target cannot run here.
        ConfigError: there is no target or runtime of that name.
    """
    from cortex_m_hil.targets.load import load_user_targets
    from cortex_m_hil.targets.resolve import check_runtime, resolve

    check_runtime(runtime)
    return resolve(name, load_user_targets(file), runtime=runtime, require_fvp=require_fvp)
