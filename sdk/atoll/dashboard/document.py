"""What a page shows of a job, as one JSON document: every number of the page is in it.

Rule of this file: pure. A number is taken from where it is computed for everybody (`protocol`, the
books, the rounds' stories, the figures), or is the chain's own; amounts are integers in text, and
what strangers wrote is text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from atoll.chain.indexed import Indexed
from atoll.dashboard.cells import STATES, Cells, Places, place
from atoll.dashboard.replay import amounts_of, standings
from atoll.job.books import REASONS, Books, keep_books
from atoll.job.event_text import JobSnapshot, Names, describe, words
from atoll.job.figures import RoundFigures, known
from atoll.job.history import NOT_MOVES, History, RoundRecord
from atoll.job.signs import Signs
from atoll.job.story import RoundStory, tell_rounds
from atoll.protocol import events as ev
from atoll.protocol.game_records import GameRecord, parties, window_of
from atoll.protocol.held_out import loss_of
from atoll.protocol.holders import Holder
from atoll.protocol.pay import claimable
from atoll.protocol.safety import last_safe, unsafe_rounds
from atoll.protocol.views import JobView
from atoll.protocol.words import NO_ROUND, Address, Role
from atoll.storage.cid import cid_text

GRID_CELLS: Final = 1 << 14
"""Cells that a page has at most: of a longer job the newest rounds are shown."""
LOG_LINES: Final = 1000
"""Sentences that a page has at most, the newest; its slider goes through them."""
PHASES: Final = ("train", "reveal", "merge")


@dataclass(frozen=True)
class Seen:
    """What a document is made from.

    Attributes:
        view: the job after all of `items`.
        items: the chain's events, oldest first; those of others are passed over.
        now: the chain's clock, unix seconds.
        figures: the models' losses; None takes what committees certified.
        names: what accounts are called.
        measured: parts of report.json that no chain knows: traffic, utilisation, gas.
    """

    view: JobView
    items: Sequence[Indexed]
    now: int
    figures: Sequence[RoundFigures] | None = None
    names: Mapping[Address, str] = field(default_factory=dict)
    measured: Mapping[str, Any] | None = None


def job_document(seen: Seen) -> dict[str, Any]:
    """The document of one job. Raises ProtocolError before it exists."""
    view, name = seen.view, name_of(seen.names)
    history = History(view.job_id)
    for item in seen.items:
        history.fold(item, view)
    books, stories = keep_books(view, history.events), tell_rounds(view, seen.now)
    moves = _moves_of_games(history, name)
    figures = known(None, view) if seen.figures is None else seen.figures
    return {
        "kind": "job",
        "job": _job(seen, stories),
        "loss": [_figure(item) for item in figures],
        "rounds": [_round(story, history, view) for story in stories],
        "grid": _grid(view, history, name),
        "members": [_member(holder, seen, books, history) for holder in _holders(view)],
        "games": [_game(game, moves[game.id], name) for _, game in sorted(view.games.items())],
        "money": _money(books, view, name) | {"moves": _moves(history, name)},
        "losses": [_loss(item, name) for item in history.losses],
        "unsafe": _safety(view),
        "signs": Signs.of(view, [item.bits for item in figures]).to_plain(),
        "measured": None if seen.measured is None else dict(seen.measured),
        "log": _log(history, name),
    }


def name_of(names: Mapping[Address, str]) -> Names:
    """What an account is called: its name, or the ends of its address."""
    return lambda account: names.get(account) or f"{account[:6]}…{account[-4:]}"


# --- the job and its clock ---


def _job(seen: Seen, stories: Sequence[RoundStory]) -> dict[str, Any]:
    view, snapshot = seen.view, JobSnapshot.of(seen.view, seen.now)
    terms = view.require_terms()
    return {
        "id": int(view.job_id),
        "chain_id": view.domain.chain_id,
        "status": words(view.status),
        "phase": words(view.phase),
        "round": snapshot.round,
        "rounds": terms.rounds,
        "settled": snapshot.settled_rounds,
        "final": snapshot.final_rounds,
        "committee_draw": snapshot.committee_draw,
        "is_final": snapshot.is_final,
        "cancelled": view.cancel_requested,
        "now": seen.now,
        "block": view.block.number,
        "submitter": view.submitter,
        "spec": {"cid": cid_text(view.spec_cid), "digest": view.spec_digest.hex()},
        "model": {
            "cid": cid_text(view.model_cid) if view.model_cid else None,
            "digest": view.model.hex() if any(view.model) else None,
        },
        "seats": {"of": terms.seats, "held": snapshot.providers},
        "places": {"of": terms.places, "held": snapshot.verifiers, "ready": snapshot.ready},
        "f": terms.f,
        "segments": terms.segments,
        "segment_steps": terms.segment_steps,
        "tokens_per_step": terms.tokens_per_step,
        "segment_pay_wei": str(terms.segment_pay),
        "deadlines": deadlines(stories, view, seen.now),
    }


def deadlines(stories: Sequence[RoundStory], view: JobView, now: int) -> list[dict[str, Any]]:
    """What ends when, the next first: phases, windows of audits, moves in games."""
    found = [
        {"what": f"round {story.round}: {story.phase}", "until": story.until}
        for story in stories
        if story.until > now
    ]
    found += [
        {"what": f"game {game.id}: {_mover(game)} to move", "until": game.deadline}
        for game in view.games.values()
        if game.deadline > now
    ]
    return sorted(found, key=lambda item: (item["until"], item["what"]))


def _mover(game: GameRecord) -> str:
    return "the holder" if game.is_holders_turn else "the challenger"


# --- training ---


def _figure(item: RoundFigures) -> dict[str, Any]:
    """A model's held-out loss: as certified, and as computed here."""
    return {
        "merged": item.merged,
        "certified": _loss_in(item.certified),
        "own": _loss_in(item.own),
        "disputed": item.is_disputed,
    }


