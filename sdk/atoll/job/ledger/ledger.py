"""One job's ledger: its events folded once, beside its view, into what became of its rounds, of its
seats and of its money.

Rule of this file: pure; what the view keeps is not kept again. The terminal, JSON and the page draw
what is folded here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from atoll.chain.indexed import Indexed
from atoll.chain.structs import Escrow
from atoll.job.event_text import MISSED_DUTIES, concerns, disputed
from atoll.job.ledger.entries import ABSENCES, PHASE_OF, Loss, Moment, RoundTimes
from atoll.job.ledger.payments import Payments
from atoll.protocol import events as ev
from atoll.protocol.game_records import GameRecord, parties
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.games.moves import Claim
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import NO_ROUND, Address, HolderId, Role, RoundIndex, SeatIndex
from atoll.protocol.views import JobView

NOT_MOVES: Final = frozenset({ev.Challenged, ev.Owed, ev.Began, ev.Decided, ev.Ended})
"""Events of games that none of the two parties' moves bring about."""
SEAT_LOGS: Final[dict[type, str]] = {
    ev.Committed: "commit",
    ev.Revealed: "reveal",
    ev.Stopped: "stop",
    ev.Struck: "no key",
    ev.Leaked: "early key",
}
"""What of a seat's round is written in which event."""


