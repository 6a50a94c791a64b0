"""What an account has outside the jobs' escrows: shares of slashed bonds, stake, games, refunds.

Rule of this file: pure; integers of wei, from the events of the whole deployment. What a contract
holds of an account is what went in and was won, less what was taken: or a fault is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from atoll.job.serialization import plain_of
from atoll.protocol import events as ev
from atoll.protocol.game_records import parties
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.types import Address, JobId

_MoneyMoved: TypeAlias = (
    ev.Deposited | ev.Slashed | ev.Withdrawn | ev.BondReturned | ev.Kept | ev.Collected
)


@dataclass(frozen=True, slots=True)
class Share:
    """Wei of somebody's slashed bond that went to the account, into its stake.

    Attributes:
        loser: whose bond it was.
        job: where the loser was slashed; None where the job did not tell it with the slash.
    """

    loser: Address
    job: JobId | None
    wei: int

    def to_json_value(self) -> dict[str, Any]:
        """For JSON."""
        return plain_of(self)


@dataclass(frozen=True, slots=True)
class Played:
    """A game, and where the challenger's bond of `bond` wei goes: home, or half to the holder.

    Attributes:
        job: None where the claim names nobody's bond.
        outcome: NONE of one that is open.
    """

    id: int
    job: JobId | None
    holder: Address
    challenger: Address
    bond: int
    outcome: Outcome

    @property
    def home(self) -> int:
        """Wei that are the challenger's again."""
        return self.bond if self.outcome in (Outcome.HOLDER_LOST, Outcome.SENT_HOME) else 0

    @property
    def lost(self) -> int:
        """Wei that the challenger lost."""
        return self.bond if self.outcome is Outcome.CHALLENGER_LOST else 0

    @property
    def gained(self) -> int:
        """Wei that the holder has of it; the rest of what is lost is burnt."""
        return self.lost // 2

    @property
    def at_stake(self) -> int:
        """Wei of an open game."""
        return self.bond if self.outcome is Outcome.NONE else 0

    def owes(self, account: Address) -> int:
        """Wei that the game's end owes an address."""
        return self.home * (self.challenger == account) + self.gained * (self.holder == account)

    def to_json_value(self) -> dict[str, Any]:
        """For JSON."""
        sums = {"bond": self.bond, "home": self.home, "lost": self.lost, "gained": self.gained}
        return {
            "game": self.id,
            "job": self.job,
            "holder": self.holder,
            "challenger": self.challenger,
            "outcome": self.outcome.name.lower(),
            **{f"{name}_wei": str(wei) for name, wei in sums.items()},
        }


@dataclass(frozen=True, slots=True)
class HeldByContracts:
    """What the chain says that its contracts hold of an account; wei.

    Attributes:
        staked: free, locked or unbonding, in both roles.
        owed: by games.
        kept: of its pay, what could not be sent.
    """

    staked: int
    owed: int
    kept: int


