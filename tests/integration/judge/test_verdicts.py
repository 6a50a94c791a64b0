"""What a holder may try, and numbers at their borders: each is decided rightly, on a chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from tests.judge.parties import Party, Trial, flipped, liar, node_with, run_of, sham
from tests.judge.playing import Turn, play
from tests.judge.table import Refused, Table, table
from tests.judge.trials import trial
from torch import Tensor

from atoll.numerics.trace.imports import ImportContext
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.games.moves import Move, PostLeaf, PostTrace, Prove
from atoll.protocol.games.players import defend
from atoll.protocol.hashing import keccak256
from atoll.protocol.program import TraceTemplate
from atoll.protocol.types import Address, SeatIndex

NUMBERS = iter(range(1, 1 << 30))
"""Of games: each is about a set of its own."""


@pytest.fixture(scope="module")
def judges() -> Iterator[Table]:
    with table() as made:
        yield made


def verdict(judges: Table, at: Trial, holder: Party, rival: Party) -> tuple[Outcome, TraceTemplate]:
    """How a game about the trial ends, and the template of the node that it ended at."""
    claim = holder.claimed(at.claim(Address(judges.holder)))
    played = play(judges, next(NUMBERS), claim, holder, rival)
    return played.outcome, TraceTemplate.from_bytes(played.game.template)


def middle(at: Trial, op: Op) -> int:
    nodes = at.positions(op)
    return nodes[len(nodes) // 2]


# ---- traces of something else -----------------------------------------------------------------


def test_a_lying_trace_with_the_right_closing_state_loses(judges: Table) -> None:
    at = trial("plain")
    node = middle(at, Op.SWIGLU)
    lying = Party(at, {node: flipped(at, node, 5, 22)})
    assert lying.claimed(at.claim(Address(judges.holder))) == Party(at).claimed(
        at.claim(Address(judges.holder))
    )
    outcome, template = verdict(judges, at, lying, Party(at, pretends=True))
    assert (outcome, template.op) == (Outcome.HOLDER_LOST, Op.SWIGLU)


def with_context(at: Trial, change: Callable[[ImportContext], ImportContext]) -> Trial:
    context = change(at.sources.context)
    return replace(at, sources=replace(at.sources, context=context))


CONTEXTS: dict[str, tuple[Callable[[ImportContext], ImportContext], Op]] = {
    "step": (lambda c: replace(c, step=c.step + 1, global_step=c.global_step + 1), Op.RATE),
    "seat": (lambda c: replace(c, seat=SeatIndex(c.seat + 1)), Op.TOKENS),
    "slot": (lambda c: replace(c, round=c.round + 1, global_step=c.global_step + 4), Op.RATE),
    "data seed": (lambda c: replace(c, data_seed=keccak256(b"another")), Op.TOKENS),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_right_trace_of_another_position_falls(judges: Table, name: str) -> None:
    change, first = CONTEXTS[name]
    at = trial("plain")
    outcome, template = verdict(judges, at, Party(with_context(at, change)), Party(at))
    assert (outcome, template.op) == (Outcome.HOLDER_LOST, first)


def test_a_right_trace_from_a_wrong_opening_loses(judges: Table) -> None:
    at = trial("plain")
    state = at.sources.state
    moved = replace(state, params={name: p * 1.25 for name, p in state.params.items()})
    other = replace(at, sources=replace(at.sources, state=moved))
    outcome, template = verdict(judges, at, Party(other), Party(at))
    assert (outcome, template.op) == (Outcome.HOLDER_LOST, Op.STATE)


@pytest.mark.parametrize(
    ("name", "coded", "left"),
    [
        ("fed back", Op.CODES, Op.RESIDUAL),
        ("largest fed back", Op.CODES, Op.RESIDUAL),
        ("cosines fed back", Op.DCT, Op.RESIDUAL_FINE),
    ],
)
def test_a_step_that_is_not_finite_has_no_state_whatever_its_codes_are(
    judges: Table, name: str, coded: Op, left: Op
) -> None:
    """A holder could have those of the contract, were an honest trace's others."""
    first = trial(name)
    params = {each: p * 2.0**60 for each, p in first.sources.state.params.items()}
    state = replace(first.sources.state, params=params)
    at = replace(first, sources=first.job.sources(state, first.sources.context.step))
    codes, (result,) = middle(at, coded), at.positions(Op.RESULT)
    assert at.values[middle(at, left)].isnan().all()
    finite = torch.zeros_like(at.values[result])
    finite[0] = 1  # of a digest
    lying = Party(at, {codes: torch.zeros_like(at.values[codes]), result: finite})
    outcome, template = verdict(judges, at, lying, Party(at))
    assert (outcome, template.op) == (Outcome.HOLDER_LOST, Op.RESULT)


