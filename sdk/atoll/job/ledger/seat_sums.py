"""What each seat of a job did, in sums and by round: the small curves of its page.

Rule of this file: pure; everything follows from the job's ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from atoll.chain.indexed import Indexed
from atoll.job.event_text import Names
from atoll.job.ledger.history_rows import last_openings, seconds_between
from atoll.job.ledger.ledger import Ledger
from atoll.job.ledger.work import tokens_paid
from atoll.protocol.pay import seat_pay
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Address, SeatIndex


@dataclass(slots=True)
class SeatSums:
    """One seat.

    Attributes:
        account: who held it last.
        tokens, paid_wei: that it trained on and is paid for, as things stand.
        busy_seconds: from the openings of settled rounds to its commitments, in the chain's time.
        rounds: by round segments, pay, these seconds and the distance to the merge.
    """

    seat: int
    account: Address | None = None
    tokens: int = 0
    paid_wei: int = 0
    busy_seconds: int = 0
    rounds: list[dict[str, Any]] = field(default_factory=list)


def seats_document(
    ledger: Ledger, first: int, name: Names, distances: Mapping[tuple[int, int], float]
) -> list[dict[str, Any]]:
    """Every seat: all settled rounds in sums, those from `first` on by round, with how far its
    update lay from the round's merge, where that is known.

    `utilisation` is the part of all settled rounds' time that lay between a round's opening and the
    seat's commitment; a round without one counts as none.
    """
    view, opened = ledger.view, last_openings(ledger)
    whole = sum(sum(ledger.times[settled.round].seconds.values()) for settled in view.settled)
    seats = [SeatSums(seat) for seat in range(view.require_terms().seats)]
    for settled in view.settled:
        _enter(seats, ledger, settled, opened, is_listed=settled.round >= first)
    if view.open is not None:
        for seat, holder in view.open.seats.items():
            seats[seat].account = view.providers[holder].account
    for sums in seats:
        for row in sums.rounds:
            row["distance"] = distances.get((row["round"], sums.seat))
    return [_document(sums, whole, name) for sums in seats]


def _enter(
    seats: list[SeatSums],
    ledger: Ledger,
    settled: SettledRound,
    opened: Mapping[int, Indexed],
    *,
    is_listed: bool,
) -> None:
    view, trained = ledger.view, tokens_paid(ledger.view, settled)
    for index, holder in settled.seats.items():
        seat, sums, reveal = SeatIndex(index), seats[index], settled.reveals.get(index)
        logs = ledger.logs_of(settled.round, seat)
        seconds = seconds_between(opened.get(settled.round), logs.get("commit"))
        wei = seat_pay(view.require_terms(), settled, seat) if seat in trained else 0
        sums.account = view.providers[holder].account
        sums.tokens += trained.get(seat, 0)
        sums.paid_wei += wei
        sums.busy_seconds += seconds or 0
        if is_listed:
            segments = 0 if reveal is None else reveal.segments
            numbers = {"segments": segments, "seconds": seconds, "paid_wei": str(wei)}
            sums.rounds.append({"round": settled.round} | numbers)


def _document(sums: SeatSums, whole: int, name: Names) -> dict[str, Any]:
    return {
        "seat": sums.seat,
        "account": sums.account,
        "name": None if sums.account is None else name(sums.account),
        "tokens": sums.tokens,
        "paid_wei": str(sums.paid_wei),
        "utilisation": sums.busy_seconds / whole if whole else None,
        "rounds": sums.rounds,
    }
