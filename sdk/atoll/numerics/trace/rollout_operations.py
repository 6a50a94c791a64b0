"""Family 7 of the trace: what a step samples, what that is worth, and how much it is learned.

Rule of this file: as in `integers`; RolloutSteps.sol gives any element alone. GENERATED is the one
operation without a formula: of each token there is a trace of its own, which ends with TOKEN.

Shapes: b sequences of T + 1 tokens, V vocabulary, P ids of a prompt, A bytes of an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from atoll.numerics.generate import NOT_FINITE
from atoll.numerics.kernels.philox import LOW32
from atoll.numerics.sampling import Draw, Row, drawn_weights
from atoll.numerics.trace.imports import ImportContext, Read, Reading
from atoll.numerics.trace.integers import Operation, float64
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.draws import batch_offsets, sample_key
from atoll.protocol.task_spec import TOKEN_BYTES, WINDOW_BYTES
from atoll.protocol.types import Digest, SeatIndex

TOKEN_WORDS: Final = 4
"""Of a token in GENERATED's node: the id, 0, and the weight below in two."""
CELL_BYTES: Final = 1 + WINDOW_BYTES
"""Of a window: how many bytes it has, and they."""


# ---- a token of its own trace --------------------------------------------------------------------


class _Numbered(NamedTuple):
    """A token by its sequence in the step's batch, and its place there."""

    sequence: int
    place: int

    @classmethod
    def of(cls, context: ImportContext, seq: int) -> _Numbered:
        assert context.token is not None  # the context of a token's trace has it
        return cls(*divmod(context.token, seq + 1))


def _context(r: Reading) -> ImportContext:
    return r.sources.context


def _generated(r: Reading) -> Tensor:
    sequences, seq = r.words
    size = sequences * (seq + 1) * TOKEN_WORDS
    return r.sources.generated.flatten()[r.iteration * size :][:size]


def _row(r: Reading, sequence: int, group: int, rows: int, words: int) -> Tensor:
    """The row of the data that a sequence's prompt and answer have: so many words, int64."""
    c, draw = _context(r), sequence // group
    index = batch_offsets(c.data_seed, c.seat, c.step, draw + 1, rows)[draw]
    row = r.sources.tokens[index * words : (index + 1) * words]
    return torch.from_numpy(row.astype(np.int64))


def _prompt(r: Reading) -> Tensor:
    seq, group, ids, answer, _, rows = r.words
    sequence = _Numbered.of(_context(r), seq).sequence
    return _row(r, sequence, group, rows, 2 + ids + answer)[: 1 + ids].to(torch.int32)


def _answers(r: Reading) -> Tensor:
    sequences, group, ids, answer, _, rows = r.words
    first = r.iteration * sequences
    made = [_row(r, first + i, group, rows, 2 + ids + answer)[1 + ids :] for i in range(sequences)]
    return torch.cat(made).to(torch.uint8)


def _sequence(r: Reading) -> Tensor:
    _, seq = r.words
    token = _Numbered.of(_context(r), seq)
    signed = _tokens(r)[token.sequence, :seq, 0]
    ids = torch.where(signed < 0, ~signed, signed)
    return torch.where(torch.arange(seq) < token.place, ids, 0).to(torch.int32)


def _tokens(r: Reading) -> Tensor:
    """The step's tokens [B, T + 1, 4]."""
    return r.sources.generated.view(-1, r.words[1] + 1, TOKEN_WORDS)


def _token(r: Reading) -> Tensor:
    _, seq, _, new, *ends = r.words
    prompt, sampled = r.inputs[:2]
    token = _Numbered.of(_context(r), seq)
    length, place = int(prompt[0]), token.place
    if place < length:
        return _words_of(~int(prompt[1 + place]), 0)
    before = int(_tokens(r)[token.sequence, place - 1, 0]) if place else 0
    is_over = place > length and (before < 0 or before in ends)
    if is_over or place >= length + new:
        return _words_of(~0, 0)
    return _words_of(*sampled.tolist())


def _words_of(signed: int, below: int) -> Tensor:
    """A token's four words, i32."""
    words = np.array([signed & LOW32, below], np.int64)
    return torch.from_numpy(words.view(np.int32).copy())


def tokens_of(signed: Tensor, below: Tensor) -> Tensor:
    """Tokens' words i32 [..., 4] from int64 ids and weights below of the same shape."""
    pairs = torch.stack((signed & LOW32, below), dim=-1).contiguous()
    return pairs.view(torch.int32)


