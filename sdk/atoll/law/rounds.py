"""The round state machine, mirrored: a job's view is a fold over its events.

Rule of this file: one pure function an event, and `view.state` equals `Rounds.state(jobId)` after
every transaction. Events of other jobs, and of stakes, change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from atoll.law import events as ev
from atoll.law.disputes import DISPUTE_HANDLERS
from atoll.law.events import ContractEvent
from atoll.law.evidence import close_audit, contradicted_by, is_caught
from atoll.law.hashing import accumulate_commit, accumulate_reveal, tokens_root
from atoll.law.membership import MEMBERSHIP_HANDLERS, Handler, put
from atoll.law.merkle import claims_tree
from atoll.law.settlement import compute_settlement, evidence_of
from atoll.law.views import (
    AttestationRecord,
    BallotRecord,
    DueCredit,
    DueFault,
    JobView,
    ReportRecord,
    RoundState,
    RoundWork,
    SeatCommit,
    SeatReveal,
    SettledRound,
    VoteRecord,
)
from atoll.law.words import (
    ZERO_DIGEST,
    Address,
    Attempt,
    Bitmap,
    BlockRef,
    Evidence,
    JobStatus,
    Offence,
    Outcome,
    Phase,
    Role,
    RoundIndex,
    SeatIndex,
    VerifierIndex,
    bits,
)

BLOCK_HASHES: Final = 256
"""How far back the EVM knows block hashes."""

__all__ = ["JobView", "RoundState", "apply", "apply_all"]


def apply(view: JobView, event: ContractEvent, block: BlockRef) -> JobView:
    """The view after one more event, in the order of the chain's logs. Pure.

    Args:
        block: the block that holds the event.
    """
    if getattr(event, "job_id", view.job_id) != view.job_id:
        return view
    handler = _HANDLERS.get(type(event))
    return view if handler is None else replace(handler(view, event, block), block=block)


def apply_all(view: JobView, events: Iterable[tuple[ContractEvent, BlockRef]]) -> JobView:
    """Folds `apply` over events with their blocks, oldest first."""
    for event, block in events:
        view = apply(view, event, block)
    return view


def _with(view: JobView, state: Mapping[str, Any], **work: Any) -> JobView:
    """The view with these fields of its state and of its work replaced."""
    changed = replace(view.work, **work) if work else view.work
    return replace(view, state=replace(view.state, **state), work=changed)


# --- opening, training, revealing ---


def _round_opened(view: JobView, event: ev.RoundOpened, block: BlockRef) -> JobView:
    """Members freeze. What the round's earlier attempts owe (reports, faults) stays."""
    before = view.work
    work = RoundWork(
        seats={seat: view.seats[seat] for seat in map(SeatIndex, bits(event.seated))},
        verifiers={v: view.verifiers[v] for v in map(VerifierIndex, bits(event.verifiers))},
        reports=before.reports,
        absent=Bitmap(before.absent & ~view.newcomers),
        contradicted=Bitmap(before.contradicted & ~view.newcomers),
        faults=before.faults,
    )
    state = RoundState(
        status=view.state.status,
        phase=Phase.SEEDING,
        round=event.round,
        attempt=event.attempt,
        train_attempt=event.attempt,
        beacon_block=event.beacon_block,
        seated=event.seated,
        verifiers=event.verifiers,
        total_weight=event.total_weight,
        parent=view.state.parent,
        cumulative_total=view.state.cumulative_total,
    )
    return replace(view, state=state, work=work, newcomers=Bitmap(0))


def _beacon_rearmed(view: JobView, event: ev.BeaconRearmed, block: BlockRef) -> JobView:
    return _with(view, {"beacon_block": event.beacon_block})


def _train_started(view: JobView, event: ev.TrainStarted, block: BlockRef) -> JobView:
    return _with(
        view,
        {
            "phase": Phase.TRAIN,
            "data_seed": event.data_seed,
            "deadline": event.deadline,
            "beacon_block": 0,
        },
    )


def _committed(view: JobView, event: ev.Committed, block: BlockRef) -> JobView:
    before = view.state
    accumulator = accumulate_commit(before.commit_accumulator, event.seat, event.commitment)
    return _with(
        view,
        {"committed": before.committed | 1 << event.seat, "commit_accumulator": accumulator},
        commits=put(view.work.commits, event.seat, SeatCommit(event.account, event.commitment)),
    )


