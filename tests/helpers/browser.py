"""A headless Chromium, controlled through a pipe, without an open port or a WebDriver."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # root in a container can't use the sandbox; the pages are our own
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
SECONDS = 60  # timeout for the browser's exit
# The DevTools pipe uses file descriptors 3 and 4.
MOVED = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

# Elements whose words have too little contrast with what is behind them (WCAG 2.2: 4.5 to 1).
CONTRAST = """
(() => {
  const linear = (v) => (v <= 10 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const rgb = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const colour = rgb(getComputedStyle(e).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
  };
  const ratio = (e) => {
    const [low, high] = [rgb(getComputedStyle(e).color), behind(e)].map(light);
    return (Math.max(low, high) + 0.05) / (Math.min(low, high) + 0.05);
  };
  return [...document.querySelectorAll("label, .hint, .tag, button, a, p, th, td, h2, h3, dt, dd, textarea")]
    .filter((e) => e.offsetParent && e.textContent.trim() && !e.closest(".heat, .skip"))
    .filter((e) => ratio(e) < 4.5).map((e) => e.outerHTML.slice(0, 90));
})()
"""


def find() -> str | None:
    """Return the browser's path, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Page:
    """A tab of the browser.

    Attributes:
        requests: URLs that it requested.
        complaints: console messages and exceptions.
    """

    send: IO[bytes]
    receive: IO[bytes]
    session: str = ""
    count: int = 0
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol; record the events before its response."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.send.write(json.dumps(message).encode() + b"\0")
        self.send.flush()
        while (answer := self._next()).get("id") != self.count:
            self._keep(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, path: Path) -> None:
        """Open a file offline, without its content security policy, so that only escaping protects it."""
        self.call("Network.enable")
        self.call(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0
        )
        self.call("Page.setBypassCSP", enabled=True)
        self.visit(path.as_uri())

    def visit(self, url: str) -> None:
        """Open a URL, and wait until it is loaded."""
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=url)
        while (event := self._next()).get("method") != "Page.loadEventFired":
            self._keep(event)

    def value(self, expression: str) -> Any:
        """Evaluate a JavaScript expression; return its JSON value."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def picture(self, path: Path, *, width: int = 1280, height: int | None = None) -> None:
        """Take a screenshot, of the whole page unless a height is given."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height or 900,
            deviceScaleFactor=1,
            mobile=False,
        )
        whole = self.call("Page.getLayoutMetrics")["cssContentSize"]["height"]
        clip = {"x": 0, "y": 0, "width": width, "height": height or min(whole, 16_000), "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def _next(self) -> dict[str, Any]:
        message = bytearray()
        while (byte := self.receive.read(1)) != b"\0":
            assert byte, "the browser is gone"
            message += byte
        event: dict[str, Any] = json.loads(message)
        return event

    def _keep(self, event: dict[str, Any]) -> None:
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                self.complaints.append(json.dumps(event["params"]))


def until(page: Page, condition: str) -> None:
    """Wait until a condition holds in the page."""
    for _ in range(2400):
        if page.value(f"Boolean({condition})"):
            return
        page.value("new Promise(done => setTimeout(done, 25))")
    raise AssertionError(f"{condition} never held: {page.value('document.body.innerText')}")


@contextmanager
def page(folder: Path) -> Iterator[Page]:
    """Start a browser with its profile in `folder`, and yield a tab."""
    to_browser, from_test = os.pipe()
    to_test, from_browser = os.pipe()
    flags = [*FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    browser = [find() or NAMES[0], *flags]
    command = [sys.executable, "-c", MOVED, str(to_browser), str(from_browser), *browser]
    with (
        (folder / "browser.log").open("wb") as log,
        subprocess.Popen(command, pass_fds=(to_browser, from_browser), stdout=log, stderr=log) as process,
        os.fdopen(from_test, "wb") as send,
        os.fdopen(to_test, "rb") as receive,
    ):
        os.close(to_browser)
        os.close(from_browser)
        tab = Page(send, receive)
        try:
            target = tab.call("Target.createTarget", url="about:blank")["targetId"]
            tab.session = tab.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            yield tab
        finally:
            process.terminate()
            process.wait(SECONDS)
