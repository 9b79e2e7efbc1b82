"""The command lines of the docs: which of them no test executes, and why; whether their words are right all the same."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import typer

from cortex_m_hil.cli.__main__ import load_commands
from paths import REPOSITORY

_REASONS: Final[Mapping[str, tuple[str, ...]]] = {
    "changes this machine; the environment of a tutorial is made by a fixture, from the wheel": (
        "sudo apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi libstdc++-arm-none-eabi-newlib "
        "qemu-system-arm flatbuffers-compiler libflatbuffers-dev cmake ninja-build g++ util-linux",
        "python3 -m venv .venv",
        ". .venv/bin/activate",
        "pip install executorch_cortex_m_hil-*.whl",
    ),
}
NOT_EXECUTED: Final = {line: reason for reason, lines in _REASONS.items() for line in lines}
