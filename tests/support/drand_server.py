"""A drand of our own: its key, and an HTTP server that signs every round it is asked for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, cast

from aiohttp import web
from py_ecc.bls.hash_to_curve import hash_to_G1
from py_ecc.bls.point_compression import compress_G1
from py_ecc.optimized_bls12_381 import G2, multiply, normalize

from atoll.chain.drand import DrandChain

DOMAIN = b"BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_"
HASH = "ab" * 32


def flat(point: Any) -> bytes:
    """A point's coordinates, as the contract takes them."""
    numbers = [n for part in normalize(point) for n in getattr(part, "coeffs", (part,))]
    return b"".join(int(number).to_bytes(48, "big") for number in numbers)


@dataclass
class Drand:
    """One chain of drand's, of which we have the secret.

    Attributes:
        asked: the rounds, in order.
        lies: whether it signs another round than it is asked for.
    """

    secret: int = 0x5EC2E7
    asked: list[int] = field(default_factory=list)
    lies: bool = False

    def chain(self, genesis: int, period: int = 1, margin: int = 0) -> DrandChain:
        key = flat(multiply(G2, self.secret))
        return DrandChain(HASH, genesis, period, key, margin)

    def sign(self, round: int) -> bytes:
        """Compressed, as drand publishes it."""
        message = hashlib.sha256(round.to_bytes(8, "big")).digest()
        point = multiply(hash_to_G1(message, DOMAIN, cast(Any, hashlib.sha256)), self.secret)
        return int(compress_G1(point)).to_bytes(48, "big")

    async def _public(self, request: web.Request) -> web.Response:
        round = int(request.match_info["round"])
        self.asked.append(round)
        signature = self.sign(round + self.lies)
        randomness = hashlib.sha256(signature).hexdigest()
        document = {"round": round, "randomness": randomness, "signature": signature.hex()}
        return web.json_response(document)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get(f"/{HASH}/public/{{round}}", self._public)
        return app
