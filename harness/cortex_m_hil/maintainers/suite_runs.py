"""The pytest command for ExecuTorch's own test suites, for `hil dev upstream` and `hil nightly --upstream`."""

from __future__ import annotations

import os
import sys

from cortex_m_hil.cli.pytest_runs import Suite, plugin_options
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.maintainers.executorch_suites import find_backend_suite, find_suite

# Hides thousands of deprecations within torch and ExecuTorch; the harness's warnings are about the tests themselves.
_WARNINGS = ("-W", "ignore", "-W", "default::cortex_m_hil.HilWarning")


def upstream_command(*, backend_suite: bool = False) -> list[str]:
    """Return the pytest command for one of ExecuTorch's own suites. Raise ToolchainError where it is not installed.

    The command ignores configuration files in the suite's folder or above it, and writes nothing into that folder. A
    broken module does not stop the other modules.
    """
    folder = find_backend_suite() if backend_suite else find_suite()
    command = [
        sys.executable,
        "-m",
        "pytest",
        *plugin_options("cortex_m_hil.maintainers.pytest_plugins.upstream"),
    ]
    command += [f"--confcutdir={folder}", "-c", os.devnull, f"--rootdir={folder}", "--import-mode=importlib"]
    # Without tracebacks, since the suites' runners are long, and torch prints hundreds of lines for its developers.
    command += ["--tb=short", "--log-level=WARNING"]
    command += ["--continue-on-collection-errors", "-o", f"cache_dir={cache_directory() / 'pytest-upstream'}"]
    return [*command, *(["--hil-backend-suite"] if backend_suite else []), *_WARNINGS]


def upstream_suite() -> Suite:
    """Return ExecuTorch's Cortex-M test suite. Raise ToolchainError where it is not installed."""
    return Suite(upstream_command(), find_suite())
