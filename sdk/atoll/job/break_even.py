"""What taking part costs a machine, and the price from which it pays.

Rule of this file: pure; dollars an hour. A token is worth what the member says, a dollar if it says
nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from atoll.job.groups import duration_text
from atoll.job.verification import seat_standings
from atoll.protocol.audit_fees import SIGNATURE_GAS
from atoll.protocol.clocks import AuditClock
from atoll.protocol.manifest import Manifest
from atoll.protocol.token_units import whole_token
from atoll.protocol.types import Role, Terms
from atoll.service.pace import (
    HOUR,
    Pace,
    loads_of,
    longest_round,
    million_pay,
    round_earnings,
    round_lasts,
)

YEAR_HOURS: Final = 8766
COMMIT_GAS: Final = 43_000
REVEAL_GAS: Final = 49_000
LEAF_GAS: Final = 2_400
"""Of a reveal, for each segment."""
CLAIM_GAS: Final = 10_000
"""Of each round: what a claim of many costs, divided by them."""
REPORT_GAS: Final = 100_000
"""To seal an audit report and to open it."""
GWEI: Final = 10**9


@dataclass(frozen=True, slots=True)
class MemberPrices:
    """What a member pays for what it uses; dollars.

    Attributes:
        watts: that the machine draws at work, `electricity` for a kilowatt hour.
        rent: of the machine, an hour.
        gas_gwei: for a unit of gas; `coin` for one of the chain's.
        token: for one of the network's.
        interest: a year, of what is locked or not paid out yet.
    """

    watts: float = 350.0
    electricity: float = 0.30
    rent: float = 0.0
    gas_gwei: float = 0.005
    coin: float = 3000.0
    token: float = 1.0
    interest: float = 0.05


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Dollars an hour in a job.

    Attributes:
        earned: pay; `electricity`, `rent`, `gas`, `bond` and `waiting` are costs, the last two what
            the locked bond and pay that is not final could have earned elsewhere.
        price_wei: of a million trained tokens, or of a replay for a verifier, at which it costs as
            much as it earns; None where the job pays nothing.
        locked: tokens of the bond.
        retained: tokens of its pay that join the bond, half of each claim, until all is paid out.
        advance: dollars that it has spent before its first pay is final, `wait_seconds` after it
            began.
    """

    earned: float
    electricity: float
    rent: float
    gas: float
    bond: float
    waiting: float
    price_wei: int | None
    locked: float
    retained: float
    advance: float
    wait_seconds: int

    @property
    def costs(self) -> float:
        """All of them."""
        return self.electricity + self.rent + self.gas + self.bond + self.waiting

    @property
    def net(self) -> float:
        """What is left."""
        return self.earned - self.costs

    def to_json_value(self) -> dict[str, Any]:
        """For JSON: an amount in wei as text."""
        price = None if self.price_wei is None else str(self.price_wei)
        return asdict(self) | {"price_wei": price, "costs": self.costs, "net": self.net}

    def lines(self, role: str) -> list[str]:
        """For a person."""
        paid = "a million trained tokens" if role == "provider" else "a replay"
        even = "no price" if self.price_wei is None else f"{self.price_wei} wei for {paid}"
        wait = duration_text(self.wait_seconds)
        return [
            f"       costs   {self.costs:.3g} dollars an hour: electricity {self.electricity:.3g}, "
            f"rent {self.rent:.3g}, gas {self.gas:.3g}, interest on the bond {self.bond:.3g} and "
            f"on pay that is not final {self.waiting:.3g}",
            f"       net     {self.net:+.3g} dollars an hour; it breaks even at {even}",
            f"       cash    a bond of {self.locked:.6g} tokens, and {self.advance:.3g} dollars of "
            f"costs until the first pay is final, {wait} after it began"
            + (f"; {self.retained:.6g} tokens of pay are retained" if self.retained else ""),
        ]


def round_gas(role: Role, terms: Terms) -> int:
    """Gas of a member's own transactions in a round, about."""
    if role is Role.PROVIDER:
        return COMMIT_GAS + REVEAL_GAS + LEAF_GAS * terms.segments + CLAIM_GAS
    return SIGNATURE_GAS + REPORT_GAS + CLAIM_GAS


def _retained(terms: Terms) -> int:
    """Units of a seat's pay that its bond holds at most before the job ends."""
    return seat_standings(terms)[-1].retained


def break_even_of(role: Role, manifest: Manifest, pace: Pace, prices: MemberPrices) -> BreakEven:
    """Of a machine of this pace in a job: rounds last as `earned_per_hour` takes them to."""
    terms, lasts = manifest.terms, round_lasts(role, manifest, pace)
    worked = sum(load.needed for load in loads_of(role, manifest, pace) if load.name != "game")
    bond = (terms.provider_bond if role is Role.PROVIDER else terms.verifier_bond) / whole_token()
    earned = round_earnings(role, terms) / whole_token() * prices.token * HOUR / lasts
    wait = longest_round(terms) + AuditClock.of(terms, 0).window_end
    interest = prices.interest / YEAR_HOURS
    electricity = prices.watts / 1000 * prices.electricity * min(1.0, worked / lasts)
    gas = round_gas(role, terms) * prices.gas_gwei / GWEI * prices.coin * HOUR / lasts
    held = bond * prices.token * interest
    # Pay that waits is in proportion to the price: it makes each token of pay worth less.
    worth = 1 - wait / HOUR * interest
    fixed = electricity + prices.rent + gas + held
    paid = million_pay(terms) if role is Role.PROVIDER else terms.duty_fee
    return BreakEven(
        earned=earned,
        electricity=electricity,
        rent=prices.rent,
        gas=gas,
        bond=held,
        waiting=earned * (1 - worth),
        price_wei=int(paid * fixed / (earned * worth)) + 1 if earned and worth > 0 else None,
        locked=bond,
        retained=_retained(terms) / whole_token() if role is Role.PROVIDER else 0.0,
        advance=(electricity + prices.rent + gas) * wait / HOUR,
        wait_seconds=wait,
    )
