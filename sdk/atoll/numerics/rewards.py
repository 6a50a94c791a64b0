"""What completions are worth, and by how much each is better than its group.

Rule of this file: rewards and advantages are integers up to one multiplication: no order, thread or
machine can matter. Who reads it reads a function of tokens and of the job's data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch

from atoll.numerics.problems import Problem
from atoll.protocol.task_spec import WINDOW_BYTES, RewardSpec, TaskSpec

MOST_REWARD = 10**6
"""Weights of at most eight rewards stay far below; a group's sum fits into int64 many times."""


def reward_of(
    completion: Sequence[int], problem: Problem, task: TaskSpec, texts: Sequence[bytes]
) -> int:
    """The sum of the weights of what a completion fulfils."""
    cells = [texts[token] for token in completion]
    return sum(
        reward.weight
        for reward in task.rewards
        if FULFILLED[reward.kind](reward, cells, problem.answer)
    )


def _has_answer(reward: RewardSpec, cells: Sequence[bytes], answer: bytes) -> bool:
    wanted = reward.opening.encode() + answer + reward.closing.encode()
    return any(window.startswith(wanted) for window in windows(cells))


def _has_length(reward: RewardSpec, cells: Sequence[bytes], answer: bytes) -> bool:
    return reward.least <= len(cells) <= reward.most


FULFILLED: Mapping[str, Callable[[RewardSpec, Sequence[bytes], bytes], bool]] = MappingProxyType(
    {"answer": _has_answer, "length": _has_length}
)


def windows(cells: Sequence[bytes]) -> list[bytes]:
    """From each token on, so many bytes of the completion as rewards look at."""
    text = b"".join(cells)
    starts = [0]
    for cell in cells[:-1]:
        starts.append(starts[-1] + len(cell))
    return [text[start : start + WINDOW_BYTES] for start in starts[: len(cells)]]


def advantages(rewards: Sequence[int], group: int) -> list[float]:
    """Each completion's, binary32: its reward less its group's mean, in millions.

    The mean is not divided by a deviation (Liu et al. 2025, arXiv:2503.20783): that would weigh
    prompts which are nearly always, or nearly never, answered more than others.
    """
    if any(abs(reward) > MOST_REWARD for reward in rewards):
        raise ValueError(f"a reward above {MOST_REWARD}")
    differences: list[int] = []
    for start in range(0, len(rewards), group):
        members = rewards[start : start + group]
        total = sum(members)
        differences += [group * reward - total for reward in members]
    wide = torch.tensor(differences, dtype=torch.float64) * (1.0 / (MOST_REWARD * group))
    return [float(each) for each in wide.float()]
