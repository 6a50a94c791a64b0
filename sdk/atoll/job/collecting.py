"""What an account can have paid out now, in all its jobs, and what not before when.

Rule of this file: pure; one transaction for all holders that have FINAL rounds worth something, as
long as a block can hold it, one a job's credits, one for what games owe: the contracts take no
fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.job.ledger.entries import State
from atoll.job.ledger.statements import Statement
from atoll.job.serialization import plain_of
from atoll.job.stake import Bond
from atoll.protocol.call_structs import Due
from atoll.protocol.holders import Holder
from atoll.protocol.pay import MOST_CLAIMED, claim, claimable_to
from atoll.protocol.types import Address, JobId, Role, RoundIndex
from atoll.protocol.views import JobView


@dataclass(frozen=True, slots=True)
class Collect:
    """One call that pays, or sends a bond home.

    Attributes:
        key: names its effect.
        wei: what the account gets by it, with what is retained; of a bond, what is free again.
        text: what it is for.
        due, rounds: of a claim, what goes into one transaction with others, and how many it is of.
    """

    key: str
    call: Call
    wei: int
    text: str
    is_bond: bool = False
    due: Due | None = None
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Later:
    """What cannot be claimed yet; `at` unix seconds, None where a game or a round decides."""

    job: JobId
    round: int
    wei: int
    at: int | None
    text: str

    def to_json_value(self) -> dict[str, Any]:
        """For JSON."""
        return plain_of(self)


def collectable(
    views: Mapping[JobId, JobView], account: Address, now: int, calls: Calls
) -> Iterator[Collect]:
    """What jobs pay the account now, by job."""
    for job, view in views.items():
        for role in Role:
            for holder in view.holders(role).values():
                if holder.account == account:
                    yield from _claims(view, holder, now, calls)
        credit = view.credits.get(account, 0)
        if credit:
            key = f"credit:{job}:{account}:{view.paid.get(account, 0)}:{credit}"
            yield Collect(key, calls.claim_credit(job, account), credit, f"credits of job {job}")


def _claims(view: JobView, holder: Holder, now: int, calls: Calls) -> Iterator[Collect]:
    job, start, to = view.job_id, holder.claimed_to, claimable_to(view, holder, now)
    who = f"{'seat' if holder.role is Role.PROVIDER else 'slot'} {holder.index}"
    before = 0
    for begin in range(start, to if claim(view, holder, to)[0] else start, MOST_CLAIMED):
        end = RoundIndex(min(to, begin + MOST_CLAIMED))
        paid, due = claim(view, holder, end)[0], Due(job, holder.role, holder.id, end)
        text = f"job {job}, {who}: rounds {begin} to {end - 1}"
        if holder.role is Role.PROVIDER and view.require_terms().rate_steps:
            text += ", of which a half may be retained in its bond"
        call = calls.claim(job, holder.role, holder.id, end)
        yield Collect(_key(due, begin), call, paid - before, text, due=due, rounds=end - begin)
        before = paid


def _key(due: Due, start: int) -> str:
    return f"claim:{due.job_id}:{int(due.role)}:{due.id}:{start}:{due.to}"


def transactions(items: Iterable[Collect], calls: Calls) -> Iterator[tuple[str, Call]]:
    """What to send for these, in order, with the keys that name the effects: claims together."""
    together: list[Collect] = []
    for item in items:
        if item.due is None:
            yield item.key, item.call
            continue
        if together and sum(each.rounds for each in together) + item.rounds > MOST_CLAIMED:
            yield _claim(together, calls)
            together = []
        together.append(item)
    if together:
        yield _claim(together, calls)


def _claim(claims: list[Collect], calls: Calls) -> tuple[str, Call]:
    if len(claims) == 1:
        return claims[0].key, claims[0].call
    dues = [each.due for each in claims if each.due is not None]
    return "+".join(each.key for each in claims), calls.claim_many(dues)


def releasable(bonds: Iterator[Bond] | list[Bond], now: int, calls: Calls) -> Iterator[Collect]:
    """Bonds that can go home now."""
    for bond in bonds:
        if bond.home_at is not None and bond.home_at <= now:
            key = f"release:{bond.job}:{int(bond.role)}:{bond.id}"
            call = calls.release(bond.job, bond.role, bond.id)
            yield Collect(key, call, bond.wei, f"bond of job {bond.job}, {bond.text}", True)


def later(statements: list[Statement]) -> Iterator[Later]:
    """What is earned, or may be, and cannot be claimed yet; the soonest first."""
    pending = [
        Later(statement.job, line.round, line.wei, line.until, f"{line.what}: {line.text}")
        for statement in statements
        for line in statement.lines
        if line.state is State.PENDING
    ]
    yield from sorted(
        pending, key=lambda item: (item.at is None, item.at or 0, item.job, item.round)
    )
