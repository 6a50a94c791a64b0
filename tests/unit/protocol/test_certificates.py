"""Certificates: who signed, and what a policy would refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from coincurve import PrivateKey
from eth_account import Account
from tests.support.identities import address, cid, digest

from atoll.protocol.certificates import (
    Ecdsa,
    certificate_bytes,
    is_enough,
    parts_of,
    signer_of,
)
from atoll.protocol.hashing import certificate_hash
from atoll.protocol.types import (
    Address,
    Bitmap,
    Digest,
    Domain,
    JobId,
    RoundId,
    RoundIndex,
    Verdict,
)

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
GENERATOR_X = 0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798
ROUND_ID = RoundId(Domain(1, address("rounds")), JobId(7), RoundIndex(3))
SEED, VOTES = digest("seed"), digest("votes")
VERDICT = Verdict(Bitmap(0b10), 5, digest("state"), cid("state"), bytes(8))
HASH = certificate_hash(ROUND_ID, SEED, VOTES, VERDICT)
ACCOUNTS = [Account.from_key(bytes([i]) * 32) for i in range(1, 5)]
COMMITTEE = [Address(account.address) for account in ACCOUNTS]


def signed(message: Digest = HASH) -> dict[Address, bytes]:
    return {
        Address(account.address): bytes(account.unsafe_sign_hash(message).signature)
        for account in ACCOUNTS
    }


def test_a_signature_tells_its_account() -> None:
    for member, signature in signed().items():
        assert signer_of(HASH, signature) == member
        assert signer_of(digest("other"), signature) != member


def test_what_is_no_signature_is_nobodys() -> None:
    good = signed()[COMMITTEE[0]]
    for bad in (b"", good[:-1], good + b"\x00", good[:-1] + b"\x00", good[:-1] + b"\x1d"):
        assert signer_of(HASH, bad) is None
    assert signer_of(HASH, bytes(64) + b"\x1b") is None
    assert signer_of(HASH, b"\xff" * 32 + good[32:]) is None


@pytest.mark.parametrize("backend", ["NativeECCBackend", "CoinCurveECCBackend"])
def test_it_is_the_same_with_libsecp256k1_and_without(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python for which coincurve has no wheel agrees with the others about who signed."""
    monkeypatch.setenv("ECC_BACKEND_CLASS", f"eth_keys.backends.{backend}")
    good = signed()[COMMITTEE[0]]
    assert signer_of(HASH, good) == COMMITTEE[0]
    r, s, v = good[:32], good[32:64], good[64:]
    order, zero, five = ORDER.to_bytes(32, "big"), bytes(32), bytes(31) + b"\x05"  # on no curve
    for bad in (zero + s + v, r + zero + v, order + s + v, b"\xff" * 32 + s + v, five + s + v):
        assert signer_of(HASH, bad) is None
    # Of the generator itself, where s is what is signed: the key would be infinity.
    message = Digest(bytes(31) + b"\x07")
    assert signer_of(message, GENERATOR_X.to_bytes(32, "big") + message + b"\x1b") is None


def test_of_the_two_values_of_s_the_larger_is_nobodys() -> None:
    good = signed()[COMMITTEE[0]]
    other = ORDER - int.from_bytes(good[32:64], "big")
    doppelganger = good[:32] + other.to_bytes(32, "big") + bytes([55 - good[64]])
    key = PrivateKey(bytes([1]) * 32).public_key
    recoverable = doppelganger[:64] + bytes([doppelganger[64] - 27])
    assert type(key).from_signature_and_message(recoverable, HASH, hasher=None) == key
    assert signer_of(HASH, doppelganger) is None
    # Half of an odd order, rounded down, is the largest that is anybody's.
    halves = [good[:32] + (ORDER // 2 + more).to_bytes(32, "big") + good[64:] for more in (0, 1)]
    assert [signer_of(HASH, signature) is None for signature in halves] == [False, True]


@pytest.mark.parametrize("who", [0b1111, 0b1011, 0b0100, 0])
def test_a_certificate_says_who_signed(who: int) -> None:
    own = {m: s for i, (m, s) in enumerate(signed().items()) if who >> i & 1}
    certificate = certificate_bytes(COMMITTEE, own)
    assert Ecdsa().signers(HASH, certificate, COMMITTEE) == who
    assert len(certificate) == 4 + 67 * who.bit_count()


def test_strangers_signatures_are_excluded() -> None:
    assert certificate_bytes(COMMITTEE[:2], signed())[:4] == b"\x00\x00\x00\x03"


def test_what_the_policy_refuses_is_refused() -> None:
    whole, other = certificate_bytes(COMMITTEE, signed()), signed(digest("other"))
    first, second = whole[4:71], whole[71:138]
    swapped = whole[:4] + second + first + whole[138:]
    again = whole[:4] + first + first + whole[138:]
    mixed = certificate_bytes(COMMITTEE, {**signed(), COMMITTEE[2]: other[COMMITTEE[2]]})
    fewer = b"\x00\x00\x00\x07" + whole[4:]
    more = b"\x00\x00\x00\x1f" + whole[4:] + first
    # Whose signature it is not has not signed; the others' stand.
    for other, who in ((swapped, 0b1100), (again, 0b1101), (mixed, 0b1011)):
        assert Ecdsa().signers(HASH, other, COMMITTEE) == who
    for bad in (fewer, more, whole[:-1], whole + b"\x00", b"", b"\x00" * 3):
        with pytest.raises(ValueError, match=r"signature|certificate|member"):
            Ecdsa().signers(HASH, bad, COMMITTEE)


def test_every_field_is_signed() -> None:
    others = [
        replace(VERDICT, excluded=Bitmap(0b11)),
        replace(VERDICT, merged=4),
        replace(VERDICT, state=digest("another")),
        replace(VERDICT, cid=cid("another")),
        replace(VERDICT, loss=bytes(7) + b"\x01"),
    ]
    hashes = {certificate_hash(ROUND_ID, SEED, VOTES, verdict) for verdict in others}
    for round_id in (replace(ROUND_ID, job=JobId(8)), replace(ROUND_ID, round=RoundIndex(4))):
        hashes.add(certificate_hash(round_id, SEED, VOTES, VERDICT))
    hashes |= {certificate_hash(ROUND_ID, VOTES, SEED, VERDICT), HASH}
    assert len(hashes) == 9


@pytest.mark.parametrize(
    ("committee", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (7, 5), (32, 22)]
)
def test_two_thirds_are_enough(committee: int, needed: int) -> None:
    assert is_enough(needed, committee)
    assert not is_enough(needed - 1, committee)


def test_nobody_certifies_nothing() -> None:
    assert not is_enough(0, 0)


def test_what_has_another_length_is_no_certificate() -> None:
    whole = certificate_bytes(COMMITTEE, signed())
    assert list(parts_of(whole)) == [0, 1, 2, 3]
    assert parts_of(bytes(4)) == {}
    for bad in (b"", bytes(3), whole[:3], whole[:-1], whole + b"\x00", bytes(4) + whole[4:]):
        with pytest.raises(ValueError, match="no certificate"):
            parts_of(bad)
