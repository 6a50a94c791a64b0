"""What both roles run in the worker process. Only here and in the roles' own `tasks` is torch met.

Rule of this file: arguments and results are plain values and binary CIDs; data goes through the
store, which the worker opens by its folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from torch import Tensor

from atoll.aggregation.distances import distances
from atoll.aggregation.merge_round import Grams, MergedUpdate, merge_updates
from atoll.aggregation.stated_merge import MergedLayout
from atoll.errors import MalformedUpdate, StorageError
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.pieces import ByteSlices, root_of_update
from atoll.numerics.rollouts import read_ids
from atoll.numerics.sections import UpdateLayout
from atoll.numerics.shown_pieces import KnownPieces, pieces_in
from atoll.numerics.state import GlobalState
from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.protocol.losses import loss_bytes
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import ZERO_DIGEST, Digest, SeatIndex, Verdict, to_bitmap
from atoll.service.devices import DEVICES_HERE
from atoll.service.duties.apply_merge import (
    APPLY_MERGED,
    OPEN_STATEMENT,
    DoApply,
    OpenedStatement,
    ShownSpots,
    batches_of,
)
from atoll.service.duties.evaluation import EVALUATE_STATE
from atoll.service.duties.material import CHECK_DATA, CHECK_MACHINE, FIND_PROGRAM, MEASURE_PACE
from atoll.service.duties.merge import (
    MEASURE_DISTANCES,
    MERGE_AGAIN,
    MERGE_ROUND,
    DoMerge,
    MeasuredMerge,
    statement_cid,
)
from atoll.service.duties.replay_seat import REPLAY, DoReplay, EarlierSaid
from atoll.service.duties.round_start import INSPECT_STATE, MAKE_INITIAL_STATE, RoundStartReady
from atoll.service.duties.sampled import (
    HELD_OUT_REWARD,
    MEASURE_SAMPLED,
    HeldOut,
    Sampled,
    SampledBySeat,
)
from atoll.service.duties.strike import FIND_STRIKE, DoFindStrike, FoundStrike
from atoll.service.duties.updates import IS_CANONICAL, DoGetUpdate, RevealedUpdates
from atoll.service.pace import Pace
from atoll.service.update_limits import UNFETCHABLE_CONTENT, max_update_bytes
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.storage.slices import FileSlices
from atoll.train import evaluate
from atoll.train.course import open_held_out_tokens, open_training_tokens
from atoll.train.devices_here import devices_here
from atoll.train.earlier import EarlierRound
from atoll.train.held_out_reward import held_out_reward
from atoll.train.initial_model import open_initial_state
from atoll.train.manifest_program import program_root
from atoll.train.measure_pace import measure
from atoll.train.open_base import check_base
from atoll.train.probe import check_environment, pin_torch
from atoll.train.replay import RevealedRound, SeatReplay, replay_seat
from atoll.train.rollout_figures import figures_of
from atoll.train.seat_task import TrainTask
from atoll.train.stored_merges import StoredMerge, store_statement
from atoll.train.stored_states import read_global_state
from atoll.train.strike_search import StrikeSearch
from atoll.train.tokenizer import open_tokenizer


@DEVICES_HERE.runs
def devices_of_this_process() -> tuple[str, ...]:
    """Raises ConfigError where one that is named is not there."""
    return devices_here()


@CHECK_MACHINE.runs
def check_machine(manifest: bytes) -> None:
    """Raises NumericsMismatch or ManifestError unless this machine comes to the manifest's bits."""
    pin_torch()
    check_environment(Manifest.from_bytes(manifest))


@MEASURE_PACE.runs
def measure_pace(manifest: bytes) -> Pace:
    """How fast this machine trains the job's model."""
    pin_torch()
    return Pace(**measure(Manifest.from_bytes(manifest)))


@FIND_PROGRAM.runs
def find_program(manifest: bytes, store_dir: str) -> tuple[Digest, Digest]:
    """The root that a manifest's terms have to name, and the digest of round 0's model.

    Raises as `program_root`.
    """
    return program_root(manifest, store_dir)


