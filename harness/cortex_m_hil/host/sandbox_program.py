"""A stand-alone program that gives up access to files and processes, and then executes the command after `--`.

    python -I -S sandbox_program.py [--abi N] [--read PATH]… [--write PATH]… [--observer FD] -- COMMAND…

Landlock refuses all files but those below the named ones, TCP, and signals and abstract sockets to processes outside,
as far as the kernel's ABI `N` allows; children inherit this. With `--observer`, a seccomp filter reports system calls
that name files, and the descriptor for answering them is sent over that Unix socket to `sandbox.SyscallObserver`.

Sources: Linux's Documentation/userspace-api/landlock.rst and seccomp_filter.rst, include/uapi/linux/landlock.h and
seccomp.h; the numbers of system calls are those of asm/unistd.h. This program imports as little as possible, because it
delays the start of every simulator.
"""

from __future__ import annotations

import _socket  # `socket` itself takes 10 ms to import
import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence

LATEST_ABI = 7  # the newest ABI of Landlock that is used, even if the kernel has a later one
_EXIT_CANNOT = 126  # exit status if the command could not be confined or started

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_MAKE_SYM, _REFER, _TRUNCATE, _IOCTL_DEV = 1 << 12, 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM | _REFER | _TRUNCATE
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_ALL_OF_ABI_1 = (1 << 13) - 1
_TCP = 0b11  # bind and connect
_SCOPED = 0b11  # abstract Unix sockets and signals

# By machine: AUDIT_ARCH, the number of seccomp(2), and the calls that take file names, by number: name, positions.
_OPENAT = "openat"
_OPENAT2 = 437  # the same number on every architecture
Calls = Mapping[int, tuple[str, tuple[int, ...]]]
MACHINES: Mapping[str, tuple[int, int, Calls]] = {
    "x86_64": (
        0xC000003E, 317,
        {
            2: ("open", (0,)), 82: ("rename", (0, 1)), 84: ("rmdir", (0,)), 87: ("unlink", (0,)),
            257: (_OPENAT, (1,)), 263: ("unlinkat", (1,)), 264: ("renameat", (1, 3)), 316: ("renameat2", (1, 3)),
            _OPENAT2: ("openat2", (1,)),
        },
    ),
    "aarch64": (
        0xC00000B7, 277,
        {
            35: ("unlinkat", (1,)), 38: ("renameat", (1, 3)), 56: (_OPENAT, (1,)), 276: ("renameat2", (1, 3)),
            _OPENAT2: ("openat2", (1,)),
        },
    ),
}  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """An error: the kernel refused a system call, or the command cannot be executed."""


def _syscall(what: str, number: int, *arguments: object) -> int:
    _libc.syscall.restype = ctypes.c_long
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise Refused(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def landlock_abi() -> int:
    """Return the ABI of Landlock that the kernel offers; 0: the kernel has no Landlock."""
    try:
        return _syscall("landlock", _CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    except Refused:
        return 0


# --- Landlock ------------------------------------------------------------------------------------------------


def _handled(abi: int) -> int:
    """Return the access rights that rules of this ABI can restrict: ABI 2 added REFER, 3 TRUNCATE, 5 IOCTL_DEV."""
    later = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))
    return _ALL_OF_ABI_1 | sum(right for first, right in later if abi >= first)