def row(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    width, seq = words
    _, place = _number_of(inputs[1], seq)
    return inputs[0].view(seq, width)[max(place, 1) - 1].clone()


def drawn(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """⌊word · total / 2⁶⁴⌋, with the word of Philox that the token's place says."""
    _, seq = words
    context = inputs[1].numpy().tobytes()
    sequence, place = _number_of(inputs[1], seq)
    seat = SeatIndex(int.from_bytes(context[32:64], "big"))
    key = sample_key(Digest(context[:32]), seat)
    at = Row(torch.tensor([max(place, 1) - 1]), torch.tensor([sequence]))
    draw = Draw(key, int.from_bytes(context[128:160], "big"))
    return drawn_weights(at, draw, inputs[0][-1:])


def _number_of(context: Tensor, seq: int) -> tuple[int, int]:
    """Sequence and place of the token that a context is of."""
    return divmod(int.from_bytes(context.numpy().tobytes()[12 * 32 :], "big"), seq + 1)


def sample(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    """The further inputs are for whoever works out one element, as of LOWER_BOUND."""
    u, peak, prefix = inputs[:3]
    if not bool(peak.isfinite()):
        return torch.tensor([0, NOT_FINITE])
    index = int(torch.searchsorted(prefix, u, right=True))
    return torch.tensor([index, int(prefix[index - 1]) if index else 0])


# ---- what they are worth -------------------------------------------------------------------------


def _below(x: Tensor) -> Tensor:
    """The weights below of tokens, int64."""
    return x.view(-1, TOKEN_WORDS)[:, 2:].contiguous().view(torch.int64).flatten()


def _summed(x: Tensor, columns: int, block: int) -> Tensor:
    parts = torch.split(x.view(-1, columns), block, dim=1)
    return torch.stack([part.sum(-1) for part in parts], dim=1).flatten()


def sum_below(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    below = _below(inputs[0])
    return _summed(below.masked_fill(below == NOT_FINITE, 0), *words)


def count_infinite(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    return _summed((_below(inputs[0]) == NOT_FINITE).long(), *words)


def _cells(r: Reading) -> Tensor:
    first, _ = r.words
    made = torch.zeros(len(r.inputs[0]), CELL_BYTES, dtype=torch.uint8)
    for index, token in enumerate(r.inputs[0].tolist()):
        if token >= 0:
            at = first + (1 + TOKEN_BYTES) * token
            text = r.sources.tokens[at : at + 1 + TOKEN_BYTES].astype(np.uint8)
            made[index, : 1 + TOKEN_BYTES] = torch.from_numpy(text)
    return made.flatten()


def window(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    columns, distance = words
    x = inputs[0].view(-1, columns, CELL_BYTES)
    made = x.clone()
    for near, far in zip(made[:, : columns - distance], x[:, distance:], strict=True):
        for a, b in zip(near, far, strict=True):
            text = _text(a) + _text(b)
            a[:] = _cell(text[:WINDOW_BYTES])
    return made.flatten()


def _text(cell: Tensor) -> bytes:
    return cell[1 : 1 + int(cell[0])].numpy().tobytes()


def _cell(text: bytes) -> Tensor:
    return torch.frombuffer(
        bytearray((bytes([len(text)]) + text).ljust(CELL_BYTES, b"\0")), dtype=torch.uint8
    )


def match(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    columns, answer, opening = words
    windows_RC = inputs[0].view(-1, columns, CELL_BYTES)
    answers = inputs[1].view(-1, 1 + answer)
    made = torch.full(windows_RC.shape[:2], -1, dtype=torch.int32)
    for row_, text in enumerate(answers):
        wanted = tail[:opening] + _text(text) + tail[opening:]
        for column, cell in enumerate(windows_RC[row_]):
            if _text(cell).startswith(wanted):
                made[row_, column] = 0
    return made.flatten()


def reward(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    weight, least, most, chained = words
    count = inputs[0]
    fulfilled = torch.where((count >= least) & (count <= most), weight, 0)
    return fulfilled + inputs[1] if chained else fulfilled


def advantage(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
    sequences, group, factor, share = words
    sums = inputs[1].repeat_interleave(group)
    wide = inputs[0].double() * float(group) - sums.double()
    each = (wide * float64(factor)).float().double() * float64(share)
    return each.float()[iteration * sequences :][:sequences]


def _sampled_ids(r: Reading) -> Tensor:
    size, steps = r.words
    made = r.sources.sampled.view(torch.int32)
    return torch.nn.functional.pad(made, (0, size * steps // 4 - len(made)))


READS: Final[dict[int, Read]] = {
    Op.GENERATED: _generated,
    Op.PROMPT: _prompt,
    Op.SEQUENCE: _sequence,
    Op.TOKEN: _token,
    Op.ANSWERS: _answers,
    Op.CELLS: _cells,
    Op.SAMPLED_IDS: _sampled_ids,
}
"""Those that read sources."""
OPERATIONS: Final[dict[int, Operation]] = {
    Op.ROW: row,
    Op.DRAWN: drawn,
    Op.SAMPLE: sample,
    Op.SUM_BELOW: sum_below,
    Op.COUNT_INFINITE: count_infinite,
    Op.WINDOW: window,
    Op.REWARD: reward,
    Op.ADVANTAGE: advantage,
}
WITH_TAILS: Final[dict[int, Callable[[Sequence[int], Sequence[Tensor], bytes], Tensor]]] = {
    Op.MATCH: match
}
