"""Where a job's money goes: pay to who earned it, and the rest home.

Rule of this file: nobody's word decides an amount; the contract counts, and anyone may ask it to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll.errors import TransactionFailed
from atoll.job.collecting import collectable, transactions
from atoll.law.views import Holder, JobView
from atoll.law.words import Address, RoundIndex

if TYPE_CHECKING:
    from atoll.job.handle import JobHandle


async def pay_out(handle: JobHandle, account: Address) -> int:
    """Pays an account for its FINAL rounds, and its credits; wei that it got of the job, in all."""
    view, calls = await handle.view(), handle.client.chain.calls
    # The view is of confirmed blocks: what is paid here comes to it.
    paid = view.paid.get(account, 0)
    claims = [
        item
        for item in collectable({handle.id: view}, account, await _now(handle), calls)
        if item.due
    ]
    for key, call in transactions(claims, calls):
        await handle.client.transact(key, call)
    paid += sum(item.wei for item in claims)
    credit = await handle.client.chain.credit_of(handle.id, account)
    if credit:
        key = f"credit:{handle.id}:{account}:{view.paid.get(account, 0)}:{credit}"
        await handle.client.transact(key, calls.claim_credit(handle.id, account))
    return paid + credit


async def take_back(handle: JobHandle) -> int:
    """Refunds what nobody can earn any more; wei that came back, in all.

    After the claim deadline of a job that has ended that is everything, once what was lost is
    burnt; which this does first.
    """
    chain, view = handle.client.chain, await handle.view()
    if view.status.is_closed and await _now(handle) >= await handle.rest_due():
        await _burn_what_was_lost(handle, view)
    before = (await chain.escrow(handle.id)).refunded
    if await chain.refundable(handle.id):
        key = f"refund:{handle.id}:{before}"
        await handle.client.transact(key, chain.calls.refund(handle.id))
    return (await chain.escrow(handle.id)).refunded


async def _burn_what_was_lost(handle: JobHandle, view: JobView) -> None:
    """Unpaid work, and what fallen providers would have got: until then the rest stays there."""
    chain, end = handle.client.chain, RoundIndex(len(view.settled))
    if view.burnt_to < end:
        await handle.client.transact(f"burn:{handle.id}:{end}", chain.calls.burn(handle.id, end))
    for holder in (held for held in view.providers.values() if held.has_fallen):
        to = RoundIndex(min(holder.to, end))
        call = chain.calls.claim(handle.id, holder.role, holder.id, to)
        try:  # the view does not tell whether a fall whose rounds are claimed is closed
            await chain.simulate(call, handle.client.address)
        except TransactionFailed:
            continue
        await _claim(handle, holder, to)


async def _claim(handle: JobHandle, holder: Holder, to: RoundIndex) -> None:
    key = f"claim:{handle.id}:{holder.role.value}:{holder.id}:{holder.claimed_to}:{to}"
    call = handle.client.chain.calls.claim(handle.id, holder.role, holder.id, to)
    await handle.client.transact(key, call)


async def _now(handle: JobHandle) -> int:
    return (await handle.client.chain.head()).timestamp
