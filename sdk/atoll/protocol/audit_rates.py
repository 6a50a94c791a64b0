"""How often a seat is replayed: its chance follows what a lost game would cost it.

A seat that is found false loses the burnt part of its bond and the pay that is retained from it.
The more that is, the smaller the chance of a replay that deters as well; it grows with rounds that
were paid, so that an honest seat becomes cheap to verify. (BOINC's adaptive replication counts good
results; tenure that costs nothing would make lies profitable, so here it is money.)

The terms say the chance of a newcomer, which its bond alone deters at, and by how many steps of the
table it may come down. A step takes √2 times the stake, so that what a lie loses on average is the
same for every seat; `Incentive` says which chance and which bond that is to be.

Rule of this file: integers of wei and of 2^-32. A chance is rounded up and a stake down, so no
rounding favours a cheat; a draw is a function of its seed and of the rates that the round opened
with, and of nothing that happens after.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt
from typing import Final

from atoll.protocol.hashing import hash_fields, tag
from atoll.protocol.terms import LOWEST_RATE, WHOLE_BPS
from atoll.protocol.types import Digest, SeatIndex, Terms, Wei

ALWAYS: Final = 1 << 32
"""A chance of one, as rates write it."""
SEATS_A_HASH: Final = 8
RETAINED_PART: Final = 2
"""Of a seat's pay a half is retained: it has to live on the other one."""
_ROOT_BITS: Final = 31
_ROOT: Final = isqrt(2 << 2 * _ROOT_BITS) + 1
"""√2 in 2^-31, rounded up."""


def _power_of_root(step: int) -> int:
    """2^32 · 2^(-step/2), rounded up."""
    squared = ALWAYS * ALWAYS >> step
    root = isqrt(squared)
    return root + (root * root < squared)


RATES: Final = tuple(_power_of_root(step) for step in range(LOWEST_RATE + 1))
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
    """

    margin: int = 4
    guard: int = 48
    burnt_bps: int = 7_000

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


# --- what is retained, and what it brings ---


def stake_for(bond: int, steps: int) -> Wei:
    """What has to be at stake, in place of the part of a bond that a slash burns, for a rate so
    many steps lower.
    """
    odd = (bond * _ROOT >> _ROOT_BITS) + 1 if steps & 1 else bond
    return Wei(odd << steps // 2)


def most_retained(bond: int, steps: int) -> Wei:
    """What is retained of a holder at most, by the burnt part of its bond: beyond it the chance
    cannot fall. From there on all of a round is paid out.
    """
    return Wei(stake_for(bond, steps) - bond)


def retained_part(earned: int, retained: int, most: int) -> Wei:
    """How much of a claim's pay joins what is retained; the rest is paid out.

    Args:
        earned: of FINAL rounds, wei.
        retained: before it.
        most: `most_retained` of the holder.
    """
    return Wei(min(earned // RETAINED_PART, most - retained))


def steps_of(bond: int, retained: int) -> int:
    """Entries of the table that a holder has come down by. Claims alone raise it: rounds that are
    not paid, or not FINAL, count nothing.
    """
    steps = 0
    while stake_for(bond, steps + 1) <= bond + retained:
        steps += 1
    return steps


def rate_of_seat(rate: int, steps: int) -> int:
    """The rate of a seat that has come down so many steps, in a round of such a rate. Where that is
    "always", everybody is replayed.
    """
    return min(LOWEST_RATE, rate + steps) if rate else 0


# --- who is drawn ---


def is_drawn(audit_seed: Digest, seat: SeatIndex, rate: int) -> bool:
    """Whether a seat is replayed: its ticket is below its rate. A hash is eight seats' tickets.

    Each seat is drawn by itself, so a round may have nobody drawn, and a seat's chance does not
    depend on how many others there are.
    """
    place, at = divmod(seat, SEATS_A_HASH)
    tickets = hash_fields(("bytes32", "bytes32", "uint256"), (_DRAW_TAG, audit_seed, place))
    return int.from_bytes(tickets[4 * at : 4 * at + 4], "big") < RATES[rate]


# --- rates that terms say ---


def rate_of_chance(chance: Fraction) -> int:
    """The lowest entry of the table whose chance is no smaller."""
    return max(at for at, rate in enumerate(RATES) if rate >= min(chance, Fraction(1)) * ALWAYS)


def rate_in(terms: Terms, *, is_last: bool) -> int:
    """The rate of a newcomer in a round. A merge that bears nobody has everybody replayed."""
    if not terms.f:
        return 0
    return terms.last_rate if is_last else terms.audit_rate


def mean_duties(terms: Terms) -> Fraction:
    """What seeds draw in a whole job, on average, where nobody has come down a step."""
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
