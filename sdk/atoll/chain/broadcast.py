"""Shows signed transactions to nodes, and remembers since when each was shown."""

from __future__ import annotations

import math

import structlog

from atoll.chain.prices import PriceFloors
from atoll.chain.response_checks import tx_hash
from atoll.chain.txconfig import QueueParts
from atoll.chain.txrecords import SignedTransaction
from atoll.chain.verdicts import SEND, Refusal, RpcRefused, refusal_of
from atoll.errors import ChainError, RpcUnavailable

log = structlog.get_logger("atoll.chain.txqueue")


class Broadcaster:
    """What this process has shown; after a restart all is shown once more.

    Attributes:
        floors: the least that nodes said they take.
    """

    def __init__(self, parts: QueueParts) -> None:
        self.floors = PriceFloors(parts.clock)
        self._chain = parts.chain
        self._config = parts.config
        self._clock = parts.clock
        self._first_shown: dict[str, float] = {}
        self._shown_at: dict[str, float] = {}
        self._missed: set[str] = set()

    def show_all_again(self) -> None:
        """Has every transaction shown again at the next pass."""
        self._shown_at.clear()

    def is_overdue(self, signed: SignedTransaction, now: float) -> bool:
        """Whether no block took it for so long that it is to be replaced."""
        first = self._first_shown.get(signed.tx_hash, now)
        return now - first >= self._config.replace_seconds

    async def show_if_due(self, signed: SignedTransaction, now: float) -> None:
        """Shows it again where the last time was long ago, and it is not kept."""
        last = self._shown_at.get(signed.tx_hash, -math.inf)
        if now - last < self._config.rebroadcast_seconds:
            return
        if await self.is_kept(signed):
            self._shown_at[signed.tx_hash] = now
        else:
            await self.show(signed)

    async def show(self, signed: SignedTransaction) -> bool:
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
        return is_new and any(self.floors.note(each) for each in low)

    async def is_kept(self, signed: SignedTransaction) -> bool:
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
