"""Nodes of family 7: what a step samples and what that is worth; and their ends in family 5.

Rule of this file: as `state_nodes`. Texts are short and of few letters, so that answers are met;
sums ascend, since a game is only about a node whose inputs are right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from tests.judge.elements import (
    Draw,
    Node,
    Operation,
    Rng,
    integers32,
    integers64,
    raw,
    reals,
    size,
    word64,
)
from tests.judge.state_nodes import (
    Given,
    context,
    context_of,
    digests,
    empty_sources,
    of_bytes,
    result_node,
    tokens_of,
)
from torch import Tensor

from atoll.numerics.trace import rollout_operations as rollouts
from atoll.numerics.trace import states
from atoll.numerics.trace.imports import Reading
from atoll.numerics.trace.opcodes import Op
from atoll.numerics.trace.rollout_operations import CELL_BYTES, TOKEN_WORDS
from atoll.numerics.trace.rollout_operations import tokens_of as words_of

_WIDTH: Final = 2
"""Bytes of a word of the data."""


def _operation(op: Op) -> Operation:
    """As `state_nodes.operation`: the tail stands behind the inputs."""

    def run(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
        *read, tail = inputs
        if op in states.OPERATIONS:
            return states.OPERATIONS[op](words, read, raw(tail))
        if op in rollouts.WITH_TAILS:
            return rollouts.WITH_TAILS[op](words, read, raw(tail))
        if op in rollouts.OPERATIONS:
            return rollouts.OPERATIONS[op](words, read, iteration)
        node = Node(op, tuple(words), tuple(read), iteration)
        return rollouts.READS[op](_reading(node))

    return run


def _reading(node: Node) -> Reading:
    """An import of this family, its sources being the bytes of its inputs."""
    sources, nodes = empty_sources(), list(node.inputs)
    if node.op != Op.CELLS:
        sources = replace(sources, context=context_of(raw(nodes.pop())))
    if node.op in {Op.SEQUENCE, Op.TOKEN}:
        assert sources.context.token is not None
        # The micro-batch is the first of the step: the token's number may say another one.
        generated = nodes.pop()
        count = len(generated) // TOKEN_WORDS
        before = sources.context.token // count * len(generated)
        whole = torch.cat((generated.new_zeros(before), generated))
        sources = replace(sources, generated=whole)
    elif node.op == Op.SAMPLED_IDS:
        done = node.words[0] // 4 * sources.context.step
        sources = replace(sources, sampled=nodes.pop()[:done])
    else:
        data = nodes.pop() if node.op == Op.CELLS else nodes.pop(0)
        sources = replace(sources, tokens=tokens_of(data, _WIDTH))
    return Reading(node.words, node.tail, node.iteration, nodes, sources)


def _of_token(rng: Rng, number: int) -> Tensor:
    """The context of a token's trace."""
    return torch.cat((context(rng), of_bytes(number.to_bytes(32, "big"))))


# ---- rows ----------------------------------------------------------------------------------------


def _row(op: Op) -> Draw:
    """PROMPT or ANSWERS."""

    def draw(rng: Rng, count: int) -> Given:
        ids, answer, rows = size(rng, 1, 40), size(rng, 1, 64), size(rng, 1, 12)
        data = rng.integers(0, 256, rows * (2 + ids + answer)).astype("<u2")
        seq, group = size(rng, 1, 40), size(rng, 2, 5)
        words = (group, ids, answer, _WIDTH, rows)
        if op is Op.PROMPT:
            number = size(rng, 0, 40 * (seq + 1))
            return Given(op, (seq, *words), (of_bytes(data.tobytes()), _of_token(rng, number)))
        inputs = (of_bytes(data.tobytes()), context(rng))
        return Given(op, (size(rng, 1, 5), *words), inputs, size(rng, 0, 7))

    return draw


# ---- a token -------------------------------------------------------------------------------------


def _tokens(rng: Rng, count: int, vocab: int = 9) -> Tensor:
    """Tokens' words: some generated, of which some are not finite."""
    signed = torch.from_numpy(rng.integers(-vocab, vocab, count))
    below = torch.from_numpy(rng.integers(0, 1 << 51, count))
    below = torch.where(torch.from_numpy(rng.integers(0, 9, count)) == 0, -1, below)
    return words_of(signed, below.masked_fill(signed < 0, 0)).flatten()


