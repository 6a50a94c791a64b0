"""secp256k1 and RFC 6979, for the key of a round and for certificates: SPEC-ROUNDS.md, 2 and 7.

Plain integers: SEC 2 (version 2), section 2.4.1, for the curve; SEC 1, section 4.1, for signatures.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator

from tests.second_client.words import keccak

P = 2**256 - 2**32 - 977
N = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
G = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)
Point = tuple[int, int] | None
"""None is the point at infinity."""


def _added(a: Point, b: Point) -> Point:
    if a is None or b is None:
        return a or b
    (x1, y1), (x2, y2) = a, b
    if x1 == x2 and (y1 + y2) % P == 0:
        return None
    rise, run = (3 * x1 * x1, 2 * y1) if a == b else (y2 - y1, x2 - x1)
    slope = rise * pow(run, -1, P)
    x = (slope * slope - x1 - x2) % P
    return x, (slope * (x1 - x) - y1) % P


def times(scalar: int, point: Point) -> Point:
    """The point, so many times; the scalar is read modulo the group's order."""
    total, scalar = None, scalar % N
    while scalar:
        if scalar & 1:
            total = _added(total, point)
        point, scalar = _added(point, point), scalar >> 1
    return total


def address_of(point: Point) -> bytes:
    """The 20 bytes of an account."""
    assert point is not None
    x, y = point
    return keccak(x.to_bytes(32, "big") + y.to_bytes(32, "big"))[-20:]


def _nonces(secret: int, digest: bytes) -> Iterator[int]:
    """RFC 6979, 3.2, with HMAC-SHA-256: the digest stands for the message's hash."""

    def mac(key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, hashlib.sha256).digest()

    seed = secret.to_bytes(32, "big") + (int.from_bytes(digest, "big") % N).to_bytes(32, "big")
    key, value = bytes(32), b"\x01" * 32
    for last in (b"\x00", b"\x01"):
        key = mac(key, value + last + seed)
        value = mac(key, value)
    while True:
        value = mac(key, value)
        yield int.from_bytes(value, "big")
        key = mac(key, value + b"\x00")
        value = mac(key, value)


def sign(secret: int, digest: bytes) -> bytes:
    """r ‖ s ‖ v of 32 bytes as they are, s low, v 27 or 28."""
    z = int.from_bytes(digest, "big")
    for k in _nonces(secret, digest):
        point = times(k, G) if 0 < k < N else None
        if point is None or point[0] % N == 0:
            continue
        r, odd = point[0] % N, point[1] & 1
        s = pow(k, -1, N) * (z + r * secret) % N
        if s == 0:
            continue
        if 2 * s > N:
            s, odd = N - s, odd ^ 1
        return r.to_bytes(32, "big") + s.to_bytes(32, "big") + bytes([27 + odd])
    raise AssertionError("there is always another nonce")


def recover(digest: bytes, signature: bytes) -> bytes:
    """The account that signed 32 bytes. Raises ValueError unless s is low and v 27 or 28."""
    r, s = (int.from_bytes(signature[at : at + 32], "big") for at in (0, 32))
    if len(signature) != 65 or signature[64] not in (27, 28):
        raise ValueError("not r, s and v")
    if not (0 < r < N and 0 < 2 * s <= N):
        raise ValueError("r or s is out of range, or s is high")
    y = pow(r**3 + 7, (P + 1) // 4, P)
    if y * y % P != (r**3 + 7) % P:
        raise ValueError("r is no point's")
    point = (r, y if y & 1 == signature[64] - 27 else P - y)
    inverse, z = pow(r, -1, N), int.from_bytes(digest, "big")
    found = _added(times(s * inverse, point), times(-z * inverse, G))
    if found is None:
        raise ValueError("nobody's signature")
    return address_of(found)
