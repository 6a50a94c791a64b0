"""A provider's round: H inner steps, their trace, and the update.

Rule of this file: everything is a function of (manifest, slot, seat, data seed,
global model, opening optimiser), so a restarted provider commits to the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from atoll.bits.codec.dither import DitherKey
from atoll.bits.layout import max_state_bytes, moment_layout, seat_layout, trained_shapes
from atoll.bits.link import close_round
from atoll.bits.opening import open_round
from atoll.bits.pieces import root_of_update
from atoll.bits.segment import Course, SegmentRun, run_segment
from atoll.bits.state import GlobalState, SeatState
from atoll.bits.step import state_roots
from atoll.bits.tensors import Source
from atoll.content.cid import DAG_CBOR, Cid
from atoll.content.local import LocalStore
from atoll.errors import ProtocolError
from atoll.law.manifest import Manifest
from atoll.law.trace import LeafKind, StateRoots, TraceDocument
from atoll.law.words import ZERO_DIGEST, Digest, SeatIndex, SegmentIndex, Slot
from atoll.train.course import open_course


@dataclass(frozen=True, slots=True)
class TrainTask:
    """One seat's work in one round. CIDs are binary.

    Attributes:
        global_state_cid: the round's GlobalState.
        opening_optimiser: a SeatState whose optimiser is used on; None where the seat brings none.
        begun: the trace of segments that are trained already, empty for none.
    """

    manifest: Manifest
    slot: Slot
    seat: SeatIndex
    data_seed: Digest
    global_state_cid: bytes
    opening_optimiser: bytes | None
    begun: bytes = b""

    @property
    def dither(self) -> DitherKey:
        """Of the seat's update of this round."""
        return DitherKey(self.data_seed, self.seat)


@dataclass(frozen=True, slots=True)
class RoundProgress:
    """Told after every segment.

    Attributes:
        steps: steps done of the round.
        loss: the segment's mean loss, nats a token.
        trace: the trace document so far, with which a task has `begun`.
    """

    segment: int
    steps: int
    loss: float
    trace: bytes


@dataclass(frozen=True, slots=True)
class TrainedRound:
    """What a provider commits to, reveals and serves.

    Attributes:
        document: the trace; its bytes are in the store under `trace_cid`, its states too.
        carried: the seat state that the next round's optimiser is taken from once this one is
            settled, in the store under `carried_cid`; the last one, with what the codec left out.
        steps: finite steps done; fewer than the manifest's H when it diverged.
        reset: whether the seat brought no optimiser of its own.
        update: the encoded pseudo-gradient, in the store under `update_cid`; empty, as its CID
            is, where the round diverged.
        losses: of the steps run by this call (none of segments that were resumed), nats a token.
        seconds_in_steps: wall time of this call's steps.
    """

    document: TraceDocument
    trace_cid: bytes
    update: bytes
    update_cid: bytes
    carried: StateRoots
    carried_cid: bytes
    steps: int
    reset: bool
    losses: tuple[float, ...]
    seconds_in_steps: float

    @property
    def trace_root(self) -> Digest:
        return self.document.trace_root

    @property
    def update_root(self) -> Digest:
        """Binds the update's bytes, piece by piece, and their number."""
        return root_of_update(self.update)

    @property
    def optimiser_root(self) -> Digest:
        """What the seat's next round opens with once this one is settled."""
        return self.carried.optimiser_root

    @property
    def diverged(self) -> bool:
        return self.document.leaves[-1].kind is LeafKind.DIVERGED


@dataclass(frozen=True, slots=True)
class TrainedAhead:
    """The trace of a round's first segments, whose states are in the store."""

    document: TraceDocument
    seconds_in_steps: float


SegmentRunner = Callable[[SeatState, int, Course], SegmentRun]


def train_round(
    task: TrainTask,
    store: LocalStore,
    progress: Callable[[RoundProgress], None] = lambda _: None,
    run: SegmentRunner = run_segment,
) -> TrainedRound:
    """Trains a seat's round, writing every segment's state, the trace and the update to the store.

    Args:
        task: what to train.
        store: holds the dataset, the global state and the opening optimiser.
        progress: told after every segment.
        run: how a segment is trained.

    Raises:
        NotFound, CorruptBlock: something needed is not in the store.
        MalformedState, MalformedDataset, MalformedTrace: what is there is not of this job.
    """
    manifest = task.manifest
    document = _resumed(task) if task.begun else _opened(task, _model(task, store), store)
    # Popped for each segment, since whoever held it would keep it while the next ones are made.
    states = [read_seat_state(manifest, document.states[-1], store, task.slot.round)]
    model = _model(task, store, moments=False) if manifest.codec.is_delayed else None
    course = open_course(manifest, task.data_seed, task.seat, task.slot.round, store, model=model)
    losses: list[float] = []
    seconds = 0.0
    while not _is_over(document, manifest):
        done = run(states.pop(), len(document.leaves), course)
        states.append(done.state)
        document = _extended(document, done, task, store)
        losses.extend(done.losses)
        seconds += done.seconds
        progress(_progress(document, done))
        del done
    if document.leaves[-1].kind is LeafKind.DIVERGED:
        update, carried = b"", states.pop()  # nothing of it is sent, so nothing was left out
    else:
        model = model or _model(task, store, moments=False)
        update, carried = close_round(manifest, model, states.pop(), task.dither)
    return TrainedRound(
        document=document,
        trace_cid=store.add_block(document.to_bytes(), DAG_CBOR).to_bytes(),
        update=update,
        update_cid=store.add_bytes(update).to_bytes() if update else b"",
        carried=state_roots(carried),
        carried_cid=store.add_pieces(carried.pieces()).to_bytes(),
        steps=_finite_steps(document),
        reset=task.opening_optimiser is None,
        losses=tuple(losses),
        seconds_in_steps=seconds,
    )


