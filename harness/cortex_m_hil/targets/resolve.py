"""From what the user asked for to what really runs: names, globs, fallbacks, and why."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cortex_m_hil.errors import ConfigError, HarnessError, ToolchainError, did_you_mean
from cortex_m_hil.targets.cpu import cpu_name, cpus
from cortex_m_hil.targets.model import HardwareLauncher, Target

# What a runtime executes, for headers: a result must never look like more than it is.
RUNTIMES = {
    "builtin": "no ExecuTorch or CMSIS-NN code executed",
    "executorch": "ExecuTorch's runtime and kernels, CMSIS-NN",
}
_ON_HOST = {"executorch": "the wheel's ExecuTorch, no Cortex-M operators or CMSIS-NN"}


def executes(runtime: str, target: Target) -> str:
    """What a runtime executes on a target, in words."""
    return (_ON_HOST if target.cpu == "host" else RUNTIMES).get(runtime, RUNTIMES[runtime])


@dataclass(frozen=True)
class Resolved:
    """`requested` is what the user named, `target` what runs; `why` says why they differ.

    `shim` is "" unless an FVP's executable is no model of Arm's: then it is what it calls itself.
    """

    requested: Target
    target: Target
    runtime: str
    fallback_reason: str = ""
    shim: str = ""

    @property
    def name(self) -> str:
        return self.requested.name

    @property
    def display_name(self) -> str:
        """`m4-fvp → m4-qemu`, or `m4-qemu` where nothing was replaced; `m4-fvp → shim (QEMU 7.2.22)`."""
        names = dict.fromkeys([self.requested.name, self.target.name, self.shim])
        return " → ".join(name for name in names if name)

    @property
    def label(self) -> str:
        """What really runs, for headers, tables and reports."""
        return f"{self.display_name} · {self.runtime} ({executes(self.runtime, self.target)})"


def check_runtime(name: str) -> None:
    """ConfigError where there is no such runtime."""
    if name not in RUNTIMES:
        raise ConfigError(f"unknown runtime {name!r}", hint=did_you_mean(name, RUNTIMES))


def select(patterns: Iterable[str], targets: Mapping[str, Target]) -> list[str]:
    """Names from names, globs, comma lists and `all`, in order, each once."""
    chosen: dict[str, None] = {}
    for pattern in (part.strip() for text in patterns for part in text.split(",")):
        if not pattern:
            continue
        names = list(targets) if pattern == "all" else fnmatch.filter(targets, pattern)
        if not names:
            raise _unknown(pattern, targets)
        chosen.update(dict.fromkeys(names))
    return list(chosen)


def resolve(
    name: str,
    targets: Mapping[str, Target],
    *,
    runtime: str = "builtin",
    require_fvp: bool = False,
    live: bool = True,
) -> Resolved:
    """What really runs: the target, or the first of its fallbacks whose launcher has here what it needs.

    What is asked without `live` needs no board: it is taken as it is described, and its port is not looked for.
    ConfigError where there is no such target or runtime, ToolchainError where nothing can run.
    """
    check_runtime(runtime)
    requested = target = _named(name, targets)
    missing: dict[str, str] = {}
    while problem := _problem(target, live):
        missing[target.name] = problem.message
        why = "; ".join(dict.fromkeys(missing.values()))
        if require_fvp:
            raise ToolchainError(why, target=name, hint=f"{problem.hint}, or drop --require-fvp")
        if target.fallback is None or target.fallback in missing:  # the latter: they lead in a circle
            raise ToolchainError(why, target=name, hint=f"{problem.hint}, or give the target a fallback")
        target = targets[target.fallback]
    return Resolved(requested, target, runtime, "; ".join(dict.fromkeys(missing.values())), _shim(target))


def _named(name: str, targets: Mapping[str, Target]) -> Target:
    if name not in targets:
        if several := select([name], targets):
            what = f"one target is taken here, by its name, and {name!r} is a list or a pattern"
            raise ConfigError(what, hint=f"one of {', '.join(several)}")
        raise _unknown(name, targets)
    return targets[name]


def _unknown(name: str, targets: Mapping[str, Target]) -> ConfigError:
    """ExecuTorch calls a CPU a target, as `cortex-m55` or `cortex-m55+int8`."""
    if (cpu := cpu_name(name)) in cpus():
        of_it = [one.name for one in targets.values() if one.cpu == cpu]
        hint = f"a target of this CPU: {', '.join(of_it)}" if of_it else f"add one with cpu: {cpu} to targets.yaml"
        return ConfigError(f"unknown target {name!r}: it is a CPU", hint=hint)
    return ConfigError(f"unknown target {name!r}", hint=did_you_mean(name, targets))


def _problem(target: Target, live: bool) -> HarnessError | None:
    """What its launcher misses here, where a machine may be without it or another target can take its place."""
    if not live and isinstance(target.launcher, HardwareLauncher):
        return None
    if target.launcher.optional or target.fallback is not None:
        try:
            target.launcher.require()
        except HarnessError as error:
            return error
    return None


def _shim(target: Target) -> str:
    """What runs in the place of the launcher's program. What does not even answer is told by the first use of it."""
    with contextlib.suppress(HarnessError):
        return target.launcher.shim()
    return ""