def _sequence(rng: Rng, count: int) -> Given:
    sequences, seq = size(rng, 1, 4), size(rng, 1, 60)
    tokens = sequences * (seq + 1)
    number = size(rng, 0, 3 * tokens - 1)
    inputs = (_tokens(rng, tokens), _of_token(rng, number))
    return Given(Op.SEQUENCE, (sequences, seq), inputs)


def _row_of(rng: Rng, count: int) -> Given:
    width, seq = size(rng, 1, 60), size(rng, 1, 20)
    number = size(rng, 0, 9 * (seq + 1))
    inputs = (reals(rng, width * seq), _of_token(rng, number))
    return Given(Op.ROW, (width, seq), inputs)


def _sums(rng: Rng, count: int) -> Tensor:
    """Ascending, with runs of equal ones."""
    weights = rng.integers(0, 1 << 30, count) * rng.integers(0, 2, count)
    weights[int(rng.integers(0, count))] += 1 << 30
    return torch.from_numpy(np.cumsum(weights))


def _drawn(rng: Rng, count: int) -> Given:
    vocab, seq = size(rng, 1, 300), size(rng, 1, 20)
    number = size(rng, 0, 300 * (seq + 1))
    return Given(Op.DRAWN, (vocab, seq), (_sums(rng, vocab), _of_token(rng, number)))


def _sample(rng: Rng, count: int) -> Given:
    most = (100, 1000, 20_000, 40_000)[size(rng, 0, 3)]
    vocab = size(rng, 1, most)
    levels = [_sums(rng, vocab)]
    total = int(levels[0][-1])
    while len(levels[-1]) > 128:
        levels.append(levels[-1][::128].clone())
    near = int(levels[0][size(rng, 0, vocab - 1)])
    u = (size(rng, 0, total - 1), max(near - 1, 0), min(near, total - 1), 0)[size(rng, 0, 3)]
    peaks = (1.5, -0.0, float("inf"), float("nan"), -3e38, float("-inf"), 1.0, 7.0)
    peak = torch.tensor([peaks[size(rng, 0, len(peaks) - 1)]])
    return Given(Op.SAMPLE, (vocab,), (torch.tensor([u]), peak, *levels))


def _token(rng: Rng, count: int) -> Given:
    sequences, ids, new = size(rng, 1, 3), size(rng, 1, 5), size(rng, 1, 6)
    seq = ids + new + size(rng, 0, 3)
    tokens = sequences * (seq + 1)
    ends = [size(rng, 0, 8) for _ in range(size(rng, 0, 4))]
    prompt = torch.from_numpy(rng.integers(0, 99, 1 + ids).astype(np.int32))
    prompt[0] = size(rng, 1, ids)
    below = -1 if rng.integers(0, 5) == 0 else int(rng.integers(0, 1 << 51))
    sampled = torch.tensor([size(rng, 0, 99), below])
    number = size(rng, 0, 2 * tokens - 1)
    inputs = (prompt, sampled, _tokens(rng, tokens), _of_token(rng, number))
    return Given(Op.TOKEN, (sequences, seq, ids, new, *ends), inputs)


# ---- what they are worth -------------------------------------------------------------------------


def _blocks_of_tokens(op: Op) -> Draw:
    def draw(rng: Rng, count: int) -> Given:
        columns, block = size(rng, 1, 200), size(rng, 1, 64)
        rows = size(rng, 1, 3)
        return Given(op, (columns, block), (_tokens(rng, rows * columns),))

    return draw


def _cells(rng: Rng, count: int) -> Given:
    first, vocab = size(rng, 0, 50), 9
    data = rng.integers(0, 300, first + 33 * vocab).astype("<u2")
    ids = torch.from_numpy(rng.integers(-vocab, vocab, 6).astype(np.int32))
    return Given(Op.CELLS, (first, _WIDTH), (ids, of_bytes(data.tobytes())))


def _window_bytes(rng: Rng, count: int, most: int) -> Tensor:
    """Windows of up to so many of two letters."""
    made = torch.zeros(count, CELL_BYTES, dtype=torch.uint8)
    for cell in made:
        length = size(rng, 0, most)
        cell[0] = length
        cell[1 : 1 + length] = torch.from_numpy(rng.integers(97, 99, length).astype(np.uint8))
    return made


