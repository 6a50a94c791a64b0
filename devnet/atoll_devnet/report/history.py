"""What happened to one job, kept for the report: folded from events, like the view beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from atoll.law import events as ev
from atoll.law.words import (
    NO_SEGMENT,
    Address,
    BlockRef,
    Fault,
    JobStatus,
    Offence,
    Outcome,
    bits,
)

OFFENCES = {
    Offence.SEAT_MISSED: "the chain: no commit or reveal",
    Offence.REPORT: "the vote on a report",
    Offence.VERIFIER_MISSED: "the chain: absent",
    Offence.VERIFIER_CONTRADICTED: "the others' votes: contradicted",
}
"""What `punish` was about, for a person."""
PHASES = ("train", "reveal", "audit", "attest", "settle")


@dataclass(slots=True)
class Rejection:
    """Why a seat's round was not accepted; `found_by` is a verifier's index, None for the chain."""

    seat: int
    fault: Fault
    segment: int | None
    found_by: int | None


@dataclass(slots=True)
class RoundRecord:
    """One round, all its attempts together; `seconds` by phase, in the chain's time."""

    round: int
    status: str = "running"
    attempts: int = 1
    accepted: list[int] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)
    merged_digest: str = ""
    merged_cid: bytes = b""
    seconds: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))
    started: int = 0
    ended: int = 0
    verdicts: dict[int, str] = field(default_factory=dict)
    """Verdict hash that each verifier attested to in the last attempt."""
    voids: list[str] = field(default_factory=list)
    reveals: dict[int, ev.Revealed] = field(default_factory=dict)
    last_attested: int = 0
    _phase: str = ""
    _since: int = 0

    def enter(self, phase: str, at: int) -> None:
        """The clock runs for another phase; an empty one stops it."""
        if self._phase:
            self.seconds[self._phase] += at - self._since
        self._phase, self._since = phase, at


