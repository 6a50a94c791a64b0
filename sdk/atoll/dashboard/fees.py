"""What the transactions of a job cost in gas, from their receipts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final, Protocol

from atoll.chain.response_checks import TxReceipt
from atoll.errors import ChainError
from atoll.job.ledger.ledger import Ledger
from atoll.job.ledger.overview import GasSpent

AT_ONCE: Final = 8


class Receipts(Protocol):
    """What is asked of a chain."""

    async def receipt(self, tx_hash: str) -> TxReceipt | None:
        """What became of a transaction."""


@dataclass
class Fees:
    """Gas and wei by transaction, kept once they were read; an old receipt never changes."""

    _known: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    async def of(self, chain: Receipts, ledger: Ledger, most: int | None = None) -> GasSpent:
        """Of the transactions that a ledger's events are in.

        Args:
            most: so many receipts are read at most; the next call reads on.
        """
        hashes = list(dict.fromkeys(i.transaction for i in ledger.items if i.transaction))
        missing = [tx for tx in hashes if tx not in self._known][:most]
        for start in range(0, len(missing), AT_ONCE):
            await asyncio.gather(
                *(self._read(chain, tx) for tx in missing[start : start + AT_ONCE])
            )
        counted = [self._known[tx] for tx in hashes if tx in self._known]
        gas, wei = (sum(amounts) for amounts in zip(*counted, strict=True)) if counted else (0, 0)
        return GasSpent(len(hashes), len(counted), gas, wei)

    async def _read(self, chain: Receipts, tx: bytes) -> None:
        try:
            receipt = await chain.receipt(f"0x{tx.hex()}")
        except ChainError:  # the next look asks again
            return
        if receipt is not None and receipt.gas_used is not None:
            self._known[tx] = receipt.gas_used, receipt.gas_used * (receipt.fee_price or 0)
