"""How a member tells another's gateway who asks: a line signed for it and for a few minutes.

The header is `Authorization: Atoll ACCOUNT UNTIL SIGNATURE`, as SPEC.md has it. Whoever overhears
it can use a member's room at that gateway until then, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from eth_utils.address import is_address

from atoll.protocol.certificates import signer_of
from atoll.protocol.typed_data import TypedField, TypedMessage
from atoll.protocol.types import Address, Domain
from atoll.storage.sources import normalise_gateway

SCHEME: Final = "Atoll"
VALID_SECONDS: Final = 300
SKEW_SECONDS: Final = 60
"""Two clocks may differ by this much."""
_LONGEST: Final = 256


@dataclass
class Greeter:
    """Signs for gateways, once in a while for each.

    Args:
        sign: `sign_typed` with our key.
        now: unix seconds.
    """

    account: Address
    domain: Domain
    sign: Callable[[TypedMessage], bytes]
    now: Callable[[], float] = time.time
    _signed: dict[str, tuple[int, str]] = field(default_factory=dict)

    def __call__(self, gateway: str) -> str:
        """The header for a gateway's address."""
        until, header = self._signed.get(gateway, (0, ""))
        if not VALID_SECONDS / 2 <= until - self.now() <= VALID_SECONDS:  # more: a clock set back
            until = int(self.now()) + VALID_SECONDS
            signature = self.sign(_message(self.domain, self.account, gateway, until))
            header = f"{SCHEME} {self.account} {until} {signature.hex()}"
            self._signed[gateway] = (until, header)
        return header


def greeted(header: str, domain: Domain, gateway: str, now: float) -> Address | None:
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
    if not is_address(account):
        return None
    who = Address(account)
    message = _message(domain, who, normalise_gateway(gateway) or "", int(until))
    return who if signer_of(message.digest, raw) == who else None


def _message(domain: Domain, account: Address, gateway: str, until: int) -> TypedMessage:
    fields = (
        TypedField("address", "account", account),
        TypedField("string", "gateway", gateway),
        TypedField("uint64", "until", until),
    )
    return TypedMessage(domain.chain_id, domain.rounds, "Greeting", fields)
