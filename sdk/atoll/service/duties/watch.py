"""Looks at settled rounds as an outsider: replays revealed seats and disputes what is wrong."""

from __future__ import annotations

from typing import Final, TypeVar

from atoll.law.views import SettledRound
from atoll.law.words import ZERO_DIGEST, Digest
from atoll.service.duties.challenge import SendChallenge, may_challenge
from atoll.service.duties.material import DataReady, DoFetchData, spec_of
from atoll.service.duties.replay import REPLAY, replayed, replaying, wrong_word_at
from atoll.service.machine import AnyCommand, Decision, State

S = TypeVar("S")
MARGIN_SECONDS: Final = 2
"""So long before a window ends nothing is begun any more that it would have to contain."""


def decide_watch(state: State[S], function: str = REPLAY) -> Decision:
    """Replays the seats of rounds that can still be disputed, and disputes what is wrong.

    Args:
        function: the worker's function that replays.
    """
    view, now = state.view, state.now
    spec, data = spec_of(state.facts), state.facts.of(DoFetchData)
    if spec is None or not isinstance(data, DataReady):
        return Decision("watch", "waits for the manifest and the data")
    if view.require_terms().program == ZERO_DIGEST:
        return Decision("watch", "the job has no judge")
    wanted: list[AnyCommand] = []
    for past in view.auditing(now + MARGIN_SECONDS):
        wanted += _of_round(state, past, (spec, data.initial), function)
    return Decision("watch", f"{len(wanted)} things to look at", tuple(wanted))


def _of_round(
    state: State[S], past: SettledRound, job: tuple[bytes, Digest], function: str
) -> list[AnyCommand]:
    wanted: list[AnyCommand] = []
    for seat, told in past.reveals.items():
        if told.account == state.me or state.view.providers[told.holder].has_fallen:
            continue
        found = replayed(state, past, seat)
        if found is None:
            wanted.append(replaying(past, seat, job[0], function))
        elif past.clock.takes_challenges(state.now):
            duty = found.duty
            at = wrong_word_at(past, seat, found.words) if duty.is_fine else duty.at
            if at is not None and may_challenge(state, past, seat, at):
                wanted.append(SendChallenge(past.round, seat, at, *job))
    return wanted
