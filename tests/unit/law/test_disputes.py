"""Claims of settled rounds, their evidence, and what games and falls do to a job's view."""

from __future__ import annotations

from dataclasses import replace

import pytest
from eth_abi.abi import decode
from tests.unit.law.factories import JOB, ScriptedJob, address, digest, make_manifest, make_trace

from atoll.errors import ProtocolError
from atoll.law import events as ev
from atoll.law.claims import (
    _EVIDENCE,
    ModelRoots,
    ProgramHeader,
    Said,
    bond_set,
    facts_of,
    pay_place,
)
from atoll.law.games.claims import Claim
from atoll.law.games.machine import Outcome
from atoll.law.hashing import accumulate_reveal, commitment, round_facts
from atoll.law.merkle import merkle_proof, merkle_root
from atoll.law.program import Header, Part, Template, program_leaves
from atoll.law.trace import TraceDocument
from atoll.law.words import ZERO_DIGEST, JobId, RoundIndex, SeatIndex, Slot

SEAT, ROUND = SeatIndex(2), RoundIndex(0)
MODEL = ModelRoots(*map(digest, ("params", "outer", "exponents", "moments", "opening")))
HEADER = Header(
    step_nodes=9,
    link_nodes=3,
    steps=40,
    segment=5,
    micro_batches=1,
    data_root=digest("data"),
    train_tokens=1_000_000,
    token_bytes=1,
    masked=False,
    batch=8,
    seq=64,
    tables_root=digest("tables"),
    tables_bytes=1024,
    initial=MODEL.digest(0),
)
LEAVES = program_leaves(HEADER, [Template(Part.STEP, 1, 4, 4, 0, 9, 1, (), ())])
PROGRAM = ProgramHeader(HEADER, len(LEAVES), tuple(merkle_proof(LEAVES, 0)))
CHALLENGER = address("outsider")


def settled() -> tuple[ScriptedJob, TraceDocument]:
    """A job whose first round is settled, and the trace that seat 2 revealed in it."""
    manifest = make_manifest()
    terms = replace(manifest.terms, program=PROGRAM.root)
    job = ScriptedJob(manifest.model_copy(update={"terms": terms}))
    slot = Slot(job.view.domain, JOB, ROUND, job.view.state.train_attempt)
    document, reveal = make_trace(job.manifest, slot, SEAT)
    job.honest_round({SEAT: reveal})
    return job, document


def said_by(job: ScriptedJob, document: TraceDocument) -> Said:
    return Said.of(job.view, (ROUND, SEAT), MODEL, PROGRAM, document)


def challenge(job: ScriptedJob, claim: Claim, game: int = 1) -> None:
    job.emit(ev.Challenged(game, claim.holder, CHALLENGER, 10**18, claim, b"evidence"))
    job.emit(ev.Began(game, claim.holder))


def test_the_programs_header_leads_to_its_root() -> None:
    assert PROGRAM.root == merkle_root(LEAVES)


def test_a_claim_says_what_the_trace_and_the_chain_say() -> None:
    job, document = settled()
    said, past = said_by(job, document), job.view.settled[0]
    first, second, link = said.claim(0), said.claim(1), said.claim(7, is_link=True)
    assert first.opening == said.opening.digest()
    assert (said.opening.params_root, said.opening.optimiser_root) == (MODEL[0], MODEL[4])
    assert first.closing == second.opening == document.leaves[0].state_digest
    assert second.work_word == document.leaves[1].work_word
    assert link.opening == document.leaves[7].state_digest
    assert link.closing == said.reveal.optimiser_root
    assert link.update_root == past.reveals[SEAT].reveal.update_root
    assert first.window_end == past.dispute_until
    assert first.set == bond_set(JOB, address("provider 2"))
    assert first.place == pay_place(JOB, 0, SEAT, 40)


