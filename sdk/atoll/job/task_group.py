"""The group [task] of a job's file: prompts to be answered, and what an answer is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field

from atoll.job.groups import Count, Group, Texts, beside
from atoll.protocol.choices import OneOf
from atoll.protocol.task_spec import MOST_REWARDS, REWARDS


class Reward(Group):
    """What a completion is worth that is as it should be."""

    kind: Annotated[str, AfterValidator(OneOf("reward", REWARDS))] = Field(
        default="answer",
        description="; ".join(f"{name}: {kind.meaning}" for name, kind in REWARDS.items()),
    )
    weight: Annotated[int, Field(ge=1, le=1000)] = Field(default=1000, description="what it adds")
    opening: str = Field(default="", description="of an answer: what stands before it")
    closing: str = Field(default="", description="of an answer: what stands behind it")
    least: Annotated[int, Field(ge=0)] = Field(default=0, description="of a length")
    most: Annotated[int, Field(ge=0)] = Field(default=0, description="of a length")


class Task(Group):
    """Answers to be learned by their rewards, in place of text."""

    kind: Literal["rl"] = "rl"
    prompts: Texts = Field(
        default=(),
        description="files of JSON lines with prompt (text or messages) and answer; they become "
        "public",
    )
    held_out: Texts = Field(
        default=(),
        description="files like these of which your own client says each model's reward; they "
        "stay with you",
    )
    group: Annotated[int, Field(ge=2, le=256)] = Field(
        default=8, description="completions of a prompt, which are compared"
    )
    new_tokens: Count = Field(default=256, description="of a completion at most")
    rewards: Annotated[
        tuple[Reward, ...],
        BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
        Field(min_length=1, max_length=MOST_REWARDS),
    ] = (Reward(),)

    def beside(self, folder: Path) -> Self:
        """The same with relative paths taken from `folder`."""
        return self.model_copy(
            update={
                name: tuple(beside(folder, path) for path in paths)
                for name, paths in (("prompts", self.prompts), ("held_out", self.held_out))
            }
        )

    @property
    def fields(self) -> dict[str, Any]:
        """What a manifest has of it, as it is."""
        rewards = [reward.model_dump() for reward in self.rewards]
        return {"group": self.group, "new_tokens": self.new_tokens, "rewards": rewards}
