"""Fragments: what is sent in turn, and what a seat keeps of its own."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import torch
from tests.support.manifests import KINDS, codec_spec
from tests.support.merging import all_standing, bearing_none
from tests.unit.train.factories import DATA_SEED, DITHER, Job, with_method

from atoll.aggregation.merge_round import merge
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import SeatLayout, seat_layout
from atoll.numerics.step import mix_in
from atoll.numerics.update_proof import close_round

A, B = "model.layers.0.w", "model.layers.1.w"
SHAPES = {A: (1,), B: (1,)}
COARSE = dict.fromkeys(KINDS, -2)
HALVES = codec_spec(
    exponents=COARSE, moment_exponents=COARSE, min_exponent=-2, max_exponent=-2, fragments=2
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
    Round 1 sends b: they begin with (−3/2, −1) and (−3/2, −1/2), the a merged and the b their own,
    and end with (−5/2, −2) and (−7/2, −1); b = −3/2.
    Round 2 sends a: they begin with (−5/2, −3/2) and (−7/2, −3/2), end with a = −7/2 and −11/2;
    a = −9/2.
    """
    robust = job.manifest.robust.model_copy(update={"rule": "mean", "f": 0})
    manifest = job.manifest.model_copy(update={"codec": HALVES, "robust": robust})
    model = GlobalState(0, {A: torch.zeros(1), B: torch.zeros(1)}, {}, {A: -2, B: -2})
    carried_state: list[SeatState | None] = [None, None]
    openings, merged = [], []
    for round in range(3):
        updates = {}
        for seat, by in enumerate((("-1", "-1"), ("-2", "-1/2"))):
            initial_state = SeatState.initial(model, SeatLayout(SHAPES, {}, {}, {}))
            state = (
                mix_in(carried_state[seat] or initial_state, model, HALVES)
                if round
                else initial_state
            )
            openings.append(values(state.params))
            updates[seat], carried_state[seat] = close_round(
                manifest, model, moved(state, by), DITHER
            )
        record = all_standing(updates, manifest)
        model = merge(
            model, updates, record=record, data_seed=DATA_SEED, manifest=manifest
        ).global_state
        merged.append(values(model.params))
    assert openings == ["0 0", "0 0", "-3/2 -1", "-3/2 -1/2", "-5/2 -3/2", "-7/2 -3/2"]
    assert merged == ["-3/2 0", "-3/2 -3/2", "-9/2 -3/2"]


def test_layers_take_turns_and_the_rest_goes_with_the_first() -> None:
    turns = {name: HALVES.fragment_of(name) for name in (A, B, "model.layers.12.mlp.x")}
    assert turns == {A: 0, B: 1, "model.layers.12.mlp.x": 0}
    assert HALVES.fragment_of("model.embed_tokens.weight") == 0


def test_a_round_merges_its_fragment_and_nothing_else(job: Job) -> None:
    streaming = job.of(bearing_none(with_method(job.manifest, "streaming")))
    manifest, first = streaming.manifest, replace(streaming.model, round=1)
    initial_state = SeatState.initial(first, seat_layout(manifest))
    last = replace(
        initial_state, params={name: p + 0.01 for name, p in initial_state.params.items()}
    )
    update, _ = close_round(manifest, first, last, DITHER)
    record = all_standing([2], manifest)
    second = merge(
        first, {2: update}, record=record, data_seed=DATA_SEED, manifest=manifest
    ).global_state
    for name, p in first.params.items():
        is_sent = manifest.codec.is_sent(name, 1)
        assert torch.equal(p, second.params[name]) != is_sent
        momentum = first.outer["momentum"][name]
        assert torch.equal(momentum, second.outer["momentum"][name]) != is_sent
