"""Steps and links in which every operation occurs, and games about their elements.

Rule of this file: an operation is tried in the first trial that has it, at the ends and in the
middle of its nodes and of each of those nodes' elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from tests.judge.parties import NothingToLieAbout, Party, Trial, liar, sham
from tests.judge.playing import Before, Played, play
from tests.judge.table import Table
from tests.unit.numerics.trace.jobs import CODECS, JOBS, Changes, Small, make_small

from atoll.numerics.trace.opcodes import Op
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.program import Part
from atoll.protocol.types import Address

STEP: Final = 1
"""The second of a round, so that the state has moments and the round an earlier segment."""
STEPS: Final = (
    "plain",
    "dropout",
    "qwen",
    "relu2",
    "sgd",
    "sgd with momentum",
    "muon",
    "lora",
    "long",
    "wide",
    "fed back",
    "largest fed back",
    "cosines fed back",
)
UPDATE_PROOFS: Final[Mapping[str, Changes]] = {
    f"update proof of {kind}": codec for kind, codec in CODECS.items()
}
WARM: Final = frozenset({"update proof of two_bit", "update proof of sign"})
"""Of rounds that began with moments."""
TRIALS: Final = (*STEPS, *UPDATE_PROOFS)


@dataclass(frozen=True, slots=True)
class Position:
    """An element of a trial's trace."""

    trial: str
    op: Op
    node: int
    element: int


@cache
def trial(name: str) -> Trial:
    """One of `TRIALS`."""
    if name in UPDATE_PROOFS:
        return Trial.of_update_proof(
            _job({**JOBS["plain"], **UPDATE_PROOFS[name]}), warm=name in WARM
        )
    return Trial.of_step(_job(JOBS[name]), STEP)


def _job(changes: Changes) -> Small:
    """With segments of one step."""
    return make_small({**changes, "inner": {**changes.get("inner", {}), "segment": 1}})


@cache
def homes() -> dict[Op, str]:
    """The first trial of each operation."""
    found: dict[Op, str] = {}
    for name in TRIALS:
        part = Part.UPDATE_PROOF if name in UPDATE_PROOFS else Part.STEP
        ops = {Op(t.op) for t in trial(name).job.program.templates if t.part == part}
        found = dict.fromkeys(sorted(ops), name) | found
    return found


def positions(op: Op, name: str | None = None) -> Iterator[Position]:
    """Up to nine, in a trial that is named or the operation's first."""
    name = homes()[op] if name is None else name
    at = trial(name)
    for node in _spread(at.positions(op)):
        last = at.values[node].numel() - 1
        yield from (Position(name, op, node, e) for e in _spread(range(last + 1)))


def _spread(all_: range | list[int]) -> list[int]:
    """The first, a middle and the last."""
    return sorted({all_[0], all_[len(all_) // 2], all_[-1]})


def refute(
    table: Table, number: int, position: Position, before: Before | None = None
) -> Played | None:
    """A game about a wrong bit there; None where nobody can claim a result with it."""
    at = trial(position.trial)
    try:
        holder = liar(at, position.node, position.element)
    except NothingToLieAbout:
        return None
    claim = holder.claimed(at.claim(Address(table.holder)))
    played = play(table, number, claim, holder, Party(at, pretends=True), before)
    assert played.game.node == position.node
    return played


def survive(table: Table, number: int, position: Position, before: Before | None = None) -> Played:
    """A game in which somebody says that the honest element there is wrong."""
    at = trial(position.trial)
    holder = Party(at)
    claim = holder.claimed(at.claim(Address(table.holder)))
    rival = sham(at, position.node, position.element)
    played = play(table, number, claim, holder, rival, before)
    assert played.game.node == position.node
    return played


def outcome(played: Played | None) -> Outcome:
    """How it ended; a step that nobody can claim is one that the holder would lose by time."""
    return Outcome.HOLDER_LOST if played is None else played.outcome
