"""The verifier's heavy work, as the worker process runs it.

Rule of this file: a provider's fault is a result, never an exception; an exception means that this
machine could not do the work, and nothing may be reported on its account.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from atoll.aggregate.codec import decode_flat
from atoll.aggregate.layout import Layout
from atoll.aggregate.merge import merge, outliers_to_replay
from atoll.errors import MalformedTrace, MalformedUpdate, TooLarge
from atoll.protocol.manifest import Manifest
from atoll.protocol.trace import MAX_TRACE_BYTES, TraceDocument
from atoll.protocol.types import ZERO_DIGEST, Digest, Reveal, SeatIndex, Slot
from atoll.store.cid import Cid
from atoll.store.local import LocalStore
from atoll.train.layout import max_state_bytes, param_count
from atoll.train.probe import configure_native
from atoll.train.replay import ReplayTask, check_link, opening_digest, replay_segment
from atoll.train.round import read_global_state
from atoll.train.state import GlobalState

HEADER_BYTES = 1 << 20
"""More than any update's header; the body is one byte a parameter."""


@dataclass(frozen=True, slots=True)
class SeatTask:
    """Everything that a seat's work in a round follows from.

    Attributes:
        slot: carries the attempt that trained.
        opening: CID of the round's global state.
        params_root: of the round's global state.
        optimiser_root: what the seat must have opened with: the chain's word, zero after a reset.
    """

    manifest: bytes
    slot: Slot
    seat: SeatIndex
    reveal: Reveal
    data_seed: Digest
    opening: bytes
    params_root: Digest
    optimiser_root: Digest


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """`fault` is empty where the update and the trace are well-formed."""

    fault: str
    states: tuple[bytes, ...] = ()
    """CIDs of the states between the segments; one more than there are segments."""


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """`differs` is empty where every digest matched; `computed` is the replay's state digest."""

    differs: str
    computed: Digest
    step_root: Digest
    steps: int
    seconds: float


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What a merge follows from: all of it is on chain or named by it.

    Attributes:
        opening: CID of the round's global state.
        accepted: (seat, update CID) of every accepted seat that finished its round.
        available: the same of every well-formed update of the round, accepted or not: outliers are
            scored over these.
        caught: how many seats were removed for wrong replay, wrong link or malformed bytes.
    """

    manifest: bytes
    opening: bytes
    accepted: tuple[tuple[int, bytes], ...]
    available: tuple[tuple[int, bytes], ...]
    caught: int


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    cid: bytes
    digest: Digest
    params_root: Digest


def max_update_bytes(manifest: Manifest) -> int:
    """No canonical update of this model is larger."""
    return param_count(manifest.model) + HEADER_BYTES


def check_seat(task: SeatTask, store_dir: str) -> CheckOutcome:
    """The cheap checks: canonical bytes, sizes, the trace against its commitment and the chain."""
    configure_native()
    manifest, store = Manifest.from_bytes(task.manifest), LocalStore(store_dir)
    try:
        if task.reveal.steps == manifest.inner.steps:  # a diverged seat's update is never used
            _check_update(task, manifest, store)
        data = store.read_bytes(Cid.from_bytes(task.reveal.trace_cid), MAX_TRACE_BYTES)
        document = TraceDocument.from_bytes(data)
        document.check(task.reveal, manifest, task.slot, task.seat)
        document.check_opening(task.params_root, task.optimiser_root)
        document.check_batches(manifest, task.data_seed)
    except (MalformedUpdate, MalformedTrace, TooLarge) as error:
        return CheckOutcome(str(error))
    return CheckOutcome("", document.states)


def replay(task: SeatTask, segment: int, store_dir: str) -> ReplayOutcome:
    """Trains one segment again from the state the provider serves."""
    configure_native()
    manifest, store = Manifest.from_bytes(task.manifest), LocalStore(store_dir)
    document = _document(task, store)
    work = ReplayTask(
        manifest=manifest,
        slot=task.slot,
        seat=task.seat,
        data_seed=task.data_seed,
        global_step0=task.slot.round * manifest.inner.steps,
        opening_digest=opening_digest(document, segment, task.params_root, task.optimiser_root),
    )
    try:
        blob = _state_blob(document.states[segment], manifest, store)
        done = replay_segment(work, blob, document.leaves[segment], store)
    except MalformedTrace as error:
        return ReplayOutcome(str(error), ZERO_DIGEST, ZERO_DIGEST, 0, 0.0)
    return ReplayOutcome(
        ", ".join(done.differs), done.state_digest, done.step_root, done.steps, done.seconds
    )


def link(task: SeatTask, store_dir: str) -> str:
    """Empty where the update is the codec's bytes of global − last state, else what is wrong."""
    configure_native()
    manifest, store = Manifest.from_bytes(task.manifest), LocalStore(store_dir)
    document = _document(task, store)
    model = read_global_state(manifest, task.opening, store)
    update = store.read_bytes(Cid.from_bytes(task.reveal.update_cid), max_update_bytes(manifest))
    try:
        blob = _state_blob(document.states[-1], manifest, store)
        same = check_link(manifest, model, document.leaves[-1], blob, update)
    except MalformedTrace as error:
        return str(error)
    return "" if same else "the update is not the codec's of global − last state"


