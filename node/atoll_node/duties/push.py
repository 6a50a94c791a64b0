"""Brings what was revealed to those who need it: nobody has to reach us to have our update.

Members of a committee get it while votes are taken. Where a committee did not have it in time, the
electors of late votes get it, as long as its round is audited.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from atoll.protocol.certificates import is_enough
from atoll.protocol.late_votes import elector_accounts, is_available_late, without_pay
from atoll.protocol.obligations import committee_accounts
from atoll.protocol.open_rounds import SeatReveal
from atoll.protocol.types import Address, Digest, Phase, Role, RoundIndex
from atoll.protocol.views import JobView
from atoll.service import commands
from atoll.service.effects import RELAY_PART
from atoll.service.entries import Done, Entry
from atoll.service.machine import Decision
from atoll.storage.cid import Cid
from atoll.storage.push import Receivers
from atoll_node.behaviour import ProviderState

if TYPE_CHECKING:
    from atoll.service.effects import Effects

LATE: Final = -1
"""In place of a committee draw's number: of the electors of late votes."""


@dataclass(frozen=True, slots=True)
class Pushed(Entry):
    """Enough of those who needed our update had it.

    Attributes:
        commitment: names what was revealed.
        committee_draw: whose members had it, or `LATE`.
    """

    kind: ClassVar[str] = "update-pushed.v1"
    commitment: Digest
    committee_draw: int


@dataclass(frozen=True, slots=True)
class DoPush(commands.Work[Pushed]):
    """Bring our revealed update to gateways until enough of them have it.

    Attributes:
        commitment: names what was revealed.
        committee_draw: whose members they are, or `LATE`.
        to: their addresses.
    """

    kind: ClassVar[str] = "push-update.v1"
    round: RoundIndex
    commitment: Digest
    committee_draw: int
    update: bytes
    to: tuple[str, ...]
    enough: int
    patience_s: float

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.commitment, self.committee_draw, len(self.to))

    async def perform(self, effects: Effects, view: JobView) -> Done[Pushed]:
        receivers = Receivers(self.to, self.enough, self.patience_s)
        pusher = effects.context.fetcher_of(view.job_id).pusher()
        await pusher.push(Cid.from_bytes(self.update), receivers)
        return Done(Pushed(self.commitment, self.committee_draw))


# --- decisions ---


def decide_push(state: ProviderState) -> Decision:
    """Brings the running round's update to its committee, and earlier ones to late voters."""
    if not state.setup.behaviour.may_push(state.view):
        return Decision("push", "brings nothing, as its behaviour says")
    wanted = [*_running(state), *_late(state)]
    missing = tuple(each for each in wanted if state.entries.of(DoPush, *each.about) is None)
    return Decision("push", f"brings {len(missing)} updates to others", missing)


def _running(state: ProviderState) -> Iterable[DoPush]:
    """Who has it when a committee is replaced hands it on to the members that follow."""
    view, running = state.view, state.view.open
    if running is None or (running.phase is Phase.MERGE and state.now >= running.votes_end):
        return
    patience = view.require_terms().merge_seconds / RELAY_PART
    committee = committee_accounts(view, running)
    had = {each.commitment for each in state.entries.all_of(Pushed)}
    for revealed in running.reveals.values():
        is_ours = revealed.account == state.me and _has_update(revealed)
        if is_ours and revealed.commitment not in had:
            to, count = _gateways(view, committee), len(committee)
            enough = next((n for n in range(count) if is_enough(n, count)), count)
            about = (running.round, revealed.commitment, running.committee_draw)
            yield DoPush(*about, revealed.reveal.update_cid, to, enough, patience)


def _late(state: ProviderState) -> Iterable[DoPush]:
    view, mine = state.view, state.view.ids_of(state.me, Role.PROVIDER)
    patience = view.require_terms().merge_seconds / RELAY_PART
    for settled_round in view.auditing(state.now):
        electors = elector_accounts(view, settled_round)
        for seat in without_pay(view, settled_round, state.now):
            revealed = settled_round.reveals[seat]
            is_ours = revealed.holder in mine and _has_update(revealed)
            if is_ours and not is_available_late(view, settled_round, seat):
                about = (settled_round.round, revealed.commitment, LATE)
                to, enough = _gateways(view, electors), len(electors) // 2 + 1
                yield DoPush(*about, revealed.reveal.update_cid, to, enough, patience)


def _has_update(revealed: SeatReveal) -> bool:
    return bool(revealed.segments and revealed.reveal.update_cid)


def _gateways(view: JobView, accounts: Iterable[Address]) -> tuple[str, ...]:
    urls = (view.gateways.get(account) for account in accounts)
    return tuple(sorted({url for url in urls if url}))
