"""Execution of commands of the docs as written: in a shell, with the wheel, in a folder with the files they name."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import platformdirs

from cortex_m_hil.host.paths import cache_directory

DEADLINE: Final = 600.0  # seconds for one command, which may have to build a runner
SHARED: Final = ("lowerings", "objects", "runners", "executorch")  # cache folders that can be shared
# State of a shell that later commands use.
_STATE: Final = re.compile(r"(cd|export) .*|\w+=('[^']*'|\$\(.*\)|\S*)")
# Commands that run until Ctrl-C, with the text that they print when they are ready.
ENDLESS: Final[Mapping[str, str]] = {"hil board virtual f405": "baud "}


@dataclass(frozen=True)
class Done:
    status: int
    said: str


def environment_of(user_path: str, folder: Path) -> dict[str, str]:
    """Return an environment for commands, with store, home, virtual boards and locks in `folder`.

    Runners, lowered programs and installed ExecuTorchs are shared with the cache of this process.
    """
    cache = folder / "cache"
    for part in SHARED:
        (cache_directory() / part).mkdir(parents=True, exist_ok=True)
        (cache / part).parent.mkdir(parents=True, exist_ok=True)
        (cache / part).symlink_to(cache_directory() / part)
    (folder / "home").mkdir()
    own = {"HIL_CACHE_DIR": cache, "HIL_LOCK_DIR": folder / "locks", "XDG_STATE_HOME": folder / "state"}
    user = {"HOME": folder / "home", "XDG_CACHE_HOME": platformdirs.user_cache_path()}
    plain = {"COLUMNS": "250", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": ""}
    return {**os.environ, "PATH": user_path, **plain, **{name: str(path) for name, path in {**own, **user}.items()}}


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@dataclass
class Shell:
    """A shell that runs several commands; variables and background processes are kept between them."""

    folder: Path
    environment: Mapping[str, str]
    deadline: float = DEADLINE
    _state: list[str] = field(default_factory=list)
    _background: list[int] = field(default_factory=list)

    def run(self, command: str) -> Done:
        """Run a command; both streams go to a file, since a process in the background would keep a pipe open."""
        said = self.folder.parent / f"said{time.monotonic_ns()}"
        script = "\n".join([*self._state, command])
        with said.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-c", script], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._background.append(process.pid)
        try:
            if command in ENDLESS:
                self._interrupt(process, said, ENDLESS[command])
            status = process.wait(self.deadline)
        finally:
            if not command.endswith("&"):
                self._end(self._background.pop())
        if _STATE.fullmatch(command) and status == 0:
            self._state.append(command)
        return Done(status, said.read_text(errors="replace"))

    def _interrupt(self, process: subprocess.Popen[bytes], said: Path, works: str) -> None:
        end = time.monotonic() + self.deadline
        while works not in said.read_text() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)

    def end(self) -> None:
        while self._background:
            self._end(self._background.pop())

    @staticmethod
    def _end(group: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


@contextmanager
def shell(folder: Path, environment: Mapping[str, str], deadline: float = DEADLINE) -> Iterator[Shell]:
    opened = Shell(folder, environment, deadline)
    try:
        yield opened
    finally:
        opened.end()
