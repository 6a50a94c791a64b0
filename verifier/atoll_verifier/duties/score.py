"""Finds who stands out so far that everything it did is audited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.law.hashing import sha256
from atoll.law.merge_inputs import MergeFacts
from atoll.law.views import JobView
from atoll.law.words import Digest, Slot, to_bitmap
from atoll.service.commands import Done, Fact, Work

if TYPE_CHECKING:
    from atoll.service.effects import Effects


@dataclass(frozen=True, slots=True)
class RevealedUpdate:
    """Where a candidate's update is, and what its bytes must hash to."""

    seat: int
    cid: bytes
    root: Digest


@dataclass(frozen=True, slots=True)
class RoundScored(Fact):
    """Which seats are audited in full, as far as the updates at hand tell."""

    in_full: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DoScore(Work[RoundScored]):
    """Find who is audited in full, of the updates at hand."""

    slot: Slot
    manifest: bytes
    opening: bytes
    facts: MergeFacts
    data_seed: Digest
    updates: tuple[RevealedUpdate, ...]

    @property
    def about(self) -> tuple[object, ...]:
        return (self.slot, self.opening, self.data_seed, *about_updates(self.updates))

    async def perform(self, effects: Effects, view: JobView) -> Done[RoundScored]:
        return Done(await effects.work("atoll_verifier.tasks:score", self, effects.store_dir))


def about_updates(updates: tuple[RevealedUpdate, ...]) -> tuple[object, ...]:
    """Names a set of updates: whose they are, and a digest of where and what."""
    what = b"".join(update.cid + update.root for update in updates)
    return (f"{to_bitmap(update.seat for update in updates):x}", sha256(what))
