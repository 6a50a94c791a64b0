"""What cheating costs whoever is caught, and what it may be worth before it pays.

A seat is honest iff f·C + (1 - d)·X <= d·(open pay + burnt stake). Of a round, f is the part of the
work that it leaves out or falsifies and C what the whole work costs, at most its pay, since nobody
trains at a loss; X is what it is worth to the seat if it passes, to move the model for example;
d is the chance that somebody honest replays the seat; open pay is that of its rounds which are not
FINAL, at least this one's; burnt is what of the bond goes to nobody, since the winner of a game may
be the cheat's other account.

Rule of this file: pure, and on the safe side: f = 1, C a round's pay, open pay one round's.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from atoll.protocol.audit_rates import ALWAYS, RATES, SPEAKING, rate_in
from atoll.protocol.terms import WHOLE_BPS
from atoll.protocol.types import Terms

COLLUDING = 1 - SPEAKING
"""Share of auditors that say nothing of what they find."""
DRIFT = "1 to 5 %"
"""Of an honest round's movement, in a round, that f cheats who are never drawn take back; measured
in small models: docs/attacks.md, "Drift, a round"."""


def found_part(rate: int) -> Fraction:
    """d: the chance that a seat is replayed by an auditor who says what it finds."""
    return Fraction(RATES[rate], ALWAYS) * SPEAKING


def bond_for(pay: Fraction, found: Fraction, winner_bps: int, margin: int) -> Fraction:
    """The bond whose burnt part costs who is caught so many times what leaving out a round saves,
    wei: one round's pay less is no price for a false one.

    A network whose winners take all has none: everything counts then as if it were burnt.
    """
    burnt = Fraction(WHOLE_BPS - winner_bps, WHOLE_BPS) or Fraction(1)
    return margin * pay / found / burnt


@dataclass(frozen=True, slots=True)
class Incentives:
    """Of a job's terms.

    Attributes:
        chance: d.
        pay, burnt: of a whole round and of a bond, wei.
        f: seats that the merge bears.
    """

    chance: Fraction
    pay: int
    burnt: int
    f: int

    @classmethod
    def of(cls, terms: Terms, winner_bps: int) -> Self:
        """Of a network in which winners get such a part of what is slashed."""
        chance = found_part(rate_in(terms, is_last=False))
        burnt = terms.provider_bond * (WHOLE_BPS - winner_bps) // WHOLE_BPS
        return cls(chance, terms.segments * terms.segment_pay, burnt, terms.f)

    @property
    def loss(self) -> int:
        """What a false round costs on average, wei: its pay and the burnt bond, if found."""
        return int(self.chance * (self.pay + self.burnt))

    @property
    def bears(self) -> int:
        """The largest X that does not pay, wei; below 0 where leaving out work alone does."""
        return int((self.loss - self.pay) / (1 - self.chance))

    @property
    def least_speaking(self) -> Fraction:
        """The share of auditors that has to speak for less work to cost more than it saves."""
        drawn = self.chance / SPEAKING
        return Fraction(self.pay) / (drawn * (self.pay + self.burnt)) if self.pay else Fraction(0)

    @property
    def lasts(self) -> Fraction:
        """Rounds until a seat that lies in every one is found, on average."""
        return 1 / self.chance

    @property
    def cheat_cost(self) -> int:
        """What f seats that cheat in every round, and join again after each slash, lose a round
        on average in burnt bonds, wei.
        """
        return int(self.f * self.chance * self.burnt)
