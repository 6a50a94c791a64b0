"""What a round inside a reset period is told of the rounds before it. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.protocol.types import Digest, RoundIndex


@dataclass(frozen=True, slots=True)
class EarlierRound:
    """A round of the reset period that a seat's state comes from.

    Attributes:
        global_state_cid: binary, of the GlobalState that it opened from.
    """

    round: RoundIndex
    data_seed: Digest
    global_state_cid: bytes
