"""Claims of settled rounds: what they say, and what is refused. Contracts read their evidence in
`tests/integration/protocol/test_fold.py`.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from hashlib import sha256
from typing import Any

import pytest
from eth_abi.abi import decode
from tests.support.identities import JOB, address, digest
from tests.support.manifests import make_manifest, make_terms
from tests.unit.protocol.models import MODEL, PROGRAM, with_reset_periods
from tests.unit.protocol.script import PROVIDERS, Script

from atoll.errors import ProtocolError
from atoll.protocol import claims as law_claims
from atoll.protocol import events as ev
from atoll.protocol.checkpoint_commitments import CHECKPOINT_COMMITMENT_BYTES, masked
from atoll.protocol.claims import NOBODYS_TAG, SeatStatements, shown
from atoll.protocol.game_records import bond_set, parties, pay_position, window_of
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.games.moves import Claim
from atoll.protocol.hashing import accumulate_reveal
from atoll.protocol.program import MalformedProgram, TraceHeader
from atoll.protocol.reset_periods import earlier_rounds
from atoll.protocol.round_list import RoundList
from atoll.protocol.types import (
    NO_HOLDER,
    ZERO_DIGEST,
    HolderId,
    JobId,
    Role,
    RoundIndex,
    SeatIndex,
)

SEAT = SeatIndex(2)
TERMS = make_terms(program=PROGRAM.root, f=0, min_providers=1)


def played(partial: dict[int, int] | None = None) -> Script:
    """Two settled rounds, every key of the first shown."""
    script = Script.ready(TERMS)
    script.net.state_of = lambda round, merged: MODEL.digest(round)
    script.train(partial)
    script.say()
    script.settle()
    script.honest_round()
    return script


def said_of(script: Script, round: int = 0) -> SeatStatements:
    return SeatStatements.of(script.net.view, RoundIndex(round), SEAT, MODEL, PROGRAM)


def test_the_programs_header_leads_to_its_root() -> None:
    assert TERMS.program == PROGRAM.root


def test_segments_follow_from_each_other_and_the_first_from_the_model() -> None:
    script = played()
    said = said_of(script)
    states = [
        checkpoint_commitment.state
        for checkpoint_commitment in said.told.checkpoint_commitments.items
    ]
    claims = [said.claim(segment) for segment in range(8)]
    assert [claim.initial_state for claim in claims] == [MODEL.initial_state.digest(), *states[:-1]]
    assert [claim.closing for claim in claims] == states
    update_proof = said.claim(7, is_update_proof=True)
    assert (update_proof.initial_state, update_proof.closing) == (states[-1], ZERO_DIGEST)
    assert update_proof.update_root == said.told.reveal.update_root
    holder = HolderId(SEAT + 1)
    assert parties(update_proof) == (script.net.job, Role.PROVIDER, holder)
    verifiers = replace(update_proof, set=bond_set(script.net.job, Role.VERIFIER, holder))
    assert parties(verifiers) == (script.net.job, Role.VERIFIER, holder)
    assert parties(replace(update_proof, set=digest("no name"))) is None
    assert update_proof.position == pay_position(
        script.net.job, Role.PROVIDER, holder, RoundIndex(0)
    )
    assert (update_proof.holder, update_proof.lowest_bond) == (
        PROVIDERS[SEAT],
        TERMS.provider_bond // 10,
    )
    assert update_proof.window_end == script.net.settled[0].ends["window"]


def test_what_a_seat_revealed_is_shown_among_what_was_revealed_before_and_after() -> None:
    settled_round = played().net.view.settled[0]
    commitments = [(seat, told.commitment) for seat, told in settled_round.reveals.items()]
    for index, (seat, _) in enumerate(commitments):
        told = shown(settled_round, seat)
        assert (told.job_id, told.round, told.seat) == (settled_round.round_id.job, 0, seat)
        assert (told.id, told.record) == (settled_round.reveals[seat].holder, settled_round.record)
        assert [astuple(later) for later in told.later] == commitments[index + 1 :]
        accumulated = settled_round.record.seed
        for other in commitments[:index]:
            accumulated = accumulate_reveal(accumulated, *other)
        assert told.before == accumulated
    with pytest.raises(ProtocolError, match="did not reveal"):
        shown(settled_round, SeatIndex(9))


def test_work_tags_are_claimed_once_the_right_key_is_shown() -> None:
    script = played()
    assert said_of(script).claim(3).work_tag == ZERO_DIGEST
    script.net.wait_until(script.net.settled[0].ends["open"])
    script.show_keys(0)
    key, work_tags = script.secrets[0, SEAT]
    said = said_of(script)
    assert (said.key, said.claim(3).work_tag) == (key, work_tags[3])
    assert said.claim(7, is_update_proof=True).work_tag == ZERO_DIGEST


def test_a_work_tag_of_zero_is_claimed_as_one_that_nobody_opens() -> None:
    """In a claim zero is no work tag, so whoever revealed one would have nothing to open."""
    script = played()
    script.net.wait_until(script.net.settled[0].ends["open"])
    script.show_keys(0)
    said = said_of(script)
    checkpoint_commitments = bytearray(said.told.reveal.checkpoint_commitments)
    checkpoint_commitments[
        3 * CHECKPOINT_COMMITMENT_BYTES + 32 : 4 * CHECKPOINT_COMMITMENT_BYTES
    ] = masked(ZERO_DIGEST, said.key, 3)
    told = replace(
        said.told,
        reveal=replace(said.told.reveal, checkpoint_commitments=bytes(checkpoint_commitments)),
    )
    settled_round = replace(said.settled_round, reveals={**said.settled_round.reveals, SEAT: told})
    work_tags = script.secrets[0, SEAT][1]
    assert (
        replace(said, settled_round=settled_round).claim(3).work_tag
        == NOBODYS_TAG
        == bytes(31) + b"\1"
    )
    assert replace(said, settled_round=settled_round).claim(4).work_tag == work_tags[4]


def test_a_valid_entry_is_its_auditors_claim() -> None:
    script = played()
    script.audit(0)
    auditor = HolderId(next(id for id in script.auditors(0) if SEAT in script.net.duties(0, id)))
    said = replace(said_of(script), member=auditor)
    claim, own = said.claim(3), said_of(script).claim(3)
    assert claim.holder == script.net.member(Role.VERIFIER, auditor).account
    assert claim.set == bond_set(script.net.job, Role.VERIFIER, auditor)
    assert (claim.work_tag, claim.initial_state) == (own.work_tag, own.initial_state)
    assert claim.lowest_bond == TERMS.verifier_bond // 10


def test_partial_rounds_claim_what_they_did() -> None:
    said = said_of(played({SEAT: 6}))
    assert (
        said.claim(5, is_update_proof=True).initial_state
        == said.told.checkpoint_commitments.items[5].state
    )
    for segment, is_update_proof in ((6, False), (7, True), (4, True), (-1, False)):
        with pytest.raises(ProtocolError, match="no claim"):
            said.claim(segment, is_update_proof=is_update_proof)


def test_nothing_is_claimed_with_what_is_anothers() -> None:
    script = played()
    other = MODEL._replace(params_root=digest("other"))
    for round in (0, 1):
        with pytest.raises(ProtocolError, match="model"):
            SeatStatements.of(script.net.view, RoundIndex(round), SEAT, other, PROGRAM)
    with pytest.raises(ProtocolError, match="not settled"):
        said_of(script, 2)
    with pytest.raises(ProtocolError, match="did not reveal"):
        SeatStatements.of(script.net.view, RoundIndex(0), SeatIndex(9), MODEL, PROGRAM)


def test_nothing_is_claimed_that_its_holder_could_not_open() -> None:
    huge = replace(PROGRAM, header=replace(PROGRAM.header, micro_batches=1 << 20))
    with pytest.raises(ProtocolError, match="too large for anybody to open"):
        SeatStatements.of(played().net.view, RoundIndex(0), SEAT, MODEL, huge)


def test_a_round_draws_from_the_beginning_of_its_generator() -> None:
    assert MODEL.initial_state.rng_digest == sha256(b"atoll.rng.v1" + bytes(8)).digest()


def challenge(script: Script, claim: Claim, game: int = 1) -> None:
    net = script.net
    net.emit(ev.Challenged(game, claim.holder, address("outsider"), 10**18, claim, b"evidence"))
    net.emit(ev.Began(game, claim.holder))


def test_an_open_game_holds_its_holders_round_and_later_ones() -> None:
    script = played()
    net, holder = script.net, HolderId(SEAT + 1)
    challenge(script, said_of(script, 0).claim(0))
    over = max(settled_round.ends["window"] for settled_round in net.settled)
    rounds = (RoundIndex(0), RoundIndex(1))
    assert [net.view.is_final(Role.PROVIDER, holder, r, over) for r in rounds] == [False, False]
    assert all(net.view.is_final(Role.PROVIDER, HolderId(1), r, over) for r in rounds)
    net.emit(ev.Ended(1, Outcome.CHALLENGER_LOST))
    assert all(net.view.is_final(Role.PROVIDER, holder, r, over) for r in rounds)
    assert net.view.games[1].evidence == b""


def test_games_of_other_jobs_are_not_this_ones() -> None:
    script = played()
    claim = said_of(script).claim(0)
    foreign = bond_set(JobId(script.net.job + 1), Role.PROVIDER, HolderId(3))
    challenge(script, replace(claim, set=foreign))
    challenge(script, replace(claim, set=digest("no name of a bond")))
    for event in (
        ev.StepsOpened(1, (), b""),
        ev.Decided(1, Outcome.HOLDER_LOST),
        ev.Ended(1, Outcome.HOLDER_LOST),
    ):
        script.net.emit(event)
    assert script.net.view.games == {}


# --- reset periods ---

RESET_PERIODS = with_reset_periods(2)


def gone_on(script: Script, round: int = 1, **changes: Any) -> SeatStatements:
    said = SeatStatements.of(script.net.view, RoundIndex(round), SEAT, MODEL, RESET_PERIODS)
    return replace(said, **changes)


def test_who_did_the_round_before_goes_on_with_its_last_state() -> None:
    script = played()
    first, second = gone_on(script, 0), gone_on(script)
    assert first.claim(0).initial_state == MODEL.initial_state.digest()
    assert second.claim(0).initial_state == first.told.checkpoint_commitments.items[-1].state
    assert second.claim(1).initial_state == second.told.checkpoint_commitments.items[0].state
    assert (
        said_of(script, 1).claim(0).initial_state == MODEL.initial_state.digest()
    )  # where a reset period is 1


def test_who_ended_early_opens_from_public_data_in_the_middle_of_a_reset_period() -> None:
    script = played({SEAT: 6})
    assert gone_on(script).claim(0).initial_state == MODEL.initial_state.digest()


def test_a_reset_period_s_first_round_opens_publicly() -> None:
    script = played()
    script.honest_round()
    assert gone_on(script, 2).claim(0).initial_state == MODEL.initial_state.digest()


def test_a_claim_via_a_later_round_has_that_ones_position_and_window() -> None:
    script = played()
    own, through_round = (
        gone_on(script, 0).claim(3),
        gone_on(script, 0, through_round=RoundIndex(1)).claim(3),
    )
    assert through_round.position == pay_position(
        script.net.job, Role.PROVIDER, HolderId(SEAT + 1), RoundIndex(1)
    )
    assert through_round.window_end == script.net.settled[1].ends["window"] != own.window_end
    assert replace(through_round, position=own.position, window_end=own.window_end) == own
    assert (window_of(own), window_of(through_round)) == (0, 1)
    with pytest.raises(ProtocolError, match="not settled"):
        gone_on(script, 0, through_round=RoundIndex(2)).claim(3)
    script.honest_round()
    for round, later in ((0, 2), (1, 0), (1, 2)):
        with pytest.raises(ProtocolError, match="no later one of its reset period"):
            gone_on(script, round, through_round=RoundIndex(later)).claim(3)
    script.honest_round()
    assert window_of(gone_on(script, 2, through_round=RoundIndex(3)).claim(3)) == 3


def test_a_valid_entry_of_a_later_round_is_one_of_all_that_its_state_comes_from() -> None:
    script = played()
    script.audit(1)
    member = HolderId(next(id for id in script.auditors(1) if SEAT in script.net.duties(1, id)))
    said = gone_on(script, 0, through_round=RoundIndex(1), member=member)
    claim, seats = said.claim(3), gone_on(script, 0).claim(3)
    assert claim.position == pay_position(script.net.job, Role.VERIFIER, member, RoundIndex(1))
    assert claim.holder == script.net.member(Role.VERIFIER, member).account
    assert (claim.round, claim.initial_state, claim.closing) == (
        0,
        seats.initial_state,
        seats.closing,
    )
    assert claim.work_tag == ZERO_DIGEST
    assert said.evidence(3)


def evidence_of(said: SeatStatements, segment: int) -> tuple[Any, ...]:
    (found,) = decode([law_claims._EVIDENCE], said.evidence(segment))
    return tuple(found)


def test_evidence_via_a_later_round_has_what_a_valid_entry_of_that_round_needs() -> None:
    """The later round's key and body, and every round in between; a seat's own needs neither."""
    script = played()
    script.audit(1)
    member = HolderId(next(id for id in script.auditors(1) if SEAT in script.net.duties(1, id)))
    valid = gone_on(script, 0, through_round=RoundIndex(1), member=member)
    second = script.net.view.settled[1]
    key, body = script.secrets[1, SEAT][0], second.opened_reports[member].to_bytes()
    found = evidence_of(valid, 3)
    assert (found[0][:3], found[1:3]) == ((JOB, 0, SEAT), (False, 3))
    assert (found[3:6], found[10]) == ((key, member, body), 1)
    assert [onwards[:3] for onwards in found[12]] == [(JOB, 1, SEAT)]
    seats = evidence_of(replace(valid, member=NO_HOLDER), 3)
    assert (seats[3:6], seats[10], seats[12]) == ((ZERO_DIGEST, NO_HOLDER, b""), 1, ())


def test_the_round_before_is_shown_where_a_segment_opens_with_its_last_state() -> None:
    script = played()
    nothing = (
        0,
        0,
        0,
        0,
        (*[ZERO_DIGEST] * 5, *[0] * 6, ZERO_DIGEST),
        ZERO_DIGEST,
        (),
        (*[ZERO_DIGEST] * 3, b"", b""),
    )
    assert evidence_of(gone_on(script, 1), 0)[11][:3] == (JOB, 0, SEAT)
    assert evidence_of(gone_on(script, 1), 1)[11] == nothing
    said = gone_on(script, 1)
    came = {id: replace(h, start=RoundIndex(1)) for id, h in said.view.providers.items()}
    newcomers = replace(said, view=replace(said.view, providers=came))
    assert evidence_of(newcomers, 0)[11] == nothing  # another one had the seat
    assert evidence_of(gone_on(script, 0), 0)[11] == nothing


@pytest.mark.parametrize("whose", [None, HolderId(99)])
def test_who_did_not_do_the_round_before_shows_that_it_did_not(whose: HolderId | None) -> None:
    """By the record alone, where nobody revealed the seat's, or by another's reveal of it."""
    script = played()
    said = gone_on(script)
    before, *later = said.view.settled
    told = before.reveals[SEAT]
    others = {seat: other for seat, other in before.reveals.items() if seat != SEAT}
    if whose is not None:
        others[SEAT] = replace(told, holder=whose)
    view = replace(said.view, settled=RoundList([replace(before, reveals=others), *later]))
    found = evidence_of(replace(said, view=view), 0)[11]
    nobodys = (*[ZERO_DIGEST] * 3, b"", b"")
    assert found[:4] == (JOB, 0, SEAT, told.holder)
    assert found[4:] == (astuple(before.record), ZERO_DIGEST, (), nobodys)


def test_a_valid_entry_says_nothing_of_a_round_that_its_own_does_not_come_from() -> None:
    script = played({SEAT: 6})
    script.audit(1)
    member = HolderId(next(id for id in script.auditors(1) if SEAT in script.net.duties(1, id)))
    said = gone_on(script, 0, through_round=RoundIndex(1), member=member)
    with pytest.raises(ProtocolError, match="does not come from"):
        said.evidence(3)
    assert replace(said, member=NO_HOLDER).evidence(3)  # the seat answers for it all the same


def test_a_game_through_a_later_round_holds_that_one_alone() -> None:
    script = played()
    net, holder = script.net, HolderId(SEAT + 1)
    challenge(script, gone_on(script, 0, through_round=RoundIndex(1)).claim(3))
    over = max(settled_round.ends["window"] for settled_round in net.settled)
    finals = [net.view.is_final(Role.PROVIDER, holder, RoundIndex(r), over) for r in (0, 1)]
    assert finals == [True, False]


def test_the_rounds_that_a_state_comes_from() -> None:
    script, manifest = (
        played({SEAT: 6}),
        make_manifest({"codec.feedback": "0.5", "reset_period": 4}),
    )
    script.honest_round()
    other, view = SeatIndex(SEAT - 1), script.net.view

    def earlier(round: int, seat: SeatIndex) -> tuple[int, ...]:
        holder = HolderId(seat + 1)
        return earlier_rounds(view, manifest, RoundIndex(round), seat, holder)

    assert [earlier(round, other) for round in range(4)] == [(), (0,), (0, 1), (0, 1, 2)]
    assert [earlier(round, SEAT) for round in range(4)] == [(), (), (1,), (1, 2)]
    assert earlier(4, other) == ()  # a reset period's first
    assert earlier_rounds(view, manifest, RoundIndex(2), other, HolderId(99)) == ()


def test_a_header_says_of_which_part_a_trace_is() -> None:
    plain, header = PROGRAM.header, replace(RESET_PERIODS.header, update_proof_nodes=0, overlap=7)
    assert TraceHeader.from_bytes(header.to_bytes()) == header
    assert len(plain.to_bytes()) == 183
    assert len(header.to_bytes()) == 183 + 12 + 2 * 16
    assert [header.update_proof_part(round) for round in range(3)] == [1, 2, 1]
    assert [header.step_part(round, 7) for round in range(3)] == [0, 3, 4]
    assert {header.step_part(round, 6) for round in range(3)} == {0}
    assert [header.nodes(part) for part in range(5)] == [9, 5, 6, 20, 21]
    assert [plain.nodes(part) for part in range(2)] == [9, 3]
    assert (plain.update_proof_part(5), plain.step_part(5, 0)) == (1, 0)
    for cut in (184, 195, 195 + 16):
        with pytest.raises(MalformedProgram):
            TraceHeader.from_bytes(header.to_bytes()[:cut])
    with pytest.raises(IndexError):
        header.nodes(5)
