"""What cheating providers do with rollouts, as their worker processes run it.

Rule of this file: as of `training`; whoever replays finds each of these with the ids and without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

import torch

from atoll.numerics.gradients import StepInput
from atoll.numerics.problems import Problems
from atoll.numerics.rollouts import Place, Rollouts, Sampler
from atoll.numerics.segment import Course, SegmentRun
from atoll.numerics.state import SeatState, Tensors
from atoll.storage.local import LocalStore
from atoll.train.probe import pin_torch
from atoll.train.round import TrainedRound, train_round
from atoll.train.seat_task import TrainTask, run_alone
from atoll_devnet.cheats import providers

SECOND_TRY = 1 << 20
"""Steps later, where another draw is."""
Extra = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a step samples by.

    Attributes:
        first: parameters of the round's first step.
    """

    sampler: Sampler
    params: Tensors
    first: Tensors
    place: Place


Sample: TypeAlias = Callable[[Sampling], Rollouts]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheatsCourse(Course):
    """A course whose rollouts are somebody's own."""

    sample: Sample
    first: Tensors

    def input_of(self, step: int, begun: SeatState) -> StepInput:
        job = self.manifest
        assert job.task is not None
        problems = Problems(self.tokens, job.task, job.model.vocab)
        sampler = Sampler(job.task, job.inner, self.recipe, problems)
        place = Place(self.data_seed, self.seat, step, self.global_step0 + step)
        if step == 0:
            self.first.update({name: p.clone() for name, p in begun.params.items()})
        rollouts = self.sample(Sampling(sampler, dict(begun.params), self.first, place))
        batch = rollouts.micro_batches(job.inner.micro_batch)
        return StepInput(batch=batch, global_step=place.global_step, rollouts=rollouts)


def _trained(task: TrainTask, store_dir: str, sample: Sample) -> TrainedRound:
    pin_torch()
    if task.manifest.task is None:  # of text there are none
        return train_round(task, LocalStore(store_dir))
    first: Tensors = {}

    def run(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        given = {field.name: getattr(course, field.name) for field in fields(Course)}
        return run_alone(states, segment, _CheatsCourse(**given, sample=sample, first=first))

    return train_round(task, LocalStore(store_dir), run=run)


@providers.PickRollouts.train_function.runs
def pick_rollouts(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Samples twice, and keeps what has the higher rewards."""
    del extra

    def best(given: Sampling) -> Rollouts:
        later = replace(given.place, global_step=given.place.global_step + SECOND_TRY)
        tries = [given.sampler.rollouts(given.params, place) for place in (later, given.place)]
        return max(tries, key=lambda made: sum(made.rewards))

    return _trained(task, store_dir, best)


@providers.StalePolicy.train_function.runs
def stale_policy(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Samples a whole round by the parameters that it began with."""
    del extra
    return _trained(task, store_dir, lambda it: it.sampler.rollouts(it.first, it.place))


@providers.RewardOne.train_function.runs
def reward_one(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Learns every completion as if it were the best of its group."""
    del extra

    def all_best(given: Sampling) -> Rollouts:
        made = given.sampler.rollouts(given.params, given.place)
        return replace(made, weights=torch.where(made.targets >= 0, 2.0**-20, 0.0))

    return _trained(task, store_dir, all_best)


@providers.EditRollouts.train_function.runs
def edit_rollouts(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Changes the last sampled token of a step's first completion."""
    del extra
    return _trained(task, store_dir, lambda it: _edited(it.sampler.rollouts(it.params, it.place)))


def _edited(made: Rollouts) -> Rollouts:
    at = int((made.targets[0] >= 0).nonzero().max())
    ids, targets = made.ids.clone(), made.targets.clone()
    ids[0, at + 1] = targets[0, at] = ids[0, at + 1] ^ 1
    return replace(made, ids=ids, targets=targets)


@providers.Infinite.train_function.runs
def infinite(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Samples by infinite parameters, and says that every row was finite."""
    del extra

    def by_infinite(given: Sampling) -> Rollouts:
        params = {name: torch.full_like(p, torch.inf) for name, p in given.params.items()}
        return replace(given.sampler.rollouts(params, given.place), is_finite=True)

    return _trained(task, store_dir, by_infinite)


@providers.Endless.train_function.runs
def endless(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Samples as many tokens as there may be, whatever ends a completion."""
    del extra

    def without_ends(given: Sampling) -> Rollouts:
        sampler = given.sampler
        longer = replace(sampler, task=sampler.task.model_copy(update={"ends": ()}))
        return longer.rollouts(given.params, given.place)

    return _trained(task, store_dir, without_ends)


@providers.NoIds.train_function.runs
def no_ids(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Trains honestly, and has zeros where its update should have what was sampled."""
    del extra
    return _without_ids(train_round(task, LocalStore(store_dir)), bytes)


@providers.WrongIds.train_function.runs
def wrong_ids(task: TrainTask, store_dir: str, extra: Extra) -> TrainedRound:
    """Trains honestly, and says that it sampled something else."""
    del extra
    return _without_ids(train_round(task, LocalStore(store_dir)), lambda size: b"\7" * size)


def _without_ids(trained: TrainedRound, filling: Callable[[int], Sequence[int]]) -> TrainedRound:
    size = len(trained.sampled)
    if not size:
        return trained
    other = bytes(filling(size))
    return replace(trained, update=trained.update[:-size] + other, sampled=other)
