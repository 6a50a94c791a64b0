"""Which of a queue's transactions are in the chain, and which of its nonces others have used.

Rule of this file: what the chain says is written down, and nothing is sent. A block is believed,
never an index of receipts alone: a transaction that is taken for lost would be sent twice.
"""

from __future__ import annotations

import structlog

from atoll.chain.broadcast import Broadcaster
from atoll.chain.txconfig import QueueParts
from atoll.chain.txrecords import Intent, Receipt, SignedTransaction, TxState
from atoll.chain.txstatus import Reason
from atoll.errors import RpcUnavailable, TransactionFailed
from atoll.protocol.types import BlockRef

log = structlog.get_logger("atoll.chain.txqueue")


class Inclusion:
    """Follows signed transactions into blocks, and out of them where a reorg takes one back.

    Attributes:
        head: the newest block that was looked at.
        least_nonce: what another program has used is below.
    """

    def __init__(self, parts: QueueParts, broadcaster: Broadcaster) -> None:
        self.head: BlockRef | None = None
        self.least_nonce = 0
        self._chain = parts.chain
        self._store = parts.store
        self._config = parts.config
        self._address = parts.address
        self._broadcaster = broadcaster
        self._reconciled: BlockRef | None = None
        self._foreign_since: dict[int, int] = {}

    async def reconcile(self, head: BlockRef) -> None:
        """Compares what is written down with the chain up to this block."""
        self.head = head
        if self._reconciled == head:
            return
        if not await self._extends(self._reconciled):
            await self._recheck_mined(head)
        waiting, is_clear = self._store.in_state(TxState.SENT), True
        if waiting:
            used = await self._chain.nonce(self._address)
            for intent in waiting:
                is_clear = await self._look_for(intent, used, head) and is_clear
        self._store.finalise(head.number - self._config.final_blocks)
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
                self._broadcaster.show_all_again()
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
                    self.least_nonce = max(self.least_nonce, used_nonces)
                    self._store.requeue(intent)
        return receipt is not None or not is_used

    async def _is_foreign(self, intent: Intent, nonce: int, head: BlockRef) -> bool:
        """Whether a transaction that is not the intent's used its nonce.

        The block itself has to show it: an index of receipts may lag, and to believe what it does
        not have would send the intent a second time under another nonce.
        """
        try:
            number = await self._block_of(nonce, head.number)
            found = await self._chain.hash_of(self._address, nonce, number)
        except RpcUnavailable as error:
            log.warning("nobody says which transaction used a nonce", nonce=nonce, cause=str(error))
            return False
        return found not in {None, *(signed.tx_hash for signed in self._store.signed(intent))}

    async def _block_of(self, nonce: int, head: int) -> int:
        """The number of the block that used a nonce, which at the head is used.

        It is looked for from the head down: nodes keep the state of the newest blocks only.
        """
        used, free = head, head - 1
        while free > 0 and await self._chain.nonce(self._address, hex(free)) > nonce:
            used, free = free, max(0, 2 * free - head)
        while used - free > 1:
            middle = (used + free) // 2
            if await self._chain.nonce(self._address, hex(middle)) > nonce:
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
            reason = await self._why_reverted(intent, receipt)
            permissionless = intent.call.permissionless
            self._store.mined(intent, receipt, TxState.MOOT if permissionless else TxState.REVERTED)
            self._store.note(intent, reason.message, reason.error)

    async def _why_reverted(self, intent: Intent, receipt: Receipt) -> Reason:
        """A receipt has no reason: ask what the call says on top of that block."""
        label = intent.call.label
        if intent.gas_limit is not None and receipt.gas_used >= intent.gas_limit:
            return Reason(f"{label} ran out of gas ({receipt.gas_used})", "OutOfGas")
        try:
            await self._chain.simulate(intent.call, self._address, hex(receipt.block_number))
        except TransactionFailed as failed:
            return Reason(str(failed), failed.error)
        except RpcUnavailable as error:  # the state may be gone, and the transaction is not
            return Reason(f"{label} reverted in block {receipt.block_number}; {error}")
        return Reason(f"{label} reverted in block {receipt.block_number}; it would succeed now")
