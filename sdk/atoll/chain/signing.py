"""Signs an intent under a nonce for a bid, writes it down, and shows it.

Rule of this file: nothing else signs, so that every signature is on disk before a node has it.
"""

from __future__ import annotations

from typing import Any

from atoll.chain.broadcast import Broadcaster
from atoll.chain.fees import Fees, raise_bid
from atoll.chain.prices import Prices, ask_prices
from atoll.chain.response_checks import BlockHeader
from atoll.chain.txconfig import TRANSFER_GAS, QueueParts
from atoll.chain.txrecords import Intent, SignedTransaction


class Signer:
    """One key's signatures, and what they have to bid."""

    def __init__(self, parts: QueueParts, broadcaster: Broadcaster) -> None:
        self._chain = parts.chain
        self._store = parts.store
        self._config = parts.config
        self._address = parts.address
        self._account = parts.account
        self._broadcaster = broadcaster
        self._prices: tuple[BlockHeader, Prices] | None = None

    async def prices(self) -> Prices:
        """What a transaction has to pay now; asked once a block."""
        newest = await self._chain.events.newest(self._config.poll_seconds)
        if self._prices is None or self._prices[0] != newest:
            tip = self._config.priority_fee
            self._prices = (newest, await ask_prices(self._chain.provider, newest, tip))
        return self._broadcaster.floors.above(self._prices[1])

    async def sign_and_show(
        self, intent: Intent, *, nonce: int, gas_limit: int, fees: Fees, cancels: bool = False
    ) -> None:
        """Written down before it is shown: a crash between the two is caught up with."""
        transaction: dict[str, Any] = {
            "type": 2,
            "chainId": self._chain.deployment.chain_id,
            "nonce": nonce,
            "gas": TRANSFER_GAS if cancels else gas_limit,
            "maxFeePerGas": fees.max_fee,
            "maxPriorityFeePerGas": fees.priority_fee,
            "to": self._address if cancels else intent.call.to,
            "value": 0 if cancels else intent.value,
            "data": b"" if cancels else intent.call.data,
        }
        raw = self._account.sign_transaction(transaction)
        signed = SignedTransaction(
            tx_hash=f"0x{bytes(raw.hash).hex()}",
            intent=intent.id,
            raw=bytes(raw.raw_transaction),
            max_fee=fees.max_fee,
            priority_fee=fees.priority_fee,
            cancels=cancels,
        )
        self._store.sign(intent, nonce, gas_limit, signed)
        if await self._broadcaster.show(signed):
            await self._meet_floor(intent, signed, gas_limit)

    async def _meet_floor(self, intent: Intent, low: SignedTransaction, gas_limit: int) -> None:
        """Bids at once what a node has just said that it takes, where the cap allows for it."""
        prices, cap = await self.prices(), self._config.cap(intent.call.stake, gas_limit)
        old = Fees(low.max_fee, low.priority_fee)
        fees = raise_bid(old, prices.base_fee, prices.tip, cap)
        if fees is None or fees.priority_fee < prices.tip or fees.max_fee < prices.base_fee:
            self._store.note(intent, "waits: a node asks for more than the fee cap", intent.error)
        elif fees.priority_fee > low.priority_fee or fees.max_fee > low.max_fee:
            current = self._store.find(intent.key)
            assert current is not None and current.nonce is not None
            await self.sign_and_show(
                current, nonce=current.nonce, gas_limit=gas_limit, fees=fees, cancels=low.cancels
            )
