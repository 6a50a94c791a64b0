"""Brings the global state that a settled round began with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll.errors import ProtocolError
from atoll.numerics.state_layout import max_state_bytes
from atoll.protocol.manifest import Manifest
from atoll.protocol.obligations import committee_gateways
from atoll.protocol.types import RoundIndex
from atoll.protocol.views import JobView
from atoll.service.duties.round_start import DoPrepareRoundStart, first_model
from atoll.service.entries import key_of
from atoll.storage.cid import Cid

if TYPE_CHECKING:
    from atoll.service.effects import Effects


async def model_of_round(effects: Effects, view: JobView, round: int, manifest: bytes) -> bytes:
    """CID of the state that a round began with, which is in the store now.

    Where we opened the round ourselves, it is what we opened: a certificate may name a file that
    nobody has, and who merged by itself has trained and replayed without it.

    Raises:
        NotFound: nobody has it. ProtocolError: the round before is not settled. MachineFault: see
            `first_model`.
    """
    if round == 0:
        with effects.context.store.holding():
            return (await first_model(effects, view, manifest)).cid
    parent = view.settled_round(RoundIndex(round - 1))
    if parent is None:
        raise ProtocolError(f"round {round - 1} is not settled")
    about = (round, parent.verdict.state)
    entries = effects.context.journal.read(view.job_id, key_of(DoPrepareRoundStart, *about))
    opened = entries.of(DoPrepareRoundStart, *about)
    cid = parent.verdict.cid if opened is None else opened.cid
    limit = max_state_bytes(Manifest.from_bytes(manifest))
    prefer = committee_gateways(view, parent.round)
    await effects.fetch(view, round, Cid.from_bytes(cid), limit, prefer)
    return cid
