"""The contracts as one plain object: what SPEC-ROUNDS.md says, written a second time.

Rule of this folder: it takes nothing of the product but the types of events and of what stands in
them, and hashes, draws and counts for itself; so what the product folds from its events, or draws,
or pays, can be wrong. `tests/unit/test_house.py` holds the imports. `tests.unit.protocol.network`
has it with the product's fold beside it.
"""

from tests.support.contracts.money import Contracts
from tests.support.contracts.reveals import changed, checkpoint_commitments_of, reveal_of
from tests.support.contracts.values import (
    FOREVER,
    PENALTY_BPS,
    WINNER_BPS,
    ZERO,
    Member,
    Past,
    Refused,
    bitmap,
    hashed,
    need,
    numbers,
    smallest,
    tagged,
    word,
)

__all__ = [
    "FOREVER",
    "PENALTY_BPS",
    "WINNER_BPS",
    "ZERO",
    "Contracts",
    "Member",
    "Past",
    "Refused",
    "bitmap",
    "changed",
    "checkpoint_commitments_of",
    "hashed",
    "need",
    "numbers",
    "reveal_of",
    "smallest",
    "tagged",
    "word",
]
