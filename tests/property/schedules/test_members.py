"""Whole jobs of honest, absent and cheating members, as their machines decide them.

What each owes and what it costs to leave it out, over the contracts' model and no process at all:
`tests/network` has what needs processes.
"""

from __future__ import annotations

import pytest
from tests.support.manifests import make_terms
from tests.support.schedules import Away, Cast, Member, World, is_settled_up

from atoll.protocol.holders import Holder
from atoll.protocol.pay import budget, round_pay
from atoll.protocol.types import ZERO_DIGEST, JobStatus, MissedDuty, Phase, Role
from atoll.protocol.views import JobView
from atoll.service.duties.send_keeper_calls import is_over

DROPPING = "no-sign+false-mismatch+no-challenge"


def played(world: World) -> JobView:
    """The job once nothing of it can change any more."""
    return world.until(is_settled_up).net.view


def everybody(view: JobView) -> list[Holder]:
    return [*view.providers.values(), *view.verifiers.values()]


def holders(view: JobView, member: Member) -> list[Holder]:
    return [h for h in everybody(view) if h.account == member.account]


def kinds(held: list[Holder]) -> set[MissedDuty]:
    """What they were penalised for."""
    return {kind for holder in held for _, kind in holder.penalties}


def earned(world: World, member: Member) -> int:
    """Wei of every round, as the law has it."""
    view = world.net.view
    return sum(
        round_pay(world.net.terms, settled_round, holder)
        for holder in holders(view, member)
        for settled_round in view.settled
    )


def paid(world: World, member: Member) -> int:
    return world.net.view.paid.get(member.account, 0)


@pytest.mark.parametrize("seed", range(3))
def test_an_honest_job_ends_and_pays_everybody(seed: int) -> None:
    """With other seeds, and members that sleep, in tests/property/schedules."""
    world = World(seed=seed)
    view = played(world)
    assert (view.status, len(view.settled)) == (JobStatus.DONE, world.net.terms.rounds)
    assert not any(h.is_slashed or h.penalties for h in everybody(view))
    assert all(
        settled_round.verdict.merged == world.net.terms.seats for settled_round in view.settled
    )
    for member in world.members:
        assert paid(world, member) == earned(world, member) > 0


@pytest.mark.parametrize("seed", range(4))
def test_every_silence_has_its_price_and_nobody_else_pays_it(seed: int) -> None:
    """A seat that shows no key, one that does a segment a round; auditors that copy, do not open
    or do not play what they accuse of; members that do not sign, which costs their fee, or say the
    opposite of what they have.
    """
    cheats = {2: "copier", 3: "no-open", 4: DROPPING, 5: "false-have"}
    cast = Cast({0: "no-key", 1: "partial"}, cheats)
    terms = make_terms(rounds=2, slots=6, min_verifiers=6, min_providers=4)
    world = World(cast, terms, seed=seed)
    view = played(world)
    keyless, short, *seats = world.members[:4]
    *honest, copier, closed, mute, wrong = world.members[4:]

    assert not any(h.is_slashed for h in everybody(view))
    drawn = [settled_round for settled_round in view.settled if settled_round.drawn >> 0 & 1]
    # A key that nobody shows either is a chain's fault; a seat's pay goes all the same.
    missed = any(2 * s.in_time.bit_count() >= s.drawn.bit_count() for s in drawn)
    assert kinds(holders(view, keyless)) == ({MissedDuty.KEY} if missed else set())
    assert paid(world, keyless) == earned(world, keyless)
    assert not any(settled_round.pay >> 0 & 1 for settled_round in drawn)
    for member in (*seats, *honest):
        assert not kinds(holders(view, member))
        assert paid(world, member) == earned(world, member) > 0
    assert paid(world, short) * 8 == paid(world, seats[0])
    assert kinds(holders(view, short)) == {MissedDuty.SEAT}
    for member in (copier, closed):
        held = holders(view, member)
        duties = [
            seat
            for settled_round in view.settled
            for h in held
            for seat in settled_round.duties_of(h.id)
        ]
        assert kinds(held) == ({MissedDuty.AUDIT} if duties else set())
    # A signature is paid and not owed.
    for member in (mute, wrong):
        assert MissedDuty.SILENCE not in kinds(holders(view, member))
    # What one member of six says of the seats changes nothing.
    assert all(settled_round.record.available == 0b1111 for settled_round in view.settled)


