"""How a file comes to many while its author sends each block about once.

Rule of this file: who brings which block to the others is drawn by the block's hash,
so that nobody has to be asked who does, and everybody's share is alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final, Self

from atoll.storage.sources import normalise_gateway

TRIES: Final = 2
"""Of those that could have a block by now, so many are waited for; then anybody is asked."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Who has a file, who serves it on, and who we are among these.

    Attributes:
        author: the gateway of who made the file; empty where it brings the file to the relays.
        relays: gateways that get the file and serve it on.
        me: our own gateway's URL.
        patience_s: for how long from its beginning a fetch waits for relays, all of them together,
            so that those who withhold cannot make anybody late for what it is fetched for.
    """

    author: str
    relays: frozenset[str]
    me: str
    patience_s: float = inf

    @classmethod
    def of(cls, author: str, relays: Iterable[str], me: str, patience_s: float = inf) -> Self:
        """The same of announced URLs; the author is no relay, and what is no URL is nobody's."""
        usable = {url for raw in relays if (url := normalise_gateway(raw)) is not None}
        relays = frozenset(usable - {normalise_gateway(author)})
        return cls(author, relays, normalise_gateway(me) or "", patience_s)

    @property
    def is_brought(self) -> bool:
        """Whether what we ask for is on its way here, and we are no more than to wait for it."""
        return not self.author and self.me in self.relays

    def waited_for(self, digest: bytes) -> tuple[str, ...]:
        """The relays that a block is waited for at, in order; none where we ask its author.

        A relay waits for those before it: the first of a block asks the author at once, the second
        when the first does not deliver.
        """
        first = in_turn(digest, self.relays)[:TRIES]
        return tuple(first[: first.index(self.me)] if self.me in first else first)


def in_turn(digest: bytes, urls: Iterable[str]) -> list[str]:
    """A block's lot: whose turn it is to get it, first one first."""
    return sorted(urls, key=lambda url: hashlib.sha256(digest + url.encode()).digest())
