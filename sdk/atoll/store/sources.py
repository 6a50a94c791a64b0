"""Who can be asked for blocks, and how they have behaved.

Gateways are announced by strangers. A URL that cannot be used is ignored; a gateway that fails is
asked later than the others, for longer each time; one that sends wrong bytes is asked only when
nobody else is left.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from yarl import URL

MAX_URL = 255
_FIRST_REST_S = 1.0
_LONGEST_REST_S = 300.0


@dataclass(slots=True)
class Source:
    """One gateway's record.

    Attributes:
        url: its base URL, without a trailing slash.
        failures: timeouts and errors since it last delivered.
        lies: responses that were not what was asked for; never forgotten.
        rest_until: when it is next asked before others, in the book's clock.
        in_flight: requests it is answering now.
        bytes_down: block bytes it delivered.
    """

    url: str
    failures: int = 0
    lies: int = 0
    rest_until: float = 0.0
    in_flight: int = 0
    bytes_down: int = 0


@dataclass(slots=True)
class SourceBook:
    """Every gateway met so far.

    Args:
        clock: seconds, monotonic.
    """

    clock: Callable[[], float]
    _sources: dict[str, Source] = field(default_factory=dict)

    def ranked(self, urls: Iterable[str]) -> list[Source]:
        """The usable gateways among `urls`: honest first, then rested, then least busy."""
        now = self.clock()
        found = {url: self._get(url) for raw in urls if (url := normalise_gateway(raw)) is not None}
        candidates = list(found.values())
        random.shuffle(candidates)
        return sorted(candidates, key=lambda s: (s.lies > 0, s.rest_until > now, s.in_flight))

    def delivered(self, source: Source, size: int) -> None:
        """Notes a good block."""
        source.failures = 0
        source.rest_until = 0.0
        source.bytes_down += size

    def failed(self, source: Source) -> None:
        """Notes a timeout or an error."""
        rest = min(_FIRST_REST_S * 2.0**source.failures, _LONGEST_REST_S)
        source.failures = min(source.failures + 1, 16)
        source.rest_until = self.clock() + rest

    def lied(self, source: Source) -> None:
        """Notes bytes that were not the block asked for."""
        source.lies += 1
        self.failed(source)

    def bad(self) -> list[Source]:
        """The gateways that have lied."""
        return [source for source in self._sources.values() if source.lies]

    def _get(self, url: str) -> Source:
        return self._sources.setdefault(url, Source(url))


def normalise_gateway(text: str) -> str | None:
    """The base URL without a trailing slash, or None where it is not a plain HTTP(S) URL."""
    if len(text) > MAX_URL:
        return None
    try:
        url = URL(text)
        usable = url.scheme in ("http", "https") and url.host and url.port
    except ValueError:
        return None
    if not usable or url.user or url.password or url.query_string or url.fragment:
        return None
    return str(url).rstrip("/")
