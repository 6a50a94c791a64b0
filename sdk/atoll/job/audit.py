"""A finished or running job, checked by anybody from public data: work, merges, money.

Rule of this file: what can be computed is computed, and compared with what the chain says. What
nobody serves any more is named, and neither right nor wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from atoll.chain.follower import Fold
from atoll.chain.log_store import LogFilter
from atoll.errors import ConfigError, NotFound, ProtocolError, StorageError
from atoll.job.figures import model_of
from atoll.job.followed import Tell, check_seat, untold
from atoll.job.handle import JobHandle
from atoll.job.ledger.json_document import money_document
from atoll.job.ledger.ledger import paid_seats
from atoll.job.recomputation import Recomputation
from atoll.protocol import events as ev
from atoll.protocol.audit_reports import AuditEntry
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import MergeRecord
from atoll.protocol.safety import unsafe_rounds
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import RoundIndex, SeatIndex, Verdict
from atoll.protocol.views import JobView
from atoll.service.duties.material import CHECK_DATA, CHECK_MACHINE, files_of
from atoll.service.duties.merge import MERGE_ROUND
from atoll.service.duties.replay_seat import REPLAY, replaying, wrong_tag_at
from atoll.service.update_limits import UNFETCHABLE_CONTENT
from atoll.service.worker import Worker
from atoll.train.checkpoints import release_job

if TYPE_CHECKING:
    from atoll.train.replay import SeatReplay

EQUAL, MISMATCH, GONE = "equal", "mismatch", "gone"
"""What a check came to; `GONE` where something that it needs is not served any more."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What is checked.

    Attributes:
        round: this one only; None for every settled round.
        seat: this one only; None for a sample.
        sample: so many seats a round, drawn at random; None for all of them.
    """

    round: int | None = None
    seat: int | None = None
    sample: int | None = 1


@dataclass(frozen=True, slots=True)
class SeatCheck:
    """A seat's round, trained again here.

    Attributes:
        outcome: EQUAL, MISMATCH or GONE; `why` says where, or what is gone.
        is_paid: whether it is paid for the round, as things stand.
        false_valid: auditors that said *valid* with other work tags than a replay gives, and are
            paid.
    """

    seat: SeatIndex
    outcome: str
    why: str
    is_paid: bool
    false_valid: tuple[str, ...] = ()

    @property
    def faults(self) -> list[str]:
        """What stands on the chain, and is not so."""
        who = f"seat {self.seat}"
        wrong = [
            f"auditor {auditor} said of {who} what it had not run" for auditor in self.false_valid
        ]
        if self.outcome == MISMATCH and self.is_paid:
            wrong.append(f"{who} is paid, and {self.why}")
        return wrong

    def text(self) -> str:
        """A few words."""
        if self.outcome == EQUAL:
            return f"seat {self.seat} equal"
        paid = "" if self.outcome == GONE or self.is_paid else ", and is not paid"
        return f"seat {self.seat}: {self.why}{paid}"


@dataclass(frozen=True, slots=True)
class RoundCheck:
    """A settled round.

    Attributes:
        is_told: the certificate and the round record are those that the events give.
        merge: EQUAL, MISMATCH or GONE; `why` says what differs, or what is gone.
        worked: how many seats trained anything, of which `seats` were trained again.
    """

    round: RoundIndex
    is_told: bool
    merge: str
    why: str
    seats: tuple[SeatCheck, ...]
    worked: int = 0

    @property
    def faults(self) -> list[str]:
        """What stands on the chain, and is not so."""
        wrong = [] if self.is_told else ["its certificate is not of what its events say"]
        wrong += [self.why] if self.merge == MISMATCH else []
        wrong += [fault for seat in self.seats for fault in seat.faults]
        return [f"round {self.round}: {fault}" for fault in wrong]

    @property
    def gaps(self) -> list[str]:
        """What could not be checked."""
        unchecked = [self.why] if self.merge == GONE else []
        unchecked += [seat.text() for seat in self.seats if seat.outcome == GONE]
        return [f"round {self.round}: {gap}" for gap in unchecked]

    def text(self) -> str:
        """A line."""
        certificate = "certificate fits" if self.is_told else "its certificate is not of its events"
        merge = "merge equal" if self.merge == EQUAL else self.why
        parts = [certificate, merge, *(seat.text() for seat in self.seats)]
        return f"round {self.round}: {'; '.join(parts)}"

    def to_json_value(self) -> dict[str, object]:
        """As JSON has it."""
        return {
            "round": self.round,
            "certificate": EQUAL if self.is_told else MISMATCH,
            "merge": self.merge,
            "why": self.why,
            "seats": [
                {
                    "seat": seat.seat,
                    "outcome": seat.outcome,
                    "why": seat.why,
                    "paid": seat.is_paid,
                    "false_valid": list(seat.false_valid),
                }
                for seat in self.seats
            ],
        }


@dataclass(frozen=True, slots=True)
class JobCheck:
    """A job: the rounds that were looked at, and its money.

    Attributes:
        money: as the ledger's document has it; its faults are those against the contract, too.
        unsafe: rounds of which more merged seats were slashed than the rule bears.
    """

    job: int
    rounds: tuple[RoundCheck, ...]
    money: Mapping[str, Any]
    unsafe: tuple[RoundIndex, ...] = ()

    @property
    def faults(self) -> list[str]:
        """What stands on the chain, and is not so."""
        in_rounds = [fault for settled_round in self.rounds for fault in settled_round.faults]
        return [*in_rounds, *(f"money: {fault}" for fault in self.money["faults"])]

    @property
    def gaps(self) -> list[str]:
        """What could not be checked."""
        return [gap for settled_round in self.rounds for gap in settled_round.gaps]

    def text(self) -> str:
        """What was found, and the verdict last."""
        faults, gaps = self.faults, self.gaps
        lines = [f"  mismatch: {fault}" for fault in faults]
        lines += [f"  unsafe: round {r} merged more cheats than it bears" for r in self.unsafe]
        lines += [f"  not checked: {gap}" for gap in gaps]
        head = f"{len(faults)} things differ" if faults else (
            f"nothing that was checked differs; {len(gaps)} things could not be checked"
            if gaps
            else "everything that was checked is so"
        )  # fmt: skip
        return "\n".join([*lines, f"job {self.job}: {head}: {self.covered}"])

    @property
    def covered(self) -> str:
        """How much was checked."""
        merges = sum(settled_round.merge != GONE for settled_round in self.rounds)
        seats = sum(
            seat.outcome != GONE for settled_round in self.rounds for seat in settled_round.seats
        )
        worked = sum(settled_round.worked for settled_round in self.rounds)
        return f"{merges} of {len(self.rounds)} merges, {seats} of {worked} seats' rounds"

    def to_json_value(self) -> dict[str, object]:
        """As JSON has it."""
        return {
            "job": self.job,
            "mismatches": self.faults,
            "not_checked": self.gaps,
            "covered": self.covered,
            "unsafe_rounds": list(self.unsafe),
            "rounds": [settled_round.to_json_value() for settled_round in self.rounds],
            "money": dict(self.money),
        }


async def audit(
    handle: JobHandle,
    extent: Extent,
    tell: Callable[[RoundCheck], None] = lambda _: None,
    announce: Tell = untold,
) -> JobCheck:
    """Checks a job's settled rounds, oldest first, and its money.

    Args:
        tell: is given each round as soon as it is checked.
        announce: is given what begins, a sentence each: anything may take minutes.

    Raises:
        ChainError: the chain has no such job.
        ConfigError: the job has no such seat, or the round is not settled.
        NotFound: nobody serves the manifest.
        NumericsMismatch: this machine does not come to the job's bits.
        RpcUnavailable: no endpoint has the last confirmed block's state of the contract.
    """
    # Both of one block, and now, while its state is still served: members are at work, and whoever
    # else follows the chain by this client reads on while this waits.
    ledger, block = await handle.ledger(), handle.client.session.follower.confirmed
    view = ledger.view
    _check_extent(view, extent)
    escrow = await handle.client.chain.escrow(handle.id, hex(block))
    money = money_document(ledger) | {"faults": ledger.faults_against(escrow)}
    rounds = [
        settled_round
        for settled_round in view.settled
        if extent.round in {None, settled_round.round}
    ]
    manifest, worker = await handle.manifest(), Worker()
    try:
        with handle.client.store.holding():
            announce(f"job {handle.id}: tries this machine's arithmetic")
            await worker.run(CHECK_MACHINE(manifest.to_bytes()))
            auditor = _Auditor(handle, view, manifest, worker, _unsettled(handle, view), announce)
            announce(f"job {handle.id}: fetches its data, to check {len(rounds)} of its rounds")
            await auditor.fetch_data()
            checks = []
            for settled_round in rounds:
                checks.append(await auditor.check(settled_round, extent))
                tell(checks[-1])
    finally:
        worker.kill()
        with suppress(StorageError):  # what it could not let go of, the next audit does
            await asyncio.to_thread(release_job, handle.client.store, handle.id)
    return JobCheck(handle.id, tuple(checks), money, unsafe_rounds(view))


def _check_extent(view: JobView, extent: Extent) -> None:
    """That there is what is to be checked: of nothing, all is so. Raises ConfigError."""
    if extent.seat is not None:
        check_seat(view, extent.seat)
    settled = [settled_round.round for settled_round in view.settled]
    if extent.round is not None and extent.round not in settled:
        raise ConfigError(
            f"round {extent.round} of job {view.job_id} is not settled: {len(settled)} rounds are",
            next_step=f"atoll job status {view.job_id}",
        )


class _Unusable(Exception):
    """What a round opened with: nobody serves it, or it is not what was certified."""

    def __init__(self, outcome: str, why: str) -> None:
        super().__init__(why)
        self.outcome, self.why = outcome, why


@dataclass(frozen=True, slots=True)
class _BeforeSettling:
    """What the events said of a round right before it was settled."""

    record: MergeRecord
    fits: bool


def _unsettled(handle: JobHandle, view: JobView) -> dict[RoundIndex, _BeforeSettling]:
    """The rounds as they stood when somebody settled them; folded once more, since views forget."""
    fold = Fold(handle.client.deployment, {handle.id})
    before_settling: dict[RoundIndex, _BeforeSettling] = {}
    before: JobView | None = None
    for item in handle.client.session.follower.history(LogFilter.of_job(handle.id)):
        event = item.event
        is_its = isinstance(event, ev.Settled) and event.job_id == handle.id
        if isinstance(event, ev.Settled) and is_its and before is not None:
            running = before.open
            if running is not None:
                signed = running.digest_of(event.verdict)
                fits = event.digest == signed or not any(event.digest)
                before_settling[event.round] = _BeforeSettling(running.merge_record, fits)
        before = fold.fold(item).view or before
    return before_settling


@dataclass
class _Auditor:
    """One audit.

    Attributes:
        models: CID of the global state that each round opens with, where we made it ourselves.
        data_gap: what of the job's data nobody serves.
    """

    handle: JobHandle
    view: JobView
    manifest: Manifest
    worker: Worker
    before_settling: Mapping[RoundIndex, _BeforeSettling]
    announce: Tell
    models: dict[int, bytes] = field(default_factory=dict)
    data_gap: str = ""

    @property
    def store(self) -> str:
        return str(self.handle.client.store.root)

    @property
    def recomputation(self) -> Recomputation:
        return Recomputation(self.handle, self.view, self.manifest, self.worker)

    async def fetch_data(self) -> None:
        """Brings the tokens and the initial weights; what is missing is remembered."""
        try:
            for cid, most in files_of(self.manifest):
                await self.recomputation.fetch(cid, most)
            await self.worker.run(CHECK_DATA(self.manifest.to_bytes(), self.store))
        except NotFound as error:
            self.data_gap = f"the job's data is not served any more: {error}"
        except (ProtocolError, *UNFETCHABLE_CONTENT) as error:
            self.data_gap = f"the job's data is not what its manifest says: {error}"

    async def check(self, settled_round: SettledRound, extent: Extent) -> RoundCheck:
        """One round: its certificate, its merge, and seats of it."""
        before = self.before_settling.get(settled_round.round)
        is_told = before is not None and before.fits and settled_round.is_consistent
        seats = _seats(settled_round, extent)
        self.announce(f"round {settled_round.round}: fetches its updates, and merges them again")
        try:
            initial_state = await self._initial_state(settled_round.round)
            merge, why = await self._merge(settled_round, before, initial_state)
        except _Unusable as gap:
            gone = tuple(self._seat(settled_round, seat, GONE, gap.why) for seat in seats)
            return RoundCheck(
                settled_round.round, is_told, gap.outcome, gap.why, gone, _worked(settled_round)
            )
        checks = []
        for number, seat in enumerate(seats, 1):
            which = (
                f"round {settled_round.round}: trains seat {seat} again ({number} of {len(seats)})"
            )
            self.announce(f"{which}, {settled_round.reveals[seat].segments} segments")
            checks.append(await self._replay(settled_round, seat, initial_state))
        return RoundCheck(
            settled_round.round, is_told, merge, why, tuple(checks), _worked(settled_round)
        )

    async def _initial_state(self, round: RoundIndex) -> bytes:
        """CID of the model that a round opened with, which is in the store and as certified.

        Raises _Unusable. Whoever certified the model named the address of its bytes with it.
        """
        if self.data_gap:
            raise _Unusable(GONE, self.data_gap)
        if round in self.models:
            return self.models[round]
        try:
            model = await self.recomputation.model(round)
        except NotFound as error:
            raise _Unusable(GONE, "the model that it opened with is not served any more") from error
        except (ProtocolError, *UNFETCHABLE_CONTENT) as error:
            raise _Unusable(MISMATCH, f"the certified address has no model: {error}") from error
        if not self.recomputation.is_certified(round, model):
            raise _Unusable(MISMATCH, "the certified address has another model")
        return model.cid

    async def _merge(
        self, settled_round: SettledRound, before: _BeforeSettling | None, initial_state: bytes
    ) -> tuple[str, str]:
        """The merge made again, from the updates."""
        if not any(settled_round.digest):
            stays = settled_round.verdict.state == model_of(self.view, settled_round.round)
            why = "without a certificate, the model stays"
            return (EQUAL, why) if stays else (MISMATCH, f"{why}, and did not")
        if before is None:
            return MISMATCH, "it was settled, and had not begun"
        try:
            command = await self.recomputation.merge_of(settled_round, before.record, initial_state)
        except NotFound as gone:
            return GONE, str(gone)
        recomputed = await self.worker.run(MERGE_ROUND(command, self.store))
        wrong = _compare(recomputed, settled_round.verdict)
        if not wrong:
            self.models[settled_round.round + 1] = recomputed.cid
        return (MISMATCH, f"merged again, {wrong}") if wrong else (EQUAL, "")

    async def _replay(
        self, settled_round: SettledRound, seat: SeatIndex, initial_state: bytes
    ) -> SeatCheck:
        """A seat's round, trained again from the model that it opened with."""
        command = replaying(self.view, settled_round, seat, self.manifest.to_bytes(), REPLAY)
        try:
            earlier = [
                replace(item, cid=await self._initial_state(item.round)) for item in command.earlier
            ]
        except _Unusable as gap:  # whose fault it is, that round's own check says
            return self._seat(
                settled_round, seat, GONE, f"of a round that it comes from: {gap.why}"
            )
        command = replace(command, earlier=tuple(earlier))
        replayed = await self.worker.run(REPLAY(command, initial_state, self.store))
        at, reveal = replayed.mismatch_at, settled_round.reveals[seat]
        if replayed.earlier is not None:
            what = f"its state comes from round {replayed.earlier}, which has a mismatch at {at}"
            return self._seat(settled_round, seat, MISMATCH, what)
        if at is not None:
            what = (
                "its update is another"
                if at == reveal.segments
                else f"it has a mismatch at segment {at}"
            )
            return self._seat(settled_round, seat, MISMATCH, what)
        wrong = wrong_tag_at(settled_round, seat, replayed.work_tags)
        if wrong is not None:
            return self._seat(settled_round, seat, MISMATCH, f"its work tag {wrong} is another")
        return self._seat(
            settled_round, seat, EQUAL, "", self._false_valid(settled_round, seat, replayed)
        )

    def _seat(
        self,
        settled_round: SettledRound,
        seat: SeatIndex,
        outcome: str,
        why: str,
        false_valid: tuple[str, ...] = (),
    ) -> SeatCheck:
        return SeatCheck(
            seat, outcome, why, seat in paid_seats(self.view, settled_round), false_valid
        )

    def _false_valid(
        self, settled_round: SettledRound, seat: SeatIndex, replayed: SeatReplay
    ) -> tuple[str, ...]:
        """Auditors that are paid for a *valid* which they did not replay."""
        wrong = []
        for auditor, body in settled_round.opened_reports.items():
            entry, account = body.of(seat), self.view.verifiers[auditor].account
            is_paid = entry is not None and (auditor, seat) not in settled_round.contests
            expected = AuditEntry.valid(seat, account, replayed.work_tags)
            if entry is not None and entry.is_valid and is_paid and entry != expected:
                wrong.append(str(account))
        return tuple(wrong)


