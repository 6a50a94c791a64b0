"""What a step's last node says, read from its bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from atoll.numerics.kernels.keccak import DIGEST_BYTES
from atoll.protocol.types import ZERO_DIGEST, Digest

NORM: Final = slice(DIGEST_BYTES, DIGEST_BYTES + 8)


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """What the last node of a step says.

    Attributes:
        digest: of the state after the step; zero where the step is not finite.
        norm: of the gradient; losses: of the micro-batches, fp32.
    """

    digest: Digest
    norm: float
    losses: tuple[float, ...]

    @classmethod
    def of(cls, data: bytes) -> FinishedStep:
        """From the bytes of RESULT."""
        losses = struct.unpack(f">{(len(data) - NORM.stop) // 4}f", data[NORM.stop :])
        (norm,) = struct.unpack(">d", data[NORM])
        return cls(Digest(data[: NORM.start]), norm, losses)

    @property
    def is_finite(self) -> bool:
        return self.digest != ZERO_DIGEST
