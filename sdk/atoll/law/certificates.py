"""The message by which two thirds of a committee name the next model, and its ECDSA signatures.

Rule of this file: what `EcdsaPolicy.sol` takes is taken here, and nothing else: signatures of
members in ascending order of address, each once, with the lower of the two values of s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from coincurve import PublicKey
from eth_utils.address import to_checksum_address

from atoll.law.hashing import hash_in_slot, keccak256
from atoll.law.words import Address, Bitmap, Digest, Slot

SIGNATURE_BYTES: Final = 65
_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
"""Of secp256k1 (SEC 2, 2.4.1)."""
_V: Final = 27


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a committee signs of a round.

    Attributes:
        words: accumulator of the words that availability was counted from.
        left_out: seats of weight 0.
        state: root of the global state that the next round opens with.
        cid: where that state is.
        loss: of the model that the round opened with, 8 bytes (`held_out.loss_bytes`).
    """

    words: Digest
    left_out: Bitmap
    state: Digest
    cid: bytes
    loss: bytes

    def hash(self, slot: Slot, seed: Digest) -> Digest:
        """What is signed; `seed` is the round's data seed."""
        return hash_in_slot(
            "atoll.certificate.v1",
            slot,
            ("bytes32", "bytes32", "uint256", "bytes32", "bytes32", "bytes8"),
            (seed, self.words, self.left_out, self.state, keccak256(self.cid), self.loss),
        )


def signer_of(digest: Digest, signature: bytes) -> Address | None:
    """The account that signed the 32 bytes as they are; None where nobody did.

    r ‖ s ‖ v, v being 27 or 28. A signature with the larger s is nobody's: one message has one.
    """
    if len(signature) != SIGNATURE_BYTES or signature[-1] - _V not in {0, 1}:
        return None
    if int.from_bytes(signature[32:64], "big") > _ORDER // 2:
        return None
    recoverable = signature[:64] + bytes([signature[-1] - _V])
    try:
        key = PublicKey.from_signature_and_message(recoverable, digest, hasher=None)
    except ValueError:
        return None
    point = key.format(compressed=False)[1:]
    return Address(to_checksum_address(keccak256(point)[-20:]))


def join_signatures(signatures: Mapping[Address, bytes]) -> bytes:
    """What the policy takes: signatures of distinct members, by ascending address."""
    return b"".join(signatures[member] for member in in_order(signatures))


def in_order(members: Iterable[Address]) -> list[Address]:
    """As integers, ascending."""
    return sorted(members, key=lambda member: int(member, 16))


def signers_of(digest: Digest, joined: bytes, committee: Collection[Address]) -> list[Address]:
    """Who signed, in order. Raises ValueError on anything that the policy would refuse."""
    if len(joined) % SIGNATURE_BYTES:
        raise ValueError(f"{len(joined)} bytes are no signatures")
    parts = range(0, len(joined), SIGNATURE_BYTES)
    signers = [signer_of(digest, joined[at : at + SIGNATURE_BYTES]) for at in parts]
    found = [member for member in signers if member in committee]
    if len(found) != len(signers):
        raise ValueError("a signature is no member's")
    if found != in_order(set(found)):
        raise ValueError("the signers do not ascend")
    return found


def is_enough(signed: int, committee: int) -> bool:
    """Two thirds."""
    return 3 * signed >= 2 * committee > 0
