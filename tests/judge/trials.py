"""Steps and links in which every operation occurs, and games about their elements.

Rule of this file: an operation is tried in the first trial that has it, at the ends and in the
middle of its nodes and of each of those nodes' elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import torch
from tests.judge.parties import NothingToLieAbout, Party, Trial, flipped, liar, rerun, sham
from tests.judge.playing import Before, Played, play
from tests.judge.table import Table
from tests.unit.numerics.trace.jobs import CODECS, JOBS, Changes, Small, make_small

from atoll.numerics.generate import NOT_FINITE
from atoll.numerics.trace.opcodes import Op
from atoll.numerics.trace.rollout_operations import tokens_of
from atoll.protocol.games.game_machine import Outcome
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
    "rl",
)
UPDATE_PROOFS: Final[Mapping[str, Changes]] = {
    f"update proof of {kind}": codec for kind, codec in CODECS.items()
} | {"update proof of rl": JOBS["rl"]}
TOKEN: Final = "token of rl"
"""The trace of a token that a step samples."""
INFINITE: Final = "infinite rl"
"""A step of one micro-batch, one of whose tokens was sampled of a row that is not finite: nobody
can claim its result, but who hides it can. Where every row is finite, a wrong count of the others
leads to no claim."""
WARM: Final = frozenset({"update proof of two_bit", "update proof of sign"})
"""Of rounds that began with moments."""
TRIALS: Final = (*STEPS, *UPDATE_PROOFS, TOKEN, INFINITE)


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
    if name == TOKEN:
        return Trial.of_token(_job(JOBS["rl"]), STEP)
    if name == INFINITE:
        return _infinite()
    return Trial.of_step(_job(JOBS[name]), STEP)


def _infinite() -> Trial:
    """The last token that the step samples is one of a row that is not finite."""
    job = _job({**JOBS["rl"], **JOBS["one micro-batch"]})
    honest = Trial.of_step(job, STEP)
    tokens = honest.sources.generated.clone()
    words = tokens.view(-1, 4)
    last = int((words[:, 0] >= 0).nonzero().max())
    words[last] = tokens_of(torch.tensor(0), torch.tensor(NOT_FINITE))
    return Trial(job, honest.part, replace(honest.sources, generated=tokens))


def _job(changes: Changes) -> Small:
    """With segments of one step."""
    return make_small({**changes, "inner": {**changes.get("inner", {}), "segment": 1}})


@cache
def homes() -> dict[Op, str]:
    """The first trial of each operation."""
    found: dict[Op, str] = {}
    for name in TRIALS:
        part = trial(name).part
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


def lies(op: Op) -> Iterator[Position]:
    """Where to be wrong about an operation; of COUNT_INFINITE, where its count is not zero."""
    return positions(op, INFINITE if op == Op.COUNT_INFINITE else None)


def _spread(all_: range | list[int]) -> list[int]:
    """The first, a middle and the last."""
    return sorted({all_[0], all_[len(all_) // 2], all_[-1]})


def refute(
    table: Table, number: int, position: Position, before: Before | None = None
) -> Played | None:
    """A game about a wrong bit there; None where nobody can claim a result with it."""
    at = trial(position.trial)
    if at.outer is not None:
        return _about_a_token(table, number, position, before, is_honest=False)
    try:
        holder = liar(at, position.node, position.element)
    except NothingToLieAbout:
        return None
    claim = holder.claimed(at.claim(Address(table.holder)))
    played = play(table, number, claim, holder, Party(at, pretends=True), before)
    assert (played.game.outer or played.game).node == position.node
    return played


def survive(table: Table, number: int, position: Position, before: Before | None = None) -> Played:
    """A game in which somebody says that the honest element there is wrong."""
    at = trial(position.trial)
    if at.outer is not None:
        return _about_a_token(table, number, position, before, is_honest=True)
    holder = Party(at)
    claim = holder.claimed(at.claim(Address(table.holder)))
    rival = sham(at, position.node, position.element)
    played = play(table, number, claim, holder, rival, before)
    assert (played.game.outer or played.game).node == position.node
    return played


def _about_a_token(
    table: Table, number: int, position: Position, before: Before | None, *, is_honest: bool
) -> Played:
    """A game that goes on in the trace of a token, of which one side says something else."""
    at = trial(position.trial)
    assert at.outer is not None and at.sources.context.token is not None
    other = {position.node: flipped(at, position.node, position.element, 0)}
    node, inside = _token_place(at.outer, at.sources.context.token)
    wrong = {node: flipped(at.outer, node, 4 * inside + 2, 0)}
    if is_honest:
        holder, rival = Party(at.outer), Party(at.outer, wrong, pretends=True, nested=other)
    else:
        holder = Party(at.outer, rerun(at.outer, wrong), nested=other)
        rival = Party(at.outer, pretends=True)
    claim = holder.claimed(at.outer.claim(Address(table.holder)))
    played = play(table, number, claim, holder, rival, before)
    assert (played.game.node, played.game.token) == (position.node, at.sources.context.token)
    return played


def _token_place(outer: Trial, token: int) -> tuple[int, int]:
    """The node that a token of the step is of, and its number there."""
    nodes = outer.positions(Op.GENERATED)
    each = outer.values[nodes[0]].numel() // 4
    return nodes[token // each], token % each


def outcome(played: Played | None) -> Outcome:
    """How it ended; a step that nobody can claim is one that the holder would lose by time."""
    return Outcome.HOLDER_LOST if played is None else played.outcome
