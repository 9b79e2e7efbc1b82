"""Resolves the names, globs and fallbacks that the user asked for into the target that runs."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cortex_m_hil.errors import ConfigError, HarnessError, ToolchainError, did_you_mean
from cortex_m_hil.targets import executorch_prefix as prefixes
from cortex_m_hil.targets.cpu import HOST, cpu_name, cpus
from cortex_m_hil.targets.runtimes import AUTO, check_choice, executes
from cortex_m_hil.targets.target import HardwareLauncher, Target


@dataclass(frozen=True)
class Resolved:
    """A target that was asked for, and the one that runs.

    Attributes:
        requested: the target that the user named.
        target: the target that runs: the same, or a fallback.
        runtime: `builtin` or `executorch`.
        fallback_reason: why a fallback runs, else "".
        shim: the name that an FVP's executable reports if it is no model of Arm but a stand-in, else "".
        runtime_reason: why `auto` is `builtin` here, else "".
        has_misfit: whether `builtin` runs because an ExecuTorch was found that does not fit the target.
        lacks: the operators that the wheel lowers to and the ExecuTorch that runs does not have, with the next step;
            "" where it has all.
    """

    requested: Target
    target: Target
    runtime: str
    fallback_reason: str = ""
    shim: str = ""
    runtime_reason: str = ""
    has_misfit: bool = False
    lacks: str = ""

    @property
    def name(self) -> str:
        return self.requested.name

    @property
    def name_with_runtime(self) -> str:
        """Return `m4-qemu-executorch`: target and runtime, as in the names of tests that run on several runtimes."""
        return f"{self.name}-{self.runtime}"

    @property
    def reasons(self) -> str:
        """Return why another target, runtime or release runs than the one asked for; "" if the requested ones run."""
        return "; ".join(filter(None, (self.fallback_reason, self.runtime_reason, self.lacks)))

    @property
    def display_name(self) -> str:
        """Return `m4-fvp → m4-qemu`, or `m4-qemu` if no fallback was taken; `m4-fvp → shim (QEMU 7.2.22)`."""
        names = dict.fromkeys([self.requested.name, self.target.name, self.shim])
        return " → ".join(name for name in names if name)

    @property
    def label(self) -> str:
        """Return a description of the target and runtime that run, for headers, tables and reports."""
        own = self.target.firmware
        firmware = f"own firmware {own.elf.name}, " if own is not None else ""
        return f"{self.display_name} · {firmware}{self.runtime} ({executes(self.runtime, self.target.cpu)})"


def select(patterns: Iterable[str], targets: Mapping[str, Target]) -> list[str]:
    """Return target names, each once and in order, from names, globs, comma lists and `all`. Raises ConfigError."""
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
    runtime: str = AUTO,
    require_fvp: bool = False,
    live: bool = True,
    counts: bool = False,
) -> Resolved:
    """Return the target that runs: the one named, or the first of its fallbacks whose launcher can run on this machine.

    Args:
        name: the target that the user asked for.
        targets: all targets by name.
        runtime: `builtin`, `executorch`, or `auto`: what the target's entry says, else ExecuTorch where an installation
            is named or found for the CPU and fits, else `builtin`.
        require_fvp: raise an error instead of taking a fallback.
        live: whether the target is going to run; if not, the port of a board need not exist.
        counts: whether the runtime has to count coverage.

    Raises:
        ConfigError: there is no such target or runtime.
        ToolchainError: neither the target nor a fallback can run.
    """
    check_choice(runtime)
    requested = target = _named(name, targets)
    missing: dict[str, str] = {}
    while problem := _why_it_cannot_run(target, live):
        missing[target.name] = problem.message
        why = "; ".join(dict.fromkeys(missing.values()))
        if require_fvp:
            raise ToolchainError(why, target=name, hint=f"{problem.hint}, or drop --require-fvp")
        if target.fallback is None or target.fallback in missing:  # in `missing`: the fallbacks form a cycle
            raise ToolchainError(why, target=name, hint=f"{problem.hint}, or give the target a fallback")
        target = targets[target.fallback]
    chosen = _Runtime(requested.runtime if runtime == AUTO else runtime)
    if chosen.name == AUTO:
        chosen = _automatic(target, counts)
    why = "; ".join(dict.fromkeys(missing.values()))
    lacks = _lacking(target, counts) if chosen.name == "executorch" else ""
    return Resolved(requested, target, chosen.name, why, _shim(target), chosen.reason, chosen.has_misfit, lacks)


@dataclass(frozen=True)
class _Runtime:
    """The runtime that `auto` chose, and why; the attributes are those of `Resolved`."""

    name: str
    reason: str = ""
    has_misfit: bool = False


def _automatic(target: Target, counts: bool) -> _Runtime:
    """Return the runtime that `auto` chooses for a target, and the reason if it is not ExecuTorch.

    An ExecuTorch prefix is chosen if a runner can be linked with it, and if it has the installed executorch's release.
    """
    if target.cpu == HOST.name or prefixes.is_unwanted():  # the host's ExecuTorch has no Cortex-M operators
        return _Runtime("builtin")
    if target.firmware is not None:  # the user's own firmware contains the runtime that its entry names
        return _Runtime("builtin")
    install = prefixes.find_install(target, counts)
    if install is None:
        missing = prefixes.not_found(target, counts)
        return _Runtime("builtin", f"{missing.message}: {missing.hint.partition(';')[0]}")
    try:
        prefixes.check(install, target, counts)
        prefixes.check_release(install, target)
    except HarnessError as error:
        hint = error.hint.removesuffix(f"; {prefixes.DOCS}")
        where = "" if error.message.startswith(install.origin) else f"{install.origin}: "
        why = "; ".join(filter(None, (where + error.message, hint)))
        return _Runtime("builtin", why, has_misfit=not prefixes.is_for_other_cpus(install, target.cpu))
    return _Runtime("executorch")


def _lacking(target: Target, counts: bool) -> str:
    """Return what the ExecuTorch of a target lacks of the wheel's release, and the next step; "" where nothing."""
    lacking = prefixes.lacking_operators(target, counts)
    names = ", ".join(name.removeprefix("cortex_m::").removesuffix(".out") for name in lacking)
    return f"{prefixes.lacking_operator(names)}; {prefixes.remedy(target, counts)}" if lacking else ""


