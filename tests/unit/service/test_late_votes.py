"""Seats that a committee did not have: fetched, said, counted, paid; and who would profit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.contracts import Refused
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script
from tests.unit.service.held import state_of

from atoll.protocol.late_votes import electors, grantable, is_available_late
from atoll.protocol.types import Address, Role, SeatIndex
from atoll.service.duties.send_late_votes import SendGrant, SendLateVote
from atoll.service.duties.updates import DoGetUpdate, UpdateSeen
from atoll.service.machine import State
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.machine import decide as node
from atoll_verifier.behaviour import VerifierBehaviour
from atoll_verifier.machine import decide as verifier

SEAT = SeatIndex(3)


@pytest.fixture
def script() -> Script:
    """Round 0 is settled without an update of seat 3; round 1 runs."""
    made = Script.ready()
    made.net.advance()
    made.train()
    made.say(has=0b0111)
    made.settle()
    return made


def wanted(state: State[Any], kind: type[Any]) -> list[Any]:
    decide = node if isinstance(state.setup.behaviour, ProviderBehaviour) else verifier
    return [c for d in decide(state) for c in d.commands if isinstance(c, kind)]


def member(net: Network, me: Address = VERIFIERS[0], has: bool | None = None) -> State[Any]:
    """A verifier, and what it found of the seat's update."""
    state = state_of(net, me, VerifierBehaviour())
    if has is None:
        return state
    told = net.view.settled[0].reveals[SEAT]
    key = f"fetch-update.v1:0:{told.commitment.hex()}"
    return replace(state, entries=state.entries.plus(key, UpdateSeen(has)))


def ids(script: Script) -> list[int]:
    """Of everybody in both committees."""
    slots = sorted(electors_of(script))
    return [script.net.at(Role.VERIFIER, slot, 1).id for slot in slots]


def electors_of(script: Script) -> set[int]:
    both = electors(script.net.view, script.net.view.settled[0])
    return {slot for slot in range(256) if both >> slot & 1}


def test_what_was_not_available_is_fetched_again_and_said_once_it_is_here(script: Script) -> None:
    (get,) = [c for c in wanted(member(script.net), DoGetUpdate) if c.round == 0]
    assert get.update.seat == SEAT
    (vote,) = wanted(member(script.net, has=True), SendLateVote)
    assert (vote.round, vote.has) == (0, 1 << SEAT)
    assert wanted(member(script.net, has=False), SendLateVote) == []  # it does not decode
    id = script.net.own(VERIFIERS[0])
    assert id is not None
    script.net.late_vote(0, id.id, vote.has)
    assert wanted(member(script.net, has=True), SendLateVote) == []


def test_a_late_vote_waits_for_the_other_updates_but_not_for_ever() -> None:
    script = Script.ready()
    script.net.advance()
    script.train()
    script.say(has=0b0011)
    script.settle()
    state = member(script.net, has=True)
    assert wanted(state, SendLateVote) == []  # seat 2 may still come, for one transaction's gas
    clock = script.net.view.settled[0].clock
    script.net.wait_until(clock.audit_end - 1)
    (vote,) = wanted(member(script.net, has=True), SendLateVote)
    assert vote.has == 1 << SEAT
    script.net.wait_until(clock.audit_end)
    assert wanted(member(script.net, has=True), SendLateVote) == []
    assert [c for c in wanted(member(script.net), DoGetUpdate) if c.round == 0] == []


def test_the_seat_has_itself_paid_when_more_than_half_have_it(script: Script) -> None:
    net, everyone = script.net, ids(script)
    for count, id in enumerate(everyone, 1):
        view = net.view
        is_enough = 2 * (count - 1) > len(everyone)
        assert is_available_late(view, view.settled[0], SEAT) == is_enough
        grants = wanted(state_of(net, PROVIDERS[SEAT], ProviderBehaviour()), SendGrant)
        assert len(grants) == is_enough
        if is_enough:
            break
        with pytest.raises(Refused):
            net.grant(0, SEAT)
        net.late_vote(0, id, 1 << SEAT)
    assert wanted(state_of(net, PROVIDERS[0], ProviderBehaviour()), SendGrant) == []
    net.grant(0, SEAT)
    assert grantable(net.view, net.view.settled[0], net.now) == []
    assert net.view.settled[0].pay >> SEAT & 1


def test_a_slashed_or_leaked_seat_is_nobodys_errand(script: Script) -> None:
    holder = script.net.view.settled[0].seats[SEAT]
    script.net.slash(Role.PROVIDER, holder, WATCHER)
    assert [c for c in wanted(member(script.net), DoGetUpdate) if c.round == 0] == []
    assert wanted(member(script.net, has=True), SendLateVote) == []


def test_once_enough_have_said_so_the_others_spare_their_gas(script: Script) -> None:
    everyone = ids(script)
    for id in everyone[: len(everyone) // 2 + 1]:
        script.net.late_vote(0, id, 1 << SEAT)
    last = script.net.member(Role.VERIFIER, everyone[-1]).account
    assert wanted(member(script.net, last, has=True), SendLateVote) == []
