"""What a job's completions are worth, for whoever looks: nothing on the chain says it.

Rule of this file: for people. Neither figure decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from atoll.protocol.types import Digest, RoundId, SeatIndex
from atoll.service.task import Task

if TYPE_CHECKING:
    from atoll.train.corpus.options import DataOptions


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was sampled in a round, by one seat or by some.

    Attributes:
        reward: the mean, as a share of all weights together.
        length: the mean, in tokens.
        spread: the share of groups whose members differ in reward: others teach nothing.
    """

    reward: float
    length: float
    spread: float


@dataclass(frozen=True, slots=True)
class SampledBySeat:
    """Whose completions, and where they are: the end of an update in the store."""

    manifest: bytes
    round_id: RoundId
    seat: SeatIndex
    data_seed: Digest
    update: bytes


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Prompts that a model in the store is asked.

    Attributes:
        prompts: files of rows as a task's, and the tokenizer that reads them.
    """

    manifest: bytes
    model: bytes
    prompts: DataOptions


MeasureSampled: TypeAlias = "Task[[SampledBySeat, str], Sampled | None]"
MEASURE_SAMPLED: Final[MeasureSampled] = Task("measure-sampled.v1", "atoll.service.tasks")
HELD_OUT_REWARD: Final[Task[[HeldOut, str], float]] = Task(
    "held-out-reward.v1", "atoll.service.tasks"
)


def mean_of(sampled: list[Sampled]) -> Sampled | None:
    """Of seats that sampled equally much; None of none."""
    if not sampled:
        return None
    count = len(sampled)
    return Sampled(
        reward=sum(each.reward for each in sampled) / count,
        length=sum(each.length for each in sampled) / count,
        spread=sum(each.spread for each in sampled) / count,
    )
