"""A job's view after scripted rounds: what it knows, and what it says is due."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.law.factories import (
    DOMAIN,
    JOB,
    JOBS,
    ScriptedJob,
    address,
    digest,
    make_manifest,
    make_reveal,
)

from atoll.errors import ProtocolError
from atoll.law import events as ev
from atoll.law import hashing
from atoll.law.duties import duties_of, supplement_of
from atoll.law.manifest import Manifest
from atoll.law.rounds import apply, apply_all
from atoll.law.views import JobView, RoundState
from atoll.law.words import (
    ZERO_DIGEST,
    Attempt,
    Bitmap,
    Fault,
    JobId,
    JobStatus,
    Offence,
    Outcome,
    Phase,
    Role,
    RoundIndex,
    SeatIndex,
    VerifierIndex,
    bits,
    to_bitmap,
)

MANIFEST = make_manifest()
TERMS = MANIFEST.terms


def auditing(providers: int = 4, verifiers: int = 3, manifest: Manifest = MANIFEST) -> ScriptedJob:
    """A job whose first audit has started."""
    job = ScriptedJob(manifest, providers, verifiers)
    job.open()
    job.until_audit()
    return job


def ballots(job: ScriptedJob, *verifiers: int) -> None:
    for v in verifiers or tuple(bits(job.view.state.verifiers)):
        job.ballot(v, bits(job.view.state.audit_set))


def seats(*indices: int) -> Bitmap:
    return to_bitmap(indices)


# --- the happy path ---


def test_an_honest_job_ends_with_everyone_paid() -> None:
    job = ScriptedJob(MANIFEST)
    for _ in range(TERMS.rounds):
        job.honest_round()
    for _ in range(TERMS.rounds):
        assert job.view.finalisable(job.now + TERMS.dispute_seconds)
        job.finalise()
    job.close(JobStatus.DONE, "Done")
    view = job.view
    assert (view.state.phase, view.state.status) == (Phase.CLOSED, JobStatus.DONE)
    assert (view.state.round, view.final_rounds) == (TERMS.rounds, TERMS.rounds)
    assert all(settled.is_consistent and settled.is_final for settled in view.settled)
    assert view.due_faults == ()
    per_seat = TERMS.steps * TERMS.tokens_per_step * TERMS.price_per_token
    assert view.final_claims[address("provider 0")] == TERMS.rounds * per_seat
    assert view.final_claims[address("verifier 2")] == TERMS.rounds * TERMS.verifier_fee
    assert view.state.cumulative_total == sum(view.final_claims.values())


def test_claims_of_a_round_are_recomputed_from_its_events() -> None:
    job = ScriptedJob(MANIFEST)
    job.honest_round()
    job.honest_round()
    first, second = job.view.claims_of(RoundIndex(0)), job.view.claims_of(RoundIndex(1))
    assert second == {account: 2 * amount for account, amount in first.items()}
    with pytest.raises(ProtocolError, match="not settled"):
        job.view.claims_of(RoundIndex(2))


def test_each_verdict_names_the_one_before_it() -> None:
    job = ScriptedJob(MANIFEST)
    job.honest_round()
    job.honest_round()
    first, second = job.view.settled
    assert first.verdict.parent == ZERO_DIGEST
    assert second.verdict.parent == first.verdict_hash
    assert job.view.state.parent == second.verdict_hash


def test_accumulators_follow_the_order_of_the_chain() -> None:
    job = ScriptedJob(MANIFEST)
    job.open()
    job.train()
    expected = ZERO_DIGEST
    for seat in map(SeatIndex, (2, 0, 3)):
        job.commit(seat)
        value = job.view.work.commits[seat].commitment
        expected = hashing.accumulate_commit(expected, seat, value)
    assert job.view.state.commit_accumulator == expected
    assert job.view.state.committed == seats(0, 2, 3)


def test_slots_of_training_and_audit_part_ways_when_an_audit_is_repeated() -> None:
    job = auditing()
    ballots(job, 0)
    job.resolve()
    job.void_no_quorum()
    assert (job.view.slot.attempt, job.view.train_slot.attempt) == (1, 0)


# --- reading a job ---


def test_members_are_found_by_their_accounts() -> None:
    job = auditing(providers=3)
    view = job.view
    assert view.seat_of(address("provider 1")) == 1
    assert view.active_seat_of(address("provider 1")) == 1
    assert view.verifier_of(address("verifier 2")) == 2
    assert view.active_verifier_of(address("verifier 2")) == 2
    assert view.seat_of(address("stranger")) is None
    assert view.verifier_of(address("stranger")) is None


def test_a_provider_that_joins_while_a_round_runs_waits() -> None:
    job = auditing(providers=3)
    job.emit(ev.ProviderQueued(JOB, address("late")))
    job.emit(ev.ProviderQueued(JOB, address("later")))
    assert job.view.waiting == (address("late"), address("later"))
    job.emit(ev.ProviderUnqueued(JOB, address("late")))
    job.emit(ev.ProviderSeated(JOB, SeatIndex(3), address("later")))
    assert not job.view.waiting
    assert job.view.seat_of(address("later")) == 3
    assert job.view.active_seat_of(address("later")) is None


def test_leaving_takes_effect_when_the_roster_says_so() -> None:
    job = auditing()
    job.emit(ev.ProviderLeaving(JOB, SeatIndex(1), address("provider 1")))
    job.emit(ev.VerifierLeaving(JOB, VerifierIndex(2), address("verifier 2")))
    assert job.view.leaving == seats(1)
    assert job.view.verifiers[VerifierIndex(2)].leaving
    job.emit(ev.ProviderUnseated(JOB, SeatIndex(1), address("provider 1"), "Left"))
    job.emit(ev.VerifierLeft(JOB, VerifierIndex(2), address("verifier 2"), "Left"))
    assert job.view.leaving == 0
    assert job.view.seat_of(address("provider 1")) is None
    assert job.view.work.seats[SeatIndex(1)] == address("provider 1")
    assert job.view.snapshot[VerifierIndex(2)].account == address("verifier 2")


def test_gateways_are_the_last_announced_of_those_with_a_part_in_the_job() -> None:
    job = auditing()
    for name, url in (("provider 1", "http://a"), ("verifier 0", "http://b")):
        job.emit(ev.GatewayAnnounced(address(name), url))
    job.emit(ev.GatewayAnnounced(address("provider 1"), "http://c"))
    job.emit(ev.GatewayAnnounced(address("stranger"), "http://d"))
    assert job.view.gateway_urls() == ("http://c", "http://b")


def test_money_events_are_added_up() -> None:
    job = ScriptedJob(MANIFEST)
    job.emit(ev.JobFunded(JOB, address("funder"), 5))
    job.emit(ev.CancelRequested(JOB))
    job.emit(ev.Claimed(JOB, address("provider 0"), 3, 9))
    job.emit(ev.Refunded(JOB, address("submitter"), 2))
    view = job.view
    assert (view.funded, view.refunded) == (10**30 + 5, 2)
    assert view.paid == {address("provider 0"): 3}
    assert view.claimed == {address("provider 0"): 9}
    assert view.cancel_requested


def test_events_of_other_jobs_and_of_stakes_change_nothing() -> None:
    job = auditing()
    other = ev.JobStatusChanged(JobId(8), JobStatus.EXPIRED, "Expired")
    locked = ev.Locked(address("provider 0"), Role.PROVIDER, digest("lock"), 5)
    assert apply(job.view, other, job.block) is job.view
    assert apply(job.view, locked, job.block) is job.view


def test_a_view_is_the_same_however_often_its_log_is_folded() -> None:
    job = ScriptedJob(MANIFEST)
    job.honest_round()
    again = apply_all(JobView.of(DOMAIN, JOBS, JOB), job.log)
    assert again == job.view
    assert again.round_state() == job.view.state


def test_before_it_exists_a_job_has_no_terms() -> None:
    view = JobView.of(DOMAIN, JOBS, JOB)
    assert view.round_state() == RoundState()
    assert not view.is_poke_due(10**10, 10**10)
    with pytest.raises(ProtocolError, match="not known"):
        view.require_terms()
    with pytest.raises(ProtocolError, match="no evidence"):
        _ = view.cut_hash


# --- optimiser state ---


def test_an_accepted_seat_keeps_its_optimiser_root_and_a_rejected_one_does_not() -> None:
    job = ScriptedJob(MANIFEST)
    job.honest_round()
    kept = make_reveal("0 0 1").optimiser_root
    assert job.view.last_optimiser_root(SeatIndex(1)) == kept
    job.open()
    job.until_audit(reveals={2: make_reveal("reset", reset=True)})
    assert job.view.opening_optimiser_root(SeatIndex(1)) == kept
    assert job.view.opening_optimiser_root(SeatIndex(2)) == ZERO_DIGEST
    ballots(job, 0, 1)
    job.ballot(2, (0, 2, 3))
    index = job.report(2, 1)
    job.confirm()
    job.vote(0, agree=1 << index)
    job.vote(1, agree=1 << index)
    job.resolve()
    job.attest()
    job.settle()
    assert job.view.last_optimiser_root(SeatIndex(1)) == kept
    assert job.view.last_optimiser_root(SeatIndex(0)) == make_reveal("1 0 0").optimiser_root


def test_a_new_holder_starts_without_optimiser_state() -> None:
    job = ScriptedJob(MANIFEST)
    job.honest_round()
    job.emit(ev.ProviderUnseated(JOB, SeatIndex(1), address("provider 1"), "Left"))
    job.emit(ev.ProviderSeated(JOB, SeatIndex(1), address("newcomer")))
    assert job.view.last_optimiser_root(SeatIndex(1)) == ZERO_DIGEST


# --- audits ---


def test_a_confirmed_report_rejects_its_seat_and_is_due_once_the_round_can_no_more_change() -> None:
    job = auditing()
    ballots(job, 0, 1)
    job.ballot(2, (0, 1, 3))
    index = job.report(2, 2, segment=5)
    job.confirm()
    job.vote(0, agree=1 << index)
    job.vote(1, agree=1 << index)
    job.resolve()
    state = job.view.state
    assert (state.accepted, state.rejected, state.caught) == (seats(0, 1, 3), seats(2), seats(2))
    assert state.dutiful == seats(0, 1, 2)
    job.attest()
    job.settle()
    (due,) = job.view.due_faults
    assert (due.offence, due.index, due.account) == (Offence.REPORT, 0, address("provider 2"))
    assert not job.view.punishable(due.due_at - 1)
    assert job.view.punishable(due.due_at) == (due,)
    fault = hashing.fault_id(job.view.slot, due.offence, due.index)
    job.emit(ev.Punished(JOB, RoundIndex(0), due.offence, 0, due.account, fault, 5))
    assert job.view.due_faults == ()


def test_a_verifier_that_vouched_for_the_segment_is_contradicted() -> None:
    job = auditing()
    job.ballot(0, range(4), segments=0b100001)
    job.ballot(1, range(4), segments=0b000001)
    job.ballot(2, (0, 1, 3))
    index = job.report(2, 2, segment=5)
    job.confirm()
    job.vote(0, agree=1 << index)
    job.vote(1, agree=1 << index)
    job.resolve()
    assert job.view.work.contradicted == seats(0)
    assert job.view.state.dutiful == seats(1, 2)
    job.attest()
    job.settle()
    offences = {(f.offence, f.index) for f in job.view.due_faults}
    assert offences == {(Offence.REPORT, 0), (Offence.VERIFIER_CONTRADICTED, 0)}


def test_a_refuted_report_contradicts_those_who_agreed_and_costs_the_reporter() -> None:
    job = auditing(verifiers=4)
    ballots(job)
    index = job.report(3, 2)
    job.confirm()
    for v in range(3):
        job.vote(v, disagree=1 << index)
    job.resolve()
    assert job.view.reports[index].outcome is Outcome.REFUTED
    assert job.view.state.accepted == seats(0, 1, 2, 3)
    assert job.view.state.dutiful == seats(0, 1, 2)
    job.attest()
    job.settle()
    accounts = {f.offence: f.account for f in job.view.due_faults}
    assert accounts[Offence.REPORT] == address("verifier 3")
    assert accounts[Offence.VERIFIER_CONTRADICTED] == address("verifier 3")


def test_a_seconder_agrees_without_voting() -> None:
    job = auditing()
    ballots(job, 0)
    job.ballot(1, (0, 1, 3))
    index = job.report(1, 2)
    job.ballot(2, (0, 1, 3))
    job.second(2, index)
    job.resolve()
    assert job.view.reports[index].reporters == seats(1, 2)
    assert job.view.reports[index].outcome is Outcome.CONFIRMED
    assert job.view.state.dutiful == seats(1, 2)


def test_what_nobody_can_fetch_is_rejected_but_not_caught() -> None:
    job = auditing()
    ballots(job, 0, 1)
    job.ballot(2, (0, 1, 3))
    index = job.report(2, 2, Fault.WRONG_REPLAY)
    job.confirm()
    job.vote(0, cannot=1 << index)
    job.vote(1, cannot=1 << index)
    job.resolve()
    assert job.view.reports[index].outcome is Outcome.UNFETCHABLE
    assert (job.view.state.rejected, job.view.state.caught) == (seats(2), 0)
    assert job.view.state.dutiful == seats(0, 1, 2)


def test_not_fetching_agrees_with_withheld() -> None:
    job = auditing()
    ballots(job, 0, 1)
    job.ballot(2, (0, 1, 3))
    index = job.report(2, 2, Fault.WITHHELD, segment=0xFFFF)
    job.confirm()
    job.vote(0, cannot=1 << index)
    job.resolve()
    assert job.view.reports[index].outcome is Outcome.CONFIRMED
    assert (job.view.state.rejected, job.view.state.caught) == (seats(2), 0)
    assert job.view.state.dutiful == seats(0, 2)


def test_no_quorum_proves_that_work_is_out_of_tolerance() -> None:
    job = auditing()
    ballots(job, 0)
    job.ballot(1, (0, 1, 3))
    index = job.report(1, 2, Fault.OUT_OF_TOLERANCE)
    job.ballot(2, (0, 1, 3))
    job.second(2, index)
    job.confirm()
    job.vote(0, cannot=1 << index)
    job.resolve()
    assert job.view.reports[index].outcome is Outcome.UNRESOLVED
    assert (job.view.state.rejected, job.view.state.caught) == (0, 0)
    assert (job.view.state.attempt, job.view.state.audit_set) == (1, seats(2))


def test_a_quorum_refutes_that_work_is_out_of_tolerance() -> None:
    job = auditing(verifiers=4)
    ballots(job)
    index = job.report(3, 2, Fault.OUT_OF_TOLERANCE)
    job.confirm()
    for v in range(3):
        job.vote(v, disagree=1 << index)
    job.resolve()
    assert job.view.reports[index].outcome is Outcome.REFUTED
    assert job.view.state.accepted == seats(0, 1, 2, 3)


def challenged(*votes: str) -> ScriptedJob:
    """Verifier 2's challenge of seat 2 was answered; then the verifiers voted so."""
    job = auditing()
    ballots(job)
    index = job.challenge(2, 2, b"block")
    job.answer(index, b"block")
    assert job.view.reports[index].reporters == 0
    job.confirm()
    for verifier, said in enumerate(votes):
        job.vote(verifier, **{said: 1 << index})
    job.resolve()
    return job


