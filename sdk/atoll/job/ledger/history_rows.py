"""A job's ledger as rows of numbers, by round and by seat: for pandas, and for trackers.

Rule of this file: pure. Amounts are floats of tokens, for curves and means; the exact ones are the
ledger's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atoll.chain.indexed import Indexed
from atoll.job.figures import RoundFigures
from atoll.job.ledger.ledger import Ledger
from atoll.job.ledger.round_rows import Row, round_rows
from atoll.job.ledger.seat_rows import EMPTY, SeatRows
from atoll.job.ledger.work import tokens_paid
from atoll.protocol import events as ev
from atoll.protocol.token_units import whole_token
from atoll.protocol.types import RoundIndex, SeatIndex


@dataclass(frozen=True, slots=True)
class RoundHistory:
    """One round.

    Attributes:
        phase: as in `round_rows`; `final` where nothing of it changes any more.
        started, seconds: when it opened, in unix seconds, and how long it took in the chain's time;
            `train_seconds`, `reveal_seconds` and `merge_seconds` are its parts.
        seats: that opened it; `revealed` and `merged` how many of them came so far.
        tokens: that the paid seats trained on; `total_tokens` of all rounds up to this.
        cost: tokens of money, as things stand; `total_cost` of all rounds up to this.
        loss_before, loss: the held-out loss before and after it; None where it is not known.
        reward, length, spread: of what it sampled (`Sampled`); `held_out_reward` is of its model.
    """

    round: int
    phase: str
    started: int
    seconds: int
    train_seconds: int
    reveal_seconds: int
    merge_seconds: int
    seats: int
    revealed: int
    merged: int
    tokens: int
    total_tokens: int
    cost: float
    total_cost: float
    loss_before: float | None
    loss: float | None
    reward: float | None
    length: float | None
    spread: float | None
    held_out_reward: float | None
    is_settled: bool


@dataclass(frozen=True, slots=True)
class SeatHistory:
    """What one seat did in one round.

    Attributes:
        state: a key of `seat_rows.STATES`; `text` says why.
        account: who held the seat.
        segments: that it revealed.
        tokens: that it trained on and is paid for.
        seconds: from the round's opening to its commitment, in the chain's time; None without one.
        paid: tokens of money, for training, as things stand.
    """

    round: int
    seat: int
    account: str
    state: str
    segments: int
    tokens: int
    seconds: int | None
    paid: float
    text: str


def round_history(ledger: Ledger, figures: Sequence[RoundFigures]) -> list[RoundHistory]:
    """A row a round, oldest first; the open one last.

    Args:
        figures: of each model, the initial one first.
    """
    history: list[RoundHistory] = []
    tokens = wei = 0
    for row in round_rows(ledger):
        trained = _tokens(ledger, row["round"])
        tokens, wei = tokens + trained, wei + int(row["cost_wei"])
        history.append(_round(row, figures, tokens=trained, total_tokens=tokens, total_wei=wei))
    return history


def _round(
    row: Row,
    figures: Sequence[RoundFigures],
    *,
    tokens: int,
    total_tokens: int,
    total_wei: int,
) -> RoundHistory:
    number, seconds, is_settled = row["round"], row["seconds"], row["status"] == "settled"
    nothing = RoundFigures(number + 1)
    before, after = (figures[at] if at < len(figures) else nothing for at in (number, number + 1))
    sampled = after.sampled
    return RoundHistory(
        round=number,
        phase=row["phase"],
        started=row["started"],
        seconds=sum(seconds.values()),
        train_seconds=seconds["train"],
        reveal_seconds=seconds["reveal"],
        merge_seconds=seconds["merge"],
        seats=len(row["seated"]),
        revealed=len(row["revealed"]),
        merged=row["merged"],
        tokens=tokens,
        total_tokens=total_tokens,
        cost=int(row["cost_wei"]) / whole_token(),
        total_cost=total_wei / whole_token(),
        loss_before=before.loss,
        loss=after.loss,
        reward=None if sampled is None else sampled.reward,
        length=None if sampled is None else sampled.length,
        spread=None if sampled is None else sampled.spread,
        held_out_reward=after.held_out_reward,
        is_settled=is_settled,
    )


def _tokens(ledger: Ledger, round: int) -> int:
    settled = ledger.view.settled_round(RoundIndex(round))
    return 0 if settled is None else sum(tokens_paid(ledger.view, settled).values())


def seat_history(ledger: Ledger) -> list[SeatHistory]:
    """A row for each seat that somebody held in each round, oldest first."""
    view, of = ledger.view, SeatRows(ledger, str).of
    opened, history = last_openings(ledger), []
    for round in map(RoundIndex, range(len(view.settled) + (view.open is not None))):
        settled = view.settled_round(round)
        paid = {} if settled is None else tokens_paid(view, settled)
        for seat, row in enumerate(of(round)):
            if row.account is None or row is EMPTY:
                continue
            committed = ledger.logs_of(round, seat).get("commit")
            history.append(
                SeatHistory(
                    round=round,
                    seat=seat,
                    account=str(row.account),
                    state=row.state,
                    segments=row.segments,
                    tokens=paid.get(SeatIndex(seat), 0),
                    seconds=seconds_between(opened.get(round), committed),
                    paid=row.paid_wei / whole_token(),
                    text=row.text,
                )
            )
    return history


def last_openings(ledger: Ledger) -> dict[int, Indexed]:
    """Where each round was last opened: a void round opens anew, and its seats begin anew."""
    return {
        item.event.round: item for item in ledger.items if isinstance(item.event, ev.RoundOpened)
    }


def seconds_between(start: Indexed | None, end: Indexed | None) -> int | None:
    """In the chain's time; None where one of the two is missing."""
    if start is None or end is None:
        return None
    return end.block.timestamp - start.block.timestamp
