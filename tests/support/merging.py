"""What the tests of merges share: the record of a round in which everybody stands."""

from __future__ import annotations

from collections.abc import Iterable

from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import MergeRecord
from atoll.protocol.types import SeatIndex, to_bitmap


def all_standing(seats: Iterable[int], manifest: Manifest) -> MergeRecord:
    """These seats revealed whole rounds, and the one member of the committee has all of them."""
    everyone = [SeatIndex(seat) for seat in seats]
    there = to_bitmap(everyone)
    return MergeRecord(there, 1, [there], dict.fromkeys(everyone, manifest.segments))


def bearing_none(manifest: Manifest) -> Manifest:
    """The manifest with f = 0, so that any number of updates is merged."""
    return manifest.model_copy(update={"robust": manifest.robust.model_copy(update={"f": 0})})