@pytest.mark.parametrize(
    ("votes", "outcome", "rejected", "dutiful"),
    [
        (("disagree", "disagree", "agree"), Outcome.REFUTED, (), (0, 1)),
        (("disagree", "cannot", "cannot"), Outcome.ANSWERED, (), (0, 1, 2)),
        (("cannot", "cannot", "cannot"), Outcome.ANSWERED, (), (0, 1, 2)),
        (("agree", "disagree", "agree"), Outcome.CONFIRMED, (2,), (0, 2)),
    ],
)
def test_an_answer_leaves_the_challenge_to_the_vote(
    votes: tuple[str, ...], outcome: Outcome, rejected: tuple[int, ...], dutiful: tuple[int, ...]
) -> None:
    job = challenged(*votes)
    assert job.view.reports[0].outcome is outcome
    assert job.view.state.rejected == seats(*rejected)
    assert job.view.state.dutiful == seats(*dutiful)
    assert job.view.state.accepted == seats(0, 1, 2, 3) & ~seats(*rejected)


def test_an_answered_challenge_without_a_quorum_is_audited_again() -> None:
    job = challenged("disagree", "agree")
    assert job.view.reports[0].outcome is Outcome.UNRESOLVED
    assert (job.view.state.phase, job.view.state.audit_set) == (Phase.DRAW, seats(2))


