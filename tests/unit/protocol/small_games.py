"""The small job that games of tests are about."""

from __future__ import annotations

from functools import cache

from tests.support.games import (
    Job,
    Party,
    Shape,
    flipped,
)

from atoll.protocol.games.game_machine import Game
from atoll.protocol.games.moves import (
    Claim,
)

JOB = Job(Shape(weights=300, micro_batches=2, segment=2, layer=40, filler=3))


@cache
def wrong_at(node: int, position: int, step: int = 1, job: Job = JOB) -> tuple[Party, Party]:
    """A holder whose claim is wrong, first at this byte of this node, and who is right."""
    base = job.claim()
    tampers = {job.header.step_nodes - 1: flipped(-1), node: flipped(position)}
    holder = Party(job, base, {step: tampers})
    claim = holder.claimed
    return Party(job, claim, {step: tampers}), Party(job, claim)


# --- what the machine refuses ---


def opened() -> tuple[Game, Party, Claim]:
    party = Party(JOB, Party(JOB, JOB.claim()).claimed)
    return Game.begin(party.claim, 0), party, party.claim
