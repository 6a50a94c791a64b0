"""One key's transactions: each intent becomes exactly one transaction in the chain, or a reason.

Rule of this file: written down, then signed, then written down again, then sent. A nonce is taken
only for a call that just passed a simulation, and a nonce once taken is always used up: by the
call, by a dearer copy of it, or by an empty transfer. So a crash at any line loses nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from eth_utils.address import to_checksum_address

from atoll.chain.broadcast import Broadcaster
from atoll.chain.call import Call
from atoll.chain.contracts import AtollChain
from atoll.chain.doubts import DoubtKind, Doubts
from atoll.chain.inclusion import Inclusion
from atoll.chain.replacement import Replacement
from atoll.chain.signing import Signer
from atoll.chain.submission import Submission
from atoll.chain.txconfig import QueueConfig, QueueParts
from atoll.chain.txrecords import ENDED_WITHOUT_EFFECT, GasUse, Intent, TxState
from atoll.chain.txstatus import Reason, TxStatus, failure, status_of
from atoll.chain.txstore import TxStore
from atoll.errors import ChainError, RpcUnavailable
from atoll.protocol.types import Address

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

log = structlog.get_logger("atoll.chain.txqueue")


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
        store = TxStore(path, self.address, chain.deployment.chain_id, self.config.pair)
        parts = QueueParts(
            chain=chain,
            account=account,
            address=self.address,
            store=store,
            config=self.config,
            clock=clock,
        )
        self._chain = chain
        self._store = store
        self._doubts = doubts = _doubts(self.config, clock)
        broadcaster = Broadcaster(parts)
        signer = Signer(parts, broadcaster)
        self._inclusion = inclusion = Inclusion(parts, broadcaster)
        self._submission = Submission(parts, inclusion=inclusion, signer=signer, doubts=doubts)
        self._replacement = Replacement(
            parts, inclusion=inclusion, broadcaster=broadcaster, signer=signer, doubts=doubts
        )
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
        """The journal beside it has claimed so many subjects by now; on disk when this returns."""
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
                    raise failure(status)
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
                await self._inclusion.reconcile(head)
                await self._replacement.rescue()
                await self._submission.send_queued()
        async with self._moved:
            self._moved.notify_all()

    async def bump(self, key: str) -> None:
        """Sends a stuck transaction again for more, now.

        Raises:
            ChainError: it is not under way, or the fee cap forbids more.
        """
        async with self._pumping:
            await self._replacement.replace(self._under_way(key), cancel_reason=None, forced=True)

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
                reason = Reason(f"{intent.call.label} was withdrawn")
                await self._replacement.replace(intent, cancel_reason=reason, forced=True)
        async with self._moved:
            self._moved.notify_all()

    def _under_way(self, key: str) -> Intent:
        intent = self._store.find(key)
        if intent is None or intent.state is not TxState.SENT:
            raise ChainError(f"no transaction is under way as {key!r}")
        return intent

    def _status(self, intent: Intent) -> TxStatus:
        return status_of(intent, self._inclusion.head, self.config.final_blocks)


def _doubts(config: QueueConfig, clock: Callable[[], float]) -> Doubts:
    """For how long what may pass has to be repeated before it is believed."""
    patience = config.doubt_seconds
    kinds = {
        DoubtKind.REFUSED: patience,
        DoubtKind.STUCK: patience,
        DoubtKind.UNCLEAR: config.unclear_seconds,
    }
    return Doubts(kinds, clock)