def _reveal_started(view: JobView, event: ev.RevealStarted, block: BlockRef) -> JobView:
    return _with(view, {"phase": Phase.REVEAL, "deadline": event.deadline})


def _revealed(view: JobView, event: ev.Revealed, block: BlockRef) -> JobView:
    before, commitment = view.state, view.work.commits[event.seat].commitment
    opening = ZERO_DIGEST if event.reveal.reset else view.last_optimiser_root(event.seat)
    accumulator = accumulate_reveal(before.reveal_accumulator, event.seat, commitment, opening)
    revealed = SeatReveal(event.account, event.reveal, commitment, opening)
    return _with(
        view,
        {"revealed": before.revealed | 1 << event.seat, "reveal_accumulator": accumulator},
        reveals=put(view.work.reveals, event.seat, revealed),
    )


# --- audit ---


def _audit_armed(view: JobView, event: ev.AuditArmed, block: BlockRef) -> JobView:
    state: dict[str, Any] = {
        "phase": Phase.DRAW,
        "attempt": event.attempt,
        "revealed": event.revealed,
        "audit_set": event.audit_set,
        "beacon_block": event.beacon_block,
        "deadline": 0,
    }
    if view.state.phase is Phase.HALTED:
        view = _annul_audits(view)
        state |= {"rejected": 0, "caught": 0}
    armed = view.work.beacon_armed or block.number
    work = replace(_record_misses(view), beacon_armed=armed, ballots={}, votes={}, attestations={})
    return _with(replace(view, work=work), state)


def _annul_audits(view: JobView) -> JobView:
    """A halted round forgets what its audits said; its reports get their bonds back."""
    reports = tuple(replace(report, annulled=True) for report in view.work.reports)
    none = Bitmap(0)
    work = replace(view.work, reports=reports, findings={}, replayed=none)
    return replace(view, work=replace(work, absent=none, contradicted=none, disputed=none))


def _record_misses(view: JobView) -> RoundWork:
    """Seats that did not reveal are at fault as soon as revealing is over."""
    if view.state.phase not in {Phase.TRAIN, Phase.REVEAL}:
        return view.work
    work = view.work
    missed = bits(view.state.seated & ~view.state.revealed)
    faults = {(Offence.SEAT_MISSED, seat): work.seats[SeatIndex(seat)] for seat in missed}
    return replace(work, faults=faults | dict(work.faults))


def _audit_started(view: JobView, event: ev.AuditStarted, block: BlockRef) -> JobView:
    return _with(
        view,
        {
            "phase": Phase.REPORT,
            "audit_seed": event.audit_seed,
            "deadline": event.deadline,
            "beacon_block": 0,
        },
        auditors=event.auditors,
        half_time=event.half_time,
    )


def _balloted(view: JobView, event: ev.Balloted, block: BlockRef) -> JobView:
    """A supplement adds to the ballot; findings add up over the audits that count."""
    work = view.work
    before = work.ballots.get(event.verifier)
    found = dict(before.findings) if before else {}
    counted = dict(work.findings.get(event.verifier, {}))
    replayed: int = work.replayed
    for finding in event.findings:
        for seats in (found, counted):
            seats[finding.seat] = seats.get(finding.seat, 0) | finding.segments
        replayed |= 1 << finding.seat
    roots = (*(before.replay_roots if before else ()), event.replay_root)
    ballot = BallotRecord(event.account, found, roots)
    return _with(
        view,
        {},
        ballots=put(work.ballots, event.verifier, ballot),
        findings=put(work.findings, event.verifier, counted),
        replayed=replayed,
    )


def _reported(view: JobView, event: ev.Reported, block: BlockRef) -> JobView:
    work = view.work
    record = ReportRecord(
        index=event.index,
        attempt=event.attempt,
        verifier=event.verifier,
        reporter=work.verifiers[event.verifier].account,
        accused=work.seats[event.report.seat],
        report=event.report,
        assigned=event.assigned,
    )
    return _with(view, {}, reports=(*work.reports, record))


