"""The training that cheating providers do, as their worker processes run it.

Rule of this file: every function has the signature of `atoll_node.tasks.train`, and departs from it
in the one way that its name says.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from hashlib import sha256

import numpy as np
from torch import Tensor

from atoll.bits.codec.header import header_length
from atoll.bits.codec.registry import seat_codec
from atoll.bits.link import close_round
from atoll.bits.opening import open_round
from atoll.bits.sections import UpdateLayout, filled
from atoll.bits.segment import Course, SegmentRun, run_segment
from atoll.bits.state import GlobalState, SeatState
from atoll.bits.step import state_roots
from atoll.content.cid import DAG_CBOR, Cid
from atoll.content.local import LocalStore
from atoll.law.draws import batch_digest
from atoll.law.games.claims import Move
from atoll.law.games.players import Question
from atoll.law.manifest import Manifest
from atoll.law.trace import LeafKind, StepWork
from atoll.law.words import Digest, SeatIndex
from atoll.service.judging import move_by
from atoll.train.course import open_course
from atoll.train.initial import open_initial_state
from atoll.train.judged import JudgeTask, Position
from atoll.train.judging import OwnRun
from atoll.train.probe import configure_native
from atoll.train.round import (
    SegmentRunner,
    TrainedRound,
    TrainTask,
    read_global_state,
    read_seat_state,
    train_round,
)

PLANTED = b"Trust the atoll. "
SCALE = 10.0  # far outside of what honest updates differ by
FIRST_LOSS = 5.5
"""About what an untrained byte model has."""
UPDATE_LIMIT = 1 << 30

Extra = tuple[bytes, ...]


def lazy(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Trains segments 1, 3, 5…; where the others end is guessed from the moments."""
    del extra
    return _train(task, store_dir, _Guesser(trains_odd=True))


