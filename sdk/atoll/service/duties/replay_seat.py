"""Replays a seat's settled round whole, with what it comes from: an auditor's duty, anyone's right.

Rule of this file: nothing that decides is fetched from the provider. The model is certified, the
data are the manifest's, and what was revealed is on the chain. What a seat says it sampled is in
its update, and is checked: without it the same takes longer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeVar

import structlog

from atoll.errors import AtollError
from atoll.protocol.audit_reports import AuditEntry
from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.protocol.manifest import Manifest
from atoll.protocol.reset_periods import earlier_rounds
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Digest, RoundId, RoundIndex, SeatIndex
from atoll.protocol.views import JobView
from atoll.service.commands import Work
from atoll.service.duties.fetch_model import model_of_round
from atoll.service.entries import Done, Entry
from atoll.service.machine import State
from atoll.service.task import Task
from atoll.service.update_limits import UNFETCHABLE_CONTENT, max_update_bytes
from atoll.storage.cid import Cid

if TYPE_CHECKING:
    from atoll.service.effects import Effects
    from atoll.train.replay import SeatReplay

S = TypeVar("S")
Replay: TypeAlias = "Task[[DoReplay, bytes, str], SeatReplay]"
"""A worker's function that replays a seat."""
IDS_PART: Final = 8
"""So large a part of AUDIT is waited for what a seat says it sampled: making it takes the rest."""
REPLAY: Final[Replay] = Task("replay-seat.v1", "atoll.service.tasks")
log = structlog.get_logger("atoll.replay")


@dataclass(frozen=True, slots=True)
class SeatReplayed(Entry):
    """What our replay of a seat's round gave.

    Attributes:
        entry: what an audit report of ours says of it.
        work_tags: the work tags of the segments that are as revealed.
        earlier: the round of the reset period that is not as revealed, and where it is not; None
            where none before this one is.
    """

    kind: ClassVar[str] = "replayed.v1"
    entry: AuditEntry
    work_tags: tuple[Digest, ...]
    seconds: float
    earlier: tuple[RoundIndex, int] | None = None


@dataclass(frozen=True, slots=True)
class EarlierSaid:
    """What the seat revealed of a round of the reset period that its state comes from.

    Attributes:
        model: digest of what the round opened from, as certified; None in round 0. `cid` is where
            that is, once it is in the store.
        update: where the seat's update should be; empty where a job samples nothing.
    """

    round: RoundIndex
    data_seed: Digest
    checkpoint_commitments: bytes
    update_root: Digest
    model: Digest | None
    cid: bytes = b""
    update: bytes = b""


