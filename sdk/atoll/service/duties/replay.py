"""Replays a seat's settled round whole, with what it comes from: an auditor's duty, anyone's right.

Rule of this file: nothing is fetched from the provider. The model is certified, the data are the
manifest's, and what was revealed is on the chain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeVar

import structlog

from atoll.protocol.audit_reports import Duty
from atoll.protocol.leaves import Leaves
from atoll.protocol.manifest import Manifest
from atoll.protocol.reset_periods import earlier_rounds
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.views import JobView
from atoll.protocol.words import Digest, RoundIndex, SeatIndex, Slot
from atoll.service.commands import Work
from atoll.service.duties.model import model_of_round
from atoll.service.facts import Done, Fact
from atoll.service.machine import State
from atoll.service.task import Task

if TYPE_CHECKING:
    from atoll.service.effects import Effects
    from atoll.train.replay import SeatReplay

S = TypeVar("S")
Replay: TypeAlias = "Task[[DoReplay, bytes, str], SeatReplay]"
"""A worker's function that replays a seat."""
REPLAY: Final[Replay] = Task("replay-seat.v1", "atoll.service.tasks")
log = structlog.get_logger("atoll.replay")


@dataclass(frozen=True, slots=True)
class SeatReplayed(Fact):
    """What our replay of a seat's round gave.

    Attributes:
        duty: what an audit report of ours says of it.
        words: the work tags of the segments that are as revealed.
        earlier: the round of the reset period that is not as revealed, and where it is not; None
        where
            none before this one is.
    """

    kind: ClassVar[str] = "replayed.v1"
    duty: Duty
    words: tuple[Digest, ...]
    seconds: float
    earlier: tuple[RoundIndex, int] | None = None


@dataclass(frozen=True, slots=True)
class EarlierSaid:
    """What the seat revealed of a round of the reset period that its state comes from.

    Attributes:
        model: digest of what the round opened from, as certified; None in round 0. `cid` is where
            that is, once it is in the store.
    """

    round: RoundIndex
    data_seed: Digest
    leaves: bytes
    update_root: Digest
    model: Digest | None
    cid: bytes = b""


@dataclass(frozen=True, slots=True)
class DoReplay(Work[SeatReplayed]):
    """Replay one seat's round.

    Attributes:
        commitment: names what was revealed: `leaves` (as revealed) and `update_root`.
        model: digest of what the round opened from, as certified; None in round 0.
        function: the worker's function that replays.
        earlier: the rounds that the seat's state comes from, the oldest first.
    """

    kind: ClassVar[str] = "replay.v1"
    slot: Slot
    seat: SeatIndex
    commitment: Digest
    data_seed: Digest
    leaves: bytes
    update_root: Digest
    model: Digest | None
    manifest: bytes
    function: Replay = REPLAY
    earlier: tuple[EarlierSaid, ...] = ()

    @property
    def about(self) -> tuple[object, ...]:
        return (self.slot.round, self.seat, self.commitment)

    async def perform(self, effects: Effects, view: JobView) -> Done[SeatReplayed]:
        where = {"job": view.job_id, "round": self.slot.round, "seat": self.seat}
        model = await model_of_round(effects, view, self.slot.round, self.manifest)
        cids = [await model_of_round(effects, view, e.round, self.manifest) for e in self.earlier]
        found_at = zip(self.earlier, cids, strict=True)
        earlier = tuple(replace(one, cid=cid) for one, cid in found_at)
        log.info("replays", **where, segments=self._told, earlier_rounds=len(earlier))
        call = self.function(replace(self, earlier=earlier), model, effects.store_dir)
        due = view.settled[self.slot.round].clock.audit_end
        found = await effects.work(call, due=due)
        segments = len(found.words) + (found.differs_at == len(found.words) < self._told)
        steps = segments * Manifest.from_bytes(self.manifest).inner.segment
        measures = {"replayed_segments": segments, "replayed_steps": steps}
        for name, value in (*measures.items(), ("replay_seconds", found.seconds)):
            effects.context.journal.measure(view.job_id, self.slot.round, name, value)
        duty = found.duty(self.seat, effects.context.me)
        before = None
        if found.earlier is not None and found.differs_at is not None:
            before = (found.earlier, found.differs_at)
            log.info("differs", **where, what=f"segment {before[1]} of round {before[0]}")
        elif duty.is_fine:
            log.info("agrees", **where, seconds=round(found.seconds, 1))
        else:
            what = "its update" if duty.at == self._told else f"segment {duty.at}"
            log.info("differs", **where, what=what)
        return Done(SeatReplayed(duty, found.words, found.seconds, before))

    @property
    def _told(self) -> int:
        """Segments that the seat says to have done."""
        return Leaves.from_bytes(self.leaves).segments


def replaying(
    view: JobView, past: SettledRound, seat: SeatIndex, manifest: bytes, function: Replay
) -> DoReplay:
    """The replay of a seat's settled round."""
    told, slot = past.reveals[seat], past.slot
    reveal = told.reveal
    model = past.facts.model if past.round else None
    said = (past.facts.seed, reveal.leaves, reveal.update_root, model)
    earlier = _earlier(view, past, seat, manifest)
    return DoReplay(slot, seat, told.commitment, *said, manifest, function, earlier)


def _earlier(
    view: JobView, past: SettledRound, seat: SeatIndex, manifest: bytes
) -> tuple[EarlierSaid, ...]:
    job, holder = Manifest.from_bytes(manifest), past.reveals[seat].holder
    found = []
    for round in earlier_rounds(view, job, past.round, seat, holder):
        before = view.settled[round]
        reveal = before.reveals[seat].reveal
        model = before.facts.model if round else None
        said = (reveal.leaves, reveal.update_root, model)
        found.append(EarlierSaid(round, before.facts.seed, *said))
    return tuple(found)


def replayed(state: State[S], past: SettledRound, seat: SeatIndex) -> SeatReplayed | None:
    """What our replay of it gave, once it is done."""
    return state.facts.of(DoReplay, past.round, seat, past.reveals[seat].commitment)


def wrong_word_at(past: SettledRound, seat: SeatIndex, words: tuple[Digest, ...]) -> int | None:
    """The first segment whose word, under the key that the seat has shown, is not our replay's.

    None before there is a key, and where it is not the one that the seat had committed to.
    """
    told, key = past.reveals[seat], past.key_of(seat)
    if key is None or seat in past.leaks:
        return None
    pairs = enumerate(zip(words, told.words(key), strict=False))
    return next((segment for segment, (ours, theirs) in pairs if ours != theirs), None)
