"""Somebody is told once of each change, and what telling does changes nothing for the service."""

from __future__ import annotations

import socket

import pytest
from aiohttp import web

from atoll.service.config import WatchdogSection
from atoll.service.health_status import HealthStatus
from atoll.service.watchdog import Watchdog, call, notify_systemd

MONEY = HealthStatus("money", "has 0 wei", "send some")
CHAIN = HealthStatus("chain", "has not answered", "check")
WAITS = HealthStatus("no job", "none is open", "wait", is_fault=False)
TOLD = {"role": "provider", "health_status": MONEY.to_json_value()}


def test_a_condition_is_told_once_when_it_lasts() -> None:
    watchdog = Watchdog(after_s=60)
    looks = [(MONEY, 0), (MONEY, 59), (MONEY, 60), (MONEY, 61), (None, 62), (None, 63)]
    assert [watchdog.look(c, now) for c, now in looks] == [
        "", "", "blocked", "", "recovered", ""
    ]  # fmt: skip


def test_what_passes_by_itself_is_not_told() -> None:
    watchdog = Watchdog(after_s=60)
    looks = [(MONEY, 0), (None, 30), (MONEY, 40), (CHAIN, 70), (MONEY, 110), (WAITS, 999)]
    assert [watchdog.look(c, now) for c, now in looks] == [""] * 6


def test_another_condition_is_told_too() -> None:
    watchdog = Watchdog(after_s=60)
    looks = [(MONEY, 0), (MONEY, 60), (CHAIN, 61), (CHAIN, 121), (None, 122)]
    assert [watchdog.look(c, now) for c, now in looks] == [
        "", "blocked", "", "blocked", "recovered"
    ]  # fmt: skip


async def test_a_webhook_gets_json() -> None:
    heard = []

    async def hear(request: web.Request) -> web.Response:
        heard.append(await request.json())
        return web.Response(status=500)  # which changes nothing

    app = web.Application()
    app.router.add_post("/hook", hear)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        await call(WatchdogSection(webhook=url), "recovered", TOLD)
    finally:
        await runner.cleanup()
    assert heard == [{"event": "recovered", **TOLD}]


def test_systemd_is_told_where_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.bind("\0atoll-test-notify")
        monkeypatch.setenv("NOTIFY_SOCKET", "@atoll-test-notify")
        notify_systemd("READY=1")
        assert there.recv(64) == b"READY=1"
    notify_systemd("WATCHDOG=1")  # nobody listens any more
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify_systemd("WATCHDOG=1")
