"""What the verifier's worker tasks return; apart from them, so that the service needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.law.words import Digest


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """What `replay.SegmentReplay` says; `differs` is also what a served state is not."""

    differs: str
    computed: Digest
    work_word: Digest
    steps: int
    seconds: float
    excess: float = 0.0
    residual: bytes = b""


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """The next global state, which is in the store."""

    cid: bytes
    digest: Digest
