"""How the members of a network stand to a job that waits for some: what they sign and serve.

Rule of this file: a statement counts where an account signed it that has announced a gateway, has
no place in the job, and has the job's bond. Strangers' words are one line of text each.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from atoll.errors import ChainError, NotFound
from atoll.protocol.types import Address, Phase, Role
from atoll.protocol.views import JobView
from atoll.service.stand_statements import MAX_BYTES, Stand, StandStatement, from_bytes, note_name

if TYPE_CHECKING:
    from atoll.job.connection import Connection

MOST_ASKED: Final = 256
"""Gateways, others each time: who announced first and says nothing keeps nobody else unheard."""
AT_ONCE: Final = 16
ASKING_SECONDS: Final = 15.0
VERBS: Final = {
    Stand.MEASURES: ("measures", "measure"),
    Stand.REFUSES: ("refuses", "refuse"),
    Stand.WAITS: ("waits", "wait"),
    Stand.JOINS: ("joins", "join"),
    Stand.JOINED: ("joins", "join"),  # not seen in the chain's confirmed blocks yet
}


@dataclass(frozen=True, slots=True)
class Standing:
    """So many members who have no place in the job say the same."""

    stand: Stand
    text: str
    members: int

    def to_json_value(self) -> dict[str, Any]:
        """JSON values."""
        return {"stand": VERBS[self.stand][0], "text": self.text, "members": self.members}


async def standings(client: Connection, view: JobView) -> list[Standing]:
    """What those say who have no place in a job that waits for members, the most frequent first."""

    async def counted(account: Address) -> StandStatement | None:
        statement = await _statement_of(client, view, account)
        if statement is None or not await could_pay(client, view, account, statement.role):
            return None
        return statement

    return grouped(list((await _asked(view, counted)).values()))


async def stands_of(client: Connection, view: JobView) -> dict[Address, StandStatement]:
    """The statements of those who have no place in a job that waits for members, whether or not
    they could pay its bond; of many, those of another part each time.
    """

    async def ask(account: Address) -> StandStatement | None:
        return await _statement_of(client, view, account)

    return await _asked(view, ask)


async def could_pay(client: Connection, view: JobView, account: Address, role: Role) -> bool | None:
    """Whether an account has a job's bond, staked or not; None where the chain does not say."""
    terms = view.require_terms()
    bond = terms.provider_bond if role is Role.PROVIDER else terms.verifier_bond
    try:
        stake = await client.chain.stake(account, role)
        return stake.active + await client.chain.token_balance(account) >= bond
    except ChainError:
        return None


async def _asked(
    view: JobView, ask: Callable[[Address], Awaitable[StandStatement | None]]
) -> dict[Address, StandStatement]:
    """What is found out of each who has no place in a job that waits for members."""
    if view.terms is None or view.status.is_closed or view.phase is not Phase.WAITING:
        return {}
    strangers = [a for a in view.gateways if view.standing(a) is None and a != view.submitter]
    turn = random.sample(strangers, min(MOST_ASKED, len(strangers)))
    waiting, statements = iter(turn), dict[Address, StandStatement]()

    async def ask_some() -> None:
        for account in waiting:
            statement = await ask(account)
            if statement is not None:
                statements[account] = statement

    with suppress(TimeoutError):
        async with asyncio.timeout(ASKING_SECONDS):
            await asyncio.gather(*(ask_some() for _ in range(AT_ONCE)))
    return statements


def grouped(statements: list[StandStatement]) -> list[Standing]:
    """Equal statements as one."""
    counts = Counter((each.stand, each.text) for each in statements)
    groups = [Standing(*what, count) for what, count in counts.items()]
    return sorted(groups, key=lambda group: (-group.members, group.stand, group.text))


def standings_text(groups: list[Standing]) -> str:
    """In a line; empty where nobody says anything."""
    return "; ".join(_text(group, is_first=not at) for at, group in enumerate(groups))


def _text(group: Standing, *, is_first: bool) -> str:
    verb = VERBS[group.stand][group.members > 1]
    who = f" member{'s' if group.members > 1 else ''}" if is_first else ""
    return f"{group.members}{who} {verb}" + (f": {group.text}" if group.text else "")


async def _statement_of(
    client: Connection, view: JobView, account: Address
) -> StandStatement | None:
    """What an account says; None where it says nothing."""
    fetcher = client.session.storage.fetcher
    try:
        note = await fetcher.note(view.gateways[account], note_name(view.job_id), MAX_BYTES)
    except NotFound:
        return None
    return None if note is None else from_bytes(note, view.domain, view.job_id, account)
