"""What a task is refused for, what lies just within, and how much data it has."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from atoll.protocol.task_spec import RewardSpec, TaskSpec

ANSWER = {
    "kind": "answer", "weight": 3, "opening": "<a>", "closing": "</a>", "least": 0, "most": 0,
}  # fmt: skip
LENGTH = {"kind": "length", "weight": 1, "opening": "", "closing": "", "least": 2, "most": 9}
TASK: dict[str, Any] = {
    "prompts": 100, "prompt_tokens": 12, "answer_bytes": 5, "group": 4, "new_tokens": 8,
    "ends": [1, 7], "rewards": [ANSWER, LENGTH],
}  # fmt: skip


def task(**changes: Any) -> TaskSpec:
    return TaskSpec.model_validate(TASK | changes)


def test_its_data_are_rows_and_a_table_of_tokens_texts() -> None:
    spec = task()
    assert spec.row_words == 2 + 12 + 5
    assert spec.words(40) == 100 * 19 + 40 * 33
    assert [spec.least_values(vocab) for vocab in (40, 300)] == [256, 300]
    assert task(prompt_tokens=400).least_values(300) == 401


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ends": []},
        {"ends": list(range(8))},
        {"ends": [0, 2**20 - 1]},
        {"rewards": [LENGTH] * 8},
        {"rewards": [LENGTH | {"least": 9}]},
        {"answer_bytes": 57},  # and 7 of markers
        {"answer_bytes": 64, "rewards": [LENGTH]},
    ],
)
def test_what_lies_within_is_taken(changes: dict[str, Any]) -> None:
    assert task(**changes).model_dump() == TASK | changes


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ends": list(range(9))}, "at most 8"),
        ({"ends": [7, 1]}, "do not ascend"),
        ({"ends": [1, 1]}, "do not ascend"),
        ({"ends": [-1]}, "greater than or equal to 0"),
        ({"ends": [2**20]}, "less than 1048576"),
        ({"rewards": []}, "at least 1"),
        ({"rewards": [LENGTH] * 9}, "at most 8"),
        ({"rewards": [LENGTH | {"least": 10}]}, "at least 10 and at most 9"),
        ({"rewards": [LENGTH | {"closing": "x"}]}, "has no markers"),
        ({"rewards": [ANSWER | {"most": 1}]}, "has no length"),
        ({"rewards": [ANSWER | {"kind": "applause"}]}, "applause"),
        ({"answer_bytes": 58}, "have 65 bytes, 64 are looked at"),
        ({"rewards": [LENGTH, ANSWER | {"opening": "\u00e9" * 30}]}, "have 69 bytes"),
    ],
)
def test_what_lies_beyond_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        task(**changes)


def test_what_a_reward_reads() -> None:
    answer, length = (RewardSpec.model_validate(row) for row in (ANSWER, LENGTH))
    assert answer.properties.reads_answer and not length.properties.reads_answer
    assert (answer.marker_bytes, length.marker_bytes) == (7, 0)


def test_a_model_has_room_for_it_and_a_batch_is_whole_groups() -> None:
    spec = task()
    spec.check_model(seq=20, vocab=8, batch=12)
    for changes, why in (
        ({"seq": 19}, "more than the model's 19 positions"),
        ({"batch": 13}, "no whole number of groups of 4"),
        ({"vocab": 7}, "not of the vocabulary"),
    ):
        with pytest.raises(ValueError, match=why):
            spec.check_model(**{"seq": 20, "vocab": 8, "batch": 12} | changes)
