"""BLS12-381 signatures: minimal public keys, the suite with proofs of possession.

Rule of this file: bytes in, bytes out. Keys are points of G1, signatures of G2, as coordinates of
48 bytes, big-endian, which is what the contracts take; gateways hand signatures over compressed.

Source: draft-irtf-cfrg-bls-signature-05, sections 2.3 and 3.3; RFC 9380 for the hash to G2.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from py_arkworks_bls12381 import GT, G1Point, G2Point, Scalar

from atoll.protocol.hashing import hash_fields, keccak256, tag
from atoll.protocol.types import Address, Digest

KEY_BYTES: Final = 96
POINT_BYTES: Final = 192
"""Of a signature as the contracts take it."""
SIGNATURE_BYTES: Final = 96
"""Of a signature as it is handed over: compressed."""
SIGN: Final = b"BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_"
PROVE: Final = b"BLS_POP_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_"
_ORDER: Final = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
_SECRET_BYTES: Final = 48
"""⌈(3 · ⌈log₂ order⌉) / 16⌉: a remainder of so many bytes is as good as uniform."""
_OWNER = ("uint256", "address", "address")


def secret_message(chain_id: int, registry: Address, account: Address) -> Digest:
    """What an account signs, as it is, for the seed of its secret."""
    values = (tag("atoll.bls-secret.v1"), chain_id, registry, account)
    return hash_fields(("bytes32", *_OWNER), values)


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
        secret = int.from_bytes((first + second)[:_SECRET_BYTES], "big") % _ORDER
    return secret


def key_of(secret: int) -> bytes:
    """The public key: x ‖ y."""
    return (G1Point() * Scalar(secret)).to_xy_bytes_be()


def key_sum(keys: Iterable[bytes]) -> bytes:
    """What keys add up to: x ‖ y. Raises ValueError on no point."""
    return sum((_key(key) for key in keys), G1Point.identity()).to_xy_bytes_be()


def sign(secret: int, message: bytes, domain: bytes = SIGN) -> bytes:
    """A signature, compressed."""
    return (G2Point.hash_to_curve(message, domain) * Scalar(secret)).to_compressed_bytes()


def is_signed(key: bytes, message: bytes, signature: bytes, domain: bytes = SIGN) -> bool:
    """Whether a compressed signature is the key's; False of anything that is no point.

    Nothing is signed by the point at infinity.
    """
    if len(signature) != SIGNATURE_BYTES:
        return False
    try:
        point = G2Point.from_compressed_bytes(signature)
    except ValueError:
        return False
    return _is_signed(key, message, point, domain)


def is_signed_by_all(keys: Iterable[bytes], message: bytes, point: bytes) -> bool:
    """Whether the point is the sum of one signature of each key, as a certificate has it."""
    try:
        total = key_sum(keys)
        whole = G2Point.from_xy_bytes_be(point)
    except ValueError:
        return False
    # The library reads what is not reduced or infinite, too: a certificate has one spelling.
    if whole.to_xy_bytes_be() != point:
        return False
    return _is_signed(total, message, whole, SIGN)


def added(signatures: Iterable[bytes]) -> bytes:
    """The sum of compressed signatures, as the contracts take it. Raises ValueError on no point."""
    points = (G2Point.from_compressed_bytes(signature) for signature in signatures)
    return sum(points, G2Point.identity()).to_xy_bytes_be()


def _key(key: bytes) -> G1Point:
    return G1Point.from_xy_bytes_be(key)


def _is_signed(key: bytes, message: bytes, signature: G2Point, domain: bytes) -> bool:
    """e(key, H(message)) = e(generator, signature)."""
    if len(key) != KEY_BYTES or not any(key):
        return False
    try:
        points = [_key(key), -G1Point()]
    except ValueError:
        return False
    return GT.pairing_check(points, [G2Point.hash_to_curve(message, domain), signature])
