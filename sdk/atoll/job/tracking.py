"""A job's curves in an experiment tracker, while it runs.

Rule of this file: a round is logged once, in its order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, Final, TypeAlias

from atoll.job.figures import RoundFigures
from atoll.job.followed import FollowedJob
from atoll.job.job_update import JobUpdate
from atoll.job.ledger.history_rows import RoundHistory, SeatHistory
from atoll.job.trackers import Tracker, TrackerName, open_tracker

Track: TypeAlias = Callable[[JobUpdate | RoundFigures], Awaitable[None]]
"""Takes what `FollowedJob.follow` tells."""
ROUND_VALUES: Final = (
    "loss", "reward", "length", "spread", "held_out_reward", "tokens", "total_tokens", "seconds",
    "cost", "total_cost", "revealed", "merged",
)  # fmt: skip
SEAT_VALUES: Final = ("segments", "tokens", "seconds", "paid")


@asynccontextmanager
async def tracking(job: FollowedJob, tracker: TrackerName | None) -> AsyncIterator[Track]:
    """Has a tracker told what of a followed job is news to it; without one there is no news.

    What it takes is told by `FollowedJob.follow`, until the job is over.

    Raises:
        ConfigError: the tracker's library is not installed.
        ChainError: the chain has no such job.
    """
    if tracker is None:
        yield _untracked
        return
    view = await job.view()
    terms, names = view.require_terms(), ("rounds", "seats", "segments", "tokens_per_step")
    config = {"job": int(job.id), "chain_id": view.domain.chain_id}
    config |= {name: getattr(terms, name) for name in names}
    rounds = _Rounds(job, open_tracker(tracker, f"job-{job.id}", config))
    try:
        yield rounds.take
        await rounds.look(is_over=True)
    finally:
        rounds.close()


async def _untracked(item: JobUpdate | RoundFigures) -> None:
    del item


class _Rounds:
    """Gives each settled round to a tracker once, as soon as its loss is known, or will not be: a
    committee certifies it with the next round.
    """

    def __init__(self, job: FollowedJob, tracker: Tracker) -> None:
        self._job, self._tracker = job, tracker
        self._logged = 0

    async def take(self, item: JobUpdate | RoundFigures) -> None:
        """Looks at the job's history where what is told may complete a round.

        What an old job's log tells of its first rounds completes none: the first look takes all.
        """
        if _complete(item) > self._logged:
            await self.look()

    def close(self) -> None:
        self._tracker.close()

    async def look(self, *, is_over: bool = False) -> None:
        """Logs the rounds that are complete; where the job is over all are."""
        rounds = [row for row in await self._job.history() if row.is_settled]
        ready = [
            row for row in rounds if row.loss is not None or row.round + 1 < len(rounds) or is_over
        ]
        if len(ready) > self._logged:
            self._log(ready[self._logged :], await self._job.seat_history())
            self._logged = len(ready)

    def _log(self, rounds: Sequence[RoundHistory], seats: Sequence[SeatHistory]) -> None:
        for row in rounds:
            if row.round == 0 and row.loss_before is not None:
                self._tracker.log({"round/loss": row.loss_before}, 0)
            values = _values("round", asdict(row), ROUND_VALUES)
            for seat in seats:
                if seat.round == row.round:
                    values |= _values(f"seat_{seat.seat}", asdict(seat), SEAT_VALUES)
            self._tracker.log(values, row.round + 1)


def _complete(item: JobUpdate | RoundFigures) -> int:
    """How many rounds may have their losses by what is told."""
    if isinstance(item, RoundFigures):
        return item.merged
    return item.snapshot.settled_rounds - 1 if item.kind == "Settled" else 0


def _values(group: str, row: Mapping[str, Any], names: Sequence[str]) -> dict[str, float]:
    """What is known of it; a tracker's chart has no other kind of gap."""
    return {f"{group}/{name}": row[name] for name in names if row[name] is not None}
