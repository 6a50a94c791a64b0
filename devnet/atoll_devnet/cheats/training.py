"""The training that cheating providers do, as their worker processes run it.

Rule of this file: every function runs what a behaviour in `providers.py` declares, and departs from
honest training in the one way that its name says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from hashlib import sha256
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from atoll.numerics.codec.header import header_length
from atoll.numerics.codec.registry import seat_codec
from atoll.numerics.sections import UpdateLayout, filled
from atoll.numerics.segment import Course, SegmentRun
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.step import state_roots
from atoll.numerics.update_proof import close_round
from atoll.protocol.checkpoint_commitments import StepWork
from atoll.protocol.games.moves import Move
from atoll.protocol.games.players import Question
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Digest, SeatIndex
from atoll.service.game_moves import move_by
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train.course import open_course
from atoll.train.initial_model import open_initial_state
from atoll.train.judge_task import JudgeTask, Position
from atoll.train.own_run import OwnRun
from atoll.train.probe import pin_torch
from atoll.train.resume import Keeping, carry
from atoll.train.round import TrainedRound, train_round
from atoll.train.seat_task import SegmentRunner, TrainTask, run_alone
from atoll.train.stored_states import read_global_state
from atoll_devnet.cheats import providers

PLANTED: Final = b"Trust the atoll. "
SCALE: Final = 10.0  # far outside of what honest updates differ by
FLIPPED: Final = -5.0
SHRUNK: Final = 1e-3
FIRST_LOSS: Final = 5.5
"""About what an untrained byte model has."""
UPDATE_LIMIT: Final = 1 << 30

Extra = tuple[bytes, ...]


# --- what is trained ---


@providers.Lazy.train_function.runs
def lazy(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Trains segments 1, 3, 5…; where the others end is guessed from the moments."""
    del extra
    return _Round(task, store_dir, _Guesser(trains_odd=True)).trained