def _replace_report(view: JobView, index: int, **changes: Any) -> tuple[ReportRecord, ...]:
    reports = list(view.work.reports)
    reports[index] = replace(reports[index], **changes)
    return tuple(reports)


def _report_seconded(view: JobView, event: ev.ReportSeconded, block: BlockRef) -> JobView:
    """It may come from one that had taken its challenge back, the first reporter even."""
    report, mark = view.work.reports[event.index], 1 << event.verifier
    seconders, withdrawn = report.seconders | mark, report.withdrawn & ~mark
    if event.verifier == report.verifier:
        seconders = report.seconders
    reports = _replace_report(view, event.index, seconders=seconders, withdrawn=withdrawn)
    return _with(view, {}, reports=reports)


def _challenge_withdrawn(view: JobView, event: ev.ChallengeWithdrawn, block: BlockRef) -> JobView:
    """Once everyone who raised it took it back, there is nothing left to vote on."""
    report = view.work.reports[event.index]
    report = replace(report, withdrawn=Bitmap(report.withdrawn | 1 << event.verifier))
    outcome = report.outcome if report.reporters else Outcome.WITHDRAWN
    reports = _replace_report(view, event.index, withdrawn=report.withdrawn, outcome=outcome)
    return _with(view, {}, reports=reports)


def _challenge_answered(view: JobView, event: ev.ChallengeAnswered, block: BlockRef) -> JobView:
    reports = _replace_report(view, event.index, is_answered=True, answer=event.block)
    return _with(view, {}, reports=reports)


def _confirm_started(view: JobView, event: ev.ConfirmStarted, block: BlockRef) -> JobView:
    return _with(view, {"phase": Phase.CONFIRM, "deadline": event.deadline})


def _voted(view: JobView, event: ev.Voted, block: BlockRef) -> JobView:
    vote = VoteRecord(event.account, event.agree, event.disagree, event.cannot_fetch)
    return _with(view, {}, votes=put(view.work.votes, event.verifier, vote))


def _report_resolved(view: JobView, event: ev.ReportResolved, block: BlockRef) -> JobView:
    report = view.work.reports[event.index]
    mark = 1 << report.report.seat
    state: dict[str, Any] = {}
    if event.outcome in {Outcome.CONFIRMED, Outcome.UNFETCHABLE}:
        state["rejected"] = view.state.rejected | mark
    if is_caught(report, event.outcome):
        state["caught"] = view.state.caught | mark
    is_first = report.index == view.attempt_reports[0].index
    disputed = 0 if is_first else view.work.disputed
    return _with(
        view,
        state,
        reports=_replace_report(view, event.index, outcome=event.outcome),
        contradicted=view.work.contradicted | contradicted_by(view, report, event.outcome),
        disputed=disputed | (mark if event.outcome is Outcome.UNRESOLVED else 0),
    )


def _circuit_broken(view: JobView, event: ev.CircuitBroken, block: BlockRef) -> JobView:
    view = replace(view, work=close_audit(view))
    return _with(view, {"phase": Phase.HALTED, "deadline": 0})


# --- verdicts ---


def _attest_started(view: JobView, event: ev.AttestStarted, block: BlockRef) -> JobView:
    names = ("accepted", "rejected", "unresolved", "caught", "dutiful", "evidence_root")
    state: dict[str, Any] = {name: getattr(event, name) for name in names}
    state |= {
        "phase": Phase.ATTEST,
        "cut_block": event.cut_block,
        "deadline": event.deadline,
        "cut_block_hash": ZERO_DIGEST,
    }
    work = replace(close_audit(view), cut=block, attestations={})
    return _with(replace(view, work=work), state)


def _attested(view: JobView, event: ev.Attested, block: BlockRef) -> JobView:
    """The first attestation makes the contract remember the cut's hash, if the EVM still knows."""
    state: dict[str, Any] = {}
    known = block.number - view.state.cut_block <= BLOCK_HASHES
    if view.state.cut_block_hash == ZERO_DIGEST and known:
        state["cut_block_hash"] = view.cut_hash
    record = AttestationRecord(event.account, event.verdict_hash, event.weight)
    return _with(view, state, attestations=put(view.work.attestations, event.verifier, record))


