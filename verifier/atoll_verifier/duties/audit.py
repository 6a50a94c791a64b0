"""An auditor's part: replays, the sealed audit report, its opening, and what it accuses of.

Rule of this file: everything is of settled rounds, of which several run at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.protocol.audit_reports import AuditReport, audit_report_hash, salt_message
from atoll.protocol.checkpoint_commitments import key_of
from atoll.protocol.game_records import pay_position
from atoll.protocol.games.game_machine import Outcome as GameOutcome
from atoll.protocol.obligations import Duty, Obligation, accused, games_about
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Digest, HolderId, Role, RoundIndex
from atoll.protocol.views import JobView
from atoll.service.commands import ContractCall, Work
from atoll.service.duties.challenge import SendChallenge, may_challenge, one_at_a_time
from atoll.service.duties.material import DataReady, DoFetchData, spec_of
from atoll.service.duties.replay_seat import replayed, replaying, wrong_tag_at
from atoll.service.entries import Done, Entry
from atoll.service.machine import AnyCommand, Decision
from atoll_verifier.behaviour import VerifierState

if TYPE_CHECKING:
    from atoll.service.effects import Effects

SEAL_PART: Final = 6
"""So large a part of AUDIT is left when what is replayed by then is sealed."""


@dataclass(frozen=True, slots=True)
class AuditReportSealed(Entry):
    """What we say of a round's duties; nobody knows it before it is opened."""

    kind: ClassVar[str] = "audit-report-sealed.v1"
    body: bytes
    salt: Digest


@dataclass(frozen=True, slots=True)
class SealAuditReport(Work[AuditReportSealed]):
    """Decide what is said, once: the last audit report counts, and another could not be opened."""

    kind: ClassVar[str] = "seal-audit-report.v1"
    round: RoundIndex
    audit_seed: Digest
    holder: HolderId
    body: bytes

    @property
    def about(self) -> tuple[object, ...]:
        return _about(self.round, self.audit_seed, self.holder)

    async def perform(self, effects: Effects, view: JobView) -> Done[AuditReportSealed]:
        """The salt follows from our account's key: a lost disk loses no audit report."""
        message = salt_message(view.round_id(self.round), self.audit_seed, self.holder)
        return Done(AuditReportSealed(self.body, key_of(effects.context.sign(message))))


@dataclass(frozen=True, slots=True)
class SendAuditReport(ContractCall):
    """Sent again where a reorg brought it into a block before the settlement: there it is void."""

    kind: ClassVar[str] = "commit-audit-report.v1"
    round: RoundIndex
    audit_report: Digest

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.seal_audit_report(view.job_id, self.round, self.audit_report)


@dataclass(frozen=True, slots=True)
class SendOpen(ContractCall):
    kind: ClassVar[str] = "open-audit-report.v1"
    once: ClassVar[bool] = True
    round: RoundIndex
    holder: HolderId
    sealed: AuditReportSealed

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.holder, self.sealed.salt)

    def call(self, calls: Calls, view: JobView) -> Call:
        settled_round, body = view.settled[self.round], AuditReport.from_bytes(self.sealed.body)
        return calls.about(settled_round).open_audit_report(self.holder, body, self.sealed.salt)


def _about(round: RoundIndex, seed: Digest, holder: HolderId) -> tuple[object, ...]:
    return (round, seed, holder)


# --- decisions ---


def decide_audit(state: VerifierState, owed: tuple[Obligation, ...]) -> Decision:
    """What an auditor owes now, the most urgent round first."""
    wanted: list[AnyCommand] = []
    for due in owed:
        settled_round = state.view.settled_round(due.round)
        if settled_round is None:
            continue
        if due.duty is Duty.AUDIT_REPORT:
            wanted += _audit_report(state, settled_round, due)
        elif due.duty is Duty.OPEN:
            wanted += _open(state, settled_round, due)
        elif due.duty is Duty.CHALLENGE:
            wanted += _challenge(state, settled_round, due)
    for settled_round in state.view.auditing(state.now):
        wanted += _again(state, settled_round)
        wanted += _pushed_out(state, settled_round)
    wanted += _wrong_work_tags(state)
    return Decision("audit", f"{len(wanted)} things to do", one_at_a_time(state, wanted))


def _audit_report(
    state: VerifierState, settled_round: SettledRound, owed: Obligation
) -> list[AnyCommand]:
    seed, behaviour = settled_round.record.audit_seed, state.setup.behaviour
    sealed = state.entries.of(SealAuditReport, *_about(settled_round.round, seed, owed.holder))
    if sealed is not None:
        body = AuditReport.from_bytes(sealed.body).hash
        audit_report = audit_report_hash(
            settled_round.round_id, seed, owed.holder, state.me, body=body, salt=sealed.salt
        )
        sent = behaviour.sent_audit_report(settled_round, audit_report)
        return [] if sent is None else [SendAuditReport(settled_round.round, sent)]
    return _sealing(state, settled_round, owed)