@dataclass
class Ledger:
    """A job and everything that happened in it. Use `of`.

    Attributes:
        view: the job after all of its events; `now` the chain's clock, unix seconds.
        items: events of the job and of games about it, oldest first; `sums` how it stands by them.
        times: of each round that was ever opened.
        losses: missed duties and slashes, in their order.
        won: wei of others' bonds in this job that each account got: for a game, for a key that was
            never shown, for two certificates of one merge.
        seat_logs: by round, seat, and what it is; of a round that opened twice the later ones.
        audit_reports: where each was opened, by round and auditor.
        game_logs: what was done in each game, oldest first.
    """

    view: JobView
    now: int
    payments: Payments
    items: list[Indexed] = field(default_factory=list)
    sums: Moment = field(default_factory=Moment)
    times: dict[int, RoundTimes] = field(default_factory=lambda: defaultdict(RoundTimes))
    losses: list[Loss] = field(default_factory=list)
    won: dict[Address, int] = field(default_factory=lambda: defaultdict(int))
    seat_logs: dict[int, dict[int, dict[str, Indexed]]] = field(default_factory=dict)
    audit_reports: dict[tuple[int, HolderId], Indexed] = field(default_factory=dict)
    game_logs: dict[int, list[Indexed]] = field(default_factory=lambda: defaultdict(list))
    _lost_games: dict[tuple[Role, HolderId], tuple[int, Claim]] = field(default_factory=dict)
    _slashed_stakes: dict[tuple[Role, Address], ev.Slashed] = field(default_factory=dict)

    @classmethod
    def of(cls, view: JobView, items: Iterable[Indexed], now: int) -> Ledger:
        """The ledger of a job.

        Args:
            view: the job after all of `items`, which are oldest first; those of other jobs are
                passed over.
            now: the chain's clock, unix seconds.
        """
        ledger = cls(view, now, Payments(view))
        for item in items:
            ledger._fold(item)
        ledger.payments.close()
        return ledger

    # --- money ---

    @property
    def faults(self) -> list[str]:
        """What does not add up between the events and the law of pay; nothing should."""
        faults = list(self.payments.faults)
        if self.sums.balance < 0:
            faults.append(f"{-self.sums.balance} wei left that never came in")
        return faults

    def faults_against(self, escrow: Escrow) -> list[str]:
        """The same, and what the contract says otherwise."""
        faults, sums = self.faults, self.sums
        for name, contract, counted in (
            ("funded", escrow.funded, sums.funded_wei),
            ("claimed", escrow.claimed, sums.paid_wei),
            ("refunded", escrow.refunded, sums.refunded_wei),
            ("burnt", escrow.burnt, sums.burnt_wei),
            ("balance", escrow.balance, sums.balance),
        ):
            if contract != counted:
                faults.append(f"the contract has {name} {contract} wei, its events {counted}")
        return faults

    def paid(self, account: Address) -> dict[str, int]:
        """What an account was paid, by reason."""
        return self.payments.paid.get(account, {})

    def paid_for(self, reason: str) -> int:
        """Wei that were paid for it, to everybody."""
        return sum(amounts.get(reason, 0) for amounts in self.payments.paid.values())

    def lost(self, account: Address) -> int:
        """Wei that an account's bonds lost, by missed duties and by slashes."""
        return sum(loss.wei for loss in self.losses if loss.account == account)

    def missed(self, account: Address) -> int:
        """The part of it that was penalised for absences."""
        penalties = (loss for loss in self.losses if loss.account == account)
        return sum(loss.wei for loss in penalties if loss.missed_duty in ABSENCES)

    # --- rounds, seats, games ---

    def logs_of(self, round: int, seat: int) -> Mapping[str, Indexed]:
        """Where a seat's round is written, by what it is."""
        return self.seat_logs.get(round, {}).get(seat, {})

    @cached_property
    def games_by_seat(self) -> Mapping[tuple[int, int], list[GameRecord]]:
        """Games by the round and the seat that they are about."""
        games: dict[tuple[int, int], list[GameRecord]] = defaultdict(list)
        for game in self.view.games.values():
            games[game.claim.round, game.claim.seat].append(game)
        return games

    # --- the fold ---

    def _fold(self, item: Indexed) -> None:
        event: Any = item.event
        if isinstance(event, ev.Slashed):
            self._slashed_stakes[event.role, event.account] = event
            return
        if isinstance(event, ev.HolderSlashed | ev.Missed):
            self._win(event)
        if not concerns(event, self.view):
            return
        if getattr(event, "job_id", None) is None and not isinstance(event, ev.CrowdedOut):
            self._game(item, event.id)
        self.items.append(item)
        self.sums.fold(event)
        self.payments.enter(event)
        self._time(item)
        self._lose(event)
        self._note_log(item)

    def _win(self, event: ev.HolderSlashed | ev.Missed) -> None:
        """The stake says first that it was slashed, and no job; the job says so next."""
        stake = self._slashed_stakes.pop((event.role, event.account), None)
        if stake is not None and stake.beneficiary_amount and event.job_id == self.view.job_id:
            self.won[stake.beneficiary] += stake.beneficiary_amount

    def _game(self, item: Indexed, id: int) -> None:
        self.game_logs[id].append(item)
        claim, event = self.view.games[id].claim, item.event
        about = parties(claim)
        if about and isinstance(event, ev.Ended) and event.outcome == Outcome.HOLDER_LOST:
            self._lost_games[about[1:]] = id, claim  # the slash itself is told next

    def _time(self, item: Indexed) -> None:
        at = item.block.timestamp
        match item.event:
            case ev.RoundOpened() | ev.RevealOpened() | ev.MergeOpened() as event:
                times = self.times[event.round]
                if isinstance(event, ev.RoundOpened):
                    times.status, times.started = "running", times.started or at
                times.enter(PHASE_OF[type(event)], at)
            case ev.CommitteeDrawn() as event:
                self.times[event.round].committee_draws = event.committee_draw + 1
            case ev.Settled() as event:
                self.times[event.round].stop("settled", at)
            case ev.Waiting() as event if self._runs(event.round):
                self.times[event.round].voids += 1
                self.times[event.round].stop("void", at)
            case ev.Closed():
                for times in self.times.values():
                    if times.status == "running":
                        times.stop("void", at)
            case _:
                pass

    def _runs(self, round: int) -> bool:
        """Waiting for members is said of rounds, too, that have never opened."""
        return round in self.times and self.times[round].status == "running"

    def _lose(self, event: ev.ContractEvent) -> None:
        if isinstance(event, ev.HolderSlashed):
            self.losses.append(self._fall(event))
        elif isinstance(event, ev.Missed):
            loss = Loss(
                account=event.account,
                role=event.role,
                index=self.view.holders(event.role)[event.id].index,
                round=event.round,
                wei=event.penalty,
                why=MISSED_DUTIES[event.kind],
                missed_duty=event.kind,
            )
            self.losses.append(loss)

    def _fall(self, event: ev.HolderSlashed) -> Loss:
        """Pay is lost from the first round on that is not FINAL; the bond, for the game's round."""
        round = self.view.round if event.lost_from == NO_ROUND else event.lost_from
        game, why = self._lost_games.pop((event.role, event.id), None), "a key that it never showed"
        if game is not None:
            id, claim = game
            round, why = RoundIndex(claim.round), f"game {id}, about {disputed(claim)}"
        return Loss(
            account=event.account,
            role=event.role,
            index=self.view.holders(event.role)[event.id].index,
            round=round,
            wei=event.slashed,
            why=why,
            winner=event.winner,
        )

    def _note_log(self, item: Indexed) -> None:
        event: Any = item.event
        if isinstance(event, ev.RoundOpened):
            self.seat_logs.pop(event.round, None)
        elif isinstance(event, ev.Opened):
            self.audit_reports[event.round, event.id] = item
        elif type(event) in SEAT_LOGS:
            seats = self.seat_logs.setdefault(event.round, {})
            seats.setdefault(event.seat, {})[SEAT_LOGS[type(event)]] = item


def winner_of(game: GameRecord) -> Address | None:
    """Who won a game; None while it is open, and where it was not played."""
    winners = {
        Outcome.HOLDER_LOST: game.challenger,
        Outcome.CHALLENGER_LOST: game.claim.holder,
    }
    return winners.get(game.outcome)


def paid_seats(view: JobView, settled: SettledRound) -> list[SeatIndex]:
    """Seats that are paid for a settled round so far: slashes and missing keys take pay."""
    return [
        seat
        for seat, reveal in sorted(settled.reveals.items())
        if settled.pay >> seat & 1 and settled.round < view.providers[reveal.holder].lost_from
    ]
