"""Which library's BLS12-381 this process uses: arkworks where it gives what py-ecc gives.

Two members whose libraries differ would part over a certificate, and a library that signs wrongly
gives its member's key away; nobody notices either from the inside. So the fast one is tried once a
process on inputs that part implementations, and the readable one stands in where it is missing or
answers otherwise. Both see only what `bls` lets through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol

FIELD: Final = int(
    "1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f624"
    "1eabfffeb153ffffb9feffffffffaaab",
    16,
)
"""The prime that coordinates are below."""
ORDER: Final = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
"""Of both groups."""
_SECRETS: Final = 0x1D2C5EED, ORDER - 2
_DOMAIN: Final = b"ATOLL-TRIAL-V1"
_MESSAGE: Final = b"which library signs?"


def _number(value: int) -> bytes:
    return value.to_bytes(48, "big")


_OUTSIDE: Final = (
    0x18C6B864AE17DC9DA64203FFEFB966306425A7BC6AEB7C75247438372716284A4173830420CD476BA1A365B95BFCEC38,
    0x172E93DB764A8400A7D5071B6B6F5DE0DA2F0F4A063119ABCA014006B7C40A2CFE291A1924E65DB0D6D0FCFBF3BF3D5C,
)
"""y of the point of the twist with x = 2, which is not in the subgroup."""
_NO_KEYS: Final = (
    _number(1) * 2,
    _number(4) + _number(pow(4**3 + 4, (FIELD + 1) // 4, FIELD)),  # on the curve, outside
    bytes(95),
)
_NO_POINTS: Final = _number(1) * 4, _number(2) + bytes(48) + b"".join(map(_number, _OUTSIDE))
_NO_SIGNATURES: Final = tuple(
    bytes([flags]) + bytes(47) + _number(x) for flags in (0x80, 0xA0) for x in (0, 1, 2)
)
"""Compressed; of x = 2 there is a point, outside."""


class BlsLibrary(Protocol):
    """Points are their coordinates of 48 bytes, big-endian and reduced; zeros are infinity.

    Each raises ValueError on what is no point of its group.
    """

    name: str

    def key_of(self, secret: int) -> bytes:
        """The public key."""

    def key_sum(self, keys: Sequence[bytes]) -> bytes:
        """What keys add up to."""

    def sign(self, secret: int, message: bytes, domain: bytes) -> bytes:
        """A signature, compressed."""

    def expanded(self, signature: bytes) -> bytes:
        """The point of a compressed signature."""

    def signature_sum(self, points: Sequence[bytes]) -> bytes:
        """What signatures add up to."""

    def is_signed(self, key: bytes, message: bytes, point: bytes, domain: bytes) -> bool:
        """Whether e(key, H(message)) = e(generator, point)."""


@dataclass(frozen=True, slots=True)
class InUse:
    """What this process signs and checks with.

    Attributes:
        reason: why it is the slow one; None of the fast one.
    """

    library: BlsLibrary
    reason: str | None = None


@cache
def in_use() -> InUse:
    """The fast library where it agrees with the reference; tried once a process, for seconds."""
    # Neither is loaded before something is signed or checked with it: it takes half a second.
    from atoll.protocol.bls_reference import Reference  # noqa: PLC0415

    try:
        from atoll.protocol.bls_arkworks import Arkworks  # noqa: PLC0415
    except ImportError as error:
        return InUse(Reference(), f"arkworks cannot be imported: {error}")
    return choose(Arkworks(), Reference())


def choose(fast: BlsLibrary, reference: BlsLibrary) -> InUse:
    """The fast one, unless something that it gives is another than the reference's."""
    parted = first_difference(fast, reference)
    if parted is None:
        return InUse(fast)
    return InUse(reference, f"{fast.name} and {reference.name} differ in {parted}")


def first_difference(fast: BlsLibrary, reference: BlsLibrary) -> str | None:
    """The first thing in which two libraries differ; None where they agree."""
    pairs = zip(_trials(fast), _trials(reference), strict=True)
    return next((what for (what, ours), (_, theirs) in pairs if ours != theirs), None)


def _trials(library: BlsLibrary) -> Iterator[tuple[str, object]]:
    """What is tried, and what a library gives: an error of its own is an answer, too."""
    sign, is_signed = library.sign, library.is_signed
    keys = [library.key_of(secret) for secret in _SECRETS]
    signatures = [sign(secret, _MESSAGE, _DOMAIN) for secret in _SECRETS]
    points = [_answer(library.expanded, each) for each in signatures]
    yield "keys", [*keys, library.key_of(1), library.key_of(ORDER - 1)]
    yield "signatures", [*signatures, sign(1, b"", b"\0" * 43)]
    yield "points", points
    yield "sums of keys", [_answer(library.key_sum, each) for each in _sums(keys, _NO_KEYS)]
    yield "no points", [_answer(library.expanded, each) for each in _NO_SIGNATURES]
    if not all(isinstance(point, bytes) for point in points):
        return
    known = [point for point in points if isinstance(point, bytes)]
    sums = [_answer(library.signature_sum, each) for each in _sums(known, _NO_POINTS)]
    yield "sums of signatures", sums
    total, whole = library.key_sum(keys), library.signature_sum(known)
    yield "a certificate", is_signed(total, _MESSAGE, whole, _DOMAIN)
    yield "another's signature", is_signed(keys[0], _MESSAGE, known[1], _DOMAIN)


def _answer(ask: Callable[..., bytes], given: object) -> bytes | str:
    try:
        return ask(given)
    except ValueError:
        return "refused"


def _sums(points: Sequence[bytes], wrong: Sequence[bytes]) -> list[list[bytes]]:
    """Two, the same twice, infinity, nothing, two that cancel out; each wrong one too."""
    first, second = points
    half = len(first) // 2
    numbers = [first[half + at : half + at + 48] for at in range(0, half, 48)]
    negative = b"".join(_number(-int.from_bytes(n, "big") % FIELD) for n in numbers)
    opposite = first[:half] + negative
    sums = [[first, second], [first, first], [first, bytes(len(first))], [], [first, opposite]]
    return sums + [[first, each] for each in wrong]
