"""What a game is about, and the messages of it: claims, moves, proofs.

Rule of this file: fields and their order are those of the structs and functions of
`contracts/src/judge`, so that a move is one transaction's arguments.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final, TypeAlias

from atoll.protocol.checkpoint_commitments import StateRoots
from atoll.protocol.hashing import hash_fields
from atoll.protocol.types import ZERO_DIGEST, Address, Digest, Wei

_ONE = Wei(1)
TOKEN_BYTES: Final = 16
"""Of a generated token: its id, 0, and the weight below."""
GENERATED: Final = 0x0701
"""The operation without a formula (`Op.GENERATED`)."""
CLAIM_TYPE = (
    "(address,bytes32,bytes32,bytes32,bool,uint16,uint32,uint32,"
    "bytes32,bytes32,bytes32,bytes32,bytes32,bytes32,bytes32,"
    "uint64,uint128,uint32,uint32,uint32)"
)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a holder said of a segment or of its update proof; `IClaims.sol` says what each field
    is."""

    holder: Address
    set: Digest
    position: Digest
    program: Digest
    is_update_proof: bool
    seat: int
    round: int
    segment: int
    data_seed: Digest
    initial_state: Digest
    closing: Digest = ZERO_DIGEST
    work_tag: Digest = ZERO_DIGEST
    update_root: Digest = ZERO_DIGEST
    model_params: Digest = ZERO_DIGEST
    model_exponents: Digest = ZERO_DIGEST
    window_end: int = 0
    lowest_bond: Wei = _ONE
    holder_seconds: int = 0
    challenger_seconds: int = 0
    move_seconds: int = 0

    @property
    def hash(self) -> Digest:
        """keccak256(abi.encode(Claim)), which the game keeps."""
        return hash_fields((CLAIM_TYPE,), (astuple(self),))


@dataclass(frozen=True, slots=True)
class ProgramPart:
    """Bytes of the program (index 0 the header, then templates), with their path in its tree."""

    data: bytes
    index: int
    count: int
    path: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class Opening:
    """Whole pieces (or chunks) of an input, their siblings, and the input's path in the trace."""

    data: bytes = b""
    siblings: tuple[Digest, ...] = ()
    path: tuple[Digest, ...] = ()


@dataclass(frozen=True, slots=True)
class Proof:
    """The last move's evidence; `Judge.sol` says what each field is."""

    element: int
    word: Digest
    word_path: tuple[Digest, ...]
    roots: StateRoots
    header: bytes
    template: bytes
    openings: tuple[Opening, ...]


@dataclass(frozen=True, slots=True)
class OpenSteps:
    """Holder: states after each step, and what the work tag hashes."""

    header: ProgramPart
    states: tuple[Digest, ...]
    works: bytes


@dataclass(frozen=True, slots=True)
class PickStep:
    """Challenger: the first step that differs; `start` is the digest that it opens with."""

    step: int
    start: Digest
    result: Digest
    path: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class PostTrace:
    """Holder: the path of the trace's last node, and the first layer."""

    path: tuple[Digest, ...]
    layer: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class PostUpdateProof:
    """Holder: the same for an update proof, whose last node are the update's bytes.

    Attributes:
        roots: of the last state, which has the optimiser root that was revealed.
    """

    header: ProgramPart
    template: ProgramPart
    roots: StateRoots
    pieces: Digest
    path: tuple[Digest, ...]
    layer: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class Pick:
    """Challenger: the first node of the layer that differs, with its path to the one above."""

    child: int
    node: Digest
    path: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class PickNode:
    """Challenger: the first node of the trace that differs, with its template."""

    child: int
    digest: Digest
    path: tuple[Digest, ...]
    template: ProgramPart


@dataclass(frozen=True, slots=True)
class Reveal:
    """Holder: the layer below the node in dispute."""

    layer: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class PostLeaf:
    """Holder: the bytes of the leaf in dispute."""

    leaf: bytes


@dataclass(frozen=True, slots=True)
class PickToken:
    """Challenger: the first token of the leaf that differs, of a node without a formula.

    Attributes:
        header, template: bytes; the node's.
        token: within the node; `word` of the leaf holds it.
        digest: of the node, with its path in the trace.
    """

    header: bytes
    template: bytes
    token: int
    word: Digest
    word_path: tuple[Digest, ...]
    digest: Digest
    path: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class Prove:
    """Challenger: one element, and everything that it is computed from."""

    proof: Proof


Move: TypeAlias = (
    OpenSteps
    | PickStep
    | PostTrace
    | PostUpdateProof
    | Pick
    | PickNode
    | PickToken
    | Reveal
    | PostLeaf
    | Prove
)
