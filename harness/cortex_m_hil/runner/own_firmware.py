"""Builds the user's own firmware, which contains the target library and takes the place of a runner."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cortex_m_hil.errors import BuildError, ConfigError
from cortex_m_hil.host import files, subprocesses, timeouts
from cortex_m_hil.host.folders import build_lock
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.host.spans import span
from cortex_m_hil.runner.linked_executorch import first_error
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.target import OwnFirmware, Target

# What only the target library says (server.c): a text in each ELF that links it.
LIBRARY_TEXT: Final = b"another version of the protocol is spoken here"


def own_firmware(target: Target, options: Mapping[str, str]) -> Elf:
    """Build the firmware of a target's `firmware:` by the command there, and return the ELF.

    Processes that need the same firmware build it one after the other; the later builds find nothing to do.

    Args:
        target: the target.
        options: CMake definitions for a runner, which own firmware does not take.

    Raises:
        ConfigError: the build leaves no ELF, or one without the target library; or `options` is not empty.
        BuildError: the command fails or does not end, or its folder is not there.
    """
    firmware = target.firmware
    assert firmware is not None
    if options:
        raise needs_runner(target, f"built with {', '.join(sorted(options))}")
    return _Build(target.name, target.config, firmware).elf()


def needs_runner(target: Target, what: str) -> ConfigError:
    """Return the error for a feature, named by `what`, that needs a runner, on a target with own firmware."""
    return ConfigError(
        f"firmware of your own cannot be {what}, only runners can",
        target=target.name,
        hint="name a target without firmware: (in targets.yaml)",
    )


@dataclass(frozen=True)
class _Build:
    """The build of a target's own firmware.

    Attributes:
        target: the target's name.
        config: the configuration that the firmware is built for, as its handshake reports it.
        firmware: what the target's `firmware:` says.
    """

    target: str
    config: str
    firmware: OwnFirmware

    def elf(self) -> Elf:
        """Build the firmware, and return its ELF; processes that need the same one build it one after the other."""
        firmware = self.firmware
        key = hashlib.sha256(str(firmware.elf).encode()).hexdigest()[:16]
        folder = cache_directory() / "firmware"
        folder.mkdir(parents=True, exist_ok=True)
        with build_lock(folder / f"{key}.lock", 2 * timeouts.OWN_FIRMWARE_BUILD):
            if firmware.build:
                with span("build", f"firmware of {self.target}"):
                    self._run(folder / f"{self.target}.log")
            if not firmware.elf.is_file():
                hint = (
                    f"does {firmware.build!r} make another file?"
                    if firmware.build
                    else "build it, or give the command that does: build: COMMAND"
                )
                raise ConfigError(f"{firmware.origin}: firmware: no {firmware.elf}", target=self.target, hint=hint)
            content = files.read(firmware.elf, files.ELF_LIMIT)
        if LIBRARY_TEXT not in content:
            what = f"{firmware.origin}: firmware: {firmware.elf} does not link hil_target, or calls nothing of it"
            hint = "hil build --library FOLDER writes it (hil docs own-firmware); hil launch runs any ELF"
            raise ConfigError(what, target=self.target, hint=hint)
        return Elf(firmware.elf, hashlib.sha256(content).hexdigest()[:16], self.config)

    def _run(self, log: Path) -> None:
        """Run the user's command. Raises BuildError where it fails or does not end, or its folder is not there."""
        firmware = self.firmware
        if not firmware.base.is_dir():  # in a bisection a commit without it
            raise BuildError(f"{firmware.origin}: firmware: no folder {firmware.base}", target=self.target)
        log.unlink(missing_ok=True)
        limit = timeouts.OWN_FIRMWARE_BUILD
        status = subprocesses.run(["/bin/sh", "-c", firmware.build], log, limit, cwd=firmware.base)
        if status is None:
            raise BuildError(f"no end after {limit:.0f} s: {firmware.build}", target=self.target)
        if status != 0:
            text = log.read_text(errors="replace")
            tail = "\n".join(text.splitlines()[-40:])
            cause = f": {found}" if (found := first_error(text)) else ""
            what = f"{firmware.origin}: build: {firmware.build!r} ended with status {status}{cause}"
            hint = f"the whole of what it said is in {log}"
            raise BuildError(f"{what}\n{tail}", target=self.target, log=tail, hint=hint)
