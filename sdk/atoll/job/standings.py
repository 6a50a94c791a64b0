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
    waiting, found = iter(strangers[:MOST_ASKED]), list[StandStatement]()

    async def ask() -> None:
        for account in waiting:
            said = await _said(client, view, account)
            if said is not None:
                found.append(said)

    with suppress(TimeoutError):
        async with asyncio.timeout(ASKING_SECONDS):
            await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    return grouped(found)


def grouped(said: list[StandStatement]) -> list[Standing]:
    """Equal statements as one."""
    counts = Counter((one.stand, one.text) for one in said)
    return [Standing(*what, count) for what, count in sorted(counts.items(), key=_order)]


def _order(item: tuple[tuple[Stand, str], int]) -> tuple[int, Stand, str]:
    (stand, text), count = item
    return -count, stand, text


def standings_text(found: list[Standing]) -> str:
    """In a line; empty where nobody says anything."""
    return "; ".join(_text(one, is_first=not at) for at, one in enumerate(found))


def _text(one: Standing, *, is_first: bool) -> str:
    verb = VERBS[one.stand][one.members > 1]
    who = f" member{'s' if one.members > 1 else ''}" if is_first else ""
    return f"{one.members}{who} {verb}" + (f": {one.text}" if one.text else "")


async def _said(client: Connection, view: JobView, account: Address) -> StandStatement | None:
    """What an account says that could pay the bond; None where it says nothing, or could not."""
    fetcher = client.session.storage.fetcher
    try:
        note = await fetcher.note(view.gateways[account], note_name(view.job_id), MAX_BYTES)
        said = None if note is None else from_bytes(note, view.domain, view.job_id, account)
        if said is None:
            return None
        terms = view.require_terms()
        bond = terms.provider_bond if said.role is Role.PROVIDER else terms.verifier_bond
        stake = await client.chain.stake(account, said.role)
        has = stake.active + await client.chain.token_balance(account)
    except (NotFound, ChainError):
        return None
    return said if has >= bond else None