@CHECK_DATA.runs
def check_data(manifest: bytes, store_dir: str) -> None:
    """Reads the whole data, a MiB at a time, and the initial weights once, every block checked.

    Raises:
        MalformedDataset, MalformedState: they are not what the manifest says.
        NotFound, CorruptBlock: a block is missing or damaged.
    """
    job, store = Manifest.from_bytes(manifest), LocalStore(store_dir)
    open_training_tokens(job, store).check()
    if job.data.eval_cid is not None:
        open_held_out_tokens(job, store).check()
    open_tokenizer(store, job.data.tokenizer_cid)
    if job.init.cid is not None:
        open_initial_state(job, store)
        check_base(job, store)


@MAKE_INITIAL_STATE.runs
def make_initial_state(manifest: bytes, store_dir: str) -> RoundStartReady:
    """Writes round 0's global state, which follows from the manifest and what it names."""
    pin_torch()
    store = LocalStore(store_dir)
    state = open_initial_state(Manifest.from_bytes(manifest), store)
    return RoundStartReady(store.add_pieces(state.pieces()).to_bytes(), state.digest())


@INSPECT_STATE.runs
def inspect_state(manifest: bytes, cid: bytes, store_dir: str) -> RoundStartReady:
    """The digest of a global state in the store. Raises MalformedState where it is none."""
    pin_torch()
    state = read_global_state(Manifest.from_bytes(manifest), cid, LocalStore(store_dir))
    return RoundStartReady(cid, state.digest())


@EVALUATE_STATE.runs
def evaluate_state(manifest: bytes, cid: bytes, store_dir: str) -> bytes:
    """The held-out loss of a global state in the store, as verdicts have it."""
    pin_torch()
    job, store = Manifest.from_bytes(manifest), LocalStore(store_dir)
    state = read_global_state(job, cid, store, outer=False, moments=False)
    return loss_bytes(evaluate.evaluate(state.params, job, store))


@IS_CANONICAL.runs
def is_canonical(command: DoGetUpdate, store_dir: str) -> bool:
    """Whether the fetched bytes are those that the root binds, and an update of this job."""
    pin_torch()
    manifest, store = Manifest.from_bytes(command.manifest), LocalStore(store_dir)
    revealed = command.update
    try:
        update = FileSlices(store, Cid.from_bytes(revealed.cid), max_update_bytes(manifest))
    except UNFETCHABLE_CONTENT:
        return False
    if root_of_update(update) != revealed.root:
        return False
    model = read_global_state(manifest, command.initial_state, store, outer=False, moments=False)
    dither = DitherKey(command.data_seed, revealed.seat)
    try:
        UpdateLayout.of(manifest, model.shapes, model.round).open(update, model, dither)
    except MalformedUpdate:
        return False
    return True


@MERGE_ROUND.runs
def merge_round(command: DoMerge, store_dir: str) -> Verdict:
    """Merges, stores the next global state, and evaluates the one before."""
    return merged_verdict(command, store_dir, is_evaluated=True)


@MERGE_AGAIN.runs
def merge_again(command: DoMerge, store_dir: str) -> Verdict:
    """As `merge_round`, and evaluates nothing: its loss is eight zero bytes."""
    return merged_verdict(command, store_dir)


