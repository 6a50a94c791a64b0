"""Events as sentences: what a person who watches a run reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from atoll.law import events as ev
from atoll.law.words import NO_SEGMENT, Address, Fault, JobStatus, Outcome, bits
from atoll_devnet.report.history import OFFENCES

ETHER = 10**18
Names = Callable[[Address], str]
"""An account's name in this network."""


def tell(event: ev.ContractEvent, name: Names) -> str | None:
    """One line about an event; None for those that a watcher does not need."""
    teller = _TELLERS.get(type(event))
    return None if teller is None else teller(event, name)


def coins(wei: int) -> str:
    """An amount for a person; reports carry the wei."""
    return f"{wei / ETHER:,.4f}".rstrip("0").rstrip(".")


def seats(bitmap: int) -> str:
    """The seats of a bitmap, for a person."""
    return ", ".join(map(str, bits(bitmap))) or "none"


def fault_name(fault: Fault) -> str:
    """`WRONG_REPLAY` as `wrong replay`."""
    return fault.name.lower().replace("_", " ")


def _where(report: Any) -> str:
    place = "" if report.segment == NO_SEGMENT else f", segment {report.segment}"
    return f"seat {report.seat}: {fault_name(report.fault)}{place}"


def _round(event: Any) -> str:
    again = f" (attempt {event.attempt + 1})" if event.attempt else ""
    return f"round {event.round}{again}"


def _train(event: ev.TrainStarted, name: Names) -> str:
    return f"{_round(event)}: seats {seats(event.seated)} train"


def _reveal(event: ev.RevealStarted, name: Names) -> str:
    return f"{_round(event)}: seats {seats(event.committed)} committed; now they reveal"


def _audit(event: ev.AuditStarted, name: Names) -> str:
    return (
        f"{_round(event)}: audit of seats {seats(event.audit_set)}, {event.auditors} verifiers each"
    )


def _ballot(event: ev.Balloted, name: Names) -> str:
    parts = [f"{item.seat}:{seats(item.segments).replace(' ', '')}" for item in event.findings]
    what = f"segments {'  '.join(parts)} match" if parts else "nothing that matches"
    return f"{_round(event)}: {name(event.account)} replayed; {what}"


def _attest(event: ev.AttestStarted, name: Names) -> str:
    rest = f"; rejected {seats(event.rejected)}" if event.rejected else ""
    rest += f"; unresolved {seats(event.unresolved)}" if event.unresolved else ""
    return f"{_round(event)}: accepted {seats(event.accepted)}{rest}"


def _slashed(event: ev.Slashed, name: Names) -> str:
    return f"slashed: {name(event.account)} loses {coins(event.amount)}"


def _punished(event: ev.Punished, name: Names) -> str:
    why = OFFENCES[event.offence]
    return f"punished: {name(event.account)} for round {event.round}, {why}: {coins(event.amount)}"


def _status(event: ev.JobStatusChanged, name: Names) -> str:
    if event.status is JobStatus.OPEN:
        return "the job is open"
    reason = f": {event.reason}" if event.reason else ""
    return f"the job is {event.status.name.lower()}{reason}"


def _resolved(event: ev.ReportResolved, name: Names) -> str:
    words = {
        Outcome.CONFIRMED: "confirmed",
        Outcome.REFUTED: "refuted",
        Outcome.UNFETCHABLE: "confirmed: nobody could fetch it",
        Outcome.ANSWERED: "answered: the block came late, and the segment is sound",
    }
    return f"{_round(event)}: report {event.index} {words.get(event.outcome, 'unresolved')}"


_TELLERS: dict[type, Callable[[Any, Names], str | None]] = {
    ev.ProviderSeated: lambda e, n: f"{n(e.account)} takes seat {e.seat}",
    ev.ProviderUnseated: lambda e, n: f"{n(e.account)} loses seat {e.seat}: {e.reason}",
    ev.VerifierReady: lambda e, n: f"{n(e.account)} holds the data and is ready",
    ev.VerifierLeft: lambda e, n: f"{n(e.account)} left: {e.reason}",
    ev.TrainStarted: _train,
    ev.Committed: lambda e, n: f"{_round(e)}: seat {e.seat} committed",
    ev.RevealStarted: _reveal,
    ev.AuditStarted: _audit,
    ev.Balloted: _ballot,
    ev.Reported: lambda e, n: f"{_round(e)}: verifier {e.verifier} reports {_where(e.report)}",
    ev.ChallengeWithdrawn: lambda e, n: (
        f"{_round(e)}: verifier {e.verifier} has the block of report {e.index} now"
    ),
    ev.ChallengeAnswered: lambda e, n: (
        f"{_round(e)}: {n(e.account)} puts the block of report {e.index} on the chain"
    ),
    ev.ConfirmStarted: lambda e, n: f"{_round(e)}: everyone replays what was reported",
    ev.ReportResolved: _resolved,
    ev.AttestStarted: _attest,
    ev.RoundSettled: lambda e, n: (
        f"{_round(e)}: settled, model {e.verdict.merged_digest.hex()[:12]}"
    ),
    ev.RoundVoided: lambda e, n: f"{_round(e)}: void ({e.reason})",
    ev.CircuitBroken: lambda e, n: (
        f"{_round(e)}: halted, too many seats {seats(e.rejected)} at once"
    ),
    ev.Slashed: _slashed,
    ev.Punished: _punished,
    ev.Claimed: lambda e, n: f"paid: {n(e.account)} receives {coins(e.amount)}",
    ev.Credited: lambda e, n: f"credited: {n(e.account)} {coins(e.amount)}",
    ev.Refunded: lambda e, n: f"refunded: {n(e.to)} gets {coins(e.amount)} back",
    ev.JobStatusChanged: _status,
}
