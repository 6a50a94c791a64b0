"""BLS12-381 signatures: minimal public keys, the suite with proofs of possession.

Rule of this file: bytes in, bytes out. Keys are points of G1, signatures of G2, as coordinates of
48 bytes, big-endian, which is what the contracts take; gateways hand signatures over compressed.
What has another spelling of a point gets to no library: they differ in what they make of it.

Source: draft-irtf-cfrg-bls-signature-05, sections 2.3 and 3.3; RFC 9380 for the hash to G2.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from atoll.protocol.bls_library import FIELD, ORDER, in_use
from atoll.protocol.hashing import hash_fields, keccak256, tag
from atoll.protocol.typed_data import TypedField, TypedMessage
from atoll.protocol.types import Address, Digest

COORDINATE_BYTES: Final = 48
KEY_BYTES: Final = 96
POINT_BYTES: Final = 192
"""Of a signature as the contracts take it."""
SIGNATURE_BYTES: Final = 96
"""Of a signature as it is handed over: compressed."""
SIGN: Final = b"BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_"
PROVE: Final = b"BLS_POP_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_"
_SECRET_BYTES: Final = 48
"""⌈(3 · ⌈log₂ order⌉) / 16⌉: a remainder of so many bytes is as good as uniform."""
_OWNER = ("uint256", "address", "address")


def secret_message(chain_id: int, registry: Address, account: Address) -> TypedMessage:
    """What an account signs for the seed of its secret; nobody else may see that."""
    fields = (TypedField("address", "account", account),)
    return TypedMessage(chain_id, registry, "SecretOfBlsKey", fields)


def proof_message(chain_id: int, registry: Address, account: Address, key: bytes) -> Digest:
    """What a key signs, under `PROVE`, before the registry takes it for the account."""
    values = (tag("atoll.bls-key.v1"), chain_id, registry, account, keccak256(key))
    return hash_fields(("bytes32", *_OWNER, "bytes32"), values)


def secret_of(seed: bytes) -> int:
    """KeyGen of 32 bytes or more, with an empty key_info."""
    salt, secret = b"BLS-SIG-KEYGEN-SALT-", 0
    while secret == 0:
        salt = hashlib.sha256(salt).digest()
        extracted = hmac.digest(salt, seed + b"\0", "sha256")
        info = _SECRET_BYTES.to_bytes(2, "big")
        first = hmac.digest(extracted, info + b"\1", "sha256")
        second = hmac.digest(extracted, first + info + b"\2", "sha256")
        secret = int.from_bytes((first + second)[:_SECRET_BYTES], "big") % ORDER
    return secret


def key_of(secret: int) -> bytes:
    """The public key: x ‖ y."""
    return in_use().library.key_of(secret)


def key_sum(keys: Iterable[bytes]) -> bytes:
    """What keys add up to: x ‖ y. Raises ValueError on no point."""
    return in_use().library.key_sum([_reduced(key, KEY_BYTES) for key in keys])


def sign(secret: int, message: bytes, domain: bytes = SIGN) -> bytes:
    """A signature, compressed."""
    return in_use().library.sign(secret, message, domain)


def is_signed(key: bytes, message: bytes, signature: bytes, domain: bytes = SIGN) -> bool:
    """Whether a compressed signature is the key's; False of anything that is no point.

    Nothing is signed by the point at infinity.
    """
    try:
        return _is_signed(key, message, _expanded(signature), domain)
    except ValueError:
        return False


def is_signed_by_all(keys: Iterable[bytes], message: bytes, point: bytes) -> bool:
    """Whether the point is the sum of one signature of each key, as a certificate has it."""
    try:
        return _is_signed(key_sum(keys), message, point, SIGN)
    except ValueError:
        return False


def added(signatures: Iterable[bytes]) -> bytes:
    """The sum of compressed signatures, as the contracts take it. Raises ValueError on no point."""
    return in_use().library.signature_sum([_expanded(signature) for signature in signatures])


def _is_signed(key: bytes, message: bytes, point: bytes, domain: bytes) -> bool:
    """e(key, H(message)) = e(generator, signature). Raises ValueError on no point."""
    read = _reduced(key, KEY_BYTES), _reduced(point, POINT_BYTES)
    return all(map(any, read)) and in_use().library.is_signed(read[0], message, read[1], domain)


def _expanded(signature: bytes) -> bytes:
    """The point of a compressed signature. Raises ValueError on none, and on infinity.

    The first bit says that it is compressed, the second infinity, the third which y. arkworks reads
    whatever has the second as infinity, py-ecc some of it.
    """
    if len(signature) != SIGNATURE_BYTES or signature[0] >> 6 != 0b10:
        raise ValueError("not a compressed signature")
    _reduced(bytes([signature[0] & 0x1F]) + signature[1:], SIGNATURE_BYTES)
    return in_use().library.expanded(signature)


def _reduced(point: bytes, size: int) -> bytes:
    """The coordinates, each of which has one spelling. Raises ValueError on another."""
    if len(point) != size:
        raise ValueError(f"{len(point)} bytes are no point of {size}")
    for at in range(0, size, COORDINATE_BYTES):
        if int.from_bytes(point[at : at + COORDINATE_BYTES], "big") >= FIELD:
            raise ValueError("a coordinate that is not reduced")
    return point
