"""Whether a service takes part: its operator's orders, its machine, its choice of jobs.

Rule of this file: a reason to stay out is words for the operator; empty is to take part.
"""

from __future__ import annotations

import time
from typing import Generic, TypeVar

from atoll.protocol.types import JobId
from atoll.service.choice import Choice
from atoll.service.effects import ROLES, Effects
from atoll.service.entries import OF_SERVICE
from atoll.service.machine import Ordered
from atoll.service.machines import Machines
from atoll.service.occupied import Occupied
from atoll.service.orders import NO_ORDERS, ORDERS_KEY, Orders, off_hours
from atoll.service.power import Mains

S = TypeVar("S")


class Participation(Generic[S]):
    """What keeps the service out, of everything or of a job.

    Attributes:
        orders: what its operator has ordered.
        choice: which jobs it looks at, takes and leaves.
    """

    def __init__(self, role: str, effects: Effects, machines: Machines[S]) -> None:
        self.orders: Orders = NO_ORDERS
        self.choice = Choice(effects.context.me, ROLES.get(role))
        self._effects = effects
        self._machines = machines
        self._mains = Mains(is_wanted=False)
        self._others = Occupied(None)

    def begin(self) -> None:
        """Reads the orders of before, and the schedule."""
        context = self._effects.context
        self.orders = (*context.journal.read(OF_SERVICE).all_of(Orders), NO_ORDERS)[0]
        self._mains = Mains(is_wanted=not context.config.schedule.on_battery)
        self._others = Occupied(context.config.schedule.most_by_others)

    def order(self, orders: Orders) -> None:
        """Obeys from now on, also after a restart."""
        self._effects.context.journal.write(OF_SERVICE, ORDERS_KEY, orders)
        self.orders = orders
        self.tell_machines()

    def tell_machines(self) -> None:
        """Has every machine hear what holds for its job now."""
        for job in self._machines.states:
            self._machines.put(job, Ordered(self.why_out(job), self.choice.may_take(job)))

    def why_out(self, job: JobId) -> str:
        """Why it takes no part in the job."""
        ordered = self.orders.why_out(job) or self.why_machine_is_not_ours
        return ordered or self.choice.why_out(job)

    @property
    def why_machine_is_not_ours(self) -> str:
        """It runs on its battery, or others use it."""
        return self._mains.why_out or self._others.why_out

    def sits_out(self) -> str:
        """Why it takes no part in anything now; empty where it does."""
        ordered = Orders(self.orders.pauses, self.orders.drains).why_out(JobId(0))
        head = self._machines.head
        now = head.time if head is not None else int(time.time())
        schedule = self._effects.context.config.schedule
        return ordered or self.why_machine_is_not_ours or off_hours(schedule, now)

    def look_at_machine(self, now: float) -> bool:
        """Whether power or others changed what holds. Both are looked at, always."""
        return any([self._mains.look(now), self._others.look(now)])

    def choose(self) -> None:
        """Which jobs are looked at, taken, and left: what anybody can announce takes nothing of
        those that have our bonds. A player takes no places.
        """
        context, head = self._effects.context, self._machines.head
        views, most = context.follower.views, context.config.policy.jobs_at_once
        now = head.time if head is not None else 0
        if self.choice.see(views, self._machines.entries_of, most, now):
            self._effects.unpaid = self.choice.unpaid
            self.tell_machines()

    def choose_by_facts(self, job: JobId) -> None:
        """The same after something new is known of a job; of one that has our bond nothing
        follows.
        """
        if job not in self.choice.held:
            self.choose()
