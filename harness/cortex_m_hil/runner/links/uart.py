"""Serial ports as byte channels, by pyserial: local ones, `socket://host:port`, `rfc2217://host:port`."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import serial
from serial.tools import list_ports

from cortex_m_hil.errors import BoardBusy, ConfigError, LinkError, PortNotFound
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.targets.connection import LinkClosed

VIRTUAL = "vboard:"
CHUNK = 4096
BITS = 10  # bits on the wire for a byte: 8N1
RFC2217 = "rfc2217://"
LABGRID = "labgrid://"  # a board of a farm, whose port is known once the board is acquired
# Seconds between polls of a port without a file descriptor (RFC 2217). The port's timeout is set only once, because
# setting it renegotiates.
LOOK = 0.02
NEGOTIATION_TIMEOUT = 10.0  # seconds for an RFC 2217 server to agree
IAC = b"\xff"  # telnet's escape


def virtual_directory(name: str) -> Path:
    """Return the folder that has the `port` and the `control` socket of a virtual board."""
    return cache_directory() / "vboards" / name


def device(port: str) -> str:
    """Return the path or URL that pyserial opens for a target's `port`."""
    if port.startswith(VIRTUAL):
        return str(virtual_directory(port.removeprefix(VIRTUAL)) / "port")
    if port.startswith(RFC2217) and "?" not in port:
        # ser2net does not answer requests for signals that a port lacks, such as DTR.
        return f"{port}?ign_set_control&timeout={NEGOTIATION_TIMEOUT:g}"
    return port


def vanished(port: str, *, target: str = "", log: str = "") -> LinkError:
    """Return the error for a port that vanished while it was in use."""
    hint = "cable, power, or an adapter that was reset"
    return LinkError(f"port {port} vanished in the middle", target=target, log=log, hint=hint)


class Uart:
    """An open serial port. No other process can open it at the same time, where the system can prevent that."""

    def __init__(self, port: str, baud: int) -> None:
        """Open the port at `baud`.

        Raises PortNotFound where there is no such port, or the port does not open; BoardBusy where another process has
        it open; ConfigError where pyserial does not accept the name or `baud`.
        """
        self.port, self.baud = port, baud
        self._serial = _open(port, baud)
        self._received = bytearray()
        try:
            self._fd: int | None = self._serial.fileno()
            os.set_blocking(self._fd, False)
        except OSError:  # io.UnsupportedOperation among them
            self._fd = None
        if "://" in port:
            _send_at_once(self._serial)

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Send all of `data`, and read meanwhile: full buffers in both directions must not block both ends."""
        with _closing_is_an_end():
            if self._fd is None:
                self._write_without_fd(data, deadline)
                return
            view = memoryview(data)
            while view:
                if deadline.expired:
                    raise TimeoutError
                readable, writable, _ = select.select([self._fd], [self._fd], [], deadline.remaining)
                if readable:
                    self._take(self._fd)
                if writable:
                    with contextlib.suppress(BlockingIOError):
                        view = view[os.write(self._fd, view) :]

    def _write_without_fd(self, data: bytes, deadline: Deadline) -> None:
        """Send all of `data` to an RFC 2217 server, escaped for telnet.

        pyserial's own function waits five seconds, whatever the deadline.
        """
        server = getattr(self._serial, "_socket", None)
        if not isinstance(server, socket.socket):
            self._serial.write(data)
            return
        view = memoryview(data.replace(IAC, IAC + IAC))
        while view:
            if not select.select([], [server], [], deadline.remaining)[1]:
                raise TimeoutError
            view = view[server.send(view) :]

    def read(self, deadline: Deadline) -> bytes:
        with _closing_is_an_end():
            while not self._received:
                self._wait(deadline)
        data = bytes(self._received)
        self._received.clear()
        return data

    def close(self) -> None:
        with contextlib.suppress(OSError, serial.SerialException):
            self._serial.close()

    def _wait(self, deadline: Deadline) -> None:
        if self._fd is None:
            self._received += self._serial.read(max(1, self._serial.in_waiting))
        elif select.select([self._fd], [], [], deadline.remaining)[0]:
            self._take(self._fd)
        if not self._received and deadline.expired:
            raise TimeoutError

    def _take(self, fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(fd, CHUNK)
            if not data:
                raise LinkClosed
            self._received += data


def _open(port: str, baud: int) -> Any:
    url = device(port)
    local = "://" not in url
    options: dict[str, Any] = {"exclusive": True} if local else {}
    try:
        return serial.serial_for_url(url, baudrate=baud, timeout=LOOK, **options)
    except ValueError as error:
        hint = "/dev/ttyACM0, or socket://host:port"
        raise ConfigError(f"port {port!r} at {baud} baud: {error}", hint=hint) from error
    except OSError as error:  # SerialException is one
        require(port)
        if "lock port" in str(error):
            raise BoardBusy(f"port {port} is in use by another process", hint=f"fuser -v {url} says whose") from error
        hint = "is it the right one, and may you use it?"
        raise PortNotFound(f"cannot open port {port}: {error}", hint=hint) from error


def require(port: str) -> None:
    """Check that a local port exists; a port on another machine is not checked. Raises PortNotFound."""
    url = device(port)
    if "://" not in url and not os.path.exists(url):
        raise PortNotFound(f"no port {port}", hint=_missing_port_hint(port))


def _missing_port_hint(port: str) -> str:
    if port.startswith(VIRTUAL):
        return f"start it: hil board virtual {port.removeprefix(VIRTUAL)}"
    found = ", ".join(info.device for info in list_ports.comports()) or "none"
    return f"is the board plugged in? Ports here: {found}"


def _send_at_once(port: Any) -> None:
    """Switch Nagle's algorithm off. pyserial leaves it on, which delays a write after a write by 45 ms (measured)."""
    inner = getattr(port, "_socket", None)
    if isinstance(inner, socket.socket):
        inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@contextlib.contextmanager
def _closing_is_an_end() -> Iterator[None]:
    """Turn any OSError within the block into LinkClosed: the adapter was unplugged, or the socket closed."""
    try:
        yield
    except TimeoutError:
        raise
    except OSError as error:
        raise LinkClosed from error
