"""Which jobs a service looks at, and which it takes: the best that it finds, and not the first.

Anybody announces as many jobs as gas pays for. So only a few are vetted at a time, those first that
promise most, as an escrow holds; where there is room for fewer than fit, what they earn an hour of
this machine decides. What comes to nothing has a turn and then waits behind the others, and a job
of ours that opens no round is no reason to refuse one that does. Rule of this file: no I/O, and the
chain's clock is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from atoll.protocol.types import Address, JobId, JobStatus, Phase, Role
from atoll.protocol.views import JobView
from atoll.service.duties.join_and_leave import free_slots
from atoll.service.duties.material import DataReady, DoFetchData, DoFetchSpec, SpecReady, refusal
from atoll.service.entries import Entries
from atoll.service.pace import promised_per_hour

MOST_LOOKED_AT: Final = 8
"""Jobs that are vetted at a time: each may have this machine measure for minutes."""
VETTING_SECONDS: Final = 120
"""So long the first one that fits waits for others that are being looked at."""
TURN_SECONDS: Final = 600
"""So long one that was chosen may take to be joined while others wait, and twice as long each
further time: data that nobody serves keeps nobody for ever."""
MOST_DOUBLED: Final = 8
WAIT_SECONDS: Final = 3600
"""For so long at most a job of ours may open no round and count: its author writes how long members
have to get ready, and 136 years are within the contract's bounds.
"""
HOURLY_BY_PROMISE: Final = 2
"""What a job earns an hour is at most so many times what its terms promise (`pace`)."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A job that the account could take a place in.

    Attributes:
        is_full: whether every place is taken.
        promised: wei an hour by its terms alone.
        hourly: wei that an hour of it earns this machine; None before it was vetted.
        has_data: whether everything is here to take a place with.
    """

    job: JobId
    is_full: bool
    promised: int
    hourly: int | None
    has_data: bool


@dataclass
class Choice:
    """Remembers what was looked at and chosen, for as long as the process lasts.

    Args:
        role: of the service; None for an outsider's, which takes no places.

    Attributes:
        held: jobs in which the account has a place.
        unpaid: those of them that have opened no round for as long as members have to get ready,
            or for an hour, and so do not count, and those that are being left for that.
        looked_at: jobs that are being vetted.
        taken: jobs that are to be joined.
    """

    me: Address
    role: Role | None
    held: frozenset[JobId] = frozenset()
    unpaid: frozenset[JobId] = frozenset()
    looked_at: frozenset[JobId] = frozenset()
    taken: frozenset[JobId] = frozenset()
    _serves: int = 0
    _most: int = 0
    _offered: frozenset[JobId] = frozenset()
    _fit: frozenset[JobId] = frozenset()
    _standing: dict[JobId, tuple[JobView, bool]] = field(default_factory=dict)
    _waits_since: dict[JobId, int] = field(default_factory=dict)
    _given_up: dict[JobId, JobId] = field(default_factory=dict)
    _unfetched: dict[JobId, int] = field(default_factory=dict)
    _turns: dict[JobId, int] = field(default_factory=dict)
    _began: dict[JobId, int] = field(default_factory=dict)
    _fits_since: int | None = None

    def see(
        self,
        views: Mapping[JobId, JobView],
        entries_of: Callable[[JobId], Entries],
        most: int,
        now: int,
    ) -> bool:
        """Whether something of it is another than before.

        Args:
            entries_of: what is known of a job.
            most: `policy.jobs_at_once`.
            now: unix seconds of the chain.
        """
        if self.role is None:
            return False
        before = self._depends_on()
        self._most = most
        self._standing = {job: self._is_standing(job, view) for job, view in views.items()}
        self.held = frozenset(job for job, (_, stands) in self._standing.items() if stands)
        ours = {job for job in self.held if not views[job].status.is_closed}
        self._see_waiting(views, ours, now)
        self._serves = len(ours - self.unpaid)
        offers = self._offers(views, entries_of) if self._serves < most else []
        self._offered = frozenset(offer.job for offer in offers)
        self._choose(offers, most - self._serves, now)
        self._leave_for_better(offers, ours)
        return self._depends_on() != before

    def why_out(self, job: JobId) -> str:
        """Why nothing is begun in a job, or it is left; empty where neither is so."""
        if self.role is None:
            return ""
        if job in self._given_up:
            return f"has had no round here, and job {self._given_up[job]} pays"
        if job in self.held:
            return ""
        if self._serves >= self._most:
            served = f"it serves {self._serves}, and policy.jobs_at_once is {self._most}"
            return f"looks at no further one: {served}"
        is_in_turn = job in self.looked_at or job in self.taken or job not in self._offered
        return "" if is_in_turn or self.fits(job) else "looks at those first that promise more"

    def may_take(self, job: JobId) -> bool:
        """Whether its data may be fetched, and a place in it be taken."""
        is_free = self.role is None or job in self.held or job not in self._offered
        return is_free or job in self.taken

    def fits(self, job: JobId) -> bool:
        """Whether it is on offer, and was vetted."""
        return job in self._offered and job in self._fit

    def did_not_come(self, job: JobId) -> None:
        """Its manifest was not to be had: the next ones have their turn before it."""
        self._unfetched[job] = self._unfetched.get(job, 0) + 1

    def _is_standing(self, job: JobId, view: JobView) -> tuple[JobView, bool]:
        """Most views are the same object as with the last block."""
        known = self._standing.get(job)
        if known is not None and known[0] is view:
            return known
        return view, view.standing(self.me) is not None

    def _depends_on(self) -> tuple[object, ...]:
        sets = (self.held, self.unpaid, self.looked_at, self.taken, self._offered, self._fit)
        return (*sets, self._serves, self._most, dict(self._given_up))

    def _see_waiting(self, views: Mapping[JobId, JobView], ours: set[JobId], now: int) -> None:
        """Which jobs of ours do not count. As others may, one is given a chance after that where
        what it was left for has ended.
        """
        waiting = {job for job in ours if views[job].phase is Phase.WAITING}
        self._waits_since = {job: self._waits_since.get(job, now) for job in waiting}
        for job, better in list(self._given_up.items()):
            other, view = views.get(better), views.get(job)
            opened = view is None or view.phase is not Phase.WAITING
            if opened or other is None or other.status.is_closed:
                del self._given_up[job]
        idle = {
            job
            for job, since in self._waits_since.items()
            if now - since >= min(WAIT_SECONDS, views[job].require_terms().ready_seconds)
        }
        self.unpaid = frozenset(idle | (self._given_up.keys() & ours))

    def _offers(
        self, views: Mapping[JobId, JobView], entries_of: Callable[[JobId], Entries]
    ) -> list[Offer]:
        assert self.role is not None
        offers = []
        for job, view in views.items():
            is_known = view.terms is not None and view.status is not JobStatus.NONE
            if not is_known or view.phase is Phase.CLOSED or view.status.is_closed:
                continue
            entries = entries_of(job)
            if job in self.held or job in self._given_up or refusal(entries) is not None:
                continue
            spec, terms = entries.of(DoFetchSpec), view.require_terms()
            free = view.free_seats() if self.role is Role.PROVIDER else free_slots(view)
            hourly = spec.hourly if isinstance(spec, SpecReady) else None
            has_data = hourly is not None and isinstance(entries.of(DoFetchData), DataReady)
            promised = promised_per_hour(self.role, terms)
            offers.append(Offer(job, not free, promised, hourly, has_data))
        return offers

    def _choose(self, offers: list[Offer], room: int, now: int) -> None:
        fit = [offer for offer in offers if offer.hourly is not None]
        self._fit = frozenset(offer.job for offer in fit)
        self.looked_at = self._to_look_at(offers)
        waits = self._waits_for_others(room, now)
        self._end_turns(fit, room, now)
        # Who has its turn keeps it: each that comes later could else be a little better.
        fit.sort(
            key=lambda it: (
                it.job not in self._began,
                it.is_full,
                self._turns.get(it.job, 0),
                -(it.hourly or 0),
                it.job,
            )
        )
        self.taken = frozenset() if waits else frozenset(it.job for it in fit[:room])
        self._began = {job: self._began.get(job, now) for job in self.taken}

    def _end_turns(self, fit: list[Offer], room: int, now: int) -> None:
        """Of those that took too long, or in which no place is free any more, where others wait."""
        self._turns = {job: turns for job, turns in self._turns.items() if job in self._fit}
        self._began = {job: since for job, since in self._began.items() if job in self._fit}
        for offer in fit if len(fit) > room else ():
            began, turns = self._began.get(offer.job), self._turns.get(offer.job, 0)
            if began is None:
                continue
            is_over = now - began >= TURN_SECONDS << min(turns, MOST_DOUBLED)
            if is_over:
                self._turns[offer.job] = turns + 1
            if is_over or offer.is_full:
                del self._began[offer.job]

    def _to_look_at(self, offers: list[Offer]) -> frozenset[JobId]:
        """Of those that were not vetted the few that promise most; where as many fit already, those
        that may be better than the least of these.
        """
        hourly = sorted((it.hourly for it in offers if it.hourly is not None), reverse=True)
        least = hourly[MOST_LOOKED_AT - 1] if len(hourly) >= MOST_LOOKED_AT else -1
        fresh = sorted(
            (it for it in offers if it.hourly is None and HOURLY_BY_PROMISE * it.promised > least),
            key=lambda it: (it.is_full, self._unfetched.get(it.job, 0), -it.promised, it.job),
        )
        return frozenset(it.job for it in fresh[:MOST_LOOKED_AT])

    def _waits_for_others(self, room: int, now: int) -> bool:
        """Whether what is being looked at may be better than what fits, and there is room for one
        of them only.
        """
        if not self._fit:
            self._fits_since = None
            return False
        if self._fits_since is None:
            self._fits_since = now
        is_tight = len(self._fit) + len(self.looked_at) > room
        is_new = now - self._fits_since < VETTING_SECONDS
        return bool(self.looked_at) and is_tight and is_new and not self.taken

    def _leave_for_better(self, offers: list[Offer], ours: set[JobId]) -> None:
        """Gives up what opens no round once another job needs but its place."""
        ready = [it for it in offers if it.job in self.taken and it.has_data and not it.is_full]
        idle = sorted(self.unpaid - self._given_up.keys(), key=lambda job: self._waits_since[job])
        more = len(ours - self._given_up.keys()) + len(ready) - self._most
        for better, job in zip(ready, idle[: max(0, more)], strict=False):
            self._given_up[job] = better.job
