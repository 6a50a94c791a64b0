"""Orders of a chain's logs that the contracts' heads do not tell apart.

Of one contract and job the order is in its head. Of two contracts it is not, but where the one
takes the other's head in: what Rounds says of a phase is behind what Members has said before, and
before what Members says later; what LateVotes says, and a leak, is so to Rounds.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from atoll.chain.decode import RawLog
from atoll.chain.log_heads import HeadFold, LogKey, key_of
from atoll.protocol.types import Address


def heads_of(raws: Iterable[RawLog], behind: Mapping[bytes, Address]) -> dict[LogKey, bytes]:
    """What the contracts have as heads behind logs in this order."""
    fold = HeadFold(behind)
    fold.fold_all(raws)
    return fold.heads


def another_order(
    raws: Sequence[RawLog], behind: Mapping[bytes, Address], rng: random.Random
) -> list[int]:
    """The same logs, by their numbers, otherwise mixed within each block."""
    numbers = range(len(raws))
    by_block = groupby(numbers, key=lambda n: raws[n].block_number)
    return [n for _, block in by_block for n in _mixed(raws, list(block), behind, rng)]


def _mixed(
    raws: Sequence[RawLog], block: list[int], behind: Mapping[bytes, Address], rng: random.Random
) -> Iterator[int]:
    """One of the orders of a block's logs that keeps what has to be kept, drawn."""
    left = list(block)
    needs = {n: set(HeadFold(behind).needed(raws[n])) for n in block}
    while left:
        chosen = rng.choice(
            [
                n
                for at, n in enumerate(left)
                if not any(
                    key_of(raws[before]) in needs[n] or key_of(raws[n]) in needs[before]
                    for before in left[:at]
                )
            ]
        )
        left.remove(chosen)
        yield chosen
