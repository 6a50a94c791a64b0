"""How a member tells another's gateway who asks: a line signed for it and for a few minutes.

The header is `Authorization: Atoll ACCOUNT UNTIL SIGNATURE`, as SPEC.md has it. Whoever overhears
it can use a member's room at that gateway until then, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from eth_utils.crypto import keccak

from atoll.chain.keys import signer_of
from atoll.protocol.types import Address, Digest
from atoll.storage.sources import normalise_gateway

SCHEME: Final = "Atoll"
TAG: Final = b"atoll.gateway.v1"
VALID_SECONDS: Final = 300
SKEW_SECONDS: Final = 60
"""Two clocks may differ by this much."""
_LONGEST: Final = 256


@dataclass
class Greeter:
    """Signs for gateways, once in a while for each.

    Args:
        sign: `sign_digest` with our key.
        now: unix seconds.
    """

    account: Address
    chain_id: int
    sign: Callable[[Digest], bytes]
    now: Callable[[], float] = time.time
    _signed: dict[str, tuple[int, str]] = field(default_factory=dict)

    def __call__(self, gateway: str) -> str:
        """The header for a gateway's address."""
        until, header = self._signed.get(gateway, (0, ""))
        if not VALID_SECONDS / 2 <= until - self.now() <= VALID_SECONDS:  # more: a clock set back
            until = int(self.now()) + VALID_SECONDS
            signature = self.sign(_digest(self.chain_id, gateway, until))
            header = f"{SCHEME} {self.account} {until} {signature.hex()}"
            self._signed[gateway] = (until, header)
        return header


def greeted(header: str, chain_id: int, gateway: str, now: float) -> Address | None:
    """Whose header it is; None where it is nobody's, another gateway's, or too old."""
    parts = header.split(" ")
    if len(header) > _LONGEST or len(parts) != 4 or parts[0] != SCHEME:
        return None
    account, until, signature = parts[1:]
    if not until.isascii() or not until.isdigit() or len(until) > 12:
        return None
    if not now - SKEW_SECONDS <= int(until) <= now + VALID_SECONDS + SKEW_SECONDS:
        return None
    try:
        raw = bytes.fromhex(signature)
    except ValueError:
        return None
    signer = signer_of(_digest(chain_id, normalise_gateway(gateway) or "", int(until)), raw)
    return signer if signer == account else None


def _digest(chain_id: int, gateway: str, until: int) -> Digest:
    parts = (TAG, chain_id.to_bytes(8, "big"), until.to_bytes(8, "big"), gateway.encode())
    return Digest(keccak(b"".join(parts)))
