"""A verifier's held-out loss of the model that a round opens from, which its verdict names.

It is worked out once the round before is settled, while this one trains, by the worker for what
takes long: however many batches the submitter chose, nobody's merge or signature of the round
before waits for them. Who only trains works out none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from atoll.protocol.types import Digest, Phase, RoundIndex, Verdict
from atoll.protocol.views import JobView
from atoll.service.commands import Work
from atoll.service.duties.material import manifest_of, spec_of
from atoll.service.duties.merge import RoundMerged
from atoll.service.duties.round_start import round_start_at
from atoll.service.entries import Done, Entry
from atoll.service.machine import Decision, State
from atoll.service.task import Task

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")
NO_LOSS = bytes(8)
EVALUATE_STATE: Final[Task[[bytes, bytes, str], bytes]] = Task(
    "evaluate-state.v1", "atoll.service.tasks"
)


@dataclass(frozen=True, slots=True)
class LossKnown(Entry):
    """The held-out loss of a round's initial model, as verdicts have it."""

    kind: ClassVar[str] = "evaluated.v1"
    loss: bytes


@dataclass(frozen=True, slots=True)
class DoEvaluate(Work[LossKnown]):
    """Evaluate the model that a round opens from.

    Attributes:
        initial_state: CID of the round's global state, which is in the store, `digest` its digest.
        due: unix seconds of the chain by which the round merges, about.
    """

    kind: ClassVar[str] = "evaluate.v1"
    round: RoundIndex
    digest: Digest
    initial_state: bytes
    manifest: bytes
    due: int

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.digest)

    async def perform(self, effects: Effects, view: JobView) -> Done[LossKnown]:
        call = EVALUATE_STATE(self.manifest, self.initial_state, effects.store_dir)
        return Done(LossKnown(await effects.work(call, due=self.due)))


# --- decisions ---


def decide_evaluation(state: State[S]) -> Decision:
    """Evaluates what the running round, or the next one, opens from."""
    if state.view.phase is Phase.CLOSED:
        return Decision("evaluation", "no further round opens")
    if loss_of(state, state.view.round) is not None:
        return Decision("evaluation", "nothing to evaluate")
    command = evaluating(state, state.view.round)
    if command is None:
        return Decision("evaluation", "waits for the model")
    return Decision("evaluation", f"evaluates what round {command.round} opens from", (command,))


def evaluating(state: State[S], round: RoundIndex) -> DoEvaluate | None:
    """What works out the loss that a round's verdict has; None before its model is here."""
    initial_state, spec = round_start_at(state, round), spec_of(state.entries)
    if initial_state is None or spec is None:
        return None
    terms, running = state.view.require_terms(), state.view.open
    due = state.now + terms.train_seconds + terms.reveal_seconds
    if running is not None:
        due = running.deadline + terms.reveal_seconds * (running.phase is Phase.TRAIN)
    return DoEvaluate(round, initial_state.digest, initial_state.cid, spec, due)


def loss_of(state: State[S], round: RoundIndex) -> bytes | None:
    """The loss that a round's verdict has; None where we have not worked it out."""
    manifest, initial_state = manifest_of(state.entries), round_start_at(state, round)
    if manifest is None or initial_state is None:
        return None
    if not manifest.data.is_evaluated:
        return NO_LOSS
    evaluated = state.entries.of(DoEvaluate, round, initial_state.digest)
    return None if evaluated is None else evaluated.loss


def verdict_of(
    state: State[S], round: RoundIndex, merged: RoundMerged, believed: bytes | None = None
) -> Verdict | None:
    """The verdict that a merge and the loss give; None while we have not worked the loss out.

    Args:
        believed: a loss that is believed until then.
    """
    loss = loss_of(state, round)
    loss = believed if loss is None else loss
    return None if loss is None else replace(merged.verdict, loss=loss)