def test_a_challenge_that_all_took_back_is_nothing_to_vote_on() -> None:
    job = auditing()
    index = job.challenge(2, 2, b"block")
    job.second(1, index)
    job.withdraw(2, index)
    assert job.view.reports[index].reporters == 1 << 1
    job.second(2, index)
    assert job.view.reports[index].reporters == 1 << 1 | 1 << 2
    job.withdraw(1, index)
    job.withdraw(2, index)
    assert job.view.reports[index].outcome is Outcome.WITHDRAWN
    assert job.view.attempt_reports == ()
    ballots(job)
    job.resolve()
    assert job.view.state.dutiful == seats(0, 1, 2)
    job.attest()
    job.settle()
    assert not [fault for fault in job.view.due_faults if fault.offence is Offence.REPORT]


def test_who_took_a_refuted_challenge_back_was_not_wrong() -> None:
    job = auditing()
    ballots(job)
    index = job.challenge(2, 2, b"block")
    job.second(1, index)
    job.withdraw(2, index)
    job.confirm()
    job.vote(0, disagree=1 << index)
    job.vote(2, disagree=1 << index)
    job.resolve()
    assert job.view.reports[index].outcome is Outcome.REFUTED
    assert job.view.state.dutiful == seats(0, 2)


def test_settled_rounds_do_not_keep_the_answers() -> None:
    job = challenged("disagree", "disagree", "disagree")
    assert job.view.reports[0].answer == b"block"
    job.attest()
    job.settle()
    assert job.view.settled[0].reports[0].answer == b""


