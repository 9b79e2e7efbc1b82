"""The pytest command for ExecuTorch's own test suites, as `hil dev upstream` and `hil nightly --upstream` run it."""

from __future__ import annotations

import os
import sys

from cortex_m_hil.cli.pytest_runs import Suite, plugin_options
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.maintainers.executorch_suites import find_backend_suite, find_suite

# Thousands of deprecations within torch and ExecuTorch; what the harness warns of is about the tests themselves.
_WARNINGS = ("-W", "ignore", "-W", "default::cortex_m_hil.HilWarning")


def upstream_command(*, backend_suite: bool = False) -> list[str]:
    """Return the pytest command for one of ExecuTorch's own suites. Raise ToolchainError where it is not installed.

    The command ignores configuration files in the suite's folder or above it, and writes nothing into that folder. A
    module that is broken does not stop the others.
    """
    folder = find_backend_suite() if backend_suite else find_suite()
    command = [
        sys.executable,
        "-m",
        "pytest",
        *plugin_options("cortex_m_hil.maintainers.pytest_plugins.upstream"),
    ]
    command += [f"--confcutdir={folder}", "-c", os.devnull, f"--rootdir={folder}", "--import-mode=importlib"]
    # The runners of the suites are long, and torch writes hundreds of lines for developers of torch.
    command += ["--tb=short", "--log-level=WARNING"]
    command += ["--continue-on-collection-errors", "-o", f"cache_dir={cache_directory() / 'pytest-upstream'}"]
    return [*command, *(["--hil-backend-suite"] if backend_suite else []), *_WARNINGS]


def upstream_suite() -> Suite:
    """Return ExecuTorch's Cortex-M tests. Raise ToolchainError where there are none."""
    return Suite(upstream_command(), find_suite())
