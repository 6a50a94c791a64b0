"""What the verifier's worker tasks return; apart from them, so that the service needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.protocol.types import Digest


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """`differs` is empty where every digest matched; `computed` is the replay's state digest."""

    differs: str
    computed: Digest
    step_root: Digest
    steps: int
    seconds: float


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """The next global state, which is in the store."""

    cid: bytes
    digest: Digest