def test_an_undecided_report_leaves_its_seat_unresolved_and_audits_it_again() -> None:
    job = auditing()
    ballots(job)
    index = job.report(2, 1)
    job.confirm()
    job.vote(0, disagree=1 << index)
    job.vote(1, agree=0)
    job.resolve()
    state = job.view.state
    assert job.view.reports[index].outcome is Outcome.UNRESOLVED
    assert (state.phase, state.attempt, state.audit_set) == (Phase.DRAW, 1, seats(1))
    job.draw()
    assert job.view.auditors == 3
    ballots(job)
    job.resolve()
    assert job.view.state.accepted == seats(0, 1, 2, 3)


def test_a_seat_that_nobody_counted_replayed_is_audited_again() -> None:
    job = auditing()
    for v in range(3):
        job.ballot(v, (0, 1, 3))
    job.resolve()
    assert (job.view.state.phase, job.view.state.audit_set) == (Phase.DRAW, seats(2))


def test_an_absent_verifier_is_not_paid_and_is_due_a_cut() -> None:
    job = auditing(verifiers=4)
    ballots(job, 0, 1, 2)
    job.resolve()
    job.attest(verifiers=(0, 1, 2))
    job.settle()
    assert job.view.settled[0].evidence.dutiful == seats(0, 1, 2)
    assert address("verifier 3") not in job.view.claims
    (due,) = job.view.due_faults
    expected = (Offence.VERIFIER_MISSED, 3, address("verifier 3"))
    assert (due.offence, due.index, due.account) == expected


