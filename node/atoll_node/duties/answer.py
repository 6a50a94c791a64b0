"""Puts challenged blocks of ours on the chain where they are small enough."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from atoll.content.cid import RAW, Cid
from atoll.law.views import MAX_ANSWER_BYTES, JobView
from atoll.law.words import Digest, Phase, Slot
from atoll.service.commands import Done, Fact, Transaction
from atoll.service.machine import Decision
from atoll_node.behaviour import ProviderState

if TYPE_CHECKING:
    from atoll.service.effects import Effects


@dataclass(frozen=True, slots=True)
class Unanswerable(Fact):
    """A challenged block that is not here, or larger than the chain takes."""

    reason: str


@dataclass(frozen=True, slots=True)
class SendAnswer(Transaction[Unanswerable]):
    """Put the block with this SHA-256 on the chain, as the answer to a challenge."""

    once: ClassVar[bool] = True
    slot: Slot
    index: int
    digest: Digest

    async def perform(self, effects: Effects, view: JobView) -> Done[Unanswerable]:
        cid, store = Cid(RAW, self.digest), effects.context.store
        size = await asyncio.to_thread(store.block_bytes, cid)
        if size is None or size > MAX_ANSWER_BYTES:
            reason = "it is not here" if size is None else f"{size} bytes are too many"
            return Done(Unanswerable(reason))
        block, slot = await asyncio.to_thread(store.get_block, cid), self.slot
        call = effects.calls.answer_challenge(slot.job, slot.round, slot.attempt, self.index, block)
        return await effects.transact(view, self, call)


# --- decisions ---


def decide_answers(state: ProviderState) -> Decision:
    """Answers what can be answered, when the behaviour says so."""
    view, answers = state.view, state.setup.behaviour.answers
    if view.state.phase is not Phase.REPORT or state.now >= view.state.deadline:
        return Decision("answer", "no challenge can be answered now")
    challenges = [
        record
        for record in view.attempt_reports
        if record.accused == state.me and record.awaits_answer
    ]
    wanted = (
        SendAnswer(view.slot, record.index, record.report.evidence)
        for record in challenges
        if answers(view, record, state.now)
    )
    due = tuple(command for command in wanted if state.facts.of(SendAnswer, *command.about) is None)
    return Decision("answer", f"answers {len(due)} of {len(challenges)} challenges", due)