def test_another_trace_does_not_hang_on_the_opened_result(judges: Table) -> None:
    at = trial("plain")
    other = Party(with_context(at, CONTEXTS["step"][0]))
    tries = []

    def posts_another(turn: Turn) -> None:
        if isinstance(turn.move, PostTrace):
            tries.append(turn.move)
            with pytest.raises(Refused, match="reverted"):
                turn.tried(judges, defend(turn.game, other))

    node = middle(at, Op.ADD)
    claim = Party(at).claimed(at.claim(Address(judges.holder)))
    played = play(judges, next(NUMBERS), claim, Party(at), sham(at, node, 0), posts_another)
    assert len(tries) == 1
    assert played.outcome is Outcome.CHALLENGER_LOST


# ---- an update's sections ----------------------------------------------------------------------


SECTIONS = [
    Op.EXPONENTS, Op.STATE, Op.SCALED, Op.POWER_GRID, Op.SUM_GRID, Op.EXACT_SUM, Op.UPDATE_HEADER,
]  # fmt: skip
CODED = {"update proof of grid8": Op.GRID8, "update proof of two_bit": Op.CODES}
"""A cold round's link and a warm one's."""


@pytest.mark.parametrize(
    ("name", "op"), [(name, op) for name in CODED for op in (*SECTIONS, CODED[name])]
)
def test_moments_of_cold_and_warm_rounds_are_decided_rightly(
    judges: Table, name: str, op: Op
) -> None:
    """At the last node of each operation, which is of the moments' sections."""
    at = trial(name)
    node = at.positions(op)[-1]
    last = at.values[node].numel() - 1
    outcome, template = verdict(judges, at, liar(at, node, last), Party(at, pretends=True))
    assert (outcome, template.op) == (Outcome.HOLDER_LOST, op)
    assert verdict(judges, at, Party(at), sham(at, node, 0))[0] is Outcome.CHALLENGER_LOST


@pytest.mark.parametrize("place", ["first", "last"])
def test_what_fills_a_section_up_is_zero(judges: Table, place: str) -> None:
    at = trial("update proof of two_bit")
    node = at.positions(Op.UPDATE)[0]
    words = at.job.program.templates[-1].words
    filled = next(i for i, zeros in enumerate(words) if i % 2 and zeros)
    end = sum(words[: filled + 1])
    element = end - 1 if place == "last" else end - words[filled]
    assert int(at.values[node][element]) == 0
    outcome, _ = verdict(judges, at, liar(at, node, element), Party(at, pretends=True))
    assert outcome is Outcome.HOLDER_LOST
    assert verdict(judges, at, Party(at), sham(at, node, element))[0] is Outcome.CHALLENGER_LOST


def test_exponents_of_another_round_lose(judges: Table) -> None:
    at = trial("update proof of two_bit")
    moved = bytearray(at.sources.exponents)
    moved[2 * len(at.job.initial_state.params) + 1] ^= 1
    other = replace(at, sources=replace(at.sources, exponents=bytes(moved)))
    outcome, template = verdict(judges, at, Party(other), Party(at))
    assert (outcome, template.op) == (Outcome.HOLDER_LOST, Op.EXPONENTS)


# ---- leaves and elements ---------------------------------------------------------------------


def test_a_leaf_with_padding_is_refused_and_an_element_beyond_it_too(judges: Table) -> None:
    at = trial("wide")
    node = next(n for n in at.positions(Op.SWIGLU) if at.values[n].nbytes % 1024)
    last = at.values[node].numel() - 1
    lying = Party(at, {node: flipped(at, node, last, 0)})
    claim = lying.claimed(at.claim(Address(judges.holder)))
    tries: list[Move] = []

    def meddles(turn: Turn) -> None:
        """Tries what is nearly the move, first."""
        if isinstance(turn.move, PostLeaf):
            tries.append(PostLeaf(turn.move.leaf.ljust(1024, b"\0")))
        elif isinstance(turn.move, Prove):
            for element in (last + 1, 1 << 200):
                tries.append(Prove(replace(turn.move.proof, element=element)))
        for attempt in tries[-2:] if isinstance(turn.move, PostLeaf | Prove) else ():
            with pytest.raises(Refused, match="reverted"):
                turn.tried(judges, attempt)

    rival = Party(at, pretends=True)
    played = play(judges, next(NUMBERS), claim, lying, rival, meddles)
    assert len(tries) == 3
    assert played.outcome is Outcome.HOLDER_LOST


def test_a_key_of_no_token_is_what_it_must_be(judges: Table) -> None:
    at = trial("plain")
    node = at.positions(Op.SORT_KEYS)[0]
    keys = at.values[node]
    assert int(keys[-1]) == 2**63 - 1
    lying = Party(at, {node: flipped(at, node, keys.numel() - 1, 0)})
    assert verdict(judges, at, lying, Party(at, pretends=True))[0] is Outcome.HOLDER_LOST