@dataclass(slots=True)
class History:
    """One job's story.

    Attributes:
        paid: wei claimed, by account.
        slashed: wei, by account.
        credited: wei paid from evidence alone, by account.
        attested: rounds that settled with the account's attestation to the settled verdict.
        findings: segments claimed as replayed, by account.
    """

    job_id: int
    rounds: dict[int, RoundRecord] = field(default_factory=dict)
    paid: dict[Address, int] = field(default_factory=lambda: defaultdict(int))
    slashed: dict[Address, int] = field(default_factory=lambda: defaultdict(int))
    credited: dict[Address, int] = field(default_factory=lambda: defaultdict(int))
    attested: dict[Address, int] = field(default_factory=lambda: defaultdict(int))
    findings: dict[Address, int] = field(default_factory=lambda: defaultdict(int))
    offences: dict[Address, list[tuple[int, str]]] = field(default_factory=dict)
    """Rounds and reasons for which each account was punished."""
    falls: list[ev.Fell] = field(default_factory=list)
    """Games that providers lost, in their order."""
    refunded: int | None = None
    """Wei; None until the refund, which may be of nothing."""
    status: JobStatus = JobStatus.NONE
    status_reason: str = ""
    circuit_broken: list[int] = field(default_factory=list)
    _seated: int = 0
    _committed: int = 0
    _revealed: int = 0
    _reports: dict[int, ev.Reported] = field(default_factory=dict)
    _attesters: dict[int, Address] = field(default_factory=dict)

    def fold(self, event: ev.ContractEvent, block: BlockRef) -> None:
        """Folds one event; those of other jobs are passed over."""
        if isinstance(event, ev.Slashed):
            self.slashed[event.account] += event.amount
            return
        if getattr(event, "job_id", None) != self.job_id:
            return
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event, block)

    def round(self, index: int) -> RoundRecord:
        """The record of a round, new where there is none."""
        return self.rounds.setdefault(index, RoundRecord(index))

    def _train(self, event: ev.TrainStarted, block: BlockRef) -> None:
        record = self.round(event.round)
        record.started = record.started or block.timestamp
        record.enter("train", block.timestamp)
        self._seated, self._reports = event.seated, {}
        record.reveals.clear()

    def _reveal(self, event: ev.RevealStarted, block: BlockRef) -> None:
        self.round(event.round).enter("reveal", block.timestamp)
        self._committed = event.committed
        self._miss(event.round, self._seated & ~event.committed, Fault.NO_COMMIT)

    def _revealed_one(self, event: ev.Revealed, block: BlockRef) -> None:
        self.round(event.round).reveals[event.seat] = event

    def _armed(self, event: ev.AuditArmed, block: BlockRef) -> None:
        record = self.round(event.round)
        record.enter("audit", block.timestamp)
        record.attempts = max(record.attempts, event.attempt + 1)
        self._revealed = event.revealed
        self._attesters = {}
        self._miss(event.round, self._committed & ~event.revealed, Fault.NO_REVEAL)

    def _miss(self, round_: int, seats: int, fault: Fault) -> None:
        record = self.round(round_)
        known = {(item.seat, item.fault) for item in record.rejected}
        new = [seat for seat in bits(seats) if (seat, fault) not in known]
        record.rejected += [Rejection(seat, fault, None, None) for seat in new]

    def _ballot(self, event: ev.Balloted, block: BlockRef) -> None:
        count = sum(len(bits(finding.segments)) for finding in event.findings)
        self.findings[event.account] += count

    def _reported(self, event: ev.Reported, block: BlockRef) -> None:
        self._reports[event.index] = event

    def _resolved(self, event: ev.ReportResolved, block: BlockRef) -> None:
        reported = self._reports.get(event.index)
        if reported is None or event.outcome not in {Outcome.CONFIRMED, Outcome.UNFETCHABLE}:
            return
        report = reported.report
        unfetchable = event.outcome is Outcome.UNFETCHABLE
        segment = None if report.segment == NO_SEGMENT else int(report.segment)
        fault = Fault.WITHHELD if unfetchable else report.fault
        self.round(event.round).rejected.append(
            Rejection(report.seat, fault, segment, reported.verifier)
        )

    def _attested(self, event: ev.Attested, block: BlockRef) -> None:
        record = self.round(event.round)
        record.verdicts[event.verifier] = event.verdict_hash.hex()
        self._attesters[event.verifier] = event.account
        record.last_attested = block.timestamp

    def _settled(self, event: ev.RoundSettled, block: BlockRef) -> None:
        record = self.round(event.round)
        record.enter("settle", record.last_attested or block.timestamp)
        record.enter("", block.timestamp)
        record.status, record.ended = "settled", block.timestamp
        record.merged_digest = event.verdict.merged_digest.hex()
        record.merged_cid = event.verdict.merged_cid
        settled_hash = event.verdict_hash.hex()
        for verifier, account in self._attesters.items():
            if record.verdicts.get(verifier) == settled_hash:
                self.attested[account] += 1

    def _evidence(self, event: ev.AttestStarted, block: BlockRef) -> None:
        record = self.round(event.round)
        record.enter("attest", block.timestamp)
        record.accepted = bits(event.accepted)
        record.verdicts.clear()

    def _voided(self, event: ev.RoundVoided, block: BlockRef) -> None:
        record = self.round(event.round)
        record.voids.append(event.reason)
        record.enter("", block.timestamp)

    def _final(self, event: ev.RoundFinalised, block: BlockRef) -> None:
        self.round(event.round).status = "final"

    def _broken(self, event: ev.CircuitBroken, block: BlockRef) -> None:
        self.circuit_broken.append(event.round)
        self.round(event.round).status = "halted"

    def _status(self, event: ev.JobStatusChanged, block: BlockRef) -> None:
        self.status, self.status_reason = event.status, event.reason
        if event.status is JobStatus.EXPIRED:
            for record in self.rounds.values():
                if record.status == "running":
                    record.enter("", block.timestamp)
                    record.status, record.ended = "expired", block.timestamp

    def _punished(self, event: ev.Punished, block: BlockRef) -> None:
        if event.amount:
            reason = OFFENCES[event.offence]
            self.offences.setdefault(event.account, []).append((event.round, reason))

    def _fell(self, event: ev.Fell, block: BlockRef) -> None:
        self.falls.append(event)

    def _claimed(self, event: ev.Claimed, block: BlockRef) -> None:
        self.paid[event.account] += event.amount

    def _credited(self, event: ev.Credited, block: BlockRef) -> None:
        self.credited[event.account] += event.amount

    def _refunded(self, event: ev.Refunded, block: BlockRef) -> None:
        self.refunded = (self.refunded or 0) + event.amount


_HANDLERS: dict[type, Callable[[History, Any, BlockRef], None]] = {
    ev.TrainStarted: History._train,
    ev.RevealStarted: History._reveal,
    ev.Revealed: History._revealed_one,
    ev.AuditArmed: History._armed,
    ev.Balloted: History._ballot,
    ev.Reported: History._reported,
    ev.ReportResolved: History._resolved,
    ev.AttestStarted: History._evidence,
    ev.Attested: History._attested,
    ev.RoundSettled: History._settled,
    ev.RoundVoided: History._voided,
    ev.RoundFinalised: History._final,
    ev.CircuitBroken: History._broken,
    ev.JobStatusChanged: History._status,
    ev.Punished: History._punished,
    ev.Fell: History._fell,
    ev.Claimed: History._claimed,
    ev.Credited: History._credited,
    ev.Refunded: History._refunded,
}
