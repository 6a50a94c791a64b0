"""Rescues what no block takes: shown again, bid for more, or withdrawn by an empty transfer.

Rule of this file: a nonce that is signed stays signed until the chain has used it. To leave it and
go on with the next would block all behind it for ever.
"""

from __future__ import annotations

import structlog

from atoll.chain.broadcast import Broadcaster
from atoll.chain.doubts import DoubtKind, Doubts
from atoll.chain.fees import Fees, raise_bid
from atoll.chain.inclusion import Inclusion
from atoll.chain.signing import Signer
from atoll.chain.txconfig import QueueParts
from atoll.chain.txrecords import Intent, TxState
from atoll.chain.txstatus import Reason
from atoll.errors import ChainError, RpcUnavailable, TransactionFailed

log = structlog.get_logger("atoll.chain.txqueue")


class Replacement:
    """Of signed transactions under the same nonce."""

    def __init__(
        self,
        parts: QueueParts,
        *,
        inclusion: Inclusion,
        broadcaster: Broadcaster,
        signer: Signer,
        doubts: Doubts,
    ) -> None:
        self._chain = parts.chain
        self._store = parts.store
        self._config = parts.config
        self._address = parts.address
        self._clock = parts.clock
        self._inclusion = inclusion
        self._broadcaster = broadcaster
        self._signer = signer
        self._doubts = doubts

    async def rescue(self) -> None:
        """One look at each that is signed and in no block."""
        now = self._clock()
        for position, intent in enumerate(self._store.in_state(TxState.SENT)):
            newest = self._store.signed(intent)[0]
            if self._broadcaster.is_overdue(newest, now):
                await self._raise_or_withdraw(intent, is_lowest=position == 0)
            else:
                await self._broadcaster.show_if_due(newest, now)

    async def _raise_or_withdraw(self, intent: Intent, *, is_lowest: bool) -> None:
        """Only the lowest nonce can be stuck on its own account, and only its call can be
        simulated: the others build on it.
        """
        if not is_lowest:
            await self.replace(intent, cancel_reason=None)
            return
        head = self._inclusion.head
        if not self._doubts.is_time(intent.id, head):
            return
        reason = await self._fails_now(intent)
        if reason is None or self._doubts.is_believed(intent.id, DoubtKind.STUCK, head):
            await self.replace(intent, cancel_reason=reason)

    async def _fails_now(self, intent: Intent) -> Reason | None:
        try:
            await self._chain.simulate(intent.call, self._address)
        except TransactionFailed as failed:
            return Reason(str(failed), failed.error)
        except RpcUnavailable:
            return None  # nobody can say
        self._doubts.forget(intent.id)
        return None

    async def replace(
        self, intent: Intent, *, cancel_reason: Reason | None, forced: bool = False
    ) -> None:
        """Sends it again for more, or with a reason an empty transfer in its place.

        Raises:
            ChainError: `forced`, and the fee cap forbids more.
        """
        assert intent.nonce is not None and intent.gas_limit is not None
        newest = self._store.signed(intent)[0]
        prices = await self._signer.prices()
        cap = self._config.cap(intent.call.stake, intent.gas_limit)
        old, tip = Fees(newest.max_fee, newest.priority_fee), self._config.priority_fee
        fees = raise_bid(old, prices.base_fee, max(prices.tip, tip), cap)
        if fees is None:
            if forced:
                raise ChainError(
                    f"the fee cap of {cap} wei a gas forbids a higher bid",
                    next_step="raise the fee cap",
                )
            self._store.note(intent, "stuck at the fee cap", intent.error)
            await self._broadcaster.show(newest)
            return
        cancels = newest.cancels or cancel_reason is not None
        if cancel_reason is not None:
            self._store.note(intent, cancel_reason.message, cancel_reason.error)
        log.info("a stuck transaction is sent for more", key=intent.key, max_fee=fees.max_fee)
        await self._signer.sign_and_show(
            intent, nonce=intent.nonce, gas_limit=intent.gas_limit, fees=fees, cancels=cancels
        )
