"""A labgrid farm on this machine: coordinator, exporter, ser2net, and a power switch behind HTTP; all of them real."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex_m_hil.boards import labgrid, leases
from cortex_m_hil.boards.board_tools import CommandTools
from cortex_m_hil.boards.health import Health
from cortex_m_hil.boards.labgrid import Farm
from cortex_m_hil.boards.virtual import vboard
from cortex_m_hil.errors import BoardBusy, BoardWedged, ConfigError, LaunchError
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.host.subprocesses import supervised
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.runner.links.uart import virtual_directory
from cortex_m_hil.targets.board_tool_commands import parse_procedure
from cortex_m_hil.targets.load import load_targets
from devices import Start, tools
from paths import REPOSITORY

# `make test` installs labgrid into an environment of its own: it brings another pyserial.
PATH = f"{Path(sys.prefix) / 'labgrid' / 'bin'}:{os.environ['PATH']}:/usr/sbin"
PROGRAMS = ("labgrid-client", "labgrid-coordinator", "labgrid-exporter", "ser2net")


@pytest.fixture(autouse=True, scope="module")
def programs() -> Iterator[None]:
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    assert not missing, f"not installed: {', '.join(missing)}; `make install` does that"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", PATH)
        yield


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Switch(http.server.BaseHTTPRequestHandler):
    """What labgrid's `rest` power driver talks to."""

    board = ""
    log: list[str]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.log.append(body)
        vboard.send_command(self.board, "power", state="on" if body == "1" else "off")
        self.send_response(200)
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.log[-1].encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal."""


class Lab:
    def __init__(self, folder: Path, board: str, switch: http.server.HTTPServer) -> None:
        self.folder = folder
        self.board = board
        self.switch = switch
        self.address = f"127.0.0.1:{free_port()}"
        self.farm = Farm(self.address, ("board=f405",))
        self.url = f"labgrid://{self.address}/?board=f405"
        self.processes: list[subprocess.Popen[bytes]] = []

    def begin(self, spare: str) -> None:
        """`spare` is the terminal of resources that no place has yet."""
        terminal = os.path.realpath(virtual_directory(self.board) / "port")
        switch = f"http://127.0.0.1:{self.switch.server_port}/{{index}}"
        resources = {
            "RawSerialPort": {"port": terminal, "speed": 921600},
            "NetworkPowerPort": {"model": "rest", "host": switch, "index": 1},
        }
        others = {"RawSerialPort": {"port": spare, "speed": 921600}}
        (self.folder / "exporter.yaml").write_text(json.dumps({"bench": resources, "spare": others}))
        self._start("labgrid-coordinator", "-l", self.address)
        self._until("places")
        self._start(
            "labgrid-exporter", "-c", self.address, "-n", "exp1", "--hostname", "127.0.0.1", "exporter.yaml"
        )  # fmt: skip
        self.add_place("b1", "bench", "board=f405", "pool=both")

    def add_place(self, place: str, match: str, *tags: str) -> None:
        self.farm.run_client("-p", place, "create")
        self.farm.run_client("-p", place, "add-match", f"exp1/{match}/*")
        self.farm.run_client("-p", place, "set-tags", *tags)
        self._until("resources", says=f"exp1/{match}/NetworkSerialPort")

    def _start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            command = supervised([name, *arguments], grace=30)  # ends with this process, also a killed one
            self.processes.append(
                subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True)
            )

    def _until(self, *words: str, says: str = "") -> None:
        deadline = Deadline.after(60)
        while True:
            try:
                if says in self.farm.run_client(*words):
                    return
            except LaunchError:
                pass
            assert not deadline.expired, (self.folder / "labgrid-exporter.log").read_text()

    def end(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(60)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    name = f"test-{os.getpid()}lab"
    build_runner(load_targets()["vboard-f405"])
    handler = type("BoardSwitch", (Switch,), {"board": name, "log": ["1"]})
    with vboard.running("f405", name), http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as switch:
        threading.Thread(target=switch.serve_forever, daemon=True).start()
        lab = Lab(tmp_path_factory.mktemp("lab"), name, switch)
        terminals = os.openpty()
        try:
            lab.begin(os.ttyname(terminals[1]))
            yield lab
        finally:
            lab.end()
            switch.shutdown()
            for terminal in terminals:
                os.close(terminal)


@pytest.mark.slow
def test_the_sample_tests_run_on_a_reserved_place_and_give_it_back(lab: Lab, tmp_path: Path) -> None:
    serial = {"port": lab.url, "baud": 921600, "wait": 60, **tools(lab.board), "power": "labgrid"}
    entry = {"cpu": "cortex-m4", "board": "stm32f4", "launcher": {"serial": serial}}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"remote": entry}}))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--target=remote", f"--targets-file={tmp_path / 'targets.yaml'}",
         "tests/targets/test_linear.py"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert "= 4 passed" in run.stdout, run.stdout + run.stderr
    assert lab.farm.run_client("reservations").strip() == ""
    assert "acquired: None" in lab.farm.run_client("-p", "b1", "show")
    assert leases.read_health(f"labgrid://{lab.address}/b1").build


@pytest.mark.slow
def test_a_place_that_somebody_else_has_is_busy_and_says_who(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LG_USERNAME", "alice")
    lab.farm.run_client("-p", "b1", "acquire")
    try:
        monkeypatch.setenv("LG_USERNAME", "bob")
        with pytest.raises(BoardBusy, match=r"no place with board=f405 got free within 2 s(.*\n)*.*alice"):
            labgrid.acquire(lab.url, what="test", wait=2)
        assert lab.farm.run_client("reservations").strip() == "", "ours is cancelled"
    finally:
        monkeypatch.setenv("LG_USERNAME", "alice")
        lab.farm.run_client("-p", "b1", "release")


@pytest.mark.slow
def test_the_place_of_a_killed_process_is_given_back_by_the_next(lab: Lab, start: Start) -> None:
    script = f"""