def _pushed_out(state: VerifierState, settled_round: SettledRound) -> list[AnyCommand]:
    """Our accusations that came into a queue and were sent home: to have challenged keeps our bond,
    and only a game that is won earns the fee.
    """
    view, clock, wanted = state.view, settled_round.clock, list[AnyCommand]()
    for id, report in settled_round.opened_reports.items():
        if view.verifiers[id].account != state.me or not clock.takes_challenges(state.now):
            continue
        for entry in report.entries:
            seat, holder = entry.seat, settled_round.seats[entry.seat]
            if entry.is_valid or view.providers[holder].is_slashed:
                continue
            position = pay_position(view.job_id, Role.PROVIDER, holder, settled_round.round)
            games = games_about(view, accused(settled_round, position, state.me, entry))
            if games and all(game.outcome is GameOutcome.SENT_HOME for game in games):
                end = clock.window_end
                about = Obligation(
                    Duty.CHALLENGE, settled_round.round, end, id, (seat,), at=entry.at
                )
                wanted += _challenge(state, settled_round, about)
    return wanted


def _again(state: VerifierState, settled_round: SettledRound) -> list[AnyCommand]:
    """Finds the audit report again that is on the chain, where the journal is lost; and replaces
    one that could not be opened, as of another audit seed, which a reorg has left there.
    """
    holder = state.view.auditor_of(settled_round, state.me)
    if (
        holder is None
        or holder not in settled_round.audit_reports
        or not settled_round.clock.is_auditing(state.now)
    ):
        return []
    seats = settled_round.duties_of(holder)
    owed = Obligation(Duty.OPEN, settled_round.round, settled_round.clock.open_end, holder, seats)
    audit_report = _audit_report(state, settled_round, owed)
    on_chain = SendAuditReport(settled_round.round, settled_round.audit_reports[holder])
    return [command for command in audit_report if command != on_chain] if seats else []


def _sealing(
    state: VerifierState, settled_round: SettledRound, owed: Obligation
) -> list[AnyCommand]:
    """The replays, and what is sealed of them: all, or late in AUDIT those that are done."""
    seed, behaviour = settled_round.record.audit_seed, state.setup.behaviour
    replays = {seat: replayed(state, settled_round, seat) for seat in owed.seats}
    missing = [seat for seat, replay in replays.items() if replay is None]
    entries = tuple(replay.entry for replay in replays.values() if replay is not None)
    is_late = (
        state.now >= settled_round.clock.audit_end - _left(settled_round)
        and owed.duty is Duty.AUDIT_REPORT
    )
    if (not missing or is_late) and entries:
        body_said = behaviour.audit_report_override(state.view, AuditReport(entries)).to_bytes()
        return [SealAuditReport(settled_round.round, seed, owed.holder, body_said)]
    spec, function = spec_of(state.entries), behaviour.replay_function
    if spec is None:
        return []
    return [replaying(state.view, settled_round, seat, spec, function) for seat in missing]


def _left(settled_round: SettledRound) -> int:
    return (settled_round.clock.audit_end - settled_round.clock.settled_at) // SEAL_PART


def _open(state: VerifierState, settled_round: SettledRound, owed: Obligation) -> list[AnyCommand]:
    about = _about(settled_round.round, settled_round.record.audit_seed, owed.holder)
    sealed = state.entries.of(SealAuditReport, *about)
    if state.setup.behaviour.skips_opening(state.view):
        return []
    if sealed is None:  # another journal had it: what a whole replay gives again is the same
        return _sealing(state, settled_round, owed)
    return [SendOpen(settled_round.round, owed.holder, sealed)]


def _wrong_work_tags(state: VerifierState) -> list[AnyCommand]:
    """Challenges of work_tags that a key has shown to be false since.

    Who masks false work_tags would have our *valid* be wrong: only its slash saves our fee.
    """
    spec, data = spec_of(state.entries), state.entries.of(DoFetchData)
    if spec is None or not isinstance(data, DataReady):
        return []
    if not state.setup.behaviour.may_accuse(state.view):
        return []
    wanted: list[AnyCommand] = []
    view = state.view
    for settled_round in view.auditing(state.now):
        for seat, revealed in settled_round.reveals.items():
            replay = replayed(state, settled_round, seat)
            at = None if replay is None else wrong_tag_at(settled_round, seat, replay.work_tags)
            slashed = view.providers[revealed.holder].is_slashed
            is_open = settled_round.clock.takes_challenges(state.now) and not slashed
            if at is None or not is_open:
                continue
            challenge = SendChallenge(settled_round.round, seat, at, spec, data.initial)
            if may_challenge(state, settled_round, challenge):
                wanted.append(challenge)
    return wanted


def _challenge(
    state: VerifierState, settled_round: SettledRound, owed: Obligation
) -> list[AnyCommand]:
    spec, data, (seat,) = spec_of(state.entries), state.entries.of(DoFetchData), owed.seats
    if spec is None or not isinstance(data, DataReady):
        return []
    if not state.setup.behaviour.may_accuse(state.view):
        return []
    challenge = SendChallenge(settled_round.round, seat, owed.at, spec, data.initial, owed=True)
    replay = replayed(state, settled_round, seat)
    if replay is None and owed.at == 0:
        # Another journal had it. Which round of the reset period is false is in no audit report,
        # and whoever challenges a true one is slashed.
        again = replaying(
            state.view, settled_round, seat, spec, state.setup.behaviour.replay_function
        )
        if again.earlier:
            return [again]
    if replay is not None and replay.earlier is not None:
        round, at = replay.earlier
        challenge = replace(challenge, round=round, at=at, through_round=settled_round.round)
    return [challenge] if may_challenge(state, settled_round, challenge) else []
