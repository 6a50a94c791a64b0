"""Steps that anyone may take: the first in line takes them, the others when it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.law.factories import ScriptedJob, address, make_manifest

from atoll.law import events as ev
from atoll.law.views import JobView
from atoll.law.words import Address, JobStatus, Offence, Phase, Role, SeatIndex
from atoll.service.commands import key_of
from atoll.service.config import KeeperConfig
from atoll.service.duties import upkeep as keeper
from atoll.service.duties.claim import SendClaim, decide_claim
from atoll.service.duties.membership import (
    BondReleased,
    SendRelease,
    awaits_release,
    decide_release,
)
from atoll.service.duties.upkeep import SendFinalise, SendPoke, SendPunish
from atoll.service.machine import Head, State

MANIFEST = make_manifest({"rounds": 2})
TERMS = MANIFEST.terms
CONFIG = KeeperConfig(stagger_s=4, stagger_blocks=3)
ME = address("provider 0")
RELEASED = key_of(SendRelease, Role.PROVIDER)


def seen(view: JobView, now: int, number: int = 0, me: Address = ME) -> State[None]:
    return State(me, None, view, Head(number, now))


def settled(rounds: int = 1) -> ScriptedJob:
    job = ScriptedJob(MANIFEST)
    for _ in range(rounds):
        job.honest_round()
    return job


def finished() -> ScriptedJob:
    job = settled(2)
    job.finalise()
    job.finalise()
    job.close(JobStatus.DONE, "Done")
    return job


# --- turns ---


def test_everyone_has_another_place_in_line_and_outsiders_come_last() -> None:
    job = ScriptedJob(MANIFEST)
    job.open()
    places = [keeper.place_in_line(job.view, Role.PROVIDER, seat) for seat in range(4)]
    places += [keeper.place_in_line(job.view, Role.VERIFIER, v) for v in range(3)]
    assert sorted(places) == list(range(7))
    assert places[0] == 0
    assert keeper.place_in_line(job.view, Role.PROVIDER, None) == 7


def test_verifiers_go_first_once_the_audit_begins() -> None:
    job = ScriptedJob(MANIFEST)
    job.open()
    job.until_audit()
    assert keeper.place_in_line(job.view, Role.VERIFIER, 0) == 0
    assert keeper.place_in_line(job.view, Role.PROVIDER, 0) == 3


# --- pokes ---


@pytest.mark.parametrize(("late", "line", "pokes"), [(-1, 0, 0), (0, 0, 1), (3, 1, 0), (4, 1, 1)])
def test_a_deadline_is_poked_when_it_is_our_turn(late: int, line: int, pokes: int) -> None:
    job = ScriptedJob(MANIFEST)
    job.open()
    job.train()
    state = seen(job.view, job.view.state.deadline + late, job.number)
    assert len(keeper.decide_poke(state, line, CONFIG).commands) == pokes


@pytest.mark.parametrize(("past", "line", "pokes"), [(0, 0, 0), (1, 0, 1), (3, 1, 0), (4, 1, 1)])
def test_a_beacon_is_poked_once_its_block_has_a_successor(past: int, line: int, pokes: int) -> None:
    job = ScriptedJob(MANIFEST)
    job.open()
    state = seen(job.view, job.now, job.view.state.beacon_block + past)
    assert len(keeper.decide_poke(state, line, CONFIG).commands) == pokes


def test_two_phases_are_never_poked_under_one_key() -> None:
    job = ScriptedJob(MANIFEST)
    job.open()
    first = keeper.decide_poke(seen(job.view, job.now, job.number + 99), 0, CONFIG)
    job.train()
    second = keeper.decide_poke(seen(job.view, job.view.state.deadline), 0, CONFIG)
    assert first.commands != second.commands
    assert all(isinstance(c, SendPoke) for c in (*first.commands, *second.commands))


def test_a_job_is_opened_once_enough_are_ready() -> None:
    job = ScriptedJob(MANIFEST, verifiers=1)
    assert not keeper.decide_poke(seen(job.view, job.now), 0, CONFIG).commands
    ready = ScriptedJob(MANIFEST)
    assert keeper.decide_poke(seen(ready.view, ready.now), 0, CONFIG).commands


# --- finality, faults, pay ---


def test_a_round_is_finalised_when_its_dispute_window_ends() -> None:
    job = settled()
    until = job.view.settled[0].dispute_until
    assert not keeper.decide_finalise(seen(job.view, until - 1), 0, CONFIG).commands
    assert keeper.decide_finalise(seen(job.view, until), 0, CONFIG).commands == (SendFinalise(0),)
    assert not keeper.decide_finalise(seen(job.view, until), 1, CONFIG).commands


def test_a_fault_is_punished_once_it_is_due() -> None:
    job = ScriptedJob(MANIFEST)
    job.open()
    job.until_audit()
    index = job.report(0, seat=3)
    for v in range(3):
        job.ballot(v, (0, 1, 2))
    job.second(1, index)
    job.resolve()
    assert job.view.state.phase is Phase.ATTEST
    job.attest()
    job.settle()
    due = [f for f in job.view.due_faults if f.offence is Offence.REPORT]
    assert due
    assert not keeper.decide_punish(seen(job.view, job.now), 0, CONFIG).commands
    later = seen(job.view, due[0].due_at)
    assert SendPunish(0, Offence.REPORT, index) in keeper.decide_punish(later, 0, CONFIG).commands


@pytest.mark.parametrize(("when", "claims"), [("never", 0), ("end", 0), ("each", 1)])
def test_pay_is_claimed_as_often_as_configured(when: str, claims: int) -> None:
    job = settled()
    job.finalise()
    assert len(decide_claim(seen(job.view, job.now), when).commands) == claims


def test_at_the_end_all_pay_is_claimed_with_its_proof() -> None:
    job = finished()
    (claim,) = decide_claim(seen(job.view, job.now), "end").commands
    assert isinstance(claim, SendClaim)
    assert claim.cumulative == job.view.final_claims[ME]
    assert claim.proof
    paid = ev.Claimed(job.view.job_id, ME, claim.cumulative, claim.cumulative)
    job.emit(paid)
    assert not decide_claim(seen(job.view, job.now), "end").commands


def release(state: State[None], role: Role = Role.PROVIDER) -> tuple[object, ...]:
    return decide_release(state, role).commands


def test_the_bond_is_released_once_and_only_when_all_is_final() -> None:
    job = settled(2)
    assert not release(seen(job.view, job.now))
    job = finished()
    member = seen(job.view, job.now)
    assert release(member) == (SendRelease(Role.PROVIDER, 2, is_over=True),)
    fact = BondReleased(2, was_over=True)
    assert not release(replace(member, facts=member.facts.plus(RELEASED, fact)))
    assert not release(seen(job.view, job.now, me=address("stranger")))


def test_an_unseated_provider_gets_its_bond_back_before_it_joins_again() -> None:
    job = settled()
    job.emit(ev.ProviderUnseated(job.view.job_id, SeatIndex(0), ME, "Missed"))
    state = seen(job.view, job.now)
    assert awaits_release(state, Role.PROVIDER)
    assert not release(state)
    job.finalise()
    state = seen(job.view, job.now)
    assert release(state) == (SendRelease(Role.PROVIDER, 1, is_over=False),)
    fact = BondReleased(1, was_over=False)
    state = replace(state, facts=state.facts.plus(RELEASED, fact))
    assert not awaits_release(state, Role.PROVIDER)
    assert not release(state)


def test_a_place_in_the_waiting_list_is_released_when_the_job_ends() -> None:
    job = ScriptedJob(MANIFEST)
    queued = address("late")
    job.emit(ev.ProviderQueued(job.view.job_id, queued))
    assert not release(seen(job.view, job.now, me=queued))
    job.close(JobStatus.CANCELLED, "Cancelled")
    assert release(seen(job.view, job.now, me=queued))