def train_ahead(task: TrainTask, store: LocalStore) -> TrainedAhead:
    """Trains the segments that need nothing of the model that the round starts from.

    Args:
        task: what to train; the global state is not read.
        store: holds the dataset and the opening optimiser.

    Raises:
        ValueError: the round opens with parameters of the global model.
        NotFound, CorruptBlock, MalformedState, MalformedDataset: as `train_round`.
    """
    manifest = task.manifest
    course = open_course(manifest, task.data_seed, task.seat, task.slot.round, store)
    document = _opened(task, None, store)
    state = read_seat_state(manifest, document.states[-1], store, task.slot.round)
    seconds = 0.0
    while len(document.leaves) < manifest.segments_ahead and not _is_over(document, manifest):
        done = run_segment(state, len(document.leaves), course)
        state = done.state
        document = _extended(document, done, task, store)
        seconds += done.seconds
    return TrainedAhead(document, seconds)


def read_global_state(
    manifest: Manifest,
    cid: bytes,
    store: LocalStore,
    *,
    outer: bool = True,
    moments: bool = True,
) -> GlobalState:
    """Raises MalformedState unless the blob is a global state of the manifest's job.

    Args:
        outer: false leaves the outer optimiser's slots out, two thirds of the state.
        moments: false leaves the merged moments out.
    """
    source, shapes = state_source(cid, manifest, store), trained_shapes(manifest)
    state = GlobalState.from_bytes(source, shapes, outer=outer, moments=moments)
    state.check_moments(moment_layout(manifest))
    return state


def read_seat_state(manifest: Manifest, cid: bytes, store: LocalStore, round: int = 0) -> SeatState:
    """Raises MalformedState unless the blob is a seat state of the manifest's job."""
    return SeatState.from_bytes(state_source(cid, manifest, store), seat_layout(manifest, round))


def state_source(cid: bytes, manifest: Manifest, store: LocalStore) -> Source:
    """A state's bytes, read as they are parsed.

    Raises:
        TooLarge, MalformedDag: it cannot be one of this job's; the first may be raised as late as
            the first byte is read.
        NotFound, CorruptBlock: its root is missing or damaged.
    """
    file, limit = Cid.from_bytes(cid), max_state_bytes(manifest)
    return Source(store.file_bytes(file), store.iter_bytes(file, limit))


def _model(task: TrainTask, store: LocalStore, *, moments: bool = True) -> GlobalState:
    """What the round starts from, as far as training needs it."""
    cid = task.global_state_cid
    return read_global_state(task.manifest, cid, store, outer=False, moments=moments)


def _opened(task: TrainTask, model: GlobalState | None, store: LocalStore) -> TraceDocument:
    """A trace without leaves: only the opening state."""
    optimiser = None
    if task.opening_optimiser is not None:
        optimiser = read_seat_state(task.manifest, task.opening_optimiser, store)
    state = open_round(task.manifest, task.slot.round, model, optimiser)
    cid = store.add_pieces(state.pieces()).to_bytes()
    return TraceDocument(task.slot, task.seat, (), (cid,), (state_roots(state),))


def _resumed(task: TrainTask) -> TraceDocument:
    document = TraceDocument.from_bytes(task.begun)
    if (document.slot, document.seat) != (task.slot, task.seat):
        raise ProtocolError(
            "the unfinished trace belongs to another slot", next_step="train the round anew"
        )
    return document


def _extended(
    document: TraceDocument, done: SegmentRun, task: TrainTask, store: LocalStore
) -> TraceDocument:
    """The trace with one more leaf; the segment's closing state is stored first."""
    cid = store.add_pieces(done.state.pieces()).to_bytes()
    segment = SegmentIndex(len(document.leaves))
    previous = document.leaves[-1].hash if document.leaves else ZERO_DIGEST
    leaf = done.leaf(task.slot, task.seat, segment, previous)
    return replace(
        document,
        leaves=(*document.leaves, leaf),
        states=(*document.states, cid),
        state_roots=(*document.state_roots, done.roots),
    )


def _is_over(document: TraceDocument, manifest: Manifest) -> bool:
    leaves = document.leaves
    diverged = bool(leaves) and leaves[-1].kind is LeafKind.DIVERGED
    return diverged or len(leaves) == manifest.segments


def _progress(document: TraceDocument, done: SegmentRun) -> RoundProgress:
    loss = math.fsum(done.losses) / len(done.losses)
    return RoundProgress(
        len(document.leaves) - 1, _finite_steps(document), loss, document.to_bytes()
    )


def _finite_steps(document: TraceDocument) -> int:
    last = document.leaves[-1]
    return last.last_step + (last.kind is LeafKind.OK)
