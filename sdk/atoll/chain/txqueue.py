"""One key's transactions: each intent becomes exactly one transaction in the chain, or a reason.

Rule of this file: written down, then signed, then written down again, then sent. A nonce is taken
only for a call that just passed a simulation, and a nonce once taken is always used up: by the
call, by a dearer copy of it, or by an empty transfer. So a crash at any line loses nothing.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Any

import structlog
from eth_utils.address import to_checksum_address

from atoll.chain.answers import Header, counter, quantity, tx_hash
from atoll.chain.call import Call
from atoll.chain.contracts import LATEST, AtollChain
from atoll.chain.doubts import Doubts, Kind
from atoll.chain.fees import Fees, bid, raise_bid
from atoll.chain.prices import Floors, Prices, ask_prices
from atoll.chain.replies import Read
from atoll.chain.revert import reason_of
from atoll.chain.txstore import (
    ENDED_WITHOUT_EFFECT,
    GasUse,
    Intent,
    Receipt,
    SignedTransaction,
    TxState,
    TxStore,
)
from atoll.chain.verdicts import SEND, Refusal, RpcRefused, refusal_of
from atoll.errors import ChainError, InsufficientFunds, RpcUnavailable, TransactionFailed
from atoll.protocol.words import Address, BlockRef

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

log = structlog.get_logger("atoll.chain.txqueue")

GWEI = 10**9
TRANSFER_GAS = 21_000
MOST_GAS = 1 << 24
"""Of a transaction (EIP-7825): nodes take none with a higher limit, which would keep its nonce."""
NO_MONEY = "InsufficientFundsForGas"
"""Not a contract's error: the account cannot pay for gas and value."""
MOST_CALLDATA = (1 << 17) - 1024
"""Bytes. Nodes take no transaction above 128 KiB, of which all else is a few hundred bytes."""
TRIED_AGAIN = "is tried again: "
"""What the message begins with of one that is in doubt, and may pass in a moment."""
ABOVE_CAP = "waits: the base fee is above the fee cap"
TOO_LARGE = "TransactionTooLarge"
"""Not a contract's error either: no node takes so much calldata, or so much gas."""


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """How a queue bids and how long it waits.

    Attributes:
        fee_cap: wei a gas that are never exceeded; above them the queue holds back. A call with
            something at stake may be bid more for, as `fee_per_stake` says.
        fee_per_stake: wei of the chain's coin that one transaction may cost for each wei that is
            at stake in it (`Call.stake`).
        priority_fee: wei a gas for the block's builder where no endpoint suggests any, and at
            least of a bid that follows one that no block took.
        doubt_seconds: for so long a refusal has to be repeated, at newer blocks, until it ends a
            transaction.
        unclear_seconds: the same where no endpoint can say what a call would do.
        replace_seconds: after this long without a block, since this process first sent it, a
            transaction is sent again for more.
        rebroadcast_seconds: after this long the same transaction is shown to every node again, or
            the only one is asked whether it has it.
        final_blocks: depth from which a block counts as there to stay.
        poll_seconds: how often `run` looks.
        gas_margin_percent: added to the estimate, since state moves until the block.
        pair: the id of the journal beside the queue's file; empty where any will do.
    """

    fee_cap: int = 200 * GWEI
    fee_per_stake: float = 0.0
    priority_fee: int = GWEI
    doubt_seconds: float = 15.0
    unclear_seconds: float = 120.0
    replace_seconds: float = 30.0
    rebroadcast_seconds: float = 5.0
    final_blocks: int = 64
    poll_seconds: float = 0.5
    gas_margin_percent: int = 25
    pair: str = ""

    def cap(self, stake: int, gas_limit: int) -> int:
        """Wei a gas that a call with so much at stake is bid for at most."""
        return max(self.fee_cap, int(stake * self.fee_per_stake) // gas_limit)


@dataclass(frozen=True, slots=True)
class TxStatus:
    """Where one transaction stands.

    Attributes:
        confirmations: blocks from its own to the newest, both counted; 0 outside a block.
        error: the custom error it was refused with, where there was one.
        message: why it failed or waits, for a person.
    """

    key: str
    label: str
    state: TxState
    nonce: int | None
    tx_hash: str | None
    block: int | None
    confirmations: int
    gas_used: int | None
    fee_wei: int | None
    error: str | None
    message: str

    @property
    def has_effect(self) -> bool:
        """Whether it succeeded in a block."""
        return self.state is TxState.MINED


def unspent_key(queue: TxQueue, found: str) -> str:
    """A key for what a state calls for, which may be found again when what was sent is used up.

    Args:
        found: names the state, so that a transaction under way is not sent twice.
    Returns:
        The first of `found`:0, `found`:1, … whose transaction has had no effect yet.
    """
    keys = (f"{found}:{number}" for number in count())
    return next(k for k in keys if (sent := queue.status(k)) is None or not sent.has_effect)


class TxQueue:
    """Sends one account's transactions; several tasks may use it, one process at a time may.

    Args:
        path: SQLite file, this queue's own.
        clock: seconds that nobody sets back or ahead; for how long a transaction has waited.
    Raises:
        ConfigError: the file is in use, or belongs to another account or chain.
    """

    def __init__(
        self,
        chain: AtollChain,
        account: LocalAccount,
        path: Path,
        config: QueueConfig | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config or QueueConfig()
        self.address = Address(to_checksum_address(account.address))
        self._chain = chain
        self._account = account
        self._clock = clock
        self._store = TxStore(path, self.address, chain.deployment.chain_id, self.config.pair)
        self._head: BlockRef | None = None
        self._reconciled: BlockRef | None = None
        self._first_shown: dict[str, float] = {}
        self._shown_at: dict[str, float] = {}
        self._missed: set[str] = set()
        self._foreign_since: dict[int, int] = {}
        patience = self.config.doubt_seconds
        self._doubts = Doubts(
            {
                Kind.REFUSED: patience,
                Kind.STUCK: patience,
                Kind.UNCLEAR: self.config.unclear_seconds,
            },
            clock,
        )
        self._floors = Floors(clock)
        self._least_nonce = 0  # what another program has used is below
        self._prices: tuple[Header, Prices] | None = None
        self._pumping = asyncio.Lock()
        self._moved = asyncio.Condition()
        self._wake = asyncio.Event()
        self._broken: BaseException | None = None

    def close(self) -> None:
        """Lets go of the file. What is under way continues when a queue opens it again."""
        self._store.close()

    async def submit(
        self, key: str, call: Call, *, value: int = 0, retry_failed: bool = False
    ) -> None:
        """Asks for a transaction; on disk when this returns.

        Args:
            key: names the effect; the same key is the same transaction, asked for once or often.
            value: wei to send along.
            retry_failed: if the key's transaction ended without effect, ask for a new one.
        Raises:
            ChainError: the key already stands for another call.
        """
        known = self._store.find(key)
        if known is None:
            self._store.add(key, 0, call, value)
        elif retry_failed and known.state in ENDED_WITHOUT_EFFECT:
            self._doubts.forget(known.id)
            self._store.add_again(known, call, value)
        elif (known.call.to, known.call.data, known.value) != (call.to, call.data, value):
            raise ChainError(f"{key!r} already stands for another {known.call.label} transaction")
        self._wake.set()

    def status(self, key: str) -> TxStatus | None:
        """Where the key's transaction stands; None for a key never submitted."""
        intent = self._store.find(key)
        return self._status(intent) if intent else None

    def transactions(self) -> list[TxStatus]:
        """Every transaction this queue ever took, oldest first."""
        return [self._status(intent) for intent in self._store.all()]

    def waiting(self) -> list[TxStatus]:
        """What is queued or under way, oldest first."""
        return [self._status(i) for i in self._store.in_state(TxState.QUEUED, TxState.SENT)]

    def has_signed(self, tx_hash: str) -> bool:
        """Whether a transaction, by its hash in hex, is one that this queue signed."""
        return self._store.has_signed(tx_hash)

    def claimed(self, claims: int) -> None:
        """The journal beside it has claimed so many slots by now; on disk when this returns."""
        self._store.claimed(claims)

    def gas_by_label(self) -> dict[str, GasUse]:
        """Gas used by mined transactions, by function name."""
        return self._store.gas_by_label()

    async def wait(self, key: str, confirmations: int = 1) -> TxStatus:
        """Until the transaction is that deep in the chain, or moot; `run` has to be at work.

        Raises:
            TransactionFailed: refused or reverted, with the contract's reason.
            InsufficientFunds: the account cannot pay for gas.
            ChainError: the key was never submitted.
        """
        # From that depth on nothing is looked at any more: who waits for more would wait for ever.
        confirmations = min(confirmations, self.config.final_blocks)
        async with self._moved:
            while True:
                if self._broken is not None:
                    raise ChainError("the transaction queue has stopped") from self._broken
                status = self.status(key)
                if status is None:
                    raise ChainError(f"no transaction was submitted as {key!r}")
                if status.state is TxState.MOOT or (
                    status.has_effect and status.confirmations >= confirmations
                ):
                    return status
                if status.state is TxState.FAILED or (
                    status.state is TxState.REVERTED and status.confirmations >= confirmations
                ):
                    raise _failure(status)
                await self._moved.wait()

    async def execute(
        self, key: str, call: Call, *, value: int = 0, confirmations: int = 1
    ) -> TxStatus:
        """`submit`, then `wait`."""
        await self.submit(key, call, value=value)
        return await self.wait(key, confirmations)

    async def run(self) -> None:
        """Works until cancelled; an unreachable chain is waited for."""
        try:
            while True:
                self._wake.clear()
                try:
                    # Whoever follows the chain beside this queue has just asked for the head.
                    await self.pump(within=self.config.poll_seconds)
                except RpcUnavailable as error:
                    log.warning("transactions wait for the chain", cause=str(error))
                try:
                    async with asyncio.timeout(self.config.poll_seconds):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        except Exception as error:  # a defect: told to everybody who waits, and raised
            self._broken = error
            raise
        finally:
            async with self._moved:
                self._moved.notify_all()

    async def pump(self, within: float = 0.0) -> None:
        """One pass: see what the chain did, rescue what is stuck, send what is queued.

        Args:
            within: seconds; a newest block that was read so long ago is as good as one read now.
        Raises:
            RpcUnavailable: no endpoint answers; nothing is lost, call again.
        """
        async with self._pumping:
            if not self._store.is_idle:
                head = await self._chain.head(within)
                await self._reconcile(head)
                await self._rescue()
                await self._send_queued()
        async with self._moved:
            self._moved.notify_all()

    async def bump(self, key: str) -> None:
        """Sends a stuck transaction again for more, now.

        Raises:
            ChainError: it is not under way, or the fee cap forbids more.
        """
        async with self._pumping:
            await self._replace(self._under_way(key), cancel_reason=None, forced=True)

    async def cancel(self, key: str) -> None:
        """Withdraws a transaction: at once while queued, else by outbidding it with an empty one.

        The original may still win; `wait` tells.

        Raises:
            ChainError: it is not under way, or the fee cap forbids the replacement.
        """
        async with self._pumping:
            intent = self._store.find(key)
            if intent is not None and intent.state is TxState.QUEUED:
                self._doubts.forget(intent.id)
                self._store.end(intent, TxState.FAILED, f"{intent.call.label} was withdrawn", None)
            else:
                intent = self._under_way(key)
                reason = (f"{intent.call.label} was withdrawn", None)
                await self._replace(intent, cancel_reason=reason, forced=True)
        async with self._moved:
            self._moved.notify_all()

    # What the chain did

    async def _reconcile(self, head: BlockRef) -> None:
        self._head = head
        if self._reconciled == head:
            return
        if not await self._extends(self._reconciled):
            await self._recheck_mined(head)
        waiting, is_clear = self._store.in_state(TxState.SENT), True
        if waiting:
            used = await self._chain.nonce(self.address)
            for intent in waiting:
                is_clear = await self._look_for(intent, used, head) and is_clear
        self._store.finalise(head.number - self.config.final_blocks)
        # What failed or was not clear is looked at again, even if no block comes after this one.
        if is_clear:
            self._reconciled = head

    async def _extends(self, previous: BlockRef | None) -> bool:
        """Whether the head seen last is still in the chain; unknown counts as no."""
        if previous is None:
            return False
        return await self._chain.block(previous.number) == previous

    async def _recheck_mined(self, head: BlockRef) -> None:
        """After a reorg or a restart: is every block we counted on still there?"""
        for intent in self._store.in_state(TxState.MINED, TxState.REVERTED, TxState.MOOT):
            receipt = await self._any_receipt(intent)
            if receipt is None or receipt.block_number > head.number:
                log.info("a reorg took a transaction back", key=intent.key)
                self._store.unmined(intent)
                # Nodes may have dropped all of ours with the block: each is shown again at once.
                self._shown_at.clear()
            elif receipt.block_hash != intent.block_hash:
                await self._record(intent, receipt)

    async def _look_for(self, intent: Intent, used_nonces: int, head: BlockRef) -> bool:
        """Whether the nonce and what is known of the transaction fit together."""
        receipt = await self._any_receipt(intent)
        assert intent.nonce is not None
        is_used = used_nonces > intent.nonce
        if receipt is not None or not is_used:
            self._foreign_since.pop(intent.id, None)
        if receipt is not None:
            # A reorg is noticed from the head: one that takes back a newer block would not be.
            if receipt.block_number <= head.number:
                await self._record(intent, receipt)
        elif is_used:
            # A receipt that is only late has come when the chain has grown. Else the blocks are
            # looked at, and where they say nothing, again two blocks later.
            since = self._foreign_since.setdefault(intent.id, head.number)
            if head.number >= since + 2:
                del self._foreign_since[intent.id]
                if await self._is_foreign(intent, intent.nonce, head):
                    log.warning("another program used this key's nonce", nonce=intent.nonce)
                    self._least_nonce = max(self._least_nonce, used_nonces)
                    self._store.requeue(intent)
        return receipt is not None or not is_used

    async def _is_foreign(self, intent: Intent, nonce: int, head: BlockRef) -> bool:
        """Whether a transaction that is not the intent's used its nonce.

        The block itself has to show it: an index of receipts may lag, and to believe what it does
        not have would send the intent a second time under another nonce.
        """
        try:
            number = await self._block_of(nonce, head.number)
            found = await self._chain.hash_of(self.address, nonce, number)
        except RpcUnavailable as error:
            log.warning("nobody says which transaction used a nonce", nonce=nonce, cause=str(error))
            return False
        return found not in {None, *(signed.tx_hash for signed in self._store.signed(intent))}

    async def _block_of(self, nonce: int, head: int) -> int:
        """The number of the block that used a nonce, which at the head is used.

        It is looked for from the head down: nodes keep the state of the newest blocks only.
        """
        used, free = head, head - 1
        while free > 0 and await self._chain.nonce(self.address, hex(free)) > nonce:
            used, free = free, max(0, 2 * free - head)
        while used - free > 1:
            middle = (used + free) // 2
            if await self._chain.nonce(self.address, hex(middle)) > nonce:
                used = middle
            else:
                free = middle
        return used

    async def _any_receipt(self, intent: Intent) -> Receipt | None:
        for signed in self._store.signed(intent):
            receipt = await self._receipt(signed)
            if receipt is not None:
                return receipt
        return None

    async def _receipt(self, signed: SignedTransaction) -> Receipt | None:
        """What the chain has; a receipt of a block that a reorg took back is none."""
        found = await self._chain.receipt(signed.tx_hash)
        if found is None:
            return None
        block = await self._chain.events.header(found.block_number)
        if block is None or bytes(block.ref.hash) != found.block_hash:
            return None
        assert found.succeeded is not None and found.gas_used is not None  # see `receipt`
        price = found.fee_price
        if price is None:  # EIP-1559: what the block burns and what was offered on top
            price = min(signed.max_fee, block.base_fee + signed.priority_fee)
        return Receipt(
            tx_hash=signed.tx_hash,
            succeeded=found.succeeded,
            block_number=found.block_number,
            block_hash=found.block_hash,
            gas_used=found.gas_used,
            fee_wei=found.gas_used * price,
        )

    async def _record(self, intent: Intent, receipt: Receipt) -> None:
        cancelled = any(
            signed.cancels and signed.tx_hash == receipt.tx_hash
            for signed in self._store.signed(intent)
        )
        if cancelled:
            # An error is noted where the call would have failed: somebody else has done it then.
            moot = intent.call.permissionless and intent.error is not None
            self._store.mined(intent, receipt, TxState.MOOT if moot else TxState.REVERTED)
        elif receipt.succeeded:
            self._store.mined(intent, receipt, TxState.MINED)
            self._store.note(intent, "")
        else:
            message, error = await self._why_reverted(intent, receipt)
            permissionless = intent.call.permissionless
            self._store.mined(intent, receipt, TxState.MOOT if permissionless else TxState.REVERTED)
            self._store.note(intent, message, error)

    async def _why_reverted(self, intent: Intent, receipt: Receipt) -> tuple[str, str | None]:
        """A receipt has no reason: ask what the call says on top of that block."""
        label = intent.call.label
        if intent.gas_limit is not None and receipt.gas_used >= intent.gas_limit:
            return f"{label} ran out of gas ({receipt.gas_used})", "OutOfGas"
        try:
            await self._chain.simulate(intent.call, self.address, hex(receipt.block_number))
        except TransactionFailed as failed:
            return str(failed), failed.error
        except RpcUnavailable as error:  # the state may be gone, and the transaction is not
            return f"{label} reverted in block {receipt.block_number}; {error}", None
        return f"{label} reverted in block {receipt.block_number}; it would succeed now", None

    # What is stuck

    async def _rescue(self) -> None:
        now = self._clock()
        for position, intent in enumerate(self._store.in_state(TxState.SENT)):
            newest = self._store.signed(intent)[0]
            first = self._first_shown.get(newest.tx_hash, now)
            if now - first >= self.config.replace_seconds:
                # Only the lowest nonce can be stuck on its own account, and only its call can be
                # simulated: the others build on it.
                if position == 0 and not self._doubts.is_time(intent.id, self._head):
                    continue
                reason = await self._fails_now(intent) if position == 0 else None
                if reason is None or self._is_believed(intent, Kind.STUCK):
                    await self._replace(intent, cancel_reason=reason)
            elif (
                now - self._shown_at.get(newest.tx_hash, -math.inf)
                >= self.config.rebroadcast_seconds
            ):
                if await self._is_kept(newest):
                    self._shown_at[newest.tx_hash] = now
                else:
                    await self._show(newest)

    async def _is_kept(self, signed: SignedTransaction) -> bool:
        """Whether the only endpoint there is was shown it, and did not lose it since.

        While Ganache mines a transaction it does not know it, and if it is shown it then, mines it
        once more; from then on its receipts are of another block than its blocks have it in. So it
        has to be missed at two looks. Where there are several endpoints, one may keep it to itself.
        Source: https://github.com/ConsenSys-archive/ganache/issues/1218.
        """
        if signed.tx_hash not in self._shown_at or len(self._chain.provider.urls) > 1:
            return False
        question = ("eth_getTransactionByHash", [signed.tx_hash], lambda found: found is not None)
        try:
            is_known = await self._chain.provider.ask(*question)
        except ChainError:
            return False  # it does not answer that
        if is_known:
            self._missed.discard(signed.tx_hash)
            return True
        is_missed_again = signed.tx_hash in self._missed
        self._missed.add(signed.tx_hash)
        return not is_missed_again

    async def _fails_now(self, intent: Intent) -> tuple[str, str | None] | None:
        try:
            await self._chain.simulate(intent.call, self.address)
        except TransactionFailed as failed:
            return str(failed), failed.error
        except RpcUnavailable:
            return None  # nobody can say
        self._doubts.forget(intent.id)
        return None

    def _is_believed(self, intent: Intent, kind: Kind) -> bool:
        return self._doubts.is_believed(intent.id, kind, self._head)

    async def _replace(
        self, intent: Intent, *, cancel_reason: tuple[str, str | None] | None, forced: bool = False
    ) -> None:
        assert intent.nonce is not None and intent.gas_limit is not None
        newest = self._store.signed(intent)[0]
        prices, cap = await self._asked(), self.config.cap(intent.call.stake, intent.gas_limit)
        old, tip = Fees(newest.max_fee, newest.priority_fee), self.config.priority_fee
        fees = raise_bid(old, prices.base_fee, max(prices.tip, tip), cap)
        if fees is None:
            if forced:
                raise ChainError(
                    f"the fee cap of {cap} wei a gas forbids a higher bid",
                    next_step="raise the fee cap",
                )
            self._store.note(intent, "stuck at the fee cap", intent.error)
            await self._show(newest)
            return
        cancels = newest.cancels or cancel_reason is not None
        if cancel_reason is not None:
            self._store.note(intent, *cancel_reason)
        log.info("a stuck transaction is sent for more", key=intent.key, max_fee=fees.max_fee)
        await self._sign_and_show(intent, intent.nonce, intent.gas_limit, fees, cancels=cancels)

    def _under_way(self, key: str) -> Intent:
        intent = self._store.find(key)
        if intent is None or intent.state is not TxState.SENT:
            raise ChainError(f"no transaction is under way as {key!r}")
        return intent

    # What is queued

    async def _send_queued(self) -> None:
        for intent in self._store.in_state(TxState.QUEUED):
            if len(intent.call.data) > MOST_CALLDATA:
                size = len(intent.call.data)
                what = f"has {size} bytes of calldata, {MOST_CALLDATA} are the most"
                self._end_too_large(intent, what)
            elif self._doubts.is_time(intent.id, self._head):
                await self._send(intent, await self._asked())

    async def _send(self, intent: Intent, prices: Prices) -> None:
        """Signs and shows it, or notes why not: what waits holds up nothing behind it."""
        stake, config = intent.call.stake, self.config
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
            await self._sign_and_show(intent, nonce, gas_limit, fees)

    async def _asked(self) -> Prices:
        """What a transaction has to pay now; asked once a block."""
        newest = await self._chain.events.newest(self.config.poll_seconds)
        if self._prices is None or self._prices[0] != newest:
            tip = self.config.priority_fee
            self._prices = (newest, await ask_prices(self._chain.provider, newest, tip))
        return self._floors.above(self._prices[1])

    def _end_too_large(self, intent: Intent, what: str) -> None:
        """What every node refuses would keep its nonce, and hold up all behind it."""
        self._store.end(intent, TxState.FAILED, f"{intent.call.label} {what}", TOO_LARGE)

    async def _estimate(self, intent: Intent) -> int | None:
        """Gas limit with margin; None where no block would take the call, which has ended then."""
        call = intent.call
        query: dict[str, Any] = {
            "from": self.address,
            "to": call.to,
            "data": f"0x{call.data.hex()}",
            "value": hex(intent.value),
        }
        try:
            # On top of what is pending: a call may build on one of ours that no block has yet.
            gas = await self._chain.provider.ask("eth_estimateGas", [query, "pending"], counter)
        except RpcRefused as refused:
            reason = reason_of(refused)
            self._refuse(intent, Kind.REFUSED, f"reverted: {reason}", reason.name)
            return None
        except RpcUnavailable as error:
            self._refuse(intent, Kind.UNCLEAR, f"is understood by no RPC endpoint: {error}")
            return None
        if gas > MOST_GAS:
            what = f"takes {gas} gas, {MOST_GAS} are the most"
            self._refuse(intent, Kind.REFUSED, what, TOO_LARGE)
            return None
        return min(gas + gas * self.config.gas_margin_percent // 100, MOST_GAS)

    def _refuse(self, intent: Intent, kind: Kind, why: str, error: str | None = None) -> None:
        """Ends it where it is refused for long enough; until then it waits, and is asked again."""
        message = f"{intent.call.label} {why}"
        if not self._is_believed(intent, kind):
            self._store.note(intent, f"{TRIED_AGAIN}{message}")
            return
        is_moot = intent.call.permissionless and error not in {None, NO_MONEY, TOO_LARGE}
        state = TxState.MOOT if is_moot else TxState.FAILED
        self._store.end(intent, state, message, error)

    async def _can_pay(self, intent: Intent, gas_limit: int, fees: Fees) -> bool:
        cost = intent.value + gas_limit * fees.max_fee
        balance = await self._chain.native_balance(self.address)
        if balance < cost:  # or whoever said so is behind: a bid too many is only refused
            balance = max(balance, *await self._each("eth_getBalance", quantity))
        if balance < cost:
            why = f"is not paid for: {self.address} has {balance} wei, it may take {cost} wei"
            self._refuse(intent, Kind.REFUSED, why, NO_MONEY)
        return balance >= cost

    async def _each(self, method: str, read: Read[int]) -> list[int]:
        """What each endpoint says of the account; of those that failed lately where need be."""
        question = [self.address, LATEST]
        provider = self._chain.provider
        said = await provider.ask_all(method, question, read, lambda found: len(found) > 1)
        return list(said.values())

    async def _next_nonce(self) -> int:
        """The lowest nonce that neither the chain nor one of our own transactions has.

        Of what several endpoints say the lower middle one: under too low a nonce it is refused, and
        sent anew once a block shows whose that was; too high a one no block ever takes.
        """
        said = await self._each("eth_getTransactionCount", counter)
        nonce = median_low(said) if said else await self._chain.nonce(self.address)
        nonce = max(nonce, self._least_nonce)
        used = {intent.nonce for intent in self._store.in_state(*TxState)}
        while nonce in used:
            nonce += 1
        return nonce

    async def _sign_and_show(
        self, intent: Intent, nonce: int, gas_limit: int, fees: Fees, *, cancels: bool = False
    ) -> None:
        transaction: dict[str, Any] = {
            "type": 2,
            "chainId": self._chain.deployment.chain_id,
            "nonce": nonce,
            "gas": TRANSFER_GAS if cancels else gas_limit,
            "maxFeePerGas": fees.max_fee,
            "maxPriorityFeePerGas": fees.priority_fee,
            "to": self.address if cancels else intent.call.to,
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
        if await self._show(signed):
            await self._meet_floor(intent, signed, gas_limit)

    async def _meet_floor(self, intent: Intent, low: SignedTransaction, gas_limit: int) -> None:
        """Bids at once what a node has just said that it takes, where the cap allows for it."""
        prices, cap = await self._asked(), self.config.cap(intent.call.stake, gas_limit)
        old = Fees(low.max_fee, low.priority_fee)
        fees = raise_bid(old, prices.base_fee, prices.tip, cap)
        if fees is None or fees.priority_fee < prices.tip or fees.max_fee < prices.base_fee:
            self._store.note(intent, "waits: a node asks for more than the fee cap", intent.error)
        elif fees.priority_fee > low.priority_fee or fees.max_fee > low.max_fee:
            current = self._store.find(intent.key)
            assert current is not None and current.nonce is not None
            await self._sign_and_show(current, current.nonce, gas_limit, fees, cancels=low.cancels)

    async def _show(self, signed: SignedTransaction) -> bool:
        """Broadcasts. A refusal changes nothing: what is signed stays until the chain decides.

        What no block took since is shown to every endpoint: the one that took it may pass it on to
        nobody.

        Returns:
            whether it is new and refused for its price, by a node that names the least it takes.
        """
        is_new = signed.tx_hash not in self._shown_at
        now = self._shown_at[signed.tx_hash] = self._clock()
        self._first_shown.setdefault(signed.tx_hash, now)
        self._missed.discard(signed.tx_hash)
        shown = (SEND, [f"0x{signed.raw.hex()}"], tx_hash)
        refusals: list[RpcRefused] = []
        try:
            if is_new:
                await self._chain.provider.ask(*shown)
            else:
                refusals = await self._chain.provider.tell_all(*shown)
        except RpcRefused as error:
            refusals = [error]
        except RpcUnavailable as error:  # each is shown it again
            log.warning("no node took a transaction", tx=signed.tx_hash, cause=str(error))
        for refused in refusals:
            if refusal_of(refused) is not Refusal.KNOWN:
                log.warning("a node refused a transaction", tx=signed.tx_hash, cause=refused.text)
        low = [each for each in refusals if refusal_of(each) is Refusal.UNDERPRICED]
        return is_new and any(self._floors.note(each) for each in low)

    def _status(self, intent: Intent) -> TxStatus:
        depth = self.config.final_blocks if intent.final and intent.block_number else 0
        if intent.block_number is not None and self._head is not None:
            depth = max(self._head.number - intent.block_number + 1, depth, 1)
        return TxStatus(
            key=intent.key,
            label=intent.call.label,
            state=intent.state,
            nonce=intent.nonce,
            tx_hash=intent.tx_hash,
            block=intent.block_number,
            confirmations=depth,
            gas_used=intent.gas_used,
            fee_wei=intent.fee_wei,
            error=intent.error,
            message=intent.message,
        )


def _failure(status: TxStatus) -> ChainError:
    message = status.message or f"{status.label} failed"
    if status.error == NO_MONEY:
        return InsufficientFunds(message, next_step="send the account some native coin for gas")
    return TransactionFailed(message, error=status.error)