@dataclass(frozen=True, slots=True)
class DoReplay(Work[SeatReplayed]):
    """Replay one seat's round.

    Attributes:
        commitment: names what was revealed: `checkpoint_commitments` (as revealed) and
            `update_root`.
        model: digest of what the round opened from, as certified; None in round 0.
        function: the worker's function that replays.
        earlier: the rounds that the seat's state comes from, the oldest first.
        update: as in these.
    """

    kind: ClassVar[str] = "replay.v1"
    round_id: RoundId
    seat: SeatIndex
    commitment: Digest
    data_seed: Digest
    checkpoint_commitments: bytes
    update_root: Digest
    model: Digest | None
    manifest: bytes
    function: Replay = REPLAY
    earlier: tuple[EarlierSaid, ...] = ()
    update: bytes = b""

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round_id.round, self.seat, self.commitment)

    async def perform(self, effects: Effects, view: JobView) -> Done[SeatReplayed]:
        where = {"job": view.job_id, "round": self.round_id.round, "seat": self.seat}
        model = await model_of_round(effects, view, self.round_id.round, self.manifest)
        cids = [await model_of_round(effects, view, e.round, self.manifest) for e in self.earlier]
        found_at = zip(self.earlier, cids, strict=True)
        earlier = tuple(replace(start, cid=cid) for start, cid in found_at)
        await self._get_updates(effects, view)
        log.info("replays", **where, segments=self._segments_said, earlier_rounds=len(earlier))
        call = self.function(replace(self, earlier=earlier), model, effects.store_dir)
        due = view.settled[self.round_id.round].clock.audit_end
        work = await effects.work(call, due=due)
        segments = len(work.work_tags) + (
            work.mismatch_at == len(work.work_tags) < self._segments_said
        )
        steps = segments * Manifest.from_bytes(self.manifest).inner.segment
        measures = {"replayed_segments": segments, "replayed_steps": steps}
        for name, value in (*measures.items(), ("replay_seconds", work.seconds)):
            effects.context.journal.measure(view.job_id, self.round_id.round, name, value)
        entry = work.entry(self.seat, effects.context.me)
        before = None
        if work.earlier is not None and work.mismatch_at is not None:
            before = (work.earlier, work.mismatch_at)
            log.info("mismatch", **where, what=f"segment {before[1]} of round {before[0]}")
        elif entry.is_valid:
            log.info("agrees", **where, seconds=round(work.seconds, 1))
        else:
            what = "its update" if entry.at == self._segments_said else f"segment {entry.at}"
            log.info("mismatch", **where, what=what)
        return Done(SeatReplayed(entry, work.work_tags, work.seconds, before))

    async def _get_updates(self, effects: Effects, view: JobView) -> None:
        """Brings the ids that spare the generation. Who withholds them is replayed without."""
        limit = max_update_bytes(Manifest.from_bytes(self.manifest))
        patience = view.require_terms().audit_seconds / IDS_PART
        for update in (self.update, *(earlier.update for earlier in self.earlier)):
            if not update:
                continue
            try:
                async with asyncio.timeout(patience):
                    await effects.fetch(view, self.round_id.round, Cid.from_bytes(update), limit)
            except (*UNFETCHABLE_CONTENT, AtollError, TimeoutError) as error:
                log.info("replays without ids", job=view.job_id, cause=str(error))

    @property
    def _segments_said(self) -> int:
        """Segments that the seat says to have done."""
        return CheckpointCommitments.from_bytes(self.checkpoint_commitments).segments


def replaying(
    view: JobView, settled_round: SettledRound, seat: SeatIndex, manifest: bytes, function: Replay
) -> DoReplay:
    """The replay of a seat's settled round."""
    revealed, round_id = settled_round.reveals[seat], settled_round.round_id
    reveal = revealed.reveal
    model = settled_round.record.model if settled_round.round else None
    commitments = (
        settled_round.record.seed,
        reveal.checkpoint_commitments,
        reveal.update_root,
        model,
    )
    earlier = _earlier(view, settled_round, seat, manifest)
    samples = Manifest.from_bytes(manifest).task is not None
    update = reveal.update_cid if samples else b""
    return DoReplay(
        round_id, seat, revealed.commitment, *commitments, manifest, function, earlier, update
    )


def _earlier(
    view: JobView, settled_round: SettledRound, seat: SeatIndex, manifest: bytes
) -> tuple[EarlierSaid, ...]:
    job, holder = Manifest.from_bytes(manifest), settled_round.reveals[seat].holder
    earlier = []
    for round in earlier_rounds(view, job, settled_round.round, seat, holder):
        before = view.settled[round]
        reveal = before.reveals[seat].reveal
        model = before.record.model if round else None
        commitments = (reveal.checkpoint_commitments, reveal.update_root, model)
        update = reveal.update_cid if job.task is not None else b""
        earlier.append(EarlierSaid(round, before.record.seed, *commitments, update=update))
    return tuple(earlier)


def replayed(state: State[S], settled_round: SettledRound, seat: SeatIndex) -> SeatReplayed | None:
    """What our replay of it gave, once it is done."""
    return state.entries.of(
        DoReplay, settled_round.round, seat, settled_round.reveals[seat].commitment
    )


def wrong_tag_at(
    settled_round: SettledRound, seat: SeatIndex, work_tags: tuple[Digest, ...]
) -> int | None:
    """The first segment whose work_tag, under the key that the seat has shown, is not our replay's.

    None before there is a key, and where it is not the one that the seat had committed to.
    """
    revealed, key = settled_round.reveals[seat], settled_round.key_of(seat)
    if key is None or seat in settled_round.leaks:
        return None
    pairs = enumerate(zip(work_tags, revealed.work_tags(key), strict=False))
    return next((segment for segment, (ours, theirs) in pairs if ours != theirs), None)
