"""Events of a job in sentences.

Rule of this file: pure; words and numbers out of `atoll.protocol`'s views and events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final

from atoll.protocol import events as ev
from atoll.protocol.audit_reports import AuditReport
from atoll.protocol.checkpoint_commitments import CHECKPOINT_COMMITMENT_BYTES
from atoll.protocol.events import ContractEvent
from atoll.protocol.game_records import parties, window_of
from atoll.protocol.games.game_machine import Outcome as GameOutcome
from atoll.protocol.games.moves import Claim
from atoll.protocol.owners import NOBODY
from atoll.protocol.token_units import whole_token
from atoll.protocol.types import (
    TOKEN,
    Address,
    MissedDuty,
    Role,
    bits,
)
from atoll.protocol.views import JobView


def concerns(event: ContractEvent, view: JobView) -> bool:
    """Whether an event is of this job; a game's says so by its number, a stake's not at all."""
    job = getattr(event, "job_id", None)
    if isinstance(event, ev.CrowdedOut):
        about = parties(event.claim)
        return about is not None and about[0] == view.job_id
    if job is None:
        return isinstance(event, _GAME) and event.id in view.games
    return bool(job == view.job_id)


_GAME: Final = (
    ev.Challenged,
    ev.Owed,
    ev.Began,
    ev.Decided,
    ev.Ended,
    ev.StepsOpened,
    ev.StepPicked,
    ev.TracePosted,
    ev.LayerRevealed,
    ev.Picked,
    ev.NodePicked,
    ev.TokenPicked,
    ev.LeafPosted,
)
Names = Callable[[Address], str]
"""What an account is called."""


def describe(event: ContractEvent, name: Names = str) -> str | None:
    """A sentence about an event of a job; None for what is of no job: stakes and gateways."""
    describer = _DESCRIBERS.get(type(event))
    return describer(event, name) if describer else None


def tokens(wei: int) -> str:
    """An amount in tokens of the network, exact to six places, for reading only."""
    return _to_six_places(wei, whole_token())


def coin(wei: int) -> str:
    """An amount in the chain's own coin, exact to six places, for reading only."""
    return _to_six_places(wei, TOKEN)


def _to_six_places(amount: int, whole_one: int) -> str:
    whole, part = divmod(amount, whole_one)
    fraction = f"{part * 10**6 // whole_one:06d}".rstrip("0")
    return f"{whole:,}.{fraction}" if fraction else f"{whole:,}"


def numbers(bitmap: int) -> str:
    """The seats or slots of a bitmap."""
    return ", ".join(map(str, bits(bitmap))) or "none"


def seats_text(bitmap: int, singular: str, plural: str) -> str:
    """The seats of a bitmap, and what is said of one or of several."""
    if bitmap.bit_count() == 1:
        return f"seat {numbers(bitmap)} {singular}"
    return f"seats {numbers(bitmap)} {plural}"


def rounds_text(count: int) -> str:
    """So many rounds."""
    return "1 round" if count == 1 else f"{count} rounds"


def words(member: IntEnum) -> str:
    """`HOLDER_LOST` as `holder lost`."""
    return member.name.lower().replace("_", " ")


MISSED_DUTIES: Final[Mapping[MissedDuty, str]] = {
    MissedDuty.SEAT: "a missing commit or reveal, or too little work",
    MissedDuty.KEY: "a key that it did not show",
    MissedDuty.SILENCE: "a vote that it did not cast",
    MissedDuty.AUDIT: "an audit that it excluded",
    MissedDuty.DIGEST: "work tags that only a guess could give",
    MissedDuty.DROPPED: "an accusation that it did not play",
    MissedDuty.EQUIVOCATED: "two certificates of one merge",
    MissedDuty.MISMERGED: "a merge that it signed and that the updates do not give",
}
"""What an account is penalised for."""
_OUTCOMES: Final[Mapping[GameOutcome, str]] = {
    GameOutcome.NONE: "is open",
    GameOutcome.HOLDER_LOST: "is lost by whom it is about",
    GameOutcome.CHALLENGER_LOST: "is lost by who began it",
    GameOutcome.SENT_HOME: "is not played, and its bond goes home",
}


# --- rounds ---