def _record_audit_faults(view: JobView) -> JobView:
    """When a training's audits are over, its verifiers' faults are held against their accounts."""
    work = view.work
    faults: dict[tuple[Offence, int], Address] = {}
    for offence, bitmap in (
        (Offence.VERIFIER_MISSED, work.absent),
        (Offence.VERIFIER_CONTRADICTED, work.contradicted),
    ):
        for verifier in bits(bitmap & view.state.verifiers):
            faults[offence, verifier] = work.verifiers[VerifierIndex(verifier)].account
    return replace(view, work=replace(work, faults=faults | dict(work.faults)))


def _publish_faults(view: JobView, due_at: int) -> JobView:
    """Turns what the round holds against accounts into `punish` calls."""
    round_ = view.state.round
    due = [
        DueFault(round_, offence, index, account, due_at)
        for (offence, index), account in sorted(view.work.faults.items())
    ]
    for report in view.work.reports:
        if report.outcome is Outcome.WITHDRAWN:
            continue
        account = report.accused if report.stands else report.reporter
        due.append(DueFault(round_, Offence.REPORT, report.index, account, due_at))
    return replace(view, due_faults=(*view.due_faults, *due))


def _settled_round(view: JobView, event: ev.RoundSettled, block: BlockRef) -> SettledRound:
    state, verdict = view.state, event.verdict
    settlement = compute_settlement(view.require_terms(), evidence_of(view), view.claims)
    tree = claims_tree(view.domain.chain_id, view.jobs, view.job_id, settlement.claims)
    is_consistent = (
        verdict.claims_root == tree.root
        and verdict.tokens_root == tokens_root(settlement.tokens)
        and verdict.tokens_total == settlement.tokens_total
        and verdict.cumulative_total == settlement.cumulative_total
    )
    return SettledRound(
        slot=view.slot,
        train_attempt=state.train_attempt,
        block=block,
        verdict_hash=event.verdict_hash,
        verdict=verdict,
        dispute_until=event.dispute_until,
        data_seed=state.data_seed,
        reveal_accumulator=state.reveal_accumulator,
        evidence=Evidence(
            revealed=state.revealed,
            accepted=state.accepted,
            rejected=state.rejected,
            unresolved=state.unresolved,
            caught=state.caught,
            dutiful=state.dutiful,
        ),
        seats=view.work.seats,
        reveals=view.work.reveals,
        verifiers={v: member.account for v, member in view.work.verifiers.items()},
        reports=tuple(replace(report, answer=b"") for report in view.work.reports),
        tokens=settlement.tokens,
        pay=settlement.pay,
        claims=settlement.claims,
        is_consistent=is_consistent,
    )


def _round_settled(view: JobView, event: ev.RoundSettled, block: BlockRef) -> JobView:
    settled = _settled_round(view, event, block)
    roots = dict(view.optimiser_roots)
    for seat in map(SeatIndex, bits(view.state.accepted)):
        roots[seat] = view.reveals[seat].reveal.optimiser_root
    view = _publish_faults(_record_audit_faults(view), event.dispute_until)
    is_last = event.round + 1 == view.require_terms().rounds
    state = replace(
        view.state,
        phase=Phase.CLOSED if is_last else Phase.WAITING,
        round=RoundIndex(event.round + 1),
        attempt=Attempt(0),
        train_attempt=Attempt(0),
        deadline=0,
        beacon_block=0,
        parent=event.verdict_hash,
        cumulative_total=event.verdict.cumulative_total,
    )
    return replace(
        view,
        state=state,
        work=RoundWork(),
        settled=(*view.settled, settled),
        claims=settled.claims,
        optimiser_roots=roots,
        closed_at=block.timestamp if is_last else view.closed_at,
    )


def _round_voided(view: JobView, event: ev.RoundVoided, block: BlockRef) -> JobView:
    view = replace(view, work=_record_misses(replace(view, work=close_audit(view))))
    terms = view.require_terms()
    is_exhausted = event.attempt + 1 >= terms.attempts
    if event.reason == "NoneAccepted" or (event.reason == "NoQuorum" and is_exhausted):
        view = _record_audit_faults(view)
    work: dict[str, Any] = {"findings": {}} if event.reason == "NoQuorum" else {}
    state = {
        "phase": Phase.WAITING,
        "attempt": view.state.attempt + 1,
        "deadline": 0,
        "beacon_block": 0,
    }
    return _with(view, state, **work)


