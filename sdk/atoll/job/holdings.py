"""What an account has outside the jobs' escrows: shares of slashed bonds, stake, refunds.

Rule of this file: pure; integers of wei, from the events of the whole deployment. What the stakes
contract holds of an account is what went in and was won, less what was taken: or a fault is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from atoll.protocol import events as ev
from atoll.protocol.words import Address, JobId


@dataclass(frozen=True, slots=True)
class Share:
    """Wei of somebody's slashed bond that went to the account, into its stake.

    Attributes:
        loser: whose bond it was.
        job: where the loser fell; None where no fall was told with the slash.
    """

    loser: Address
    job: JobId | None
    wei: int

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"loser": self.loser, "job": self.job, "wei": str(self.wei)}


@dataclass(frozen=True, slots=True)
class Holdings:
    """What came to an account, and went, apart from pay; wei.

    Attributes:
        deposited, cut, withdrawn: of its stake, in both roles.
        bonds, returned: what it put up as a challenger in games, and what games sent to it.
        refunded: what jobs sent back to it.
    """

    shares: tuple[Share, ...]
    deposited: int
    cut: int
    withdrawn: int
    bonds: int
    returned: int
    refunded: int

    @property
    def won(self) -> int:
        """Wei of all shares."""
        return sum(share.wei for share in self.shares)

    @property
    def staked(self) -> int:
        """What the stakes contract has of it: free, locked or unbonding."""
        return self.deposited + self.won - self.cut - self.withdrawn

    def faults(self, staked: int) -> tuple[str, ...]:
        """What differs from the `staked` wei that the chain says."""
        if staked == self.staked:
            return ()
        return (f"{staked} wei are staked, and {self.staked} by the events",)

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        names = ("deposited", "won", "cut", "withdrawn", "staked", "bonds", "returned", "refunded")
        sums = {f"{name}_wei": str(getattr(self, name)) for name in names}
        return {"shares": [share.to_plain() for share in self.shares], **sums}


def holdings(events: Sequence[ev.ContractEvent], account: Address) -> Holdings:
    """What an account has by all events of a deployment, oldest first."""
    slashed = [(n, e) for n, e in enumerate(events) if isinstance(e, ev.Slashed)]
    shares = tuple(
        Share(event.account, _fell_in(events[number + 1 :], event), event.beneficiary_amount)
        for number, event in slashed
        if event.beneficiary == account and event.beneficiary_amount
    )
    own = [event for event in events if getattr(event, "account", None) == account]
    return Holdings(
        shares,
        sum(e.amount for e in own if isinstance(e, ev.Deposited)),
        sum(e.amount for e in own if isinstance(e, ev.Slashed)),
        sum(e.amount for e in own if isinstance(e, ev.Withdrawn)),
        sum(e.bond for e in events if isinstance(e, ev.Challenged) and e.challenger == account),
        sum(e.amount for e in own if isinstance(e, ev.BondReturned)),
        sum(e.amount for e in events if isinstance(e, ev.Refunded) and e.to == account),
    )


def _fell_in(later: Iterable[ev.ContractEvent], slashed: ev.Slashed) -> JobId | None:
    """The job of the fall that a slash is of: told right after it, before any other slash."""
    for event in later:
        if isinstance(event, ev.Slashed):
            return None
        if isinstance(event, ev.Fell) and event.account == slashed.account:
            return event.job_id
    return None
