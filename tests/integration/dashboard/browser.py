"""A headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import aiohttp
import pytest

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
UNPACKED = ROOT / ".chromium"
HOW = (
    "these tests need a Chromium: `.ci/chromium .chromium` fetches Debian's, or as root"
    " `apt-get install chromium-headless-shell`"
)
SECONDS = 600.0
"""What takes longer hangs: a busy machine draws a page late."""


def chromium() -> tuple[str, dict[str, str]]:
    """The program, and the environment that it needs."""
    for name in NAMES:
        found = shutil.which(name)
        if found:
            return found, dict(os.environ)
    unpacked = next(iter(sorted((UNPACKED / "usr" / "lib" / "chromium").glob("chromium*"))), None)
    if unpacked is None:
        pytest.fail(HOW)
    libraries = {str(path.parent) for path in (UNPACKED / "usr" / "lib").rglob("*.so*")}
    return str(unpacked), {**os.environ, "LD_LIBRARY_PATH": ":".join(sorted(libraries))}


@dataclass
class Tab:
    """One page.

    Attributes:
        complaints: what the console said, exceptions, and what a policy refused.
    """

    socket: aiohttp.ClientWebSocketResponse
    session: str = ""
    complaints: list[str] = field(default_factory=list)
    _loaded: asyncio.Event = field(default_factory=asyncio.Event)
    _numbers: Any = field(default_factory=lambda: count(1))
    _answers: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)

    async def listen(self) -> None:
        """Takes what the browser says, until it closes."""
        async for message in self.socket:
            said = json.loads(message.data)
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif said["method"] == "Page.loadEventFired":
                self._loaded.set()
            elif said["method"] in {
                "Runtime.consoleAPICalled",
                "Runtime.exceptionThrown",
                "Log.entryAdded",
            }:
                self.complaints.append(json.dumps(said["params"]))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """What the browser answers."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        await self.socket.send_json(message)
        answer = await asyncio.wait_for(self._answers[number], SECONDS)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    async def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        answer = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise AssertionError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    async def until(self, condition: str) -> None:
        """Waits for an expression to be true, looking at every frame that is drawn."""
        await self.run(
            "new Promise((done) => { const look = () => "
            f"({condition}) ? done(true) : setTimeout(look, 20); look(); }})"
        )

    async def open(self, url: str) -> None:
        """Goes there, and waits until everything is drawn."""
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), SECONDS)
        await self.until("document.documentElement.dataset.drawn === 'yes'")

    async def look_like(self, *, width: int = 1100, dark: bool = False) -> None:
        """The size of the window and the user's preference."""
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def press(self, *keys: str) -> None:
        """Keys, one after another."""
        for key in keys:
            for kind in ("rawKeyDown", "keyUp"):
                code = {"windowsVirtualKeyCode": KEYS[key], "code": key, "key": key}
                await self.call("Input.dispatchKeyEvent", type=kind, **code)


KEYS = {
    "Tab": 9,
    "Enter": 13,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Home": 36,
    "End": 35,
    "PageUp": 33,
    "PageDown": 34,
}


@asynccontextmanager
async def browsing(folder: Path) -> AsyncIterator[Tab]:
    """A browser with one page, which ends with it."""
    program, environment = chromium()
    home, said = folder / "browser", folder / "browser.log"
    switches = [
        "--headless",
        "--hide-scrollbars",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
    ]
    switches += ["--remote-debugging-port=0", f"--user-data-dir={home}", "about:blank"]
    process = _begin([program, *switches], environment, said)
    try:
        url = await asyncio.wait_for(_address(process, home, said), SECONDS)
        async with aiohttp.ClientSession() as http, http.ws_connect(url, max_msg_size=0) as socket:
            tab = Tab(socket)
            listening = asyncio.create_task(tab.listen())
            target = await tab.call("Target.createTarget", url="about:blank")
            attached = await tab.call(
                "Target.attachToTarget", targetId=target["targetId"], flatten=True
            )
            tab.session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                await tab.call(f"{domain}.enable")
            try:
                yield tab
            finally:
                _end(process)
                await listening
    finally:
        _end(process)
        process.wait()


def _begin(command: list[str], environment: dict[str, str], said: Path) -> subprocess.Popen[bytes]:
    with said.open("wb") as log:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends it with the processes that it began: the program may be a script that starts it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _address(process: subprocess.Popen[bytes], home: Path, said: Path) -> str:
    """Where it takes commands, which it writes when it does."""
    file = home / "DevToolsActivePort"
    while not (file.exists() and len(lines := file.read_text().split()) == 2):
        if process.poll() is not None:
            _fail(said)
        await asyncio.sleep(0.02)
    port, path = lines
    return f"ws://127.0.0.1:{port}{path}"


def _fail(said: Path) -> NoReturn:
    pytest.fail(f"Chromium ended: {said.read_text(errors='replace')[-2000:]}")
