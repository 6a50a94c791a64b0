"""Reveals of honest members, which nobody trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.support.contracts.values import ZERO, hashed
from tests.support.identities import cid, digest

from atoll.protocol.types import Digest, Reveal


def checkpoint_commitments_of(name: object, tags: Sequence[Digest], key: Digest) -> bytes:
    """Leaves of a round that nobody trained, whose plain work tags are these."""
    whole = b""
    for j, plain in enumerate(tags):
        masked = bytes(a ^ b for a, b in zip(plain, hashed(key, j), strict=True))
        whole += digest(f"state {name} {j}") + masked
    return whole


def reveal_of(
    name: object, segments: int, words: list[Digest] | None = None
) -> tuple[Reveal, Digest, list[Digest]]:
    """A reveal, its key and its plain work tags, which are made up where none are given."""
    key = digest(f"key {name}")
    words = [digest(f"x {name} {j}") for j in range(segments)] if words is None else words
    checkpoint_commitments = checkpoint_commitments_of(name, words, key)
    root = digest(f"update {name}") if segments else Digest(ZERO)
    return (
        Reveal(root, hashed(key), digest(f"salt {name}"), checkpoint_commitments, cid(name)),
        key,
        words,
    )


def changed(reveal: Reveal, **fields: Digest) -> Reveal:
    return replace(reveal, **fields)