@dataclass(frozen=True, slots=True)
class Holdings:
    """What came to an account, and went, apart from pay; wei.

    Attributes:
        games: in which it was a side.
        deposited, slashed, withdrawn: of its stake, in both roles.
        owed: what games owe it.
        returned: what games sent to its payee.
        kept: of its pay, what could not be sent and still waits.
        funded, refunded: what it put into jobs, and what they sent back to it.
    """

    account: Address
    shares: tuple[Share, ...]
    games: tuple[Played, ...]
    deposited: int
    slashed: int
    withdrawn: int
    owed: int
    returned: int
    kept: int
    funded: int
    refunded: int

    @property
    def won(self) -> int:
        """Wei of all shares."""
        return sum(share.wei for share in self.shares)

    @property
    def staked(self) -> int:
        """What the stakes contract has of it: free, locked or unbonding."""
        return self.deposited + self.won - self.slashed - self.withdrawn

    @property
    def challenges(self) -> tuple[Played, ...]:
        """The games in which the bond is its own."""
        return tuple(game for game in self.games if game.challenger == self.account)

    @property
    def bonds(self) -> int:
        """Wei that it put up as a challenger."""
        return sum(game.bond for game in self.challenges)

    @property
    def gained(self) -> int:
        """Wei of challengers' bonds that are its own, as it won their games."""
        return sum(game.gained for game in self.games if game.holder == self.account)

    def faults(self, on_chain: HeldByContracts) -> Iterator[str]:
        """What differs from what the chain says."""
        compared = (
            ("are staked", on_chain.staked, self.staked),
            ("are kept", on_chain.kept, self.kept),
            ("are owed by games", on_chain.owed, self.owed),
        )
        for what, wei, by_events in compared:
            if wei != by_events:
                yield f"{wei} wei {what}, and {by_events} by the events"

    def to_json_value(self) -> dict[str, Any]:
        """For JSON."""
        stake = ("deposited", "won", "slashed", "withdrawn", "staked")
        names = (*stake, "bonds", "gained", "returned", "kept", "funded", "refunded")
        sums = {f"{name}_wei": str(getattr(self, name)) for name in names}
        return {
            "shares": [share.to_json_value() for share in self.shares],
            "games": [game.to_json_value() for game in self.games],
            **sums,
        }


def holdings(events: Sequence[ev.ContractEvent], account: Address) -> Holdings:
    """What an account has by all events of a deployment, oldest first."""
    slashed = [(n, e) for n, e in enumerate(events) if isinstance(e, ev.Slashed)]
    shares = tuple(
        Share(event.account, _slashed_in(events[number + 1 :], event), event.beneficiary_amount)
        for number, event in slashed
        if event.beneficiary == account and event.beneficiary_amount
    )
    games = _games(events)
    return Holdings(
        account,
        shares,
        tuple(game for game in games if account in (game.holder, game.challenger)),
        _sum(events, ev.Deposited, account),
        _sum(events, ev.Slashed, account),
        _sum(events, ev.Withdrawn, account),
        _owed(games, events, account),
        _sum(events, ev.BondReturned, account),
        _sum(events, ev.Kept, account) - _sum(events, ev.Collected, account),
        sum(e.funded for e in events if isinstance(e, ev.JobCreated) and e.submitter == account)
        + sum(e.amount for e in events if isinstance(e, ev.JobFunded) and e.funder == account),
        sum(e.amount for e in events if isinstance(e, ev.Refunded) and e.to == account),
    )


def _sum(events: Iterable[ev.ContractEvent], kind: type[_MoneyMoved], account: Address) -> int:
    """Wei of all the account's events of a kind."""
    return sum(e.amount for e in events if isinstance(e, kind) and e.account == account)


def _owed(games: Iterable[Played], events: Iterable[ev.ContractEvent], account: Address) -> int:
    """What games owe an account, and have not sent to its payee."""
    return sum(game.owes(account) for game in games) - _sum(events, ev.BondReturned, account)


def _games(events: Iterable[ev.ContractEvent]) -> list[Played]:
    """Every game of the deployment."""
    games: dict[int, Played] = {}
    for event in events:
        if isinstance(event, ev.Challenged):
            about = parties(event.claim)
            sides = (event.holder, event.challenger, event.bond)
            job = None if about is None else about[0]
            games[event.id] = Played(event.id, job, *sides, Outcome.NONE)
        elif isinstance(event, ev.Ended):
            games[event.id] = replace(games[event.id], outcome=event.outcome)
    return list(games.values())


def _slashed_in(later: Iterable[ev.ContractEvent], slashed: ev.Slashed) -> JobId | None:
    """The job that a slash is of: told right after it, before any other slash."""
    for event in later:
        if isinstance(event, ev.Slashed):
            return None
        if isinstance(event, ev.HolderSlashed | ev.Missed) and event.account == slashed.account:
            return event.job_id
    return None
