"""When a job that does not get better is ended, and what then comes back.

The contracts let a submitter end a running job at the next round's boundary: the round that runs is
finished and paid, and what nobody earned is refunded once every settled round is final.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll.job.evaluation import can_evaluate
from atoll.law.held_out import loss_of

if TYPE_CHECKING:
    from atoll.job.handle import JobHandle


async def is_out_of_patience(handle: JobHandle) -> bool:
    """Whether a running job of ours is to end, by the losses known so far.

    Where this machine can compute them only its own count: verifiers might say what ends a job.
    """
    view = await handle.view()
    patience = handle.client.figures.patience(view.spec_digest)
    if not patience.rounds or view.cancel_requested or view.state.status.is_closed:
        return False
    losses: list[float] = []
    for item in await handle.figures(ask=False):
        known = item.own if can_evaluate() else item.bits
        if known is None:
            break  # what came after is judged once this is known
        losses.append(loss_of(known))
    return patience.is_exhausted(losses)


async def has_patience(handle: JobHandle) -> bool:
    """Whether a job was submitted from here that may end early."""
    return handle.client.figures.patience((await handle.view()).spec_digest).rounds > 0


async def ran_out(handle: JobHandle) -> bool:
    """Whether a job that may end early was cancelled, and its rest is still there."""
    view = await handle.view()
    return view.cancel_requested and not view.refunded and await has_patience(handle)
