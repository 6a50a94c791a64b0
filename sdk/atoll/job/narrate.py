"""A job as a person reads it: where it stands, and what just happened.

Rule of this file: pure; words and numbers out of `atoll.law`'s views and events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from atoll.law import events as ev
from atoll.law.events import ContractEvent
from atoll.law.views import JobView
from atoll.law.words import (
    NO_SEGMENT,
    BlockRef,
    Digest,
    JobId,
    JobStatus,
    Offence,
    Outcome,
    Phase,
    bits,
)

ENDED = frozenset({JobStatus.DONE, JobStatus.CANCELLED, JobStatus.EXPIRED})
TOKEN = 10**18


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
        return self.status in ENDED

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


def describe(event: ContractEvent) -> str | None:
    """A sentence about an event of a job; None for events that only machines care about."""
    describer = _DESCRIBERS.get(type(event))
    return describer(event) if describer else None


def tokens(wei: int) -> str:
    """An amount in whole tokens, exact to six places, for reading only."""
    whole, part = divmod(wei, TOKEN)
    fraction = f"{part // 10**12:06d}".rstrip("0")
    return f"{whole}.{fraction}" if fraction else str(whole)


def _numbers(bitmap: int) -> str:
    return ", ".join(str(index) for index in bits(bitmap)) or "none"


def _reported(event: ev.Reported) -> str:
    report = event.report
    place = "" if report.segment == NO_SEGMENT else f" in segment {report.segment}"
    fault = report.fault.name.lower().replace("_", " ")
    return f"verifier {event.verifier} reports seat {report.seat}: {fault}{place}"


def _resolved(event: ev.ReportResolved) -> str:
    meaning = {
        Outcome.OPEN: "is open",
        Outcome.CONFIRMED: "is confirmed",
        Outcome.REFUTED: "is refuted",
        Outcome.UNRESOLVED: "stays unresolved",
        Outcome.UNFETCHABLE: "is confirmed: the data was withheld",
        Outcome.ANSWERED: "was answered on the chain",
        Outcome.WITHDRAWN: "was taken back",
    }
    return f"report {event.index} {meaning[event.outcome]}"


def _punished(event: ev.Punished) -> str:
    cause = {
        Offence.SEAT_MISSED: "missing a commit or reveal",
        Offence.REPORT: "a decided report",
        Offence.VERIFIER_MISSED: "an absent verifier",
        Offence.VERIFIER_CONTRADICTED: "a contradicted verifier",
    }[event.offence]
    return f"{event.account} loses {tokens(event.amount)} for {cause} in round {event.round}"


_DESCRIBERS: dict[type[Any], Callable[[Any], str]] = {
    ev.JobCreated: lambda e: f"created with {tokens(e.funded)} tokens for {e.terms.rounds} rounds",
    ev.JobFunded: lambda e: f"{e.funder} adds {tokens(e.amount)} tokens",
    ev.JobStatusChanged: lambda e: f"the job is {e.status.name.lower()} ({e.reason})",
    ev.CancelRequested: lambda e: "cancelled by its submitter, from the next round on",
    ev.ProviderSeated: lambda e: f"{e.account} takes seat {e.seat}",
    ev.ProviderQueued: lambda e: f"{e.account} waits for a seat",
    ev.ProviderUnseated: lambda e: f"{e.account} leaves seat {e.seat} ({e.reason})",
    ev.VerifierJoined: lambda e: f"{e.account} joins as verifier {e.verifier}",
    ev.VerifierReady: lambda e: f"verifier {e.verifier} holds the data",
    ev.VerifierLeft: lambda e: f"verifier {e.verifier} leaves ({e.reason})",
    ev.TrainStarted: lambda e: f"round {e.round}: seats {_numbers(e.seated)} train",
    ev.Committed: lambda e: f"round {e.round}: seat {e.seat} has trained",
    ev.RevealStarted: lambda e: f"round {e.round}: training ends",
    ev.Revealed: lambda e: f"round {e.round}: seat {e.seat} reveals {e.reveal.steps} steps",
    ev.AuditStarted: lambda e: f"round {e.round}: seats {_numbers(e.audit_set)} are audited",
    ev.Balloted: lambda e: f"round {e.round}: verifier {e.verifier} has audited",
    ev.Reported: _reported,
    ev.ChallengeWithdrawn: lambda e: f"verifier {e.verifier} has the block of report {e.index} now",
    ev.ChallengeAnswered: lambda e: f"{e.account} puts the block of report {e.index} on the chain",
    ev.ReportResolved: _resolved,
    ev.AttestStarted: lambda e: (
        f"round {e.round}: accepted {_numbers(e.accepted)}; rejected {_numbers(e.rejected)}"
    ),
    ev.RoundSettled: lambda e: f"round {e.round} is settled: {e.verdict.tokens_total} tokens",
    ev.RoundVoided: lambda e: f"round {e.round}, attempt {e.attempt} is void ({e.reason})",
    ev.CircuitBroken: lambda e: f"halted: seats {_numbers(e.rejected)} all look wrong",
    ev.RoundFinalised: lambda e: f"round {e.round} is final and its pay can be claimed",
    ev.Punished: _punished,
    ev.Credited: lambda e: f"{e.account} is credited {tokens(e.amount)}",
    ev.Claimed: lambda e: f"{e.account} is paid {tokens(e.amount)}",
    ev.Refunded: lambda e: f"{tokens(e.amount)} unearned tokens go back to {e.to}",
}