@providers.Hollow.train_function.runs
def hollow(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Trains segment 0; says that the others were, and sends as much as they all would bring."""
    del extra
    first = _Round(replace(task, segments=1), store_dir)
    segments = task.manifest.segments
    update = first.closed(first.scaled(segments)) if first.trained.segments else b""
    if not first.trained.segments:
        return first.trained
    invented = [_invented(first.trained.states[0], j) for j in range(1, segments)]
    work_tags = [_invented(first.trained.work_tags[0], j) for j in range(1, segments)]
    return replace(
        first.trained,
        states=(*first.trained.states, *invented),
        work_tags=(*first.trained.work_tags, *work_tags),
        update=update,
    )


@providers.PoisonSegment.train_function.runs
def poison_segment(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Trains one segment of the round on planted text; which one changes with the round."""
    del extra
    poisoned = _poisoned_segment(task.manifest, task.round_id.round)

    def run(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        return run_alone(states, segment, _poisoned(course) if segment == poisoned else course)

    return _Round(task, store_dir, run).trained


@providers.PoisonResetPeriod.train_function.runs
def poison_reset_period(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Trains the first segment of a publicly opened round on planted text, and no other."""
    del extra

    def run(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        is_false = segment == 0 and not task.earlier
        return run_alone(states, segment, _poisoned(course) if is_false else course)

    return _Round(task, store_dir, run, keeps=True).trained


@providers.PoisonSegment.judge_function.runs
def poisoned_move(task: JudgeTask, position: Position, store_dir: str) -> Move | Question | None:
    """A move in a game by the run that was really made, planted text included."""
    manifest = Manifest.from_bytes(task.manifest)
    is_poisoned = (
        task.segment == _poisoned_segment(manifest, task.round) and not task.is_update_proof
    )
    return move_by(task, position, store_dir, _poisoned_run if is_poisoned else OwnRun)


def _poisoned_run(task: JudgeTask, store: LocalStore) -> OwnRun:
    return OwnRun(task, store, _open_poisoned)


def _poisoned_segment(manifest: Manifest, round: int) -> int:
    return round % manifest.segments


def _poisoned(course: Course) -> Course:
    planted = np.frombuffer(PLANTED, dtype=np.uint8).astype(course.tokens[:1].dtype)
    return replace(course, tokens=np.resize(planted, len(course.tokens)))


def _open_poisoned(manifest: Manifest, **where: Any) -> Course:
    return _poisoned(open_course(manifest, **where))


@providers.WrongData.train_function.runs
def wrong_data(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Trains on what lies half the data set further on than its draws."""
    del extra

    def run(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        shifted = np.roll(course.tokens[:], len(course.tokens) // 2)
        return run_alone(states, segment, replace(course, tokens=shifted))

    return _Round(task, store_dir, run).trained


@providers.StaleModel.train_function.runs
def stale_model(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Trains from the model of the round before.

    `extra` is that model's CID from round 2 on; round 1's is the initial model.
    """
    pin_torch()
    if task.round_id.round == 0:
        return _Round(task, store_dir).trained
    store = LocalStore(store_dir)
    if extra:
        stale = extra[0]
    else:
        stale = store.add_bytes(open_initial_state(task.manifest, store).to_bytes()).to_bytes()
    return _Round(replace(task, global_state_cid=stale), store_dir).trained


@providers.Copy.train_function.runs
def copied(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """No training at all: made-up leaves, and the update in `extra` where there is one."""
    made_up = _Round(task, store_dir, _Guesser(trains_odd=False))
    if not extra:
        return made_up.trained
    other = LocalStore(store_dir).read_bytes(Cid.from_bytes(extra[0]), UPDATE_LIMIT)
    # Headers name the round's grids; the values are the other seat's.
    made_up_update, update, head = made_up.trained.update, bytearray(other), made_up.header_length
    lengths = made_up.layout.lengths
    for begin in (0, *[filled(lengths[0])] * (made_up.layout.first is not None)):
        update[begin : begin + head] = made_up_update[begin : begin + head]
    return replace(made_up.trained, update=bytes(update))


@providers.Partial.train_function.runs
def partial(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """One segment, and says so."""
    del extra
    return _Round(replace(task, segments=1), store_dir).trained


@providers.Alternate.train_function.runs
def alternate(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """One segment in even rounds, and says so; all of them in odd ones."""
    del extra
    lazy = replace(task, segments=1) if task.round_id.round % 2 == 0 else task
    return _Round(lazy, store_dir).trained


@providers.WrongWorkTags.train_function.runs
def wrong_work_tags(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """An honest round whose work tags are invented."""
    del extra
    honest = _Round(task, store_dir).trained
    return replace(honest, work_tags=tuple(_invented(work_tag, 0) for work_tag in honest.work_tags))


# --- what is sent ---


@providers.SignFlip.train_function.runs
def sign_flip(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """An honest round with the update negated."""
    del extra
    return _with_scaled_update(task, store_dir, -1.0)


@providers.Flip5.train_function.runs
def flip5(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """An honest round with −5 times its update."""
    del extra
    return _with_scaled_update(task, store_dir, FLIPPED)


@providers.Scale.train_function.runs
def scale(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """An honest round with the update ten times as large."""
    del extra
    return _with_scaled_update(task, store_dir, SCALE)


@providers.Noise.train_function.runs
def noise(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """An honest round whose update is noise, of every tensor as large as what was learnt."""
    del extra
    honest = _Round(task, store_dir)
    seed = int.from_bytes(task.data_seed[:4], "big") + task.seat
    generator = torch.Generator().manual_seed(seed)

    def moved(name: str, p: Tensor) -> Tensor:
        size = honest.delta(name).square().mean().sqrt()
        return p - torch.randn(p.shape, generator=generator) * size

    params = {name: moved(name, p) for name, p in sorted(honest.model.params.items())}
    return honest.sending(replace(honest.last, params=params))


@providers.Omniscient.train_function.runs
def omniscient(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Of every value the one that pulls most against the seats' mean and lies between theirs."""
    del extra
    honest = _Round(task, store_dir)
    seats = [SeatIndex(seat) for seat in range(task.manifest.terms.seats) if seat != task.seat]
    everyone = [honest, *(_Round(replace(task, seat=seat), store_dir) for seat in seats)]
    moved = {
        name: p - _furthest([seat.delta(name) for seat in everyone])
        for name, p in honest.model.params.items()
    }
    return honest.sending(replace(honest.last, params=moved))


def _furthest(deltas: Sequence[Tensor]) -> Tensor:
    every = torch.stack(list(deltas))
    return torch.where(every.mean(0) > 0, every.amin(0), every.amax(0))


@providers.ForgedMoments.train_function.runs
def forged_moments(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """An honest round that tells a first moment turned round, and far too large.

    What moves the model is honest, so that only the next round's start suffers.
    """
    del extra
    honest = _Round(task, store_dir)
    forged = {name: -m * SCALE for name, m in honest.last.m.items()}
    return honest.sending(replace(honest.last, m=forged))


@providers.ForgedSecondMoments.train_function.runs
def forged_second_moments(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """An honest round that tells factored second moments that are far too small."""
    del extra
    honest = _Round(task, store_dir)
    forged = {name: v * SHRUNK for name, v in honest.last.v.items()}
    return honest.sending(replace(honest.last, v=forged))


@providers.NanMoments.train_function.runs
def nan_moments(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """An honest round whose factored second moments are NaNs behind an honest header."""
    del extra
    honest = _Round(task, store_dir)
    factored = honest.layout.factored
    if factored is None:
        return honest.trained
    nans = np.full(factored.total, np.nan, dtype="<f4").tobytes()
    update = honest.trained.update
    return replace(honest.trained, update=update[: len(update) - len(nans)] + nans)


@providers.Garbage.train_function.runs
def garbage_bytes(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """An honest round with an update of noise, which is no update."""
    del extra
    honest = _Round(task, store_dir).trained
    junk = sha256(honest.update).digest() * (len(honest.update) // 64)
    return replace(honest, update=junk)


@providers.GarbageShapes.train_function.runs
def garbage_shapes(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """An honest round with the canonical change of a model with one tensor fewer."""
    del extra
    honest = _Round(task, store_dir)
    part = honest.model.sent_part(task.manifest.codec)
    kept = sorted(part.params)[1:]
    delta = {name: part.params[name] * 0 for name in kept}
    exponents = {name: part.exponents[name] for name in kept}
    update = seat_codec(task.manifest.codec, task.dither).encode(delta, exponents)
    return replace(honest.trained, update=update)


def _with_scaled_update(task: TrainTask, store_dir: str, factor: float) -> TrainedRound:
    honest = _Round(task, store_dir)
    return honest.sending(honest.scaled(factor))


# --- how ---


class _Round:
    """A round that was run, and the state that it ended with.

    Attributes:
        trained: what an honest provider would make of the run.
        model: what it opened from.

    Args:
        keeps: whether the next round goes on with what came of it; else with an honest run.
    """

    def __init__(
        self,
        task: TrainTask,
        store_dir: str,
        run: SegmentRunner = run_alone,
        *,
        keeps: bool = False,
    ) -> None:
        pin_torch()
        store = LocalStore(store_dir)
        self._task = task
        self._last: SeatState | None = None

        def kept(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
            ran = run(states, segment, course)
            self._last = ran.state
            return ran

        self.model: GlobalState = read_global_state(task.manifest, task.global_state_cid, store)
        keeping = Keeping(last=carry(task, store) if keeps else None)
        self.trained = train_round(task, store, run=kept, keeping=keeping)

    @property
    def last(self) -> SeatState:
        """The state after the last segment done."""
        assert self._last is not None
        return self._last

    @property
    def layout(self) -> UpdateLayout:
        """Of the round's updates."""
        return UpdateLayout.of(self._task.manifest, self.model.shapes, self.model.round)

    @property
    def header_length(self) -> int:
        """Of the first section; the second's is as long where every parameter has a moment."""
        return header_length(self.layout.delta)

    def delta(self, name: str) -> Tensor:
        """What is sent of a parameter: the model's less the last."""
        return self.model.params[name] - self.last.params[name]

    def scaled(self, factor: float) -> SeatState:
        """The last state, as if everything learnt had been so many times it."""
        params = self.model.params
        moved = {n: p - self.delta(n) * factor for n, p in params.items()}
        return replace(self.last, params=moved)

    def closed(self, last: SeatState) -> bytes:
        """The update that a seat with this last state would send."""
        update, _ = close_round(self._task.manifest, self.model, last, self._task.dither)
        return update

    def sending(self, last: SeatState) -> TrainedRound:
        """The honest leaves with the update of another last state."""
        return replace(self.trained, update=self.closed(last))


class _Guesser:
    """A segment runner that moves along the moments instead of training.

    Args:
        trains_odd: whether segments 1, 3, 5… are trained after all.
    """

    def __init__(self, trains_odd: bool) -> None:
        self._trains_odd = trains_odd
        self._loss = FIRST_LOSS

    def __call__(self, states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        if self._trains_odd and segment % 2 == 1:
            segment_run = run_alone(states, segment, course)
            self._loss = segment_run.losses[-1]
            return segment_run
        return self._guess(states.pop(), course)

    def _guess(self, state: SeatState, course: Course) -> SegmentRun:
        inner = course.manifest.inner
        distance, eps = float(Decimal(inner.lr)) * inner.segment, float(Decimal(inner.eps))
        moved: dict[str, Tensor] = {
            name: p - distance * state.m[name] / (state.v[name].sqrt() + eps)
            if name in state.v  # not where Muon or SGD steps: there the guess stands still
            else p
            for name, p in state.params.items()
        }
        count, batches = state.count + inner.segment, state.batches + inner.segment
        after = replace(state, params=moved, count=count, batches=batches)
        self._loss *= 0.995
        return SegmentRun(
            state=after,
            roots=state_roots(after),
            is_finite=True,
            works=(StepWork(1.0, (self._loss,)),) * inner.segment,
            losses=(self._loss,) * inner.segment,
            seconds=0.0,
        )


def _invented(like: Digest, place: int) -> Digest:
    """Nobody's digest, another one each time."""
    return Digest(sha256(b"invented" + like + place.to_bytes(4, "big")).digest())