def _window(rng: Rng, count: int) -> Given:
    columns, rows = size(rng, 2, 6), size(rng, 1, 2)
    words = (columns, size(rng, 1, columns - 1))
    x = _window_bytes(rng, rows * columns, (3, 32, 64)[size(rng, 0, 2)])
    return Given(Op.WINDOW, words, (x.flatten(),))


def _match(rng: Rng, count: int) -> Given:
    columns, rows, answer = size(rng, 1, 40), size(rng, 1, 3), size(rng, 1, 4)
    windows = _window_bytes(rng, rows * columns, (2, 4, 64)[size(rng, 0, 2)])
    answers = torch.zeros(rows, 1 + answer, dtype=torch.uint8)
    for text in answers:
        length = size(rng, 1, answer)
        text[0] = length
        text[1 : 1 + length] = torch.from_numpy(rng.integers(97, 99, length).astype(np.uint8))
    opening, closing = (bytes(rng.integers(97, 99, size(rng, 0, 2)).tolist()) for _ in range(2))
    inputs = (windows.flatten(), answers.flatten())
    return Given(Op.MATCH, (columns, answer, len(opening)), inputs, tail=opening + closing)


def _reward(rng: Rng, count: int) -> Given:
    chained, least = size(rng, 0, 1), size(rng, 0, 3)
    counts = torch.from_numpy(rng.integers(-2, 7, count))
    most = size(rng, least, 6) if rng.integers(0, 2) else (1 << 63) - 1
    before = (torch.from_numpy(rng.integers(-1000, 8001, count)),) * chained
    return Given(Op.REWARD, (size(rng, 1, 1000), least, most, chained), (counts, *before))


def _advantage(rng: Rng, count: int) -> Given:
    group, groups = size(rng, 2, 8), size(rng, 1, 6)
    batch = group * groups
    sequences = int(rng.choice([n for n in range(1, batch + 1) if batch % n == 0]))
    rewards = torch.from_numpy(rng.integers(0, 8001, batch))
    if rng.integers(0, 3) == 0:
        rewards = integers64(rng, batch) >> 20
    words = (sequences, group, word64(1.0 / (10**6 * group)), word64(1.0 / size(rng, 1, 1 << 20)))
    sums = rewards.view(groups, group).sum(-1)
    iteration = size(rng, 0, batch // sequences - 1)
    return Given(Op.ADVANTAGE, words, (rewards, sums), iteration)


def _sampled_ids(rng: Rng, count: int) -> Given:
    """The source is the ids of the steps that the context says, with zeros behind them."""
    words, steps = size(rng, 1, 40), size(rng, 1, 5)
    number = int.from_bytes(raw(given := context(rng))[96:128], "big")
    ids = integers32(rng, words * steps)
    ids[words * number :] = 0
    return Given(Op.SAMPLED_IDS, (4 * words, steps), (ids, given))


# ---- family 5 ------------------------------------------------------------------------------------


def _digest(rng: Rng, count: int) -> Given:
    roots = tuple(digests(rng, 1) for _ in range(3))
    return Given(Op.SAMPLED_DIGEST, (), (*roots, context(rng)))


def _result(rng: Rng, count: int) -> Given:
    plain = result_node(rng, count)
    drawn = integers64(rng, plain.words[0])
    infinite = torch.tensor([int(rng.integers(0, 3)) // 2])
    return Given(Op.SAMPLED_RESULT, plain.words, (*plain.inputs, drawn, infinite))


NODES: Final[Mapping[int, Draw]] = {
    Op.SAMPLED_DIGEST: _digest,
    Op.SAMPLED_RESULT: _result,
    Op.PROMPT: _row(Op.PROMPT),
    Op.SEQUENCE: _sequence,
    Op.ROW: _row_of,
    Op.DRAWN: _drawn,
    Op.SAMPLE: _sample,
    Op.TOKEN: _token,
    Op.SUM_BELOW: _blocks_of_tokens(Op.SUM_BELOW),
    Op.COUNT_INFINITE: _blocks_of_tokens(Op.COUNT_INFINITE),
    Op.ANSWERS: _row(Op.ANSWERS),
    Op.CELLS: _cells,
    Op.WINDOW: _window,
    Op.MATCH: _match,
    Op.REWARD: _reward,
    Op.ADVANTAGE: _advantage,
    Op.SAMPLED_IDS: _sampled_ids,
}
"""All but GENERATED, which no contract computes."""
OPERATIONS: Final[Mapping[int, Operation]] = {op: _operation(Op(op)) for op in NODES}
