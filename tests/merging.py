"""What the tests of merges share: the facts of a round in which everybody stands."""

from __future__ import annotations

from collections.abc import Iterable

from atoll.law.manifest import Manifest
from atoll.law.merge_inputs import MergeFacts
from atoll.law.words import Bitmap, SeatIndex, to_bitmap


def all_standing(seats: Iterable[int], manifest: Manifest, caught: int = 0) -> MergeFacts:
    """These seats revealed whole rounds, and nobody among them is rejected or unresolved."""
    everyone = [SeatIndex(seat) for seat in seats]
    steps = dict.fromkeys(everyone, manifest.inner.steps)
    return MergeFacts(to_bitmap(everyone), Bitmap(0), Bitmap(0), caught, steps)
