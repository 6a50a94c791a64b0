"""What a worker is asked for while its disk loses blocks."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, cast

import pytest
from tests.integration.service import worker_tasks
from tests.support.identities import digest
from tests.unit.protocol.script import Script

from atoll.errors import StorageError
from atoll.protocol.views import JobView
from atoll.service.commands import Work
from atoll.service.context import Context
from atoll.service.duties.material import DataReady
from atoll.service.effects import Effects
from atoll.service.entries import Done
from atoll.service.journal import Journal
from atoll.service.worker import Worker as WorkerProcess
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore


@dataclass(frozen=True, slots=True)
class DoRead(Work[DataReady]):
    """Reads a file as the worker does, in a process of its own."""

    kind: ClassVar[str] = "test-read.v1"
    file: bytes
    root: str

    async def perform(self, effects: Effects, view: JobView) -> Done[DataReady]:
        worker = WorkerProcess()
        try:
            await worker.run(worker_tasks.READ(self.root, self.file))
        finally:
            worker.kill()
        return Done(DataReady(self.file, digest("data")))


@pytest.mark.parametrize("damage", ["a bit", "gone"])
@pytest.mark.parametrize("is_served", [True, False])
async def test_a_block_that_the_disk_lost_is_fetched_again_from_the_jobs_gateways(
    tmp_path: Path, damage: str, is_served: bool
) -> None:
    content = bytes(range(256)) * 20_000
    store = LocalStore(tmp_path / "store", sync=False)
    file = store.add_bytes(content)
    paths = [path for path in (tmp_path / "store" / "blocks").rglob("*") if path.is_file()]
    for path in paths:
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(b"\xff" + path.read_bytes())
    asked: list[Cid] = []
    others = LocalStore(tmp_path / "others", sync=False)
    others.add_bytes(content if is_served else b"something else")

    async def fetch_block(cid: Cid) -> None:
        asked.append(cid)
        store.put_block(cid, others.get_block(cid))

    fetcher = SimpleNamespace(fetch_block=fetch_block)
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        context = SimpleNamespace(fetcher_of=lambda job: fetcher, journal=journal)
        effects = Effects.__new__(Effects)
        effects.context = cast(Context, context)
        view, command = Script.ready().net.view, DoRead(file.to_bytes(), str(store.root))
        if is_served:
            assert (await effects.run(view, command)).entry is not None
            assert len(asked) == len(paths) > 1
        else:
            with pytest.raises(StorageError, match=str(file)):
                await effects.run(view, command)
            assert asked == [file]
