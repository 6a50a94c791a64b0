"""A job's ledger as one JSON document: `atoll job history --json` prints it, the page draws it, and
a run's report has it.

Rule of this file: pure. A number is taken from where it is computed for everybody (`protocol`, the
ledger, its rows), or is the chain's own; amounts are integers in text, and what strangers wrote is
text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from atoll.chain.indexed import Indexed
from atoll.job.event_text import Names, describe, words
from atoll.job.figures import RoundFigures, known
from atoll.job.job_snapshot import JobSnapshot
from atoll.job.ledger.entries import REASONS, Moment, amounts_of, log_line
from atoll.job.ledger.ledger import NOT_MOVES, Ledger, winner_of
from atoll.job.ledger.overview import NOTHING_BESIDE, Beside, overview_document
from atoll.job.ledger.round_rows import Row, round_rows
from atoll.job.ledger.seat_rows import STATES, SeatRows
from atoll.job.ledger.seat_sums import seats_document
from atoll.job.ledger.work import Work, work_done
from atoll.job.signs import Signs
from atoll.protocol.game_records import GameRecord, parties, window_of
from atoll.protocol.holders import Holder
from atoll.protocol.pay import claimable
from atoll.protocol.safety import last_safe, unsafe_rounds
from atoll.protocol.types import NO_ROUND, Address, Role
from atoll.protocol.views import JobView
from atoll.storage.cid import cid_text

GRID_CELLS: Final = 1 << 14
"""Seats' rounds that a document has at most: of a longer job the newest rounds."""
LOG_LINES: Final = 1000
"""Sentences that a document has at most, the newest; a page's slider goes through them."""


def job_document(
    ledger: Ledger,
    figures: Sequence[RoundFigures] | None = None,
    name: Names = str,
    beside: Beside = NOTHING_BESIDE,
) -> dict[str, Any]:
    """The document of one job. Raises ProtocolError before it exists.

    Args:
        figures: the models' losses; None takes what committees certified.
        name: what an account is called.
        beside: what no event says.
    """
    view, rows = ledger.view, round_rows(ledger, name)
    figures = known(None, view) if figures is None else figures
    work, grid = work_done(view, view.settled), _grid(ledger, name)
    return {
        "kind": "job",
        "job": _job(ledger, rows, name),
        **overview_document(ledger, rows, beside),
        "curve": [item.to_json_value() for item in figures],
        "rounds": rows,
        "grid": grid,
        "seats": seats_document(ledger, grid["first"], name, beside.distances),
        "members": [_member(holder, ledger, work, name) for holder in _holders(view)],
        "games": [_game(game, ledger, name) for _, game in sorted(view.games.items())],
        "money": money_document(ledger, name) | {"moves": _moves(ledger, name)},
        "losses": losses_document(ledger, name),
        "unsafe": _safety(view),
        "signs": Signs.of(view, [item.bits for item in figures]).to_json_value(),
        "log": _log(ledger, name),
    }


def name_of(names: Mapping[Address, str]) -> Names:
    """What an account is called: its name, or the ends of its address."""
    return lambda account: names.get(account) or f"{account[:6]}…{account[-4:]}"


# --- the job and its clock ---


def _job(ledger: Ledger, rows: Sequence[Row], name: Names) -> dict[str, Any]:
    view, snapshot = ledger.view, JobSnapshot.of(ledger.view, ledger.now)
    terms = view.require_terms()
    return snapshot.to_json_value() | {
        "chain_id": view.domain.chain_id,
        "is_final": snapshot.is_final,
        "cancelled": view.cancel_requested,
        "now": ledger.now,
        "submitter": view.submitter,
        "submitter_name": name(view.submitter),
        "spec_cid": cid_text(view.spec_cid),
        "spec_digest": view.spec_digest.hex(),
        "seats": terms.seats,
        "slots": terms.slots,
        "f": terms.f,
        "segments": terms.segments,
        "segment_steps": terms.segment_steps,
        "tokens_per_step": terms.tokens_per_step,
        "segment_pay_wei": str(terms.segment_pay),
        "deadlines": deadlines(rows, view, ledger.now),
    }


def deadlines(rows: Sequence[Row], view: JobView, now: int) -> list[dict[str, Any]]:
    """What ends when, the next first: phases, windows of audits, moves in games."""
    running = [
        {"text": f"round {row['round']}: {row['phase']}", "until": row["until"]}
        for row in rows
        if row["until"] > now
    ]
    running += [
        {"text": f"game {game.id}: {_awaited(game)}", "until": game.deadline}
        for game in view.games.values()
        if game.deadline > now
    ]
    return sorted(running, key=lambda item: (item["until"], item["text"]))


def _awaited(game: GameRecord) -> str:
    return "the holder to move" if game.is_holders_turn else "the challenger to move"


