"""Trains the running round, once; its first segments, where rounds overlap, ahead of the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.bits.layout import max_state_bytes
from atoll.content.cid import Cid
from atoll.law.manifest import Manifest
from atoll.law.trace import MAX_TRACE_BYTES, TraceDocument
from atoll.law.views import JobView
from atoll.law.words import ZERO_DIGEST, Digest, Phase, Reveal, SeatIndex, Slot
from atoll.service.commands import Done, Fact, Work
from atoll.service.duties.material import has_material, manifest_of, spec_of
from atoll.service.duties.opening import opening_of, parent_of
from atoll.service.machine import Decision
from atoll_node.behaviour import ProviderState

if TYPE_CHECKING:
    from atoll.service.effects import Effects


@dataclass(frozen=True, slots=True)
class SegmentsTrained(Fact):
    """The first segments of a round, trained while the state that it starts from was on its way.

    Attributes:
        trace: the trace document so far.
        seconds: wall time in training steps.
    """

    trace: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class Trained(Fact):
    """A trained round: what will be committed and revealed, salt included.

    Attributes:
        carried_state: CID of the SeatState whose optimiser opens the seat's next round.
        loss: mean of the last step trained, nats a token; 0.0 where no step was run.
        seconds: wall time in training steps.
    """

    round: int
    reveal: Reveal
    carried_state: bytes
    loss: float
    seconds: float


@dataclass(frozen=True, slots=True)
class DoTrain(Work[Trained]):
    """Train one round in the worker.

    Attributes:
        slot: carries the attempt that trains.
        opening: CID of the round's global state, `opening_digest` its digest.
        optimiser: CID of the seat state whose moments are used; None where we bring none.
        function: the worker function that trains.
        extra: CIDs to have in the store beforehand.
        begun: the segments that were trained ahead.
    """

    slot: Slot
    seat: int
    data_seed: Digest
    manifest: bytes
    opening: bytes
    opening_digest: Digest
    optimiser: bytes | None
    function: str
    extra: tuple[bytes, ...]
    begun: SegmentsTrained | None = None

    @property
    def about(self) -> tuple[object, ...]:
        """Everything that decides what is trained: a reorg that changes any of it trains anew."""
        return _about(self.slot, self.seat, self.data_seed, self.opening_digest)

    async def perform(self, effects: Effects, view: JobView) -> Done[Trained]:
        context, round_ = effects.context, self.slot.round
        with context.store.holding():  # what the worker leaves is not pinned yet
            limit = max_state_bytes(Manifest.from_bytes(self.manifest))
            for cid in self.extra:
                await effects.fetch(view, round_, Cid.from_bytes(cid), limit)
            trained: Trained = await effects.work(
                "atoll_node.tasks:run_training", self, effects.store_dir
            )
            trace_cid, update_cid = trained.reveal.trace_cid, trained.reveal.update_cid
            trace = context.store.read_bytes(Cid.from_bytes(trace_cid), MAX_TRACE_BYTES)
            states = TraceDocument.from_bytes(trace).states
            served = (trace_cid, update_cid, *states, trained.carried_state)
            await effects.keep(view, round_, *filter(None, served))  # who diverged has no update
        context.journal.measure(view.job_id, round_, "train_seconds", trained.seconds)
        context.journal.measure(view.job_id, round_, "trained_steps", trained.reveal.steps)
        return Done(trained)


@dataclass(frozen=True, slots=True)
class DoTrainAhead(Work[SegmentsTrained]):
    """Train the segments of a round that need nothing of the global state it starts from."""

    training: DoTrain

    @property
    def about(self) -> tuple[object, ...]:
        return self.training.about

    async def perform(self, effects: Effects, view: JobView) -> Done[SegmentsTrained]:
        context, round_ = effects.context, self.training.slot.round
        with context.store.holding():
            ahead: SegmentsTrained = await effects.work(
                "atoll_node.tasks:run_ahead", self.training, effects.store_dir
            )
            await effects.keep(view, round_, *TraceDocument.from_bytes(ahead.trace).states)
        context.journal.measure(view.job_id, round_, "train_seconds", ahead.seconds)
        return Done(ahead)


# --- decisions ---


def decide_train(state: ProviderState, seat: SeatIndex | None) -> Decision:
    """Trains the running round, once."""
    view = state.view
    if seat is None or view.state.phase is not Phase.TRAIN:
        return Decision("train", f"no seat in TRAIN ({view.state.phase.name})")
    opening, spec = opening_of(state), spec_of(state.facts)
    if spec is None or opening is None:
        return Decision("train", "waits for the round's global state")
    if trained_by(state, seat) is not None or view.state.committed >> seat & 1:
        return Decision("train", f"round {view.state.round} is trained")
    if state.now >= view.state.deadline:
        return Decision("train", "the window to commit is over")
    command = _training(state, seat, spec, (opening.cid, opening.digest))
    if state.is_under_way(DoTrainAhead, *command.about):
        return Decision("train", f"trains round {view.state.round}, its first segments ahead")
    return Decision("train", f"trains round {view.state.round}", (command,))


def decide_ahead(state: ProviderState, seat: SeatIndex | None) -> Decision:
    """Trains what of the running round needs no merged model, while that is on its way."""
    view, parent = state.view, parent_of(state.view)
    spec, manifest = spec_of(state.facts), manifest_of(state.facts)
    if seat is None or view.state.phase is not Phase.TRAIN or parent is None:
        return Decision("ahead", f"no merged model to wait for ({view.state.phase.name})")
    if spec is None or manifest is None or not has_material(state):
        return Decision("ahead", "waits for the manifest and the data")
    training = _training(state, seat, spec, parent)
    command, resets = DoTrainAhead(training), training.optimiser is None
    if resets or not (manifest.segments_ahead and state.setup.behaviour.trains_ahead):
        return Decision("ahead", "the first segment needs the merged model")
    # What is under way is finished: training anew from the opening would take longer.
    if opening_of(state) is not None and command.key not in state.in_flight:
        return Decision("ahead", "the merged model is here")
    if training.begun or view.state.committed >> seat & 1 or state.now >= view.state.deadline:
        return Decision("ahead", "trained what comes before the merged model, or too late")
    return Decision("ahead", f"begins round {view.state.round}", (command,))


def trained_by(state: ProviderState, seat: SeatIndex) -> Trained | None:
    """What training of the running round left, once it is done."""
    opening = opening_of(state)
    if opening is None:
        return None
    view = state.view
    about = _about(view.train_slot, seat, view.state.data_seed, opening.digest)
    return state.facts.of(DoTrain, *about)


def moments_round(state: ProviderState) -> int | None:
    """The round whose carried state the next one opens with."""
    seat = state.view.seat_of(state.me)
    accepted = None if seat is None else _accepted(state, seat)
    return None if accepted is None else accepted.round


def _about(slot: Slot, seat: int, data_seed: Digest, opening: Digest) -> tuple[object, ...]:
    return (slot, seat, data_seed, opening)


def _training(
    state: ProviderState, seat: SeatIndex, spec: bytes, opening: tuple[bytes, Digest]
) -> DoTrain:
    """The running round's training; `opening` is CID and digest of the state it starts from."""
    view, behaviour = state.view, state.setup.behaviour
    slot, data_seed, (cid, digest) = view.train_slot, view.state.data_seed, opening
    return DoTrain(
        slot=slot,
        seat=seat,
        data_seed=data_seed,
        manifest=spec,
        opening=cid,
        opening_digest=digest,
        optimiser=_own_optimiser(state, seat, Manifest.from_bytes(spec)),
        function=behaviour.train_function,
        extra=behaviour.train_extra(view),
        begun=state.facts.of(DoTrainAhead, *_about(slot, seat, data_seed, digest)),
    )


def _own_optimiser(state: ProviderState, seat: SeatIndex, manifest: Manifest) -> bytes | None:
    """The seat state that the chain last accepted from us; None where we bring none.

    Where rounds open with our own parameters, those of a round that was not the last are stale.
    """
    accepted = _accepted(state, seat)
    if accepted is None or manifest.opens_publicly(state.view.train_slot.round):
        return None
    if manifest.codec.carries_params:
        whole = accepted.reveal.steps == manifest.inner.steps
        if not whole or accepted.round != state.view.train_slot.round - 1:
            return None
    return accepted.carried_state


def _accepted(state: ProviderState, seat: SeatIndex) -> Trained | None:
    """Our last training whose moments the chain accepted."""
    root = state.view.last_optimiser_root(seat)
    mine = [t for t in state.facts.all_of(Trained) if t.reveal.optimiser_root == root]
    return mine[-1] if mine and root != ZERO_DIGEST else None