def _worked(settled_round: SettledRound) -> int:
    """Seats that trained anything."""
    return sum(reveal.segments > 0 for reveal in settled_round.reveals.values())


def _seats(settled_round: SettledRound, extent: Extent) -> Sequence[SeatIndex]:
    """Which seats of a round are trained again."""
    worked = [seat for seat, reveal in sorted(settled_round.reveals.items()) if reveal.segments]
    if extent.seat is not None:
        return [seat for seat in worked if seat == extent.seat]
    if extent.sample is None or extent.sample >= len(worked):
        return worked
    # Nobody can know beforehand which ones.
    return sorted(SystemRandom().sample(worked, extent.sample))


def _compare(recomputed: Verdict, certified: Verdict) -> str:
    """What of a verdict is another; empty where nothing is. Where the model lies is no matter."""
    parts = {
        "seats were excluded": (recomputed.excluded, certified.excluded),
        "updates are merged": (recomputed.merged, certified.merged),
        "is the model": (recomputed.state, certified.state),
        "is the held-out loss": (recomputed.loss, certified.loss),
        "is the merge statement": (recomputed.statement, certified.statement),
    }
    wrong = [what for what, (mine, theirs) in parts.items() if mine != theirs]
    return "" if not wrong else f"other {', other '.join(wrong)}"
