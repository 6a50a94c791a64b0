"""drand, as a chain that draws by it needs it: which round, whose signature, in which form.

Rule of this file: bytes in, bytes out; nothing here asks anybody. A signature is checked by the
contract alone, and by whoever posts one before it pays for it (`eth_estimateGas`).
Source: drand's scheme bls-unchained-g1-rfc9380; IETF draft-irtf-cfrg-pairing-friendly-curves-11, C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from atoll.protocol.bls_library import FIELD

COORDINATE_BYTES: Final = 48
_COMPRESSED: Final = 0x80
_INFINITE: Final = 0x40
_LARGER: Final = 0x20
MARGIN: Final = 12
"""Seconds that a block may be made after its time, without its maker knowing what it draws: as long
as a slot of Ethereum, in which its proposer has to show it."""


@dataclass(frozen=True, slots=True)
class DrandChain:
    """One of drand's networks.

    Attributes:
        hash: by which its servers know it.
        genesis: unix seconds of round 1.
        period: seconds from a round to the next.
        key: x.c0 ‖ x.c1 ‖ y.c0 ‖ y.c1 of a point of G2, 48 bytes each, as the contract takes it.
        margin: of a beacon of it, see `MARGIN`.
    """

    hash: str
    genesis: int
    period: int
    key: bytes
    margin: int = MARGIN

    def constructor(self) -> tuple[int, int, int, bytes]:
        """What `DrandBeacon` is created with."""
        return self.genesis, self.period, self.margin, self.key

    def time_of(self, round: int) -> int:
        """Unix seconds at which the round is signed."""
        return self.genesis + (round - 1) * self.period


QUICKNET: Final = DrandChain(
    hash="52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971",
    genesis=1_692_803_367,
    period=3,
    key=bytes.fromhex(
        "0d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a"
        "03cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d106451"
        "0e5db2b6bfbb01c867749cadffca88b36c24f3012ba09fc4d3022c5c37dce0f977d3adb5d183c7477c442b1f04515273"
        "01a714f2edb74119a2f2b0d5a7c75ba902d163700a61bc224ededd8e63aef7be1aaf8e93d7a9718b047ccddb3eb5d68b"
    ),
)
"""Of the League of Entropy, since August 2023."""


def expanded(signature: bytes) -> bytes:
    """x ‖ y of a signature as drand publishes it: x and which of two y.

    Raises ValueError on what encodes no point of the curve; the subgroup is the contract's to ask.
    """
    if len(signature) != COORDINATE_BYTES or not signature[0] & _COMPRESSED:
        raise ValueError(f"{len(signature)} bytes are no compressed point of G1")
    x = int.from_bytes(bytes([signature[0] & 0x1F]) + signature[1:], "big")
    if signature[0] & _INFINITE or x >= FIELD:
        raise ValueError("no point that signs anything")
    square = (pow(x, 3, FIELD) + 4) % FIELD
    y = pow(square, (FIELD + 1) // 4, FIELD)  # FIELD is 3 modulo 4
    if y * y % FIELD != square:
        raise ValueError("not on the curve")
    if (y > FIELD // 2) != bool(signature[0] & _LARGER):
        y = FIELD - y
    return b"".join(number.to_bytes(COORDINATE_BYTES, "big") for number in (x, y))
