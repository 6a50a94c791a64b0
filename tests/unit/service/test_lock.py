"""One process a folder; who it is stands in the lock, and a refused start changes nothing."""

from __future__ import annotations

import asyncio
import fcntl
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from atoll.errors import ConfigError
from atoll.service import context
from atoll.service.context import hold_when_free
from atoll.service.control import listening
from atoll.service.lock import LOCK_NAME, FolderHeld, hold_folder, holder_of


def test_nobody_runs_where_nobody_ran(tmp_path: Path) -> None:
    assert holder_of(tmp_path) is None
    assert holder_of(tmp_path / "no folder") is None


def test_the_holder_is_known_while_it_holds(tmp_path: Path) -> None:
    with hold_folder(tmp_path):
        assert holder_of(tmp_path) == os.getpid()
    assert holder_of(tmp_path) is None
    with hold_folder(tmp_path):
        assert holder_of(tmp_path) == os.getpid()


def test_who_looks_whether_somebody_runs_refuses_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`atoll status` in the very moment in which a service starts."""
    looker = os.open(tmp_path / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(looker, fcntl.LOCK_SH)
    flock = fcntl.flock

    def gone_after_one_try(file: Any, how: int) -> None:
        try:
            flock(file, how)
        finally:
            flock(looker, fcntl.LOCK_UN)

    monkeypatch.setattr(fcntl, "flock", gone_after_one_try)
    with hold_folder(tmp_path):
        assert holder_of(tmp_path) == os.getpid()
    os.close(looker)


# --- a service that starts ---


async def test_a_service_waits_for_a_command_that_has_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = asyncio.Event()
    told = Mock(warning=Mock(side_effect=lambda *_, **__: waits.set()))
    monkeypatch.setattr(context, "log", told)
    monkeypatch.setattr(context, "HOLD_PAUSE_S", 0.0)
    async with AsyncExitStack() as stack:
        with hold_folder(tmp_path):
            starts = asyncio.create_task(hold_when_free(stack, tmp_path))
            await waits.wait()
        await starts
        assert holder_of(tmp_path) == os.getpid()
    assert holder_of(tmp_path) is None


async def test_a_start_that_may_succeed_later_has_an_exit_code_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "HOLD_PAUSE_S", 0.0)
    async with AsyncExitStack() as stack:
        with hold_folder(tmp_path), pytest.raises(FolderHeld) as refused:
            await hold_when_free(stack, tmp_path)
    assert refused.value.exit_code not in {0, ConfigError.exit_code}
    (unit,) = (Path(__file__).parents[3] / "deploy").glob("*.service")
    assert f"RestartPreventExitStatus={ConfigError.exit_code}\n" in unit.read_text()


@pytest.mark.parametrize("answers", [{}, {"status": AsyncMock(return_value={})}])
async def test_where_a_service_runs_a_second_one_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]
) -> None:
    monkeypatch.setattr(context, "log", None)
    with hold_folder(tmp_path):
        async with listening(tmp_path, answers), AsyncExitStack() as stack:
            with pytest.raises(FolderHeld, match="runs in"):
                await hold_when_free(stack, tmp_path)
