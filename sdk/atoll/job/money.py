"""Where a job's money goes: pay to who earned it, and the rest home.

Rule of this file: nobody's word decides an amount; the contract counts, and anyone may ask it to.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from atoll.errors import TransactionFailed
from atoll.job.collecting import collectable, transactions
from atoll.law.pay import MOST_CLAIMED
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
    chain, view = handle.client.chain, await _ended_if_due(handle)
    if view.status.is_closed and await _now(handle) >= await handle.rest_due():
        await _burn_what_was_lost(handle, view)
    before = (await chain.escrow(handle.id)).refunded
    if await chain.refundable(handle.id):
        key = f"refund:{handle.id}:{before}"
        await handle.client.transact(key, chain.calls.refund(handle.id))
    return (await chain.escrow(handle.id)).refunded


async def _ended_if_due(handle: JobHandle) -> JobView:
    """The view; where a phase is over, the chain is told so first.

    Members do that while there are any. Without one a job whose lifetime is over waits for ever,
    and its money with it.
    """
    view, head = await handle.view(), await handle.client.chain.head()
    if not view.is_poke_due(head.timestamp):
        return view
    poke = handle.client.chain.calls.poke(handle.id)
    with suppress(TransactionFailed):  # somebody else was first
        await handle.client.transact(f"poke:{handle.id}:{head.number}", poke)
    return await handle.view()


async def _burn_what_was_lost(handle: JobHandle, view: JobView) -> None:
    """Unpaid work, and what fallen providers would have got: until then the rest stays there."""
    chain, end = handle.client.chain, RoundIndex(len(view.settled))
    for start in range(view.burnt_to, end, MOST_CLAIMED):
        to = RoundIndex(min(end, start + MOST_CLAIMED))
        await handle.client.transact(f"burn:{handle.id}:{to}", chain.calls.burn(handle.id, to))
    for holder in (held for held in view.providers.values() if held.has_fallen):
        last = RoundIndex(min(holder.to, end))
        for to in (*range(holder.claimed_to + MOST_CLAIMED, last, MOST_CLAIMED), last):
            call = chain.calls.claim(handle.id, holder.role, holder.id, RoundIndex(to))
            try:  # the view does not tell whether a fall whose rounds are claimed is closed
                await chain.simulate(call, handle.client.address)
            except TransactionFailed:
                continue
            await _claim(handle, holder, RoundIndex(to))


async def _claim(handle: JobHandle, holder: Holder, to: RoundIndex) -> None:
    key = f"claim:{handle.id}:{holder.role.value}:{holder.id}:{holder.claimed_to}:{to}"
    call = handle.client.chain.calls.claim(handle.id, holder.role, holder.id, to)
    await handle.client.transact(key, call)


async def _now(handle: JobHandle) -> int:
    return (await handle.client.chain.head()).timestamp
