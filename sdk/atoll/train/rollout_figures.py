"""What a seat's completions of a round were worth, from the ids that its update has: no model is
needed for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from atoll.numerics.problems import Problem, Problems
from atoll.numerics.rewards import reward_of
from atoll.numerics.rollouts import read_ids
from atoll.protocol.draws import batch_offsets
from atoll.protocol.manifest import Manifest
from atoll.protocol.task_spec import TaskSpec
from atoll.storage.local import LocalStore
from atoll.train.course import open_training_tokens
from atoll.train.seat_task import TrainTask


@dataclass(frozen=True, slots=True)
class RolloutFigures:
    """Of all of a round's completions.

    Attributes:
        reward: the mean, as a share of all weights together.
        length: the mean, in tokens.
        spread: the share of groups whose members differ in reward: others teach nothing.
    """

    reward: float
    length: float
    spread: float


def figures_of(task: TrainTask, sampled: bytes, store: LocalStore) -> RolloutFigures | None:
    """None where a job samples nothing, or the seat did no step."""
    manifest = task.manifest
    if manifest.task is None or not sampled:
        return None
    problems = Problems(open_training_tokens(manifest, store), manifest.task, manifest.model.vocab)
    texts, rewards, lengths = problems.texts(), list[int](), list[int]()
    steps = read_ids(sampled, batch=manifest.inner.batch, seq=manifest.model.seq)
    for step, ids in steps.items():
        drawn = _drawn(manifest, manifest.task, task, problems, step)
        for row, problem in zip(ids.tolist(), drawn, strict=True):
            completion = _completion(row, len(problem.prompt), manifest.task)
            rewards.append(reward_of(completion, problem, manifest.task, texts))
            lengths.append(len(completion))
    size, most = manifest.task.group, sum(reward.weight for reward in manifest.task.rewards)
    groups = [rewards[at : at + size] for at in range(0, len(rewards), size)]
    spread = fmean(len(set(group)) > 1 for group in groups)
    return RolloutFigures(fmean(rewards) / most, fmean(lengths), spread)


def _drawn(
    manifest: Manifest, chosen: TaskSpec, task: TrainTask, problems: Problems, step: int
) -> list[Problem]:
    count = manifest.inner.batch // chosen.group
    rows = batch_offsets(task.data_seed, task.seat, step, count, chosen.prompts)
    return [problem for row in rows for problem in [problems.row(row)] * chosen.group]


def _completion(row: Sequence[int], start: int, chosen: TaskSpec) -> Sequence[int]:
    limit = min(start + chosen.new_tokens, len(row))
    ends = (at + 1 for at in range(start, limit) if row[at] in chosen.ends)
    return row[start : next(ends, limit)]
