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
        norm: of the gradient; losses: of the micro-batches, fp32; drawn: of each, where its tokens
            were sampled.
    """

    digest: Digest
    norm: float
    losses: tuple[float, ...]
    drawn: tuple[int, ...] = ()

    @classmethod
    def of(cls, data: bytes, *, is_sampled: bool = False) -> FinishedStep:
        """From the bytes of RESULT, or of SAMPLED_RESULT."""
        pairs = list(struct.iter_unpack(">fQ" if is_sampled else ">f", data[NORM.stop :]))
        losses, drawn = (tuple(pair[at] for pair in pairs if at < len(pair)) for at in (0, 1))
        (norm,) = struct.unpack(">d", data[NORM])
        return cls(Digest(data[: NORM.start]), norm, losses, drawn)

    @property
    def is_finite(self) -> bool:
        return self.digest != ZERO_DIGEST
