"""What a service keeps of a job, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from tests.support.identities import JOB
from tests.support.manifests import make_terms
from tests.unit.protocol.models import MODEL, PROGRAM
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, WATCHER, Script
from tests.unit.service.held import state_of

from atoll.errors import DiskFull
from atoll.protocol import events as ev
from atoll.protocol.claims import SeatStatements
from atoll.protocol.clocks import absolute_end
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.types import Phase, SeatIndex
from atoll.protocol.views import JobView
from atoll.service.context import Context
from atoll.service.duties.send_keeper_calls import is_over
from atoll.service.duties.unpin import (
    DoUnpin,
    DoUnpinJob,
    JobUnpinned,
    RoundsUnpinned,
    decide_unpin,
)
from atoll.service.effects import Effects
from atoll.service.entries import NotYet
from atoll.service.journal import Journal
from atoll.service.machine import Head, State
from atoll.service.watcher import Player
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.storage.storage import Storage


@dataclass
class Chain:
    """Its clock, and when the last lock of the job opens."""

    calls: None = None
    now: int = 1 << 40
    end: int = 0

    async def head(self) -> Any:
        return SimpleNamespace(timestamp=self.now)

    async def absolute_end(self, job: int) -> int:
        return self.end


@pytest.fixture
def carrier(tmp_path: Path) -> Effects:
    store = LocalStore(tmp_path / "store")
    context = SimpleNamespace(
        config=SimpleNamespace(store_dir=tmp_path / "store", role="provider"),
        chain=Chain(),
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
    assert (await carrier.run(view, command)).entry == RoundsUnpinned(1)
    assert reasons(carrier) == []


# --- a job that is over ---


@pytest.fixture
def over() -> Script:
    script = Script.ready(make_terms(program=PROGRAM.root, rounds=2))
    for _ in range(2):
        script.honest_round()
    assert script.net.view.phase is Phase.CLOSED
    return script


def player(script: Script) -> State[Any]:
    return state_of(script.net, PROVIDERS[0], Player())


def wanted(state: State[Any]) -> list[Any]:
    return [c for c in decide_unpin(state).commands if isinstance(c, DoUnpinJob)]


def test_a_job_that_is_over_is_kept_until_its_claim_deadline(over: Script) -> None:
    terms = over.net.terms
    due = absolute_end(terms, 0) + terms.claim_seconds
    over.net.wait_until(due - 1)
    state = player(over)
    assert is_over(state.view, state.now)
    assert wanted(state) == []
    later = replace(state, head=Head(state.head.number + 1, due))
    (command,) = wanted(later)
    done = replace(later, entries=later.entries.plus(command.key, JobUnpinned()))
    assert decide_unpin(done).commands == ()


def test_a_job_that_is_played_about_is_kept(over: Script) -> None:
    view = over.net.view
    said = SeatStatements(view, view.settled[0], SeatIndex(2), MODEL, PROGRAM).claim(1)
    over.net.emit(ev.Challenged(1, said.holder, WATCHER, 10**20, said, b"evidence"))
    over.net.emit(ev.Began(1, said.holder))
    over.net.wait_until(absolute_end(over.net.terms, 0) + over.net.terms.claim_seconds)
    assert wanted(player(over)) == []
    over.net.emit(ev.Ended(1, Outcome.SENT_HOME))
    assert len(wanted(player(over))) == 1


async def test_the_submitter_has_as_long_as_games_may_take_too(
    carrier: Effects, over: Script
) -> None:
    view, chain = over.net.view, cast(Chain, carrier.context.chain)
    await carrier.keep(view, None, Cid.of(b"data").to_bytes())
    chain.end = absolute_end(over.net.terms, 600)
    due = chain.end + over.net.terms.claim_seconds
    chain.now = due - 1
    with pytest.raises(NotYet) as early:
        await carrier.run(view, DoUnpinJob())
    assert (early.value.due_at, reasons(carrier)) == (due, [f"job/{JOB}"])
    chain.now = due
    await carrier.run(view, DoUnpinJob())
    assert reasons(carrier) == []


async def test_all_of_a_job_goes_and_nothing_of_others(carrier: Effects, over: Script) -> None:
    view, store = over.net.view, carrier.context.store
    kept = [store.add_bytes(bytes([n]) * 100) for n in range(5)]
    await carrier.keep(view, None, kept[0].to_bytes())
    await carrier.keep(view, 1, kept[1].to_bytes())
    store.pin(kept[2], f"job/{JOB}/round/1/carried")
    others = [f"job/{JOB}0", "mine"]
    for cid, reason in zip(kept[3:], others, strict=True):
        store.pin(cid, reason)
    done = await carrier.run(view, DoUnpinJob())
    assert done.entry == JobUnpinned() == carrier.context.journal.read(JOB).of(DoUnpinJob)
    assert reasons(carrier) == others


async def test_of_a_job_that_is_none_of_ours_nothing_is_asked(
    carrier: Effects, over: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrier.context, "chain", None)
    assert (await carrier.run(over.net.view, DoUnpinJob())).entry == JobUnpinned()