def test_evidence_leads_to_the_word_that_the_contract_keeps() -> None:
    job, document = settled()
    past = job.view.settled[0]
    (values,) = decode([_EVIDENCE], said_by(job, document).evidence(1))
    id_, round_, seat, is_link, segment, seed, before, later, holder, opening, *_ = values
    assert (id_, round_, seat, is_link, segment) == (JOB, 0, SEAT, False, 1)
    told = past.reveals[SEAT]
    slot = Slot(job.view.domain, JOB, ROUND, past.train_attempt)
    value = commitment(slot, SEAT, told.account, told.reveal)
    found = accumulate_reveal(before, SEAT, value, opening)
    for next_seat, next_commitment, next_opening in later:
        found = accumulate_reveal(found, next_seat, next_commitment, next_opening)
    assert round_facts(seed, found, ZERO_DIGEST) == facts_of(past)
    assert holder == told.account.lower()


def test_nothing_is_claimed_with_what_is_anothers() -> None:
    job, document = settled()
    other, _ = make_trace(job.manifest)
    for model, trace in ((MODEL, other), (MODEL._replace(params_root=digest("x")), document)):
        with pytest.raises(ProtocolError):
            Said.of(job.view, (ROUND, SEAT), model, PROGRAM, trace)
    with pytest.raises(ProtocolError, match="was not accepted"):
        Said.of(job.view, (ROUND, SeatIndex(9)), MODEL, PROGRAM, document)


def test_an_open_game_holds_its_holders_pay_and_nobody_elses() -> None:
    job, document = settled()
    job.finalise()
    holder, other = address("provider 2"), address("provider 1")
    due = job.view.claimable(holder)
    assert due == job.view.claimable(other) > 0
    challenge(job, said_by(job, document).claim(1))
    assert (job.view.claimable(holder), job.view.claimable(other)) == (0, due)
    job.emit(ev.Ended(1, Outcome.CHALLENGER_FELL))
    assert job.view.claimable(holder) == due


def test_what_a_fall_withholds_is_the_submitters_once_it_is_claimed() -> None:
    job, document = settled()
    job.finalise()
    holder, submitter = address("provider 2"), job.view.submitter
    due = job.view.claimable(holder)
    challenge(job, said_by(job, document).claim(1))
    job.emit(ev.PayWithheld(JOB, holder, due - 7))
    job.emit(ev.Fell(JOB, holder, ROUND, SEAT, CHALLENGER, 10**20, due - 7))
    job.emit(ev.Ended(1, Outcome.HOLDER_FELL))
    assert job.view.fallen == {holder}
    assert job.view.claimable(holder) == 7
    job.emit(ev.PayReturned(JOB, holder, due - 7, submitter))
    job.emit(ev.Claimed(JOB, holder, 7, due))
    assert (job.view.claimable(holder), job.view.claimable(submitter)) == (0, due - 7)


def test_clocks_run_for_who_is_to_move_after_each_moves_own_seconds() -> None:
    job, document = settled()
    claim = said_by(job, document).claim(1)
    challenge(job, claim)
    game = job.view.games[1]
    assert game.is_holders_turn
    assert game.deadline == job.now + claim.move_seconds + claim.holder_seconds
    job.mine(claim.move_seconds + 5)
    job.emit(ev.StepsOpened(1, (digest("state"),), b"works"))
    game = job.view.games[1]
    assert not game.is_holders_turn
    assert game.deadline == job.now + claim.move_seconds + claim.challenger_seconds
    assert game.clock is not None and game.clock.holder == claim.holder_seconds - 5
    job.emit(ev.Decided(1, Outcome.HOLDER_FELL))
    assert job.view.games[1].deadline == 0


def test_games_of_other_jobs_are_not_this_ones() -> None:
    job, document = settled()
    claim = replace(said_by(job, document).claim(1), set=bond_set(JobId(8), address("provider 2")))
    challenge(job, claim)
    job.emit(ev.LeafPosted(1, b"leaf"))
    assert job.view.games == {}