def test_a_verifier_that_does_not_vote_is_absent() -> None:
    job = auditing(verifiers=4)
    ballots(job)
    index = job.report(0, 1)
    job.confirm()
    job.vote(1, disagree=1 << index)
    job.vote(2, disagree=1 << index)
    job.resolve()
    assert job.view.work.absent == seats(3)


def test_a_seat_that_did_not_reveal_is_due_a_cut() -> None:
    job = ScriptedJob(MANIFEST)
    job.open()
    job.until_audit(seats=(0, 1, 3))
    ballots(job)
    job.resolve()
    job.attest()
    job.settle()
    (due,) = job.view.due_faults
    assert (due.offence, due.index) == (Offence.SEAT_MISSED, 2)
    assert job.view.settled[0].tokens[2] == 0


def test_the_first_attestation_fixes_the_hash_of_the_cut() -> None:
    job = auditing()
    ballots(job)
    job.resolve()
    assert job.view.state.cut_block_hash == ZERO_DIGEST
    value = job.attest(verifiers=(0,))
    assert job.view.state.cut_block_hash == digest(f"block {job.view.state.cut_block}")
    assert job.view.attested_weight(value) == TERMS.verifier_bond
    assert job.view.attested_weight(digest("other")) == 0


def test_a_cut_whose_hash_the_chain_lost_stays_unknown_to_it() -> None:
    job = auditing()
    ballots(job)
    job.resolve()
    job.number += 256
    job.attest(verifiers=(0,))
    assert job.view.state.cut_block_hash == ZERO_DIGEST
    assert job.view.cut_hash != ZERO_DIGEST


