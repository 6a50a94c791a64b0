"""Where an account's stake is: free, locked by jobs, unbonding; and when each part comes home.

Rule of this file: pure; integers of wei and unix seconds. The contract's own sums are put in, and
what events do not explain of them is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from atoll.job.event_text import words
from atoll.job.serialization import plain_of
from atoll.protocol import events as ev
from atoll.protocol.holders import Holder
from atoll.protocol.keeper_calls import is_releasable
from atoll.protocol.types import NO_ROUND, Address, HolderId, JobId, Phase, Role
from atoll.protocol.views import JobView


@dataclass(frozen=True, slots=True)
class Bond:
    """What a job holds of a stake.

    Attributes:
        index: the seat or the slot.
        home_at: unix seconds from which it can be released; None where that is not known yet.
        at_latest: when it is released whatever happens.
        text: why it is held.
    """

    job: JobId
    role: Role
    id: HolderId
    index: int
    wei: int
    home_at: int | None
    at_latest: int
    text: str


@dataclass(frozen=True, slots=True)
class Unbonding:
    """Stake on its way out; `available_at` is the second after which it can be taken out."""

    id: int
    wei: int
    available_at: int


@dataclass(frozen=True, slots=True)
class Stake:
    """An account's stake in one role, wei.

    Attributes:
        active: staked, `locked` of it included; `unbonding` is beside it.
        fault: where the bonds or unbonds that events tell are not the contract's sums.
    """

    role: Role
    active: int
    locked: int
    unbonding: int
    bonds: tuple[Bond, ...]
    unbonds: tuple[Unbonding, ...]
    fault: str = ""

    @property
    def free(self) -> int:
        """What a bond or a withdrawal may take."""
        return self.active - self.locked

    def to_json_value(self) -> dict[str, Any]:
        """For JSON: wei as text."""
        sums = {"active": self.active, "locked": self.locked, "unbonding": self.unbonding}
        return {
            "role": words(self.role),
            **{f"{name}_wei": str(wei) for name, wei in {**sums, "free": self.free}.items()},
            "bonds": [plain_of(bond) for bond in self.bonds],
            "unbonds": [plain_of(unbond) for unbond in self.unbonds],
            "fault": self.fault,
        }


@dataclass(frozen=True, slots=True)
class Sums:
    """What the contract says of an account and a role, wei."""

    active: int
    locked: int
    unbonding: int


def stake_of(
    role: Role,
    sums: Sums,
    bonds: Iterable[Bond],
    events: Iterable[ev.ContractEvent],
    account: Address,
) -> Stake:
    """The stake of a role.

    Args:
        bonds: of the account in that role, from all its jobs.
        events: of the stakes contract, oldest first; others are passed over.
    """
    held, unbonds = tuple(bonds), tuple(unbonds_of(events, account, role))
    locked, unbonding = sum(bond.wei for bond in held), sum(unbond.wei for unbond in unbonds)
    faults = []
    if locked != sums.locked:
        faults.append(f"{sums.locked} wei are locked, and the bonds known here are {locked}")
    if unbonding < sums.unbonding:
        faults.append(f"{sums.unbonding} wei unbond, and {unbonding} were asked for")
    if unbonding > sums.unbonding:
        faults.append(
            f"slashes took {unbonding - sums.unbonding} wei of what unbonds, of each its part"
        )
    parts = (sums.active, sums.locked, sums.unbonding)
    return Stake(role, *parts, held, unbonds, "; ".join(faults))


def unbonds_of(
    events: Iterable[ev.ContractEvent], account: Address, role: Role
) -> Iterator[Unbonding]:
    """What was asked for and not taken out yet, oldest first."""
    unbondings: dict[int, Unbonding] = {}
    for event in events:
        if isinstance(event, ev.UnbondStarted | ev.Withdrawn):
            if (event.account, event.role) != (account, role):
                continue
            if isinstance(event, ev.UnbondStarted):
                unbondings[event.id] = Unbonding(event.id, event.amount, event.available_at)
            else:
                unbondings.pop(event.id, None)
    yield from unbondings.values()


def bonds_of(view: JobView, account: Address, now: int, absolute_end: int) -> Iterator[Bond]:
    """What a job holds of the account's stake, in both roles.

    Args:
        now: the chain's clock.
        absolute_end: of the job, from which on no lock of it holds.
    """
    for role in Role:
        for holder in view.holders(role).values():
            if holder.account == account and not holder.is_released:
                home_at, text = home_of(view, holder, now)
                if now >= absolute_end:
                    home_at, text = absolute_end, "no lock of the job holds any more"
                where = (view.job_id, role, holder.id, holder.index)
                yield Bond(*where, int(holder.bond), home_at, absolute_end, text)


def home_of(view: JobView, holder: Holder, now: int) -> tuple[int | None, str]:
    """From when it can be released, and why."""
    where = f"{'seat' if holder.role is Role.PROVIDER else 'slot'} {holder.index}"
    if is_releasable(view, holder, now):
        return now, f"{where}: is over, and can be released"
    games = sorted(game.id for game in view.games_about(holder.role, holder.id))
    if games:
        return None, f"{where}: game {games[0]} about it is open"
    if holder.missed != NO_ROUND:
        return None, f"{where}: its missed duty of round {holder.missed} is not penalised yet"
    is_closed = view.phase is Phase.CLOSED
    if holder.to == NO_ROUND and not is_closed:
        return None, f"{where} is held: leave it first"
    end = min(holder.to, len(view.settled)) if is_closed else holder.to
    if end > len(view.settled):
        return None, f"{where}: counts in round {end - 1}, which is not settled"
    over = view.settled[end - 1].clock.window_end
    return over, f"{where}: the window of round {end - 1}, its last, is open"


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """What a withdrawal does now.

    Attributes:
        take: unbonds that are over; `unbond` wei that begin to.
        waits: unbonds that are under way already.
        lacking: wei that are asked for, and that are neither free nor unbonding.
    """

    take: tuple[Unbonding, ...]
    unbond: int
    waits: tuple[Unbonding, ...]
    lacking: int


def plan_withdrawal(stake: Stake, amount: int | None, now: int) -> Withdrawal:
    """What brings `amount` wei out of the stake, or everything that is free (None).

    Run again, it begins nothing anew while what was asked for is under way.
    """
    take = tuple(unbond for unbond in stake.unbonds if unbond.available_at < now)
    waits = tuple(unbond for unbond in stake.unbonds if unbond not in take)
    if amount is None:
        return Withdrawal(take, stake.free, waits, 0)
    open_ = max(0, amount - sum(unbond.wei for unbond in stake.unbonds))
    unbond = min(open_, stake.free)
    return Withdrawal(take, unbond, waits, open_ - unbond)
