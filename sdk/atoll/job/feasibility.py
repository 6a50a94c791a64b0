"""Whether a machine keeps up with a job: its measured pace against the job's windows and sizes.

Rule of this file: pure; every verdict has its two numbers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from math import ceil
from typing import Any, Final

from atoll.job.break_even import BreakEven, MemberPrices, break_even_of
from atoll.job.groups import duration_text, size_text, units_text
from atoll.job.role_needs import member_needs, round_traffic
from atoll.protocol.manifest import Manifest
from atoll.protocol.token_units import whole_token
from atoll.protocol.types import Role
from atoll.service.needs import Machine
from atoll.service.pace import Pace, earned_per_hour, loads_of, million_pay, train_seconds

USUAL: Final = MemberPrices()
TIGHT: Final = 0.75
"""A part of a window, of memory or of disk above which little room is left."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that is needed, and what there is for it; seconds or bytes.

    Attributes:
        name: `train`, `audit`, `game`, `merge`, `memory` or `disk`.
    """

    name: str
    needed: float
    given: float
    text: str

    @property
    def level(self) -> str:
        """`ok`, `tight`, or `no` where it does not fit."""
        if self.needed > self.given:
            return "no"
        return "tight" if self.needed > TIGHT * self.given else "ok"


@dataclass(frozen=True, slots=True)
class Feasibility:
    """The verdict.

    Attributes:
        down, up: bytes of a round; `megabits` a second that they take of a line, both ways, in the
            windows that there are for them.
        hourly_wei: what an hour in the job earns this machine.
        floor_wei: the price of a million tokens, or a replay's fee, of such a job at which that is
            one token; None where the job pays nothing.
        even: what taking part costs, and from which price on it pays.
    """

    role: str
    step_seconds: float
    round_seconds: float
    source: str
    checks: tuple[Requirement, ...]
    down: int
    up: int
    megabits: tuple[float, float]
    hourly_wei: int
    floor_wei: int | None
    even: BreakEven

    @property
    def fits(self) -> bool:
        """Whether nothing is lacking."""
        return all(check.level != "no" for check in self.checks)

    def to_json_value(self) -> dict[str, Any]:
        """For JSON."""
        checks = [asdict(check) | {"level": check.level} for check in self.checks]
        plain = asdict(self) | {"checks": checks, "megabits": list(self.megabits)}
        plain |= {"hourly_wei": str(self.hourly_wei)}
        plain |= {"floor_wei": None if self.floor_wei is None else str(self.floor_wei)}
        plain["even"] = self.even.to_json_value()
        return plain | {"fits": self.fits}

    def lines(self) -> list[str]:
        """For a person."""
        rows = [f"{check.level:<6} {check.name:<7} {check.text}" for check in self.checks]
        down, up = self.megabits
        rows.append(
            f"       line    {size_text(self.down)} down and {size_text(self.up)} up a round: "
            f"{down:.3g} and {up:.3g} Mbit/s while there is time for them"
        )
        rows.append(f"       pay     {self._pay_text()}")
        rows += self.even.lines(self.role)
        levels = {check.level for check in self.checks}
        verdict = "does not fit" if "no" in levels else "fits"
        return [*rows, verdict + (", with little room" if levels == {"ok", "tight"} else "")]

    def _pay_text(self) -> str:
        """What it earns, and the floor that follows for the policy."""
        earns = f"{units_text(self.hourly_wei)} tokens an hour of this machine"
        if self.floor_wei is None:
            return earns
        name = "least_million_wei" if self.role == "provider" else "least_fee_wei"
        return f"{earns}; jobs like it pay 1 from policy.{name} = {self.floor_wei} on"


def feasibility_of(
    role: str, manifest: Manifest, pace: Pace, machine: Machine, *, prices: MemberPrices = USUAL
) -> Feasibility:
    """What a `provider` or `verifier` of this pace and these sizes would have to spare.

    Args:
        pace: measured here, of this manifest.
        machine: what is free here.
        prices: what this member pays for power, gas and the like.
    """
    terms, needs = manifest.terms, member_needs(role, manifest, pace)
    spent, down, up = train_seconds(manifest, pace), *round_traffic(role, manifest, pace)
    loads = loads_of(Role[role.upper()], manifest, pace)
    checks = (
        *(_check(load.name, load.needed, load.window, load.text) for load in loads),
        _bytes("memory", needs.memory, machine.memory),
        _bytes("disk", needs.disk, machine.disk),
    )
    megabits = (_megabits(down, terms.merge_seconds), _megabits(up, terms.merge_seconds))
    earned = earned_per_hour(Role[role.upper()], manifest, pace)
    paid = million_pay(terms) if role == "provider" else terms.duty_fee
    floor = ceil(Fraction(paid * whole_token(), earned)) if earned else None
    needed = (role, pace.step_seconds, spent, pace.source, checks)
    even = break_even_of(Role[role.upper()], manifest, pace, prices)
    return Feasibility(*needed, down, up, megabits, earned, floor, even)


def _megabits(count: int, seconds: int) -> float:
    return count / 125_000 / seconds


def _check(name: str, needed: float, given: int, what: str) -> Requirement:
    text = f"{_seconds(needed)} {what}, of a window of {duration_text(given)}"
    return Requirement(name, needed, given, text)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else duration_text(ceil(seconds))


def _bytes(name: str, needed: int, given: int) -> Requirement:
    return Requirement(
        name, needed, given, f"{size_text(needed)} at most, of {size_text(given)} free"
    )
