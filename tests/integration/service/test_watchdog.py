"""Commands that are called when something lasts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.unit.service.test_watchdog import TOLD

from atoll.service.config import WatchdogSection
from atoll.service.watchdog import call


async def test_a_command_gets_words_and_json(tmp_path: Path) -> None:
    script = tmp_path / "tell.py"
    script.write_text(
        "import os, pathlib, sys\n"
        "text = os.environ['ATOLL_EVENT'] + ' ' + os.environ['ATOLL_HEALTH_STATUS'] + '\\n'\n"
        f"pathlib.Path({str(tmp_path / 'told')!r}).write_text(text + sys.stdin.read())\n"
    )
    await call(WatchdogSection(command=f"{sys.executable} {script}"), "blocked", TOLD)
    first, rest = (tmp_path / "told").read_text().split("\n", 1)
    assert first == "blocked money"
    assert json.loads(rest) == {"event": "blocked", **TOLD}


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
