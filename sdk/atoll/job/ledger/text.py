"""A job's ledger as a terminal shows it, drawn from its document as the page is.

Rule of this file: pure; nothing is counted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from atoll.job.event_text import tokens


def round_line(row: Mapping[str, Any], now: int) -> dict[str, object]:
    """A line of the table of rounds."""
    left = f" {row['until'] - now} s" if row["until"] > now else ""
    audits = f"{_seats(row['drawn'])}: {_seats(row['valid'])} valid"
    audits += f", {_seats(row['mismatch'])} mismatch" if row["mismatch"] else ""
    there = row["committed" if row["phase"] == "train" else "revealed"]
    return {
        "round": row["round"],
        "phase": row["phase"] + left + (", unsafe" if row["is_unsafe"] else ""),
        "there": f"{_seats(there)} of {_seats(row['seated'])}",
        "available": _seats(row["available"]),
        "excluded": _seats(row["excluded"]),
        "audited": audits if row["drawn"] else "",
        "paid": _seats(row["paid"]),
        "slashed": _seats(row["slashed"]),
        "cost": _tokens(row["cost_wei"]),
    }


def sections(document: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """What has happened besides, by title: accusations with their games, and lost bonds."""
    yield "Accused, and judged by the contract", list(_accusations(document))
    yield "Taken from bonds", list(_losses(document["losses"]))


def money_lines(money: Mapping[str, Any]) -> Iterator[str]:
    """Where the escrow went; sentences about what does not add up, if anything."""
    yield (
        f"escrow: {_tokens(money['funded_wei'])} funded = {_tokens(money['paid_wei'])} paid"
        f" + {_tokens(money['burnt_wei'])} burnt + {_tokens(money['refunded_wei'])} refunded"
        f" + {_tokens(money['balance_wei'])} left"
    )
    parts = (f"{_tokens(wei)} {reason}" for reason, wei in money["paid_for_wei"].items())
    yield f"paid for: {', '.join(parts)}"
    for fault in money["faults"]:
        yield f"THE LEDGER DOES NOT ADD UP: {fault}"


def unsafe_lines(unsafe: Mapping[str, Any]) -> Iterator[str]:
    """In which rounds too many were slashed, and which model is safe."""
    if unsafe["rounds"]:
        which, before = ", ".join(map(str, unsafe["rounds"])), unsafe["safe_before"]
        back = f"that after round {before - 1}" if before else "the job's first one"
        yield f"UNSAFE: in rounds {which} more seats were slashed than the merge bears; use {back}"


def count_text(number: int, what: str) -> str:
    """So many of something."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _accusations(document: Mapping[str, Any]) -> Iterator[str]:
    for row in document["rounds"]:
        for item in row["accusations"]:
            where = f"{_place(item)} of seat {item['seat']} differs"
            yield f"round {row['round']}: {item['auditor']} says that {where}"
    for game in document["games"]:
        whose = f"{_place(game)} of seat {game['seat']} in round {game['round']}"
        if game["through_round"] != game["round"]:
            whose += f" through round {game['through_round']}"
        end = "not played" if game["winner"] is None else f"{game['winner']} wins"
        moves = sum(move["is_move"] for move in game["moves"])
        after = f", after {count_text(moves, 'move')}" if moves else ""
        yield f"game {game['game']}: {game['challenger']} disputes {whose}: {end}{after}"


def _place(about: Mapping[str, Any]) -> str:
    """What of a seat's round is disputed."""
    return "the update" if about["is_update_proof"] else f"segment {about['segment']}"


def _losses(losses: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for loss in losses:
        if loss["wei"] != "0":  # of a bond that is gone
            cost = f"{loss['name']} loses {_tokens(loss['wei'])}"
            yield f"round {loss['round']}: {cost} for {loss['for']}"


def _seats(seats: Sequence[int]) -> str:
    return ", ".join(map(str, seats)) or "none"


def _tokens(wei: str) -> str:
    return tokens(int(wei))