def _ruleset(abi: int) -> int:
    """Create a ruleset, and return its descriptor.

    ABI 4 added TCP, 6 added scopes; the structure's length depends on the ABI.
    """
    words = [_handled(abi)]
    words += [_TCP] if abi >= 4 else []
    words += [_SCOPED] if abi >= 6 else []
    attributes = struct.pack(f"={len(words)}Q", *words)
    return _syscall("landlock_create_ruleset", _CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a path that does not exist needs no rule
    try:
        rights &= -1 if os.path.isdir(path) else _OF_A_FILE
        rule = struct.pack("=Qi", rights, descriptor)
        _syscall(f"landlock_add_rule {path}", _ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)


def restrict_files(abi: int, read: Sequence[str], write: Sequence[str]) -> None:
    ruleset = _ruleset(abi)
    for paths, rights in ((read, _READ), (write, _WRITE)):
        for path in paths:
            _allow(ruleset, path, rights & _handled(abi))
    _syscall("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


# --- seccomp -------------------------------------------------------------------------------------------------

_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_AT_NUMBER, _AT_ARCHITECTURE, _AT_THIRD_ARGUMENT = 0, 4, 32  # offsets in struct seccomp_data
_SET_FILTER, _NEW_LISTENER = 1, 1 << 3


def seccomp_filter(architecture: int, calls: Calls) -> Iterator[tuple[int, int, int, int]]:
    """Yield the instructions of a filter that reports calls: code, jump if true, jump if false, operand.

    An `openat` with O_CLOEXEC comes from a library, as QEMU opens the firmware's files without it. Reporting these too
    would cost some 50 round trips at each start. This filter only observes; Landlock does the protection, for every
    call.

    Args:
        architecture: the AUDIT_ARCH number.
        calls: the system calls to report.
    """
    numbers = [number for number, (name, _) in calls.items() if name != _OPENAT]
    (openat,) = (number for number, (name, _) in calls.items() if name == _OPENAT)
    count = len(numbers)
    yield _LOAD, 0, 0, _AT_ARCHITECTURE
    yield _IF_EQUAL, 0, count + 4, architecture
    yield _LOAD, 0, 0, _AT_NUMBER
    for at, number in enumerate(numbers):
        yield _IF_EQUAL, count - at + 3, 0, number
    yield _IF_EQUAL, 0, 2, openat
    yield _LOAD, 0, 0, _AT_THIRD_ARGUMENT
    yield _IF_ANY_BIT, 0, 1, os.O_CLOEXEC
    yield _RETURN, 0, 0, _ALLOW
    yield _RETURN, 0, 0, _NOTIFY


def _listen() -> int | None:
    """Install the filter that reports calls, and return its descriptor.

    None before Linux 5.6, on an architecture whose system calls are not known, or if an outer sandbox forbids it.
    """
    if os.uname().machine not in MACHINES or not _lets_calls_go_on():
        return None
    architecture, seccomp, calls = MACHINES[os.uname().machine]
    code = b"".join(struct.pack("=HBBI", *step) for step in seccomp_filter(architecture, calls))
    held = ctypes.create_string_buffer(code)
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(held))
    try:
        return _syscall("seccomp", seccomp, _SET_FILTER, _NEW_LISTENER, program)
    except Refused:
        return None


def _lets_calls_go_on() -> bool:
    """Tell whether the kernel can let a reported call continue.

    It can from Linux 5.5 on. This cannot be tested; openat2, which came with 5.6, is tested instead.
    """
    return _libc.syscall(_OPENAT2, -1, None, None, 0) >= 0 or ctypes.get_errno() != errno.ENOSYS


def observe(descriptor: int) -> None:
    """Make all further calls that name files wait for an answer from the process at the other end of this socket."""
    channel = _socket.socket(fileno=descriptor)
    listener = _listen()
    if listener is not None:
        rights = struct.pack("i", listener)
        channel.sendmsg([b"\0"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    channel.close()


# --- the program ---------------------------------------------------------------------------------------------


def _become(arguments: list[str]) -> None:
    read: list[str] = []
    write: list[str] = []
    abi = LATEST_ABI
    observer = -1
    at = arguments.index("--")
    for option, value in zip(arguments[:at:2], arguments[1:at:2], strict=True):
        if option == "--read":
            read.append(value)
        elif option == "--write":
            write.append(value)
        elif option == "--abi":
            abi = int(value)
        elif option == "--observer":
            observer = int(value)
    command = arguments[at + 1 :]
    if _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise Refused(f"no_new_privs: {os.strerror(ctypes.get_errno())}")
    if abi:
        restrict_files(abi, read, write)
    if observer >= 0:
        observe(observer)
    try:
        os.execv(command[0], command)
    except OSError as error:
        why = "it is not a program, or needs one: hil docs security" if error.errno == errno.EACCES else error.strerror
        raise Refused(f"cannot execute {command[0]}: {why}") from error


if __name__ == "__main__":
    try:
        _become(sys.argv[1:])
    except Refused as error:
        print(f"sandbox: {error}", file=sys.stderr)
        raise SystemExit(_EXIT_CANNOT) from None
