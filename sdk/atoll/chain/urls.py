"""How an endpoint is named. Rule of this file: it loads no client."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from atoll.errors import ConfigError

_NAMED: Final = re.compile(r"\s*((?:[A-Za-z][A-Za-z0-9+.-]*://)?)([^/?#\\]*)(.*)", re.DOTALL)
"""Scheme, user and host, and the rest, of any text that may be meant for a URL."""


def require_endpoint(url: str) -> None:
    """Raises ConfigError where a text is no http(s) URL with a host."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        is_one = is_one and not re.search(r"\s", parts.netloc)
    except ValueError:  # brackets, or a port that is none
        is_one = False
    if not is_one:
        raise ConfigError(
            f"RPC endpoint {redact(url)!r} is not an http(s) URL",
            next_step="name it as http://HOST:PORT, with --rpc or rpc_urls",
        )


def is_of_this_machine(url: str) -> bool:
    """Whether an endpoint's host is loopback."""
    name = urlsplit(url).hostname or ""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def redact(url: str) -> str:
    """The URL without what may be a secret: user, password, path and query.

    Of what is no URL, too, such as one without a scheme, the host is left and what may be one is
    not: where a password may hold the character that ends a host, nothing is.
    """
    scheme, authority, rest = _NAMED.fullmatch(url).groups()  # type: ignore[union-attr]  # any text
    return scheme + ("…" if "@" in rest else authority.rpartition("@")[2])
