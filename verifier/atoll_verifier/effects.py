"""How the verifier's own commands are carried out.

Rule of this file: data that nobody serves is `NotFound` and challenged by the machine when its time
has come; data that cannot be what it claims is a fault, at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from atoll.bits.layout import max_state_bytes
from atoll.content.cid import RAW, Cid
from atoll.errors import MalformedTrace
from atoll.law.manifest import Manifest
from atoll.law.trace import MAX_TRACE_BYTES, TraceDocument
from atoll.law.views import JobView
from atoll.law.words import ZERO_DIGEST
from atoll.service.effects import Done, Effects, Handler
from atoll_verifier.commands import (
    DoCheck,
    DoLink,
    DoMerge,
    DoNote,
    DoReplay,
    DoScore,
    DoSign,
    DoTake,
    SeatWork,
    SendAttest,
    SendBallot,
    SendChallenge,
    SendReady,
    SendSettle,
    SendVote,
    SendWithdraw,
)
from atoll_verifier.facts import (
    BlockTaken,
    LinkChecked,
    ResidualSeen,
    RoundMerged,
    RoundScored,
    SeatChecked,
    SegmentReplayed,
)
from atoll_verifier.limits import UNFETCHABLE_CONTENT, max_update_bytes, states_needed

TASKS = "atoll_verifier.tasks"


class VerifierEffects(Effects):
    """Checking, replaying, merging; balloting, voting, attesting, settling."""

    def handlers(self) -> dict[type, Handler]:
        return {
            **super().handlers(),
            DoCheck: self._check,
            DoReplay: self._replay,
            DoLink: self._link,
            DoScore: self._score,
            DoMerge: self._merge,
            DoTake: self._take,
            DoNote: self._note,
            DoSign: self._sign,
            SendReady: self._ready,
            SendChallenge: self._challenge,
            SendWithdraw: self._withdraw,
            SendBallot: self._ballot,
            SendVote: self._vote,
            SendAttest: self._attest,
            SendSettle: self._settle,
        }

    # --- looking ---

    async def _check(self, view: JobView, command: DoCheck) -> Done:
        work = command.work
        manifest = Manifest.from_bytes(work.manifest)
        try:
            await self._fetch(view, work.reveal.trace_cid, MAX_TRACE_BYTES, work)
            if work.reveal.steps == manifest.inner.steps:
                limit = max_update_bytes(manifest)
                await self._fetch(view, work.reveal.update_cid, limit, work)
        except UNFETCHABLE_CONTENT as error:
            return Done((SeatChecked(work.what, str(error)),))
        fault = await self.context.worker.run(f"{TASKS}:check_seat", work, self.store_dir)
        return Done((SeatChecked(work.what, fault),))

    async def _replay(self, view: JobView, command: DoReplay) -> Done:
        work, segment = command.work, command.segment
        try:
            for index in range(
                segment, segment + states_needed(Manifest.from_bytes(work.manifest))
            ):
                await self._fetch_state(view, work, index)
        except (*UNFETCHABLE_CONTENT, MalformedTrace) as error:
            found = SegmentReplayed(
                work.what, segment, str(error), ZERO_DIGEST, ZERO_DIGEST, 0, 0.0
            )
            return Done((found,))
        key = int.from_bytes(self.context.journal.secret("sketch")[:16], "big")
        done = await self.context.worker.run(f"{TASKS}:replay", work, segment, self.store_dir, key)
        self._measure(view, "replayed_steps", done.steps)
        self._measure(view, "replayed_segments", 1)
        self._measure(view, "replay_seconds", done.seconds)
        found = SegmentReplayed(
            what=work.what,
            segment=segment,
            differs=done.differs,
            computed=done.computed,
            work_word=done.work_word,
            steps=done.steps,
            seconds=done.seconds,
            excess=done.excess,
        )
        if not done.residual:
            return Done((found,))
        return Done((found, ResidualSeen(work.account, work.what, segment, done.residual)))

    async def _link(self, view: JobView, command: DoLink) -> Done:
        try:
            await self._fetch_state(view, command.work, -1)
        except (*UNFETCHABLE_CONTENT, MalformedTrace) as error:
            return Done((LinkChecked(command.work.what, str(error)),))
        fault = await self.context.worker.run(f"{TASKS}:link", command.work, self.store_dir)
        return Done((LinkChecked(command.work.what, fault),))

    async def _score(self, view: JobView, command: DoScore) -> Done:
        in_full = await self.context.worker.run(f"{TASKS}:score", command, self.store_dir)
        return Done((RoundScored(command.what, in_full),))

    async def _merge(self, view: JobView, command: DoMerge) -> Done:
        limit = max_update_bytes(Manifest.from_bytes(command.manifest))
        for update in command.updates:
            with suppress(*UNFETCHABLE_CONTENT):  # no update then, for everyone alike
                await self.fetch(view, command.round, Cid.from_bytes(update.cid), limit)
        with self.context.store.holding():  # what the worker leaves is not pinned yet
            merged = await self.context.worker.run(f"{TASKS}:merge_round", command, self.store_dir)
            await self.keep(view, command.round + 1, merged.cid)
        return Done((RoundMerged(command.what, merged.cid, merged.digest),))

    async def _fetch(self, view: JobView, cid: bytes, max_bytes: int, work: SeatWork) -> None:
        await self.fetch(view, work.slot.round, Cid.from_bytes(cid), max_bytes, work.gateway)

    async def _fetch_state(self, view: JobView, work: SeatWork, index: int) -> None:
        """Brings state `index` of the seat's trace document here; −1 is the last."""
        data = self.context.store.read_bytes(Cid.from_bytes(work.reveal.trace_cid), MAX_TRACE_BYTES)
        document = TraceDocument.from_bytes(data)
        limit = max_state_bytes(Manifest.from_bytes(work.manifest))
        await self._fetch(view, document.states[index], limit, work)

    def _measure(self, view: JobView, name: str, value: float) -> None:
        self.context.journal.measure(view.job_id, view.state.round, name, value)

    async def _take(self, view: JobView, command: DoTake) -> Done:
        """The contract has checked the digest; what kind of node it is, the CID that asks says."""
        cid, store = Cid(RAW, command.digest), self.context.store
        was_here = store.has(cid)
        await asyncio.to_thread(store.put_block, cid, command.block)
        return Done((BlockTaken(command.digest, was_here),))

    async def _note(self, view: JobView, command: DoNote) -> Done:
        return Done((command.fact,))

    # --- saying ---

    async def _sign(self, view: JobView, command: DoSign) -> Done:
        slot = f"{view.job_id}:{command.signed.key}"
        self.context.journal.sign_once(slot, command.signed.content())
        return Done((command.signed,))

    async def _ready(self, view: JobView, command: SendReady) -> Done:
        call = self.calls.attest_ready(view.job_id)
        return await self.transact_again(view, command.key, call)

    async def _challenge(self, view: JobView, command: SendChallenge) -> Done:
        slot = command.slot
        call = self.calls.challenge(slot.job, slot.round, slot.attempt, report=command.report)
        return await self.transact_again(view, command.key, call)

    async def _withdraw(self, view: JobView, command: SendWithdraw) -> Done:
        slot = command.slot
        call = self.calls.withdraw_challenge(slot.job, slot.round, slot.attempt, command.index)
        return await self.transact_again(view, command.key, call)

    async def _ballot(self, view: JobView, command: SendBallot) -> Done:
        slot = command.slot
        call = self.calls.ballot(
            slot.job,
            slot.round,
            slot.attempt,
            findings=command.findings,
            reports=command.reports,
            replay_root=command.replay_root,
        )
        return await self.transact(view, command.key, call)

    async def _vote(self, view: JobView, command: SendVote) -> Done:
        slot = command.slot
        call = self.calls.vote(
            slot.job,
            slot.round,
            slot.attempt,
            agree=command.agree,
            disagree=command.disagree,
            cannot_fetch=command.cannot_fetch,
        )
        return await self.transact(view, command.key, call)

    async def _attest(self, view: JobView, command: SendAttest) -> Done:
        slot = command.slot
        call = self.calls.attest(slot.job, slot.round, slot.attempt, command.verdict_hash)
        return await self.transact(view, command.key, call)

    async def _settle(self, view: JobView, command: SendSettle) -> Done:
        call = self.calls.settle(command.slot.job, command.verdict)
        return await self.transact_again(view, command.key, call)