# --- void ---


def test_no_commits_voids_the_training_and_everyone_missed() -> None:
    job = ScriptedJob(MANIFEST)
    job.open()
    job.train()
    job.void("NoCommits")
    state = job.view.state
    assert (state.phase, state.attempt, state.deadline) == (Phase.WAITING, 1, 0)
    job.open()
    assert job.view.state.train_attempt == 1
    assert {index for _, index in job.view.work.faults} == {0, 1, 2, 3}


def test_a_void_quorum_keeps_confirmed_faults_and_forgets_findings() -> None:
    job = auditing()
    ballots(job, 0, 1)
    job.ballot(2, (0, 1, 3))
    index = job.report(2, 2, segment=5)
    job.confirm()
    job.vote(0, agree=1 << index)
    job.vote(1, agree=1 << index)
    job.resolve()
    job.void_no_quorum()
    assert job.view.state.audit_set == seats(0, 1, 3)
    assert job.view.state.rejected == seats(2)
    assert job.view.work.findings == {}
    assert job.view.work.replayed == seats(0, 1, 2, 3)


def test_out_of_attempts_seats_with_a_replay_and_dutiful_verifiers_are_credited() -> None:
    job = auditing()
    for attempt in range(TERMS.attempts):
        ballots(job, 0, 1)
        job.resolve()
        if attempt + 1 < TERMS.attempts:
            job.void_no_quorum()
            job.draw()
    job.void("NoQuorum")
    job.close(JobStatus.EXPIRED, "OutOfAttempts")
    view = job.view
    due = {(c.role, c.index): c.amount for c in view.due_credits}
    per_seat = TERMS.steps * TERMS.tokens_per_step * TERMS.price_per_token
    assert due == {(Role.PROVIDER, s): per_seat for s in range(4)} | {
        (Role.VERIFIER, v): TERMS.verifier_fee for v in range(2)
    }
    assert [(f.offence, f.index) for f in view.due_faults] == [(Offence.VERIFIER_MISSED, 2)]
    assert view.due_faults[0].due_at == job.now + TERMS.dispute_seconds
    credit = view.due_credits[0]
    job.emit(ev.Credited(JOB, credit.round, credit.account, credit.amount))
    assert job.view.due_credits == view.due_credits[1:]
    assert job.view.credits == {credit.account: credit.amount}


