"""The signatures by which two thirds of a committee name the next model, in ECDSA.

Rule of this file: what `EcdsaPolicy.sol` takes is taken here, and nothing else: a map of the
signers, then each one's signature in their order, with the lower of the two values of s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from coincurve import PublicKey
from eth_utils.address import to_checksum_address

from atoll.law.hashing import keccak256
from atoll.law.words import Address, Bitmap, Digest, bits, to_bitmap

MAP_BYTES: Final = 4
SIGNATURE_BYTES: Final = 65
_HALF_ORDER: Final = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
"""Of secp256k1 (SEC 2, 2.4.1), rounded down."""
_V: Final = 27


def signer_of(digest: Digest, signature: bytes) -> Address | None:
    """The account that signed the 32 bytes as they are; None where nobody did.

    r ‖ s ‖ v, v being 27 or 28. A signature with the larger s is nobody's: one message has one.
    """
    if len(signature) != SIGNATURE_BYTES or signature[-1] - _V not in {0, 1}:
        return None
    if int.from_bytes(signature[32:64], "big") > _HALF_ORDER:
        return None
    recoverable = signature[:64] + bytes([signature[-1] - _V])
    try:
        key = PublicKey.from_signature_and_message(recoverable, digest, hasher=None)
    except ValueError:
        return None
    point = key.format(compressed=False)[1:]
    return Address(to_checksum_address(keccak256(point)[-20:]))


def certificate_bytes(committee: Sequence[Address], signatures: Mapping[Address, bytes]) -> bytes:
    """What the policy takes, of those members that have signed.

    Args:
        committee: accounts, by ascending place.
        signatures: of members; 65 bytes each.
    """
    signed = [i for i, member in enumerate(committee) if member in signatures]
    whole = to_bitmap(signed).to_bytes(MAP_BYTES, "big")
    return whole + b"".join(signatures[committee[i]] for i in signed)


def parts_of(certificate: bytes) -> dict[int, bytes]:
    """Its signatures by their member's number, unchecked. Raises ValueError on another length."""
    numbers = bits(Bitmap(int.from_bytes(certificate[:MAP_BYTES], "big")))
    rest = certificate[MAP_BYTES:]
    if len(certificate) < MAP_BYTES or len(rest) != SIGNATURE_BYTES * len(numbers):
        raise ValueError(f"{len(certificate)} bytes are no certificate")
    starts = (SIGNATURE_BYTES * position for position in range(len(numbers)))
    parts = (rest[at : at + SIGNATURE_BYTES] for at in starts)
    return dict(zip(numbers, parts, strict=True))


def signers_of(digest: Digest, certificate: bytes, committee: Sequence[Address]) -> Bitmap:
    """Who of the committee signed: bit i is its i-th member.

    Raises ValueError on anything that the policy would refuse.
    """
    signed = Bitmap(int.from_bytes(certificate[:MAP_BYTES], "big"))
    parts = parts_of(certificate)
    if signed >> len(committee):
        raise ValueError("a signer is no member")
    for number, part in parts.items():
        if signer_of(digest, part) != committee[number]:
            raise ValueError(f"signature {number} is not {committee[number]}'s")
    return signed


def is_enough(signed: int, committee: int) -> bool:
    """Two thirds."""
    return 3 * signed >= 2 * committee > 0
