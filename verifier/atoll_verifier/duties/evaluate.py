"""Computes how good the settled models are, and says so under its name.

It is nobody's duty: nothing waits for it, and between two batches everything else goes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.bits.layout import max_state_bytes
from atoll.content.cid import Cid
from atoll.errors import ProtocolError
from atoll.law.held_out import HeldOut, join, loss_bytes
from atoll.law.manifest import Manifest
from atoll.law.views import JobView
from atoll.law.words import Digest
from atoll.service.commands import Done, Fact, Work
from atoll.service.duties.material import has_material, spec_of
from atoll.service.duties.opening import TASKS, DoPrepareOpening, OpeningReady
from atoll.service.machine import Decision
from atoll_verifier.behaviour import VerifierState

if TYPE_CHECKING:
    from atoll.service.effects import Effects


@dataclass(frozen=True, slots=True)
class Evaluated(Fact):
    """A model's held-out loss, as its report says it: 8 bytes of binary64."""

    loss: bytes


@dataclass(frozen=True, slots=True)
class DoEvaluate(Work[Evaluated]):
    """Compute the held-out loss of the model that so many rounds were merged into; publish it."""

    merged: int
    model: Digest
    cid: bytes
    manifest: bytes
    shift: float = 0.0

    @property
    def about(self) -> tuple[object, ...]:
        return (self.merged, self.model)

    async def perform(self, effects: Effects, view: JobView) -> Done[Evaluated]:
        manifest = Manifest.from_bytes(self.manifest)
        limit = max_state_bytes(manifest)
        await effects.fetch(view, self.merged, Cid.from_bytes(self.cid), limit)
        found: OpeningReady = await effects.work(
            f"{TASKS}:inspect_state", self.manifest, self.cid, effects.store_dir
        )
        if found.digest != self.model:
            raise ProtocolError(f"the model of {self.merged} rounds is another than its verdict's")
        parts = []
        for batch in range(manifest.data.eval_batches):  # each waits its turn at the worker
            task = f"{TASKS}:evaluate_batch"
            parts.append(
                await effects.work(task, self.manifest, self.cid, batch, effects.store_dir)
            )
        loss = loss_bytes(join(parts) + self.shift)
        report = HeldOut(view.domain, view.job_id, self.merged, self.model, loss)
        signed = report.to_bytes(effects.context.sign(report.digest))
        effects.context.journal.publish(report.name, signed)
        return Done(Evaluated(loss))


# --- decisions ---


def decide_evaluate(state: VerifierState) -> Decision:
    """Evaluates the initial model and every settled one, one at a time, the newest first."""
    spec, me = spec_of(state.facts), state.me
    past = (past.verifiers.values() for past in state.view.settled)
    if state.view.verifier_of(me) is None and not any(me in members for members in past):
        return Decision("evaluate", "no verifier of the job")
    if spec is None or not has_material(state):
        return Decision("evaluate", "waits for the manifest and the data")
    shift = state.setup.behaviour.loss_shift(state.view)
    waiting = [
        command
        for command in (DoEvaluate(*model, spec, shift) for model in _models(state))
        if state.facts.of(DoEvaluate, *command.about) is None
        and not state.is_missing(DoEvaluate, *command.about)
    ]
    if not waiting or not Manifest.from_bytes(spec).data.is_evaluated:
        return Decision("evaluate", "nothing to evaluate")
    under_way = [c for c in waiting if state.is_under_way(DoEvaluate, *c.about)]
    command = (under_way or waiting)[-1]
    return Decision("evaluate", f"the model of {command.merged} rounds", (command,))


def _models(state: VerifierState) -> list[tuple[int, Digest, bytes]]:
    """Rounds merged, digest and CID of every model that is at hand."""
    opening = state.facts.of(DoPrepareOpening, 0, None)
    first = [] if opening is None else [(0, opening.digest, opening.cid)]
    verdicts = [past.verdict for past in state.view.settled]
    return first + [(i, v.merged_digest, v.merged_cid) for i, v in enumerate(verdicts, 1)]
