"""Rewards and advantages are integers of texts of tokens, and rows are what was written."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own convention)
from pydantic import ValidationError

from atoll.numerics.errors import MalformedDataset
from atoll.numerics.ops import NativeOps, operations
from atoll.numerics.problems import Problem, Problems, written
from atoll.numerics.rewards import advantages, reward_of, windows
from atoll.protocol.task_spec import TaskSpec

ANSWER = {"kind": "answer", "weight": 1000, "opening": "", "closing": "", "least": 0, "most": 0}
LENGTH = ANSWER | {"kind": "length", "weight": 7, "least": 2, "most": 3}
PLAIN: dict[str, Any] = {
    "prompts": 3, "prompt_tokens": 4, "answer_bytes": 3, "group": 2, "new_tokens": 5,
    "ends": [1], "rewards": [ANSWER | {"opening": "<", "closing": ">"}, LENGTH],
}  # fmt: skip
TEXTS = [b"", b"", b"<", b">", b"4", b"42", b"2>", b"x" * 40, "é".encode()]


def task_of(**changes: Any) -> TaskSpec:
    return TaskSpec.model_validate(PLAIN | changes)


def reward(*tokens: int, answer: bytes = b"42") -> int:
    return reward_of(tokens, Problem((4,), answer), task_of(), TEXTS)


def test_an_answer_stands_between_its_markers_in_whatever_tokens() -> None:
    assert reward(7, 2, 5, 3) == reward(7, 2, 4, 6) == 1000
    assert reward(2, 5, 3, 1) == 1000
    assert reward(7, 7, 5, 3) == reward(7, 2, 2, 5) == 0
    assert reward(2, 4, 3, 3) == 0  # <4>> is no <42>
    assert reward(2, 8, 3, 0, answer="é".encode()) == 1000


def test_a_length_counts_all_tokens() -> None:
    assert [reward(*[7] * count) for count in range(5)] == [0, 0, 7, 7, 0]
    assert reward(2, 5, 3) == 1007


def test_a_reward_looks_at_so_many_bytes_from_a_token_on() -> None:
    cells = [b"abc", b"", b"d" * 70, b"e"]
    assert windows(cells) == [b"abc" + b"d" * 61, b"d" * 64, b"d" * 64, b"e"]
    assert windows([]) == []


def test_advantages_are_of_a_group() -> None:
    found = advantages([1000, 0, 0, 0, 5, 5, 5, 5], 4)
    assert found[4:] == [0.0] * 4
    assert found[:4] == [
        float(torch.tensor(each / 4e6, dtype=torch.float32)) for each in (3000, -1000, -1000, -1000)
    ]
    with pytest.raises(ValueError, match="a reward above"):
        advantages([10**6 + 1], 1)


def test_rows_are_what_was_written() -> None:
    rows = [Problem((8, 1, 2, 3), b"abc"), Problem((5,), b"\xff"), Problem((0, 4), b"a")]
    task = task_of()
    words = written(rows, TEXTS, task, "uint16")
    assert len(words) == task.words(len(TEXTS))
    read = Problems(words, task, len(TEXTS))
    assert [read.row(i) for i in range(3)] == rows
    assert read.texts() == [text[:32] for text in TEXTS]
    for row in (Problem((1,) * 5, b"a"), Problem((1,), b"abcd")):
        with pytest.raises(ValueError, match="of at most"):
            written([row], TEXTS, task, "uint16")


@pytest.mark.parametrize(("at", "word"), [(0, 0), (0, 5), (1, 9), (5, 0), (5, 4), (6, 256)])
def test_rows_that_are_none_are_refused(at: int, word: int) -> None:
    task = task_of()
    words = written([Problem((8, 1), b"ab")] * 3, TEXTS, task, "uint16")
    words[at] = word
    with pytest.raises(MalformedDataset, match="row 0"):
        Problems(words, task, len(TEXTS)).row(0)


@pytest.mark.parametrize(("at", "word"), [(0, 33), (4, 256)])
def test_texts_that_are_none_are_refused(at: int, word: int) -> None:
    task = task_of()
    words = written([Problem((8, 1), b"ab")] * 3, TEXTS, task, "uint16")
    words[task.prompts * task.row_words + at] = word
    with pytest.raises(MalformedDataset, match="table"):
        Problems(words, task, len(TEXTS)).texts()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"rewards": [ANSWER | {"least": 1, "most": 2}]}, "has no length"),
        ({"rewards": [LENGTH | {"opening": "<"}]}, "has no markers"),
        ({"rewards": [LENGTH | {"least": 4}]}, "at least 4"),
        ({"rewards": [ANSWER | {"opening": "é" * 31}], "answer_bytes": 3}, "65 bytes"),
        ({"rewards": [ANSWER | {"kind": "wit"}]}, "no reward 'wit'"),
        ({"rewards": []}, "at least 1"),
        ({"ends": [2, 1]}, "do not ascend"),
        ({"group": 1}, "greater than or equal to 2"),
    ],
)
def test_tasks_that_are_none_are_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        task_of(**changes)


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [((8, 9, 2), "more than"), ((16, 9, 3), "whole number"), ((16, 1, 2), "end token")],
)
def test_a_task_fits_its_model(sizes: tuple[int, int, int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        task_of().check_model(*sizes)


def test_the_loss_is_a_weighted_sum() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 3, 11, generator=generator)
    targets = torch.tensor([[3, -1, 0], [-1, 10, 5]])
    weights = torch.tensor([[0.5, 9.0, -0.25], [9.0, 0.0, 2.0]])
    results = []
    for ops in (operations(), NativeOps()):
        leaf = logits.clone().requires_grad_()
        loss = ops.policy_loss(leaf, targets, weights)
        results.append((loss.detach(), *torch.autograd.grad(loss, leaf)))
    assert torch.allclose(results[0][0], results[1][0], atol=1e-5)
    assert torch.allclose(results[0][1], results[1][1], atol=1e-6)
    slope = logits.softmax(-1) - F.one_hot(targets.clamp(min=0), 11)
    assert torch.allclose(results[0][1][0, 0], slope[0, 0] * 0.5, atol=1e-6)
    assert not results[0][1][targets < 0].any()
