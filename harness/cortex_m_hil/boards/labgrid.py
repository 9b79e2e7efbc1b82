"""Boards of a labgrid farm: a place is reserved, acquired, used through its serial port, and released.

All calls use the command `labgrid-client`, so labgrid can be in another virtual environment, since it requires another
version of pyserial. The coordinator's queue is fair across machines: reservations are served by age.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from cortex_m_hil.boards import board_tools as tools
from cortex_m_hil.boards import file_locks, leases
from cortex_m_hil.boards.health import Health
from cortex_m_hil.errors import BoardBusy, BoardWedged, ConfigError, HarnessError, LaunchError
from cortex_m_hil.host import timeouts
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.runner.links.uart import LABGRID
from cortex_m_hil.targets.board_tool_commands import Procedure

CALL_TIMEOUT = 60.0  # seconds for one call of labgrid-client


@dataclass(frozen=True)
class Farm:
    """A labgrid coordinator and the tags that a place must have.

    `labgrid://coordinator:20408/?board=nucleo` means any place with that tag; `?name=b1` means the place b1.
    """

    coordinator: str
    filters: tuple[str, ...]

    @classmethod
    def parse(cls, port: str) -> Farm:
        parts = urlsplit(port)
        filters = tuple(f"{key}={value}" for key, value in parse_qsl(parts.query))
        if not parts.netloc or not filters or parts.path not in ("", "/"):
            raise ConfigError(f"{port} names no places", hint=f"{LABGRID}COORDINATOR:20408/?TAG=VALUE, or ?name=PLACE")
        return cls(parts.netloc, filters)

    def run_client(self, *words: str, seconds: float = CALL_TIMEOUT) -> str:
        """Return the output of labgrid-client with these arguments. Raises LaunchError where it fails."""
        command = ("labgrid-client", "-x", self.coordinator, *words)
        return tools.run(Procedure("labgrid-client", (command,), seconds=seconds), {}, what="labgrid")

    def places(self) -> set[str]:
        """Return the names of all places that match the filters."""
        found = set()
        for part in re.split(r"^Place '", self.run_client("-v", "places"), flags=re.MULTILINE)[1:]:
            name = part.partition("':\n")[0]
            tags = re.search(r"^ +tags: (.*)$", part, re.MULTILINE)
            if {f"name={name}", *(tags[1].split(", ") if tags else ())}.issuperset(self.filters):
                found.add(name)
        return found


class _Reservation:
    """A reservation at the coordinator: the token, and a locked file named after the token.

    If the process is killed, the file remains, and the next process gives the place back.
    """

    def __init__(self, farm: Farm) -> None:
        self.farm = farm
        said = farm.run_client("reserve", "--shell", *farm.filters)
        found = re.search(r"LG_TOKEN=(\w+)", said)
        if found is None:
            raise LaunchError("labgrid-client reserve said no token", log=said)
        self.token = found[1]
        self._path = _records() / self.token
        handle = file_locks.try_lock(self._path)
        assert handle is not None  # tokens are unique
        os.write(handle, farm.coordinator.encode())
        self._handle = handle

    def end(self) -> None:
        """Give the place back, if it was acquired; if this fails, the next process does it."""
        with contextlib.suppress(HarnessError):
            _give_back(self.farm, self.token)
            self._path.unlink(missing_ok=True)
        os.close(self._handle)


def _records() -> Path:
    folder = file_locks.lock_directory() / "labgrid"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _give_back(farm: Farm, token: str) -> None:
    """Release a place and cancel its reservation. Raises LaunchError where the coordinator does not answer."""
    with contextlib.suppress(LaunchError):  # the place may not have been acquired yet
        farm.run_client("-p", f"+{token}", "release")
    farm.run_client("cancel-reservation", token)


def _give_back_what_was_left(farm: Farm) -> None:
    for path in _records().iterdir():
        if path.read_text() != farm.coordinator or (handle := file_locks.try_lock(path)) is None:
            continue
        try:
            with contextlib.suppress(LaunchError):  # the coordinator may have dropped the reservation
                _give_back(farm, path.name)
            path.unlink(missing_ok=True)
        finally:
            os.close(handle)


class RemoteLease:
    """A lease of an acquired place, used like `leases.Lease`. `port` is the URL of its serial port on the network."""

    def __init__(self, local: leases.Lease, port: str, reservation: _Reservation) -> None:
        self.board = local.board
        self.setup = local.setup
        self.port = port
        self._local = local
        self._reservation = reservation

    @property
    def health(self) -> Health:
        return self._local.health

    @health.setter
    def health(self, health: Health) -> None:
        self._local.health = health

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the template variables for the board's tools: `labgrid-client -x {coordinator} -p {place} …`."""
        return {"coordinator": self._reservation.farm.coordinator, "place": f"+{self._reservation.token}"}

    def release(self) -> None:
        """Release the place and its reservation. The port must be closed before."""
        self._local.release()
        self._reservation.end()


