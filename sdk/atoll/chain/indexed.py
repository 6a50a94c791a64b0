"""An event with its place in the chain, as the index and whoever reads from it have it."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.protocol.events import ContractEvent
from atoll.protocol.types import BlockRef


@dataclass(frozen=True, slots=True)
class Indexed:
    """An event in a confirmed block; `transaction` is the hash of the one that caused it."""

    event: ContractEvent
    block: BlockRef
    log_index: int
    transaction: bytes = b""
