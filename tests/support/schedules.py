"""A job's members as pure machines over the contracts' model: days of it in a second, no process.

Rule of this file: the machines are the product's (`atoll_node.machine`, `atoll_verifier.machine`),
the contracts are `tests.support.contracts`, and all between them is here: a clock, blocks, who
is asleep, what work costs in time and what it comes to. Nothing is trained: a round's states and
work tags are hashes of what they follow from, so that a replay of honest work gives the same, and
one of a cheat's gives something else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.support.contracts import Refused
from tests.support.identities import accounts
from tests.support.manifests import make_manifest, make_terms
from tests.support.performing import PERFORM, Begun, Nothing
from tests.unit.protocol.network import Network

from atoll.protocol import events as ev
from atoll.protocol.terms import terms_to_json_value
from atoll.protocol.types import Address, Digest, Phase, Role, Terms
from atoll.service.duties.send_keeper_calls import is_over
from atoll.service.entries import Entry, NotYet
from atoll.service.machine import (
    AnyCommand,
    Cancel,
    Failed,
    Finished,
    Head,
    HeadAdvanced,
    Ordered,
    Setup,
    State,
    ViewChanged,
)
from atoll_devnet.cheats import provider_behaviour, verifier_behaviour
from atoll_node import machine as provider
from atoll_node.behaviour import ProviderBehaviour
from atoll_verifier import machine as verifier
from atoll_verifier.behaviour import VerifierBehaviour

TICK_SECONDS: Final = (3, 12)
"""Between two blocks: at least, at most."""
GIVES_UP: Final = 20_000
"""Blocks, after which a schedule that has not ended never will."""


@dataclass(frozen=True, slots=True)
class Away:
    """When a member does nothing: seconds from the schedule's begin.

    Attributes:
        restarts: whether its process ended; else it only stood still.
    """

    start: int
    end: int
    restarts: bool = True


@dataclass
class Member:
    """A member's machine, and the work that it has under way.

    Attributes:
        under_way: work by its key: what begun it, when it ends, and what then comes of it.
    """

    account: Address
    role: Role
    state: State[Any]
    away: tuple[Away, ...] = ()
    under_way: dict[str, Begun] = field(default_factory=dict)
    was_away: bool = False

    def away_at(self, seconds: int) -> Away | None:
        return next((a for a in self.away if a.start <= seconds < a.end), None)

    @property
    def behaviour(self) -> Any:
        return self.state.setup.behaviour

    def step(self, *events: Any) -> list[Any]:
        machine = provider if self.role is Role.PROVIDER else verifier
        self.state, orders = machine.step(self.state, *events)
        return orders

    def restart(self) -> None:
        """What lay in memory is gone; the journal is believed as far as it outlives a start."""
        self.under_way = {}
        entries = self.state.entries.after_restart()
        self.state = replace(self.state, entries=entries, in_flight={}, holds={}, reasons={})


@dataclass(frozen=True)
class Cast:
    """Who takes part: cheats by seat and by place, absences by seat and by place."""

    provider_cheats: Mapping[int, str] = field(default_factory=dict)
    verifier_cheats: Mapping[int, str] = field(default_factory=dict)
    providers_away: Mapping[int, tuple[Away, ...]] = field(default_factory=dict)
    verifiers_away: Mapping[int, tuple[Away, ...]] = field(default_factory=dict)


class World:
    """One job, its members, and the time.

    Attributes:
        net: the contracts; `net.view` is the job as its events left it.
        secrets: the key of a seat's work tags, by round, seat and account.
        signatures: who has signed what, by digest.
        pace: of the time that TRAIN gives, the part that a round's training takes.
        refused: what the contracts would have reverted, by label: told when a test fails.
        no_updates: roots of updates whose bytes are none.
        lost: by round and seat the segment that the game it lost was about; how many there are for
            the update itself.
    """

    def __init__(
        self, cast: Cast | None = None, terms: Terms | None = None, *, seed: int = 0
    ) -> None:
        self.cast, self.random = cast or Cast(), random.Random(seed)
        self.net = Network(terms or make_terms())
        plain = terms_to_json_value(self.net.terms)
        self.manifest = make_manifest({"terms": plain, "robust.f": self.net.terms.f}).to_bytes()
        self.secrets: dict[tuple[int, int, Address], Digest] = {}
        self.signatures: dict[Digest, dict[Address, int]] = {}
        self.pace = 0.5
        self.refused: list[str] = []
        self.no_updates: set[Digest] = set()
        self.lost: dict[tuple[int, int], int] = {}
        self.began = self.net.now
        self.members = [*self._providers(), *self._verifiers()]
        for member in self.members:
            self.net.emit(ev.GatewayAnnounced(member.account, url_of(member.account)))

    def _providers(self) -> Iterable[Member]:
        for seat, account in enumerate(accounts("provider", self.net.terms.seats)):
            cheat = self.cast.provider_cheats.get(seat, "")
            behaviour = provider_behaviour(cheat) if cheat else ProviderBehaviour()
            yield self._member(account, Role.PROVIDER, behaviour, self.cast.providers_away, seat)

    def _verifiers(self) -> Iterable[Member]:
        for place, account in enumerate(accounts("verifier", self.net.terms.slots)):
            cheat = self.cast.verifier_cheats.get(place, "")
            behaviour = verifier_behaviour(cheat) if cheat else VerifierBehaviour()
            yield self._member(account, Role.VERIFIER, behaviour, self.cast.verifiers_away, place)

    def _member(
        self,
        account: Address,
        role: Role,
        behaviour: Any,
        away: Mapping[int, tuple[Away, ...]],
        index: int,
    ) -> Member:
        behaviour.pick_index = lambda _, free: index if index in free else None
        head = Head(self.net.number, self.net.now)
        state = State(account, Setup(url_of(account), behaviour), self.net.view, head)
        return Member(account, role, state, away.get(index, ()))

    # --- time ---

    @property
    def elapsed(self) -> int:
        """Seconds since the schedule began."""
        return self.net.now - self.began

    def is_awake(self, account: Address) -> bool:
        member = next((m for m in self.members if m.account == account), None)
        return member is not None and member.away_at(self.elapsed) is None

    def stop_chain(self, seconds: int) -> None:
        """No block for so long; the next one has the time that it is then."""
        self.net.wait(seconds)
        self.net.number += 1

    def block(self) -> None:
        """One more block: every member that is there sees it and does what it then wants."""
        self.net.wait(self.random.randint(*TICK_SECONDS))
        order = list(self.members)
        self.random.shuffle(order)
        for member in order:
            self._live(member)

    def until(self, reached: Callable[[World], bool]) -> World:
        """Blocks until something is so. Raises AssertionError where it never is."""
        for _ in range(GIVES_UP):
            if reached(self):
                return self
            self.block()
        view = self.net.view
        reasons = {m.account: dict(m.state.reasons) for m in self.members}
        raise AssertionError(
            f"never: {view.phase} of round {view.round}, {self.refused[-5:]}, {reasons}"
        )

    def order(self, member: Member, sits_out: str) -> None:
        """What its operator asks for; empty for taking part again."""
        self._perform(member, member.step(Ordered(sits_out)))

    # --- a member ---

    def _live(self, member: Member) -> None:
        away = member.away_at(self.elapsed)
        if away is not None:
            if away.restarts and not member.was_away:
                member.restart()
            member.was_away = True
            return
        member.was_away = False
        net = self.net
        events: list[Any] = [HeadAdvanced(Head(net.number, net.now))]
        events.append(ViewChanged(net.view, net.number, None, net.now))
        for key, begun in [*member.under_way.items()]:
            if begun.ends <= net.now:
                del member.under_way[key]
                events.append(self._ended(begun.command, begun.comes_to))
        self._perform(member, member.step(*events))

    def _perform(self, member: Member, orders: list[Any]) -> None:
        while orders:
            ended = [e for order in orders if (e := self._start(member, order)) is not None]
            orders = member.step(*ended) if ended else []

    def _start(self, member: Member, order: AnyCommand | Cancel) -> Any:
        """What an order comes to at once; None where it takes time."""
        if isinstance(order, Cancel):
            member.under_way.pop(order.key, None)
            return None
        try:
            came = PERFORM[type(order)](self, member, order)
        except Refused as error:
            self.refused.append(f"{type(order).__name__}: {error}")
            return Failed(order.key, str(error))
        except NotYet as error:
            return Failed(order.key, str(error), error.due_at)
        if isinstance(came, Begun):
            member.under_way[order.key] = came
            return None
        entry = came if isinstance(came, Entry) else None
        # It is mined with the next block, whose view has it.
        return Finished(order.key, entry, 0 if order.is_work else self.net.number + 1)

    def _ended(self, command: AnyCommand, comes_to: Callable[[], Entry | type[Nothing]]) -> Any:
        try:
            came = comes_to()
        except Refused as error:
            return Failed(command.key, str(error))
        return Finished(command.key, came if isinstance(came, Entry) else None)


def url_of(account: Address) -> str:
    return f"http://{account}"


def is_settled_up(world: World) -> bool:
    """The job is closed, nothing of it can change any more, and every standing bond is home."""
    view = world.net.view
    if view.phase is not Phase.CLOSED or not is_over(view, world.net.now):
        return False
    holders = [*view.providers.values(), *view.verifiers.values()]
    return all(h.is_released or h.is_slashed for h in holders)