def _opened_round(event: ev.RoundOpened, name: Names) -> str:
    ready, committee = numbers(event.ready), numbers(event.committee)
    verifiers = f"slots {ready} are ready to audit, {committee} make the committee"
    return f"round {event.round}: {seats_text(event.seated, 'trains', 'train')}; {verifiers}"


def _revealed(event: ev.Revealed, name: Names) -> str:
    segments = len(event.reveal.checkpoint_commitments) // CHECKPOINT_COMMITMENT_BYTES
    return f"round {event.round}: seat {event.seat} reveals {segments} segments"


def _voted(event: ev.Voted, name: Names) -> str:
    has = f"slot {event.slot} has the updates of seats {numbers(event.has)}"
    return f"round {event.round}: {has}"


def _committee_drawn(event: ev.CommitteeDrawn, name: Names) -> str:
    late = f"round {event.round}: nobody settled in time"
    return (
        f"{late}; slots {numbers(event.committee)} are committee number {event.committee_draw + 1}"
    )


def _settled(event: ev.Settled, name: Names) -> str:
    verdict, available = (
        event.verdict,
        seats_text(event.available, "was available", "were available"),
    )
    if not any(event.digest):
        return f"round {event.round} is settled without a certificate: {available}, the model stays"
    out = f", {numbers(verdict.excluded)} excluded" if verdict.excluded else ""
    updates = "1 update makes" if verdict.merged == 1 else f"{verdict.merged} updates make"
    merged = f"{updates} model {verdict.state.hex()[:12]}"
    if not verdict.merged:
        merged = "no update is merged, so it moves nothing"
    return f"round {event.round} is settled: {available}{out}; {merged}"


def _stopped(event: ev.Stopped, name: Names) -> str:
    if any(event.root):
        why = "computed another model than was certified, and leaves without a missed duty"
    else:
        why = "was slashed, and is not waited for"
    return f"round {event.round}: {name(event.account)}, seat {event.seat}, {why}"


def _waiting(event: ev.Waiting, name: Names) -> str:
    missed = f"; {seats_text(event.missed, 'missed it', 'missed it')}" if event.missed else ""
    return f"round {event.round} waits for members{missed}"


def _closed(event: ev.Closed, name: Names) -> str:
    return f"the job is {words(event.status)} after {rounds_text(event.rounds)}"


# --- members ---


def _missed(event: ev.Missed, name: Names) -> str:
    cost = f"{name(event.account)} loses {tokens(event.penalty)} of its bond"
    return f"{cost} for {MISSED_DUTIES[event.kind]} in round {event.round}"


def _holder_slashed(event: ev.HolderSlashed, name: Names) -> str:
    bond = f"{name(event.account)} is slashed and loses {tokens(event.slashed)} of its bond"
    pay = f", and its pay from round {event.lost_from} on" if event.role is Role.PROVIDER else ""
    return f"{bond}{pay}; {name(event.winner)} gets a share of the bond"


# --- audits ---


def _opened(event: ev.Opened, name: Names) -> str:
    duties = body_of(event).entries
    valid = sum(1 << entry.seat for entry in duties if entry.is_valid)
    parts = [seats_text(valid, "is valid", "are valid")] if valid else []
    parts += [
        f"seat {entry.seat} has a mismatch at {entry.at}" for entry in duties if not entry.is_valid
    ]
    return f"round {event.round}: {name(event.account)} opens its audit report: {'; '.join(parts)}"


def body_of(event: ev.Opened) -> AuditReport:
    """The entries of an opened audit report."""
    return AuditReport.from_bytes(event.body)


def _leaked(event: ev.Leaked, name: Names) -> str:
    early = f"{name(event.by)} shows the key of seat {event.seat} before its time"
    return f"round {event.round}: {early}, which burns that round's pay"


def _contested(event: ev.Contested, name: Names) -> str:
    wrong = f"what the auditor with id {event.id} says of seat {event.seat} is wrong"
    return f"round {event.round}: {name(event.by)} shows that {wrong}"


def _contest_settled(event: ev.ContestSettled, name: Names) -> str:
    about = f"what the auditor with id {event.id} said of seat {event.seat}"
    end = "was wrong, and stays unpaid" if event.wrong else "is paid after all"
    return f"round {event.round}: {about} {end}"


# --- money ---


