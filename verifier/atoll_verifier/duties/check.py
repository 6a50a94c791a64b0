"""Looks at every revealed seat's update and trace document, as soon as they are revealed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.law.manifest import Manifest
from atoll.law.sampling import NO_DUTY
from atoll.law.trace import MAX_TRACE_BYTES
from atoll.law.views import JobView
from atoll.law.words import Phase
from atoll.service.commands import Done, Fact, Work
from atoll.service.machine import AnyCommand, Decision
from atoll_verifier.limits import UNFETCHABLE_CONTENT, max_update_bytes
from atoll_verifier.seatwork import SeatWork

if TYPE_CHECKING:
    from atoll.service.effects import Effects
    from atoll_verifier.audit import Audit

LOOKING = frozenset({Phase.REVEAL, Phase.DRAW, Phase.REPORT, Phase.CONFIRM})


@dataclass(frozen=True, slots=True)
class SeatChecked(Fact):
    """The cheap checks of a seat's update and trace; `fault` is empty where they passed."""

    fault: str


@dataclass(frozen=True, slots=True)
class DoCheck(Work[SeatChecked]):
    """Fetch a seat's update and trace document, and check what is cheap to check."""

    work: SeatWork

    @property
    def about(self) -> tuple[object, ...]:
        return self.work.about

    async def perform(self, effects: Effects, view: JobView) -> Done[SeatChecked]:
        work, reveal = self.work, self.work.reveal
        manifest = Manifest.from_bytes(work.manifest)
        try:
            await work.fetch(effects, view, reveal.trace_cid, MAX_TRACE_BYTES)
            if reveal.steps == manifest.inner.steps:
                await work.fetch(effects, view, reveal.update_cid, max_update_bytes(manifest))
        except UNFETCHABLE_CONTENT as error:
            return Done(SeatChecked(str(error)))
        fault = await effects.work("atoll_verifier.tasks:check_seat", work, effects.store_dir)
        return Done(SeatChecked(fault))


# --- decisions ---


def decide_checks(audit: Audit) -> Decision:
    """Checks who was not checked, then scores the updates."""
    if audit.view.state.phase not in LOOKING:
        return Decision("check", "nothing is revealed")
    if audit.is_idle:
        return Decision("check", "the behaviour looks at nothing")
    commands: list[AnyCommand] = []
    for seat in audit.revealed:
        commands.extend(audit.tasks(seat, NO_DUTY))
    scoring = audit.scoring if not commands and audit.view.state.phase is Phase.REPORT else None
    if scoring is not None and audit.in_full is None:
        return Decision("check", "scores the updates", (scoring,))
    return Decision("check", f"{len(commands)} seats still to be checked", tuple(commands))
