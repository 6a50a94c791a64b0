"""A job as a person reads it: where it stands, and what just happened.

Rule of this file: pure; words and numbers out of `atoll.law`'s views and events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from atoll.law import events as ev
from atoll.law.events import ContractEvent
from atoll.law.games.machine import Outcome as GameOutcome
from atoll.law.views import JobView
from atoll.law.words import (
    NO_SEGMENT,
    TOKEN,
    Address,
    BlockRef,
    Digest,
    JobId,
    JobStatus,
    Offence,
    Outcome,
    Phase,
    bits,
)


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """Where a job stands at a block.

    Attributes:
        reason: why the status is what it is, in the contract's word; empty at first.
        deadline: unix seconds at which the phase ends; 0 where it waits for members or a block.
        providers, verifiers: how many hold a place now.
        settled_rounds: merged into the model; `final_rounds`: also paid.
        funded_wei, earned_wei: paid in; earned by settled work and credits.
        merged_digest, merged_cid: of the model after the last settled round.
    """

    job: JobId
    status: JobStatus
    reason: str
    phase: Phase
    round: int
    rounds: int
    attempt: int
    deadline: int
    providers: int
    verifiers: int
    settled_rounds: int
    final_rounds: int
    funded_wei: int
    earned_wei: int
    refunded_wei: int
    merged_digest: Digest | None
    merged_cid: bytes | None
    block: BlockRef

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will be trained."""
        return self.status.is_closed

    @classmethod
    def of(cls, view: JobView) -> JobSnapshot:
        """The snapshot of a view. Raises ProtocolError before the job exists."""
        state, last = view.state, view.settled[-1] if view.settled else None
        return cls(
            job=view.job_id,
            status=state.status,
            reason=view.status_reason,
            phase=state.phase,
            round=state.round,
            rounds=view.require_terms().rounds,
            attempt=state.attempt,
            deadline=state.deadline,
            providers=len(view.seats),
            verifiers=len(view.verifiers),
            settled_rounds=len(view.settled),
            final_rounds=view.final_rounds,
            funded_wei=view.funded,
            earned_wei=state.cumulative_total + sum(view.credits.values()),
            refunded_wei=view.refunded,
            merged_digest=last.verdict.merged_digest if last else None,
            merged_cid=last.verdict.merged_cid if last else None,
            block=view.block,
        )


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """One thing that happened in a job.

    Attributes:
        kind: name of the contract's event, or "Rewound" where a reorg took updates back.
        text: a sentence about it.
        event: the event itself; None for "Rewound".
        snapshot: where the job stands after it.
    """

    kind: str
    text: str
    block: BlockRef
    event: ContractEvent | None
    snapshot: JobSnapshot


def is_about(update: JobUpdate, seat: int) -> bool:
    """Whether an update names that seat, or holds for all of them."""
    event = update.event
    if isinstance(event, ev.Reported):
        return event.report.seat == seat
    if isinstance(event, ev.Balloted):
        return any(finding.seat == seat for finding in event.findings)
    bitmaps = [getattr(event, name, None) for name in _SEAT_BITMAPS]
    named = [bitmap for bitmap in bitmaps if isinstance(bitmap, int)]
    if named:
        return any(bitmap >> seat & 1 for bitmap in named)
    mine = getattr(event, "seat", None)
    return mine is None or mine == seat


_SEAT_BITMAPS = ("seated", "committed", "audit_set", "accepted", "rejected", "unresolved")

Names = Callable[[Address], str]
"""What an account is called."""


def describe(event: ContractEvent, name: Names = str) -> str | None:
    """A sentence about an event of a job; None for events that only machines care about."""
    describer = _DESCRIBERS.get(type(event))
    return describer(event, name) if describer else None


def tokens(wei: int) -> str:
    """An amount in whole tokens, exact to six places, for reading only."""
    whole, part = divmod(wei, TOKEN)
    fraction = f"{part * 10**6 // TOKEN:06d}".rstrip("0")
    return f"{whole:,}.{fraction}" if fraction else f"{whole:,}"


def numbers(bitmap: int) -> str:
    """The seats, segments or members of a bitmap."""
    return ", ".join(map(str, bits(bitmap))) or "none"


def words(member: IntEnum) -> str:
    """`WRONG_REPLAY` as `wrong replay`."""
    return member.name.lower().replace("_", " ")


OFFENCES: Mapping[Offence, str] = {
    Offence.SEAT_MISSED: "a missing commit or reveal",
    Offence.REPORT: "a decided report",
    Offence.VERIFIER_MISSED: "a verifier's absence",
    Offence.VERIFIER_CONTRADICTED: "a verdict or vote that the others contradict",
}
"""What a punishment is for."""


def _round(event: Any) -> str:
    again = f" (attempt {event.attempt + 1})" if event.attempt else ""
    return f"round {event.round}{again}"


def _status(event: ev.JobStatusChanged, name: Names) -> str:
    reason = f" ({event.reason})" if event.reason else ""
    return f"the job is {words(event.status)}{reason}"


def _balloted(event: ev.Balloted, name: Names) -> str:
    parts = [f"{item.seat}: {numbers(item.segments)}" for item in event.findings]
    what = f"these segments match: {'; '.join(parts)}" if parts else "nothing that matches"
    return f"{_round(event)}: {name(event.account)} has audited; {what}"


def _reported(event: ev.Reported, name: Names) -> str:
    report = event.report
    place = "" if report.segment == NO_SEGMENT else f" in segment {report.segment}"
    what = f"seat {report.seat}: {words(report.fault)}{place}"
    return f"{_round(event)}: verifier {event.verifier} reports {what}"


