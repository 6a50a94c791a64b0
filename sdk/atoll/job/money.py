"""Where a job's money goes: pay to who earned it, and the rest home.

Rule of this file: nobody's word decides an amount; the contract counts, and anyone may ask it to.
"""

from __future__ import annotations

from contextlib import suppress

from atoll.errors import TransactionFailed
from atoll.job.collecting import collectable, transactions
from atoll.job.followed import FollowedJob
from atoll.protocol.holders import Holder
from atoll.protocol.pay import MOST_CLAIMED
from atoll.protocol.types import Address, RoundIndex
from atoll.protocol.views import JobView


async def pay_out(job: FollowedJob, account: Address) -> int:
    """Pays an account for its FINAL rounds, and its credits; wei that it got of the job, in all."""
    view, calls = await job.view(), job.client.chain.calls
    # The view is of confirmed blocks: what is paid here comes to it.
    paid = view.paid.get(account, 0)
    claims = [
        item for item in collectable({job.id: view}, account, await _now(job), calls) if item.due
    ]
    for key, call in transactions(claims, calls):
        await job.client.transact(key, call)
    paid += sum(item.wei for item in claims)
    credit = await job.client.chain.credit_of(job.id, account)
    if credit:
        key = f"credit:{job.id}:{account}:{view.paid.get(account, 0)}:{credit}"
        await job.client.transact(key, calls.claim_credit(job.id, account))
    return paid + credit


async def take_back(job: FollowedJob) -> int:
    """Refunds what nobody can earn any more; wei that came back, in all.

    After the claim deadline of a job that has ended that is everything, once what was lost is
    burnt; which this does first.
    """
    chain, view = job.client.chain, await _ended_if_due(job)
    if view.status.is_closed and await _now(job) >= await job.rest_due():
        await _burn_what_was_lost(job, view)
    before = (await chain.escrow(job.id)).refunded
    if await chain.refundable(job.id):
        key = f"refund:{job.id}:{before}"
        await job.client.transact(key, chain.calls.refund(job.id))
    return (await chain.escrow(job.id)).refunded


async def _ended_if_due(job: FollowedJob) -> JobView:
    """The view; where a phase is over, the chain is told so first.

    Members do that while there are any. Without one a job whose lifetime is over waits for ever,
    and its money with it.
    """
    view, head = await job.view(), await job.client.chain.head()
    if not view.is_advance_due(head.timestamp):
        return view
    advance = job.client.chain.calls.advance(job.id)
    with suppress(TransactionFailed):  # somebody else was first
        await job.client.transact(f"advance:{job.id}:{head.number}", advance)
    return await job.view()


async def _burn_what_was_lost(job: FollowedJob, view: JobView) -> None:
    """Unpaid work, and what slashed providers would have got: until then the rest stays there."""
    chain, end = job.client.chain, RoundIndex(len(view.settled))
    for start in range(view.burnt_to, end, MOST_CLAIMED):
        to = RoundIndex(min(end, start + MOST_CLAIMED))
        await job.client.transact(f"burn:{job.id}:{to}", chain.calls.burn(job.id, to))
    for holder in (held for held in view.providers.values() if held.is_slashed):
        last = RoundIndex(min(holder.to, end))
        for to in (*range(holder.claimed_to + MOST_CLAIMED, last, MOST_CLAIMED), last):
            call = chain.calls.claim(job.id, holder.role, holder.id, RoundIndex(to))
            try:  # the view does not tell whether a slash whose rounds are claimed is closed
                await chain.simulate(call, job.client.address)
            except TransactionFailed:
                continue
            await _claim(job, holder, RoundIndex(to))


async def _claim(job: FollowedJob, holder: Holder, to: RoundIndex) -> None:
    key = f"claim:{job.id}:{holder.role.value}:{holder.id}:{holder.claimed_to}:{to}"
    call = job.client.chain.calls.claim(job.id, holder.role, holder.id, to)
    await job.client.transact(key, call)


async def _now(job: FollowedJob) -> int:
    return (await job.client.chain.head()).timestamp
