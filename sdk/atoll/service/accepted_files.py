"""Which files our gateway takes from whoever brings them: updates that our committees need; and of
which it shows pieces: updates that merges of our jobs are made of.

Rule of this file: pure functions of confirmed views. What a reorg takes away is expected no longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from atoll.protocol.late_votes import lacks_vote
from atoll.protocol.open_rounds import SeatReveal
from atoll.protocol.types import Address, Role
from atoll.protocol.views import JobView
from atoll.storage.cid import Cid

SHOWN_ROUNDS: Final = 2
"""Settled ones: the newest's merge is applied, and by who is a little behind the one before."""


def accepted_files(view: JobView, account: Address) -> Iterator[Cid]:
    """The updates of a job's running round, and of earlier ones those that lack our late vote.

    Only of a job in whose pool we have a slot: its committees follow one another from there.
    """
    held = view.standing(account)
    if held is None or held.role is not Role.VERIFIER:
        return
    if view.open is not None:
        yield from _updates(view.open.reveals.values())
    now = view.block.timestamp
    for settled_round in view.auditing(now):
        lacking = lacks_vote(view, settled_round, held, now)
        yield from _updates(settled_round.reveals[seat] for seat in lacking)


def shown_files(view: JobView) -> Iterator[Cid]:
    """The updates of a job's running round and of the newest settled ones."""
    if view.open is not None:
        yield from _updates(view.open.reveals.values())
    for settled_round in view.settled.span(max(0, len(view.settled) - SHOWN_ROUNDS)):
        yield from _updates(settled_round.reveals.values())


def longest(files: Iterable[Mapping[Cid, int]]) -> dict[Cid, int]:
    """Each file with the most bytes that it is given: whoever names one with fewer, in a job or an
    update of its own, keeps nobody's from being taken.
    """
    most: dict[Cid, int] = {}
    for each in files:
        for cid, size in each.items():
            most[cid] = max(size, most.get(cid, 0))
    return most


def _updates(reveals: Iterable[SeatReveal]) -> Iterator[Cid]:
    for revealed in reveals:
        if revealed.segments:
            with suppress(ValueError):  # what a stranger calls a CID is its own trouble
                yield Cid.from_bytes(revealed.reveal.update_cid)
