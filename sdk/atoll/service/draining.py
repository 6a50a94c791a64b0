"""How a service ends: at its operator's word, or drained, once every bond is home."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from atoll.protocol.types import JobId
from atoll.service.duties.game import decide_games
from atoll.service.duties.join_and_leave import SendJoin
from atoll.service.duties.send_keeper_calls import decide_pay
from atoll.service.effects import Effects
from atoll.service.machine import State
from atoll.service.machines import Machines
from atoll.service.participation import Participation

S = TypeVar("S")
LOOK_SECONDS = 5.0


class Drained(Exception):
    """Everything that was ordered is done: the service ends."""


class Stopped(Exception):
    """Its operator has it end, whatever it owes."""


class Draining(Generic[S]):
    """Watches for the end.

    Attributes:
        has_to_drain: it was told to since the start, and a bond was out then.
    """

    def __init__(
        self, effects: Effects, machines: Machines[S], participation: Participation[S]
    ) -> None:
        self.has_to_drain = False
        self._has_to_stop = asyncio.Event()
        self._effects = effects
        self._machines = machines
        self._participation = participation

    def stop(self) -> None:
        """Ends once what is under way is let go of; a restart takes up where this one was."""
        self._has_to_stop.set()

    async def until_stopped(self) -> None:
        """Raises Stopped then."""
        await self._has_to_stop.wait()
        raise Stopped

    async def until_drained(self) -> None:
        """Raises Drained once it was told to drain and every bond of its account is home.

        Who is started again after that stays out and does not end: what restarts it would go on.
        """
        while True:
            if self._participation.orders.drains and self._machines.head is not None:
                is_bound = self.is_bound()
                if self.has_to_drain and not is_bound:
                    raise Drained
                self.has_to_drain = is_bound
            await asyncio.sleep(LOOK_SECONDS)

    def is_bound(self) -> bool:
        """Whether a bond of the account is in a job, or may be on its way there; or pay is due that
        it collects.
        """
        states = self._machines.states.values()
        confirmed = self._effects.context.follower.confirmed
        is_joining = any(isinstance(c, SendJoin) for s in states for c in s.in_flight.values())
        is_fresh = any(block > confirmed for block in self._effects.joined.values())
        return bool(self.bonded()) or is_joining or is_fresh or any(map(self._is_paying, states))

    def bonded(self) -> list[JobId]:
        """Jobs in which a bond of the account is not home: of its part, or of a challenge."""
        context = self._effects.context
        return [job for job, view in context.follower.views.items() if view.is_bound(context.me)]

    def _is_paying(self, state: State[S]) -> bool:
        """Whether it collects something; where that cannot be decided, the machine says so, too."""
        when = self._effects.context.config.auto_claim
        try:
            return bool(decide_pay(state, when).commands or decide_games(state).commands)
        except Exception:
            return True