def test_a_job_that_expires_before_anyone_revealed_credits_nobody() -> None:
    job = ScriptedJob(MANIFEST)
    job.open()
    job.train()
    job.void("NoCommits")
    job.close(JobStatus.EXPIRED, "OutOfAttempts")
    assert job.view.due_credits == ()
    assert (job.view.state.phase, job.view.closed_at) == (Phase.CLOSED, job.now)


def test_verifier_faults_of_a_retrained_round_are_kept_with_their_accounts() -> None:
    job = auditing()
    for attempt in range(TERMS.attempts):
        job.ballot(0, ())
        job.ballot(1, ())
        job.resolve()
        if attempt + 1 < TERMS.attempts:
            job.draw()
    assert job.view.state.phase is Phase.WAITING
    job.emit(ev.VerifierLeft(JOB, VerifierIndex(2), address("verifier 2"), "Left"))
    job.emit(ev.VerifierJoined(JOB, VerifierIndex(2), address("newcomer"), 1))
    job.open()
    assert job.view.work.faults == {(Offence.VERIFIER_MISSED, 2): address("verifier 2")}
    assert job.view.work.absent == 0


# --- circuit breaker ---


def halted() -> ScriptedJob:
    job = auditing()
    ballots(job, 0, 1)
    job.ballot(2, (0,))
    indices = [job.report(2, seat) for seat in (1, 2, 3)]
    job.confirm()
    agree = sum(1 << index for index in indices)
    job.vote(0, agree=agree)
    job.vote(1, agree=agree)
    job.resolve()
    return job


def test_too_many_catches_halt_the_job_and_punish_nobody_yet() -> None:
    view = halted().view
    assert (view.state.phase, view.state.status) == (Phase.HALTED, JobStatus.HALTED)
    assert view.state.caught == seats(1, 2, 3)
    assert view.due_faults == ()
    assert not view.is_poke_due(TERMS.expiry - 1, 10**9)
    assert view.is_poke_due(TERMS.expiry, 0)


def test_a_reaudit_annuls_what_the_audits_said() -> None:
    job = halted()
    job.emit(ev.JobStatusChanged(JOB, JobStatus.ACTIVE, "Reaudit"))
    state = job.view.state
    job.emit(
        ev.AuditArmed(JOB, state.round, Attempt(1), state.revealed, state.revealed, job.number + 2)
    )
    assert (job.view.state.rejected, job.view.state.caught) == (0, 0)
    assert all(report.annulled and not report.stands for report in job.view.reports)
    job.draw()
    ballots(job)
    job.resolve()
    job.attest()
    job.settle()
    assert job.view.settled[0].evidence.accepted == seats(0, 1, 2, 3)
    assert {f.account for f in job.view.due_faults} == {address("verifier 2")}


def test_a_halted_job_that_expires_gives_reports_their_bonds_back() -> None:
    job = halted()
    job.close(JobStatus.EXPIRED, "Expired")
    assert job.view.state.phase is Phase.CLOSED
    assert {f.account for f in job.view.due_faults} == {address("verifier 2")}


# --- pokes ---


def test_pokes_are_due_when_a_beacon_or_a_deadline_has_passed() -> None:
    job = ScriptedJob(MANIFEST)
    assert job.view.is_poke_due(job.now, job.number)
    job.open()
    beacon = job.view.state.beacon_block
    assert not job.view.is_poke_due(job.now, beacon)
    assert job.view.is_poke_due(job.now, beacon + 1)
    job.emit(ev.BeaconRearmed(*job.here, beacon + 300))
    assert not job.view.is_poke_due(job.now, beacon + 300)
    job.train()
    deadline = job.view.state.deadline
    assert not job.view.is_poke_due(deadline - 1, 10**9)
    assert job.view.is_poke_due(deadline, 0)


