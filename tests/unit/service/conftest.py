"""A node whose effects tests ask for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.service.contexts import ME, Chain, Fetcher, Queue, Worker

from atoll.service.config import PolicySection
from atoll.service.journal import Journal
from atoll.storage.local import LocalStore
from atoll.storage.storage import Storage


@pytest.fixture
def context(tmp_path: Path) -> Any:
    store = LocalStore(tmp_path / "store")
    return SimpleNamespace(
        me=ME,
        config=SimpleNamespace(
            store_dir=tmp_path / "store",
            data_dir=tmp_path,
            policy=PolicySection(),
            rpc_urls=("http://127.0.0.1:8545",),
            role="provider",
            owner=None,
            reward_address=None,
        ),
        follower=SimpleNamespace(views={}, confirmed=0),
        chain=Chain(),
        queue=Queue(),
        store=store,
        storage=Storage(store, cast(Any, None), None, read_only=False),
        fetcher=(fetcher := Fetcher(store)),
        fetcher_of=lambda job: fetcher,
        worker=Worker(),
        spare_worker=Worker(),
        game_worker=Worker(),
        ranks=1,
        journal=Journal(tmp_path / "journal.sqlite"),
    )