@pytest.mark.parametrize("seed", range(4))
def test_a_submitter_that_is_all_verifiers_neither_slashes_nor_withholds(seed: int) -> None:
    """They say what they have, sign nothing, and accuse honest seats without playing it."""
    cast = Cast(verifier_cheats=dict.fromkeys(range(3), DROPPING))
    terms = make_terms(rounds=2, slots=3, min_verifiers=2, expiry=1_000_600, merge_seconds=300)
    world = World(cast, terms, seed=seed)
    view = played(world)
    (settled_round,) = view.settled
    assert (view.status, settled_round.digest) == (JobStatus.EXPIRED, ZERO_DIGEST)
    assert settled_round.record.available == settled_round.pay == 0b1111
    assert not any(h.is_slashed for h in everybody(view))
    for member in world.members[:4]:
        assert not kinds(holders(view, member))
        assert paid(world, member) == earned(world, member) > 0
    accusing = {
        id
        for id, body in settled_round.opened_reports.items()
        if any(not d.is_valid for d in body.entries)
    }
    assert accusing
    for holder in view.verifiers.values():
        assert (MissedDuty.DROPPED in kinds([holder])) == (holder.id in accusing)


@pytest.mark.parametrize("seed", range(4))
def test_half_of_a_committee_that_does_not_sign_takes_nobodys_pay(seed: int) -> None:
    """Two of four are more than a third: no committee draw is certified, and the job goes on to its
    end.
    """
    cast = Cast(verifier_cheats=dict.fromkeys((2, 3), "no-sign"))
    terms = make_terms(rounds=2, slots=4, min_verifiers=4, expiry=1_000_600, merge_seconds=300)
    world = World(cast, terms, seed=seed)
    view = played(world)
    (settled_round,) = view.settled
    assert (view.status, settled_round.digest) == (JobStatus.EXPIRED, ZERO_DIGEST)
    assert settled_round.pay == 0b1111 and not settled_round.signers
    assert not any(h.is_slashed or h.penalties for h in everybody(view))
    for member in world.members:
        assert paid(world, member) == earned(world, member)
    # Nobody is paid for a signature on nothing; a replay is paid as ever.
    for member in world.members[4:]:
        duties = [s for h in holders(view, member) for s in settled_round.duties_of(h.id)]
        assert paid(world, member) == len(duties) * terms.duty_fee


@pytest.mark.parametrize("seed", range(4))
def test_without_a_quorum_nothing_is_merged_and_the_job_expires(seed: int) -> None:
    """Two of three verifiers say nothing: nobody can certify, and nobody's update counts as
    available.
    """
    cast = Cast(verifier_cheats=dict.fromkeys((1, 2), "offline"))
    few = {"seats": 2, "min_providers": 2, "f": 0, "slots": 3, "min_verifiers": 3}
    terms = make_terms(**few, rounds=2, expiry=1_000_600)
    world = World(cast, terms, seed=seed)
    draws = set[int]()

    def is_closed(world: World) -> bool:
        draws.add(world.net.committee_draw)
        view = world.net.view
        return view.phase is Phase.CLOSED and is_over(view, world.net.now)

    view = world.until(is_closed).net.view
    (first,) = view.settled
    assert view.status is JobStatus.EXPIRED
    assert (first.verdict.merged, first.record.available, first.pay) == (0, 0, 0)
    assert len(draws) > 1
    # Of round 0 what was trained is burnt; the rest is the submitter's again.
    trained = terms.seats * terms.segments * terms.segment_pay
    assert view.burnt == trained
    assert budget(terms) > trained + sum(view.paid.values())
    assert all(paid(world, member) == 0 for member in world.members[:2])
    for member in world.members[3:]:
        assert any(holder.penalties for holder in holders(view, member))
    for member in world.members[:3]:
        assert not kinds(holders(view, member))


