"""Serves what was revealed while the committee is getting it, though the disk loses it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import structlog

from atoll.errors import StorageError
from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Digest, Phase, RoundIndex
from atoll.protocol.views import JobView
from atoll.service import commands
from atoll.service.entries import Done, Entry
from atoll.service.machine import Decision
from atoll.service.update_limits import max_update_bytes
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll_node.behaviour import ProviderState
from atoll_node.duties.train import DoTrain, make_again, seat_of, trained_of, training_of

if TYPE_CHECKING:
    from atoll.service.effects import Effects

LOOKS: Final = 8
"""One in each such part of MERGE; half of them before votes are said of what is not there."""
log = structlog.get_logger("atoll.node.serve")


@dataclass(frozen=True, slots=True)
class Served(Entry):
    """Our update was here at that look, or is again."""

    kind: ClassVar[str] = "own-update-checked.v1"


@dataclass(frozen=True, slots=True)
class DoServe(commands.Work[Served]):
    """See that our revealed update is here, and make it again where the disk has lost some of it.

    A damaged block goes when somebody asks for it, and is found missing here.

    Attributes:
        commitment: names what was revealed.
        look: which of MERGE's it is.
        training: what makes it again.
    """

    kind: ClassVar[str] = "check-own-update.v1"
    round: RoundIndex
    commitment: Digest
    look: int
    update: bytes
    segments: int
    training: DoTrain

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.commitment, self.look)

    async def perform(self, effects: Effects, view: JobView) -> Done[Served]:
        limit = max_update_bytes(Manifest.from_bytes(self.training.manifest))
        store, cid = effects.context.store, Cid.from_bytes(self.update)
        lost = await asyncio.to_thread(_lost_of, store, cid, limit)
        if lost:
            where = {"job": view.job_id, "round": self.round}
            log.warning("our update is lost here, and made again", cause=lost, **where)
            await make_again(effects, view, self.training, self.segments)
        return Done(Served())


def _lost_of(store: LocalStore, update: Cid, limit: int) -> str:
    """What of an update is not here; empty where all is. Of several leaves none is read."""
    try:
        missing = [leaf.cid for leaf in store.leaves(update, limit) if not store.has(leaf.cid)]
    except StorageError as error:  # the damaged block is gone now, and can be written again
        return str(error)
    return f"{missing[0]} is not in {store.root}" if missing else ""


def decide_serve(state: ProviderState) -> Decision:
    """Looks after the running round's update until nobody's vote about it is taken any more.

    What takes longer to make than votes are waited for would only keep us from the next round.
    """
    view, seat, running = state.view, seat_of(state), state.view.open
    revealed = running.reveals.get(seat) if running is not None and seat is not None else None
    if running is None or seat is None or revealed is None or running.phase is not Phase.MERGE:
        return Decision("serve", "nothing is being fetched of us")
    trained, training = trained_of(state, seat), training_of(state, seat)
    is_ours = trained is not None and revealed.reveal == trained.reveal
    if trained is None or training is None or not is_ours or not revealed.reveal.update_cid:
        return Decision("serve", "what was revealed is not what was trained here")
    under_way = [
        c
        for c in state.in_flight.values()
        if isinstance(c, DoServe) and c.commitment == revealed.commitment
    ]
    if under_way and state.now < running.votes_end:  # it may take longer than until the next look
        return Decision("serve", "looks after our update", tuple(under_way))
    # The reset period's rounds before it may have to be run again, too.
    seconds = trained.seconds * (1 + len(training.earlier))
    if state.now + seconds >= running.votes_end:
        return Decision("serve", "could not make it again in time")
    merge = view.require_terms().merge_seconds
    opened = running.half_merge - merge // 2
    look = max(0, state.now - opened) // max(1, merge // LOOKS)
    about = (running.round, revealed.commitment, look)
    if state.entries.of(DoServe, *about) is not None:
        return Decision("serve", "our update is here")
    segments = CheckpointCommitments.from_bytes(revealed.reveal.checkpoint_commitments).segments
    command = DoServe(*about, revealed.reveal.update_cid, segments, training)
    return Decision("serve", "looks after our update", (command,))
