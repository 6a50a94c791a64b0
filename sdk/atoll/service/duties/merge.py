"""Merges a round: the verdict that follows from votes, accusations and bytes.

Whoever merges by itself need not take anybody's word for the next model: see `disagreement`.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeVar

from atoll.protocol.hashing import sha256
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import MergeRecord, MergeTerms, available_seats, candidates
from atoll.protocol.merge_statement import update_cid_of
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Digest, Phase, RoundId, Verdict, to_bitmap
from atoll.protocol.views import JobView
from atoll.service.commands import Work
from atoll.service.duties.material import has_material, manifest_of, spec_of
from atoll.service.duties.round_start import round_start_at
from atoll.service.duties.updates import RevealedUpdate, RevealedUpdates, seen, updates_of
from atoll.service.entries import Done, Entry
from atoll.service.machine import State, by_view_and_entries
from atoll.service.task import Task
from atoll.service.update_limits import UNFETCHABLE_CONTENT, max_update_bytes
from atoll.storage.cid import RAW, Cid

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")
Merge: TypeAlias = "Task[[DoMerge, str], Verdict]"
"""A worker's function that merges a round."""
MERGE_ROUND: Final[Task[[DoMerge, str], Verdict]] = Task("merge-round.v1", "atoll.service.tasks")
MERGE_AGAIN: Final[Task[[DoMerge, str], Verdict]] = Task("merge-again.v1", "atoll.service.tasks")
MEASURE_DISTANCES: Final[Task[[DoMerge, str], MeasuredMerge]] = Task(
    "measure-distances.v1", "atoll.service.tasks"
)


@dataclass(frozen=True, slots=True)
class RoundMerged(Entry):
    """What follows from a round, but for its loss: that is zero here (see `evaluation`). The next
    global state is in the store.
    """

    kind: ClassVar[str] = "merged.v2"
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class MeasuredMerge:
    """Which seats a merge excluded, how many it merged, and how far each update lies from it, in
    lengths of the merged update.
    """

    excluded: int
    merged: int
    distances: dict[int, float]


@dataclass(frozen=True, slots=True)
class DoMerge(Work[RoundMerged]):
    """Merge; `updates` are those of every candidate, `function` is the worker's that merges."""

    kind: ClassVar[str] = "merge.v1"
    round_id: RoundId
    data_seed: Digest
    record: MergeRecord
    updates: RevealedUpdates
    manifest: bytes
    initial_state: bytes
    function: Merge = MERGE_AGAIN

    @property
    def about(self) -> tuple[object, ...]:
        """Everything that decides the verdict: of votes, only whom they say to be there."""
        record = self.record
        updates = [(update.seat, update.cid.hex(), update.root.hex()) for update in self.updates]
        there = available_seats(record.votes, record.committee, record.revealed)
        decides = [there, sorted(record.segments.items()), record.slashed, record.accused, updates]
        return (self.round_id.round, self.data_seed, sha256(json.dumps(decides).encode()))

    async def perform(self, effects: Effects, view: JobView) -> Done[RoundMerged]:
        round_, limit = self.round_id.round, max_update_bytes(Manifest.from_bytes(self.manifest))

        async def fetch(update: RevealedUpdate) -> None:
            with suppress(*UNFETCHABLE_CONTENT):  # no update then, for everyone alike
                await effects.fetch(view, round_, Cid.from_bytes(update.cid), limit)

        await effects.for_each(self.updates, fetch)
        with effects.context.store.holding():  # what the worker leaves is not pinned yet
            verdict = await effects.work_soon(self.function(self, effects.store_dir))
            await effects.keep(view, round_ + 1, verdict.cid)
            if any(verdict.statement):
                await _keep_statement(effects, view, round_ + 1, verdict.statement)
        return Done(RoundMerged(verdict))


async def _keep_statement(effects: Effects, view: JobView, round: int, statement: Digest) -> None:
    """Keeps the statement of our merge and the merged update, and so serves them."""
    cid = statement_cid(statement)
    block = await asyncio.to_thread(effects.context.store.get_block, cid)
    await effects.keep(view, round, cid.to_bytes(), update_cid_of(block))


def statement_cid(statement: Digest) -> Cid:
    """The name of a statement's block."""
    return Cid(RAW, statement)


# --- decisions ---


def merging(state: State[S]) -> DoMerge | None:
    """The merge of the running round as the votes so far decide it; None before it can be known."""
    running = state.view.open
    if running is None or not running.may_settle(state.now):
        return None
    return _merge_of(state, running.merge_record, running, running.seed)


def foreseeing(state: State[S]) -> DoMerge | None:
    """The running round's merge if the committee has what we have; None while some is looked for.

    It is the merge that the votes decide, by name, too, but where somebody served us and not most
    members, or the other way round.
    """
    running = state.view.open
    if running is None or running.phase is not Phase.MERGE or running.may_settle(state.now):
        return None
    here, unknown = seen(state)
    if unknown:
        return None
    record = replace(running.merge_record, votes=[here], committee=1)
    return _merge_of(state, record, running, running.seed)


def foreseen_of(state: State[S]) -> RoundMerged | None:
    """What the running round's merge gave: by the votes, or before them by what we have."""
    command = merging(state) or foreseeing(state)
    return None if command is None else state.entries.of(DoMerge, *command.about)


def merged_of(state: State[S]) -> RoundMerged | None:
    """What our own merge of the running round gave."""
    command = merging(state)
    return None if command is None else state.entries.of(DoMerge, *command.about)


def checking(state: State[S]) -> DoMerge | None:
    """Our own merge of the newest settled round, which its certificate is held against."""
    settled_round = state.view.settled[-1] if state.view.settled else None
    if settled_round is None or not any(settled_round.digest):
        return None
    return _merge_of(state, settled_round.merge_record, settled_round, settled_round.record.seed)


@by_view_and_entries
def checked_of(state: State[S]) -> RoundMerged | None:
    """What our own merge of the newest settled round gave."""
    command = checking(state)
    return None if command is None else state.entries.of(DoMerge, *command.about)


def _merge_of(
    state: State[S], record: MergeRecord, round: OpenRound | SettledRound, seed: Digest
) -> DoMerge | None:
    initial_state, spec = round_start_at(state, round.round), spec_of(state.entries)
    manifest = manifest_of(state.entries)
    if initial_state is None or spec is None or manifest is None or not has_material(state):
        return None
    updates = updates_of(round.reveals, to_bitmap(candidates(record, MergeTerms.of(manifest))))
    return DoMerge(round.round_id, seed, record, updates, spec, initial_state.cid)