def acquire(port: str, *, what: str, wait: float = timeouts.LEASE_WAIT, setup: str = "") -> RemoteLease:
    """Lease a place of a labgrid farm.

    Args:
        port: the URL with coordinator and filters, as for `Farm.parse`.
        what: the purpose of the lease, such as a test's name; shown to others that wait.
        wait: seconds to wait for a place.
        setup: a digest of everything that the board's start depends on, as in `Health.wedged_for`.

    Raises:
        BoardBusy: no place became free within `wait` seconds; the message has the holder of each place.
        BoardWedged: this machine has recorded all such places as wedged for `setup`.
        ToolchainError: labgrid-client is missing.
    """
    farm = Farm.parse(port)
    deadline = Deadline.after(wait)
    wedged: dict[str, _Reservation] = {}
    try:
        while True:
            reservation = _Reservation(farm)
            try:
                _give_back_what_was_left(farm)
                place, url = _obtain(farm, reservation.token, deadline, wait)
                board = f"{LABGRID}{farm.coordinator}/{place}"
                local = leases.acquire([board], what=what, wait=deadline.remaining, setup=setup)
                return RemoteLease(local, url, reservation)
            except BoardWedged:
                wedged[place] = reservation  # kept reserved, since the coordinator might choose the same place again
                if farm.places() <= wedged.keys():
                    raise
            except BaseException:
                reservation.end()
                raise
    finally:
        for reservation in wedged.values():
            reservation.end()


def _obtain(farm: Farm, token: str, deadline: Deadline, wait: float) -> tuple[str, str]:
    """Wait for the reserved place and acquire it; return its name and the URL of its serial port."""
    _wait(farm, token, deadline, wait)
    farm.run_client("-p", f"+{token}", "acquire")
    return _serial_port(farm.run_client("-p", f"+{token}", "env"))


def _wait(farm: Farm, token: str, deadline: Deadline, wait: float) -> None:
    try:
        # labgrid-client needs about 1 s even for a free place.
        farm.run_client("wait", token, seconds=max(deadline.remaining, 3.0))
    except LaunchError:
        if not deadline.expired:
            raise
        held = farm.run_client("who").strip()
        raise BoardBusy(
            f"no place with {' '.join(farm.filters)} got free within {wait:g} s",
            log=held,
            hint=f"who has which place:\n{held}",
        ) from None


def _serial_port(said: str) -> tuple[str, str]:
    """Parse the output of `labgrid-client env`; return the place's name and the URL of its serial port."""
    try:
        found = re.search(r"^targets:\n(?:[ -].*\n?)*", said, re.MULTILINE)
        [(place, target)] = YAML(typ="safe").load(found[0] if found else "")["targets"].items()
        ports = [resource["NetworkSerialPort"] for resource in target["resources"] if "NetworkSerialPort" in resource]
    except (YAMLError, KeyError, TypeError, ValueError) as error:
        raise LaunchError("labgrid-client env is not as expected", log=said) from error
    if len(ports) != 1:
        raise ConfigError(f"place {place} has {len(ports)} serial ports", hint="match one NetworkSerialPort", log=said)
    address = f"{ports[0]['host']}:{ports[0]['port']}"
    if ports[0].get("protocol", "rfc2217") != "rfc2217":
        return place, f"socket://{address}"
    return place, f"rfc2217://{address}"
