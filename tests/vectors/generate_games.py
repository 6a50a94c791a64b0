"""Writes `games/*.json`: whole games as transactions, for forge (`GameVectors.t.sol`).

Rule of this file: `protocol.games` plays every move first, and refuses every one that is to be
refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from eth_abi.abi import encode
from tests.support.games import Job, Party, Shape, flipped, played
from tests.support.large_games import LARGE_NODES, LargeParty
from tests.support.toys import TOY

from atoll.protocol.checkpoint_commitments import StateRoots
from atoll.protocol.games.calls import calldata, evidence_of
from atoll.protocol.games.game_machine import Game, IllegalMove
from atoll.protocol.games.moves import Claim, Move, Pick, PickNode, PostUpdateProof, ProgramPart
from atoll.protocol.games.players import Knowledge, defend
from atoll.protocol.hashing import keccak256
from atoll.protocol.types import Digest

HERE = Path(__file__).parent
SMALL = Shape(weights=300, micro_batches=2, layer=40, filler=3)


def _hex(data: bytes) -> str:
    return "0x" + data.hex()


def _digest_of(game: Game) -> bytes:
    """What both languages must know alike after a move."""
    node = game.node or 0
    position = (game.step, game.level, game.index, node)
    values = (int(game.phase), int(game.outcome), *position, game.trace, game.tree)
    return keccak256(encode(["uint256"] * 6 + ["bytes32"] * 2, values))


def _broken(move: Move) -> Iterator[Move]:
    """The move with one thing of it changed, for each of its fields."""
    for each in fields(move):
        value = getattr(move, each.name)
        for changed in _changed(value):
            yield replace(move, **{each.name: changed})


def _changed(value: object) -> list[Any]:
    if isinstance(value, bool):
        return []
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, bytes):
        return [flipped(-1)(value), value + b"\0"] if len(value) != 32 else [flipped(-1)(value)]
    if isinstance(value, StateRoots):
        return [value._replace(rng_digest=Digest(bytes(32)))]
    if isinstance(value, tuple):
        shorter = [value[:-1], (*value, value[-1])] if value else [(Digest(bytes(32)),)]
        return shorter + ([(*value[:-1], _changed(value[-1])[0])] if value else [])
    return list(_broken(value))  # type: ignore[arg-type]


def _refused(game: Game, move: Move, by_holder: bool) -> list[Move]:
    """Changed moves that are illegal. Some are not: another child may be picked, for instance."""
    found = []
    for changed in _broken(move):
        try:
            game.play(changed, by_holder, game.clock.since + 1, TOY)
        except IllegalMove:
            found.append(changed)
    return found[:8]


def _another(claim: Claim) -> Claim:
    return replace(claim, window_end=claim.window_end + 1)


def _game(
    name: str,
    claim: Claim,
    sides: tuple[Knowledge, Knowledge],
    refuse: bool,
    others: Callable[[Move], list[Move]] = lambda move: [],
) -> Any:
    moves, before = [], Game.begin(claim, 1000)
    for by_holder, move, after in played(*sides, claim):
        refused = _refused(before, move, by_holder) if refuse else []
        for other in others(move):
            with suppress(IllegalMove):
                before.play(other, by_holder, before.clock.since + 1, TOY)
                raise AssertionError(f"{name}: not refused: {other}")
            refused.append(other)
        data, another = (calldata(1, each, move) for each in (claim, _another(claim)))
        calls = [calldata(1, claim, each) for each in refused]
        moves.append(
            {
                "byHolder": by_holder,
                "data": _hex(data),
                "digest": _hex(_digest_of(after)),
                "name": type(move).__name__,
                # Who shows the claim again may show no other one.
                "refused": [
                    _hex(call) for call in (*calls, *({another} - {data} if refuse else ()))
                ],
            }
        )
        before = after
    evidence = _hex(evidence_of(claim))
    return {"evidence": evidence, "moves": moves, "name": name, "outcome": int(before.outcome)}


def _at(shape: Shape, node: int, position: int, **more: object) -> tuple[Claim, Party, Party]:
    """A claim whose holder is wrong at this byte of a node, the holder, and who is right."""
    job = Job(shape)
    base = job.claim(**more)
    is_update_proof, step = base.is_update_proof, base.segment * shape.segment + 1
    last = job.header.nodes(job.played(base, step)) - 1
    wrong = {last: flipped(-1), node: flipped(position)}
    holder = Party(job, base, {0 if is_update_proof else 1: wrong})
    return holder.claimed, holder, Party(job, holder.claimed)


def _other_nodes(parts: list[ProgramPart]) -> Callable[[Move], list[Move]]:
    """A node under the templates of others, and a pick of any other row as one of a node.

    Args:
        parts: the program's templates.
    """

    def others(move: Move) -> list[Move]:
        if isinstance(move, PickNode):
            near = [part for part in parts if abs(part.index - move.template.index) == 1]
            return [replace(move, template=part) for part in near]
        if isinstance(move, Pick):
            return [PickNode(move.child, move.node, move.path, part) for part in parts]
        return []

    return others


def _templates(job: Job) -> list[ProgramPart]:
    return [job.part(1 + number) for number in range(len(job.templates))]


def _wrong_node(node: int) -> Any:
    shape = replace(SMALL, zero_moments=node != 1)
    claim, holder, challenger = _at(shape, node, -1 if node % 2 else 0)
    if node != 9:
        return _game(f"node {node}", claim, (holder, challenger), refuse=False)
    others = _other_nodes(_templates(holder.job))
    return _game(f"node {node}", claim, (holder, challenger), refuse=True, others=others)


def _update_proof() -> Any:
    claim, holder, challenger = _at(SMALL, 2, 700, is_update_proof=True)

    def of_the_right_update(move: Move) -> list[Move]:
        """The trace a wrong holder would defend itself with, if it need not be the update's."""
        return (
            [defend(Game.begin(claim, 1000), challenger)]
            if isinstance(move, PostUpdateProof)
            else []
        )

    return _game(
        "update_proof", claim, (holder, challenger), refuse=True, others=of_the_right_update
    )


