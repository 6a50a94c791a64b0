"""The verifier's heavy work, as the worker process runs it.

Rule of this file: a provider's fault is a result, never an exception; an exception means that this
machine could not do the work, and nothing may be reported on its account.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from atoll.bits.codec.dither import DitherKey
from atoll.bits.link import Sent, check_link
from atoll.bits.opening import opening_digest, opening_roots
from atoll.bits.pieces import root_of_update
from atoll.bits.sections import UpdateLayout
from atoll.bits.state import GlobalState
from atoll.bits.tensors import Source
from atoll.content.cid import Cid
from atoll.content.errors import MalformedDag
from atoll.content.local import LocalStore
from atoll.content.slices import FileSlices
from atoll.errors import MalformedTrace, MalformedUpdate, TooLarge
from atoll.law.manifest import Manifest
from atoll.law.trace import MAX_TRACE_BYTES, TraceDocument
from atoll.law.words import Digest, SeatIndex
from atoll.merge.round import MergedUpdate, merge_updates, named_inputs
from atoll.train.probe import configure_native
from atoll.train.replay import ReplayTask, opened, replay_segment, served
from atoll.train.round import read_global_state, state_source
from atoll_verifier.duties.merge import DoMerge, RoundMerged
from atoll_verifier.duties.replay import SegmentReplayed, disproved
from atoll_verifier.duties.score import DoScore, RevealedUpdate, RoundScored
from atoll_verifier.limits import UNFETCHABLE_CONTENT, max_update_bytes, states_needed
from atoll_verifier.seatwork import SeatWork


def check_seat(work: SeatWork, store_dir: str) -> str:
    """The cheap checks: canonical bytes, sizes, the trace against its commitment and the chain.

    Returns:
        what is wrong; empty where nothing is.
    """
    configure_native()
    manifest, store = Manifest.from_bytes(work.manifest), LocalStore(store_dir)
    try:
        if work.reveal.steps == manifest.inner.steps:  # a diverged seat's update is never used
            _check_update(work, manifest, store)
        document = _document(work, store)
        document.check(work.reveal, manifest, work.slot, SeatIndex(work.seat))
        document.check_opening(*_opening(work, manifest, store))
        document.check_batches(manifest, work.data_seed)
    except (MalformedUpdate, MalformedTrace, MalformedDag, TooLarge) as error:
        return str(error)
    return ""


def replay(work: SeatWork, segment: int, store_dir: str, sketch_key: int) -> SegmentReplayed:
    """Trains one segment again, from the state that everybody opens with or the provider serves."""
    configure_native()
    manifest, store = Manifest.from_bytes(work.manifest), LocalStore(store_dir)
    document, round = _document(work, store), work.slot.round
    task = ReplayTask(
        manifest=manifest,
        slot=work.slot,
        seat=SeatIndex(work.seat),
        data_seed=work.data_seed,
        opening_digest=opening_digest(document, segment, *_opening(work, manifest, store)),
        sketch_key=sketch_key,
        model=_model(work, manifest, store) if manifest.codec.is_delayed else None,
    )
    needed = states_needed(manifest, round, segment)
    try:
        blobs = [_state_blob(document.states[index], manifest, store) for index in needed]
        if segment in needed:
            opening = served(task, blobs.pop(0))
        else:
            opening = opened(
                task, lambda: read_global_state(manifest, work.opening, store, outer=False)
            )
        done = replay_segment(task, opening, document.leaves[segment], store, *blobs)
    except MalformedTrace as error:
        return disproved(work, str(error))
    return SegmentReplayed(
        account=work.account,
        differs=", ".join(done.differs),
        computed=done.state_digest,
        work_word=done.work_word,
        steps=done.steps,
        seconds=done.seconds,
        excess=done.excess,
        residual=done.residual,
    )


def link(work: SeatWork, store_dir: str) -> str:
    """Empty where update and carried optimiser follow from the last state, else what is wrong."""
    configure_native()
    manifest, store = Manifest.from_bytes(work.manifest), LocalStore(store_dir)
    document = _document(work, store)
    model = _model(work, manifest, store)
    update = store.read_bytes(Cid.from_bytes(work.reveal.update_cid), max_update_bytes(manifest))
    try:
        blob = _state_blob(document.states[-1], manifest, store)
        same = check_link(
            manifest,
            model,
            document.leaves[-1],
            blob,
            Sent(update, work.reveal.optimiser_root, DitherKey(work.data_seed, work.seat)),
        )
    except MalformedTrace as error:
        return str(error)
    return "" if same else "update or carried optimiser do not follow from the last state"


def score(command: DoScore, store_dir: str) -> RoundScored:
    """Seats that are audited in full, as far as the updates at hand tell."""
    configure_native()
    manifest, store = Manifest.from_bytes(command.manifest), LocalStore(store_dir)
    state = read_global_state(manifest, command.opening, store, outer=False, moments=False)
    updates = _updates(command.updates, manifest, store)
    inputs = named_inputs(
        state, updates, facts=command.facts, data_seed=command.data_seed, manifest=manifest
    )
    return RoundScored(inputs.in_full)


def merge_round(command: DoMerge, store_dir: str) -> RoundMerged:
    """Merges what the evidence prescribes and stores the next global state."""
    configure_native()
    manifest, store = Manifest.from_bytes(command.manifest), LocalStore(store_dir)
    merged = _merged_update(command, manifest, store).moves(
        read_global_state(manifest, command.opening, store), manifest
    )
    cid = store.add_pieces(merged.pieces())
    return RoundMerged(cid.to_bytes(), merged.digest())


def _merged_update(command: DoMerge, manifest: Manifest, store: LocalStore) -> MergedUpdate:
    return merge_updates(
        read_global_state(manifest, command.opening, store, outer=False, moments=False),
        _updates(command.updates, manifest, store),
        facts=command.facts,
        data_seed=command.data_seed,
        manifest=manifest,
    )


def _check_update(work: SeatWork, manifest: Manifest, store: LocalStore) -> None:
    limit = max_update_bytes(manifest)
    update = FileSlices(store, Cid.from_bytes(work.reveal.update_cid), limit)
    if root_of_update(update) != work.reveal.update_root:
        raise MalformedUpdate("the bytes served do not have the revealed root")
    model, dither = _model(work, manifest, store), DitherKey(work.data_seed, work.seat)
    UpdateLayout.of(manifest, model.shapes, model.round).open(update, model, dither)


def _opening(work: SeatWork, manifest: Manifest, store: LocalStore) -> tuple[Digest, Digest]:
    """Params and optimiser root that the seat must have opened with."""
    return opening_roots(
        manifest,
        work.params_root,
        work.optimiser_root,
        lambda: _model(work, manifest, store),
    )


def _model(work: SeatWork, manifest: Manifest, store: LocalStore) -> GlobalState:
    """What the round starts from, without what only a merge or an opening reads."""
    return read_global_state(manifest, work.opening, store, outer=False, moments=False)


def _document(work: SeatWork, store: LocalStore) -> TraceDocument:
    data = store.read_bytes(Cid.from_bytes(work.reveal.trace_cid), MAX_TRACE_BYTES)
    return TraceDocument.from_bytes(data)


def _state_blob(cid: bytes, manifest: Manifest, store: LocalStore) -> Source:
    """A provider's state. Raises MalformedTrace, now or when it is read, where it cannot be one."""
    try:
        source = state_source(cid, manifest, store)
    except (TooLarge, MalformedDag) as error:
        raise _no_state(error) from error
    return Source(source.length, _blamed(source.parts))


def _blamed(parts: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    try:
        yield from parts
    except (TooLarge, MalformedDag) as error:
        raise _no_state(error) from error


def _no_state(error: Exception) -> MalformedTrace:
    return MalformedTrace(f"a state cannot be one of this model: {error}")


def _updates(
    revealed: Sequence[RevealedUpdate], manifest: Manifest, store: LocalStore
) -> dict[int, FileSlices]:
    """The updates that are what was revealed; who revealed something else has none.

    They are read where they lie: all of a round at once are more than a machine may have.
    """
    limit, updates = max_update_bytes(manifest), {}
    for one in revealed:
        try:
            data = FileSlices(store, Cid.from_bytes(one.cid), limit)
            if root_of_update(data) == one.root:
                updates[one.seat] = data
        except UNFETCHABLE_CONTENT:
            continue
    return updates
