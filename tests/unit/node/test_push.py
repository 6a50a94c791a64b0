"""What a provider brings to whom, and what a verifier's gateway takes for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, Script
from tests.unit.service.held import state_of
from tests.unit.storage.gateways import serving

from atoll.protocol.late_votes import elector_accounts
from atoll.protocol.obligations import committee_accounts
from atoll.protocol.round_list import RoundList
from atoll.protocol.types import Address, SeatIndex
from atoll.protocol.views import JobView
from atoll.service.accepted_files import SHOWN_ROUNDS, accepted_files, shown_files
from atoll.service.duties.updates import DoGetUpdate
from atoll.service.machine import State
from atoll.storage import Fetcher, LocalStore
from atoll.storage.cid import Cid
from atoll_devnet.cheats.providers import BEHAVIOURS
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.duties.push import LATE, DoPush, Pushed
from atoll_node.machine import decide
from atoll_verifier.behaviour import VerifierBehaviour
from atoll_verifier.machine import decide as verifier

SEAT = SeatIndex(3)


@pytest.fixture
def script() -> Script:
    made = Script.ready()
    made.net.advance()
    return made


def announced(view: JobView) -> JobView:
    return replace(view, gateways={who: f"http://{who}.example" for who in VERIFIERS})


def provider(script: Script, behaviour: ProviderBehaviour | None = None) -> State[Any]:
    state = state_of(script.net, PROVIDERS[3], behaviour or ProviderBehaviour())
    return replace(state, view=announced(state.view))


def pushes(state: State[Any]) -> list[DoPush]:
    return [c for d in decide(state) for c in d.commands if isinstance(c, DoPush)]


def urls(accounts: list[Address]) -> tuple[str, ...]:
    return tuple(sorted(f"http://{who}.example" for who in accounts))


def test_its_update_is_brought_to_the_committee_from_its_own_reveal_on(script: Script) -> None:
    for seat in range(4):
        script.commit(seat)
    for seat in range(3):
        script.reveal(seat)
    assert pushes(provider(script)) == []  # what others revealed is theirs to bring
    script.reveal(SEAT)
    view = script.net.view
    assert view.open is not None
    (push,) = pushes(provider(script))
    revealed = view.open.reveals[SEAT]
    assert push.update == revealed.reveal.update_cid
    assert push.to == urls(committee_accounts(view, view.open))
    assert 3 * push.enough >= 2 * len(push.to) > 3 * (push.enough - 1)


def test_it_stops_when_enough_have_it_and_when_votes_end(script: Script) -> None:
    script.train()
    state = provider(script)
    (push,) = pushes(state)
    entry = Pushed(push.commitment, push.committee_draw)
    assert pushes(replace(state, entries=state.entries.plus(push.key, entry))) == []
    running = state.view.open
    assert running is not None
    over = replace(state, head=replace(state.head, time=running.votes_end))
    assert pushes(over) == []


def test_what_a_committee_did_not_have_is_brought_to_the_electors_of_late_votes(
    script: Script,
) -> None:
    script.train()
    script.say(has=0b0111)
    script.settle()
    state = provider(script)
    settled_round = state.view.settled[0]
    (push,) = pushes(state)
    electors = elector_accounts(state.view, settled_round)
    assert (push.round, push.committee_draw, push.to) == (0, LATE, urls(electors))
    assert push.enough == len(electors) // 2 + 1
    ended = replace(state, head=replace(state.head, time=settled_round.clock.audit_end))
    assert pushes(ended) == []


async def test_what_it_reports_is_that_enough_of_them_have_it(
    script: Script, tmp_path: Path
) -> None:
    script.train()
    (push,) = pushes(provider(script))
    ours, theirs = (LocalStore(tmp_path / name, sync=False) for name in ("ours", "theirs"))
    cid = ours.add_bytes(b"an update")
    async with serving(theirs) as gateway, Fetcher(ours, tuple) as fetcher:
        context = SimpleNamespace(fetcher_of=lambda _: fetcher)
        effects = cast(Any, SimpleNamespace(context=context))
        brought = replace(push, update=cid.to_bytes(), to=(gateway.url,), enough=1)
        performing = asyncio.create_task(brought.perform(effects, script.net.view))
        await asyncio.sleep(0.3)
        assert not performing.done()  # its reveal is not confirmed there yet
        gateway.pushed.expect({cid: 9})
        done = await performing
    assert done.entry == Pushed(push.commitment, push.committee_draw)
    assert theirs.get_block(cid) == b"an update"


@pytest.mark.parametrize("cheat", ["withhold", "stall", "drip", "half-served"])
def test_who_withholds_brings_nothing(script: Script, cheat: str) -> None:
    script.train()
    assert pushes(provider(script, BEHAVIOURS[cheat]())) == []


def test_a_verifier_takes_what_the_running_round_revealed_and_nothing_else(
    script: Script,
) -> None:
    def taken(account: Address) -> set[Cid]:
        return set(accepted_files(script.net.view, account))

    assert taken(VERIFIERS[0]) == set()
    for seat in range(4):
        script.commit(seat)
    for seat in range(3):
        script.reveal(seat)
    running = script.net.view.open
    assert running is not None
    revealed = {Cid.from_bytes(each.reveal.update_cid) for each in running.reveals.values()}
    assert taken(VERIFIERS[0]) == revealed and len(revealed) == 3
    assert taken(PROVIDERS[0]) == set()  # nobody brings updates to a provider
    script.reveal(SEAT)
    script.say(has=0b0111)
    script.settle()
    late = script.net.view.settled[0].reveals[SEAT]
    assert taken(VERIFIERS[0]) == {Cid.from_bytes(late.reveal.update_cid)}


def test_pieces_are_shown_of_what_a_merge_that_others_apply_is_made_of(script: Script) -> None:
    assert set(shown_files(script.net.view)) == set()
    script.train()
    running = script.net.view.open
    assert running is not None
    revealed = {Cid.from_bytes(each.reveal.update_cid) for each in running.reveals.values()}
    assert set(shown_files(script.net.view)) == revealed and len(revealed) == 4
    script.say()
    script.settle()
    assert set(shown_files(script.net.view)) == revealed
    lists = [replace(script.net.view.settled[0], reveals={})] * SHOWN_ROUNDS
    view = replace(script.net.view, settled=RoundList([script.net.view.settled[0], *lists]))
    assert set(shown_files(view)) == set()


def test_no_update_is_asked_for_before_its_reveal_is_confirmed(script: Script) -> None:
    """Nobody takes it before, so that nobody has it."""
    state = state_of(script.net, VERIFIERS[0], VerifierBehaviour())
    script.train()
    ahead = replace(state, ahead=script.net.view)
    confirmed = state_of(script.net, VERIFIERS[0], VerifierBehaviour())

    def asked(of: State[Any]) -> int:
        return sum(isinstance(c, DoGetUpdate) for d in verifier(of) for c in d.commands)

    assert (asked(ahead), asked(confirmed)) == (0, 4)
