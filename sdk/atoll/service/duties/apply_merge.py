"""Applies a round's merge, which the committee worked out, instead of merging once more.

Of every update this needs a few pieces, where merging needs all: SPEC-MERGE.md, 9. Whatever is not
as it should be leads to a merge of our own (`merge`), and that one decides what we believe.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import structlog

from atoll.errors import MalformedUpdate, NotFound
from atoll.numerics.shown_pieces import MOST_SHOWN, checked_pieces, shown_length
from atoll.protocol.merge_statement import MAX_STATEMENT, is_stated
from atoll.protocol.obligations import committee_gateways
from atoll.protocol.types import Digest, Phase, Role, RoundIndex
from atoll.protocol.views import JobView
from atoll.service.commands import Work
from atoll.service.duties.material import manifest_of
from atoll.service.duties.merge import DoMerge, RoundMerged, checked_of, checking, statement_cid
from atoll.service.duties.round_start import RoundStartReady
from atoll.service.entries import Done, Entry
from atoll.service.machine import Setup, State
from atoll.service.task import Task
from atoll.service.update_limits import HEADER_BYTES, UNFETCHABLE_CONTENT, max_update_bytes
from atoll.storage.cid import Cid
from atoll.storage.download import Asked
from atoll.storage.local import LocalStore

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")
B = TypeVar("B")
OPEN_STATEMENT: Final[Task[[DoApply, bytes, str], OpenedStatement]] = Task(
    "open-statement.v1", "atoll.service.tasks"
)
APPLY_MERGED: Final[Task[[DoApply, bytes, ShownSpots, str], RoundStartReady]] = Task(
    "apply-merged.v1", "atoll.service.tasks"
)
LARGE_BYTES: Final = 64 << 20
"""Of a round's updates together, above which they are not fetched where a merge can be applied."""
NO_MODEL: Final = Digest(b"none".ljust(32, b"\0"))
"""What is disagreed with a certificate by, of whose merge nobody serves anything."""
MERGES_AT: Final = 4
"""In the first of so many parts of TRAIN a merged update is waited for; in the last one neither it
nor the updates are."""
MOST_UNCHECKED: Final = 3
"""Rounds running of which a drawn spot could not be had: the last of them counts as wrong."""
log = structlog.get_logger("atoll.apply_merge")


@dataclass(frozen=True, slots=True)
class OpenedStatement:
    """What a statement, once it is checked, leads to.

    Attributes:
        update_cid, update_bytes: of the merged update.
        seat_bytes: of each seat's.
        spots: drawn ones, each as the numbers of its pieces in every seat's update.
    """

    update_cid: bytes
    update_bytes: int
    seat_bytes: int
    spots: tuple[tuple[int, ...], ...]

    @property
    def batches(self) -> list[tuple[int, ...]]:
        """The pieces of all spots, by what is asked for at once."""
        return batches_of(self.spots)


