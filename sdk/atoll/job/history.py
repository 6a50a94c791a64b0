"""What happened to one job, kept for reports: folded from events, beside the job's view.

Rule of this file: pure; only what the view does not keep: when phases began, in which logs things
were said, and what was taken from whom for what.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from atoll.chain.indexed import Indexed
from atoll.job.event_text import MISSES, disputed
from atoll.protocol import events as ev
from atoll.protocol.disputes import DISPUTE_HANDLERS
from atoll.protocol.game_records import parties
from atoll.protocol.games.claims import Claim
from atoll.protocol.games.machine import Outcome
from atoll.protocol.views import JobView
from atoll.protocol.words import Address, BlockRef, HolderId, JobId, Miss, Role

PHASES = ("train", "reveal", "merge")
NOT_MOVES = frozenset({ev.Challenged, ev.Began, ev.Decided, ev.Ended})


_Party = tuple[JobId, Role, HolderId]


@dataclass(slots=True)
class RoundRecord:
    """One round, from its first opening to its settlement; its audit comes behind.

    Attributes:
        status: "running", "settled", or "void" where nobody committed or revealed.
        seconds: by phase, in the chain's time.
        voids: how often it was void, or waited for members, before it settled.
        committee_draws: committees that were drawn for it.
    """

    round: int
    status: str = "running"
    seconds: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))
    started: int = 0
    ended: int = 0
    voids: int = 0
    committee_draws: int = 1
    _phase: str = ""
    _since: int = 0

    def enter(self, phase: str, at: int) -> None:
        """The clock runs for another phase; an empty one stops it."""
        if self._phase:
            self.seconds[self._phase] += at - self._since
        self._phase, self._since = phase, at


ABSENCES: Final = frozenset({Miss.SEAT, Miss.KEY, Miss.SILENCE, Miss.AUDIT})
"""Misses that whoever is too slow, or away, comes to without a lie."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What an account lost of its bond, and for what; `round` is the one that it is about.

    Attributes:
        miss: what it excluded; None of a fall.
    """

    account: Address
    role: Role
    round: int
    wei: int
    why: str
    miss: Miss | None

    @property
    def is_fall(self) -> bool:
        """Whether it lost a game, or never showed a key."""
        return self.miss is None


@dataclass(slots=True)
class History:
    """One job's story.

    Attributes:
        items: events of the job and of games about it, oldest first.
        losses: misses and falls, in their order.
        won: wei of others' bonds that each account got for winning a game.
        moves: that each game took.
        refunded: wei; None until the refund, which may be of nothing.
    """

    job_id: int
    items: list[Indexed] = field(default_factory=list)
    rounds: dict[int, RoundRecord] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    won: dict[Address, int] = field(default_factory=lambda: defaultdict(int))
    moves: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    refunded: int | None = None
    _felled: dict[_Party, tuple[int, Claim]] = field(default_factory=dict)

    @property
    def events(self) -> list[ev.ContractEvent]:
        """Without their places in the chain."""
        return [item.event for item in self.items]

    def fold(self, item: Indexed, view: JobView | None) -> None:
        """Folds one event; those of other jobs are passed over.

        Args:
            view: the job after it, or any later one; None before it exists.
        """
        event = item.event
        if view is None:
            return
        if isinstance(event, ev.Slashed):
            self.won[event.beneficiary] += event.beneficiary_amount
        elif type(event) in DISPUTE_HANDLERS:
            self._game(item, view)
        elif getattr(event, "job_id", None) == self.job_id:
            self.items.append(item)
            handler = _HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event, item.block)

    def round(self, index: int) -> RoundRecord:
        """The record of a round, new where there is none."""
        return self.rounds.setdefault(index, RoundRecord(index))

    def lost(self, account: Address) -> int:
        """Wei that its bonds lost, by misses and by falls."""
        return sum(loss.wei for loss in self.losses if loss.account == account)

    def missed(self, account: Address) -> int:
        """The part of it that was cut for absences."""
        own = (loss for loss in self.losses if loss.account == account)
        return sum(loss.wei for loss in own if loss.miss in ABSENCES)

    def losses_of(self, account: Address) -> list[Loss]:
        """What was taken from an account, falls first."""
        own = [loss for loss in self.losses if loss.account == account]
        return sorted(own, key=lambda loss: not loss.is_fall)

    def _game(self, item: Indexed, view: JobView) -> None:
        event: Any = item.event
        if event.id in view.games:
            self.items.append(item)
            self.moves[event.id] += type(event) not in NOT_MOVES
            claim = view.games[event.id].claim
            about = parties(claim)
            if about and isinstance(event, ev.Ended) and event.outcome == Outcome.HOLDER_FELL:
                self._felled[about] = (event.id, claim)  # the fall itself is told next

    def _opened(self, event: ev.RoundOpened, block: BlockRef) -> None:
        record = self.round(event.round)
        record.status, record.started = "running", record.started or block.timestamp
        record.enter("train", block.timestamp)

    def _reveal(self, event: ev.RevealOpened, block: BlockRef) -> None:
        self.round(event.round).enter("reveal", block.timestamp)

    def _merge(self, event: ev.MergeOpened, block: BlockRef) -> None:
        self.round(event.round).enter("merge", block.timestamp)

    def _committee_draw(self, event: ev.CommitteeDrawn, block: BlockRef) -> None:
        self.round(event.round).committee_draws = event.committee_draw + 1

    def _settled(self, event: ev.Settled, block: BlockRef) -> None:
        self._stop(event.round, "settled", block)

    def _waiting(self, event: ev.Waiting, block: BlockRef) -> None:
        """Of a round that has never opened it says that members are missing."""
        record = self.rounds.get(event.round)
        if record is not None and record.status == "running":
            record.voids += 1
            self._stop(event.round, "void", block)

    def _closed(self, event: ev.Closed, block: BlockRef) -> None:
        for record in self.rounds.values():
            if record.status == "running":
                self._stop(record.round, "void", block)

    def _stop(self, round_: int, status: str, block: BlockRef) -> None:
        record = self.round(round_)
        record.enter("", block.timestamp)
        record.status, record.ended = status, block.timestamp

    def _missed(self, event: ev.Missed, block: BlockRef) -> None:
        why = MISSES[event.kind]
        self.losses.append(Loss(event.account, event.role, event.round, event.cut, why, event.kind))

    def _fell(self, event: ev.Fell, block: BlockRef) -> None:
        lost = self._felled.pop((JobId(self.job_id), event.role, event.id), None)
        round: int = event.lost_from
        why = "a key that it never showed"
        if lost is not None:
            game, claim = lost
            round, why = claim.round, f"game {game}, about {disputed(claim)}"
        self.losses.append(Loss(event.account, event.role, round, event.slashed, why, None))

    def _refunded(self, event: ev.Refunded, block: BlockRef) -> None:
        self.refunded = (self.refunded or 0) + event.amount


_HANDLERS: dict[type, Callable[[History, Any, BlockRef], None]] = {
    ev.RoundOpened: History._opened,
    ev.RevealOpened: History._reveal,
    ev.MergeOpened: History._merge,
    ev.CommitteeDrawn: History._committee_draw,
    ev.Settled: History._settled,
    ev.Waiting: History._waiting,
    ev.Closed: History._closed,
    ev.Missed: History._missed,
    ev.Fell: History._fell,
    ev.Refunded: History._refunded,
}
