"""The dither of updates: keccak in counter mode under a key that everybody can work out.

Whoever reads an update needs the noise that its writer added, and a contract must be able to work
out one coordinate's, so it is a function of (data seed, seat, section, position): SPEC.md, section
12.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from atoll.numerics.kernels.keccak import DIGEST_BYTES, Bytes, keccak_rows
from atoll.protocol.hashing import dither_key
from atoll.protocol.types import Digest

DELTA_SECTION: Final = 0
"""The section of the pseudo-gradient."""
MOMENT_SECTION: Final = 1
"""The section of the first moment."""


@dataclass(frozen=True, slots=True)
class DitherKey:
    """Whose update it is: no two seats and no two rounds share their noise.

    Attributes:
        data_seed: of the round's training.
    """

    data_seed: Digest
    seat: int
    section: int = DELTA_SECTION

    def noise(self, piece: int, count: int, first: int = 0) -> Bytes:
        """`count` bytes of a piece's noise, from `first` on, where a block begins: block i is
        keccak(key ‖ uint32 i).
        """
        begin, blocks = first // DIGEST_BYTES, -(-count // DIGEST_BYTES)
        key = dither_key(self.data_seed, self.seat, self.section, piece)
        rows = np.empty((blocks, DIGEST_BYTES + 4), dtype=np.uint8)
        rows[:, :DIGEST_BYTES] = np.frombuffer(key, dtype=np.uint8)
        rows[:, DIGEST_BYTES:] = np.arange(begin, begin + blocks, dtype=">u4")[:, None].view(
            np.uint8
        )
        return keccak_rows(rows).reshape(-1)[:count]
