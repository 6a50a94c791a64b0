"""What a page shows of a whole network, as one JSON document: its jobs, members and stakes.

Rule of this file: pure; folded from the deployment's events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from atoll.chain.indexed import Indexed
from atoll.job.event_text import words
from atoll.job.figures import certified_loss, number_of
from atoll.job.job_snapshot import JobSnapshot
from atoll.job.ledger.json_document import name_of
from atoll.job.ledger.work import tokens_paid
from atoll.protocol import events as ev
from atoll.protocol.owners import Ownership, enter
from atoll.protocol.types import Address, JobId, Role
from atoll.protocol.views import JobView


def network_document(
    views: Mapping[JobId, JobView],
    items: Iterable[Indexed],
    now: int,
    names: Mapping[Address, str] | None = None,
) -> dict[str, Any]:
    """The document of a network.

    Args:
        views: every job that exists.
        items: every event, oldest first.
        now: the chain's clock, unix seconds.
    """
    items = list(items)
    stakes, bonds, name = Stakes.of(items), bonds_of(views), name_of(names or {})
    days = days_of(views, items)

    def order(account: Address) -> tuple[bool, str]:
        """Those with names first."""
        return account not in (names or {}), (names or {}).get(account, account)

    return {
        "kind": "network",
        "now": now,
        "block": stakes.block,
        "sums": _total(days),
        "days": days,
        "jobs": [_job(view, now) for _, view in sorted(views.items())],
        "members": [
            stakes.of_account(account, bonds)
            | {"name": name(account), "jobs": sorted(bonds.get(account, {}))}
            for account in sorted({*stakes.roles, *stakes.won, *bonds}, key=order)
        ],
    }


@dataclass
class Stakes:
    """What the stakes contract holds for whom.

    Attributes:
        held: wei by account, in both roles, what unbonds included.
        slashed, won: what it lost to slashes, and got of those of others.
        gateways: as last announced.
        owners: of accounts that are not all their own.
        block: the newest that said anything.
    """

    roles: dict[Address, set[Role]] = field(default_factory=lambda: defaultdict(set))
    held: dict[Address, int] = field(default_factory=lambda: defaultdict(int))
    slashed: dict[Address, int] = field(default_factory=lambda: defaultdict(int))
    won: dict[Address, int] = field(default_factory=lambda: defaultdict(int))
    gateways: dict[Address, str] = field(default_factory=dict)
    owners: dict[Address, Ownership] = field(default_factory=dict)
    block: int = 0

    @classmethod
    def of(cls, items: Iterable[Indexed]) -> Stakes:
        """Folded from every event, oldest first."""
        stakes = cls()
        for item in items:
            stakes.block = item.block.number
            stakes._fold(item.event)
        return stakes

    def of_account(
        self, account: Address, bonds: Mapping[Address, Mapping[int, int]]
    ) -> dict[str, Any]:
        """An account's roles and stake; who alone moves it, and who has its pay."""
        owned = self.owners.get(account, Ownership(account, account))
        return {
            "account": account,
            "roles": sorted(words(role) for role in self.roles.get(account, ())),
            "stake_wei": str(self.held.get(account, 0)),
            "bonds_wei": str(sum(bonds.get(account, {}).values())),
            "slashed_wei": str(self.slashed.get(account, 0)),
            "won_wei": str(self.won.get(account, 0)),
            "gateway": self.gateways.get(account, ""),
            "owner": owned.owner,
            "payee": owned.payee,
        }

    def _fold(self, event: ev.ContractEvent) -> None:
        enter(self.owners, event)
        match event:
            case ev.Deposited():
                self.roles[event.account].add(event.role)
                self.held[event.account] += event.amount
            case ev.Withdrawn():
                self.held[event.account] -= event.amount
            case ev.Slashed():
                self.held[event.account] -= event.amount
                self.slashed[event.account] += event.amount
                if event.beneficiary_amount:
                    self.held[event.beneficiary] += event.beneficiary_amount
                    self.won[event.beneficiary] += event.beneficiary_amount
            case ev.GatewayAnnounced():
                self.gateways[event.account] = event.url
            case _:
                pass


DAY: Final = 86_400
_DAY_SUMS: Final = ("tokens", "rounds", "paid_wei", "slashed_wei")


def days_of(views: Mapping[JobId, JobView], items: Iterable[Indexed]) -> list[dict[str, Any]]:
    """What each day brought, in UTC, from the first on that brought anything, oldest first: rounds
    that were settled, tokens that are paid for in them, as things stand, pay that was claimed, and
    stake that was slashed.
    """
    days: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_DAY_SUMS, 0))
    for view in views.values():
        for settled in view.settled:
            day = days[settled.block.timestamp // DAY]
            day["rounds"] += 1
            day["tokens"] += sum(tokens_paid(view, settled).values())
    for item in items:
        match item.event:
            case ev.Claimed() | ev.CreditClaimed() as event if event.amount:
                days[item.block.timestamp // DAY]["paid_wei"] += event.amount
            case ev.Slashed() as event:
                days[item.block.timestamp // DAY]["slashed_wei"] += event.amount
            case _:
                pass
    every = range(min(days), max(days) + 1) if days else ()
    return [{"day": day * DAY} | _in_text(days[day]) for day in every]


def _in_text(sums: Mapping[str, int]) -> dict[str, Any]:
    return {name: str(n) if name.endswith("_wei") else n for name, n in sums.items()}


def _total(days: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    days = list(days)
    return _in_text({name: sum(int(day[name]) for day in days) for name in _DAY_SUMS})


def bonds_of(views: Mapping[JobId, JobView]) -> dict[Address, dict[int, int]]:
    """Bonds that are not released, by member and job."""
    bonds: dict[Address, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for job, view in views.items():
        for holder in (*view.providers.values(), *view.verifiers.values()):
            if not holder.is_released:
                bonds[holder.account][int(job)] += holder.bond
    return bonds


def _job(view: JobView, now: int) -> dict[str, Any]:
    games = sum(game.is_open for game in view.games.values())
    tokens = sum(sum(tokens_paid(view, settled).values()) for settled in view.settled)
    losses = [item for merged in range(len(view.settled)) if (item := certified_loss(view, merged))]
    return JobSnapshot.of(view, now).to_json_value() | {
        "name": None,
        "open_games": games,
        "tokens": tokens,
        "loss": number_of(losses[-1]) if losses else None,
    }
