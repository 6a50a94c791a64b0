"""Computing one element of one node from what is opened of its inputs.

Rule of this file: it decides as `contracts/src/judge/Judge.sol` does; which operation computes what
is behind `Operations`, as it is behind `IOneStep` there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

from atoll.protocol.checkpoint_commitments import rollouts_digest
from atoll.protocol.games.moves import Claim, Opening, Proof
from atoll.protocol.games.trees import CHUNK, PIECE, WrongOpening, fold, height, parts, root_from
from atoll.protocol.games.trees import piece_root as shown_root
from atoll.protocol.hashing import sha256 as sha256_digest
from atoll.protocol.merkle import LEAF, seal
from atoll.protocol.program import Input, Source, TraceHeader, TraceTemplate
from atoll.protocol.types import ZERO_DIGEST, Digest

MAX_OPENINGS: Final = 8
_OPTIMISER: Final = 1


class Need(NamedTuple):
    """Bytes offset … offset + length − 1 of an input's tensor; length 0: nothing more."""

    input: int
    offset: int
    length: int


class Operations(Protocol):
    """`IOneStep`, of all families. Errors of an operation's own are ValueErrors."""

    def need(self, op: int, attributes: bytes, element: int, opened: Sequence[bytes]) -> Need:
        """What has to be opened next."""

    def run(self, op: int, attributes: bytes, element: int, opened: Sequence[bytes]) -> bytes:
        """The element of the output."""


@dataclass(frozen=True, slots=True)
class Disputed:
    """The node in dispute, as the game has come to know it.

    Attributes:
        start: digest of the state that the step opens with.
        trace: root of the holder's trace, which has so many `nodes`.
        step: in the round.
        generated: in a token's trace the digest of the node that the token is of; else zero.
        token: its number in the step's batch.
    """

    start: Digest
    trace: Digest
    nodes: int
    node: int
    step: int
    generated: Digest = ZERO_DIGEST
    token: int = 0


def context_of(disputed: Disputed, claim: Claim, proof: Proof) -> bytes:
    """The twelve words that the game knows itself; thirteen in a token's trace.

    Raises WrongOpening where the state roots are not those of the step's initial state.
    """
    if proof.roots.digest() != disputed.start:
        raise WrongOpening("the roots are of another state")
    steps = TraceHeader.from_bytes(proof.header).steps
    numbers = (claim.seat, claim.round, disputed.step, claim.round * steps + disputed.step)
    words = (
        claim.data_seed,
        *(number.to_bytes(32, "big") for number in numbers),
        disputed.start,
        *proof.roots,
        claim.model_params,
        claim.model_exponents,
    )
    token = b"" if disputed.generated == ZERO_DIGEST else disputed.token.to_bytes(32, "big")
    return b"".join(words) + token


def compute(disputed: Disputed, claim: Claim, proof: Proof, operations: Operations) -> bytes:
    """The element as the program computes it from the inputs.

    Raises ValueError (WrongOpening among them) where they are not opened as it needs them.
    """
    template = TraceTemplate.from_bytes(proof.template)
    iteration = template.iteration(disputed.node)
    if iteration is None or len(proof.openings) > MAX_OPENINGS:
        raise WrongOpening("not the node's template, or too much is opened")
    attributes = template.attributes(iteration)
    context = context_of(disputed, claim, proof)
    opened: list[bytes] = []
    while True:
        need = operations.need(template.op, attributes, proof.element, tuple(opened))
        if need.length == 0:
            break
        if len(opened) == len(proof.openings) or need.input >= len(template.inputs):
            raise WrongOpening(f"opening {len(opened)} is missing")
        source = template.inputs[need.input]
        if need.offset + need.length > source.size:
            raise WrongOpening(f"bytes {need.offset} + {need.length} of {source.size}")
        if source.source == Source.CONTEXT:
            opened.append(_within(context, 0, need))
        else:
            opening = proof.openings[len(opened)]
            opened.append(_opened(_Case(disputed, claim, proof, template), opening, source, need))
    if len(opened) != len(proof.openings):
        raise WrongOpening(f"{len(proof.openings)} openings where {len(opened)} are needed")
    return operations.run(template.op, attributes, proof.element, tuple(opened))


class _Case(NamedTuple):
    disputed: Disputed
    claim: Claim
    proof: Proof
    template: TraceTemplate


