"""Who owes what in games and accusations, one thing changed; evidence as contracts read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Any

import pytest
from eth_abi.abi import decode
from tests.support.contracts import Refused
from tests.support.identities import digest
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script
from tests.unit.protocol.test_claims import MODEL, PROGRAM, SEAT, TERMS, played, said_of

from atoll.protocol import claims as law_claims
from atoll.protocol import events as ev
from atoll.protocol import pay
from atoll.protocol.claims import shown
from atoll.protocol.game_records import GameRecord, bond_set, pay_position
from atoll.protocol.game_records import parties as whose
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.games.moves import Claim
from atoll.protocol.obligations import (
    WHENEVER,
    Duty,
    Obligation,
    committee_gateways,
    obligations_of,
)
from atoll.protocol.rounds import apply
from atoll.protocol.types import (
    NO_HOLDER,
    ZERO_DIGEST,
    Address,
    Digest,
    HolderId,
    JobId,
    Phase,
    Role,
    RoundIndex,
    SeatIndex,
)
from atoll.protocol.views import JobView

OTHER = PROVIDERS[0]


def owed(script: Script, account: str, duty: Duty) -> list[Obligation]:
    found = obligations_of(script.net.view, Address(account), script.net.now)
    return [each for each in found if each.duty is duty]


# --- moves ---


def test_a_move_is_owed_by_whose_turn_it_is_once_a_game_has_begun() -> None:
    script = played()
    net, claim, outsider = script.net, said_of(script).claim(0), Address(WATCHER)
    net.emit(ev.Challenged(1, claim.holder, outsider, 10**18, claim, b"evidence"))
    parties = (PROVIDERS[SEAT], outsider)
    assert net.view.games[1].began_at == 0
    assert [owed(script, who, Duty.MOVE) for who in parties] == [[], []]

    net.emit(ev.Began(1, claim.holder))
    until, where = net.now + TERMS.move_seconds + TERMS.game_seconds, (SeatIndex(SEAT),)
    holders = Obligation(Duty.MOVE, RoundIndex(0), until, HolderId(SEAT + 1), where, game=1)
    assert [owed(script, who, Duty.MOVE) for who in parties] == [[holders], []]
    assert owed(script, OTHER, Duty.MOVE) == []

    net.emit(ev.StepsOpened(1, (), b""))
    challengers = replace(holders, holder=NO_HOLDER)
    assert [owed(script, who, Duty.MOVE) for who in parties] == [[], [challengers]]
    assert owed(script, OTHER, Duty.MOVE) == []

    net.emit(ev.Ended(1, Outcome.CHALLENGER_LOST))
    assert [owed(script, who, Duty.MOVE) for who in parties] == [[], []]


# --- challenges ---


def accusing(at: int, settled: int = 0) -> tuple[Script, Address, SeatIndex]:
    """An opened *mismatch* of a segment, by whom, and of which seat, after so many rounds."""
    script = Script.ready()
    for _ in range(settled):
        script.honest_round()
    net, round = script.net, script.honest_round()
    auditor = script.auditors(round)[0]
    seat = SeatIndex(min(net.duties(round, auditor)))
    script.audit_report(round, auditor, script.body(round, auditor, {seat: at}))
    net.wait_until(net.settled[round].ends["audit"])
    script.open(round, auditor)
    return script, net.member(Role.VERIFIER, auditor).account, seat


def claim_about(
    view: JobView, seat: SeatIndex, segment: int, *, is_update_proof: bool, window: int = 0
) -> Claim:
    about = view.settled[window].seats[seat]
    return Claim(
        holder=view.providers[about].account,
        set=bond_set(view.job_id, Role.PROVIDER, about),
        position=pay_position(view.job_id, Role.PROVIDER, about, RoundIndex(window)),
        program=digest("program"),
        is_update_proof=is_update_proof,
        seat=seat,
        round=window,
        segment=segment,
        data_seed=ZERO_DIGEST,
        initial_state=ZERO_DIGEST,
    )


@pytest.mark.parametrize(("at", "segment", "is_update_proof"), [(2, 2, False), (8, 7, True)])
def test_what_is_played_is_owed_no_challenge(at: int, segment: int, is_update_proof: bool) -> None:
    script, author, seat = accusing(at)
    (accusation,) = owed(script, author, Duty.CHALLENGE)
    assert (accusation.seats, accusation.at) == ((seat,), at)
    claim = claim_about(script.net.view, seat, segment, is_update_proof=is_update_proof)
    game = GameRecord(1, author, 1, claim, b"")
    script.net.view = replace(script.net.view, games={1: game})
    assert owed(script, author, Duty.CHALLENGE) == []


def _whose(claim: Claim) -> tuple[Role, HolderId, RoundIndex]:
    about = whose(claim)
    assert about is not None
    return about[1], about[2], RoundIndex(0)


ELSEWHERE: dict[str, Callable[[Claim], Any]] = {
    "round": lambda claim: {"position": Digest(claim.position[:-1] + b"\1")},
    "segment": lambda claim: {"segment": claim.segment + 1},
    "update_proof": lambda claim: {"is_update_proof": not claim.is_update_proof},
    "job": lambda claim: {"position": pay_position(JobId(99), *_whose(claim))},
    "role": lambda claim: {"position": pay_position(JobId(1), Role.VERIFIER, *_whose(claim)[1:])},
    "holder": lambda claim: {
        "position": pay_position(JobId(1), Role.PROVIDER, HolderId(99), RoundIndex(0))
    },
}


@pytest.mark.parametrize("what", [*ELSEWHERE, "author"])
def test_a_game_about_anything_else_is_no_answer_to_a_mismatch(what: str) -> None:
    script, author, seat = accusing(2)
    before = owed(script, author, Duty.CHALLENGE)
    claim = claim_about(script.net.view, seat, 2, is_update_proof=False)
    changed = replace(claim, **ELSEWHERE[what](claim)) if what in ELSEWHERE else claim
    challenger = Address(WATCHER) if what == "author" else author
    game = GameRecord(1, challenger, 1, changed, b"", outcome=Outcome.CHALLENGER_LOST)
    script.net.view = replace(script.net.view, games={1: game})
    assert owed(script, author, Duty.CHALLENGE) == before != []


@pytest.mark.parametrize("elsewhere", ["round", "segment", "update_proof"])
def test_each_accusation_is_played_by_itself(elsewhere: str) -> None:
    """Else one cheap game about a holder would shield whatever is said of it without a replay."""
    script, author, seat = accusing(2)
    before = owed(script, author, Duty.CHALLENGE)
    claim = claim_about(script.net.view, seat, 2, is_update_proof=False)
    game = GameRecord(1, author, 1, replace(claim, **ELSEWHERE[elsewhere](claim)), b"")
    script.net.view = replace(script.net.view, games={1: game})
    assert owed(script, author, Duty.CHALLENGE) == before != []


def test_who_finds_the_queue_full_owes_no_challenge() -> None:
    script, author, seat = accusing(2)
    net, before = script.net, owed(script, author, Duty.CHALLENGE)
    claim = claim_about(net.view, seat, 2, is_update_proof=False)
    for other in ({"segment": 3}, {"set": bytes(32)}, {"set": b"\xff" * 32}):  # no job's, no role's
        net.emit(ev.CrowdedOut(author, replace(claim, **other)))
    net.emit(ev.CrowdedOut(Address(WATCHER), claim))
    assert owed(script, author, Duty.CHALLENGE) == before != []
    net.emit(ev.CrowdedOut(author, claim))
    assert owed(script, author, Duty.CHALLENGE) == []


def test_a_challenge_is_owed_until_half_of_the_window() -> None:
    script, author, _ = accusing(2)
    script.net.wait_until(script.net.settled[0].ends["half"] - 1)
    assert len(owed(script, author, Duty.CHALLENGE)) == 1
    script.net.wait(1)
    assert owed(script, author, Duty.CHALLENGE) == []


# --- a round that runs ---


def test_a_seat_owes_its_own_commit_once_and_before_the_deadline() -> None:
    script = Script.ready()
    net = script.net
    assert owed(script, PROVIDERS[1], Duty.COMMIT) == []
    net.advance()
    found = [owed(script, who, Duty.COMMIT) for who in PROVIDERS[:2]]
    assert found == [
        [
            Obligation(
                Duty.COMMIT, RoundIndex(0), net.deadline, HolderId(seat + 1), (SeatIndex(seat),)
            )
        ]
        for seat in range(2)
    ]
    script.commit(1)
    assert owed(script, PROVIDERS[1], Duty.COMMIT) == []
    assert owed(script, PROVIDERS[0], Duty.COMMIT) == found[0]
    net.wait_until(net.deadline)
    assert owed(script, PROVIDERS[0], Duty.COMMIT) == []


def test_a_key_is_owed_once_audit_reports_are_open_and_by_nobody_who_was_slashed() -> None:
    script = played()
    settled_round = script.net.settled[0]
    seat = min(settled_round.drawn)
    assert owed(script, PROVIDERS[seat], Duty.KEY) == []
    script.net.wait_until(settled_round.ends["open"])
    (key,) = (one for one in owed(script, PROVIDERS[seat], Duty.KEY) if one.round == 0)
    assert key.seats == (seat,)
    script.net.slash(Role.PROVIDER, seat + 1, WATCHER)
    assert owed(script, PROVIDERS[seat], Duty.KEY) == []


def test_a_committees_gateways_are_those_it_announced_of_rounds_that_there_are() -> None:
    script = Script.ready()
    script.train()
    gateways = {VERIFIERS[0]: "http://first", VERIFIERS[2]: "http://third", WATCHER: "http://no"}
    told = list(gateways.values())[:2]
    assert committee_gateways(replace(script.net.view, gateways=gateways), 0) == told
    script.say()
    script.settle()
    view = replace(script.net.view, gateways=gateways)
    assert committee_gateways(view, 0) == told
    assert committee_gateways(view, 7) == []


def test_who_lacks_what_others_have_owes_the_open_round_no_signature() -> None:
    script = Script.ready()
    script.train()
    script.say([0, 1, 2])
    script.say([3], 0b0111)
    assert owed(script, VERIFIERS[3], Duty.SIGN) == []
    assert all(len(owed(script, who, Duty.SIGN)) == 1 for who in VERIFIERS[:3])


def test_a_round_knows_who_stands_and_settles_into_the_next() -> None:
    script = Script.ready()
    net = script.net
    net.advance()
    assert net.view.open is not None
    assert (net.view.open.standing, net.view.open.half_merge) == (0b1111, 0)
    for seat in range(4):
        script.commit(seat)
    script.reveal(2)
    assert net.view.open.standing == net.view.open.committed == 0b1111
    for seat in (0, 1, 3):
        script.reveal(seat)
    script.say()
    assert net.view.open.standing == net.view.open.revealed == 0b1111
    script.settle()
    view, seen = JobView.of(net.domain, net.job), 0
    for event, block in net.log:
        view = apply(view, event, block)
        if isinstance(event, ev.Settled):
            seen += 1
            assert (view.phase, view.round, view.open) == (Phase.WAITING, event.round + 1, None)
    assert seen == 1


def test_nothing_comes_back_of_less_than_what_rounds_can_earn() -> None:
    script = played()
    assert pay.refundable(script.net.view) > 0
    assert pay.refundable(replace(script.net.view, funded=1)) == 0


# --- evidence ---


def evidence_of(
    script: Script, round: int, *, is_update_proof: bool, **more: Any
) -> tuple[Any, ...]:
    said = replace(said_of(script, round), **more)
    (found,) = decode([law_claims._EVIDENCE], said.evidence(7, is_update_proof=is_update_proof))
    return tuple(found)


def test_evidence_has_the_programs_header_which_says_how_long_a_reset_period_is() -> None:
    script = played()
    first, later = (evidence_of(script, round, is_update_proof=False) for round in (0, 1))
    header = (PROGRAM.header.to_bytes(), PROGRAM.leaves, tuple(PROGRAM.proof))
    assert first[7:10] == later[7:10] == header
    assert first[6] == later[6] == tuple(MODEL)
    for round, found in enumerate((first, later)):
        assert found[0][:4] == astuple(shown(script.net.view.settled[round], SEAT))[:4]
        assert found[1:3] == (False, 7)


def test_evidence_of_a_link_needs_no_key_but_an_auditors_does() -> None:
    script = played()
    script.audit(0)
    auditor = HolderId(next(id for id in script.auditors(0) if SEAT in script.net.duties(0, id)))
    key, _ = script.secrets[0, SEAT]
    body = script.net.view.settled[0].opened_reports[auditor].to_bytes()
    seats_own = {
        is_update_proof: evidence_of(script, 0, is_update_proof=is_update_proof)
        for is_update_proof in (False, True)
    }
    assert [seats_own[update_proof][3:6] for update_proof in (False, True)] == [
        (key, NO_HOLDER, b""),
        (ZERO_DIGEST, NO_HOLDER, b""),
    ]
    auditors = evidence_of(script, 0, is_update_proof=True, member=auditor)
    assert auditors[3:6] == (key, auditor, body)


def test_a_challenge_about_an_earlier_round_of_a_reset_period_answers_a_mismatch_at_its_start() -> (
    None
):
    script, author, seat = accusing(0, settled=1)
    claim = replace(claim_about(script.net.view, seat, 5, is_update_proof=True, window=1), round=0)
    game = GameRecord(1, author, 1, claim, b"")
    before = owed(script, author, Duty.CHALLENGE)
    assert len(before) == 1
    script.net.view = replace(script.net.view, games={1: game})
    assert owed(script, author, Duty.CHALLENGE) == []
    over = replace(game, outcome=Outcome.CHALLENGER_LOST)
    for round, expected in ((0, []), (1, before)):
        game = replace(over, claim=replace(claim, round=round))
        script.net.view = replace(script.net.view, games={1: game})
        assert owed(script, author, Duty.CHALLENGE) == expected


# --- signatures and audit reports ---


def test_a_certificate_is_signed_until_the_committee_draws_deadline_and_then_whenever() -> None:
    script = Script.ready()
    net = script.net
    script.train()
    script.say()
    net.wait(1)
    (sign,) = owed(script, VERIFIERS[0], Duty.SIGN)
    assert sign.until == net.deadline
    net.wait_until(net.deadline - 1)
    assert owed(script, VERIFIERS[0], Duty.SIGN) == [sign]
    net.wait(1)
    assert [one.until for one in owed(script, VERIFIERS[0], Duty.SIGN)] == [WHENEVER]


def test_a_late_signature_is_owed_as_long_as_audit_takes() -> None:
    """Behind that the next settlement may be a long way off: where the job waits for members."""
    script = Script.ready()
    net = script.net
    script.train()
    script.say()
    net.wait(1)
    net.settle({0, 1, 2})
    end = net.settled[0].ends["audit"]
    net.wait_until(end - 1)
    late = [one for one in owed(script, VERIFIERS[3], Duty.SIGN) if one.round == 0]
    assert [one.until for one in late] == [end]
    net.wait(1)
    assert owed(script, VERIFIERS[3], Duty.SIGN) == []
    with pytest.raises(Refused):
        net.sign(4)


def test_an_audit_report_is_opened_between_its_sealing_and_the_end_of_open() -> None:
    script = Script.ready()
    net, round = script.net, script.honest_round()
    auditor, other = script.auditors(round)[:2]
    who = net.member(Role.VERIFIER, auditor).account
    script.audit_report(round, auditor)
    assert owed(script, who, Duty.OPEN) == []
    net.wait_until(net.settled[round].ends["audit"])
    assert owed(script, net.member(Role.VERIFIER, other).account, Duty.OPEN) == []
    assert len(owed(script, who, Duty.OPEN)) == 1
    net.wait_until(net.settled[round].ends["open"] - 1)
    assert len(owed(script, who, Duty.OPEN)) == 1
    net.wait(1)
    assert owed(script, who, Duty.OPEN) == []


def test_who_does_not_count_in_a_round_owes_it_nothing() -> None:
    script = Script.ready(seats=3)
    script.net.advance()
    late = PROVIDERS[3]
    script.net.join(late, 3)
    assert owed(script, late, Duty.COMMIT) == []
    assert len(owed(script, PROVIDERS[0], Duty.COMMIT)) == 1
