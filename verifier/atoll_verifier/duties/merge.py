"""Merges what the evidence prescribes: all of it is on chain, or named by it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.content.cid import Cid
from atoll.law.duties import merge_facts
from atoll.law.manifest import Manifest
from atoll.law.merge_inputs import MergeFacts
from atoll.law.views import JobView
from atoll.law.words import Digest, Slot
from atoll.service.commands import Done, Fact, Work
from atoll_verifier.duties.score import RevealedUpdate, about_updates
from atoll_verifier.limits import UNFETCHABLE_CONTENT, max_update_bytes

if TYPE_CHECKING:
    from atoll.service.effects import Effects
    from atoll_verifier.audit import Audit


@dataclass(frozen=True, slots=True)
class RoundMerged(Fact):
    """The next global state; it is in the store."""

    cid: bytes
    digest: Digest


@dataclass(frozen=True, slots=True)
class DoMerge(Work[RoundMerged]):
    """Merge what the evidence prescribes; `updates` are those of every candidate."""

    slot: Slot
    manifest: bytes
    opening: bytes
    facts: MergeFacts
    data_seed: Digest
    updates: tuple[RevealedUpdate, ...]

    @property
    def about(self) -> tuple[object, ...]:
        updates = about_updates(self.updates)
        return (self.slot, self.opening, self.data_seed, self.facts.caught, *updates)

    async def perform(self, effects: Effects, view: JobView) -> Done[RoundMerged]:
        round_, limit = self.slot.round, max_update_bytes(Manifest.from_bytes(self.manifest))

        async def fetch(update: RevealedUpdate) -> None:
            with suppress(*UNFETCHABLE_CONTENT):  # no update then, for everyone alike
                await effects.fetch(view, round_, Cid.from_bytes(update.cid), limit)

        await effects.for_each(self.updates, fetch)
        with effects.context.store.holding():  # what the worker leaves is not pinned yet
            merged: RoundMerged = await effects.work(
                "atoll_verifier.tasks:merge_round", self, effects.store_dir
            )
            await effects.keep(view, round_ + 1, merged.cid)
        return Done(merged)


def merging(audit: Audit) -> DoMerge:
    """The merge of the running round."""
    view, updates = audit.view, audit.updates(audit.candidates)
    facts, seed = merge_facts(view), view.state.data_seed
    return DoMerge(view.train_slot, audit.spec, audit.opening.cid, facts, seed, updates)
