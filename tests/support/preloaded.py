"""A Python that starts with torch, ExecuTorch and this package imported: a server with these forks each program.

`preloaded.py PYTHON SOCKET -m pytest …` has the server fork a process that does what `python -m pytest …` would,
with this one's arguments, folder, environment and open files, passes signals on to it, and ends as it does. What
differs: variables that Python itself reads at its start have no effect, and modules are not taken down at the end.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

_MOST_FILES: Final = 100
_LIMIT: Final = 1 << 20  # bytes of a request
_PASSED_ON: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
_PYTHON: Final = """\
#!/bin/sh
[ "$1" = -m ] && exec {python} -I -S {client} "$0" {socket} "$@"
exec {python} "$@"
"""


def write_interpreter(path: Path, socket: Path) -> None:
    """Write a program that takes Python's arguments, and has modules (`-m`) run by the server."""
    path.write_text(_PYTHON.format(python=sys.executable, client=__file__, socket=socket))
    path.chmod(0o755)


def main(arguments: Sequence[str]) -> int:
    """Run as the client."""
    python, path, *command = arguments
    files = [number for number in range(_MOST_FILES) if os.path.exists(f"/proc/self/fd/{number}")]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LIMIT)
        server.connect(path)
        asked = {"python": python, "command": command, "folder": os.getcwd(), "files": files}
        request = json.dumps({**asked, "environment": dict(os.environ)})
        for number in _PASSED_ON:
            signal.signal(number, lambda number, _: server.send(str(number).encode()))
        server.sendmsg([request.encode("ascii")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
        status = int(server.recv(16) or -signal.SIGKILL)
    if status < 0:
        if -status in _PASSED_ON:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def serve(path: str, owner: int) -> None:
    """Run as the server, which ends with its owner; return in each forked process, too, when it is done."""
    from importlib import import_module

    owner_ended = os.pidfd_open(owner)
    import_module("cortex_m_hil.pytest_plugin.plugin")  # records what of torch and ExecuTorch is imported later
    import_module("torch.export._trace")
    import_module("cortex_m_hil.lowering.installed_executorch").executorch_api()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forked processes
        while select.select([listener.fileno(), owner_ended], [], [])[0] == [listener.fileno()]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                return _answer(connection)
            connection.close()


def _answer(connection: socket.socket) -> None:
    """Fork the program, and send its exit status; kill it if the client ends before."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    text, rights, _, _ = connection.recvmsg(_LIMIT, socket.CMSG_SPACE(_MOST_FILES * 4))
    received = array.array("i", rights[0][2])
    process = os.fork()
    if process == 0:
        connection.close()
        return _become(json.loads(text), received)
    _report(connection, process)


def _report(connection: socket.socket, process: int) -> NoReturn:
    ended = os.pidfd_open(process)
    while ended not in select.select([ended, connection.fileno()], [], [])[0]:
        os.kill(process, int(connection.recv(16) or signal.SIGKILL))
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    try:
        connection.send(str(status).encode())
    finally:
        os._exit(0)


def _become(request: Mapping[str, Any], received: Sequence[int]) -> None:
    import atexit
    import fcntl
    import runpy

    import numpy
    from _pytest.assertion.rewrite import AssertionRewritingHook

    from cortex_m_hil.host.compiler_state.state import compiler_state

    compiler_state._compiler.update()  # after a fork ExecuTorch makes a lock anew
    moved = [fcntl.fcntl(number, fcntl.F_DUPFD, _MOST_FILES) for number in received]  # out of the way of each other
    os.closerange(0, _MOST_FILES)
    for number, own in zip(request["files"], moved, strict=True):
        os.dup2(own, number)
    os.closerange(_MOST_FILES, 4 * _MOST_FILES)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:0] = [os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    numpy.random.seed()  # other libraries seed theirs after a fork, or always alike
    AssertionRewritingHook._warn_already_imported = lambda self, name: None  # type: ignore[method-assign]
    option, name, *arguments = request["command"]
    assert option == "-m"
    if name == "cortex_m_hil.cli":  # a command that may run pytest
        sys.executable = request["python"]
    sys.argv[1:] = arguments
    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        if isinstance(end.code, int | None):
            os._exit(end.code or 0)
        raise


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        del sys.path[0]  # the folder of this file
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main(sys.argv[1:]))
