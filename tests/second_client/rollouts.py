"""What a step samples, and by how much it is learned: SPEC.md, chapters 24 and 25."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.second_client.arithmetic import Array, exp, largest, narrow, one_nan, philox, rint, wide
from tests.second_client.kernels import Ids
from tests.second_client.state import tree_root
from tests.second_client.words import sample_key, sha256, step_draws

Plain = dict[str, Any]
Logits = Callable[[Ids], Array]
"""Of ids [1, T] all rows [T, V]."""
MILLION = 10**6
TEXT_WORDS = 33


@dataclass(frozen=True)
class Rollouts:
    """A step's sequences.

    Attributes:
        signed: ids [B, T + 1], −1 − id where none was generated.
        weights: a of each generated id that follows a position, [B, T]; 0 where none does.
        drawn: of each micro-batch.
    """

    signed: Ids
    weights: Array
    drawn: list[int]
    is_finite: bool

    def after(self, before: bytes) -> bytes:
        """The buffers root after the step."""
        return sha256(b"atoll.rollouts.v1" + before + tree_root({"ids": self.signed.astype("<i4")}))


def sampled(manifest: Plain, words: Any, logits: Logits, place: tuple[Any, int, int]) -> Rollouts:
    """R1 to R4; `place`: the seat, the step in its round, and over the whole job."""
    task, inner, model = (manifest[name] for name in ("task", "inner", "model"))
    seat, step, index = place
    groups = inner["batch"] // task["group"]
    drawn_rows = step_draws(*seat, step, groups, task["prompts"])
    rows = [read_row(words, task, row) for row in drawn_rows for _ in range(task["group"])]
    key, made = sample_key(*seat), []
    for at, (prompt, _) in enumerate(rows):
        made.append(generated(prompt, task, model["seq"], logits, (key, at, index)))
    texts = read_texts(words, task, model["vocab"])
    worth = [
        reward(ids[len(prompt) :], answer, task, texts)
        for (ids, _, _), (prompt, answer) in zip(made, rows, strict=True)
    ]
    a = advantages(worth, task["group"], inner["batch"] * task["new_tokens"])
    signed = np.full((inner["batch"], model["seq"] + 1), -1, np.int64)
    weights = np.zeros((inner["batch"], model["seq"]), np.float32)
    for at, ((ids, _, _), (prompt, _)) in enumerate(zip(made, rows, strict=True)):
        signed[at, : len(ids)] = ids
        signed[at, : len(prompt)] = ~signed[at, : len(prompt)]
        weights[at, len(prompt) - 1 : len(ids) - 1] = a[at]
    size = inner["micro_batch"]
    below = [sum(each[1] for each in made[at : at + size]) for at in range(0, len(made), size)]
    return Rollouts(signed, weights, [n % 2**64 for n in below], all(each[2] for each in made))


# ------------------------------------------------------------------------------------ the data


def read_row(words: Any, task: Plain, row: int) -> tuple[list[int], bytes]:
    """A prompt's ids and its answer."""
    size = 2 + task["prompt_tokens"] + task["answer_bytes"]
    count, *rest = (int(word) for word in words[row * size : (row + 1) * size])
    ids, (length, *answer) = rest[: task["prompt_tokens"]], rest[task["prompt_tokens"] :]
    if not (0 < count <= len(ids) and 0 < length <= len(answer)):
        raise ValueError("a row without a prompt or an answer")
    return ids[:count], bytes(answer[:length])


def read_texts(words: Any, task: Plain, vocab: int) -> list[bytes]:
    """Every token's text."""
    first = task["prompts"] * (2 + task["prompt_tokens"] + task["answer_bytes"])
    table = words[first : first + TEXT_WORDS * vocab].astype(np.int64).reshape(vocab, TEXT_WORDS)
    return [bytes(int(byte) for byte in row[1 : 1 + row[0]]) for row in table]


# ---------------------------------------------------------------------------------- generation


def generated(
    prompt: Sequence[int], task: Plain, seq: int, logits: Logits, draw: tuple[Any, int, int]
) -> tuple[list[int], int, bool]:
    """G1 to G6: prompt and answer, the sum of the weights below, and whether it is finite.

    `draw`: the key, the sequence's place in the batch, and the step.
    """
    ids, below, is_finite = list(prompt), 0, True
    while len(ids) < min(len(prompt) + task["new_tokens"], seq + 1):
        row = np.zeros((1, seq), np.int64)
        row[0, : len(ids)] = ids
        z = logits(row)[len(ids) - 1]
        most = largest(z[None])[0, 0]
        if np.isfinite(most):
            token, weight = sample(z, most, (len(ids) - 1, *draw))
        else:
            token, weight, is_finite = 0, 0, False
        ids.append(token)
        below += weight
        if token in task["ends"]:
            break
    return ids, below, is_finite


def sample(z: Array, most: Any, draw: tuple[int, Any, int, int]) -> tuple[int, int]:
    """G3 and G4: the id and its weight below."""
    row, key, place, step = draw
    weights = rint(exp(one_nan(z - most)) * np.float32(2.0**30)).astype(np.int64).tolist()
    high, low, _, _ = (int(word) for word in philox((row, place, step % 2**32, 1), key))
    u = (high << 32 | low) * sum(weights) >> 64
    below = 0
    for token, weight in enumerate(weights):
        if below + weight > u:
            return token, below
        below += weight
    raise AssertionError("u is below the sum")


# ------------------------------------------------------------------------------------- rewards


def reward(ids: Sequence[int], answer: bytes, task: Plain, texts: Sequence[bytes]) -> int:
    """R3."""
    cells, total = [texts[token] for token in ids], 0
    for each in task["rewards"]:
        if each["kind"] == "length":
            is_met = each["least"] <= len(ids) <= each["most"]
        else:
            wanted = each["opening"].encode() + answer + each["closing"].encode()
            ends = (b"".join(cells[at:]) for at in range(len(cells)))
            is_met = any(text.startswith(wanted) for text in ends)
        total += each["weight"] * is_met
    return total


def advantages(worth: Sequence[int], group: int, tokens: int) -> list[np.float32]:
    """R4; `tokens`: B · new_tokens."""
    found = []
    for at in range(0, len(worth), group):
        members = worth[at : at + group]
        for r in members:
            wide_a = np.array(group * r - sum(members), np.float64) * (1.0 / (MILLION * group))
            found.append(np.float32(wide(narrow(wide_a)) * (1.0 / tokens)))
    return found