@pytest.mark.parametrize("seed", range(4))
def test_half_of_every_second_round_pays_nobody(seed: int) -> None:
    """Three of four do one segment in rounds 0 and 2: these merge nothing, and pay whoever was
    whole alone. The second is a missed duty, and the submitter has the others' price back.
    """
    terms = make_terms(rounds=3, min_providers=4, slots=3, min_verifiers=2)
    world = World(Cast(dict.fromkeys(range(3), "alternate")), terms, seed=seed)
    view = played(world)
    *halves, honest = world.members[:4]
    assert [settled_round.verdict.merged for settled_round in view.settled] == [0, 4, 0]
    assert [settled_round.pay for settled_round in view.settled] == [0b1000, 0b1111, 0b1000]
    a_round = terms.segments * terms.segment_pay
    assert [paid(world, member) for member in halves] == [a_round] * 3
    assert paid(world, honest) == 3 * a_round
    assert not any(holder.is_slashed for holder in everybody(view))
    assert [kinds(holders(view, member)) for member in halves] == [{MissedDuty.SEAT}] * 3
    for member in (honest, *world.members[4:]):
        assert not kinds(holders(view, member))
    # Nothing of the escrow is burnt, and six rounds of a seat are the submitter's.
    assert view.burnt == 0
    assert budget(terms) - sum(view.paid.values()) >= 6 * a_round


@pytest.mark.parametrize("moment", range(10, 200, 15))
def test_everybody_away_for_three_windows_and_back(moment: int) -> None:
    """Whatever the round was at: they come back, take seats again, and end the job."""
    away = (Away(moment, moment + 130),)
    terms = make_terms(rounds=2)
    seats, places = range(terms.seats), range(terms.slots)
    cast = Cast(
        providers_away=dict.fromkeys(seats, away), verifiers_away=dict.fromkeys(places, away)
    )
    world = World(cast, terms, seed=moment)
    view = played(world)
    assert (view.status, len(view.settled)) == (JobStatus.DONE, 2)
    for holder in everybody(view):
        assert not holder.is_slashed
        # A missed duty costs its penalty, once; it is for what was owed while nobody was there.
        assert kinds([holder]) <= {
            MissedDuty.SEAT,
            MissedDuty.SILENCE,
            MissedDuty.AUDIT,
            MissedDuty.KEY,
        }
        assert len(holder.penalties) == len(kinds([holder]))
    for member in world.members:
        assert paid(world, member) == earned(world, member)


@pytest.mark.parametrize("seed", range(6))
def test_liars_fall_and_nobody_else_loses_anything(seed: int) -> None:
    """A false update, invented work tags and invented segments, with every seat audited."""
    cast = Cast({0: "sign-flip", 1: "wrong-work-tags", 2: "hollow"})
    world = World(cast, make_terms(rounds=2, audit_rate=0, slots=8), seed=seed)
    view = played(world)
    liars = {member.account for member in world.members[:3]}
    assert {h.account for h in everybody(view) if h.is_slashed} == liars
    for member in world.members[3:]:
        assert not kinds(holders(view, member))
        assert paid(world, member) >= earned(world, member)
    assert all(paid(world, member) == 0 for member in world.members[:3])
    assert paid(world, world.members[3]) > 0


@pytest.mark.parametrize("seed", range(4))
def test_who_sits_out_leaves_at_a_settlement_and_is_paid(seed: int) -> None:
    """One provider is paused while the job runs, and comes again; a verifier leaves for good."""
    terms = make_terms(min_providers=3, min_verifiers=2)
    world = World(terms=terms, seed=seed)
    world.until(lambda w: w.net.phase is Phase.TRAIN and w.net.round == 1)
    paused, leaver = world.members[0], world.members[terms.seats]
    world.order(paused, "is paused, as ordered")
    world.order(leaver, "drains, as ordered")
    world.until(lambda w: all(_has_left(w, member) for member in (paused, leaver)))
    world.order(paused, "")
    view = played(world)
    assert view.status is JobStatus.DONE
    assert not any(h.is_slashed or h.penalties for h in everybody(view))
    for member in world.members:
        assert paid(world, member) == earned(world, member)
        assert paid(world, member) > 0 or member is leaver  # it may never have been drawn
    assert len(view.ids_of(leaver.account, Role.VERIFIER)) == 1


def _has_left(world: World, member: Member) -> bool:
    return world.net.view.standing(member.account) is None
