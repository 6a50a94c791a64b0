"""BLS12-381 by arkworks, in Rust: what signs and checks where it agrees with `bls_reference`."""

from __future__ import annotations

from collections.abc import Sequence

from py_arkworks_bls12381 import GT, G1Point, G2Point, Scalar


class Arkworks:
    """As `bls_library.BlsLibrary`."""

    name = "arkworks"

    def key_of(self, secret: int) -> bytes:
        return (G1Point() * Scalar(secret)).to_xy_bytes_be()

    def key_sum(self, keys: Sequence[bytes]) -> bytes:
        points = (G1Point.from_xy_bytes_be(key) for key in keys)
        return sum(points, G1Point.identity()).to_xy_bytes_be()

    def sign(self, secret: int, message: bytes, domain: bytes) -> bytes:
        return (G2Point.hash_to_curve(message, domain) * Scalar(secret)).to_compressed_bytes()

    def expanded(self, signature: bytes) -> bytes:
        return G2Point.from_compressed_bytes(signature).to_xy_bytes_be()

    def signature_sum(self, points: Sequence[bytes]) -> bytes:
        read = (G2Point.from_xy_bytes_be(point) for point in points)
        return sum(read, G2Point.identity()).to_xy_bytes_be()

    def is_signed(self, key: bytes, message: bytes, point: bytes, domain: bytes) -> bool:
        keys = [G1Point.from_xy_bytes_be(key), -G1Point()]
        hashed, signature = G2Point.hash_to_curve(message, domain), G2Point.from_xy_bytes_be(point)
        return GT.pairing_check(keys, [hashed, signature])
