"""A headless Chromium, spoken to through its DevTools protocol."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@dataclass
class Browser:
    """A tab of the browser, and all that it has reported: requests, console messages, errors."""

    commands: IO[bytes]
    answers: IO[bytes]
    session: dict[str, str] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of a method of the protocol."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters, **self.session}
        self.commands.write(json.dumps(message).encode() + b"\0")
        self.commands.flush()
        while (answer := self.read()).get("id") != self.count:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def read(self) -> dict[str, Any]:
        text = b""
        while not text.endswith(b"\0"):
            byte = self.answers.read(1)
            assert byte, "the browser has ended"
            text += byte
        message: dict[str, Any] = json.loads(text[:-1])
        return message

    def open(self, page: Path, width: int, scheme: str) -> None:
        """Open a page, and wait until it is there."""
        size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self.read())

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"]["value"]


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Start a browser with its files in a folder, or skip the test if there is none."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("needs Chromium")
    (theirs, commands), (answers, theirs_too) = os.pipe(), os.pipe()
    words = [program, "--headless", "--no-sandbox", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
    script = f'exec "$@" 3<&{theirs} 4>&{theirs_too} 2>/dev/null'
    process = subprocess.Popen(["bash", "-c", script, "_", *words], pass_fds=(theirs, theirs_too))
    os.close(theirs)
    os.close(theirs_too)
    with os.fdopen(commands, "wb") as out, os.fdopen(answers, "rb") as back:
        browser = Browser(out, back)
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.session["sessionId"] = session
        for domain in ("Page", "Runtime", "Log", "Network"):
            browser.call(f"{domain}.enable")
        try:
            yield browser
        finally:
            process.terminate()
            process.wait()
