"""Sends what is queued: simulated, priced, paid for, and only then under a nonce.

Rule of this file: what cannot be sent now says why and holds up nothing behind it. A refusal has to
be repeated at newer blocks before it ends an intent: one node may be behind, or lie.
"""

from __future__ import annotations

from statistics import median_low
from typing import Any

from atoll.chain.contracts import LATEST
from atoll.chain.doubts import DoubtKind, Doubts
from atoll.chain.fees import Fees, bid
from atoll.chain.inclusion import Inclusion
from atoll.chain.prices import Prices
from atoll.chain.replies import Read
from atoll.chain.response_checks import counter, quantity
from atoll.chain.revert import reason_of
from atoll.chain.signing import Signer
from atoll.chain.txconfig import MOST_CALLDATA, MOST_GAS, TRANSFER_GAS, QueueParts
from atoll.chain.txrecords import Intent, TxState
from atoll.chain.txstatus import ABOVE_CAP, NO_MONEY, TOO_LARGE, TRIED_AGAIN
from atoll.chain.verdicts import RpcRefused, is_of_account
from atoll.errors import RpcUnavailable


class Submission:
    """From queued to signed, or to a reason why not."""

    def __init__(
        self, parts: QueueParts, *, inclusion: Inclusion, signer: Signer, doubts: Doubts
    ) -> None:
        self._chain = parts.chain
        self._store = parts.store
        self._config = parts.config
        self._address = parts.address
        self._inclusion = inclusion
        self._signer = signer
        self._doubts = doubts

    async def send_queued(self) -> None:
        """One look at each."""
        for intent in self._store.in_state(TxState.QUEUED):
            if len(intent.call.data) > MOST_CALLDATA:
                size = len(intent.call.data)
                what = f"has {size} bytes of calldata, {MOST_CALLDATA} are the most"
                self._end_too_large(intent, what)
            elif self._doubts.is_time(intent.id, self._inclusion.head):
                await self._send(intent, await self._signer.prices())

    async def _send(self, intent: Intent, prices: Prices) -> None:
        """Signs and shows it, or notes why not: what waits holds up nothing behind it."""
        stake, config = intent.call.stake, self._config
        least = bid(prices.base_fee, prices.tip, config.cap(stake, TRANSFER_GAS))
        if least is None:
            self._store.note(intent, ABOVE_CAP)
            return
        # A node that estimates what nobody can pay refuses it in words of its own.
        if intent.value and not await self._can_pay(intent, TRANSFER_GAS, least):
            return
        gas_limit = await self._estimate(intent)
        if gas_limit is None:
            return
        fees = bid(prices.base_fee, prices.tip, config.cap(stake, gas_limit))
        if fees is None:
            self._store.note(intent, ABOVE_CAP)
        elif await self._can_pay(intent, gas_limit, fees):
            self._doubts.forget(intent.id)
            nonce = await self._next_nonce()
            await self._signer.sign_and_show(intent, nonce=nonce, gas_limit=gas_limit, fees=fees)

    def _end_too_large(self, intent: Intent, what: str) -> None:
        """What every node refuses would keep its nonce, and hold up all behind it."""
        self._store.end(intent, TxState.FAILED, f"{intent.call.label} {what}", TOO_LARGE)

    async def _estimate(self, intent: Intent) -> int | None:
        """Gas limit with margin; None where no block would take the call, which has ended then."""
        call = intent.call
        query: dict[str, Any] = {
            "from": self._address,
            "to": call.to,
            "data": f"0x{call.data.hex()}",
            "value": hex(intent.value),
        }
        try:
            # On top of what is pending: a call may build on one of ours that no block has yet.
            gas = await self._chain.provider.ask("eth_estimateGas", [query, "pending"], counter)
        except RpcRefused as refused:
            if is_of_account(refused):
                why = f"is not paid for: {refused.text}"
                self._refuse(intent, DoubtKind.REFUSED, why, NO_MONEY)
                return None
            reason = reason_of(refused)
            self._refuse(intent, DoubtKind.REFUSED, f"reverted: {reason}", reason.name)
            return None
        except RpcUnavailable as error:
            self._refuse(intent, DoubtKind.UNCLEAR, f"is understood by no RPC endpoint: {error}")
            return None
        if gas > MOST_GAS:
            what = f"takes {gas} gas, {MOST_GAS} are the most"
            self._refuse(intent, DoubtKind.REFUSED, what, TOO_LARGE)
            return None
        return min(gas + gas * self._config.gas_margin_percent // 100, MOST_GAS)

    def _refuse(self, intent: Intent, kind: DoubtKind, why: str, error: str | None = None) -> None:
        """Ends it where it is refused for long enough; until then it waits, and is asked again."""
        message = f"{intent.call.label} {why}"
        if not self._doubts.is_believed(intent.id, kind, self._inclusion.head):
            self._store.note(intent, f"{TRIED_AGAIN}{message}")
            return
        is_moot = intent.call.permissionless and error not in {None, NO_MONEY, TOO_LARGE}
        state = TxState.MOOT if is_moot else TxState.FAILED
        self._store.end(intent, state, message, error)

    async def _can_pay(self, intent: Intent, gas_limit: int, fees: Fees) -> bool:
        cost = intent.value + gas_limit * fees.max_fee
        balance = await self._chain.native_balance(self._address)
        if balance < cost:  # or whoever said so is behind: a bid too many is only refused
            balance = max(balance, *await self._each("eth_getBalance", quantity))
        if balance < cost:
            why = f"is not paid for: {self._address} has {balance} wei, it may take {cost} wei"
            self._refuse(intent, DoubtKind.REFUSED, why, NO_MONEY)
        return balance >= cost

    async def _each(self, method: str, read: Read[int]) -> list[int]:
        """What each endpoint says of the account; of those that failed lately where need be."""
        question = [self._address, LATEST]
        provider = self._chain.provider
        said = await provider.ask_all(method, question, read, lambda found: len(found) > 1)
        return list(said.values())

    async def _next_nonce(self) -> int:
        """The lowest nonce that neither the chain nor one of our own transactions has.

        Of what several endpoints say the lower middle one: under too low a nonce it is refused, and
        sent anew once a block shows whose that was; too high a one no block ever takes.
        """
        said = await self._each("eth_getTransactionCount", counter)
        nonce = median_low(said) if said else await self._chain.nonce(self._address)
        nonce = max(nonce, self._inclusion.least_nonce)
        used = {intent.nonce for intent in self._store.in_state(*TxState)}
        while nonce in used:
            nonce += 1
        return nonce
