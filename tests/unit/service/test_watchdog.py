"""Somebody is told once of each change, and what telling does changes nothing for the service."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from atoll.service.condition import Condition
from atoll.service.config import WatchdogSection
from atoll.service.watchdog import Watchdog, call, notify_systemd

MONEY = Condition("money", "has 0 wei", "send some")
CHAIN = Condition("chain", "has not answered", "check")
WAITS = Condition("no job", "none is open", "wait", is_fault=False)
TOLD = {"role": "provider", "condition": MONEY.to_plain()}


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


async def test_a_command_gets_words_and_json(tmp_path: Path) -> None:
    script = tmp_path / "tell.py"
    script.write_text(
        "import os, pathlib, sys\n"
        "text = os.environ['ATOLL_EVENT'] + ' ' + os.environ['ATOLL_CONDITION'] + '\\n'\n"
        f"pathlib.Path({str(tmp_path / 'told')!r}).write_text(text + sys.stdin.read())\n"
    )
    await call(WatchdogSection(command=f"{sys.executable} {script}"), "blocked", TOLD)
    first, rest = (tmp_path / "told").read_text().split("\n", 1)
    assert first == "blocked money"
    assert json.loads(rest) == {"event": "blocked", **TOLD}


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


@pytest.mark.parametrize(
    "section",
    [WatchdogSection(command="/no/such/program"), WatchdogSection(command="false"),
     WatchdogSection(command="'unclosed"), WatchdogSection(webhook="http://127.0.0.1:9/"),
     WatchdogSection(webhook="no address")],
)  # fmt: skip
async def test_a_call_that_fails_ends_nothing(section: WatchdogSection) -> None:
    await call(section, "blocked", TOLD)


@pytest.mark.parametrize(
    "section",
    [WatchdogSection(webhook="http://127.0.0.1:9/TOKEN"), WatchdogSection(webhook="TOKEN no URL"),
     WatchdogSection(webhook="http://[::1/TOKEN"), WatchdogSection(command="/no/such TOKEN")],
)  # fmt: skip
async def test_no_token_gets_into_the_log(section: WatchdogSection) -> None:
    with capture_logs() as logs:
        await call(section, "blocked", TOLD)
    assert len(logs) == 1
    assert "TOKEN" not in repr(logs)


def test_systemd_is_told_where_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.bind("\0atoll-test-notify")
        monkeypatch.setenv("NOTIFY_SOCKET", "@atoll-test-notify")
        notify_systemd("READY=1")
        assert there.recv(64) == b"READY=1"
    notify_systemd("WATCHDOG=1")  # nobody listens any more
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify_systemd("WATCHDOG=1")
