"""BLS12-381 by py-ecc, the reference in plain Python: what it gives is right, and takes half a
second where `bls_arkworks` takes a millisecond.

Rule of this file: each function is the lines of the draft that it names, to be read beside them.
Source: draft-irtf-cfrg-bls-signature-05; its points are those of section 2.1, ours of `bls`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, cast

# It lifts the limit of the whole process to 100,000, at which a stranger's hundred thousand opening
# brackets are no RecursionError of a parser but a segmentation fault.
_limit = sys.getrecursionlimit()
from py_ecc.bls.g2_primitives import (  # noqa: E402
    G2_to_signature,
    signature_to_G2,
    subgroup_check,
)
from py_ecc.bls.hash_to_curve import hash_to_G2  # noqa: E402
from py_ecc.fields import optimized_bls12_381_FQ as FQ  # noqa: E402
from py_ecc.fields import optimized_bls12_381_FQ2 as FQ2  # noqa: E402
from py_ecc.fields import optimized_bls12_381_FQ12 as FQ12  # noqa: E402
from py_ecc.optimized_bls12_381 import (  # noqa: E402
    G1,
    Z1,
    Z2,
    add,
    b,
    b2,
    final_exponentiate,
    is_inf,
    is_on_curve,
    multiply,
    neg,
    normalize,
    pairing,
)

sys.setrecursionlimit(_limit)
if TYPE_CHECKING:
    from eth_typing import BLSSignature

_SIZE: Final = 48
"""Of a coordinate."""


class Reference:
    """As `bls_library.BlsLibrary`."""

    name = "py-ecc"

    def key_of(self, secret: int) -> bytes:
        """SkToPk (2.4)."""
        return _flat(multiply(G1, secret))

    def key_sum(self, keys: Sequence[bytes]) -> bytes:
        """The first lines of FastAggregateVerify (3.3.4)."""
        return _flat(reduce(add, map(_key, keys), Z1))

    def sign(self, secret: int, message: bytes, domain: bytes) -> bytes:
        """CoreSign (2.6)."""
        return bytes(G2_to_signature(multiply(_hashed(message, domain), secret)))

    def expanded(self, signature: bytes) -> bytes:
        """signature_to_point and signature_subgroup_check (2.1)."""
        point = signature_to_G2(cast("BLSSignature", signature))
        if not subgroup_check(point):
            raise ValueError("not in the subgroup")
        return _flat(point)

    def signature_sum(self, points: Sequence[bytes]) -> bytes:
        """Aggregate (2.8)."""
        return _flat(reduce(add, map(_signature, points), Z2))

    def is_signed(self, key: bytes, message: bytes, point: bytes, domain: bytes) -> bool:
        """CoreVerify (2.7): e(H(message), key) · e(point, -generator) = 1."""
        left = pairing(_hashed(message, domain), _key(key), final_exponentiate=False)
        right = pairing(_signature(point), neg(G1), final_exponentiate=False)
        return bool(final_exponentiate(left * right) == FQ12.one())


def _hashed(message: bytes, domain: bytes) -> Any:
    return hash_to_G2(message, domain, cast(Any, hashlib.sha256))


def _key(data: bytes) -> Any:
    x, y = _coordinates(data, 2)
    return _checked((FQ(x), FQ(y), FQ.one()), b) if x or y else Z1


def _signature(data: bytes) -> Any:
    numbers = _coordinates(data, 4)
    x, y = FQ2(numbers[:2]), FQ2(numbers[2:])
    return _checked((x, y, FQ2.one()), b2) if any(numbers) else Z2


def _checked(point: Any, curve: Any) -> Any:
    if not is_on_curve(point, curve) or not subgroup_check(point):
        raise ValueError("not a point of the group")
    return point


def _coordinates(data: bytes, count: int) -> list[int]:
    if len(data) != count * _SIZE:
        raise ValueError(f"{len(data)} bytes are no {count} coordinates")
    return [int.from_bytes(data[at : at + _SIZE], "big") for at in range(0, len(data), _SIZE)]


def _flat(point: Any) -> bytes:
    """The coordinates, zeros of the point at infinity."""
    parts = [getattr(each, "coeffs", (each,)) for each in normalize(point)]
    numbers = [0 if is_inf(point) else int(each) for part in parts for each in part]
    return b"".join(number.to_bytes(_SIZE, "big") for number in numbers)
