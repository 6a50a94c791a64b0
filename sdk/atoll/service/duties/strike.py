"""Strikes a certified merge that the updates do not give: one of us against all who signed.

A member looks where its own merge is another than the certificate's, an outsider at every round.
What is shown follows from the statement and the merged update that the committee serves: where
nobody serves these, nothing can be shown, and nobody trains on.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, Never, TypeVar

import structlog

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.chain.contract_views import announced_in, shown_of
from atoll.chain.txconfig import MOST_CALLDATA
from atoll.errors import NotFound
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import MergeTerms, candidates
from atoll.protocol.merge_statement import MAX_STATEMENT, is_stated, update_cid_of
from atoll.protocol.obligations import committee_gateways
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.strikes import AHEAD, ShownUpdate, StrikeProof, parts_of
from atoll.protocol.types import (
    ZERO_DIGEST,
    Bitmap,
    Digest,
    RoundId,
    RoundIndex,
    RoundRecord,
    SeatIndex,
    Verdict,
    to_bitmap,
)
from atoll.protocol.views import JobView
from atoll.service.commands import ContractCall, Transaction, Work
from atoll.service.duties.disagreement import disagreement
from atoll.service.duties.fetch_model import model_of_round
from atoll.service.duties.material import DataReady, DoFetchData, manifest_of, spec_of
from atoll.service.duties.merge import statement_cid
from atoll.service.duties.updates import RevealedUpdates, updates_of
from atoll.service.entries import Done, Entry
from atoll.service.machine import Decision, State
from atoll.service.task import Task
from atoll.service.update_limits import UNFETCHABLE_CONTENT, max_update_bytes
from atoll.storage.cid import Cid

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")
FIND_STRIKE: Final[Task[[DoFindStrike, bytes, str], FoundStrike]] = Task(
    "search-strike.v1", "atoll.service.tasks"
)
MOST_WIDER: Final = 8
"""Bytes of a merged update a byte of an update: of `sign`, whose values have a bit there."""
PRODUCTS_BYTES: Final = 1 << 28
"""That inner products of a merged update may have beside."""
MARGIN_SECONDS: Final = 30
"""So long before a window ends nothing is begun that has to be announced first."""
LOOK_SECONDS: Final = 1.0
"""Between two looks at how many blocks are on top of an announcement."""
log = structlog.get_logger("atoll.strike")


@dataclass(frozen=True, slots=True)
class FoundStrike:
    """What a merge is struck by; `proof` is None where nothing is wrong."""

    proof: StrikeProof | None = None


@dataclass(frozen=True, slots=True)
class StrikeSought(Entry):
    """What came of looking for something wrong in a settled round's merge.

    Attributes:
        salt: of the announcement, which nobody else can make then.
        why: it could not be looked for, or cannot be sent.
    """

    kind: ClassVar[str] = "strike-sought.v2"
    round: int
    strike: FoundStrike
    salt: Digest
    why: str = ""


@dataclass(frozen=True, slots=True)
class Arrived:
    """What could be had of a merge.

    Attributes:
        opening: CID of the state that the round opened with; empty where it did not arrive.
        missing: says what nobody had, if anything.
    """

    updates: RevealedUpdates
    opening: bytes = b""
    missing: NotFound | None = None


@dataclass(frozen=True, slots=True)
class DoFindStrike(Work[StrikeSought]):
    """Look for something wrong in what a committee certified.

    Attributes:
        updates: of the available seats.
        owed: those that are merged or excluded in any merge, as far as the chain can tell by now.
        initial: digest of round 0's model, which the job's program has.
        before: of a round that merged nothing, the statement of the last before it that merged
            something; zero of others.
    """

    kind: ClassVar[str] = "find-strike.v1"
    round_id: RoundId
    record: RoundRecord
    verdict: Verdict
    updates: RevealedUpdates
    owed: Bitmap
    manifest: bytes
    initial: Digest
    before: Digest

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round_id.round, self.record.certificate)

    async def perform(self, effects: Effects, view: JobView) -> Done[StrikeSought]:
        round_, salt, why = self.round_id.round, Digest(secrets.token_bytes(32)), ""
        try:
            strike = await self._search(effects, view)
        except UNFETCHABLE_CONTENT as missing:
            strike, why = FoundStrike(), str(missing)
            log.warning("merge_not_shown", job=view.job_id, round=round_, cause=why)
        if strike.proof is None:
            return Done(StrikeSought(round_, strike, salt, why))
        place = strike.proof.place
        about = {name: getattr(place, name) for name in ("section", "index", "seat", "is_derived")}
        size = len(effects.calls.about(view.settled[round_]).strike(strike.proof, salt).data)
        if size > MOST_CALLDATA:  # an announcement of it would cost us gas for nothing
            why = f"the strike has {size} bytes, and nodes take {MOST_CALLDATA}"
            log.warning("strike_too_long", job=view.job_id, round=round_, cause=why, **about)
            return Done(StrikeSought(round_, FoundStrike(), salt, why))
        log.warning("strikes", job=view.job_id, round=round_, **about)
        return Done(StrikeSought(round_, strike, salt))

    async def _search(self, effects: Effects, view: JobView) -> FoundStrike:
        with effects.context.store.holding():  # what was looked at is let go afterwards
            arrived = await self._fetch(effects, view)
            sought = replace(self, updates=arrived.updates)
            strike = await effects.work_soon(
                FIND_STRIKE(sought, arrived.opening, effects.store_dir)
            )
        if strike.proof is None and arrived.missing is not None:
            raise arrived.missing  # it may come, and show what nothing else did
        return strike

    async def _fetch(self, effects: Effects, view: JobView) -> Arrived:
        """A committee that withholds what one strike needs must not keep off the others.

        Raises:
            NotFound: nobody has the statement of a merge, without which nothing can be shown.
        """
        if self.verdict.merged and any(self.verdict.statement):
            cid = await self._fetch_statement(effects, view, self.verdict.statement)
            return await self._fetch_merge(effects, view, cid)
        missing: NotFound | None = None
        if any(self.before) and not self.verdict.merged:
            try:
                await self._fetch_statement(effects, view, self.before)
            except NotFound as error:
                missing = error
            except UNFETCHABLE_CONTENT:  # what contradicts itself is struck without it
                pass
        return Arrived(self.updates, missing=missing)

    async def _fetch_merge(self, effects: Effects, view: JobView, statement: Cid) -> Arrived:
        round_, limit = self.round_id.round, max_update_bytes(Manifest.from_bytes(self.manifest))
        prefer = committee_gateways(view, round_)
        block = await asyncio.to_thread(effects.context.store.get_block, statement)
        missing: NotFound | None = None
        try:
            merged = Cid.from_bytes(update_cid_of(block))
            most = MOST_WIDER * limit + PRODUCTS_BYTES
            await effects.fetch(view, round_ + 1, merged, most, prefer)
        except NotFound as error:
            missing = error
        except UNFETCHABLE_CONTENT:  # a statement may be wrong by itself
            pass
        arrived, opening = [], b""
        for update in self.updates:
            try:
                await effects.fetch(view, round_, Cid.from_bytes(update.cid), limit, prefer)
                arrived.append(update)
            except NotFound as error:
                missing = error
            except UNFETCHABLE_CONTENT:
                pass
        try:
            opening = await model_of_round(effects, view, round_, self.manifest)
        except NotFound as error:
            missing = error
        except UNFETCHABLE_CONTENT:
            pass
        return Arrived(tuple(arrived), opening, missing)

    async def _fetch_statement(self, effects: Effects, view: JobView, digest: Digest) -> Cid:
        cid, prefer = statement_cid(digest), committee_gateways(view, self.round_id.round)
        await effects.fetch(view, self.round_id.round + 1, cid, MAX_STATEMENT, prefer)
        return cid


@dataclass(frozen=True, slots=True)
class SendAnnouncement(ContractCall):
    """Say that a strike will be shown, without saying which."""

    kind: ClassVar[str] = "announce-strike.v1"
    once: ClassVar[bool] = True
    round: RoundIndex
    commitment: Digest

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.announce(self.commitment)


@dataclass(frozen=True, slots=True)
class SendRows(Transaction[Never]):
    """Show some of the rows that a strike needs, for whoever strikes there."""

    kind: ClassVar[str] = "show-rows.v1"
    once: ClassVar[bool] = True
    round: RoundIndex
    proof: StrikeProof
    updates: tuple[ShownUpdate, ...]

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.proof.place.number, self.seats)

    @property
    def seats(self) -> Bitmap:
        """Whose rows they are."""
        return to_bitmap(SeatIndex(update.seat) for update in self.updates)

    async def perform(self, effects: Effects, view: JobView) -> Done[Never]:
        about = effects.calls.about(view.settled[self.round])
        return await effects.transact(view, self, about.show_rows(self.proof, self.updates))


@dataclass(frozen=True, slots=True)
class SendStrike(Transaction[Never]):
    """Show what is wrong, so many blocks behind its announcement that who copies it comes later.

    Every step asks the chain what is there, so that a crash or a reorganisation costs nothing.
    """

    kind: ClassVar[str] = "strike.v1"
    once: ClassVar[bool] = True
    round: RoundIndex
    proof: StrikeProof
    salt: Digest

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round,)

    async def perform(self, effects: Effects, view: JobView) -> Done[Never]:
        await self._announce(effects, view)
        await self._show(effects, view)
        # Where a row or the announcement is gone again it is refused: then it is asked for again.
        about = effects.calls.about(view.settled[self.round])
        return await effects.transact(view, self, about.strike(self.proof, self.salt))

    async def _announce(self, effects: Effects, view: JobView) -> None:
        """Returns once the strike may be shown, or nobody can strike any more."""
        chain, settled_round = effects.context.chain, view.settled[self.round]
        place, window_end = self.proof.place, settled_round.clock.window_end
        strikes = effects.calls.strikes(settled_round.round_id.domain.chain_id)
        me = effects.context.me
        commitment = strikes.commitment(me, view.job_id, self.round, place, self.salt)
        announcement = SendAnnouncement(self.round, commitment)
        await effects.transact(view, announcement, announcement.call(effects.calls, view))
        while not self._is_over(effects, view):
            announced, head = await chain.ask(announced_in(commitment)), await chain.head()
            is_ahead = announced and head.number >= announced + AHEAD
            if is_ahead or head.timestamp >= window_end:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _show(self, effects: Effects, view: JobView) -> None:
        """Those rows that nobody has shown yet; all at once, since others see them from now on."""
        if not self.proof.updates or self._is_over(effects, view):
            return
        number = self.proof.place.number
        shown = await effects.context.chain.ask(shown_of(view.job_id, self.round, number))
        parts = (SendRows(self.round, self.proof, part) for part in parts_of(self.proof.updates))
        missing = [part for part in parts if part.seats & ~shown]
        await asyncio.gather(*(part.perform(effects, view) for part in missing))

    def _is_over(self, effects: Effects, view: JobView) -> bool:
        """Whether somebody has struck meanwhile."""
        newest = effects.context.follower.views.get(view.job_id, view)
        settled_round = newest.settled_round(self.round)
        return settled_round is not None and settled_round.struck_by is not None


# --- decisions ---


def decide_strike(state: State[S]) -> Decision:
    """Strikes the certificate that our own merge does not give."""
    disagreed = disagreement(state)
    if disagreed is None:
        return Decision("strike", "no certificate is another than our own merge")
    settled_round = state.view.settled_round(RoundIndex(disagreed.round))
    wanted = () if settled_round is None else tuple(_wanted(state, settled_round))
    return Decision("strike", "looks for what shows that the certificate is wrong", wanted)


def decide_strikes(state: State[S]) -> Decision:
    """As an outsider: looks at the merge of every round that can still be struck."""
    rounds = state.view.auditing(state.now + MARGIN_SECONDS)
    wanted = tuple(command for each in rounds for command in _wanted(state, each))
    return Decision("strike", f"{len(wanted)} merges to look at", wanted)


def _wanted(state: State[S], settled: SettledRound) -> Iterator[DoFindStrike | SendStrike]:
    spec, manifest = spec_of(state.entries), manifest_of(state.entries)
    data = state.entries.of(DoFetchData)
    if spec is None or manifest is None or not isinstance(data, DataReady):
        return
    is_over = state.now + MARGIN_SECONDS >= settled.clock.window_end
    if is_over or settled.struck_by is not None or not settled.signers or not is_stated(manifest):
        return
    updates = updates_of(settled.reveals, settled.record.available)
    slashed = to_bitmap(
        seat for seat, id in settled.seats.items() if state.view.providers[id].is_slashed
    )
    whole = candidates(settled.merge_record, MergeTerms.of(manifest))
    owed = Bitmap(to_bitmap(whole) & ~slashed)
    about = (settled.round_id, settled.record, settled.verdict, updates, owed)
    seeking = DoFindStrike(*about, spec, data.initial, _stated_before(state.view, settled))
    sought = state.entries.of(DoFindStrike, *seeking.about)
    if sought is None:
        yield seeking
    elif sought.strike.proof is not None:
        yield SendStrike(settled.round, sought.strike.proof, sought.salt)


def _stated_before(view: JobView, settled: SettledRound) -> Digest:
    if settled.verdict.merged:
        return ZERO_DIGEST
    earlier = (view.settled[round].verdict for round in range(settled.round - 1, -1, -1))
    return next((verdict.statement for verdict in earlier if verdict.merged), ZERO_DIGEST)
