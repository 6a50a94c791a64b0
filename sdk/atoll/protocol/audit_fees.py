"""What verification is paid: a replay a little above its cost, a signature what readiness costs.

Rule of this file: integers of wei, rounded up. A fee that is far above the cost makes replays worth
selling, and one below it makes them worth leaving out.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from atoll.protocol.types import Wei

REPLAY_MARGIN: Final = Fraction(11, 10)
"""Of a replay's cost: the fee pays it and a tenth more, for what is fetched and for being there."""
MERGE_OPERATIONS: Final = 100
"""Of one number of one update: decoding, distances, sorting, as a GPU does them."""
SIGNATURE_GAS: Final = 100_000
"""Of a committee member in a round: its vote, and its part of the settlement."""
MEGA: Final = 10**6
EXA: Final = 10**18


def replay_fee(cost: Fraction | int) -> Wei:
    """Of a whole replay that costs so much, wei."""
    fee = REPLAY_MARGIN * cost
    return Wei(-(-fee.numerator // fee.denominator))


@dataclass(frozen=True, slots=True)
class Readiness:
    """What a verifier does in every round to be able to sign its merge.

    Attributes:
        updates: of the round's seats.
        update_bytes: of one.
        numbers: in one.
    """

    updates: int
    update_bytes: int
    numbers: int

    @property
    def fetched(self) -> int:
        """Bytes of a round."""
        return self.updates * self.update_bytes

    @property
    def operations(self) -> int:
        """Of a merge."""
        return self.updates * self.numbers * MERGE_OPERATIONS


@dataclass(frozen=True, slots=True)
class UnitPrices:
    """Prices of what verification uses up, wei.

    Attributes:
        exa_operations: for 10^18 operations.
        terabyte: for 10^12 bytes fetched.
        mega_gas: for 10^6 gas.
    """

    exa_operations: int
    terabyte: int = 0
    mega_gas: int = 0


def signature_fee(work: Readiness, prices: UnitPrices) -> Wei:
    """Of one signature, wei: never nothing, since a job that pays nothing is refused."""
    cost = (
        Fraction(work.operations * prices.exa_operations, EXA)
        + Fraction(work.fetched * prices.terabyte, 10**12)
        + Fraction(SIGNATURE_GAS * prices.mega_gas, MEGA)
    )
    return Wei(max(1, -(-cost.numerator // cost.denominator)))


def operations_price(operations: int, exa_operations: int) -> Wei:
    """Of so many operations at a price for 10^18 of them, wei, rounded up."""
    return Wei(-(-operations * exa_operations // EXA))
