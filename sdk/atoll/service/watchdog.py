"""Tells somebody when a service is blocked for a while, and when it works again.

Rule of this file: whoever is called gets one call for each change, and whatever that call does, or
fails to do, changes nothing for the service.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import socket
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import structlog

from atoll.proxies import proxy_of
from atoll.service.config import WatchdogSection
from atoll.service.health_status import HealthStatus

CALL_SECONDS: Final = 30.0
log = structlog.get_logger("atoll.watchdog")


@dataclass
class Watchdog:
    """When to call. Seconds are the caller's clock's."""

    after_s: float
    _since: tuple[str, float] | None = None
    _called: str = ""

    def look(self, health_status: HealthStatus | None, now: float) -> str:
        """`blocked` or `recovered` where it is time to say so; else empty."""
        name = health_status.name if health_status is not None and health_status.is_fault else ""
        if not name:
            self._since = None
            last, self._called = self._called, ""
            return "recovered" if last else ""
        if self._since is None or self._since[0] != name:
            self._since = (name, now)
        if self._called != name and now - self._since[1] >= self.after_s:
            self._called = name
            return "blocked"
        return ""


async def call(section: WatchdogSection, event: str, facts: dict[str, Any]) -> None:
    """Runs the command and posts to the webhook that are configured; never raises."""
    document = {"event": event, **facts}
    if section.command:
        await _contained(_run(section.command, document), "the command")
    if section.webhook:
        await _contained(_post(section.webhook, document), "the webhook")


async def _contained(work: Any, what: str) -> None:
    try:
        async with asyncio.timeout(CALL_SECONDS):
            await work
    except Exception as error:  # whatever it is, it is not the service's
        # Not the error's words: they may have the address, and that the token of who owns it.
        log.warning("the watchdog could not call", what=what, cause=type(error).__name__)


async def _run(command: str, document: dict[str, Any]) -> None:
    health_status = document.get("health_status") or {}
    variables = {
        "ATOLL_EVENT": str(document["event"]),
        "ATOLL_HEALTH_STATUS": str(health_status.get("name", "")),
        "ATOLL_TEXT": str(health_status.get("text", "")),
    }
    process = await asyncio.create_subprocess_exec(
        *shlex.split(command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, **variables},
    )
    try:
        await process.communicate(json.dumps(document).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        log.warning("the watchdog's command failed", code=process.returncode)


async def _post(url: str, document: dict[str, Any]) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=document, proxy=proxy_of(url)) as answer,
    ):
        if answer.status >= 300:
            log.warning("the watchdog's webhook refused", status=answer.status)


def notify_systemd(state: str) -> None:
    """Tells systemd, where it started us (sd_notify(3)): `READY=1`, `WATCHDOG=1`, `STATUS=…`."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as there:
            there.setblocking(False)
            there.sendto(state.encode(), address)
    except OSError as error:
        log.warning("systemd does not listen", cause=str(error))
