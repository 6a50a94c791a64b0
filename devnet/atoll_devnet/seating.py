"""Who sits where: provider i of a local network takes seat i, however fast each one starts."""

from __future__ import annotations

from typing import cast

from atoll.protocol.views import JobView
from atoll_node.behaviour import ProviderBehaviour


def seated_at(behaviour: ProviderBehaviour, seat: int) -> ProviderBehaviour:
    """The same behaviour, joining a job only once its first `seat` seats are taken.

    A job that has settled a round is joined without waiting: seats are handed out lowest first.
    """
    kind = type(behaviour)

    def may_join(self: ProviderBehaviour, view: JobView) -> bool:
        return kind.may_join(self, view) and (len(view.seats) >= seat or bool(view.settled))

    seated = type(f"{kind.__name__}AtSeat{seat}", (kind,), {"may_join": may_join})
    return cast(ProviderBehaviour, seated())