def _grid(ledger: Ledger, name: Names) -> dict[str, Any]:
    """What became of each seat in each round."""
    view, seats = ledger.view, ledger.view.require_terms().seats
    count = len(view.settled) + (view.open is not None)
    first, of = max(0, count - max(1, GRID_CELLS // seats)), SeatRows(ledger, name).of
    return {
        "seats": seats,
        "first": first,
        "order": list(STATES),
        "states": {state: list(meaning) for state, meaning in STATES.items()},
        "rows": [[seat.to_json_value() for seat in of(round)] for round in range(first, count)],
    }


# --- members and games ---


def _holders(view: JobView) -> list[Holder]:
    everyone = (*view.providers.values(), *view.verifiers.values())
    return sorted(everyone, key=lambda h: (h.role, h.index, h.id))


def _member(
    holder: Holder, ledger: Ledger, work: Mapping[tuple[Role, Address], Work], name: Names
) -> dict[str, Any]:
    return holder_document(holder) | {
        "account": holder.account,
        "name": name(holder.account),
        "paid_wei": str(sum(ledger.paid(holder.account).values())),
        "claimable_wei": str(claimable(ledger.view, holder, ledger.now)),
        "slashed_wei": str(ledger.lost(holder.account)),
        "gateway": ledger.view.gateways.get(holder.account, ""),
        **work.get((holder.role, holder.account), Work()).to_json_value(),
    }


def holder_document(holder: Holder) -> dict[str, Any]:
    """A seat or a slot that somebody holds, or held."""
    return {
        "role": words(holder.role),
        "index": holder.index,
        "start": holder.start,
        "to": None if holder.to == NO_ROUND else holder.to,
        "bond_wei": str(holder.bond),
        "retained_wei": str(holder.retained),
        "ready": holder.is_ready or holder.role is Role.PROVIDER,
        "released": holder.is_released,
        "slashed": holder.is_slashed,
    }


def _game(game: GameRecord, ledger: Ledger, name: Names) -> dict[str, Any]:
    about, claim, moves = parties(game.claim), game.claim, ledger.game_logs.get(game.id, ())
    winner = winner_of(game)
    return {
        "game": game.id,
        "round": claim.round,
        "through_round": window_of(claim),
        "seat": claim.seat,
        "segment": claim.segment,
        "is_update_proof": claim.is_update_proof,
        "about": "a valid entry" if about and about[1] is Role.VERIFIER else "a seat's work",
        "holder": name(claim.holder),
        "holder_account": claim.holder,
        "challenger": name(game.challenger),
        "challenger_account": game.challenger,
        "winner": None if winner is None else name(winner),
        "bond_wei": str(game.bond),
        "outcome": words(game.outcome) if not game.is_open else "open",
        "until": game.deadline,
        "moves": [_step(item, name) for item in moves],
    }


def _step(item: Indexed, name: Names) -> dict[str, Any]:
    step = log_line(_sentence(item, name), item)
    return step | {"time": item.block.timestamp, "is_move": type(item.event) not in NOT_MOVES}


def _sentence(item: Indexed, name: Names) -> str:
    return describe(item.event, name) or type(item.event).__name__


# --- money ---


def money_document(ledger: Ledger, name: Names = str) -> dict[str, Any]:
    """Where the escrow went: by account and reason, and what does not add up."""
    sums = ledger.sums
    return {
        "funded_wei": str(sums.funded_wei),
        "paid_wei": str(sums.paid_wei),
        "burnt_wei": str(sums.burnt_wei),
        "refunded_wei": str(sums.refunded_wei),
        "balance_wei": str(sums.balance),
        "paid_for_wei": {reason: str(ledger.paid_for(reason)) for reason in REASONS},
        "retained_wei": str(sum(ledger.payments.retained.values())),
        "credits_wei": str(sum(ledger.view.credits.values())),
        "accounts": [
            {"account": account, "name": name(account)} | amounts_document(ledger, account)
            for account in sorted(ledger.payments.paid)
        ],
        "faults": ledger.faults,
    }


def amounts_document(ledger: Ledger, account: Address) -> dict[str, Any]:
    """What an account was paid, and for what."""
    paid = ledger.paid(account)
    return {
        "paid_wei": str(sum(paid.values())),
        "paid_for_wei": {reason: str(paid.get(reason, 0)) for reason in REASONS},
    }


def _moves(ledger: Ledger, name: Names) -> list[dict[str, Any]]:
    """Every amount that came, went or was taken, and the transaction that shows it, oldest first.

    The amounts of a kind add up to the ledger's sums, and what was taken to the losses.
    """
    return [
        log_line(_sentence(item, name), item)
        | {"kind": kind, "wei": str(wei), "time": item.block.timestamp}
        for item in ledger.items
        for kind, wei in amounts_of(item.event)
        if wei
    ]


def losses_document(ledger: Ledger, name: Names = str) -> list[dict[str, Any]]:
    """What missed duties and slashes took of bonds, oldest first."""
    return [
        {
            "account": loss.account,
            "name": name(loss.account),
            "role": words(loss.role),
            "round": loss.round,
            "wei": str(loss.wei),
            "for": loss.why,
            "slashed": loss.is_slash,
        }
        for loss in ledger.losses
    ]


def _safety(view: JobView) -> dict[str, Any]:
    """Rounds of which more seats were slashed than the rule bears, and what to go on from then."""
    safe = last_safe(view)
    return {
        "rounds": [int(round) for round in unsafe_rounds(view)],
        "safe_before": int(safe.before),
        "safe_digest": None if safe.digest is None else safe.digest.hex(),
    }


# --- what happened ---


def _log(ledger: Ledger, name: Names) -> dict[str, Any]:
    """Sentences about what happened, each with how the job stood then."""
    moment, lines = Moment(), deque[dict[str, Any]](maxlen=LOG_LINES)
    count = 0
    for item in ledger.items:
        moment.fold(item.event)
        text = describe(item.event, name)
        if text is None:
            continue
        count += 1
        kind, then = type(item.event).__name__, moment.to_json_value()
        lines.append(
            log_line(text, item) | {"time": item.block.timestamp, "kind": kind, "then": then}
        )
    return {"count": count, "lines": list(lines)}
