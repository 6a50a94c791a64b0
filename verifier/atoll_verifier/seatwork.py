"""A seat's revealed work: what names it, what it is held against, and how it comes here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.bits.layout import max_state_bytes
from atoll.content.cid import Cid
from atoll.law.manifest import Manifest
from atoll.law.trace import MAX_TRACE_BYTES, TraceDocument
from atoll.law.views import JobView
from atoll.law.words import Address, Digest, Reveal, Slot

if TYPE_CHECKING:
    from atoll.service.effects import Effects


@dataclass(frozen=True, slots=True)
class SeatWork:
    """The argument of every check of a seat.

    Attributes:
        slot: carries the attempt that trained.
        account: the provider's.
        gateway: where it serves; asked first.
        opening: CID of the round's global state, `params_root` of its parameters.
        optimiser_root: what the seat must have opened with.
    """

    slot: Slot
    seat: int
    reveal: Reveal
    account: Address
    gateway: str
    data_seed: Digest
    manifest: bytes
    opening: bytes
    params_root: Digest
    optimiser_root: Digest

    @property
    def about(self) -> tuple[object, ...]:
        return about_seat(self.slot, self.seat, self.reveal)

    async def fetch(self, effects: Effects, view: JobView, cid: bytes, max_bytes: int) -> None:
        """Brings a file of it here, from its provider first. Raises as `Effects.fetch`."""
        await effects.fetch(view, self.slot.round, Cid.from_bytes(cid), max_bytes, self.gateway)

    async def fetch_state(self, effects: Effects, view: JobView, index: int) -> None:
        """Brings state `index` of the trace document here; −1 is the last."""
        store = effects.context.store
        data = store.read_bytes(Cid.from_bytes(self.reveal.trace_cid), MAX_TRACE_BYTES)
        limit = max_state_bytes(Manifest.from_bytes(self.manifest))
        await self.fetch(effects, view, TraceDocument.from_bytes(data).states[index], limit)


def about_seat(train_slot: Slot, seat: int, reveal: Reveal) -> tuple[object, ...]:
    """Names a seat's revealed work; another reveal after a reorg is other work."""
    return (train_slot, seat, reveal.trace_root, reveal.update_root)
