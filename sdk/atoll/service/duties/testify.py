"""What a member of a round's pool says of a claim that no trace decides.

Rule of this file: what is said follows from our own replay of the seat's round alone. Two thirds of
the pool decide (SPEC-GAME.md, 7), so whoever has not replayed says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import structlog

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.protocol.game_records import GameRecord
from atoll.protocol.games.moves import Claim
from atoll.protocol.types import ZERO_DIGEST, HolderId, RoundIndex, SeatIndex, bits
from atoll.protocol.views import JobView
from atoll.service.commands import ContractCall
from atoll.service.duties.material import spec_of
from atoll.service.duties.replay_seat import (
    REPLAY,
    Replay,
    SeatReplayed,
    replayed,
    replaying,
)
from atoll.service.machine import AnyCommand, Decision, State

S = TypeVar("S")
log = structlog.get_logger("atoll.testify")


@dataclass(frozen=True, slots=True)
class SendTestimony(ContractCall):
    """Say whether our replay gave what a claim says."""

    kind: ClassVar[str] = "testimony.v1"
    once: ClassVar[bool] = True
    game: int
    holder: HolderId
    is_right: bool

    @property
    def about(self) -> tuple[object, ...]:
        return (self.game, self.holder)

    def call(self, calls: Calls, view: JobView) -> Call:
        claim = view.games[self.game].claim
        settled_round = view.settled[RoundIndex(claim.round)]
        log.info("testifies", job=view.job_id, game=self.game, is_right=self.is_right)
        about = calls.about(settled_round)
        return about.testify(self.game, claim, self.holder, is_right=self.is_right)


def is_right(claim: Claim, segments: int, replay: SeatReplayed) -> bool:
    """Whether what a seat did up to the claim's end is what our replay gave.

    A claim behind a false one is false: its state follows from nothing that was trained.

    Args:
        segments: that the seat says to have done.
    """
    if replay.earlier is not None:
        return False
    number = segments if claim.is_update_proof else claim.segment
    if not replay.entry.is_valid and replay.entry.at <= number:
        return False
    is_tagged = claim.work_tag != ZERO_DIGEST and not claim.is_update_proof
    return not is_tagged or claim.work_tag == replay.work_tags[claim.segment]


def decide_testimony(state: State[S], function: Replay = REPLAY) -> Decision:
    """Replays what pools of rounds that we were ready in are asked about, and says what it gave."""
    asked = list(_asked(state))
    wanted = [command for game in asked for command in _testimony(state, game, function)]
    return Decision("testimony", f"{len(asked)} games ask the pool", tuple(wanted))


def _asked(state: State[S]) -> Iterator[GameRecord]:
    for game in state.view.games.values():
        is_played = game.is_pools and game.deadline > state.now
        if is_played and state.me not in game.testimonies:
            yield game


def _testimony(state: State[S], game: GameRecord, function: Replay) -> Iterator[AnyCommand]:
    claim, view, spec = game.claim, state.view, spec_of(state.entries)
    seat, settled_round = SeatIndex(claim.seat), view.settled_round(RoundIndex(claim.round))
    if settled_round is None or spec is None:
        return
    ready = bits(settled_round.record.ready)
    ours = (h for slot, h in settled_round.slots.items() if slot in ready)
    holder = next((h for h in ours if view.verifiers[h].account == state.me), None)
    if holder is None or view.verifiers[holder].is_slashed:
        return
    replay = replayed(state, settled_round, seat)
    if replay is None:
        yield replaying(view, settled_round, seat, spec, function)
        return
    segments = settled_round.reveals[seat].segments
    yield SendTestimony(game.id, holder, is_right(claim, segments, replay))
