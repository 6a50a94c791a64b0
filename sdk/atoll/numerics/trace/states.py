"""Family 5 of the trace: the digest of the state after a step, and what the step comes to.

Rule of this file: the SHA-256 tree is that of `bits.tensors`, a level a node. Digests are uint8, 32
bytes each. One that is zero says that a parameter was not bounded (S8), and stays zero upwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from atoll.numerics.init import PARAMETER_LIMIT
from atoll.numerics.kernels.keccak import DIGEST_BYTES
from atoll.numerics.state import rng_digest
from atoll.numerics.tensors import CHUNK_BYTES
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.checkpoint_commitments import StateRoots, rollouts_digest
from atoll.protocol.hashing import sha256 as sha256_digest
from atoll.protocol.merkle import LEAF, NODE, seal
from atoll.protocol.types import ZERO_DIGEST, Digest

Operation: TypeAlias = Callable[[Sequence[int], Sequence[Tensor], bytes], Tensor]
"""(words, inputs as flat tensors, tail) → the node's flat tensor."""
_CONTEXT_STEP, _CONTEXT_BUFFERS = 3 * 32, 8 * 32


def chunks(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    (x,) = inputs
    raw, prefix = x.view(torch.uint8).numpy().data, sha256(tail)
    digests = []
    for index, start in enumerate(range(0, words[0], CHUNK_BYTES)):
        chunk = prefix.copy()
        chunk.update(index.to_bytes(8, "big"))
        chunk.update(raw[start : start + CHUNK_BYTES])
        digests.append(chunk.digest())
    if words[1]:
        beyond = (~(x.abs() < PARAMETER_LIMIT)).nonzero().flatten() // (CHUNK_BYTES // 4)
        for index in set(beyond.tolist()):
            digests[index] = ZERO_DIGEST
    return _of(digests)


def tree_leaves(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    return _of([_sealed(LEAF, [leaf]) for leaf in _digests(inputs[0])])


def tree_level(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    below = _digests(inputs[0])
    pairs = (below[i : i + 2] for i in range(0, words[0], 2))
    return _of([_sealed(NODE, pair) if len(pair) == 2 else pair[0] for pair in pairs])


def tree_root(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    (top,) = _digests(inputs[0])
    return _of([ZERO_DIGEST if top == ZERO_DIGEST else seal(words[0], top, sha256_digest)])


def _sealed(tag: bytes, parts: Sequence[bytes]) -> bytes:
    if ZERO_DIGEST in parts:
        return ZERO_DIGEST
    return sha256(tag + b"".join(parts)).digest()


def state_digest(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    params, optimiser = (Digest(_bytes(x)) for x in inputs[:2])
    if params == ZERO_DIGEST:
        return _of([ZERO_DIGEST])
    context = _bytes(inputs[2])
    step = int.from_bytes(context[_CONTEXT_STEP : _CONTEXT_STEP + 32], "big")
    buffers = Digest(context[_CONTEXT_BUFFERS : _CONTEXT_BUFFERS + 32])
    return _of([StateRoots(params, optimiser, buffers, rng_digest(step + 1)).digest()])


def sampled_digest(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    params, optimiser, ids = (Digest(_bytes(x)) for x in inputs[:3])
    if params == ZERO_DIGEST:
        return _of([ZERO_DIGEST])
    context = _bytes(inputs[3])
    step = int.from_bytes(context[_CONTEXT_STEP : _CONTEXT_STEP + 32], "big")
    # A state that goes on has the ids of the round before, with which this one's do not begin.
    before = Digest(context[_CONTEXT_BUFFERS : _CONTEXT_BUFFERS + 32]) if step else ZERO_DIGEST
    roots = StateRoots(params, optimiser, rollouts_digest(before, ids), rng_digest(step + 1))
    return _of([roots.digest()])


def sampled_result(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    *outcome, drawn, infinite = inputs
    whole = _bytes(result(words, outcome, tail))
    shown = ZERO_DIGEST if int(infinite) else whole[:DIGEST_BYTES]
    losses = [whole[at : at + 4] for at in range(DIGEST_BYTES + 8, len(whole), 4)]
    words_ = drawn.numpy().astype(">i8").tobytes()
    pairs = [loss + words_[8 * at : 8 * at + 8] for at, loss in enumerate(losses)]
    numbers = whole[DIGEST_BYTES : DIGEST_BYTES + 8] + b"".join(pairs)
    return _of([shown, numbers]).view(torch.int32)


def result(words: Sequence[int], inputs: Sequence[Tensor], tail: bytes) -> Tensor:
    digest, norm, losses, most = inputs
    finite = bool(norm.isfinite().all() and most.isfinite().all())
    shown = _bytes(digest) if finite else ZERO_DIGEST
    numbers = norm.numpy().astype(">f8").tobytes() + losses.numpy().astype(">f4").tobytes()
    return _of([shown, numbers]).view(torch.int32)


def _digests(x: Tensor) -> list[bytes]:
    data = _bytes(x)
    return [data[i : i + DIGEST_BYTES] for i in range(0, len(data), DIGEST_BYTES)]


def _bytes(x: Tensor) -> bytes:
    return x.numpy().tobytes()


def _of(parts: Sequence[bytes]) -> Tensor:
    return torch.from_numpy(np.frombuffer(b"".join(parts), np.uint8).copy())


OPERATIONS: Final[dict[int, Operation]] = {
    Op.CHUNKS: chunks,
    Op.TREE_LEAVES: tree_leaves,
    Op.TREE_LEVEL: tree_level,
    Op.TREE_ROOT: tree_root,
    Op.STATE_DIGEST: state_digest,
    Op.RESULT: result,
    Op.SAMPLED_DIGEST: sampled_digest,
    Op.SAMPLED_RESULT: sampled_result,
}
