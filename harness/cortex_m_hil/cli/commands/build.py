"""hil build."""

from __future__ import annotations

import shutil

from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.options import OneTarget, Runtime, Targets, Verbose, resolve_target
from cortex_m_hil.cli.output import label_of, log_of_errors, tell_log
from cortex_m_hil.errors import ConfigError, ToolchainError
from cortex_m_hil.host import files, toolchain
from cortex_m_hil.runner.build import Elf, build_runner

LOG_LIMIT = 16 << 20  # bytes of a build's log
SIZE_TIMEOUT = 20.0  # seconds


@app.command("build")
def build(
    target: OneTarget, runtime: Runtime = "builtin", targets_file: Targets = None, verbose: Verbose = False
) -> None:
    """Build the runner for a target, or find it in the cache."""
    resolved = resolve_target(target, targets_file, runtime)
    with log_of_errors(verbose):
        elf = build_runner(resolved.target, resolved.runtime)
    if verbose:
        try:
            log = files.read(elf.path.parent / "build.log", LOG_LIMIT).decode(errors="replace")
        except ConfigError as error:
            log = f"no log of its build: {error.message}"
        tell_log(log, verbose)
    print(f"runner    {elf.path}\nbuild id  {elf.build_id}\nfor       {label_of(resolved)}, {elf.config}")
    print(f"size      {_sizes(elf)}")


def _sizes(elf: Elf) -> str:
    """Bytes by kind of section, as binutils' `size` tells them."""
    tool = shutil.which("size" if elf.config.startswith("host/") else "arm-none-eabi-size")
    if tool is None:
        return "unknown (no arm-none-eabi-size on PATH)"
    try:
        said = toolchain.ask([tool, str(elf.path)], SIZE_TIMEOUT)
    except ToolchainError as error:
        return f"unknown ({error.message})"
    lines = said.out.splitlines()
    if said.status != 0 or len(lines) < 2:
        return f"unknown ({said.err.strip()})"
    return ", ".join(f"{name} {size}" for name, size in zip(("text", "data", "bss"), lines[1].split(), strict=False))