def score(task: MergeTask, store_dir: str) -> tuple[int, ...]:
    """Seats that stand out so far that they are replayed in full."""
    configure_native()
    manifest, store = Manifest.from_bytes(task.manifest), LocalStore(store_dir)
    state = read_global_state(manifest, task.opening, store)
    return _flagged(task, state, manifest, store)


def merge_round(task: MergeTask, store_dir: str) -> MergeOutcome:
    """Merges the accepted updates and stores the next global state."""
    configure_native()
    manifest, store = Manifest.from_bytes(task.manifest), LocalStore(store_dir)
    state = read_global_state(manifest, task.opening, store)
    merged = merge(
        state,
        _updates(task.accepted, manifest, store),
        caught=task.caught,
        manifest=manifest,
        replayed_in_full=_flagged(task, state, manifest, store),
    ).global_state
    cid = store.add_bytes(merged.to_bytes())
    return MergeOutcome(cid.to_bytes(), merged.digest(), merged.params_root())


def _flagged(
    task: MergeTask, state: GlobalState, manifest: Manifest, store: LocalStore
) -> tuple[int, ...]:
    """Outliers over the well-formed updates: which those are follows from the bytes alone."""
    layout = Layout.of_tensors(state.params)
    sound: dict[int, bytes] = {}
    for seat, update in _updates(task.available, manifest, store).items():
        try:
            decode_flat(update, layout, state.exponents)
        except MalformedUpdate:
            continue
        sound[seat] = update
    return outliers_to_replay(state, sound, manifest).flagged if sound else ()


def _check_update(task: SeatTask, manifest: Manifest, store: LocalStore) -> None:
    limit = max_update_bytes(manifest)
    update = store.read_bytes(Cid.from_bytes(task.reveal.update_cid), limit)
    if sha256(update).digest() != task.reveal.update_digest:
        raise MalformedUpdate("the bytes served do not hash to the revealed digest")
    state = read_global_state(manifest, task.opening, store)
    decode_flat(update, Layout.of_tensors(state.params), state.exponents)


def _document(task: SeatTask, store: LocalStore) -> TraceDocument:
    data = store.read_bytes(Cid.from_bytes(task.reveal.trace_cid), MAX_TRACE_BYTES)
    return TraceDocument.from_bytes(data)


def _state_blob(cid: bytes, manifest: Manifest, store: LocalStore) -> bytes:
    try:
        return store.read_bytes(Cid.from_bytes(cid), max_state_bytes(manifest.model))
    except TooLarge as error:
        raise MalformedTrace(f"a state is larger than the model's: {error}") from error


def _updates(
    named: tuple[tuple[int, bytes], ...], manifest: Manifest, store: LocalStore
) -> dict[int, bytes]:
    limit = max_update_bytes(manifest)
    return {seat: store.read_bytes(Cid.from_bytes(cid), limit) for seat, cid in named}