def _claimed(event: ev.Claimed, name: Names) -> str:
    burnt = f", and {tokens(event.burnt)} that it lost are burnt" if event.burnt else ""
    paid = f"{name(event.account)} is paid {tokens(event.amount)}"
    return f"{paid} for its rounds before {event.to}{burnt}"


def _burnt(event: ev.Burnt, name: Names) -> str:
    return f"{tokens(event.amount)} of pay that nobody gets are burnt, of rounds before {event.to}"


# --- games ---


def _challenged(event: ev.Challenged, name: Names) -> str:
    claim, about = event.claim, parties(event.claim)
    what = "the update" if claim.is_update_proof else f"segment {claim.segment}"
    whose = f"{what} of seat {claim.seat}"
    if about is not None and about[1] is Role.VERIFIER:
        whose = f"that {whose} is valid, as {name(claim.holder)} said"
    bond = f"with a bond of {tokens(event.bond)}"
    who = name(event.challenger)
    what = f"{whose}{through_round(claim)}"
    return f"round {claim.round}: {who} disputes {what}, {bond}: game {event.id}"


def through_round(claim: Claim) -> str:
    """The later round of its reset period by which a claim was reached, if it is another than its
    own.
    """
    window = window_of(claim)
    return "" if window == claim.round else f" through round {window}"


def disputed(claim: Claim) -> str:
    """What a game is about: the work, the round it was done in, and by which it was reached."""
    about = parties(claim)
    valid = "a valid entry about " if about is not None and about[1] is Role.VERIFIER else ""
    what = "the update" if claim.is_update_proof else f"segment {claim.segment}"
    return f"{valid}{what} of seat {claim.seat} in round {claim.round}{through_round(claim)}"


