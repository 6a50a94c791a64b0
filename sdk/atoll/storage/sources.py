"""Who can be asked for blocks, and how they have behaved.

Gateways are announced by strangers. A URL that is not plainly one is ignored when it is read; a
gateway that fails is asked later than the others, for longer each time; one that sends wrong bytes
is asked only when nobody else is left.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import IPv6Address

from yarl import URL

MAX_URL = 512
"""Bytes; the contract `Members` takes no longer ones."""
_PLAIN_URL = re.compile(
    r"https?://"
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|[0-9A-Za-z._-]+)"  # IPv6, or a name or IPv4
    r"(?::[0-9]{1,5})?"
    r"(?:/[0-9A-Za-z._~!$&'()*+,;=:@%/-]*)?"
)
"""Scheme, host, port and path of RFC 3986, without user, query and fragment."""
_FIRST_REST_S = 1.0
_LONGEST_REST_S = 300.0  # a provider that restarts must be asked again within its window
_UNAWAITED_S = 30.0  # a machine may stand still once: in the next round it has its turn again
_SLOW_REST_S = 5.0  # being slower once is no failure, only a reason to ask others first
_RECENT = 0.2  # weight of the latest block in the typical time
_PATIENCE = 4.0  # typical times that a block may take before someone else is asked


@dataclass(slots=True)
class GatewaySource:
    """One gateway's record.

    Attributes:
        url: its base URL, without a trailing slash.
        failures: timeouts and errors since it last delivered.
        lies: responses that were not what was asked for; never forgotten.
        rest_until: when it is next asked before others, in the book's clock.
        busy_until: before which it said that it has no room.
        unawaited_until: when it is next waited for, where it is getting a block itself; `in_vain`
            is how often it was waited for in vain since it last delivered.
        delivered_at: when it last delivered a block, by the same clock.
        in_flight: requests it is answering now.
        bytes_down: block bytes it delivered.
    """

    url: str
    failures: int = 0
    lies: int = 0
    rest_until: float = 0.0
    busy_until: float = 0.0
    unawaited_until: float = 0.0
    in_vain: int = 0
    delivered_at: float = 0.0
    in_flight: int = 0
    bytes_down: int = 0


@dataclass(slots=True)
class SourceBook:
    """Every gateway met so far.

    Args:
        clock: seconds, monotonic.
        typical_s: seconds that a block has lately taken to arrive; None before the first.
    """

    clock: Callable[[], float]
    typical_s: float | None = None
    _sources: dict[str, GatewaySource] = field(default_factory=dict)

    def ranked(self, urls: Iterable[str], prefer: Iterable[str] = ()) -> list[GatewaySource]:
        """The usable gateways of both lists: honest first, then rested, preferred, least busy."""
        now = self.clock()
        preferred = self._usable(prefer)
        candidates = list((preferred | self._usable(urls)).values())
        random.shuffle(candidates)
        return sorted(
            candidates,
            key=lambda s: (s.lies > 0, s.rest_until > now, s.url not in preferred, s.in_flight),
        )

    def patience_s(self, least_s: float, most_s: float) -> float:
        """How long to wait for a block before asking another gateway for it as well."""
        # Before the first block nobody knows; asking twice for one costs less than a stall.
        return min(max(_PATIENCE * (self.typical_s or 0.0), least_s), most_s)

    def delivered(self, source: GatewaySource, size: int, seconds: float) -> None:
        """Notes a good block and the time it took."""
        before = seconds if self.typical_s is None else self.typical_s
        self.typical_s = (1 - _RECENT) * before + _RECENT * seconds
        source.failures = 0
        source.rest_until = 0.0
        source.in_vain = 0
        source.delivered_at = self.clock()
        source.bytes_down += size

    def overtaken(self, source: GatewaySource) -> None:
        """Notes that another gateway, asked later, was sooner; it may only have been busy."""
        self.failed(source, longest_rest_s=_SLOW_REST_S)

    def failed(self, source: GatewaySource, longest_rest_s: float = _LONGEST_REST_S) -> None:
        """Notes a timeout or an error."""
        rest = min(_FIRST_REST_S * 2.0**source.failures, longest_rest_s)
        source.failures = min(source.failures + 1, 16)
        source.rest_until = self.clock() + rest

    def busy(self, source: GatewaySource, seconds: float) -> None:
        """Notes that it has no room, and when to ask it again: that is no failure."""
        source.busy_until = self.clock() + seconds

    def with_room(self, sources: Iterable[GatewaySource]) -> list[GatewaySource]:
        """Those of them that did not say that they have no room just now."""
        now = self.clock()
        return [source for source in sources if source.busy_until <= now]

    def withheld(self, source: GatewaySource) -> None:
        """Notes that it did not bring what was its turn; it is waited for later and later."""
        rest = min(_UNAWAITED_S * 2.0**source.in_vain, _LONGEST_REST_S)
        source.unawaited_until = max(source.unawaited_until, self.clock() + rest)
        source.in_vain = min(source.in_vain + 1, 16)

    def lied(self, source: GatewaySource) -> None:
        """Notes bytes that were not the block asked for."""
        source.lies += 1
        self.failed(source)

    def distrust(self, url: str) -> None:
        """Notes a lie that only the asker could see."""
        for source in self.ranked([url]):
            self.lied(source)

    def all(self) -> list[GatewaySource]:
        """Every gateway met so far."""
        return list(self._sources.values())

    def bad(self) -> list[GatewaySource]:
        """The gateways that have lied."""
        return [source for source in self._sources.values() if source.lies]

    def _usable(self, urls: Iterable[str]) -> dict[str, GatewaySource]:
        known = (url for raw in urls if (url := normalise_gateway(raw)) is not None)
        return {url: self._sources.setdefault(url, GatewaySource(url)) for url in known}


def normalise_gateway(text: str) -> str | None:
    """The base URL without a trailing slash, or None where it is not a plain HTTP(S) URL.

    What is one is decided by the pattern, before a library that was made for browsers' addresses
    takes it apart: that one takes `[:]` for a host.
    """
    plain = _PLAIN_URL.fullmatch(text) if len(text) <= MAX_URL else None
    if plain is None:
        return None
    try:
        if plain["ipv6"] is not None:
            IPv6Address(plain["ipv6"])
        url = URL(text)
        usable = url.host and url.port
    except ValueError:
        return None
    return str(url).rstrip("/") if usable else None
