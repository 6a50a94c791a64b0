"""Seeds by drand: SPEC-ROUNDS.md, 3, and drand's scheme bls-unchained-g1-rfc9380, by py-ecc."""

from __future__ import annotations

import hashlib
from typing import Any, cast

from py_ecc.bls.hash_to_curve import hash_to_G1
from py_ecc.bls.point_compression import decompress_G1, decompress_G2
from py_ecc.optimized_bls12_381 import G2
from py_ecc.optimized_bls12_381 import pairing as paired
from tests.second_client.words import keccak

DOMAIN = b"BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_"


def round_of(time: int, margin: int, genesis: int, period: int) -> int:
    """The first one that is signed later than the margin after a block of this time."""
    number = 1
    while genesis + (number - 1) * period <= time + margin:
        number += 1
    return number


def randomness_of(key: bytes, number: int, signature: bytes) -> bytes:
    """Of a round. Raises ValueError where the key has not signed it."""
    message = hashlib.sha256(number.to_bytes(8, "big")).digest()
    point = hash_to_G1(message, DOMAIN, cast(Any, hashlib.sha256))
    halves = (int.from_bytes(key[:48], "big"), int.from_bytes(key[48:], "big"))
    signed = decompress_G1(cast(Any, int.from_bytes(signature, "big")))
    if paired(decompress_G2(cast(Any, halves)), point) != paired(G2, signed):
        raise ValueError(f"that is no signature of round {number}")
    return hashlib.sha256(signature).digest()


def beacon(randomness: bytes, block_hash: bytes) -> bytes:
    """What draws what was fixed in a block."""
    return keccak(randomness + block_hash)
