"""The control socket: questions are answered, whatever is asked, for the folder's owner alone."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import ChainError
from atoll.service.control import SOCKET_NAME, NotRunning, Refused, ask, listening


async def echo(arguments: dict[str, Any]) -> Any:
    return {"heard": arguments}


async def refuse(arguments: dict[str, Any]) -> Any:
    raise ChainError("no money", next_step="send some")


async def break_down(arguments: dict[str, Any]) -> Any:
    raise ZeroDivisionError


ANSWERS = {"echo": echo, "refuse": refuse, "break": break_down}


@pytest.fixture(params=["short", "x" * 150])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Also one whose path is longer than a socket's may be."""
    path = tmp_path / str(request.param)
    path.mkdir()
    return path


async def test_questions_are_answered(folder: Path) -> None:
    async with listening(folder, ANSWERS):
        assert stat.S_IMODE((folder / SOCKET_NAME).stat().st_mode) == 0o600
        answers = await asyncio.gather(*(ask(folder, "echo", number=i) for i in range(20)))
        assert answers == [{"heard": {"number": i}} for i in range(20)]
    assert not (folder / SOCKET_NAME).exists()


async def test_an_error_keeps_its_next_step_and_code(folder: Path) -> None:
    async with listening(folder, ANSWERS):
        with pytest.raises(Refused, match="no money") as caught:
            await ask(folder, "refuse")
        assert (caught.value.next_step, caught.value.exit_code) == ("send some", 3)
        with pytest.raises(Refused, match="ZeroDivisionError"):
            await ask(folder, "break")
        with pytest.raises(Refused, match="not asked that"):
            await ask(folder, "sing")
        assert await ask(folder, "echo") == {"heard": {}}


async def test_nobody_runs(folder: Path) -> None:
    with pytest.raises(NotRunning) as caught:
        await ask(folder, "echo")
    assert caught.value.next_step


async def test_what_a_killed_service_left_there_is_replaced(folder: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as left:
        import os

        here = os.open(folder, os.O_RDONLY)
        left.bind(f"/proc/self/fd/{here}/{SOCKET_NAME}")
        os.close(here)
    with pytest.raises(NotRunning):
        await ask(folder, "echo")
    async with listening(folder, ANSWERS):
        assert await ask(folder, "echo") == {"heard": {}}
