"""How the provider's own commands are carried out."""

from __future__ import annotations

import asyncio
import secrets

from atoll.bits.layout import max_state_bytes
from atoll.content.cid import RAW, Cid
from atoll.law.manifest import Manifest
from atoll.law.trace import MAX_TRACE_BYTES, TraceDocument
from atoll.law.views import MAX_ANSWER_BYTES, JobView
from atoll.law.words import Attempt, Reveal, RoundIndex
from atoll.service.effects import Done, Effects, Handler
from atoll_node.commands import DoTrain, DoTrainAhead, SendAnswer, SendCommit, SendReveal
from atoll_node.facts import Trained, TrainedAhead, Unanswerable
from atoll_node.outcome import AheadOutcome, TrainOutcome

SECRET_BYTES = 32


class ProviderEffects(Effects):
    """Training, committing, revealing, and answering challenges."""

    def handlers(self) -> dict[type, Handler]:
        return {
            **super().handlers(),
            DoTrain: self._train,
            DoTrainAhead: self._train_ahead,
            SendCommit: self._commit,
            SendReveal: self._reveal,
            SendAnswer: self._answer,
        }

    async def _train(self, view: JobView, command: DoTrain) -> Done:
        with self.context.store.holding():  # what the worker leaves is not pinned yet
            return await self._train_and_keep(view, command)

    async def _train_and_keep(self, view: JobView, command: DoTrain) -> Done:
        limit = max_state_bytes(Manifest.from_bytes(command.manifest))
        for cid in command.extra:
            await self.fetch(view, command.slot.round, Cid.from_bytes(cid), limit)
        outcome: TrainOutcome = await self.context.worker.run(
            "atoll_node.tasks:run_training", command, self.store_dir
        )
        job, round_ = view.job_id, command.slot.round
        document = TraceDocument.from_bytes(
            self.context.store.read_bytes(Cid.from_bytes(outcome.trace_cid), MAX_TRACE_BYTES)
        )
        served = (outcome.trace_cid, outcome.update_cid, *document.states, outcome.carried_state)
        await self.keep(view, round_, *filter(None, served))  # who diverged has no update
        self.context.journal.measure(job, round_, "train_seconds", outcome.seconds)
        self.context.journal.measure(job, round_, "trained_steps", outcome.steps)
        return Done((_trained(command, outcome),))

    async def _train_ahead(self, view: JobView, command: DoTrainAhead) -> Done:
        training = command.training
        with self.context.store.holding():
            outcome: AheadOutcome = await self.context.worker.run(
                "atoll_node.tasks:run_ahead", training, self.store_dir
            )
            states = TraceDocument.from_bytes(outcome.trace).states
            await self.keep(view, training.slot.round, *states)
        self.context.journal.measure(
            view.job_id, training.slot.round, "train_seconds", outcome.seconds
        )
        return Done((TrainedAhead(training.key, outcome.trace),))

    async def _commit(self, view: JobView, command: SendCommit) -> Done:
        self.context.journal.sign_once(f"{view.job_id}:{command.guard}", command.commitment)
        call = self.calls.commit(
            view.job_id, RoundIndex(command.round), Attempt(command.attempt), command.commitment
        )
        return await self.transact(view, command.key, call)

    async def _reveal(self, view: JobView, command: SendReveal) -> Done:
        call = self.calls.reveal(
            view.job_id, RoundIndex(command.round), Attempt(command.attempt), command.reveal
        )
        return await self.transact(view, command.key, call)

    async def _answer(self, view: JobView, command: SendAnswer) -> Done:
        cid, store = Cid(RAW, command.digest), self.context.store
        size = await asyncio.to_thread(store.block_bytes, cid)
        if size is None or size > MAX_ANSWER_BYTES:
            reason = "it is not here" if size is None else f"{size} bytes are too many"
            return Done((Unanswerable(command.digest, reason),))
        block, slot = await asyncio.to_thread(store.get_block, cid), command.slot
        call = self.calls.answer_challenge(slot.job, slot.round, slot.attempt, command.index, block)
        return await self.transact(view, command.key, call)


def _trained(command: DoTrain, outcome: TrainOutcome) -> Trained:
    """The fact, with a fresh salt: from here on it is what will be committed and revealed."""
    reveal = Reveal(
        trace_root=outcome.trace_root,
        update_root=outcome.update_root,
        optimiser_root=outcome.optimiser_root,
        steps=outcome.steps,
        reset=outcome.reset,
        salt=secrets.token_bytes(SECRET_BYTES),
        update_cid=outcome.update_cid,
        trace_cid=outcome.trace_cid,
    )
    return Trained(
        round=command.slot.round,
        attempt=command.slot.attempt,
        seat=command.seat,
        data_seed=command.data_seed,
        opening=command.opening_digest,
        reveal=reveal,
        carried_state=outcome.carried_state,
        loss=outcome.loss,
        seconds=outcome.seconds,
    )
