"""Certificates: who signed, and what a policy would refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from coincurve import PrivateKey
from eth_account import Account

from atoll.law.certificates import (
    Certificate,
    in_order,
    is_enough,
    join_signatures,
    signer_of,
    signers_of,
)
from atoll.law.words import Address, Bitmap, Digest, Domain, JobId, RoundIndex, Slot

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
SLOT = Slot(Domain(1, Address("0x" + "11" * 20)), JobId(7), RoundIndex(3))
SEED = Digest(b"s" * 32)
CERTIFICATE = Certificate(Digest(b"w" * 32), Bitmap(0b10), Digest(b"g" * 32), b"cid", bytes(8))
HASH = CERTIFICATE.hash(SLOT, SEED)
ACCOUNTS = [Account.from_key(bytes([i]) * 32) for i in range(1, 5)]
MEMBERS = [Address(account.address) for account in ACCOUNTS]


def signed(digest: Digest = HASH) -> dict[Address, bytes]:
    return {
        Address(account.address): bytes(account.unsafe_sign_hash(digest).signature)
        for account in ACCOUNTS
    }


def test_a_signature_tells_its_account() -> None:
    for member, signature in signed().items():
        assert signer_of(HASH, signature) == member
        assert signer_of(Digest(b"x" * 32), signature) != member


def test_what_is_no_signature_is_nobodys() -> None:
    good = signed()[MEMBERS[0]]
    for bad in (b"", good[:-1], good + b"\x00", good[:-1] + b"\x00", good[:-1] + b"\x1d"):
        assert signer_of(HASH, bad) is None
    assert signer_of(HASH, bytes(64) + b"\x1b") is None
    assert signer_of(HASH, b"\xff" * 32 + good[32:]) is None


def test_of_the_two_values_of_s_the_larger_is_nobodys() -> None:
    good = signed()[MEMBERS[0]]
    other = ORDER - int.from_bytes(good[32:64], "big")
    twin = good[:32] + other.to_bytes(32, "big") + bytes([55 - good[64]])
    recoverable = twin[:64] + bytes([twin[64] - 27])
    key = PrivateKey(bytes([1]) * 32).public_key
    recovered = type(key).from_signature_and_message(recoverable, HASH, hasher=None)
    assert recovered == key
    assert signer_of(HASH, twin) is None


def test_signers_are_members_in_order_each_once() -> None:
    signatures = signed()
    joined = join_signatures(signatures)
    assert signers_of(HASH, joined, MEMBERS) == in_order(MEMBERS)
    assert signers_of(HASH, b"", MEMBERS) == []
    first, *_, last = in_order(MEMBERS)
    for bad in (
        signatures[last] + signatures[first],
        signatures[first] * 2,
        joined[:-1],
        joined + signed(Digest(b"x" * 32))[last],
    ):
        with pytest.raises(ValueError, match=r"signature|ascend"):
            signers_of(HASH, bad, MEMBERS)
    with pytest.raises(ValueError, match="no member's"):
        signers_of(HASH, joined, MEMBERS[1:])


def test_every_field_is_signed() -> None:
    others = [
        replace(CERTIFICATE, words=Digest(b"W" * 32)),
        replace(CERTIFICATE, left_out=Bitmap(0b11)),
        replace(CERTIFICATE, state=Digest(b"G" * 32)),
        replace(CERTIFICATE, cid=b"cie"),
        replace(CERTIFICATE, loss=bytes(7) + b"\x01"),
    ]
    slots = [replace(SLOT, job=JobId(8)), replace(SLOT, round=RoundIndex(4))]
    hashes = {certificate.hash(SLOT, SEED) for certificate in others}
    hashes |= {CERTIFICATE.hash(slot, SEED) for slot in slots}
    hashes |= {HASH, CERTIFICATE.hash(SLOT, Digest(b"S" * 32))}
    assert len(hashes) == 9


@pytest.mark.parametrize(
    ("committee", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (7, 5), (32, 22)]
)
def test_two_thirds_are_enough(committee: int, needed: int) -> None:
    assert is_enough(needed, committee)
    assert not is_enough(needed - 1, committee)


def test_nobody_certifies_nothing() -> None:
    assert not is_enough(0, 0)