def _resolved(event: ev.ReportResolved, name: Names) -> str:
    meaning = {
        Outcome.OPEN: "is open",
        Outcome.CONFIRMED: "is confirmed",
        Outcome.REFUTED: "is refuted",
        Outcome.UNRESOLVED: "stays unresolved",
        Outcome.UNFETCHABLE: "is confirmed: the data was withheld",
        Outcome.ANSWERED: "was answered on the chain, and the segment is sound",
        Outcome.WITHDRAWN: "was taken back",
    }
    return f"{_round(event)}: report {event.index} {meaning[event.outcome]}"


def _attesting(event: ev.AttestStarted, name: Names) -> str:
    rest = f"; unresolved {numbers(event.unresolved)}" if event.unresolved else ""
    sides = f"accepted {numbers(event.accepted)}; rejected {numbers(event.rejected)}"
    return f"{_round(event)}: {sides}{rest}"


def _settled(event: ev.RoundSettled, name: Names) -> str:
    verdict = event.verdict
    model = verdict.merged_digest.hex()[:12]
    return f"{_round(event)} is settled: {verdict.tokens_total:,} tokens of text, model {model}"


def _punished(event: ev.Punished, name: Names) -> str:
    cost = f"{name(event.account)} loses {tokens(event.amount)}"
    return f"{cost} for {OFFENCES[event.offence]} in round {event.round}"


def _challenged(event: ev.Challenged, name: Names) -> str:
    claim = event.claim
    what = "the update" if claim.is_link else f"segment {claim.segment}"
    who, bond = name(event.challenger), tokens(event.bond)
    return f"round {claim.round}: {who} disputes {what} of seat {claim.seat} with a bond of {bond}"


def _ended(event: ev.Ended, name: Names) -> str:
    meaning = {
        GameOutcome.NONE: "is open",
        GameOutcome.HOLDER_FELL: "is lost by the provider",
        GameOutcome.CHALLENGER_FELL: "is lost by the challenger",
        GameOutcome.SENT_HOME: "is not played",
    }
    return f"game {event.id} {meaning[event.outcome]}"


def _fell(event: ev.Fell, name: Names) -> str:
    cost = f"loses {tokens(event.slashed)} and its pay of {tokens(event.withheld)}"
    return f"round {event.round}: {name(event.account)}, seat {event.seat}, {cost}"


_DESCRIBERS: dict[type[Any], Callable[[Any, Names], str]] = {
    ev.JobCreated: lambda e, n: (
        f"created with {tokens(e.funded)} tokens for {e.terms.rounds} rounds"
    ),
    ev.JobFunded: lambda e, n: f"{n(e.funder)} adds {tokens(e.amount)} tokens",
    ev.JobStatusChanged: _status,
    ev.CancelRequested: lambda e, n: "cancelled by its submitter, from the next round on",
    ev.ProviderSeated: lambda e, n: f"{n(e.account)} takes seat {e.seat}",
    ev.ProviderQueued: lambda e, n: f"{n(e.account)} waits for a seat",
    ev.ProviderUnseated: lambda e, n: f"{n(e.account)} leaves seat {e.seat} ({e.reason})",
    ev.VerifierJoined: lambda e, n: f"{n(e.account)} joins as verifier {e.verifier}",
    ev.VerifierReady: lambda e, n: f"{n(e.account)} holds the data and is ready",
    ev.VerifierLeft: lambda e, n: f"{n(e.account)} leaves ({e.reason})",
    ev.TrainStarted: lambda e, n: f"{_round(e)}: seats {numbers(e.seated)} train",
    ev.Committed: lambda e, n: f"{_round(e)}: seat {e.seat} has trained",
    ev.RevealStarted: lambda e, n: (
        f"{_round(e)}: seats {numbers(e.committed)} committed; now they reveal"
    ),
    ev.Revealed: lambda e, n: f"{_round(e)}: seat {e.seat} reveals {e.reveal.steps} steps",
    ev.AuditStarted: lambda e, n: (
        f"{_round(e)}: seats {numbers(e.audit_set)} are audited, each by {e.auditors} verifiers"
    ),
    ev.Balloted: _balloted,
    ev.Reported: _reported,
    ev.ChallengeWithdrawn: lambda e, n: (
        f"{_round(e)}: verifier {e.verifier} has the block of report {e.index} now"
    ),
    ev.ChallengeAnswered: lambda e, n: (
        f"{_round(e)}: {n(e.account)} puts the block of report {e.index} on the chain"
    ),
    ev.ConfirmStarted: lambda e, n: f"{_round(e)}: everyone replays what was reported",
    ev.ReportResolved: _resolved,
    ev.AttestStarted: _attesting,
    ev.RoundSettled: _settled,
    ev.RoundVoided: lambda e, n: f"{_round(e)} is void ({e.reason})",
    ev.CircuitBroken: lambda e, n: f"{_round(e)}: halted, {numbers(e.rejected)} all look wrong",
    ev.RoundFinalised: lambda e, n: f"round {e.round} is final and its pay can be claimed",
    ev.Punished: _punished,
    ev.Credited: lambda e, n: f"{n(e.account)} is credited {tokens(e.amount)}",
    ev.Claimed: lambda e, n: f"{n(e.account)} is paid {tokens(e.amount)}",
    ev.Challenged: _challenged,
    ev.Began: lambda e, n: f"game {e.id} begins: {n(e.holder)} shows its steps",
    ev.Ended: _ended,
    ev.Fell: _fell,
    ev.PayReturned: lambda e, n: f"{tokens(e.amount)} withheld tokens are the submitter's again",
    ev.Refunded: lambda e, n: f"{tokens(e.amount)} unearned tokens go back to {n(e.to)}",
}
