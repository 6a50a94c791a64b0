"""What audits and signatures cost by the rules that contracts have today, and the least of them.

Rule of this file: pure. What is expected is of honest jobs: nobody is excluded, and every slot of
the pool is taken. What a job holds for audits at most is `atoll.protocol.pay.budget`; what it does
not spend comes back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import ceil

from atoll.protocol.audit_rates import SPEAKING
from atoll.protocol.committee_draws import COMMITTEE, LAST_AUDITORS
from atoll.protocol.pay import most_drawn
from atoll.protocol.terms import WHOLE_BPS
from atoll.protocol.types import Terms


@dataclass(frozen=True, slots=True)
class Duties:
    """How much is replayed and signed in a whole job where everybody is honest.

    Attributes:
        rounds, seats, slots: of the job.
        drawn: seats that a round's share draws.
    """

    rounds: int
    seats: int
    slots: int
    drawn: int

    @classmethod
    def of(cls, terms: Terms) -> Duties:
        """Of a job's terms. No more than half of a pool have seats drawn for them."""
        drawn = most_drawn(terms)
        if terms.f:
            drawn = min(drawn, ceil(Fraction(terms.slots, 2)))
        return cls(terms.rounds, terms.seats, terms.slots, drawn)

    @property
    def replays(self) -> int:
        """Of whole rounds of a seat: in the last round all, twice."""
        last = min(LAST_AUDITORS, self.slots) * self.seats
        return (self.rounds - 1) * self.drawn + last

    @property
    def signatures(self) -> int:
        """Of each round's merge, and of the last one's result."""
        return (self.rounds + 1) * min(COMMITTEE, self.slots)

    def cost(self, replay: Fraction, signature: Fraction) -> Fraction:
        """As a part of the training's price; fees are in a seat's pay of a round."""
        spent = self.replays * replay + self.signatures * signature
        return spent / (self.rounds * self.seats)


def expected_fees(terms: Terms) -> int:
    """What an honest job spends on replays and signatures, wei."""
    duties = Duties.of(terms)
    return duties.replays * terms.duty_fee + duties.signatures * terms.sign_fee


def guarded(seats: int, guard: int) -> int:
    """So many seats a round find one that lies in every round within the guard, on average."""
    return min(seats, ceil(seats / (SPEAKING * guard)))


def affordable(duties: Duties, budget: Fraction, replay: Fraction, signature: Fraction) -> int:
    """The most seats a round that such a part of the training's price pays for; 0 of none."""
    counts = range(1, duties.seats + 1)
    fit = (n for n in counts if replace(duties, drawn=n).cost(replay, signature) <= budget)
    return max(fit, default=0)


def share_text(drawn: int, seats: int) -> str:
    """A share that draws exactly so many of so many, as a job file says it."""
    return f"{Decimal(drawn * WHOLE_BPS // seats) / WHOLE_BPS:f}"