def _named(name: str, targets: Mapping[str, Target]) -> Target:
    if name not in targets:
        if several := select([name], targets):
            what = f"one target is taken here, by its name, and {name!r} is a list or a pattern"
            raise ConfigError(what, hint=f"one of {', '.join(several)}")
        raise _unknown(name, targets)
    return targets[name]


def _unknown(name: str, targets: Mapping[str, Target]) -> ConfigError:
    """Return the error for an unknown target. ExecuTorch calls a CPU a target: `cortex-m55` or `cortex-m55+int8`."""
    if (cpu := cpu_name(name)) in cpus():
        of_it = [one.name for one in targets.values() if one.cpu == cpu]
        hint = f"a target of this CPU: {', '.join(of_it)}" if of_it else f"add one with cpu: {cpu} to targets.yaml"
        return ConfigError(f"unknown target {name!r}: it is a CPU", hint=hint)
    return ConfigError(f"unknown target {name!r}", hint=did_you_mean(name, targets))


def _why_it_cannot_run(target: Target, live: bool) -> HarnessError | None:
    """Return the error of `require` if the target's launcher cannot run here, else None.

    Only optional launchers, and targets with a fallback, are checked.
    """
    if not live and isinstance(target.launcher, HardwareLauncher):
        return None
    if target.launcher.optional or target.fallback is not None:
        try:
            target.launcher.require()
        except HarnessError as error:
            return error
    return None


def _shim(target: Target) -> str:
    """Return the name of a shim (a stand-in for Arm's FVP) that runs in place of the launcher's program, else "".

    A program that does not answer is taken for no shim; its first use reports the failure.
    """
    with contextlib.suppress(HarnessError):
        return target.launcher.shim()
    return ""