def test_an_id_beyond_the_vocabulary_loses_where_it_is_read(judges: Table) -> None:
    at = trial("plain")
    node = at.positions(Op.TOKENS)[0]
    lying = Party(at, {node: flipped(at, node, 0, 20)})
    outcome, template = verdict(judges, at, lying, Party(at, pretends=True))
    assert (outcome, template.op) == (Outcome.HOLDER_LOST, Op.TOKENS)


def test_who_reads_an_id_beyond_the_vocabulary_can_prove_nothing(judges: Table) -> None:
    """Both traces have the id: the node that reads the table there cannot be disputed."""
    at = trial("plain")
    node = middle(at, Op.EMBED)
    index, iteration = at.job.program.at(at.part, node)
    read = at.job.program.templates[index].inputs[0]
    ids = read.node + iteration * read.stride
    both = {ids: node_with(at, ids, [1 << 20])}
    holder = Party(at, both)
    rival = Party(at, both | {node: flipped(at, node, 0, 0)}, pretends=True)
    claim = holder.claimed(at.claim(Address(judges.holder)))
    with judges.undone(), pytest.raises((ValueError, Refused)):
        play(judges, next(NUMBERS), claim, holder, rival)


# ---- numbers at their borders ----------------------------------------------------------------


@dataclass(frozen=True)
class Border:
    """Numbers at the first elements of a node's inputs, and what then its first elements are.

    Attributes:
        inputs: by their places among the inputs; bits of binary32 where they are integers.
        expected: likewise.
    """

    op: Op
    inputs: dict[int, Sequence[int | float]]
    expected: Sequence[int | float]
    trial: str = "plain"


NAN, INF, ZERO = 0x7FC00000, float("inf"), 0x80000000
TINY = float(np.float32(2.0**-100))
BELOW = float(np.nextafter(np.float32(TINY), np.float32(0)))
BORDERS = {
    "−0": Border(Op.ADD, {0: [ZERO, 0.0, 1.0], 1: [ZERO, ZERO, -1.0]}, [ZERO, 0.0, 0.0]),
    "∞": Border(Op.ADD, {0: [INF, INF, 3.4e38], 1: [-INF, 1.0, 3.4e38]}, [NAN, INF, INF]),
    "NaN": Border(Op.ADD, {0: [0x7F800001, 0xFFC00123], 1: [1.0, 2.0]}, [NAN, NAN]),
    "∞ · 0": Border(Op.MUL, {0: [INF, -1.0], 1: [0.0, 0.0]}, [NAN, ZERO]),
    "subnormal": Border(Op.MUL, {0: [1, 3, 2.0**-126], 1: [0.5, 0.5, 0.5]}, [0, 2, 2.0**-127]),
    "halves": Border(
        Op.QUANTISE_F32,
        {0: [0.5, 1.5, 2.5, -0.5], 1: [1.0]},
        [0.0, 2.0, 2.0, 0.0],
    ),
    "flush": Border(
        Op.MOMENTUM,
        {0: [0.0] * 4, 1: [TINY, BELOW, -BELOW, -TINY]},
        [TINY, 0.0, 0.0, -TINY],
        "sgd with momentum",
    ),
    "exp": Border(
        Op.SOFT_WEIGHT,
        {0: [-86.0, -86.00001, 88.72, 88.73, 0.0, -INF, NAN], 1: [0.0]},
        [0x01739362, 0.0, 0x7F7F4648, INF, 1.0, 0.0, NAN],
    ),
}


@pytest.mark.parametrize("name", BORDERS)
def test_numbers_at_their_borders_are_decided_rightly(judges: Table, name: str) -> None:
    border = BORDERS[name]
    at = trial(border.trial)
    node = middle(at, border.op)
    index, iteration = at.job.program.at(at.part, node)
    reads = at.job.program.templates[index].inputs
    both: dict[int, Tensor] = {}
    for place, numbers in border.inputs.items():
        read = reads[place].node + iteration * reads[place].stride
        both[read] = node_with(at, read, numbers)
    right = run_of(at, node, both)
    expected = torch.tensor([_bits(x) for x in border.expected], dtype=torch.int64)
    words = right.view(torch.int32)[: len(expected)].to(torch.int64) & 0xFFFFFFFF
    assert torch.equal(words, expected)
    count = len(border.inputs[0])
    for element in range(count):
        wrong = right.clone()
        wrong.view(torch.int32)[element] ^= 1 << (31 if element % 2 else 0)
        lying, honest = Party(at, both | {node: wrong}), Party(at, both | {node: right})
        accusing = [Party(at, both | {node: t}, pretends=True) for t in (right, wrong)]
        assert verdict(judges, at, lying, accusing[0])[0] is Outcome.HOLDER_LOST
        assert verdict(judges, at, honest, accusing[1])[0] is Outcome.CHALLENGER_LOST


def _bits(x: int | float) -> int:
    return x if isinstance(x, int) else int(np.float32(x).view(np.uint32))
