"""Finds the launcher class for a key below `launcher:` in `targets.yaml`, in this or another installed package."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from importlib.metadata import EntryPoint

from cortex_m_hil.errors import ConfigError, did_you_mean
from cortex_m_hil.targets.target import Launcher

# The launchers of this package, by their key below `launcher:`, in the syntax of an entry point.
SHIPPED: Mapping[str, str] = {
    "qemu": "cortex_m_hil.runner.launchers.qemu:QemuLauncher",
    "fvp": "cortex_m_hil.runner.launchers.fvp:FvpLauncher",
    "native": "cortex_m_hil.runner.launchers.native:NativeLauncher",
    "serial": "cortex_m_hil.runner.launchers.serial:SerialLauncher",
}
GROUP = "cortex_m_hil.launchers"  # the group of entry points by which other packages offer launchers


def find_launcher(key: str) -> type[Launcher]:
    """Return the launcher class of a key.

    Raises ConfigError where no launcher has the key, or its module does not load.
    """
    if key in SHIPPED:
        return _load(EntryPoint(key, SHIPPED[key], GROUP))
    offered = _offered()
    if key not in offered:
        raise ConfigError(f"unknown key {key!r}", hint=did_you_mean(key, [*SHIPPED, *offered]))
    return _load(offered[key])


def _offered() -> dict[str, EntryPoint]:
    """Return the launchers of other packages by their keys. Raises ConfigError where two launchers have the same key.

    The look-up takes milliseconds, so it is done only for keys that this package does not define.
    """
    offered: dict[str, EntryPoint] = {}
    for one in importlib.metadata.entry_points(group=GROUP):
        if one.name in SHIPPED or one.name in offered:
            other = _package(offered[one.name]) if one.name in offered else "this package"
            raise ConfigError(
                f"launcher {one.name!r} comes from {_package(one)} and from {other}", hint="uninstall one of them"
            )
        offered[one.name] = one
    return offered


def _load(entry: EntryPoint) -> type[Launcher]:
    module = entry.value.partition(":")[0]
    try:
        found = entry.load()
    except Exception as error:  # another package's module may raise anything
        raise ConfigError(
            f"launcher {entry.name!r} of {_package(entry)} does not load: {type(error).__name__}: {error}",
            hint=f"python -c 'import {module}' shows where",
        ) from error
    if not (isinstance(found, type) and issubclass(found, Launcher)):
        raise ConfigError(
            f"launcher {entry.name!r} of {_package(entry)}: {entry.value} is no subclass of Launcher",
            hint="cortex_m_hil.targets.target.Launcher",
        )
    return found


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "this package"
