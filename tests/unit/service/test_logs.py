"""What is logged costs no duty, whatever becomes of the log."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import structlog
from tests.unit.protocol.network import Network

from atoll.protocol.types import TOKEN
from atoll.service import performing as performing_module
from atoll.service.duties.unpin import DoUnpin
from atoll.service.entries import Done
from atoll.service.log_files import log_file
from atoll.service.machine import Failed
from atoll.service.main import Speaks, logs_configured
from atoll.service.service import Service


class Full(io.StringIO):
    """A disk without room, or a pipe that nobody reads."""

    def write(self, text: str, /) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(autouse=True)
def structlog_as_it_was() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.mark.parametrize("speaks", ["", "text"])
def test_a_word_for_which_there_is_no_room_is_excluded(
    speaks: Speaks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Full())
    monkeypatch.setattr(sys, "stdout", Full())
    config = SimpleNamespace(log_file=None, log_level="info")
    with logs_configured(cast(Any, config), speaks=speaks):
        for say in ("info", "warning", "error", "exception"):
            getattr(structlog.get_logger(), say)("collects", job=1, amount=2)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_player_at_a_terminal_tells_and_does_not_log_its_decisions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, logged = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", told)
    monkeypatch.setattr(sys, "stderr", logged)
    config = SimpleNamespace(log_file=None, log_level="info")
    with logs_configured(cast(Any, config), speaks="text"):
        say = structlog.get_logger()
        say.info("disputes", job=7, round=0, seat=2, bond=25 * TOKEN // 2)
        say.info("collects", job=7, amount=TOKEN)
        say.info("decision", job=7, duty="watch")
        say.warning("came too late", job=7, round=1, seat=3)
        say.warning("no endpoint answers")
    assert told.getvalue().splitlines() == [
        "job 7, round 0, seat 2: disputes it with a bond of 12.5 tokens",
        "job 7: collects 1 tokens",
        "job 7, round 1, seat 3: its window ended before our replay did",
    ]
    (line,) = logged.getvalue().splitlines()
    assert "no endpoint answers" in line


@pytest.mark.parametrize("colours", [True, False])
def test_a_terminal_has_lines_for_people_which_no_stranger_s_word_steers(
    colours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged, config = Terminal(), SimpleNamespace(log_file=None, log_level="info")
    monkeypatch.setattr(sys, "stderr", logged)
    monkeypatch.setenv("NO_COLOR", "" if colours else "1")
    with logs_configured(cast(Any, config)):
        structlog.get_logger().info("passes over", gateway="http://x\x1b[2J", cid=b"\x1b[2J")
        try:
            raise ValueError("no \x1b[2J name")
        except ValueError:
            structlog.get_logger().exception("failed")
    text = logged.getvalue()
    assert ("\x1b[0m" in text) is colours
    assert "\x1b[2J" not in text
    assert "http://x?[2J" in text
    assert "ValueError: no ?[2J name" in text


def test_who_keeps_the_log_has_an_object_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    logged, config = io.StringIO(), SimpleNamespace(log_file=None, log_level="info")
    monkeypatch.setattr(sys, "stderr", logged)
    with logs_configured(cast(Any, config)):
        structlog.get_logger().info("decision", job=7)
    assert json.loads(logged.getvalue())["job"] == 7


def test_what_is_logged_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "service.jsonl"
    config = SimpleNamespace(log_file=path, log_level="info")
    with logs_configured(cast(Any, config)):
        structlog.get_logger().info("a word", job=1)
        told = json.loads(path.read_text())
    assert (told["event"], told["job"], told["level"]) == ("a word", 1, "info")


def test_a_file_that_cannot_be_written_to_its_end_is_closed(tmp_path: Path) -> None:
    with log_file(tmp_path / "log") as stream:
        stream.write("no end of a line")
        os.close(stream.fileno())  # what is left of it cannot be written
    assert stream.closed


async def test_a_command_whose_end_cannot_be_told_is_no_longer_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(*_: object) -> Done[Any]:
        return Done(block=5)

    service: Service[Any] = Service("provider", None, cast(Any, None), cast(Any, Mock(run=run)))
    service.alone.is_alone.set()
    view, command = Network().view, DoUnpin(0, 1)
    service.performing.start(view.job_id, view, command)
    refuse = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(performing_module, "log", Mock(info=refuse, exception=refuse))
    await asyncio.wait(service.performing.running.values())
    job, event = service.machines.events.get_nowait()
    assert (job, cast(Failed, event).key, service.under_way) == (view.job_id, command.key, 0)
