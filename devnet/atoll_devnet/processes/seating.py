"""Who sits where: member i has seat or slot i, and a job opens once all are in.

Otherwise the fastest few would start without the others, and a cheat's seat could not be named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from atoll.protocol.types import Phase
from atoll.protocol.views import JobView
from atoll_node.behaviour import ProviderBehaviour
from atoll_verifier.behaviour import VerifierBehaviour


@dataclass(frozen=True, slots=True)
class Place:
    """A member's number, and how many members the network starts with."""

    index: int
    providers: int
    verifiers: int

    def pick(self, free: Sequence[int]) -> int | None:
        """The one of its number, or any other where somebody has that."""
        return self.index if self.index in free else None

    def is_complete(self, view: JobView) -> bool:
        """Whether all are in, or the job went on without them."""
        has_opened = view.phase is not Phase.WAITING or view.round > 0
        seats, pool = view.held.bit_count(), len(view.pool(view.round))
        return has_opened or (seats >= self.providers and pool >= self.verifiers)


def placed_provider(behaviour: ProviderBehaviour, place: Place) -> ProviderBehaviour:
    """The same behaviour on the seat of its number."""
    kind = type(behaviour)

    def pick_index(self: ProviderBehaviour, view: JobView, free: Sequence[int]) -> int | None:
        return place.pick(free)

    return cast(ProviderBehaviour, type(kind.__name__, (kind,), {"pick_index": pick_index})())


def placed_verifier(behaviour: VerifierBehaviour, place: Place) -> VerifierBehaviour:
    """The same behaviour at the slot of its number, ready only once everyone is in."""
    kind = type(behaviour)

    def pick_index(self: VerifierBehaviour, view: JobView, free: Sequence[int]) -> int | None:
        return place.pick(free)

    def may_say_ready(self: VerifierBehaviour, view: JobView) -> bool:
        return place.is_complete(view) and kind.may_say_ready(self, view)

    hooks = {"pick_index": pick_index, "may_say_ready": may_say_ready}
    return cast(VerifierBehaviour, type(kind.__name__, (kind,), hooks)())
