"""Brings the running round's updates, and says of each whether its bytes are what was revealed.

Providers need them as much as verifiers: whoever merges by itself need not wait for a certificate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeVar

from atoll.protocol.manifest import Manifest
from atoll.protocol.open_rounds import OpenRound, SeatReveal
from atoll.protocol.types import Bitmap, Digest, RoundIndex, SeatIndex, bits, to_bitmap
from atoll.protocol.views import JobView
from atoll.service.commands import Work
from atoll.service.duties.fetch_model import model_of_round
from atoll.service.duties.material import has_material, spec_of
from atoll.service.duties.round_start import RoundStartReady, round_start_of
from atoll.service.entries import Done, Entry
from atoll.service.machine import Decision, State
from atoll.service.task import Task
from atoll.service.update_limits import UNFETCHABLE_CONTENT, max_update_bytes
from atoll.storage.cid import Cid

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")
IS_CANONICAL: Final[Task[[DoGetUpdate, str], bool]] = Task("check-update.v1", "atoll.service.tasks")


@dataclass(frozen=True, slots=True)
class UpdateSeen(Entry):
    """Whether a seat's update is here: the bytes that its root binds, and canonical."""

    kind: ClassVar[str] = "update-fetched.v1"
    is_available: bool


@dataclass(frozen=True, slots=True)
class RevealedUpdate:
    """A seat's update as it was revealed; the CID is a hint."""

    seat: SeatIndex
    cid: bytes
    root: Digest


RevealedUpdates: TypeAlias = tuple[RevealedUpdate, ...]


@dataclass(frozen=True, slots=True)
class DoGetUpdate(Work[UpdateSeen]):
    """Fetch a seat's update and check its bytes.

    Attributes:
        commitment: names what was revealed.
        initial_state: CID of the round's global state; empty where that has to be looked for.
    """

    kind: ClassVar[str] = "fetch-update.v1"
    round: RoundIndex
    commitment: Digest
    update: RevealedUpdate
    data_seed: Digest
    manifest: bytes
    initial_state: bytes

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.commitment)

    async def perform(self, effects: Effects, view: JobView) -> Done[UpdateSeen]:
        limit = max_update_bytes(Manifest.from_bytes(self.manifest))
        try:
            cid = Cid.from_bytes(self.update.cid)
            await effects.fetch_spread(view, self.round, cid, limit)
        except UNFETCHABLE_CONTENT:
            return Done(UpdateSeen(False))
        fetched = self
        if not self.initial_state:
            model = await model_of_round(effects, view, self.round, self.manifest)
            fetched = replace(self, initial_state=model)
        call = IS_CANONICAL(fetched, effects.store_dir)
        return Done(UpdateSeen(await effects.work_soon(call)))


# --- decisions ---


def decide_updates(state: State[S]) -> Decision:
    """Gets every revealed update of the running round."""
    initial_state, spec, running = round_start_of(state), spec_of(state.entries), state.view.open
    if initial_state is None or spec is None or running is None or not has_material(state):
        return Decision("updates", "waits for the round and its global state")
    everyone = _getting(running, spec, initial_state)
    wanted = [c for c in everyone if state.entries.of(DoGetUpdate, *c.about) is None]
    return Decision("updates", f"{len(wanted)} updates are not here", tuple(wanted))


def _getting(running: OpenRound, spec: bytes, initial_state: RoundStartReady) -> list[DoGetUpdate]:
    where = RoundOfUpdates(running.round, running.seed, spec, initial_state.cid)
    return [
        getting(s, revealed, where) for s, revealed in running.reveals.items() if revealed.segments
    ]


@dataclass(frozen=True, slots=True)
class RoundOfUpdates:
    """What the updates of a round have in common.

    Attributes:
        spec: the manifest's bytes.
        initial_state: CID of the model that the round began with; empty where it is not known.
    """

    round: RoundIndex
    data_seed: Digest
    spec: bytes
    initial_state: bytes


def getting(seat: SeatIndex, revealed: SeatReveal, where: RoundOfUpdates) -> DoGetUpdate:
    """What brings a seat's update."""
    update = RevealedUpdate(seat, revealed.reveal.update_cid, revealed.reveal.update_root)
    return DoGetUpdate(
        where.round,
        revealed.commitment,
        update,
        where.data_seed,
        where.spec,
        where.initial_state,
    )


def seen(state: State[S]) -> tuple[Bitmap, Bitmap]:
    """Of the running round: seats whose update we have, and seats that we know nothing of yet."""
    running = state.view.open
    if running is None:
        return Bitmap(0), Bitmap(0)
    seen_updates = {
        seat: state.entries.of(DoGetUpdate, running.round, revealed.commitment)
        for seat, revealed in running.reveals.items()
        if revealed.segments
    }
    available = to_bitmap(
        seat for seat, entry in seen_updates.items() if entry is not None and entry.is_available
    )
    unknown = to_bitmap(seat for seat, entry in seen_updates.items() if entry is None)
    return available, unknown


def updates_of(reveals: Mapping[SeatIndex, SeatReveal], seats: Bitmap) -> RevealedUpdates:
    """Those of a round's seats."""
    revealed = ((seat, reveals[seat].reveal) for seat in map(SeatIndex, bits(seats)))
    return tuple(RevealedUpdate(s, reveal.update_cid, reveal.update_root) for s, reveal in revealed)
