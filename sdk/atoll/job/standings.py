"""How the members of a network stand to a job that waits for some: what they sign and serve.

Rule of this file: a statement counts where an account signed it that has announced a gateway, has
no place in the job, and has the job's bond. Strangers' words are one line of text each.
"""

from __future__ import annotations

import asyncio
from collections import Counter
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
"""Gateways; those first that were announced first, which nobody who comes later pushes out."""
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
    if view.terms is None or view.status.is_closed or view.phase is not Phase.WAITING:
        return []
    strangers = [a for a in view.gateways if view.standing(a) is None and a != view.submitter]
    waiting, statements = iter(strangers[:MOST_ASKED]), list[StandStatement]()

    async def ask() -> None:
        for account in waiting:
            statement = await _statement_of(client, view, account)
            if statement is not None:
                statements.append(statement)

    with suppress(TimeoutError):
        async with asyncio.timeout(ASKING_SECONDS):
            await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    return grouped(statements)


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
    """What an account says that could pay the bond; None where it says nothing, or could not."""
    fetcher = client.session.storage.fetcher
    try:
        note = await fetcher.note(view.gateways[account], note_name(view.job_id), MAX_BYTES)
        statement = None if note is None else from_bytes(note, view.domain, view.job_id, account)
        if statement is None:
            return None
        terms = view.require_terms()
        bond = terms.provider_bond if statement.role is Role.PROVIDER else terms.verifier_bond
        stake = await client.chain.stake(account, statement.role)
        has = stake.active + await client.chain.token_balance(account)
    except (NotFound, ChainError):
        return None
    return statement if has >= bond else None
