"""`train_model`: it waits, in a notebook, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atoll.job.client import Client
from atoll.job.script import train_model


@pytest.fixture(params=[True])
def announces(request: pytest.FixtureRequest) -> bool:
    """Whether others reach this machine."""
    reached: bool = request.param
    return reached


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, announces: bool) -> Path:
    """Where a network that answers at once puts the model."""

    async def hand_over(tell: Any) -> None:
        await asyncio.sleep(0)
        tell("brought")

    async def wait(tell: object) -> None:
        await asyncio.sleep(0)

    async def result(folder: Path) -> Path:
        await asyncio.sleep(0)
        return Path(folder)

    async def submit(spec: Any, *, max_spend: int) -> SimpleNamespace:
        assert (spec.data.paths, spec.money.budget, max_spend) == (("text",), 10**30, 10**18)
        return SimpleNamespace(id=7, hand_over=hand_over, wait=wait, result=result)

    @asynccontextmanager
    async def client(_: object) -> AsyncIterator[SimpleNamespace]:
        here = SimpleNamespace(url="http://here")
        network = SimpleNamespace(decimals=6)
        yield SimpleNamespace(submit=submit, session=here, deployment=network, announces=announces)

    monkeypatch.setattr(Client, "from_env", client)
    return tmp_path / "model"


def test_it_returns_the_models_folder(folder: Path) -> None:
    told: list[str] = []
    assert train_model("text", budget="1", folder=folder, tell=told.append) == folder
    assert told == ["prepares the text", "job 7 is paid; the data is served at http://here"]


@pytest.mark.parametrize("announces", [False], indirect=True)
def test_who_is_reached_by_nobody_brings_the_data(folder: Path) -> None:
    told: list[str] = []
    assert train_model("text", budget="1", folder=folder, tell=told.append) == folder
    assert told == ["prepares the text", "job 7 is paid", "brought"]


async def test_so_it_does_where_an_event_loop_runs(folder: Path) -> None:
    assert train_model(["text"], budget="1", folder=folder) == folder
