"""A service's metrics: when they are written, and what their writing never holds up."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.running import start, training_job

from atoll.errors import StorageError
from atoll.service import measuring as measuring_module
from atoll.service.journal import Journal
from atoll.service.metrics import Measure, read_metrics, write_metrics
from atoll.service.outside import metrics_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("fails", [OSError(24, "Too many open files"), StorageError("disk")])
async def test_metrics_that_cannot_be_written_end_nothing(
    tmp_path: Path, fails: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures, thrice = 0, asyncio.Event()

    def write(*_: object) -> None:
        nonlocal failures
        failures += 1
        if failures == 3:
            thrice.set()
        raise fails

    monkeypatch.setattr(measuring_module, "write_metrics", write)
    monkeypatch.setattr(measuring_module, "METRICS_SECONDS", 0.0)
    running = start(tmp_path, training_job())
    await running.effects.committed.wait()
    await thrice.wait()
    assert not running.task.done()
    await running.stop()


async def test_a_metrics_path_that_is_a_folder_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").mkdir()
    running = start(tmp_path, training_job())
    await running.effects.committed.wait()
    await running.stop()
    assert read_metrics(tmp_path / "metrics.json") == {}


async def test_metrics_are_written_when_they_change_or_are_gone(tmp_path: Path) -> None:
    running = start(tmp_path, training_job())
    await running.effects.committed.wait()
    await running.end()  # else it writes, too
    file, service = tmp_path / "metrics.json", running.service
    file.write_text("{}")
    service.write_metrics()
    assert read_metrics(file) == {}
    running.journal.measure(99, 0, "train_seconds", 1.5)
    service.write_metrics()
    assert read_metrics(file)["jobs"]["99"] == {"0": {"train_seconds": 1.5}}  # type: ignore[index]
    file.unlink()
    service.write_metrics()
    assert read_metrics(file) != {}
    running.journal.close()


class Writer:
    """Writes metrics as the service does, once it is let.

    Attributes:
        written: how many measures each file had; −1 where the loop was kept from letting it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.written: list[int] = []
        self.may_write = threading.Event()
        self.began, self.ended = asyncio.Event(), asyncio.Event()
        self._loop = loop

    def __call__(self, measures: Sequence[Measure], *where: Any) -> None:
        self._loop.call_soon_threadsafe(self.began.set)
        count = len(measures) if self.may_write.wait(10) else -1
        write_metrics(measures, *where)
        self.written.append(count)
        self._loop.call_soon_threadsafe(self.ended.set)


@pytest.fixture
async def writer(monkeypatch: pytest.MonkeyPatch) -> Writer:
    found = Writer(asyncio.get_running_loop())
    monkeypatch.setattr(measuring_module, "write_metrics", found)
    return found


async def test_duties_are_done_while_metrics_are_written(tmp_path: Path, writer: Writer) -> None:
    running = start(tmp_path, training_job())
    await writer.began.wait()
    await running.effects.committed.wait()
    assert writer.written == []
    writer.may_write.set()
    await running.stop()
    assert read_metrics(tmp_path / "metrics.json") != {}


async def test_what_is_being_written_at_the_end_is_not_the_last(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pool(ThreadPoolExecutor):
        def shutdown(self, *told: Any, **options: Any) -> None:
            writer.may_write.set()
            super().shutdown(*told, **options)
            assert writer.written == [0]

    monkeypatch.setattr(measuring_module, "ThreadPoolExecutor", Pool)
    running = start(tmp_path, training_job())
    await writer.began.wait()
    running.journal.measure(99, 0, "train_seconds", 1.5)
    await running.stop()
    assert writer.written == [0, 1]
    assert list(read_metrics(tmp_path / "metrics.json")["jobs"]) == ["99"]  # type: ignore[call-overload]


async def test_metrics_of_many_rounds_are_written_less_often(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring_module, "METRICS_SECONDS", 0.0)
    monkeypatch.setattr(measuring_module, "SECONDS_BY_MEASURE", 3600.0)
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.measure(1, 0, "train_seconds", 1.5)
    writer.may_write.set()
    running = start(tmp_path, training_job())
    await running.effects.committed.wait()
    await writer.ended.wait()
    running.journal.measure(1, 1, "train_seconds", 1.5)
    for _ in range(50):  # turns of the loop, in each of which it could be written
        running.index.read.clear()
        await running.index.read.wait()
    assert writer.written == [1]
    await running.stop()
    assert writer.written == [1, 2]


async def test_the_board_names_metrics_and_labels_that_there_are(tmp_path: Path) -> None:
    running = start(tmp_path, training_job())
    await running.effects.committed.wait()
    metrics = {metric.name: metric.label for metric in metrics_of(running.service)}
    await running.stop()
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text(encoding="utf-8"))
    targets = [target for panel in board["panels"] for target in panel["targets"]]
    assert len(targets) >= len(board["panels"]) > 0
    named = set()
    for target in targets:
        (name,) = re.findall(r"atoll_\w+", target["expr"])
        labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert labels <= {"instance", metrics[name]}, target
        named.add(name)
    variable = board["templating"]["list"][1]["query"]["query"]
    assert set(re.findall(r"atoll_\w+", variable)) <= set(metrics)
    assert named == set(metrics)
