"""A job's prompts and answers, and its tokens' texts, as words of its data.

Rule of this file: the words are content with a root, as a text's are; a row is read by its number
alone. What a row says is checked when it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atoll.numerics.errors import MalformedDataset
from atoll.numerics.tokens import DTYPES, Tokens, TokenSource
from atoll.protocol.task_spec import TOKEN_BYTES, TaskSpec


@dataclass(frozen=True, slots=True)
class Problem:
    """A prompt's ids, and the bytes of its answer."""

    prompt: tuple[int, ...]
    answer: bytes


@dataclass(frozen=True, slots=True)
class Problems:
    """The rows of a task's data."""

    words: TokenSource
    task: TaskSpec
    vocab: int

    def row(self, index: int) -> Problem:
        """Raises MalformedDataset where its lengths or ids are none."""
        task = self.task
        start = index * task.row_words
        row = self.words[start : start + task.row_words].tolist()
        prompt, rest = row[1 : 1 + task.prompt_tokens], row[1 + task.prompt_tokens :]
        length, answer_length, answer = row[0], rest[0], rest[1:]
        if not 0 < length <= len(prompt) or not 0 < answer_length <= len(answer):
            raise MalformedDataset(f"row {index} of the prompts has no prompt, or no answer")
        if max(prompt) >= self.vocab or max(answer) >= 256:
            raise MalformedDataset(f"row {index} of the prompts has an id or a byte that is none")
        return Problem(tuple(prompt[:length]), bytes(answer[:answer_length]))

    def texts(self) -> list[bytes]:
        """Each token's text, of which rewards know the beginning."""
        start = self.task.prompts * self.task.row_words
        words = self.words[start : start + self.vocab * (1 + TOKEN_BYTES)].astype(np.int64)
        table = words.reshape(self.vocab, 1 + TOKEN_BYTES)
        if table[:, 0].max() > TOKEN_BYTES or table[:, 1:].max() > 255:
            raise MalformedDataset("the table of tokens' texts has a length or a byte that is none")
        return [bytes(row[1 : 1 + row[0]].tolist()) for row in table]


def written(
    problems: Sequence[Problem], texts: Sequence[bytes], task: TaskSpec, dtype: str
) -> Tokens:
    """The words of these rows and texts. Raises ValueError where one does not fit."""
    rows = np.zeros((len(problems), task.row_words), np.int64)
    for row, problem in zip(rows, problems, strict=True):
        _put(row[: 1 + task.prompt_tokens], problem.prompt)
        _put(row[1 + task.prompt_tokens :], problem.answer)
    table = np.zeros((len(texts), 1 + TOKEN_BYTES), np.int64)
    for row, text in zip(table, texts, strict=True):
        _put(row, text[:TOKEN_BYTES])
    return np.concatenate((rows.ravel(), table.ravel())).astype(DTYPES[dtype])


def _put(words: NDArray[np.int64], values: Sequence[int]) -> None:
    if len(values) >= len(words):
        raise ValueError(f"{len(values)} of at most {len(words) - 1}")
    words[0], words[1 : 1 + len(values)] = len(values), list(values)
