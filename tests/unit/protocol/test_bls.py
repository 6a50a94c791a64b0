"""Signatures in BLS12-381: equal to py-ecc's, and what a policy would refuse."""

from __future__ import annotations

import pytest
from py_ecc.bls import G2ProofOfPossession as Reference
from py_ecc.bls.g2_primitives import pubkey_to_G1
from py_ecc.optimized_bls12_381 import field_modulus, normalize
from tests.support.identities import address, digest

from atoll.protocol import bls
from atoll.protocol.certificates import Bls, CertificateKind, Ecdsa, alone
from atoll.protocol.types import Address

SECRETS = [bls.secret_of(digest(f"seed {i}")) for i in range(4)]
COMMITTEE = [address(f"member {i}") for i in range(4)]
KEYS = {member: bls.key_of(secret) for member, secret in zip(COMMITTEE, SECRETS, strict=True)}
HASH = digest("certificate")
SCHEME = Bls(KEYS)


def signed(*members: int) -> dict[Address, bytes]:
    return {COMMITTEE[i]: bls.sign(SECRETS[i], HASH) for i in members}


def test_keys_and_signatures_are_those_of_the_reference() -> None:
    seed = digest("seed 0")
    assert SECRETS[0] == Reference.KeyGen(seed)
    x, y = normalize(pubkey_to_G1(Reference.SkToPk(SECRETS[0])))
    assert bls.key_of(SECRETS[0]) == int(x).to_bytes(48, "big") + int(y).to_bytes(48, "big")
    assert bls.sign(SECRETS[0], HASH) == Reference.Sign(SECRETS[0], HASH)


def test_a_signature_is_its_keys_alone() -> None:
    first, second = signed(0, 1).values()
    assert SCHEME.is_of(COMMITTEE[0], HASH, first)
    assert not SCHEME.is_of(COMMITTEE[1], HASH, first)
    assert not SCHEME.is_of(COMMITTEE[0], digest("another"), first)
    assert not SCHEME.is_of(address("stranger"), HASH, second)
    proof = bls.sign(SECRETS[0], HASH, bls.PROVE)
    assert not SCHEME.is_of(COMMITTEE[0], HASH, proof)
    assert bls.is_signed(KEYS[COMMITTEE[0]], HASH, proof, bls.PROVE)


@pytest.mark.parametrize(
    "junk", [b"", bytes(96), b"\xc0" + bytes(95), b"\xff" * 96, b"\xa0" + bytes(94) + b"\2"]
)
def test_what_is_no_signature_is_nobodys(junk: bytes) -> None:
    assert not SCHEME.is_of(COMMITTEE[0], HASH, junk)
    assert not bls.is_signed(bytes(96), HASH, junk)


def test_a_certificate_names_everybody_in_the_sum() -> None:
    for members in ((0,), (1, 3), (0, 1, 2, 3)):
        certificate = SCHEME.certificate(COMMITTEE, signed(*members))
        assert SCHEME.signers(HASH, certificate, COMMITTEE) == sum(1 << i for i in members)
    by_one = alone(signed(2)[COMMITTEE[2]], CertificateKind.BLS)
    assert by_one == SCHEME.certificate(COMMITTEE[2:3], signed(2))
    account = b"\1" * 65
    by_one = alone(account, CertificateKind.ECDSA)
    assert by_one == Ecdsa().certificate(COMMITTEE[:1], {COMMITTEE[0]: account})


def test_what_the_policy_refuses_is_refused() -> None:
    good = SCHEME.certificate(COMMITTEE, signed(0, 2))
    doubled = good[:4] + bls.added([*signed(0, 2).values()] * 2)
    for bad in (
        b"",
        good[:-1],
        good + b"\0",
        bytes(4) + good[4:],
        b"\0\0\0\7" + good[4:],
        b"\0\0\0\x25" + good[4:],
        good[:4] + bytes(192),
        bytes(196),
        good[:4] + b"\xff" * 192,
        doubled,
    ):
        with pytest.raises(ValueError):
            SCHEME.signers(HASH, bad, COMMITTEE)
    with pytest.raises(ValueError):
        Bls({}).signers(HASH, good, COMMITTEE)


def test_a_coordinate_has_one_spelling() -> None:
    for i in range(64):  # one in six is small enough for another spelling in 48 bytes
        message = digest(f"message {i}")
        point = bls.added([bls.sign(SECRETS[0], message)])
        other = int.from_bytes(point[:48], "big") + field_modulus
        if other >> 384 == 0:
            break
    assert bls.is_signed_by_all([KEYS[COMMITTEE[0]]], message, point)
    spelled = other.to_bytes(48, "big") + point[48:]
    assert not bls.is_signed_by_all([KEYS[COMMITTEE[0]]], message, spelled)


def test_a_sum_of_keys_is_the_key_of_the_secrets_sum() -> None:
    order = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
    assert bls.key_sum(KEYS.values()) == bls.key_of(sum(SECRETS) % order)
    assert bls.key_sum([bls.key_of(5), bls.key_of(order - 5)]) == bytes(96)
    with pytest.raises(ValueError):
        bls.key_sum([b"\1" * 96])


def test_keys_that_cancel_out_sign_nothing() -> None:
    order = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
    both = [bls.key_of(5), bls.key_of(order - 5)]
    assert not bls.is_signed_by_all(both, HASH, bytes(192))
