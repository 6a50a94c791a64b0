"""The codecs of updates: what a manifest, a merge and a quote have to know of each, by name.

Rule of this file: who reads a codec's name asks here for a property of it. How it writes an update
is in `atoll.numerics.codec`, whose registry has a row for each of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from atoll.protocol.rules import Rule

FP32_EXPONENT: Final = -40
"""fp32 updates are merged in integers of 2**-40, the outer step's unit."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Deviations of an update, as powers of two of the grid's step, that a codec writes best.

    Attributes:
        even: of updates of AdamW, whose values are alike.
        uneven: of updates of SGD, of which few values have most of the squared length. Those of
            Muon are between.
    """

    even: float
    uneven: float


@dataclass(frozen=True, slots=True)
class CodecKind:
    """What a codec's updates are like.

    Attributes:
        number: in an update's header.
        start: exponent of the grid of eight steps of AdamW at 2e-5, where a method's begins.
        spread: what its grid should be held against; None where the grid never moves.
        bytes_per_value: of an update at most, and of a merged first moment.
        fineness: bits below a grid step that merged updates keep; None of updates that are not
            rounded again.
        is_sparse: whether few seats send a coordinate, so that a mean over its senders merges them.
        is_exact: whether values are sent as they are. They are merged by their mean, in integers of
            2**`start`: squares of these would overflow, so that no rule compares them.
    """

    number: int
    start: int
    spread: Spread | None
    bytes_per_value: int = 1
    fineness: int | None = None
    is_sparse: bool = False
    is_exact: bool = False

    @property
    def may_feed_back(self) -> bool:
        """Whether there is something that an update leaves out."""
        return not self.is_exact

    def is_merged_by(self, rule: Rule) -> bool:
        """Whether a rule takes its updates."""
        return rule.is_plain_sum if self.is_exact else rule.is_sparse is self.is_sparse


CODECS: Final[Mapping[str, CodecKind]] = MappingProxyType(
    {
        "grid8": CodecKind(0, -16, Spread(3.5, 1.2), fineness=0),
        "grid4": CodecKind(1, -14, Spread(1.2, -0.5), fineness=4),
        "two_bit": CodecKind(2, -15, Spread(4.3, 2.8), fineness=0),
        "sign": CodecKind(3, -15, Spread(3.3, 3.2), fineness=0),
        "sparse": CodecKind(4, -15, Spread(3.1, 2.1), is_sparse=True),
        "dct": CodecKind(5, -21, Spread(2.2, 1.5), is_sparse=True),
        "fp32": CodecKind(6, FP32_EXPONENT, None, bytes_per_value=4, is_exact=True),
    }
)
"""By the name that a manifest has."""