def batches_of(spots: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """The pieces of these spots, ascending, by what is asked for at once."""
    numbers = sorted({number for spot in spots for number in spot})
    return [tuple(numbers[at : at + MOST_SHOWN]) for at in range(0, len(numbers), MOST_SHOWN)]


@dataclass(frozen=True, slots=True)
class ShownSpots:
    """What could be had of the drawn spots.

    Attributes:
        spots: the numbers of those whose pieces are here of every update.
        batches: by update, in the order of the command's, the block with each batch's pieces;
            empty where nobody showed them.
    """

    spots: tuple[int, ...] = ()
    batches: tuple[tuple[bytes, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class MergeApplied(Entry):
    """What came of a settled round's merged update.

    Attributes:
        cid: of the certified state, which is in the store; empty where it is none.
        why: it is none.
        is_checked: whether every drawn spot was compared with the updates. Who is asked for pieces
            sees which, and withholds those in which the merge is wrong.
    """

    kind: ClassVar[str] = "merge-applied.v1"
    round: int
    cid: bytes
    why: str = ""
    is_checked: bool = True


@dataclass(frozen=True, slots=True)
class DoApply(Work[MergeApplied]):
    """Apply a settled round's merged update.

    Attributes:
        merge: what would merge by ourselves; `updates` are those of every candidate.
        statement: SHA-256 of the merge statement, as certified.
        state: digest of the state that follows, as certified.
        must_check: whether too many rounds before could not be checked.
    """

    kind: ClassVar[str] = "apply-merge.v1"
    merge: DoMerge
    statement: Digest
    state: Digest
    must_check: bool = False

    @property
    def about(self) -> tuple[object, ...]:
        return (*self.merge.about, self.statement, self.state)

    async def perform(self, effects: Effects, view: JobView) -> Done[MergeApplied]:
        round_ = self.merge.round_id.round
        with effects.context.store.holding():  # blocks of updates are let go afterwards
            try:
                return Done(await self._applied(effects, view))
            except (*UNFETCHABLE_CONTENT, MalformedUpdate) as wrong:
                about = {"job": view.job_id, "round": round_}
                log.warning("merge_not_applied", **about, cause=str(wrong))
                return Done(MergeApplied(round_, b"", str(wrong)))

    async def _applied(self, effects: Effects, view: JobView) -> MergeApplied:
        round_ = self.merge.round_id.round
        prefer = committee_gateways(view, round_)
        cid = statement_cid(self.statement)
        await effects.fetch(view, round_ + 1, cid, MAX_STATEMENT, prefer)
        # Nobody knows where we shall look, so nobody lies elsewhere only.
        secret = secrets.token_bytes(32)
        opened = await effects.work_soon(OPEN_STATEMENT(self, secret, effects.store_dir))
        update = Cid.from_bytes(opened.update_cid)
        where = {"made_in": round_}
        await effects.fetch_handed_on(view, round_ + 1, update, opened.update_bytes, **where)
        shown = await self._shown(effects, view, opened)
        is_checked = len(shown.spots) == len(opened.spots)
        if self.must_check and not is_checked:
            raise MalformedUpdate("nobody serves what the merges of several rounds were made of")
        call = APPLY_MERGED(self, secret, shown, effects.store_dir)
        after = await effects.work_soon(call)
        if after.digest != self.state:
            raise MalformedUpdate("the state that follows is not the certified one")
        await effects.keep(view, round_ + 1, after.cid)
        return MergeApplied(round_, after.cid, is_checked=is_checked)

    async def _shown(self, effects: Effects, view: JobView, opened: OpenedStatement) -> ShownSpots:
        """Has the drawn pieces of every update shown, as far as somebody does."""
        prefer = committee_gateways(view, self.merge.round_id.round)
        fetcher, batches = effects.context.fetcher_of(view.job_id), opened.batches
        updates, blocks = self.merge.updates, dict[tuple[int, int], bytes]()

        async def bring(item: tuple[int, int]) -> None:
            update, numbers = updates[item[0]], batches[item[1]]
            taken = _Taken(update.root, numbers, opened.seat_bytes, effects.context.store)
            most = shown_length(numbers, opened.seat_bytes)
            asked = Asked(Cid.from_bytes(update.cid), taken.accept, numbers, most)
            with suppress(NotFound, ValueError):
                await fetcher.show(asked, prefer)
                blocks[item] = taken.block

        items = list(product(range(len(updates)), range(len(batches))))
        await effects.for_each(items, bring)
        # Once more: who is asked about a file for the first time reads all of it, and one of many
        # may take longer than we wait.
        await effects.for_each([item for item in items if item not in blocks], bring)
        lacking = {
            number
            for at, numbers in enumerate(batches)
            if any((update, at) not in blocks for update in range(len(updates)))
            for number in numbers
        }
        spots = tuple(n for n, spot in enumerate(opened.spots) if lacking.isdisjoint(spot))
        return ShownSpots(
            spots,
            tuple(
                tuple(blocks.get((update, at), b"") for at in range(len(batches)))
                for update in range(len(updates))
            ),
        )


@dataclass(slots=True)
class _Taken:
    """Pieces of an update as they come; `block` is what the store has them in."""

    root: Digest
    numbers: tuple[int, ...]
    size: int
    store: LocalStore
    block: bytes = b""

    def accept(self, _cid: Cid, shown: bytes) -> None:
        """Raises CorruptBlock where they are not the revealed update's."""
        pieces = checked_pieces(shown, self.numbers, self.size, self.root)
        self.block = self.store.add_bytes(b"".join(pieces.values())).to_bytes()


# --- decisions ---


def applies(state: State[Setup[B]]) -> bool:
    """Whether we, as a provider, apply merges; else we merge by ourselves."""
    manifest, held = manifest_of(state.entries), state.view.standing(state.me)
    merge = state.setup.merge
    if manifest is None or merge == "self" or not is_stated(manifest):
        return False
    if held is None or held.role is not Role.PROVIDER:
        return False
    update = max_update_bytes(manifest) - HEADER_BYTES
    return merge == "apply" or manifest.terms.seats * update > LARGE_BYTES


def applying(state: State[S]) -> DoApply | None:
    """What applies the merge of the newest settled round; None where there is none to apply."""
    merge = checking(state)
    if merge is None or state.view.phase is Phase.CLOSED:
        return None
    verdict = state.view.settled[-1].verdict
    if not any(verdict.statement):
        return None
    lately = [RoundIndex(merge.round_id.round - n) for n in range(1, MOST_UNCHECKED)]
    entries = state.entries.all_of(MergeApplied)
    unchecked = {entry.round for entry in entries if not entry.is_checked}
    must_check = all(round_ in unchecked for round_ in lately)
    return DoApply(merge, verdict.statement, verdict.state, must_check)


def applied_of(state: State[S]) -> MergeApplied | None:
    """What came of applying the newest settled round's merge."""
    command = applying(state)
    return None if command is None else state.entries.of(DoApply, *command.about)


def own_model(state: State[S]) -> bytes:
    """CID of the certified model, where our merge or the application of one gave it."""
    applied, merged = applied_of(state), checked_of(state)
    if applied is not None and applied.cid:
        return applied.cid
    is_ours = isinstance(merged, RoundMerged) and merged.verdict.state == state.view.model
    return merged.verdict.cid if merged is not None and is_ours else b""


def waits_for_merge(state: State[S]) -> bool:
    """Whether the running round's model is still to come of a merge that can be applied."""
    return applying(state) is not None and not own_model(state)


def part_of_train(state: State[S]) -> int:
    """In which quarter of the running round's TRAIN we are, from 0; 4 once that is over."""
    running = state.view.open
    if running is None or running.phase is not Phase.TRAIN:
        return MERGES_AT
    train = max(1, state.view.require_terms().train_seconds)
    since = state.now - (running.deadline - train)
    return min(MERGES_AT, max(0, since * MERGES_AT // train))