_DESCRIBERS: Final[dict[type[Any], Callable[[Any, Names], str]]] = {
    ev.RoundOpened: _opened_round,
    ev.Committed: lambda e, n: f"round {e.round}: seat {e.seat} has trained",
    ev.PhaseRepeated: lambda e, n: (
        f"round {e.round}: fewer than half of the seats were in time, so the phase goes on"
    ),
    ev.RevealOpened: lambda e, n: (
        f"round {e.round}: seats {numbers(e.committed)} committed; now they reveal"
    ),
    ev.Revealed: _revealed,
    ev.MergeOpened: lambda e, n: (
        f"round {e.round}: seats {numbers(e.revealed)} revealed; now they are merged"
    ),
    ev.AuditSeeded: lambda e, n: f"round {e.round}: who is audited, and by whom, is drawn",
    ev.Voted: _voted,
    ev.CommitteeDrawn: _committee_drawn,
    ev.Settled: _settled,
    ev.Signed: lambda e, n: f"round {e.round}: slots {numbers(e.signers)} have signed",
    ev.MergeStruck: lambda e, n: (
        f"round {e.round}: {n(e.by)} shows that the updates do not give what slots "
        f"{numbers(e.signers)} certified; the job ends"
    ),
    ev.Stopped: _stopped,
    ev.Waiting: _waiting,
    ev.PayChanged: lambda e, n: f"round {e.round}: now seats {numbers(e.pay)} are paid",
    ev.Closed: _closed,
    ev.Seated: lambda e, n: f"{n(e.account)} takes seat {e.seat} from round {e.start} on",
    ev.Retained: lambda e, n: f"{tokens(e.amount)} of it join the bond of {n(e.account)}",
    ev.Seasoned: lambda e, n: (
        f"{n(e.account)} has more to lose, so from round {e.start} on it is drawn "
        f"{2 ** (e.steps / 2):.3g} times as rarely as at first"
    ),
    ev.SeatLeaving: lambda e, n: f"{n(e.account)} leaves seat {e.seat} before round {e.to}",
    ev.Enrolled: lambda e, n: (
        f"{n(e.account)} takes slot {e.slot} of the verifiers, with a bond of {tokens(e.bond)}"
    ),
    ev.Ready: lambda e, n: f"{n(e.account)} holds the data and is ready",
    ev.SlotLeaving: lambda e, n: f"{n(e.account)} leaves slot {e.slot} before round {e.to}",
    ev.Missed: _missed,
    ev.HolderSlashed: _holder_slashed,
    ev.Released: lambda e, n: f"{n(e.account)} has what is left of its bond again",
    ev.AuditReportSealed: lambda e, n: f"round {e.round}: {n(e.account)} seals an audit report",
    ev.Opened: _opened,
    ev.KeyShown: lambda e, n: f"round {e.round}: {n(e.account)} shows its key",
    ev.Leaked: _leaked,
    ev.Contested: _contested,
    ev.Withheld: lambda e, n: (
        f"round {e.round}: game {e.game} is about seat {e.seat}, which the auditor with id {e.id} "
        "called valid, whose fee waits"
    ),
    ev.ContestSettled: _contest_settled,
    ev.Struck: lambda e, n: (
        f"round {e.round}: seat {e.seat} showed no key and loses that round's pay"
    ),
    ev.Excused: lambda e, n: (
        f"round {e.round}: {n(e.account)} audited nothing, as most others: one of its three excuses"
    ),
    ev.Dropped: lambda e, n: (
        f"round {e.round}: the auditor with id {e.id} did not play what it said of seat {e.seat}"
    ),
    ev.Proven: lambda e, n: (
        f"round {e.round}: seat {e.seat} has been slashed, so its accuser, with id {e.id}, is paid"
    ),
    ev.LateVote: lambda e, n: (
        f"round {e.round}: {n(e.account)} has the updates of seats {numbers(e.has)} by now"
    ),
    ev.JobCreated: lambda e, n: (
        f"created with {tokens(e.funded)} tokens for {rounds_text(e.terms.rounds)}"
    ),
    ev.JobFunded: lambda e, n: f"{n(e.funder)} adds {tokens(e.amount)} tokens",
    ev.CancelRequested: lambda e, n: "cancelled by its submitter, from the next round on",
    ev.Claimed: _claimed,
    ev.Credited: lambda e, n: f"{n(e.account)} is credited {tokens(e.amount)}",
    ev.CreditClaimed: lambda e, n: f"{n(e.account)} is paid its credit of {tokens(e.amount)}",
    ev.Burnt: _burnt,
    ev.Kept: lambda e, n: f"{tokens(e.amount)} wait: the payee of {n(e.account)} refuses them",
    ev.Collected: lambda e, n: f"{tokens(e.amount)} that waited go to {n(e.account)}'s payee",
    ev.OwnerProposed: lambda e, n: (
        f"{n(e.account)} takes its proposal of an owner back"
        if e.owner == NOBODY
        else f"{n(e.owner)} is proposed as owner of {n(e.account)}"
    ),
    ev.OwnerAccepted: lambda e, n: f"{n(e.owner)} owns {n(e.account)} now, and has its pay",
    ev.PayeeSet: lambda e, n: f"the pay of {n(e.account)} goes to {n(e.payee)}",
    ev.Refunded: lambda e, n: f"{tokens(e.amount)} unearned tokens go back to {n(e.to)}",
    ev.Challenged: _challenged,
    ev.CrowdedOut: lambda e, n: (
        f"{n(e.challenger)} would dispute round {e.claim.round} of seat {e.claim.seat}, but the"
        " queue is full"
    ),
    ev.Owed: lambda e, n: f"game {e.id} is owed: a drawn auditor said so of the seat",
    ev.Began: lambda e, n: f"game {e.id} begins, about {n(e.holder)}",
    ev.StepsOpened: lambda e, n: f"game {e.id}: {len(e.states)} states of its steps are shown",
    ev.StepPicked: lambda e, n: f"game {e.id}: step {e.step} is disputed",
    ev.TracePosted: lambda e, n: f"game {e.id}: the step's {e.nodes} operations are posted",
    ev.LayerRevealed: lambda e, n: f"game {e.id}: {len(e.layer)} nodes below are shown",
    ev.Picked: lambda e, n: f"game {e.id}: number {e.index} of level {e.level} is disputed",
    ev.NodePicked: lambda e, n: f"game {e.id}: the result of operation {e.node} is disputed",
    ev.TokenPicked: lambda e, n: f"game {e.id}: token {e.token} of the step's batch is disputed",
    ev.LeafPosted: lambda e, n: f"game {e.id}: the {len(e.leaf)} bytes in dispute are shown",
    ev.Decided: lambda e, n: f"game {e.id}: as the contract computes, it {_OUTCOMES[e.outcome]}",
    ev.Ended: lambda e, n: f"game {e.id} {_OUTCOMES[e.outcome]}",
}
