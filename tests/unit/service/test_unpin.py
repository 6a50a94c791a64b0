"""What a service keeps of a job, and for how long."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from tests.unit.law.factories import JOB
from tests.unit.law.network import Network

from atoll.content.cid import Cid
from atoll.content.local import LocalStore
from atoll.content.storage import Storage
from atoll.errors import DiskFull
from atoll.law.views import JobView
from atoll.service.context import Context
from atoll.service.duties.unpin import DoUnpin, RoundsUnpinned
from atoll.service.effects import Effects
from atoll.service.journal import Journal


@pytest.fixture
def carrier(tmp_path: Path) -> Effects:
    store = LocalStore(tmp_path / "store")
    context = SimpleNamespace(
        config=SimpleNamespace(store_dir=tmp_path / "store", role="provider"),
        chain=SimpleNamespace(calls=None),
        store=store,
        storage=Storage(store, cast(Any, None), None, read_only=False),
        journal=Journal(tmp_path / "journal.sqlite"),
    )
    return Effects(cast(Context, context))


@pytest.fixture
def view() -> JobView:
    return Network().view


def reasons(carrier: Effects) -> list[str]:
    return [pin.reason for pin in carrier.context.store.pins()]


async def test_what_the_store_did_not_let_go_is_asked_for_again(
    carrier: Effects, view: JobView, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, command = carrier.context, DoUnpin(0, 1)
    await carrier.keep(view, 0, Cid.of(b"kept").to_bytes())
    with monkeypatch.context() as full, pytest.raises(DiskFull):
        full.setattr(context.store, "unpin", Mock(side_effect=DiskFull("no room for a change")))
        full.setattr(context.store, "collect", collect := Mock())
        await carrier.run(view, command)
    collect.assert_called_once_with()  # as it may be what makes the room
    assert context.journal.read(JOB).of(DoUnpin) is None
    assert (await carrier.run(view, command)).fact == RoundsUnpinned(1)
    assert reasons(carrier) == []
