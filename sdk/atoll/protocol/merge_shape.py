"""How a job's updates are merged, and how many numbers they have: the last leaf of its program.

Rule of this file: the bytes are those that `contracts/src/libraries/MergeShapes.sol` reads, which
knows nothing else of a manifest. SPEC-JUDGE.md, 2.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from atoll.protocol.codecs import CODECS
from atoll.protocol.rules import RULES

_TAG: Final = 0xFF
"""Where a template has its part, of which there are fewer, and a header its version."""
_FIXED: Final = struct.Struct(">BBBBHQQQHhh")
_SENT: Final = struct.Struct(">HQ")


@dataclass(frozen=True, slots=True)
class Numbers:
    """How many tensors there are, and how many values they have together."""

    tensors: int
    values: int


@dataclass(frozen=True, slots=True)
class MergeShape:
    """What the chain knows of a job's merges.

    Attributes:
        rule, codec: names, as the manifest has them.
        sent: of each fragment, what updates of its rounds send.
        first: what has a first moment that updates tell; zeros where they tell none.
        factored_bytes, sampled_bytes: of factored second moments and of ids in an update.
        low, high: bounds of exponents.
        fragments: of each tensor, in ascending order of name.
    """

    rule: str
    codec: str
    sent: tuple[Numbers, ...]
    first: Numbers
    factored_bytes: int
    sampled_bytes: int
    low: int
    high: int
    fragments: tuple[int, ...]

    @property
    def rule_number(self) -> int:
        """0 where merges have no statement."""
        is_rounded = CODECS[self.codec].fineness is not None
        return RULES[RULES[self.rule].base].number if is_rounded else 0

    def to_bytes(self) -> bytes:
        """The leaf's bytes. Raises struct.error or ValueError on a number out of range."""
        fixed = _FIXED.pack(
            _TAG,
            self.rule_number,
            RULES[self.rule].mixes,
            CODECS[self.codec].number,
            self.first.tensors,
            self.first.values,
            self.factored_bytes,
            self.sampled_bytes,
            len(self.sent),
            self.low,
            self.high,
        )
        sent = (_SENT.pack(each.tensors, each.values) for each in self.sent)
        return b"".join([fixed, *sent, bytes(self.fragments)])
