"""What an auditor runs: a seat's whole round again, from its public opening.

Rule of this file: nothing that the provider sent is an input but the number of segments that it
says to have done; its leaves and its update's root are only compared with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from atoll.bits.codec.grid import NonFiniteDeltaError
from atoll.bits.segment import Course, SegmentRun, run_segment
from atoll.bits.state import SeatState
from atoll.content.local import LocalStore
from atoll.law.ballots import Duty
from atoll.law.trace import Leaves
from atoll.law.words import ZERO_DIGEST, Address, Digest, SeatIndex
from atoll.train.round import SegmentRunner, TrainTask, train_round


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a seat revealed of its round."""

    leaves: Leaves
    update_root: Digest


@dataclass(frozen=True, slots=True)
class SeatReplay:
    """What the replay of a seat's round gave.

    Attributes:
        words: plain, of the segments that are as revealed.
        differs_at: the first segment that is not; their number for the link; None for nothing.
        own: our closing digest there, or our update's root.
        seconds: wall time of the steps.
    """

    words: tuple[Digest, ...]
    differs_at: int | None
    own: Digest
    seconds: float

    def duty(self, seat: SeatIndex, account: Address) -> Duty:
        """What a ballot says of it."""
        if self.differs_at is None:
            return Duty.fine(seat, account, self.words)
        return Duty(seat, self.differs_at, self.own)


class _Differs(Exception):
    """A segment is not what was revealed; everything behind it follows from something else."""

    def __init__(self, segment: int, own: Digest) -> None:
        super().__init__(segment)
        self.segment, self.own = segment, own


def replay_seat(
    task: TrainTask, claimed: Claimed, store: LocalStore, run: SegmentRunner = run_segment
) -> SeatReplay:
    """Runs as many segments as the seat says to have done, and its link.

    Raises:
        NotFound, CorruptBlock, MalformedState, MalformedDataset: something is missing or damaged
            here; that is nobody's fault.
    """
    words: list[Digest] = []
    seconds = 0.0

    def compared(state: SeatState, segment: int, course: Course) -> SegmentRun:
        nonlocal seconds
        done = run(state, segment, course)
        seconds += done.seconds
        if done.digest != claimed.leaves.items[segment].state:
            raise _Differs(segment, done.digest)
        words.append(done.work_word)
        return done

    told = claimed.leaves.segments
    try:
        own = train_round(replace(task, segments=told), store, run=compared).update_root
    except _Differs as found:
        return SeatReplay(tuple(words), found.segment, found.own, seconds)
    except NonFiniteDeltaError:  # nothing follows from a state that the steps did not make
        own = ZERO_DIGEST
    at = None if own == claimed.update_root else told
    return SeatReplay(tuple(words), at, own, seconds)