from cortex_m_hil.boards import labgrid
print(labgrid.acquire({lab.url!r}, what="test", wait=60).port, flush=True)
time.sleep(600)
"""
    worker = start(script)
    assert worker.stdout
    assert worker.stdout.readline().startswith("rfc2217://127.0.0.1:")
    worker.kill()
    worker.wait()
    assert "acquired: None" not in lab.farm.run_client("-p", "b1", "show"), "labgrid does not see that its user is gone"
    lease = labgrid.acquire(lab.url, what="next test", wait=60)
    assert lease.board == f"labgrid://{lab.address}/b1"
    lease.release()
    assert lab.farm.run_client("reservations").strip() == ""


@pytest.mark.slow
def test_power_goes_through_labgrids_driver(lab: Lab) -> None:
    lease = labgrid.acquire(lab.url, what="test", wait=60)
    try:
        CommandTools(powering=parse_procedure("labgrid", "power", "t"), variables=lease.variables).power_cycle()
    finally:
        lease.release()
    handler = lab.switch.RequestHandlerClass
    assert handler.log[-2:] == ["0", "1"]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_place_that_is_wedged_is_refused_and_given_back(lab: Lab) -> None:
    board = f"labgrid://{lab.address}/b1"
    leases.write_health(board, Health(wedged="smoke"))
    with pytest.raises(BoardWedged, match="smoke"):
        labgrid.acquire(lab.url, what="test", wait=60)
    assert "acquired: None" in lab.farm.run_client("-p", "b1", "show")


@pytest.mark.slow
def test_a_place_that_is_wedged_is_passed_over(lab: Lab) -> None:
    """With both wedged there is none; with one, it is the one that the coordinator chooses first."""
    lab.add_place("b2", "spare", "pool=both")
    url = f"labgrid://{lab.address}/?pool=both"
    assert Farm(lab.address, ("pool=both",)).places() == {"b1", "b2"}
    assert Farm(lab.address, ("name=b1",)).places() == lab.farm.places() == {"b1"}
    boards = {f"labgrid://{lab.address}/{place}" for place in ("b1", "b2")}
    for board in boards:
        leases.write_health(board, Health(wedged="smoke"))
    with pytest.raises(BoardWedged, match="smoke") as caught:
        labgrid.acquire(url, what="test", wait=600)
    [last] = [board for board in boards if board in caught.value.message]
    leases.clear(last)
    lease = labgrid.acquire(url, what="test", wait=600)
    assert lease.board == last
    lease.release()
    assert lab.farm.run_client("reservations").strip() == ""
    assert lab.farm.run_client("who").split() == ["User", "Host", "Place", "Changed"]


def test_a_coordinator_that_does_not_answer_is_said_so() -> None:
    with pytest.raises(LaunchError, match="coordinator is unavailable"):
        labgrid.acquire(f"labgrid://127.0.0.1:{free_port()}/?board=f405", what="test", wait=60)


@pytest.mark.parametrize("port", ["labgrid://lab:20408", "labgrid:///?board=x", "labgrid://lab/place?board=x"])
def test_a_port_that_names_no_places(port: str) -> None:
    with pytest.raises(ConfigError, match="names no places"):
        Farm.parse(port)