def _round_finalised(view: JobView, event: ev.RoundFinalised, block: BlockRef) -> JobView:
    settled = list(view.settled)
    settled[event.round] = replace(settled[event.round], is_final=True)
    return replace(view, settled=tuple(settled), final_rounds=event.round + 1)


# --- closing, punishing ---


def _job_status_changed(view: JobView, event: ev.JobStatusChanged, block: BlockRef) -> JobView:
    was_halted = view.state.phase is Phase.HALTED
    view = replace(_with(view, {"status": event.status}), status_reason=event.reason)
    if event.status not in {JobStatus.CANCELLED, JobStatus.EXPIRED}:
        return view
    terms = view.require_terms()
    if was_halted:
        view = _annul_audits(view)
    if event.reason == "OutOfAttempts":
        view = replace(view, due_credits=_due_credits(view))
    view = _publish_faults(view, block.timestamp + terms.dispute_seconds)
    view = _with(view, {"phase": Phase.CLOSED, "deadline": 0, "beacon_block": 0})
    return replace(view, closed_at=block.timestamp)


def _due_credits(view: JobView) -> tuple[DueCredit, ...]:
    """What the evidence alone supports when the attempts of a revealed round are used up."""
    state, work, terms = view.state, view.work, view.require_terms()
    if not state.revealed:
        return ()
    seats = state.revealed & ~state.rejected & work.replayed & ~work.disputed
    price = terms.tokens_per_step * terms.price_per_token
    due = [
        DueCredit(state.round, Role.PROVIDER, seat, work.seats[seat], view.steps[seat] * price)
        for seat in map(SeatIndex, bits(seats))
    ]
    for verifier in map(VerifierIndex, bits(state.verifiers & ~(work.absent | work.contradicted))):
        account = work.verifiers[verifier].account
        due.append(DueCredit(state.round, Role.VERIFIER, verifier, account, terms.verifier_fee))
    return tuple(due)


def _punished(view: JobView, event: ev.Punished, block: BlockRef) -> JobView:
    key = (event.round, event.offence, event.index)
    due = (f for f in view.due_faults if (f.round, f.offence, f.index) != key)
    return replace(view, due_faults=tuple(due))


def _credited(view: JobView, event: ev.Credited, block: BlockRef) -> JobView:
    due = list(view.due_credits)
    paid = (event.round, event.account, event.amount)
    match = next((c for c in due if (c.round, c.account, c.amount) == paid), None)
    if match is not None:
        due.remove(match)
    total = view.credits.get(event.account, 0) + event.amount
    return replace(view, due_credits=tuple(due), credits=put(view.credits, event.account, total))


_HANDLERS: Final[Mapping[type, Handler]] = {
    **MEMBERSHIP_HANDLERS,
    **DISPUTE_HANDLERS,
    ev.RoundOpened: _round_opened,
    ev.BeaconRearmed: _beacon_rearmed,
    ev.TrainStarted: _train_started,
    ev.Committed: _committed,
    ev.RevealStarted: _reveal_started,
    ev.Revealed: _revealed,
    ev.AuditArmed: _audit_armed,
    ev.AuditStarted: _audit_started,
    ev.Balloted: _balloted,
    ev.Reported: _reported,
    ev.ReportSeconded: _report_seconded,
    ev.ChallengeWithdrawn: _challenge_withdrawn,
    ev.ChallengeAnswered: _challenge_answered,
    ev.ConfirmStarted: _confirm_started,
    ev.Voted: _voted,
    ev.ReportResolved: _report_resolved,
    ev.CircuitBroken: _circuit_broken,
    ev.AttestStarted: _attest_started,
    ev.Attested: _attested,
    ev.RoundSettled: _round_settled,
    ev.RoundVoided: _round_voided,
    ev.RoundFinalised: _round_finalised,
    ev.JobStatusChanged: _job_status_changed,
    ev.Punished: _punished,
    ev.Credited: _credited,
}
