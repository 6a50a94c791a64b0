"""Fragments: what is sent in turn, what a seat keeps of its own, and that it can be checked."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from tests.merging import all_standing
from tests.unit.train.factories import DATA_SEED, DITHER, Job
from tests.unit.train.test_methods import Run, manifest_for

from atoll.bits.layout import SeatLayout
from atoll.bits.link import close_round
from atoll.bits.state import GlobalState, SeatState
from atoll.errors import MalformedTrace
from atoll.law.manifest import CodecSpec, TensorExponents
from atoll.law.words import ZERO_DIGEST
from atoll.merge.round import merge
from atoll.train.round import read_seat_state, train_round

A, B = "model.layers.0.w", "model.layers.1.w"
SHAPES = {A: (1,), B: (1,)}
HALVES = CodecSpec(
    kind="grid8",
    exponents=TensorExponents(embedding=-2, matrix=-2, vector=-2),
    moment_exponents=TensorExponents(embedding=-2, matrix=-2, vector=-2),
    min_exponent=-2,
    max_exponent=-2,
    feedback="0",
    fragments=2,
    overlap=0,
    mixing="0",
)


def moved(state: SeatState, by: tuple[str, str]) -> SeatState:
    a, b = (float(Fraction(text)) for text in by)
    return replace(state, params={A: state.params[A] + a, B: state.params[B] + b})


def values(params: dict[str, torch.Tensor]) -> str:
    return f"{Fraction(params[A].item())} {Fraction(params[B].item())}"


def test_golden_streaming(job: Job) -> None:
    """Two layers of one number, (a, b), sent in turn; outer SGD at rate 1, a plain mean of two.

    Every round seat 0 moves by (−1, −1) and seat 1 by (−2, −1/2).
    Round 0 sends a: both open with (0, 0), end with (−1, −1) and (−2, −1/2); a = −3/2.
    Round 1 sends b: they open with (−3/2, −1) and (−3/2, −1/2), the a merged and the b their own,
    and end with (−5/2, −2) and (−7/2, −1); b = −3/2.
    Round 2 sends a: they open with (−5/2, −3/2) and (−7/2, −3/2), end with a = −7/2 and −11/2;
    a = −9/2.
    """
    robust = job.manifest.robust.model_copy(update={"rule": "mean"})
    manifest = job.manifest.model_copy(update={"codec": HALVES, "robust": robust})
    model = GlobalState(0, {A: torch.zeros(1), B: torch.zeros(1)}, {}, {A: -2, B: -2})
    carried: list[SeatState | None] = [None, None]
    openings, merged = [], []
    for round in range(3):
        local = frozenset(name for name in SHAPES if HALVES.is_local(name, round))
        layout = SeatLayout(SHAPES, {}, {}, {}, local)
        updates = {}
        for seat, by in enumerate((("-1", "-1"), ("-2", "-1/2"))):
            state = SeatState.opening(model, carried[seat], layout)
            openings.append(values(state.params))
            updates[seat], carried[seat] = close_round(manifest, model, moved(state, by), DITHER)
        facts = all_standing(updates, manifest)
        model = merge(
            model, updates, facts=facts, data_seed=DATA_SEED, manifest=manifest
        ).global_state
        merged.append(values(model.params))
    assert openings == ["0 0", "0 0", "-3/2 -1", "-3/2 -1/2", "-5/2 -3/2", "-7/2 -3/2"]
    assert merged == ["-3/2 0", "-3/2 -3/2", "-9/2 -3/2"]


@pytest.fixture
def streaming(job: Job) -> Run:
    """A job in fragments that are waited for, after its first round."""
    codec = {"overlap": 0, "mixing": "0"}
    run = Run(job.of(manifest_for(job, "streaming")).with_codec(**codec))
    run.one_round()
    return run


def test_layers_take_turns_and_the_rest_goes_with_the_first() -> None:
    turns = {name: HALVES.fragment_of(name) for name in (A, B, "model.layers.12.mlp.x")}
    assert turns == {A: 0, B: 1, "model.layers.12.mlp.x": 0}
    assert HALVES.fragment_of("model.embed_tokens.weight") == 0
    assert not any(HALVES.is_local(name, 0) for name in SHAPES)


def test_own_parameters_that_are_not_those_carried_are_refused(streaming: Run) -> None:
    """The root of the seat's own part is the one accepted with its last round."""
    job, root = streaming.seat(0), streaming.roots[0]
    carried = streaming.carried[0]
    assert carried is not None
    state = read_seat_state(job.manifest, carried, job.store, round=1)
    local = sorted(state.local)[0]
    poisoned = replace(state, params=state.params | {local: state.params[local] + 1})
    cid = job.store.add_bytes(poisoned.to_bytes()).to_bytes()
    trained = train_round(replace(job.task, opening_optimiser=cid), job.store)
    with pytest.raises(MalformedTrace, match="optimiser"):
        trained.document.check_opening(*job.opening_roots(root))


def test_merged_parameters_that_are_not_the_global_ones_are_refused(streaming: Run) -> None:
    job, root = streaming.seat(0), streaming.roots[0]
    name = next(n for n in job.model.params if not job.manifest.codec.is_local(n, 1))
    params = job.model.params | {name: job.model.params[name] + 1}
    other = job.store.add_bytes(replace(job.model, params=params).to_bytes()).to_bytes()
    trained = train_round(replace(job.task, global_state_cid=other), job.store)
    with pytest.raises(MalformedTrace, match="global model"):
        trained.document.check_opening(*job.opening_roots(root))


def test_a_seat_that_missed_a_round_opens_with_the_global_model(streaming: Run) -> None:
    """What it carried from the round before is stale: only a reset opens a round."""
    carried, root = streaming.carried[0], streaming.roots[0]
    streaming.one_round()
    streaming.carried[0], streaming.roots[0] = carried, root
    job = streaming.seat(0)
    stale = train_round(job.task, job.store)
    with pytest.raises(MalformedTrace):
        stale.document.check_opening(*job.opening_roots(root))
    fresh = train_round(replace(job.task, opening_optimiser=None), job.store)
    fresh.document.check_opening(*job.opening_roots(ZERO_DIGEST))
    with pytest.raises(MalformedTrace):
        fresh.document.check_opening(*job.opening_roots(root))
    opening = read_seat_state(job.manifest, fresh.document.states[0], job.store, round=2)
    assert all(torch.equal(p, job.model.params[n]) for n, p in opening.params.items())


def test_a_round_merges_its_fragment_and_nothing_else(streaming: Run) -> None:
    first = streaming.job.model
    streaming.one_round()
    second = streaming.job.model
    codec = streaming.job.manifest.codec
    for name, p in first.params.items():
        same = torch.equal(p, second.params[name])
        assert same != codec.is_sent(name, 1)
        momentum = first.outer["momentum"][name]
        assert torch.equal(momentum, second.outer["momentum"][name]) != codec.is_sent(name, 1)
