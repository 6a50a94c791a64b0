"""What keeps a service from earning in one job: lost bonds, disagreements, late duties.

Rule of this file: pure functions of a machine's state; numbers and the next command in every line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

from atoll.protocol.holders import Holder
from atoll.protocol.obligations import Duty, Obligation, obligations_of
from atoll.protocol.token_units import whole_token
from atoll.protocol.types import Phase, Role, Terms
from atoll.protocol.views import JobView
from atoll.service.duties.disagreement import disagreement
from atoll.service.duties.game import NoMove, SendMove
from atoll.service.health_status import HealthStatus
from atoll.service.machine import State

S = TypeVar("S")
LAST_PART: Final = 6
"""With so large a part of its time left a duty that is not done is told."""


def alerts(state: State[S]) -> Iterator[HealthStatus]:
    """The gravest first."""
    if state.view.terms is None or state.view.status.is_closed:
        return
    yield from _lost_games(state)
    yield from _slashes(state)
    yield from _disagreements(state)
    yield from _late(state)


def waits_for(state: State[S]) -> str:
    """What a job of ours lacks before a round opens; empty where it lacks nothing."""
    view, holder = state.view, state.view.standing(state.me)
    if holder is None or not holder.counts_in(view.round):
        return ""
    if view.phase is not Phase.WAITING or view.is_advance_due(state.now):
        return ""
    there = view.gathered()
    left = view.require_terms().expiry - state.now
    return (
        f"waits for members: {there.held} of {there.enough_held} seats are held, {there.ready} of "
        f"{there.enough_ready} verifiers are ready; it ends in {left} s without them"
    )


def _lost_games(state: State[S]) -> Iterator[HealthStatus]:
    """Games in which it is our turn and we have nothing to say: their clock ends them."""
    job = state.view.job_id
    for owed in obligations_of(state.view, state.me, state.now):
        game = state.view.games.get(owed.game)
        if owed.duty is not Duty.MOVE or game is None:
            continue
        move = state.entries.of(SendMove, game.id, len(game.moves))
        if isinstance(move, NoMove):
            left = max(0, owed.until - state.now)
            text = f"job {job}, game {game.id}: no move, {left} s left: {move.reason}"
            yield HealthStatus("game", text, f"atoll judge games {job}")


def _slashes(state: State[S]) -> Iterator[HealthStatus]:
    job = state.view.job_id
    for holder in _ours(state.view, state):
        if holder.is_slashed:
            who = f"{holder.role.name.lower()} {holder.id}"
            what = f"{who} was slashed, {holder.bond / whole_token():g} tokens"
            text = f"job {job}: our {what} are left of its bond; it does not join again"
            yield HealthStatus("slashed", text, f"atoll judge games {job}")


def _disagreements(state: State[S]) -> Iterator[HealthStatus]:
    disagreed = disagreement(state)
    if disagreed is not None:
        job = state.view.job_id
        text = f"job {job}: {disagreed}; it leaves, and trains nothing from that"
        yield HealthStatus("disagrees", text, f"atoll job audit {job} --round {disagreed.round}")


def _late(state: State[S]) -> Iterator[HealthStatus]:
    job, terms = state.view.job_id, state.view.require_terms()
    for owed in obligations_of(state.view, state.me, state.now):
        left = owed.until - state.now
        if left * LAST_PART < _window(terms, owed.duty):
            text = f"job {job}: its {owed.duty} of round {owed.round} is due in {left} s"
            step = "`atoll doctor --config …` says whether this machine keeps up"
            yield HealthStatus("late", text, step, is_fault=False)


def _window(terms: Terms, duty: Duty) -> int:
    """Seconds that there are for a duty; 0 for what has a clock of its own, or none."""
    windows = {
        Duty.COMMIT: terms.train_seconds,
        Duty.REVEAL: terms.reveal_seconds,
        Duty.VOTE: terms.merge_seconds,
        Duty.READY: terms.ready_seconds,
        Duty.AUDIT_REPORT: terms.audit_seconds,
        Duty.OPEN: terms.open_seconds,
        Duty.KEY: terms.key_seconds,
    }
    return windows.get(duty, 0)


def _ours(view: JobView, state: State[S]) -> list[Holder]:
    return [h for r in Role for h in view.holders(r).values() if h.account == state.me]


def plain_obligations(state: State[S]) -> list[dict[str, Any]]:
    """What the account owes the job now, the most urgent first, in JSON values."""
    if state.view.terms is None:
        return []
    return [_plain(state, owed) for owed in obligations_of(state.view, state.me, state.now)]


def _plain(state: State[S], owed: Obligation) -> dict[str, Any]:
    left = owed.until - state.now
    ends = None if left >> 40 else left
    plain = {"duty": str(owed.duty), "round": int(owed.round), "seconds_left": ends}
    return plain | ({"seats": list(map(int, owed.seats))} if owed.seats else {})


def missed_duties(state: State[S]) -> list[dict[str, Any]]:
    """What the account was penalised for in the job, in JSON values."""
    return [
        {"role": holder.role.name.lower(), "round": int(round), "missed_duty": kind.name.lower()}
        for holder in _ours(state.view, state)
        for round, kind in sorted(holder.penalties)
    ]
