"""Certificates in BLS12-381, by py-ecc: SPEC-ROUNDS.md, 7.

Its `G2ProofOfPossession` is the suite; points come and go here as the contracts take them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from py_ecc.bls import G2ProofOfPossession
from py_ecc.bls.g2_primitives import G1_to_pubkey, G2_to_signature, pubkey_to_G1, signature_to_G2
from py_ecc.bls.hash_to_curve import hash_to_G2
from py_ecc.fields import optimized_bls12_381_FQ as FQ
from py_ecc.fields import optimized_bls12_381_FQ2 as FQ2
from py_ecc.optimized_bls12_381 import (
    G1,
    Z1,
    add,
    b,
    b2,
    field_modulus,
    is_on_curve,
    multiply,
    normalize,
)
from py_ecc.optimized_bls12_381 import pairing as paired
from tests.second_client.curve import sign
from tests.second_client.typed import typed
from tests.second_client.words import bits, hashed, keccak

SIZE = 48
PROVE = b"BLS_POP_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_"


def secret_of(account_secret: int, chain_id: int, registry: bytes, account: bytes) -> int:
    """Which only the account can make."""
    said = (("address", "account", account),)
    signature = sign(account_secret, typed("SecretOfBlsKey", (chain_id, registry), said))
    return int(G2ProofOfPossession.KeyGen(keccak(signature[:64])))


def key_of(secret: int) -> bytes:
    """x and y."""
    x, y = normalize(multiply(G1, secret))
    return int(x).to_bytes(SIZE, "big") + int(y).to_bytes(SIZE, "big")


def proof_message(chain_id: int, registry: bytes, account: bytes, key: bytes) -> bytes:
    return hashed("atoll.bls-key.v1", chain_id, registry, account, keccak(key))


def is_proof(key: bytes, message: bytes, proof: bytes) -> bool:
    """Under the domain of proofs, which py-ecc has for keys themselves alone."""
    point = hash_to_G2(message, PROVE, hashlib.sha256)
    return bool(paired(point, pubkey_to_G1(_compressed_key(key))) == paired(_point(proof), G1))


def signed(secret: int, digest: bytes) -> bytes:
    """As a gateway serves it."""
    return bytes(G2ProofOfPossession.Sign(secret, digest))


def signers_of(digest: bytes, keys: Sequence[bytes], certificate: bytes) -> int:
    """The map of who signed. Raises ValueError unless the certificate is whole and theirs."""
    if len(certificate) != 4 + 4 * SIZE:
        raise ValueError("another length")
    signers = int.from_bytes(certificate[:4], "big")
    if signers >> len(keys):
        raise ValueError("not of the committee")
    chosen = [_compressed_key(keys[i]) for i in bits(signers)]
    whole = G2_to_signature(_point(certificate[4:]))
    if not G2ProofOfPossession.FastAggregateVerify(chosen, digest, whole):
        raise ValueError("not the sum of these members' signatures")
    return signers


def key_sum(keys: Sequence[bytes]) -> bytes:
    """As the registry keeps it of a committee."""
    total = Z1
    for key in keys:
        total = add(total, pubkey_to_G1(_compressed_key(key)))
    x, y = normalize(total)
    return int(x).to_bytes(SIZE, "big") + int(y).to_bytes(SIZE, "big")


def summed(signatures: Sequence[bytes]) -> bytes:
    """What a certificate has of signatures as gateways serve them."""
    x, y = normalize(signature_to_G2(G2ProofOfPossession.Aggregate(signatures)))
    return b"".join(int(part).to_bytes(SIZE, "big") for part in (*x.coeffs, *y.coeffs))


def _numbers(point: bytes) -> list[int]:
    found = [int.from_bytes(point[at : at + SIZE], "big") for at in range(0, len(point), SIZE)]
    if any(number >= field_modulus for number in found):
        raise ValueError("not reduced")
    return found


def _point(narrow: bytes) -> tuple[FQ2, FQ2, FQ2]:
    a, c, d, e = _numbers(narrow)
    point = (FQ2([a, c]), FQ2([d, e]), FQ2.one())
    if not is_on_curve(point, b2):
        raise ValueError("not on the curve")
    return point


def _compressed_key(key: bytes) -> bytes:
    x, y = _numbers(key)
    point = (FQ(x), FQ(y), FQ.one())
    if not is_on_curve(point, b):
        raise ValueError("not on the curve")
    return bytes(G1_to_pubkey(point))
