"""The fast library of BLS12-381 is used where it gives what the reference gives, and only there."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import pytest
from tests.support.identities import digest

from atoll.protocol import bls
from atoll.protocol.bls_arkworks import Arkworks
from atoll.protocol.bls_library import FIELD, choose, in_use
from atoll.protocol.bls_reference import Reference

SECRET = bls.secret_of(digest("seed"))
HASH = digest("certificate")


class WrongKey(Arkworks):
    def key_of(self, secret: int) -> bytes:
        return super().key_of(secret + 1)


class WrongSignature(Arkworks):
    def sign(self, secret: int, message: bytes, domain: bytes) -> bytes:
        return super().sign(secret, message, domain + b"_")


class TakesWhatIsOutside(Arkworks):
    def expanded(self, signature: bytes) -> bytes:
        try:
            return super().expanded(signature)
        except ValueError:
            return bytes(192)


class ForgetsOne(Arkworks):
    def key_sum(self, keys: Sequence[bytes]) -> bytes:
        return super().key_sum(keys[:1])


class CountsOnce(Arkworks):
    def signature_sum(self, points: Sequence[bytes]) -> bytes:
        return super().signature_sum(list(dict.fromkeys(points)))


class BelievesAll(Arkworks):
    def is_signed(self, key: bytes, message: bytes, point: bytes, domain: bytes) -> bool:
        return True


class BelievesNobody(Arkworks):
    def is_signed(self, key: bytes, message: bytes, point: bytes, domain: bytes) -> bool:
        return False


@pytest.fixture
def without_arkworks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "atoll.protocol.bls_arkworks", None)
    in_use.cache_clear()
    yield
    in_use.cache_clear()


def test_arkworks_gives_what_py_ecc_gives() -> None:
    assert (in_use().library.name, in_use().reason) == ("arkworks", None)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (WrongKey, "keys"),
        (WrongSignature, "signatures"),
        (TakesWhatIsOutside, "no points"),
        (ForgetsOne, "sums of keys"),
        (CountsOnce, "sums of signatures"),
        (BelievesAll, "another's signature"),
        (BelievesNobody, "a certificate"),
    ],
)
def test_a_library_that_differs_is_not_used(wrong: type[Arkworks], what: str) -> None:
    reference = Arkworks()  # what they are compared with is here only to be another
    chosen = choose(wrong(), reference)
    assert chosen.library is reference
    assert chosen.reason is not None
    assert chosen.reason.endswith(f"differ in {what}")


def test_the_reference_stands_in_for_what_cannot_be_imported(without_arkworks: None) -> None:
    fast = Arkworks()
    key, signature = bls.key_of(SECRET), bls.sign(SECRET, HASH)
    assert isinstance(in_use().library, Reference)
    assert "cannot be imported" in (in_use().reason or "")
    assert (key, signature) == (fast.key_of(SECRET), fast.sign(SECRET, HASH, bls.SIGN))
    assert bls.is_signed_by_all([key], HASH, bls.added([signature]))
    assert not bls.is_signed(key, digest("another"), signature)


@pytest.mark.parametrize("first", [0xC0, 0xE0, 0xFF, 0x00, 0x40])
def test_what_is_marked_as_infinity_or_not_as_compressed_is_no_signature(first: int) -> None:
    """arkworks reads any bytes behind the bit of infinity, and they add up to nothing."""
    for rest in (bytes(95), b"\x01" * 95, b"\xff" * 95):
        with pytest.raises(ValueError, match="compressed"):
            bls.added([bytes([first]) + rest])


def test_a_compressed_coordinate_has_one_spelling() -> None:
    with pytest.raises(ValueError, match="not reduced"):
        bls.added([b"\x9f" + b"\xff" * 95])


class Remembers(Arkworks):
    """What it was asked for."""

    def __init__(self) -> None:
        self.secrets: list[int] = []
        self.messages: list[tuple[int, bytes, bytes]] = []
        self.points: list[Sequence[bytes]] = []
        self.compressed: list[bytes] = []

    def key_of(self, secret: int) -> bytes:
        self.secrets.append(secret)
        return super().key_of(secret)

    def sign(self, secret: int, message: bytes, domain: bytes) -> bytes:
        self.messages.append((secret, message, domain))
        return super().sign(secret, message, domain)

    def expanded(self, signature: bytes) -> bytes:
        self.compressed.append(signature)
        return super().expanded(signature)

    def key_sum(self, keys: Sequence[bytes]) -> bytes:
        self.points.append(keys)
        return super().key_sum(keys)

    def signature_sum(self, points: Sequence[bytes]) -> bytes:
        self.points.append(points)
        return super().signature_sum(points)


@pytest.fixture(scope="module")
def asked() -> Remembers:
    library = Remembers()
    assert choose(library, Arkworks()).reason is None
    return library


def test_the_first_and_the_last_secret_are_tried(asked: Remembers) -> None:
    order = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
    assert asked.secrets == [0x1D2C5EED, order - 2, 1, order - 1]
    assert [secret for secret, _, _ in asked.messages] == [0x1D2C5EED, order - 2, 1]
    assert asked.messages[2] == (1, b"", bytes(43))


def test_signatures_of_what_is_no_point_are_tried_with_each_sign(asked: Remembers) -> None:
    wrong = [bytes([flags]) + bytes(94) + bytes([x]) for flags in (0x80, 0xA0) for x in (0, 1, 2)]
    assert asked.compressed[2:] == wrong


def test_points_on_the_curve_and_outside_the_group_are_tried(asked: Remembers) -> None:
    (outside,) = (
        point for points in asked.points for point in points if point[:48] == bytes(47) + b"\4"
    )
    y = int.from_bytes(outside[48:], "big")
    assert (y * y - 4**3 - 4) % FIELD == 0
    library = Arkworks()
    with pytest.raises(ValueError):
        library.key_sum([outside])
    twisted = [point for points in asked.points for point in points if len(point) == 192]
    (outside,) = (point for point in twisted if point[:96] == bytes(47) + b"\2" + bytes(48))
    real, imaginary = (int.from_bytes(outside[at : at + 48], "big") for at in (96, 144))
    square = (real * real - imaginary * imaginary) % FIELD, 2 * real * imaginary % FIELD
    assert square == (2**3 + 4, 4)
    with pytest.raises(ValueError):
        library.signature_sum([outside])
