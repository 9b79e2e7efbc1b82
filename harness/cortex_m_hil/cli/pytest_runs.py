"""What commands need that run pytest in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.lowering import suite

# Thousands of deprecations within torch and ExecuTorch; what the harness warns of is about the tests themselves.
_WARNINGS = ("-W", "ignore", "-W", "default::cortex_m_hil.HilWarning")


def plugin_options(own: str) -> list[str]:
    """Load the module `own` as a plugin, and where the package is not installed its pytest plugin as well."""
    installed = any(point.value == "cortex_m_hil.pytest_plugin.plugin" for point in entry_points(group="pytest11"))
    names = [own] if installed else ["cortex_m_hil.pytest_plugin.plugin", own]
    return [word for name in names for word in ("-p", name)]


def upstream_command(*, backend_suite: bool = False) -> list[str]:
    """pytest on one of ExecuTorch's own suites, which it is told by the plugin; ToolchainError where there is none.

    A configuration file beside the suite or above it is not about such a run, and the suite's folder not to be written
    to. A module that is broken costs only itself.
    """
    folder = suite.find_backend_suite() if backend_suite else suite.find()
    command = [sys.executable, "-m", "pytest", *plugin_options("cortex_m_hil.pytest_plugin.upstream")]
    command += [f"--confcutdir={folder}", "-c", os.devnull, f"--rootdir={folder}", "--import-mode=importlib"]
    # The runners of the suites are long, and torch writes hundreds of lines for developers of torch.
    command += ["--tb=short", "--log-level=WARNING"]
    command += ["--continue-on-collection-errors", "-o", f"cache_dir={cache_directory() / 'pytest-upstream'}"]
    return [*command, *(["--hil-backend-suite"] if backend_suite else []), *_WARNINGS]


def options_of_plugin(names: Sequence[str], runtime: str, multiplier: float, targets_file: Path | None) -> list[str]:
    """What the options of a command are for pytest."""
    given = [f"--hil-target={name}" for name in names]
    given += [f"--hil-runtime={runtime}", f"--hil-timeout-multiplier={multiplier}"]
    return [*given, f"--hil-targets-file={targets_file}"] if targets_file is not None else given