def _early_update_proof() -> Any:
    """Of a seat that ended its round after one segment."""
    claim, holder, challenger = _at(SMALL, 2, 700, is_update_proof=True, segment=0)
    return _game(
        "the update proof of a seat that ended early", claim, (holder, challenger), refuse=False
    )


def _fragments(name: str, overlap: int, node: int, **more: object) -> Any:
    """A job of two fragments, of which a game has to take the templates of the right part."""
    shape = replace(SMALL, fragments=2, overlap=overlap)
    claim, holder, challenger = _at(shape, node, -1, **more)
    job = holder.job

    def of_other_parts(move: Move) -> list[Move]:
        given = getattr(move, "template", None)
        if given is None:
            return []
        own = job.templates[given.index - 1]
        same = (i for i, t in enumerate(job.templates) if replace(t, part=own.part) == own)
        others = [job.part(1 + i) for i in same if 1 + i != given.index]
        return [replace(move, template=other) for other in others]  # type: ignore[call-arg]

    return _game(name, claim, (holder, challenger), refuse=False, others=of_other_parts)


def _right_holder() -> Any:
    _, wrong, right = _at(SMALL, 9, 20)
    return _game("a right holder", right.claimed, (right, wrong), refuse=False)


def _large() -> Any:
    large = LargeParty((LARGE_NODES // 2 + 12345, (1 << 18) + 777))
    others = _other_nodes([large.template(1)])
    return _game("large", large.claim(), (large, LargeParty()), refuse=False, others=others)


LAST = Job(SMALL).header.step_nodes - 1
NODES = (*range(11), 15, LAST - 2, LAST - 1, LAST)  # every source and every operation
FILES: dict[str, Callable[[], Any]] = {
    **{f"games/{number}.json": partial(_wrong_node, node) for number, node in enumerate(NODES)},
    f"games/{len(NODES)}.json": _update_proof,
    f"games/{len(NODES) + 1}.json": _right_holder,
    f"games/{len(NODES) + 2}.json": _large,
    f"games/{len(NODES) + 3}.json": _early_update_proof,
    f"games/{len(NODES) + 4}.json": partial(_fragments, "the step that mixes in", 4, 9),
    f"games/{len(NODES) + 5}.json": partial(_fragments, "a step beside it", 3, 9),
    f"games/{len(NODES) + 6}.json": partial(_fragments, "a step of another segment", 1, 9),
    f"games/{len(NODES) + 7}.json": partial(
        _fragments, "a fragment's link", 4, 2, is_update_proof=True
    ),
    f"games/{len(NODES) + 8}.json": partial(_fragments, "round 0", 4, 9, round=0),
}


def render(build: Callable[[], Any]) -> str:
    """The file's text."""
    return json.dumps(build(), indent=1, sort_keys=True) + "\n"


def main() -> None:
    (HERE / "games").mkdir(exist_ok=True)
    for name, build in FILES.items():
        (HERE / name).write_text(render(build))


if __name__ == "__main__":
    main()
