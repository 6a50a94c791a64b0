"""When a job that does not get better is ended, and what then comes back.

The contracts let a submitter end a running job at the next round's boundary: the round that runs is
finished and paid, and what nobody can earn any more is refunded at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from atoll.errors import RpcUnavailable
from atoll.job.followed import FollowedJob
from atoll.job.spec import JobSpec
from atoll.job.toml_files import parse_toml
from atoll.protocol.losses import loss_of


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """How many rounds may pass without a loss that is less than the least by `least_gain`.

    `least_gain` is decimal text, nats a target; `rounds` 0 waits for ever.
    """

    rounds: int
    least_gain: str = "0"

    def is_exhausted(self, losses: Iterable[float]) -> bool:
        """Whether it is, after the losses of the initial model and of each merged one.

        A loss that is NaN is no gain. Differences are exact.
        """
        best, idle = math.inf, 0
        for loss in losses:
            if self._gains(best, loss):
                best, idle = loss, 0
            else:
                idle += 1
        return 0 < self.rounds <= idle

    def _gains(self, best: float, loss: float) -> bool:
        if math.isinf(best) or math.isnan(loss):
            return not math.isnan(loss)
        return loss < best and Fraction(best) - Fraction(loss) >= Fraction(self.least_gain)


def early_stopping_of(job: FollowedJob) -> EarlyStopping:
    """What the job's file says, where the job was submitted from this home; else endless."""
    submission = job.client.submissions.of_job(job.id)
    if submission is None or not submission.spec:
        return EarlyStopping(0)
    chosen = JobSpec.of(parse_toml(submission.spec), "the job's file").evaluate
    return EarlyStopping(chosen.patience, chosen.least_gain)


async def stops_early(job: FollowedJob) -> bool:
    """Whether a running job of ours is to end, by the losses known so far: ours, or where there
    are none those that committees certified.
    """
    stopping = early_stopping_of(job)
    try:
        view = await job.view()
        figures = await job.figures()
    except RpcUnavailable:
        return False  # it is asked again when more is known
    if not stopping.rounds or view.cancel_requested or view.status.is_closed:
        return False
    losses: list[float] = []
    for item in figures:
        if item.bits is None:
            break  # what came after is judged once this is known
        losses.append(loss_of(item.bits))
    return stopping.is_exhausted(losses)


async def ran_out(job: FollowedJob) -> bool:
    """Whether a job that may end early was cancelled, and its rest is still there."""
    view = await job.view()
    return view.cancel_requested and not view.refunded and early_stopping_of(job).rounds > 0