def _opened(case: _Case, opening: Opening, source: Input, need: Need) -> bytes:
    header = TraceHeader.from_bytes(case.proof.header)
    match source.source:
        case Source.TRACE:
            return _of_trace(case, opening, source, need)
        case Source.TOKENS | Source.TABLES | Source.GENERATED:
            root, size = {
                Source.TOKENS: (header.data_root, header.train_tokens * header.token_bytes),
                Source.TABLES: (header.tables_root, header.tables_bytes),
                Source.GENERATED: (case.disputed.generated, source.size),
            }[source.source]
            return _of_pieces(root, size, opening, need)
        case Source.SAMPLED:
            return _of_sampled(case, opening, need)
        case Source.EXPONENTS:
            if sha256(opening.data).digest() != case.claim.model_exponents:
                raise WrongOpening("other exponents")
            return _within(opening.data, 0, need)
    return _of_state(case, opening, source, need)


def _of_state(case: _Case, opening: Opening, source: Input, need: Need) -> bytes:
    if source.source == Source.BASE:
        root = TraceHeader.from_bytes(case.proof.header).base_root
    elif source.source == Source.MODEL:
        root = case.claim.model_params
    else:
        which = case.template.words[2]
        root = case.proof.roots[which]
        if which == _OPTIMISER and root == ZERO_DIGEST:
            return bytes(need.length)  # moments that nobody has moved yet
    return _of_chunks(root, case.template, opening, source, need)


def _of_trace(case: _Case, opening: Opening, source: Input, need: Need) -> bytes:
    disputed = case.disputed
    iteration = case.template.iteration(disputed.node) or 0
    node = source.node + iteration * source.stride
    first = need.offset // PIECE
    digest = shown_root(opening.data, first, source.size, opening.siblings)
    if root_from(digest, node, disputed.nodes, opening.path) != disputed.trace:
        raise WrongOpening(f"node {node} is another")
    return _within(opening.data, first * PIECE, need)


def _of_sampled(case: _Case, opening: Opening, need: Need) -> bytes:
    """Ids of a step, whose place in the chain the roots behind it say."""
    size = case.template.words[0]
    step, inside = divmod(need.offset, size)
    if not opening.path or step + len(opening.path) != case.disputed.step:
        raise WrongOpening("ids of another step")
    first = inside // CHUNK
    chunks = parts(opening.data, first, size, CHUNK)
    numbered = enumerate(chunks, first)
    hashes = [sha256_digest(case.template.tail + i.to_bytes(8, "big") + c) for i, c in numbered]
    nodes = [sha256_digest(LEAF + each) for each in hashes]
    leaves = -(-size // CHUNK)
    node = fold(nodes, first, leaves, height(leaves), opening.siblings, hash=sha256_digest)
    before, *behind = opening.path
    chain = rollouts_digest(before, seal(leaves, node, sha256_digest))
    for root in behind:
        chain = rollouts_digest(chain, root)
    if chain != case.proof.roots.buffers_root:
        raise WrongOpening("ids of another state")
    return _within(opening.data, step * size + first * CHUNK, need)


def _of_pieces(root: Digest, size: int, opening: Opening, need: Need) -> bytes:
    first = need.offset // PIECE
    if shown_root(opening.data, first, size, opening.siblings) != root:
        raise WrongOpening("pieces of something else")
    return _within(opening.data, first * PIECE, need)


def _of_chunks(
    root: Digest, template: TraceTemplate, opening: Opening, source: Input, need: Need
) -> bytes:
    first = need.offset // CHUNK
    begin, leaves = template.words[:2]
    chunks = parts(opening.data, first, source.size, CHUNK)
    numbered = enumerate(chunks, first)
    hashes = [sha256_digest(template.tail + i.to_bytes(8, "big") + c) for i, c in numbered]
    nodes = [sha256_digest(LEAF + each) for each in hashes]
    siblings = opening.siblings
    node = fold(nodes, begin + first, leaves, height(leaves), siblings, hash=sha256_digest)
    if seal(leaves, node, sha256_digest) != root:
        raise WrongOpening("chunks of another state")
    return _within(opening.data, first * CHUNK, need)


def _within(data: bytes, start: int, need: Need) -> bytes:
    part = data[need.offset - start : need.offset - start + need.length]
    if len(part) != need.length:
        raise WrongOpening(f"{len(part)} of {need.length} bytes are shown")
    return part
