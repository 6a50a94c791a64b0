"""What a view answers of a job: its members and their bonds, and what the clock makes due."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.identities import DOMAIN, JOB, address
from tests.support.manifests import make_terms
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script
from tests.unit.protocol.test_claims import SEAT, played, said_of

from atoll.errors import ProtocolError
from atoll.protocol import events as ev
from atoll.protocol.clocks import last_moment
from atoll.protocol.game_records import (
    Accusation,
    GameRecord,
    accusation,
    bond_set,
    parties,
    pay_position,
)
from atoll.protocol.games.game_machine import Clock, Outcome
from atoll.protocol.keeper_calls import keeper_calls
from atoll.protocol.types import (
    NO_ROUND,
    Address,
    Bitmap,
    Digest,
    HolderId,
    JobId,
    Phase,
    Role,
    RoundIndex,
)
from atoll.protocol.views import JobView


def test_gateways_are_those_that_members_announced_the_submitters_first() -> None:
    net = Script.ready().net
    for account, url in (
        (VERIFIERS[1], "http://verifier"),
        (PROVIDERS[2], "http://shared"),
        (PROVIDERS[0], "http://before"),
        (PROVIDERS[3], "http://shared"),
        (WATCHER, "http://stranger"),
        (address("submitter"), "http://submitter"),
        (PROVIDERS[0], "http://provider"),
    ):
        net.emit(ev.GatewayAnnounced(account, url))
    submitters, *members = net.view.gateway_urls()
    assert submitters == "http://submitter"
    assert members == ["http://provider", "http://shared", "http://verifier"]


def over(view: JobView, outcome: Outcome) -> JobView:
    return replace(view, games={1: replace(view.games[1], outcome=outcome)})


@pytest.mark.parametrize("who", [PROVIDERS[SEAT], WATCHER])
def test_who_plays_is_bound_until_the_game_is_over(who: Address) -> None:
    script = played()
    claim, view = said_of(script).claim(0), script.net.view
    holder = view.holder_of(PROVIDERS[SEAT])
    assert holder is not None
    gone = {**view.providers, holder.id: replace(holder, is_released=True)}
    view = replace(view, providers=gone)
    assert not view.is_bound(who)
    playing = replace(view, games={1: GameRecord(1, WATCHER, 1, claim, b"")})
    assert playing.is_bound(who)
    assert not playing.is_bound(VERIFIERS[7])
    assert not over(playing, Outcome.SENT_HOME).is_bound(who)


def test_a_part_binds_until_its_bond_is_home_and_the_newest_is_the_accounts() -> None:
    net = Script.ready().net
    assert net.view.is_bound(PROVIDERS[0]) and not net.view.is_bound(WATCHER)
    net.leave_seat(PROVIDERS[0])
    assert net.view.is_bound(PROVIDERS[0])
    net.release(Role.PROVIDER, 1)
    assert not net.view.is_bound(PROVIDERS[0]) and net.view.standing(PROVIDERS[0]) is None
    known = net.view.holder_of(PROVIDERS[0])
    assert known is not None and (known.id, known.is_released) == (1, True)
    net.join(PROVIDERS[0], 0)
    again = net.view.standing(PROVIDERS[0])
    assert again is not None and again.id == 5
    assert net.view.ids_of(PROVIDERS[0], Role.PROVIDER) == {1, 5}
    assert net.view.ids_of(PROVIDERS[0], Role.VERIFIER) == set()


def test_of_a_job_that_is_not_known_yet_there_are_no_terms_and_nothing_is_due() -> None:
    unknown = JobView.of(DOMAIN, JOB)
    with pytest.raises(ProtocolError, match="is not known yet"):
        unknown.require_terms()
    assert list(keeper_calls(unknown, 1 << 40)) == []


# --- members as they come ---


def test_who_comes_is_neither_ready_nor_slashed_and_bound_by_nothing() -> None:
    net = Script.ready().net
    net.enrol(WATCHER, 4, net.terms.verifier_bond)
    for account in (PROVIDERS[0], WATCHER):
        held = net.view.standing(account)
        assert held is not None
        assert not (held.is_ready or held.is_slashed or held.is_released)
        assert (held.bound_until, held.lost_from, held.missed) == (0, NO_ROUND, NO_ROUND)
    assert net.view.providers[HolderId(1)].ready_until == 0
    net.advance()
    running = net.view.open
    assert running is not None
    assert (running.committee_draw, running.half_merge, running.seed_due, running.votes_end) == (
        0,
        0,
        0,
        0,
    )


def test_a_seat_that_a_round_waits_for_is_nobodys_until_the_round_is_over() -> None:
    script = Script.ready(make_terms(seats=5))
    net = script.net
    assert net.view.free_seats() == [4]
    net.advance()
    net.leave_seat(PROVIDERS[0])
    assert net.view.free_seats() == [4]
    script.honest_round()
    assert net.view.free_seats() == [0, 4]


# --- names of bonds and pay ---


def test_a_bonds_name_is_job_role_and_holder_and_a_pays_the_round_too() -> None:
    where = (JobId(0x0A0B), Role.VERIFIER, HolderId(0x0C0D0E0F))
    assert bond_set(*where).hex() == "0a0b010c0d0e0f".zfill(64)
    assert pay_position(*where, RoundIndex(0x01020304)).hex() == "0a0b010c0d0e0f01020304".zfill(64)
    claim = said_of(played()).claim(0)
    assert parties(replace(claim, set=bond_set(*where))) == where
    other = bytearray(bond_set(*where))
    other[-5] = 2
    assert parties(replace(claim, set=Digest(bytes(other)))) is None  # a role that there is not


def test_an_accusation_names_segment_and_link_but_of_an_earlier_round_its_beginning() -> None:
    claim = replace(said_of(played()).claim(7, is_update_proof=True), round=0)
    assert accusation(WATCHER, claim) == Accusation(WATCHER, claim.position, 7, True)
    where = (JOB, Role.PROVIDER, HolderId(1), RoundIndex(1))
    later = replace(claim, position=pay_position(*where))
    assert accusation(WATCHER, later) == Accusation(WATCHER, later.position, 0, False)


# --- the clock ---


def test_the_last_round_is_the_one_that_the_terms_end_with() -> None:
    view = Script.ready(make_terms(rounds=4)).net.view
    assert [round for round in range(7) if view.is_last(round)] == [3]


def dues(view: JobView, *moments: int) -> list[bool]:
    return [view.is_advance_due(now) for now in moments]


def test_a_advance_is_due_from_a_deadline_on() -> None:
    script = Script.ready(make_terms(expiry=1_005_000))
    net, expiry = script.net, script.net.terms.expiry
    assert dues(net.view, net.now) == [True]  # enough are here
    few = replace(net.view, held=Bitmap(0b11))
    assert dues(few, net.now, expiry - 1, expiry) == [False, False, True]
    net.advance()
    assert dues(net.view, net.deadline - 1, net.deadline) == [False, True]
    script.train()
    moments = (net.deadline - 1, net.deadline, expiry - 1, expiry)
    assert dues(net.view, *moments) == [False, True, True, False]
    last = last_moment(net.terms)
    assert dues(net.view, last - 1, last) == [False, True]
    closed = replace(net.view, phase=Phase.CLOSED)
    assert dues(closed, last) == [False]


def test_a_round_is_audited_until_its_window_is_over_and_then_final() -> None:
    script = Script.ready()
    script.honest_round()
    view, end = script.net.view, script.net.settled[0].ends["window"]
    for now, is_over in ((end - 1, False), (end, True)):
        assert [settled_round.round for settled_round in view.auditing(now)] == (
            [] if is_over else [0]
        )
        for role in Role:
            assert view.is_final(role, HolderId(1), RoundIndex(0), now) is is_over
            assert not view.is_final(role, HolderId(1), RoundIndex(1), now)


def test_a_game_has_a_deadline_while_somebody_is_to_move() -> None:
    claim = said_of(played()).claim(0)
    waiting = GameRecord(1, WATCHER, 1, claim, b"")
    playing = replace(waiting, clock=Clock(since=100, move=5, holder=60, challenger=30))
    assert (waiting.deadline, playing.deadline) == (0, 165)
    assert replace(playing, moves=(ev.StepsOpened(1, (), b""),)).deadline == 135
    assert replace(playing, decided=Outcome.HOLDER_LOST).deadline == 0
    assert replace(playing, outcome=Outcome.SENT_HOME).deadline == 0
