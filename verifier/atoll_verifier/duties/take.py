"""Takes the blocks that answer challenges from the chain; whoever asked can go on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from atoll.content.cid import RAW, Cid
from atoll.law.views import JobView
from atoll.law.words import Digest
from atoll.service.commands import Done, Fact, Work
from atoll.service.machine import Decision

if TYPE_CHECKING:
    from atoll.service.effects import Effects
    from atoll_verifier.audit import Audit


@dataclass(frozen=True, slots=True)
class BlockTaken(Fact):
    """A challenged block was taken from the chain; `was_here` if nobody needed that."""

    unblocks: ClassVar[bool] = True
    was_here: bool


@dataclass(frozen=True, slots=True)
class DoTake(Work[BlockTaken]):
    """Store a block that answers a challenge."""

    digest: Digest
    block: bytes

    @property
    def about(self) -> tuple[object, ...]:
        return (self.digest,)

    async def perform(self, effects: Effects, view: JobView) -> Done[BlockTaken]:
        # The contract has checked the digest; what kind of node it is, the CID that asks says.
        cid, store = Cid(RAW, self.digest), effects.context.store
        was_here = store.has(cid)
        await asyncio.to_thread(store.put_block, cid, self.block)
        return Done(BlockTaken(was_here))


# --- decisions ---


def decide_take(audit: Audit) -> Decision:
    """Takes what was answered, once."""
    takes = [
        DoTake(record.report.evidence, record.answer)
        for record in audit.view.attempt_reports
        if record.is_answered and audit.state.facts.of(DoTake, record.report.evidence) is None
    ]
    return Decision("take", f"{len(takes)} answers to take", tuple(takes))
