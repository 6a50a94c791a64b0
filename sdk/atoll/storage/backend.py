"""Where content is kept, as settings name it. Rule of this file: it loads no client."""

from __future__ import annotations

from atoll.errors import ConfigError
from atoll.storage.kubo import kubo_multiaddr
from atoll.storage.sources import normalise_gateway


def parse_backend(text: str) -> tuple[str, str]:
    """Splits `kind:address`; the address is empty for `embedded`.

    Raises:
        ConfigError: an unknown kind, or an address that cannot be one.
    """
    kind, _, address = text.partition(":")
    if kind not in ("embedded", "kubo", "gateway") or (kind == "embedded") != (not address):
        raise ConfigError(
            f"unknown storage backend {text!r}",
            next_step="use embedded, kubo:http://127.0.0.1:5001 or gateway:https://example.org",
        )
    if kind == "gateway" and normalise_gateway(address) is None:
        raise ConfigError(
            f"{address!r} is not a gateway's address",
            next_step="write it like gateway:https://example.org",
        )
    if kind == "kubo":
        kubo_multiaddr(address)
    return kind, address
