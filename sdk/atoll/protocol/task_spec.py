"""What a job does beside learning text: prompts, answers to be generated, and their rewards.

Rules as in `manifest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from atoll.protocol.choices import OneOf
from atoll.protocol.manifest_fields import Spec

TOKEN_BYTES: Final = 32
"""Of a token's text, so many bytes are known to rewards."""
WINDOW_BYTES: Final = 64
"""An answer and what stands around it: what rewards look at from a token on."""
MOST_REWARDS: Final = 8
MOST_ENDS: Final = 8


@dataclass(frozen=True, slots=True)
class RewardKind:
    """What a kind of reward reads.

    Attributes:
        meaning: what it is given for, as a job file's documentation has it.
        reads_answer: the row's answer, between markers; else nothing of the row.
    """

    meaning: str
    reads_answer: bool


REWARDS: Final[Mapping[str, RewardKind]] = MappingProxyType(
    {
        "answer": RewardKind("as the row has it", reads_answer=True),
        "length": RewardKind("so many tokens", reads_answer=False),
    }
)


class RewardSpec(Spec):
    """What a completion is worth: the weight where it is as it should be, else nothing.

    `answer`: opening ‖ the row's answer ‖ closing begins with some token of the completion.
    `length`: it has `least` to `most` tokens. What a kind does not read is empty or 0.
    """

    kind: Annotated[str, AfterValidator(OneOf("reward", REWARDS))]
    weight: Annotated[int, Field(ge=1, le=1000)]
    opening: Annotated[str, Field(max_length=TOKEN_BYTES)]
    closing: Annotated[str, Field(max_length=TOKEN_BYTES)]
    least: Annotated[int, Field(ge=0, le=1 << 17)]
    most: Annotated[int, Field(ge=0, le=1 << 17)]

    @property
    def properties(self) -> RewardKind:
        """What it reads."""
        return REWARDS[self.kind]

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.properties.reads_answer and (self.least, self.most) != (0, 0):
            raise ValueError(f"{self.kind} has no length: least and most are 0")
        if not self.properties.reads_answer and self.opening + self.closing:
            raise ValueError(f"{self.kind} has no markers")
        if self.least > self.most:
            raise ValueError(f"a length of at least {self.least} and at most {self.most}")
        return self

    @property
    def marker_bytes(self) -> int:
        """Of what stands around an answer."""
        return len(self.opening.encode()) + len(self.closing.encode())


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class TaskSpec(Spec):
    """Reinforcement learning of answers that can be checked.

    A batch is `group` completions each of batch / group prompts, which are rows of the data. A
    completion ends with one of `ends`, or has `new_tokens`.
    """

    prompts: Annotated[int, Field(ge=1, lt=1 << 40)]
    prompt_tokens: Annotated[int, Field(ge=1, le=1 << 16)]
    answer_bytes: Annotated[int, Field(ge=1, le=WINDOW_BYTES)]
    group: Annotated[int, Field(ge=2, le=256)]
    new_tokens: Annotated[int, Field(ge=1, le=1 << 16)]
    ends: Annotated[
        tuple[Annotated[int, Field(ge=0, lt=1 << 20)], ...],
        BeforeValidator(_tuple),
        Field(max_length=MOST_ENDS),
        PlainSerializer(list),
    ]
    rewards: Annotated[
        tuple[RewardSpec, ...],
        BeforeValidator(_tuple),
        Field(min_length=1, max_length=MOST_REWARDS),
        PlainSerializer(lambda rewards: [reward.model_dump() for reward in rewards]),
    ]

    @model_validator(mode="after")
    def _check_agreement(self) -> Self:
        if list(self.ends) != sorted(set(self.ends)):
            raise ValueError("end tokens do not ascend")
        for reward in self.rewards:
            window = reward.marker_bytes + self.answer_bytes
            if reward.properties.reads_answer and window > WINDOW_BYTES:
                raise ValueError(
                    f"markers and answer have {window} bytes, {WINDOW_BYTES} are looked at"
                )
        return self

    @property
    def row_words(self) -> int:
        """Of a row: how long the prompt is, its ids, how long the answer is, its bytes."""
        return 2 + self.prompt_tokens + self.answer_bytes

    def words(self, vocab: int) -> int:
        """Of the data: the rows, and a row of length and bytes for each token's text."""
        return self.prompts * self.row_words + vocab * (1 + TOKEN_BYTES)

    def least_values(self, vocab: int) -> int:
        """So many different values a word must have."""
        return max(vocab, 256, self.prompt_tokens + 1)

    def check_model(self, seq: int, vocab: int, batch: int) -> None:
        """Raises ValueError where a completion does not fit, or a group is cut."""
        if self.prompt_tokens + self.new_tokens > seq:
            raise ValueError(
                f"prompts of {self.prompt_tokens} and {self.new_tokens} new tokens are more than "
                f"the model's {seq} positions"
            )
        if batch % self.group:
            raise ValueError(f"a batch of {batch} is no whole number of groups of {self.group}")
        if any(end >= vocab for end in self.ends):
            raise ValueError("an end token is not of the vocabulary")