def poison_segment(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Trains one segment of the round on planted text; which one changes with the round."""
    del extra
    poisoned = _poisoned_segment(task.manifest, task.slot.round)

    def run(state: SeatState, segment: int, course: Course) -> SegmentRun:
        return run_segment(state, segment, _poisoned(course) if segment == poisoned else course)

    return _train(task, store_dir, run)


def poisoned_move(task: JudgeTask, position: Position, store_dir: str) -> Move | Question | None:
    """A move in a game by the run that was really made, planted text included."""
    manifest = Manifest.from_bytes(task.manifest)
    is_poisoned = task.segment == _poisoned_segment(manifest, task.round) and not task.is_link
    return move_by(task, position, store_dir, _poisoned_run if is_poisoned else OwnRun)


def _poisoned_run(task: JudgeTask, store: LocalStore) -> OwnRun:
    return OwnRun(task, store, _open_poisoned)


def _poisoned_segment(manifest: Manifest, round: int) -> int:
    # Never the last: every auditor replays that one.
    return round % max(1, manifest.segments - 1)


def _poisoned(course: Course) -> Course:
    planted = np.frombuffer(PLANTED, dtype=np.uint8).astype(course.tokens[:1].dtype)
    return replace(course, tokens=np.resize(planted, len(course.tokens)))


def _open_poisoned(
    manifest: Manifest, data_seed: Digest, seat: SeatIndex, round: int, store: LocalStore
) -> Course:
    return _poisoned(open_course(manifest, data_seed, seat, round, store))


def wrong_data(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Names the drawn batches and trains on what lies half the data set further on."""
    del extra

    def run(state: SeatState, segment: int, course: Course) -> SegmentRun:
        shifted = np.roll(course.tokens[:], len(course.tokens) // 2)
        return run_segment(state, segment, replace(course, tokens=shifted))

    return _train(task, store_dir, run)


def sign_flip(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """An honest round with the update negated."""
    del extra
    return _with_scaled_update(task, store_dir, -1.0)


def scale(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """An honest round with the update ten times as large."""
    del extra
    return _with_scaled_update(task, store_dir, SCALE)


def garbage_bytes(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """An honest trace with an update of noise."""
    del extra
    honest = _train(task, store_dir)
    noise = sha256(honest.update).digest() * (len(honest.update) // 64)
    return _with_update(honest, noise, LocalStore(store_dir))


def forge_moments(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """An honest round whose update tells moments that nobody has: turned round, and far too large.

    What moves the model is honest, so that only the next round's opening suffers.
    """
    del extra
    honest, store = _train(task, store_dir), LocalStore(store_dir)
    last = read_seat_state(task.manifest, honest.document.states[-1], store)
    forged = replace(
        last,
        m={name: -m * SCALE for name, m in last.m.items()},
        v={name: v * SCALE for name, v in last.v.items()},
    )
    model = read_global_state(task.manifest, task.global_state_cid, store)
    update, _ = close_round(task.manifest, model, forged, task.dither)
    return _with_update(honest, update, store)


def garbage_nan(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """The first section's honest header followed by as many fp32 NaNs as fit in that section."""
    del extra
    honest, store = _train(task, store_dir), LocalStore(store_dir)
    begin, end = _header_length(task, store), _layout(task, store).lengths[0]
    nans = np.full(end // 4 + 1, np.nan, dtype="<f4").tobytes()[: end - begin]
    return _with_update(honest, honest.update[:begin] + nans + honest.update[end:], store)


def garbage_shapes(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """The canonical update of a model with one tensor fewer."""
    del extra
    honest, store = _train(task, store_dir), LocalStore(store_dir)
    part = _sent_part(task, store)
    kept = sorted(part.params)[1:]
    delta = {name: part.params[name] * 0 for name in kept}
    exponents = {name: part.exponents[name] for name in kept}
    update = seat_codec(task.manifest.codec, task.dither).encode(delta, exponents)
    return _with_update(honest, update, store)


def stale_model(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Trains from the model of the round before and claims to have opened with the current one.

    `extra` is that model's CID from round 2 on; round 1's is the initial model.
    """
    configure_native()
    if task.slot.round == 0:
        return _train(task, store_dir)
    store = LocalStore(store_dir)
    if extra:
        stale = extra[0]
    else:
        stale = store.add_bytes(open_initial_state(task.manifest, store).to_bytes()).to_bytes()
    trained = _train(replace(task, global_state_cid=stale), store_dir)
    return _with_opening(trained, _claimed_opening(task, store), store)


def copied(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """No training at all: a made-up trace, and the update in `extra` where there is one."""
    made_up, store = _train(task, store_dir, _Guesser(trains_odd=False)), LocalStore(store_dir)
    if not extra:
        return made_up
    other = store.read_bytes(Cid.from_bytes(extra[0]), UPDATE_LIMIT)
    # Headers name the round's grids; the values are the other seat's.
    head, update = _header_length(task, store), bytearray(other)
    lengths = _layout(task, store).lengths
    for begin in (0, *[filled(lengths[0])] * (len(lengths) > 1)):
        update[begin : begin + head] = made_up.update[begin : begin + head]
    return _with_update(made_up, bytes(update), store)


class _Guesser:
    """A segment runner that moves along the moments instead of training.

    Args:
        trains_odd: whether segments 1, 3, 5… are trained after all.
    """

    def __init__(self, trains_odd: bool) -> None:
        self._trains_odd = trains_odd
        self._loss = FIRST_LOSS

    def __call__(self, state: SeatState, segment: int, course: Course) -> SegmentRun:
        if self._trains_odd and segment % 2 == 1:
            done = run_segment(state, segment, course)
            self._loss = done.losses[-1]
            return done
        return self._guess(state, segment, course)

    def _guess(self, state: SeatState, segment: int, course: Course) -> SegmentRun:
        inner = course.manifest.inner
        first, steps = segment * inner.segment, inner.segment
        distance, eps = float(Decimal(inner.lr)) * steps, float(Decimal(inner.eps))
        moved: dict[str, Tensor] = {
            name: p - distance * state.m[name] / (state.v[name].sqrt() + eps)
            if name in state.v  # not where Muon or SGD steps: there the guess stands still
            else p
            for name, p in state.params.items()
        }
        after = replace(
            state, params=moved, count=state.count + steps, batches=state.batches + steps
        )
        self._loss *= 0.995
        return SegmentRun(
            state=after,
            roots=state_roots(after),
            kind=LeafKind.OK,
            first_step=first,
            last_step=first + steps - 1,
            batch_digest=batch_digest([course.offsets(first + i) for i in range(steps)]),
            works=(StepWork(1.0, (self._loss,)),) * steps,
            losses=(self._loss,) * steps,
            seconds=0.0,
        )


def _train(task: TrainTask, store_dir: str, run: SegmentRunner = run_segment) -> TrainedRound:
    configure_native()
    return train_round(task, LocalStore(store_dir), run=run)


def _with_scaled_update(task: TrainTask, store_dir: str, factor: float) -> TrainedRound:
    honest, store = _train(task, store_dir), LocalStore(store_dir)
    model = read_global_state(task.manifest, task.global_state_cid, store)
    last = read_seat_state(task.manifest, honest.document.states[-1], store)
    moved = {name: p - (p - last.params[name]) * factor for name, p in model.params.items()}
    scaled = replace(last, params=moved)
    update, _ = close_round(task.manifest, model, scaled, task.dither)
    return _with_update(honest, update, store)


def _with_update(honest: TrainedRound, update: bytes, store: LocalStore) -> TrainedRound:
    cid = store.add_bytes(update).to_bytes()
    return replace(honest, update=update, update_cid=cid)


def _with_opening(trained: TrainedRound, opening: SeatState, store: LocalStore) -> TrainedRound:
    """The same trace with another opening state; its leaves do not speak of it."""
    cid = store.add_bytes(opening.to_bytes()).to_bytes()
    document = replace(
        trained.document,
        states=(cid, *trained.document.states[1:]),
        state_roots=(state_roots(opening), *trained.document.state_roots[1:]),
    )
    trace_cid = store.add_block(document.to_bytes(), DAG_CBOR).to_bytes()
    return replace(trained, document=document, trace_cid=trace_cid)


def _claimed_opening(task: TrainTask, store: LocalStore) -> SeatState:
    model = read_global_state(task.manifest, task.global_state_cid, store)
    optimiser = None
    if task.opening_optimiser is not None:
        optimiser = read_seat_state(task.manifest, task.opening_optimiser, store)
    return open_round(task.manifest, task.slot.round, model, optimiser)


def _sent_part(task: TrainTask, store: LocalStore) -> GlobalState:
    model = read_global_state(task.manifest, task.global_state_cid, store)
    return model.sent_part(task.manifest.codec)


def _layout(task: TrainTask, store: LocalStore) -> UpdateLayout:
    model = read_global_state(task.manifest, task.global_state_cid, store)
    return UpdateLayout.of(task.manifest, model.shapes, model.round)


def _header_length(task: TrainTask, store: LocalStore) -> int:
    """Of the first section; the second one's is as long where every parameter has a moment."""
    return header_length(_layout(task, store).delta)
