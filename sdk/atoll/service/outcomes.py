"""What shared worker tasks return; apart from them, so that the service needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.law.words import Digest


@dataclass(frozen=True, slots=True)
class OpenedState:
    """A global state that is in the store, and what others are held to about it."""

    cid: bytes
    digest: Digest
    params_root: Digest
