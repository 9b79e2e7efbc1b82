"""A headless Chromium, controlled by its DevTools protocol over two pipes: no port, no driver, no package."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.host.deadline import Deadline

CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), "")
SECONDS: Final = 120.0  # time limit for each answer; the first one waits for the browser to start
_READS, _WRITES = 3, 4  # file descriptors of --remote-debugging-pipe
_KEYS: Final = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "End": (35, "")} | {
    f"Arrow{way}": (number, "") for way, number in (("Left", 37), ("Up", 38), ("Right", 39), ("Down", 40))
}
_OPTIONS: Final = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage")
# Requests that Chromium makes itself, not for the page.
_QUIET: Final = ("--disable-background-networking", "--disable-component-update", "--disable-sync")


class Page:
    """A tab of the browser.

    Attributes:
        requests: all requested addresses.
        problems: errors and warnings of the console.
    """

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._rest = b""
        self._number = 0
        self._session = ""
        self.requests: list[str] = []
        self.problems: list[str] = []
        self._loads = 0
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def open(self, file: Path) -> None:
        done = self._call("Page.navigate", url=file.as_uri())
        assert "errorText" not in done, done
        self.run("new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', done))")

    def run(self, script: str) -> Any:
        """Evaluate a JavaScript expression, and return its value, or for a promise the value that it resolves to."""
        done = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def press(self, key: str) -> None:
        code, text = _KEYS[key]
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            about = {"key": key, "code": key, "windowsVirtualKeyCode": code, "text": text if kind == "keyDown" else ""}
            self._call("Input.dispatchKeyEvent", type=kind, **about)

    def type(self, text: str) -> None:
        """Send text to the element that has the focus."""
        self._call("Input.insertText", text=text)

    def press_and_load(self, key: str) -> None:
        """Send a key that opens another page, and return when the page is loaded."""
        before = self._loads
        self.press(key)
        messages = self._messages(Deadline.after(SECONDS))
        while self._loads == before:
            self._note(next(messages))

    def emulate(self, width: int = 0, height: int = 0, medium: str = "", **features: str) -> None:
        """Show the page as in another window or medium.

        Args:
            width: the window's width in pixels, without scroll bars; 0: unchanged.
            height: the window's height in pixels.
            medium: a CSS medium such as `print`; "": the screen.
            **features: CSS media features such as `prefers_color_scheme="dark"`.
        """
        if width:
            self._call("Emulation.setScrollbarsHidden", hidden=True)
            self._call(
                "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
            )
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self._call("Emulation.setEmulatedMedia", media=medium, features=named)

    def picture(self, clip: Mapping[str, float] | None = None) -> bytes:
        """Return a PNG of the window's content, or of a part: `x`, `y`, `width`, `height` in pixels, and `scale`."""
        part = {} if clip is None else {"clip": dict(clip)}
        return base64.b64decode(self._call("Page.captureScreenshot", format="png", **part)["data"])

    def pdf(self) -> bytes:
        return base64.b64decode(self._call("Page.printToPDF")["data"])

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        os.write(self._to, json.dumps({**request, **({"sessionId": self._session} if self._session else {})}).encode())
        os.write(self._to, b"\0")
        for message in self._messages(Deadline.after(SECONDS)):
            if message.get("id") == self._number:
                assert "error" not in message, message
                found: dict[str, Any] = message["result"]
                return found
            self._note(message)
        raise AssertionError("unreachable")

    def _messages(self, deadline: Deadline) -> Iterator[dict[str, Any]]:
        while True:
            while b"\0" not in self._rest:
                assert select.select([self._back], [], [], deadline.remaining)[0], "Chromium says nothing"
                data = os.read(self._back, 1 << 16)
                assert data, "Chromium has ended"
                self._rest += data
            whole, _, self._rest = self._rest.partition(b"\0")
            yield json.loads(whole)

    def _note(self, message: dict[str, Any]) -> None:
        method, told = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loads += 1
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(told["exceptionDetails"]))
        if method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.problems.append(str(told["args"]))
        if method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.problems.append(told["entry"]["text"])


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Start a browser whose profile is in `folder`, and yield a page; end it and its child processes in any case."""
    pipes = [os.pipe(), os.pipe()]
    # Numbers above the two that Chromium expects, so that neither descriptor overwrites the other.
    given, taken = (fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 10) for one in (pipes[0][0], pipes[1][1]))

    def connect() -> None:
        os.dup2(given, _READS)
        os.dup2(taken, _WRITES)

    options = [*_OPTIONS, *_QUIET, "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
    child = subprocess.Popen(
        [CHROMIUM, *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=connect,  # noqa: PLW1509 - it calls nothing that may wait
        close_fds=False, start_new_session=True,
    )  # fmt: skip
    for one in (given, taken, pipes[0][0], pipes[1][1]):
        os.close(one)
    try:
        yield Page(pipes[0][1], pipes[1][0])
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        os.close(pipes[0][1])
        os.close(pipes[1][0])
