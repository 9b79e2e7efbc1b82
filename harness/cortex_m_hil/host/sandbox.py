"""A sandbox for simulators: they can access only their own folder, and the files that they need to start.

The kernel's Landlock refuses all other files. It needs no privileges, no user namespace and no set-up. A refusal is
silent: the firmware only sees that a file cannot be opened. So system calls that name files are watched too (seccomp's
user notification), and an attempt to access a forbidden file raises a verdict with the file's name.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import select
import selectors
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cortex_m_hil.host import sandbox_program

# Folders that any dynamically linked program needs. No folder of programs is among them.
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/dev/urandom")
_DATA = ("lib", "lib64", "share/qemu")  # folders below the prefix into which a program was installed

_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV and _SEND
_NOTIFICATION = struct.Struct("=QII iIQ 6Q")  # id, thread, flags; number, architecture, instruction pointer, arguments
_RESPONSE = struct.Struct("=Qq iI")  # id, value, error, flags
_DESCRIPTOR = struct.Struct("i")
_CONTINUE = 1
_PATH_LIMIT = 4096
_BLOCK = 256


@functools.cache
def landlock_abi() -> int:
    """Return the ABI of Landlock to use: the kernel's, but at most the newest that this project knows.

    Return 0 without Landlock.
    """
    return min(sandbox_program.landlock_abi(), sandbox_program.LATEST_ABI)


def warning() -> str:
    """Return the warning about simulators that run without Landlock's protection; "" if the kernel has Landlock."""
    if landlock_abi():
        return ""
    return "this kernel has no Landlock: firmware in a simulator is kept from files by less (hil docs security)"


@dataclass(frozen=True)
class Sandbox:
    """The files that a command in the sandbox may use.

    Attributes:
        folder: the folder that the command may change.
        read: files and folders that it may read and execute.
        observed: whether the system calls of all threads except the first are observed; these threads run the firmware.
    """

    folder: Path
    read: tuple[Path, ...]
    observed: bool = False

    def command(self, command: Sequence[str], observer: int | None = None) -> list[str]:
        """Return the command line that runs a command in the sandbox.

        Args:
            command: the command to run.
            observer: the descriptor of `SyscallObserver.theirs`; None: system calls are not observed.
        """
        line = [sys.executable, "-I", "-S", sandbox_program.__file__, "--abi", str(landlock_abi())]
        for path in self.read:
            line += ["--read", str(path)]
        line += ["--write", str(self.folder), "--write", os.devnull]
        if observer is not None:
            line += ["--observer", str(observer)]
        return [*line, "--", *command]


def program_sandbox(program: Path, folder: Path, *read: Path, observed: bool = False) -> Sandbox:
    """Return the sandbox for an installed program, with the libraries and data that it needs to start.

    Args:
        program: the program in the folder that it was installed to.
        folder: the folder that it may change.
        *read: further files and folders that it may read.
        observed: as in `Sandbox`.
    """
    real = program.resolve()
    prefix = real.parent.parent
    own = [program, real, *(prefix / name for name in _DATA if prefix != Path("/"))]
    return Sandbox(folder, (*dict.fromkeys([*own, *map(Path, _LIBRARIES)]), *read), observed)


class SyscallObserver:
    """An observer of one process, which allows or refuses its system calls that name files.

    `selector` calls it when there is such a call. It is created before the process, which inherits `theirs`, one end of
    a socket. Calls of the first thread are always allowed: QEMU's main thread opens the files that QEMU needs, while
    the firmware's processors have threads of their own.
    """

    def __init__(self, folder: Path, selector: selectors.BaseSelector) -> None:
        self.refused = ""  # the refused access for which the process was ended
        self._folder = Path(os.path.realpath(folder))
        self._selector = selector
        self._listener: int | None = None
        self._ours, self.theirs = socket.socketpair()
        selector.register(self._ours, selectors.EVENT_READ, self._receive)

    def _receive(self) -> None:
        """Receive the descriptor through which calls are answered; a process may end without sending one."""
        self._selector.unregister(self._ours)
        _, ancillary, _, _ = self._ours.recvmsg(1, socket.CMSG_LEN(_DESCRIPTOR.size), socket.MSG_CMSG_CLOEXEC)
        for _, _, data in ancillary:
            (self._listener,) = _DESCRIPTOR.unpack(data)
            self._selector.register(self._listener, selectors.EVENT_READ, self._answer)

    def _answer(self) -> None:
        assert self._listener is not None
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        for _, events in poll.poll(0):
            if events & select.POLLIN:
                self._answer_one(self._listener)
            else:  # every thread of the process has ended; older kernels would block in RECEIVE
                self._selector.unregister(self._listener)

    def _answer_one(self, listener: int) -> None:
        """Answer a held system call: let it go on, or end the process by SIGSYS as QEMU's own filter does."""
        buffer = bytearray(_NOTIFICATION.size)
        with contextlib.suppress(OSError):  # the calling thread may have ended
            fcntl.ioctl(listener, _RECEIVE, buffer)
            key, thread, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
            self.refused = self.refused or self._forbidden(thread, number, arguments)
            if self.refused:
                os.kill(thread, signal.SIGSYS)
            else:
                fcntl.ioctl(listener, _SEND, _RESPONSE.pack(key, 0, 0, _CONTINUE))

    def _forbidden(self, thread: int, number: int, arguments: Sequence[int]) -> str:
        """Return a text for a firmware's call about a file outside the folder, such as `unlink /etc/passwd`.

        Return "" for other calls.
        """
        if _group(thread) == thread:
            return ""
        _, _, calls = sandbox_program.MACHINES[os.uname().machine]
        name, positions = calls[number]
        try:
            paths = [_text_at(thread, arguments[position]) for position in positions]
        except OSError:  # kernel.yama.ptrace_scope is 2 or 3: then Landlock alone decides, where there is one
            return "" if landlock_abi() else f"{name}, with a name that cannot be read"
        return "" if all(map(self._is_inside, paths)) else " ".join([name, *paths])

    def _is_inside(self, path: str) -> bool:
        return Path(os.path.realpath(self._folder / path)).is_relative_to(self._folder)

    def close(self) -> None:
        self._ours.close()
        self.theirs.close()
        if self._listener is not None:
            os.close(self._listener)
            self._listener = None


def _group(thread: int) -> int:
    """Return the id of the process that a thread belongs to."""
    with open(f"/proc/{thread}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Tgid:"))


def _text_at(thread: int, address: int) -> str:
    """Return the C string at an address of a thread's memory."""
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
        text = b""
        while b"\0" not in text and len(text) < _PATH_LIMIT:
            memory.seek(address + len(text))
            text += memory.read(_BLOCK - (address + len(text)) % _BLOCK)  # never into a page that may not be there
        return os.fsdecode(text.split(b"\0")[0])
