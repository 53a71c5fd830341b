"""A real browser (Chromium, headless), driven over its own pipe: nothing is installed for it, and no port is opened.

Clicks and keys go the way of a user's: to a place on the page, through the browser's input.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60.0  # for an answer, on a machine that does other things too
FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update"),
    *("--hide-scrollbars", "--mute-audio", "--disable-sync"),
)
TO_BROWSER, FROM_BROWSER = 3, 4  # the descriptors that Chromium reads and writes
ERRORS = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")


def program() -> str | None:
    """The browser of this machine; None if it has none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of a running browser; `problems` are what its console had to say since the page was opened."""

    def __init__(self, process: subprocess.Popen[bytes], to_browser: int, from_browser: int) -> None:
        self.process, self._to, self._from = process, to_browser, from_browser
        self._number, self._rest, self._session = 0, b"", ""
        self._loaded = False
        self.problems: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self._call("Emulation.setFocusEmulationEnabled", enabled=True)

    def open(self, page: Path, width: int = 1280, height: int = 900) -> None:
        """Load a page in a window of so many pixels, and wait until it is there."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.problems, self._loaded = [], False
        self._call("Page.navigate", url=page.resolve().as_uri())
        self._until(lambda: self._loaded)

    def value(self, expression: str) -> Any:
        """What JavaScript gives on the page, a promise's value too; AssertionError if it throws."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, element: str) -> None:
        """Click in the middle of an element, which is given as an expression."""
        place = self.value(
            f"(() => {{ const e = {element}; e.scrollIntoView({{block: 'center', inline: 'center'}});"
            " const box = e.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            where = {"x": place[0], "y": place[1]}
            self._call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self._call("Input.insertText", text=text)

    def enter(self) -> None:
        """Press the enter key."""
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        self._call("Input.dispatchKeyEvent", type="keyDown", text="\r", **key)
        self._call("Input.dispatchKeyEvent", type="keyUp", **key)

    def picture(self, file: Path) -> None:
        """Save the page as it is seen, down to its end."""
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number, answers = self._number, []
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        self._until(lambda: bool(answers), lambda received: received.get("id") == number and answers.append(received))
        assert "error" not in answers[0], f"{method}: {answers[0]['error']}"
        return dict(answers[0]["result"])

    def _until(self, done: Callable[[], bool], take: Callable[[dict[str, Any]], Any] = lambda _: None) -> None:
        end = time.monotonic() + SECONDS
        while not done():
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._from, 1 << 16) if ready else b""
            assert data, "the browser ended, or did not answer"
            *messages, self._rest = (self._rest + data).split(b"\0")
            for message in map(json.loads, messages):
                self._note(message)
                take(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        if method not in ERRORS:
            return
        kind = parameters.get("type") or parameters.get("entry", {}).get("level")
        if method == "Runtime.exceptionThrown" or kind in ("error", "warning", "assert"):
            self.problems.append(json.dumps(parameters))


@contextmanager
def opened(path: str, profile: Path) -> Iterator[Browser]:
    """Start a browser whose own files lie in `profile`, and end it."""
    command = [path, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    (read_there, to_browser), (from_browser, write_there) = os.pipe(), os.pipe()
    # above the descriptors that they become, so that neither is overwritten by the other
    theirs = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (read_there, write_there)]

    def place() -> None:
        os.dup2(theirs[0], TO_BROWSER)
        os.dup2(theirs[1], FROM_BROWSER)

    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(TO_BROWSER, FROM_BROWSER),
        preexec_fn=place,
    )
    for each in (read_there, write_there, *theirs):
        os.close(each)
    try:
        yield Browser(process, to_browser, from_browser)
    finally:
        os.close(to_browser)  # it ends when its pipe does
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(from_browser)