@MEASURE_DISTANCES.runs
def measure_distances(command: DoMerge, store_dir: str) -> MeasuredMerge:
    """Merges, leaves the model as it is, and says how far each update lies from the merge."""
    pin_torch()
    manifest, store = Manifest.from_bytes(command.manifest), LocalStore(store_dir)
    model = read_global_state(manifest, command.initial_state, store, outer=False, moments=False)
    updates = _updates(command.updates, manifest, store)
    merge = merge_updates(
        model, updates, record=command.record, data_seed=command.data_seed, manifest=manifest
    )
    layout = UpdateLayout.of(manifest, model.shapes, model.round)
    opened = {
        seat: layout.open(updates[seat], model, DitherKey(command.data_seed, SeatIndex(seat)))
        for seat in merge.weights
    }
    measured = distances(opened, merge, exponents=model.exponents, codec=manifest.codec)
    return MeasuredMerge(to_bitmap(merge.inputs.excluded), len(merge.inputs.merged), measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lie:
    """What a liar goes on with in place of what follows: all that comes behind follows from it."""

    grams: Callable[[Grams], Grams] = lambda grams: grams
    merge: Callable[[MergedUpdate], MergedUpdate] = lambda merge: merge
    state: Callable[[GlobalState], GlobalState] = lambda state: state


NO_LIE: Final = Lie()


def merged_verdict(
    command: DoMerge, store_dir: str, *, is_evaluated: bool = False, lie: Lie = NO_LIE
) -> Verdict:
    """What follows from a round, and its files in the store."""
    pin_torch()
    manifest, store = Manifest.from_bytes(command.manifest), LocalStore(store_dir)
    model = read_global_state(manifest, command.initial_state, store, outer=False, moments=False)
    loss = bytes(8)
    if is_evaluated and manifest.data.is_evaluated:
        loss = loss_bytes(evaluate.evaluate(model.params, manifest, store))
    merge = merge_updates(
        model,
        _updates(command.updates, manifest, store),
        record=command.record,
        data_seed=command.data_seed,
        manifest=manifest,
        grams_as=lie.grams,
    )
    merge = lie.merge(merge)
    shapes = model.shapes
    del model
    opened = read_global_state(manifest, command.initial_state, store)
    moved = lie.state(merge.moves(opened, manifest))
    cid, inputs = store.add_pieces(moved.pieces()), merge.inputs
    excluded, statement = to_bitmap(inputs.excluded), ZERO_DIGEST
    if merge.stated:
        rows = len(inputs.mergeable)
        layout = MergedLayout.of(manifest, shapes, command.round_id.round, rows)
        statement = store_statement(merge, moved, layout, store)
    model_of = (moved.digest(), cid.to_bytes())
    return Verdict(excluded, len(inputs.merged), *model_of, loss, statement)


@FIND_STRIKE.runs
def find_strike(command: DoFindStrike, opening: bytes, store_dir: str) -> FoundStrike:
    """Looks for what shows that a certified merge is wrong; `opening` is the CID of the state that
    its round opened with, or empty.
    """
    pin_torch()
    manifest, store = Manifest.from_bytes(command.manifest), LocalStore(store_dir)
    search = StrikeSearch(
        manifest,
        command.initial,
        command.round_id.round,
        command.record.seed,
        command.record.available,
        command.owed,
        command.verdict,
        _updates(command.updates, manifest, store),
        store,
        command.record.model,
        command.before,
        opening,
    )
    return FoundStrike(search.search())


@OPEN_STATEMENT.runs
def open_statement(command: DoApply, secret: bytes, store_dir: str) -> OpenedStatement:
    """Checks a statement, and says what else of the merge is to be fetched.

    Raises:
        MalformedUpdate: it is not canonical, or something in it does not follow.
    """
    pin_torch()
    merge = _stated(command, LocalStore(store_dir))
    spots = tuple(merge.pieces_of(spot) for spot in merge.drawn(secret))
    sizes = (merge.layout.encoded_length, merge.layout.updates.encoded_length)
    return OpenedStatement(merge.statement.update_cid, *sizes, spots)


@APPLY_MERGED.runs
def apply_merged(
    command: DoApply, secret: bytes, shown: ShownSpots, store_dir: str
) -> RoundStartReady:
    """Stores the next global state, once the merged update agrees with the updates at the drawn
    spots that were shown.

    Raises:
        MalformedUpdate: it is not what the statement says, or not the merge there.
    """
    pin_torch()
    store = LocalStore(store_dir)
    merge = _stated(command, store)
    drawn = merge.drawn(secret)
    batches = batches_of([merge.pieces_of(spot) for spot in drawn])
    size, updates = merge.layout.updates.encoded_length, dict[int, ByteSlices]()
    for update, blocks in zip(command.merge.updates, shown.batches, strict=True):
        pieces = dict[int, bytes]()
        for numbers, block in zip(batches, blocks, strict=True):
            if block:
                data = store.get_block(Cid.from_bytes(block))
                pieces |= pieces_in(data, numbers, size)
        updates[update.seat] = KnownPieces(pieces, size)
    after = merge.applied([drawn[number] for number in shown.spots], updates)
    return RoundStartReady(store.add_pieces(after.pieces()).to_bytes(), after.digest())


def _stated(command: DoApply, store: LocalStore) -> StoredMerge:
    merge = command.merge
    return StoredMerge.read(
        Manifest.from_bytes(merge.manifest),
        merge.record,
        merge.data_seed,
        initial_state=merge.initial_state,
        statement=statement_cid(command.statement),
        store=store,
    )


@REPLAY.runs
def replay(command: DoReplay, model: bytes, store_dir: str) -> SeatReplay:
    """Runs a seat's round again; `model` is the CID of the global state that it opened from."""
    pin_torch()
    store = LocalStore(store_dir)
    return replay_seat(task_of(command, model), revealed_round(command, store), store)


def revealed_round(command: DoReplay, store: LocalStore) -> RevealedRound:
    """What a seat revealed, with the ids that are here."""
    manifest = Manifest.from_bytes(command.manifest)
    rounds: list[EarlierSaid | DoReplay] = [*command.earlier, command]
    claims = [
        RevealedRound(
            CheckpointCommitments.from_bytes(revealed.checkpoint_commitments),
            revealed.update_root,
            revealed.model,
            sampled=_sampled(revealed, manifest, store),
        )
        for revealed in rounds
    ]
    return replace(claims.pop(), earlier=tuple(claims))


def _sampled(
    revealed: EarlierSaid | DoReplay, manifest: Manifest, store: LocalStore
) -> Mapping[int, Tensor]:
    """What a seat says it sampled, where its update is here."""
    if not revealed.update:
        return {}
    try:
        data = FileSlices(store, Cid.from_bytes(revealed.update), max_update_bytes(manifest))
        if root_of_update(data) != revealed.update_root:
            return {}
        ids = data[max(0, len(data) - manifest.sampled_bytes) : len(data)]
    except (*UNFETCHABLE_CONTENT, StorageError):
        return {}
    return read_ids(ids, batch=manifest.inner.batch, seq=manifest.model.seq)


@MEASURE_SAMPLED.runs
def measure_sampled(command: SampledBySeat, store_dir: str) -> Sampled | None:
    """What a seat's completions were worth; None where its update says none.

    Raises:
        NotFound, CorruptBlock: the update's end, or the job's data, is not here.
        UNFETCHABLE_CONTENT: the update is no file.
    """
    manifest, store = Manifest.from_bytes(command.manifest), LocalStore(store_dir)
    data = FileSlices(store, Cid.from_bytes(command.update), max_update_bytes(manifest))
    ids = data[max(0, len(data) - manifest.sampled_bytes) : len(data)]
    task = TrainTask(manifest, command.round_id, command.seat, command.data_seed, b"")
    figures = figures_of(task, ids, store)
    return None if figures is None else Sampled(**asdict(figures))


@HELD_OUT_REWARD.runs
def reward_of_model(command: HeldOut, store_dir: str) -> float:
    """What a global state in the store answers to prompts that it is not trained on."""
    pin_torch()
    job, store = Manifest.from_bytes(command.manifest), LocalStore(store_dir)
    state = read_global_state(job, command.model, store, outer=False, moments=False)
    return held_out_reward(state.params, job, store, command.prompts)


def task_of(command: DoReplay, model: bytes) -> TrainTask:
    """What is replayed, with the rounds that its state comes from."""
    manifest = Manifest.from_bytes(command.manifest)
    earlier = tuple(EarlierRound(e.round, e.data_seed, e.cid) for e in command.earlier)
    where = (command.round_id, command.seat, command.data_seed, model)
    return TrainTask(manifest, *where, earlier=earlier)


def _updates(
    revealed: RevealedUpdates, manifest: Manifest, store: LocalStore
) -> dict[int, FileSlices]:
    """The updates that are what was revealed; who revealed something else has none.

    They are read where they lie: all of a round at once are more than a machine may have.
    """
    limit = max_update_bytes(manifest)
    updates: dict[int, FileSlices] = {}
    for update in revealed:
        try:
            data = FileSlices(store, Cid.from_bytes(update.cid), limit)
            if root_of_update(data) == update.root:
                updates[update.seat] = data
        except UNFETCHABLE_CONTENT:
            continue
    return updates
