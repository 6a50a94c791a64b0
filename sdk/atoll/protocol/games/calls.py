"""Moves as a transaction's calldata.

Rule of this file: signatures are those of `Game.sol`; a move's fields are its arguments, behind the
game's id and, where the contract asks for it again, the claim.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import Final

from eth_abi.abi import encode

from atoll.protocol.games.moves import (
    CLAIM_TYPE,
    Claim,
    Move,
    OpenSteps,
    Pick,
    PickNode,
    PickStep,
    PickToken,
    PostLeaf,
    PostTrace,
    PostUpdateProof,
    Prove,
    Reveal,
)
from atoll.protocol.hashing import keccak256

_PART: Final = "(bytes,uint256,uint256,bytes32[])"
_OPENING: Final = "(bytes,bytes32[],bytes32[])"
_PROOF: Final = f"(uint256,bytes32,bytes32[],bytes32[4],bytes,bytes,{_OPENING}[])"
_GENERATED: Final = "(bytes,bytes,uint256,bytes32,bytes32[],bytes32,bytes32[])"
_SIGNATURES: Final[dict[type[Move], tuple[str, tuple[str, ...]]]] = {
    OpenSteps: ("openSteps", (CLAIM_TYPE, _PART, "bytes32[]", "bytes")),
    PickStep: ("pickStep", ("uint256", "bytes32", "bytes32", "bytes32[]")),
    PostTrace: ("postTrace", ("bytes32[]", "bytes32[]")),
    PostUpdateProof: (
        "postUpdateProof",
        (CLAIM_TYPE, _PART, _PART, "bytes32[4]", "bytes32", "bytes32[]", "bytes32[]"),
    ),
    Reveal: ("reveal", ("bytes32[]",)),
    Pick: ("pick", ("uint256", "bytes32", "bytes32[]")),
    PickNode: ("pickNode", ("uint256", "bytes32", "bytes32[]", CLAIM_TYPE, _PART)),
    PostLeaf: ("postLeaf", ("bytes",)),
    PickToken: ("pickToken", (_GENERATED,)),
    Prove: ("prove", (CLAIM_TYPE, _PROOF)),
}


def calldata(game: int, claim: Claim, move: Move) -> bytes:
    """What is sent to the game's contract to make this move in game number `game`."""
    name, types = _SIGNATURES[type(move)]
    fields: list[object] = list(astuple(move))
    if isinstance(move, PickToken):
        fields = [tuple(fields)]
    if CLAIM_TYPE in types:
        fields.insert(types.index(CLAIM_TYPE), astuple(claim))
    arguments = ("uint256", *types)
    selector = keccak256(f"{name}({','.join(arguments)})".encode())[:4]
    return selector + encode(list(arguments), [game, *fields])


def evidence_of(claim: Claim) -> bytes:
    """abi.encode(Claim), whose hash the game keeps."""
    return encode([CLAIM_TYPE], [astuple(claim)])
