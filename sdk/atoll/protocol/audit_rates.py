"""How often a seat is replayed: its chance follows what a lost game would cost it.

A seat that is found false loses the burnt part of its bond and the pay that is retained from it.
The more that is, the smaller the chance of a replay that deters as well; it grows with rounds that
were paid, so that an honest seat becomes cheap to verify. (BOINC's adaptive replication counts good
results; tenure that costs nothing would make lies profitable, so here it is money.)

Rule of this file: integers of wei and of 2^-32. A chance is rounded up and a stake down, so no
rounding favours a cheat; a draw is a function of its seed and of the rates that the round opened
with, and of nothing that happens after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt
from typing import Final

from atoll.protocol.hashing import hash_fields, tag
from atoll.protocol.terms import MAX_SEATS, WHOLE_BPS
from atoll.protocol.types import Bitmap, Digest, SeatIndex, Terms, Wei, bits

ALWAYS: Final = 1 << 32
"""A chance of one, as rates write it."""
RATE_BITS: Final = 4
SEATS_A_HASH: Final = 8
SEATS_A_WORD: Final = 256 // RATE_BITS
RATE_WORDS: Final = MAX_SEATS // SEATS_A_WORD


def _power_of_root(step: int) -> int:
    """2^32 · 2^(-step/2), rounded up."""
    squared = ALWAYS * ALWAYS >> step
    root = isqrt(squared)
    return root + (root * root < squared)


RATES: Final = tuple(_power_of_root(step) for step in range(1 << RATE_BITS))
"""Chances of a replay, in 2^-32: from always on, each one √2 smaller than the one before it."""
SPEAKING: Final = Fraction(2, 3)
"""h: the share of auditors that say what they find and that no bribe buys."""

_DRAW_TAG: Final = tag("atoll.audit-rate.v1")


@dataclass(frozen=True, slots=True)
class Incentive:
    """What a job says of its audits.

    Attributes:
        margin: M, how many times what a false round saves its expected loss is.
        guard: rounds that a seat which lies in every round lasts, on average, while h of the
            auditors speak, whatever it has at stake: money does not deter who poisons for reasons
            of its own.
        burnt_bps: b, the part of a slashed bond that nobody gets, in basis points. The rest is the
            winner's, who may be the cheat's other account.
        retained_bps: ρ, the part of a round's pay that is kept back.
    """

    margin: int = 4
    guard: int = 48
    burnt_bps: int = 7_000
    retained_bps: int = 5_000

    @property
    def least_speaking(self) -> Fraction:
        """The share of auditors below which a lie pays: h / M."""
        return SPEAKING / self.margin


def at_loss(terms: Incentive, bond: int, retained: int) -> Wei:
    """What a slash costs a holder for certain: the burnt part of its bond, and what is retained.

    Pay of rounds whose windows are open is lost, too, and not counted: how much that is depends on
    when the slash comes.
    """
    return Wei(bond * terms.burnt_bps // WHOLE_BPS + retained)


def stake_needed(terms: Incentive, pay: int, rate: int) -> Wei:
    """The least stake at which a rate of the table deters: M · P / (h · p), wei, rounded up."""
    over, under = SPEAKING.numerator * RATES[rate], SPEAKING.denominator * ALWAYS
    return Wei(-(-terms.margin * pay * under // over))


def lowest_rate(terms: Incentive) -> int:
    """The last entry of the table that still finds a seat within the guard, h of the auditors
    speaking; the first where none does.
    """
    over, under = SPEAKING.numerator * terms.guard, SPEAKING.denominator * ALWAYS
    return max((at for at, chance in enumerate(RATES) if chance * over >= under), default=0)


def rate_of_stake(terms: Incentive, pay: int, stake: int) -> int:
    """The entry of the table that a stake supports: the last one that deters, and is no lower than
    the guard's. Where nothing deters, the seat is replayed in every round.

    p = min(1, max(1 / (h · guard), M · P / (h · stake))), rounded up to the table.
    """
    lowest = lowest_rate(terms)
    deterring = (at for at in range(lowest + 1) if stake >= stake_needed(terms, pay, at))
    return max(deterring, default=0)


def most_retained(terms: Incentive, pay: int, bond: int) -> Wei:
    """What is retained of a holder at most: beyond it the chance cannot fall. From there on all of
    a round is paid out.
    """
    lowest = lowest_rate(terms)
    # The first entry needs no stake: a seat that is replayed in every round is found anyway.
    needed = stake_needed(terms, pay, lowest) if lowest else 0
    return Wei(max(0, needed - at_loss(terms, bond, 0)))


def retained_part(terms: Incentive, earned: int, retained: int, most: int) -> Wei:
    """How much of a FINAL round's pay joins what is retained; the rest is paid out.

    Args:
        earned: the pay of the round, wei.
        retained: before it.
        most: `most_retained` of the holder.
    """
    return Wei(max(0, min(earned * terms.retained_bps // WHOLE_BPS, most - retained)))


def season(terms: Incentive, pay: int, bond: int, retained: int) -> int:
    """The rate of a holder for rounds that open from now on. Anybody may have it raised."""
    return rate_of_stake(terms, pay, at_loss(terms, bond, retained))


# --- what a round record keeps ---


def pack_rates(rates: Mapping[SeatIndex, int]) -> tuple[int, ...]:
    """The rates of a round's seats as words, 64 seats a word, the lowest bits first; of a seat that
    is not named it is the first entry, always.
    """
    words = [0] * RATE_WORDS
    for seat, rate in rates.items():
        if not 0 <= rate < 1 << RATE_BITS:
            raise ValueError(f"{rate} is no entry of the table of rates")
        words[seat // SEATS_A_WORD] |= rate << RATE_BITS * (seat % SEATS_A_WORD)
    return tuple(words)


def packed_rate(words: Sequence[int], seat: SeatIndex) -> int:
    """The rate of a seat, from a round's words."""
    word = words[seat // SEATS_A_WORD] >> RATE_BITS * (seat % SEATS_A_WORD)
    return word & (1 << RATE_BITS) - 1


# --- who is drawn ---


def is_drawn(audit_seed: Digest, seat: SeatIndex, rate: int) -> bool:
    """Whether a seat is replayed: its ticket is below its rate. A hash is eight seats' tickets.

    Each seat is drawn by itself, so a round may have nobody drawn, and a seat's chance does not
    depend on how many others there are.
    """
    place, at = divmod(seat, SEATS_A_HASH)
    tickets = hash_fields(("bytes32", "bytes32", "uint256"), (_DRAW_TAG, audit_seed, place))
    return int.from_bytes(tickets[4 * at : 4 * at + 4], "big") < RATES[rate]


def draw_by_rates(audit_seed: Digest, revealed: Bitmap, rates: Sequence[int]) -> Bitmap:
    """The seats of a round that are replayed; `rates` are the round's words."""
    drawn = 0
    for number in bits(revealed):
        seat = SeatIndex(number)
        drawn |= is_drawn(audit_seed, seat, packed_rate(rates, seat)) << seat
    return Bitmap(drawn)


# --- rates that terms say ---


def rate_of_chance(chance: Fraction) -> int:
    """The lowest entry of the table whose chance is no smaller."""
    return max(at for at, rate in enumerate(RATES) if rate >= min(chance, Fraction(1)) * ALWAYS)


def rate_in(terms: Terms, *, is_last: bool) -> int:
    """The rate of every seat in a round. A merge that bears nobody has everybody replayed."""
    if not terms.f:
        return 0
    return terms.last_rate if is_last else terms.audit_rate


def mean_duties(terms: Terms) -> Fraction:
    """What seeds draw in a whole job, on average."""
    usual, last = (RATES[rate_in(terms, is_last=is_last)] for is_last in (False, True))
    return Fraction(((terms.rounds - 1) * usual + last) * terms.seats, ALWAYS)


def most_duties(terms: Terms) -> int:
    """What seeds draw in a whole job at most: the mean, and six times its root and one more. Where
    they were all drawn, nobody is any more, so that the escrow is never short.
    """
    return most_of(mean_duties(terms), terms.rounds * terms.seats)


def most_of(mean: Fraction, every: int) -> int:
    """`most_duties` by the mean, and by the rounds of all seats together."""
    whole = ceil(mean)
    return min(every, whole + 6 * (isqrt(whole) + 1))