def _loss_in(bits: bytes | None) -> float | None:
    """Nats a target; None where there is no number, or NaN."""
    value = None if bits is None else loss_of(bits)
    return None if value is None or value != value else value  # noqa: PLR0124 (NaN)


def _round(story: RoundStory, history: History, view: JobView) -> dict[str, Any]:
    record = history.rounds.get(story.round, RoundRecord(story.round))
    past = view.settled[story.round] if story.round < len(view.settled) else None
    return story.to_plain() | {
        "started": record.started,
        "ended": record.ended,
        "seconds": {phase: record.seconds[phase] for phase in PHASES},
        "voids": record.voids,
        "committee_draws": record.committee_draws,
        "cid": cid_text(past.verdict.cid) if past is not None and past.verdict.cid else None,
        "told": None if past is None else past.is_consistent,
    }


def _grid(view: JobView, history: History, name: Names) -> dict[str, Any]:
    terms, places = view.require_terms(), Places.of(history)
    count = len(view.settled) + (view.open is not None)
    first = max(0, count - max(1, GRID_CELLS // terms.seats))
    cells = Cells(view, places, name)
    return {
        "seats": terms.seats,
        "first": first,
        "order": list(STATES),
        "states": {state: list(told) for state, told in STATES.items()},
        "rows": [[cell.to_plain() for cell in cells.row(r)] for r in range(first, count)],
    }


# --- members and games ---


def _holders(view: JobView) -> list[Holder]:
    everyone = (*view.providers.values(), *view.verifiers.values())
    return sorted(everyone, key=lambda h: (h.role, h.index, h.id))


def _member(holder: Holder, seen: Seen, books: Books, history: History) -> dict[str, Any]:
    paid = books.paid.get(holder.account, {})
    return {
        "account": holder.account,
        "name": name_of(seen.names)(holder.account),
        "role": words(holder.role),
        "index": holder.index,
        "start": holder.start,
        "to": None if holder.to == NO_ROUND else holder.to,
        "bond_wei": str(holder.bond),
        "ready": holder.is_ready or holder.role is Role.PROVIDER,
        "fallen": holder.has_fallen,
        "paid_wei": str(sum(paid.values())),
        "claimable_wei": str(claimable(seen.view, holder, seen.now)),
        "lost_wei": str(history.lost(holder.account)),
        "gateway": seen.view.gateways.get(holder.account, ""),
    }


def _moves_of_games(history: History, name: Names) -> Mapping[int, list[dict[str, Any]]]:
    """What was done in each game, oldest first."""
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for item in history.items:
        if _is_of_a_game(item.event):
            event: Any = item.event
            found[event.id].append(_step(item, name))
    return found


def _game(game: GameRecord, moves: Sequence[Mapping[str, Any]], name: Names) -> dict[str, Any]:
    about, claim = parties(game.claim), game.claim
    return {
        "game": game.id,
        "round": claim.round,
        "via": window_of(claim),
        "seat": claim.seat,
        "segment": claim.segment,
        "is_link": claim.is_link,
        "about": "a fine" if about and about[1] is Role.VERIFIER else "a seat's work",
        "holder": name(claim.holder),
        "challenger": name(game.challenger),
        "bond_wei": str(game.bond),
        "outcome": words(game.outcome) if not game.is_open else "open",
        "until": game.deadline,
        "moves": list(moves),
    }


def _is_of_a_game(event: ev.ContractEvent) -> bool:
    return getattr(event, "job_id", None) is None


def _step(item: Indexed, name: Names) -> dict[str, Any]:
    told = place(describe(item.event, name) or type(item.event).__name__, item)
    return told | {"time": item.block.timestamp, "is_move": type(item.event) not in NOT_MOVES}


# --- money ---


def _money(books: Books, view: JobView, name: Names) -> dict[str, Any]:
    return books.to_plain() | {
        "reasons": {reason: str(books.total(reason)) for reason in REASONS},
        "accounts": [
            {
                "account": account,
                "name": name(account),
                "total_wei": str(sum(amounts.values())),
                **{f"{reason}_wei": str(amounts.get(reason, 0)) for reason in REASONS},
            }
            for account, amounts in sorted(books.paid.items())
        ],
        "credits_wei": str(sum(view.credits.values())),
    }


def _moves(history: History, name: Names) -> list[dict[str, Any]]:
    """Every amount that came, went or was taken, and the transaction that shows it, oldest first.

    The amounts of a kind add up to the books' own, and what was taken to the losses.
    """
    return [
        place(describe(item.event, name) or type(item.event).__name__, item)
        | {"kind": kind, "wei": str(wei), "time": item.block.timestamp}
        for item in history.items
        for kind, wei in amounts_of(item.event)
        if wei
    ]


def _loss(item: Any, name: Names) -> dict[str, Any]:
    return {
        "name": name(item.account),
        "role": words(item.role),
        "round": item.round,
        "wei": str(item.wei),
        "why": item.why,
        "fell": item.is_fall,
    }


def _safety(view: JobView) -> dict[str, Any]:
    safe = last_safe(view)
    return {
        "rounds": [int(round) for round in unsafe_rounds(view)],
        "safe_before": int(safe.before),
        "safe_digest": None if safe.digest is None else safe.digest.hex(),
    }


# --- what happened ---


def _log(history: History, name: Names) -> dict[str, Any]:
    told = zip(history.items, standings(history.events), strict=True)
    lines = [
        (item, text, then)
        for item, then in told
        if (text := describe(item.event, name)) is not None
    ]
    return {
        "count": len(lines),
        "lines": [
            place(text, item)
            | {"time": item.block.timestamp, "kind": type(item.event).__name__, "then": then}
            for item, text, then in lines[-LOG_LINES:]
        ],
    }