def test_a_verdict_with_its_quorum_gets_as_long_again_to_be_settled() -> None:
    job = auditing()
    ballots(job)
    job.resolve()
    deadline = job.view.state.deadline
    assert job.view.is_poke_due(deadline, 0)
    job.attest(verifiers=(0, 1))
    assert not job.view.is_poke_due(deadline, 0)
    assert job.view.is_poke_due(deadline + TERMS.attest_seconds, 0)


def test_waiting_ends_with_enough_members_of_whom_a_quorum_is_ready() -> None:
    job = ScriptedJob(MANIFEST, providers=2, verifiers=0)
    assert not job.view.is_poke_due(job.now, job.number)
    for v in map(VerifierIndex, range(3)):
        job.emit(ev.VerifierJoined(JOB, v, address(f"verifier {v}"), TERMS.verifier_bond))
    job.emit(ev.VerifierReady(JOB, VerifierIndex(0), address("verifier 0")))
    assert not job.view.is_poke_due(job.now, job.number)
    job.emit(ev.VerifierReady(JOB, VerifierIndex(1), address("verifier 1")))
    assert job.view.is_poke_due(job.now, job.number)
    assert job.view.is_poke_due(TERMS.expiry, 0)


def test_a_cancelled_job_that_waits_is_closed_by_a_poke() -> None:
    job = ScriptedJob(MANIFEST, providers=1, verifiers=0)
    assert not job.view.is_poke_due(job.now, job.number)
    job.emit(ev.CancelRequested(JOB))
    assert job.view.is_poke_due(job.now, job.number)


# --- duties ---


def test_duties_cover_what_the_manifest_asks_for() -> None:
    job = auditing(verifiers=5, manifest=make_manifest({"members.max_verifiers": 5}))
    parts = [duties_of(job.view, job.manifest, VerifierIndex(v)) for v in range(5)]
    for seat in map(SeatIndex, range(4)):
        owned = [part[seat] for part in parts if seat in part]
        segments = frozenset[int]().union(*(duty.segments for duty in owned))
        assert len(segments) in {4, 5}
        assert 7 in segments
        assert any(duty.link for duty in owned)


def test_an_outlier_and_a_diverged_seat_change_only_their_own_duties() -> None:
    job = ScriptedJob(MANIFEST)
    job.open()
    job.until_audit(reveals={1: make_reveal("short", steps=12)})
    plain = [duties_of(job.view, job.manifest, VerifierIndex(v)) for v in range(3)]
    marked = [
        duties_of(job.view, job.manifest, VerifierIndex(v), in_full=[SeatIndex(3)])
        for v in range(3)
    ]
    for before, after in zip(plain, marked, strict=True):
        assert {s: d for s, d in before.items() if s != 3} == {
            s: d for s, d in after.items() if s != 3
        }
        assert all(max(duty.segments) <= 2 for s, duty in before.items() if s == 1)
        assert not any(duty.link for s, duty in before.items() if s == 1)
    covered = frozenset[int]().union(*(part[SeatIndex(3)].segments for part in marked if 3 in part))
    assert covered == set(range(8))


def test_a_supplement_is_exactly_what_the_silent_owed() -> None:
    job = auditing()
    before = [duties_of(job.view, job.manifest, VerifierIndex(v)) for v in range(3)]
    ballots(job, 0, 1)
    extra = [supplement_of(job.view, job.manifest, VerifierIndex(v)) for v in range(2)]
    assert supplement_of(job.view, job.manifest, VerifierIndex(2)) == {}
    for seat, duty in before[2].items():
        taken = [part[seat] for part in extra if seat in part]
        assert taken == [duty]
    job.ballot(0, (), segments=0)
    assert job.view.ballots[VerifierIndex(0)].is_supplemented


def test_a_void_round_state_is_what_the_contract_holds() -> None:
    job = auditing()
    before = job.view.state
    job.void("Unresolved")
    expected = replace(
        before, phase=Phase.WAITING, attempt=Attempt(before.attempt + 1), deadline=0, beacon_block=0
    )
    assert job.view.state == expected
