"""drand's rounds and the forms of its signatures."""

from __future__ import annotations

import hashlib

import pytest
from py_ecc.bls.hash_to_curve import hash_to_G1
from py_ecc.bls.point_compression import decompress_G1, decompress_G2
from py_ecc.optimized_bls12_381 import G2, normalize, pairing

from atoll.chain.drand import QUICKNET, expanded
from atoll.chain.supported_chains import ALONE, SUPPORTED, beacon_of

PUBLISHED = {
    1000: "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125"
    "e342b73a8dd2bacbe47e4b6b63ed5e39",
    657_413: "b713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be"
    "41076862b98fad56e91a6b85b89cd97b",
}
"""Signatures of quicknet's."""
KEY = bytes.fromhex(
    "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d106451"
    "0d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a"
)
"""Of quicknet, as its servers say it."""
DOMAIN = b"BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_"


def flat(point: object) -> bytes:
    numbers = [n for part in normalize(point) for n in getattr(part, "coeffs", (part,))]
    return b"".join(int(number).to_bytes(48, "big") for number in numbers)


def test_the_contracts_key_is_the_published_one() -> None:
    halves = (int.from_bytes(KEY[:48], "big"), int.from_bytes(KEY[48:], "big"))
    assert flat(decompress_G2(halves)) == QUICKNET.key


@pytest.mark.parametrize("round", PUBLISHED)
def test_a_published_signature_is_the_contracts_other_form(round: int) -> None:
    signature = bytes.fromhex(PUBLISHED[round])
    point = decompress_G1(int.from_bytes(signature, "big"))
    assert expanded(signature) == flat(point)
    message = hashlib.sha256(round.to_bytes(8, "big")).digest()
    key = decompress_G2((int.from_bytes(KEY[:48], "big"), int.from_bytes(KEY[48:], "big")))
    assert pairing(key, hash_to_G1(message, DOMAIN, hashlib.sha256)) == pairing(G2, point)


def test_either_y_is_found() -> None:
    signature = bytes.fromhex(PUBLISHED[1000])
    other = bytes([signature[0] ^ 0x20]) + signature[1:]
    x, y = expanded(other)[:48], expanded(other)[48:]
    assert x == expanded(signature)[:48]
    assert y != expanded(signature)[48:]
    assert expanded(other) == flat(decompress_G1(int.from_bytes(other, "big")))


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        bytes(48),
        bytes([0xC0]) + bytes(47),
        bytes([0x9F]) + b"\xff" * 47,
        bytes([0x80]) + bytes(46) + b"\x01",
        bytes.fromhex(PUBLISHED[1000]) + b"\0",
    ],
)
def test_what_is_no_point_is_refused(signature: bytes) -> None:
    with pytest.raises(ValueError, match=r"point|curve"):
        expanded(signature)


def test_a_round_has_its_time() -> None:
    assert QUICKNET.time_of(1) == QUICKNET.genesis
    assert QUICKNET.time_of(1000) == QUICKNET.genesis + 2997


def test_a_chain_with_a_builder_draws_by_drand_where_it_can() -> None:
    assert {beacon_of(each, has_bls=True) for each in set(SUPPORTED) - ALONE} == {"DrandBeacon"}
    assert {beacon_of(each, has_bls=True) for each in ALONE} == {"HistoryBeacon"}
    assert {beacon_of(each, has_bls=False) for each in SUPPORTED} == {"HistoryBeacon"}
