"""From what the user asked for to what really runs: names, globs, fallbacks, and why."""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.errors import ConfigError, ToolchainError
from harness.targets import FvpLauncher, Target, did_you_mean

RUNTIME_NOTES = {"builtin": "no ExecuTorch or CMSIS-NN code executed"}


@dataclass(frozen=True)
class Resolved:
    """`requested` is what the user named, `target` what runs; `why` says why they differ."""

    requested: Target
    target: Target
    runtime: str
    why: str = ""

    @property
    def name(self) -> str:
        return self.requested.name

    @property
    def arrow(self) -> str:
        """`m4-fvp → m4-qemu`, or `m4-qemu` where nothing was replaced."""
        if self.requested.name == self.target.name:
            return self.target.name
        return f"{self.requested.name} → {self.target.name}"

    @property
    def label(self) -> str:
        """What really runs, for headers, tables and reports."""
        note = RUNTIME_NOTES.get(self.runtime)
        return f"{self.arrow} · {self.runtime}" + (f" ({note})" if note else "")


def select(patterns: Iterable[str], targets: Mapping[str, Target]) -> list[str]:
    """Names from names, globs, comma lists and `all`, in order, each once."""
    chosen: dict[str, None] = {}
    for pattern in (part.strip() for text in patterns for part in text.split(",")):
        if not pattern:
            continue
        names = list(targets) if pattern == "all" else fnmatch.filter(targets, pattern)
        if not names:
            raise ConfigError(f"unknown target {pattern!r}", hint=did_you_mean(pattern, targets))
        chosen.update(dict.fromkeys(names))
    return list(chosen)


def resolve(name: str, targets: Mapping[str, Target], *, runtime: str = "builtin", require_fvp: bool = False) -> Resolved:
    """The target, or its fallback where its simulator is not installed."""
    if name not in targets:
        raise ConfigError(f"unknown target {name!r}", hint=did_you_mean(name, targets))
    requested = targets[name]
    launcher = requested.launcher
    if not isinstance(launcher, FvpLauncher) or shutil.which(launcher.model):
        return Resolved(requested, requested, runtime)
    missing = f"{launcher.model} is not on PATH"
    if require_fvp:
        raise ToolchainError(missing, target=name, hint="install Arm's FVP, or drop --require-fvp")
    if requested.fallback is None:
        raise ToolchainError(missing, target=name, hint="install Arm's FVP, or give the target a fallback")
    return Resolved(requested, targets[requested.fallback], runtime, missing)
