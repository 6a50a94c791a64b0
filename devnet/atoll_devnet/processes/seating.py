"""Who sits where: members take the places of their numbers, and a job opens once all are in.

Otherwise the fastest few would start without the others, and a cheat's seat could not be named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from atoll.law.views import JobView
from atoll.law.words import JobStatus
from atoll_node.behaviour import ProviderBehaviour
from atoll_verifier.behaviour import VerifierBehaviour


@dataclass(frozen=True, slots=True)
class Place:
    """A member's number, and how many members the network starts with."""

    index: int
    providers: int
    verifiers: int


def _is_running(view: JobView) -> bool:
    """A job that has opened is joined without waiting for anyone."""
    return view.state.status is not JobStatus.OPEN


def placed_provider(behaviour: ProviderBehaviour, place: Place) -> ProviderBehaviour:
    """The same behaviour, taking a seat only once those of lower numbers are taken."""
    kind = type(behaviour)

    def may_join(self: ProviderBehaviour, view: JobView) -> bool:
        turn = _is_running(view) or len(view.seats) >= place.index
        return turn and kind.may_join(self, view)

    return cast(ProviderBehaviour, type(kind.__name__, (kind,), {"may_join": may_join})())


def placed_verifier(behaviour: VerifierBehaviour, place: Place) -> VerifierBehaviour:
    """The same behaviour, joining in turn and ready only once everyone is in."""
    kind = type(behaviour)

    def may_join(self: VerifierBehaviour, view: JobView) -> bool:
        turn = _is_running(view) or len(view.verifiers) >= place.index
        return turn and kind.may_join(self, view)

    def may_attest_ready(self: VerifierBehaviour, view: JobView) -> bool:
        complete = len(view.seats) >= place.providers and len(view.verifiers) >= place.verifiers
        return (_is_running(view) or complete) and kind.may_attest_ready(self, view)

    hooks = {"may_join": may_join, "may_attest_ready": may_attest_ready}
    return cast(VerifierBehaviour, type(kind.__name__, (kind,), hooks)())
