"""Error feedback, worked by hand: what an update lacks is carried on and sent later."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from tests.support.manifests import KINDS, codec_spec
from tests.support.merging import all_standing
from tests.unit.train.factories import DATA_SEED, DITHER, Job

from atoll.aggregation.merge_round import merge
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.update_proof import close_round

COARSE = dict.fromkeys(KINDS, -2)
SPEC = codec_spec(
    kind="two_bit",
    exponents=COARSE,
    moment_exponents=COARSE,
    min_exponent=-4,
    feedback="0.5",
)
SIGNS = SPEC.model_copy(update={"kind": "sign"})


def test_golden_feedback(job: Job) -> None:
    """Signs on a grid of 1/4, decay 1/2, one parameter pair that moves by (−1, 1/8) a round.

    A value is sent as ±1 step; steps double while any of the two is beyond 2 of them.
    Round 0: wanted (1, −1/8), steps of 1/2, sent (1/2, −1/2), left (1/2, 3/8).
    Round 1: wanted (1 + 1/4, −1/8 + 3/16), steps of 1, sent (1, 1), left (1/4, −15/16).
    Round 2: wanted (1 + 1/8, −1/8 − 15/32), steps of 1, sent (1, −1), left (1/8, 13/32).
    """
    manifest = job.manifest.model_copy(update={"codec": SIGNS})
    model = GlobalState(0, {"w": torch.zeros(2)}, {}, {"w": -2})
    residual = torch.zeros(2)
    found = []
    for _ in range(3):
        last = SeatState({"w": torch.tensor([-1.0, 0.125])}, {}, {}, {"w": residual}, 1, 1)
        _, carried_state = close_round(manifest, model, last, DITHER)
        residual = carried_state.residual["w"]
        found.append([Fraction(value) for value in residual.tolist()])
    assert found == [
        [Fraction(1, 2), Fraction(3, 8)],
        [Fraction(1, 4), Fraction(-15, 16)],
        [Fraction(1, 8), Fraction(13, 32)],
    ]


def test_golden_sparseloco(job: Job) -> None:
    """Of three numbers the largest is sent, on a grid of 1/4, with all feedback; outer SGD.

    Round 0: seat 0 wants (1, 1/4, 0), sends 3/4 for the first and is left with (1/4, 1/4, 0);
    seat 1 wants (1/8, −1, 0), sends −3/4 for the second and is left with (1/8, −1/4, 0). Each
    coordinate has one contributor, so nothing is halved: x = (−3/4, 3/4, 0).
    Round 1, in which nobody moves: seat 0 sends 1/4 for the first, the earlier of equals; seat 1
    −1/4 for the second. x = (−1, 1, 0).
    """
    changes = {"kind": "sparse", "feedback": "1", "min_exponent": -2, "max_exponent": -2}
    spec = SPEC.model_copy(update=changes)
    robust = job.manifest.robust.model_copy(update={"rule": "contributor_mean", "f": 0})
    manifest = job.manifest.model_copy(update={"codec": spec, "robust": robust})
    model = GlobalState(0, {"w": torch.zeros(3)}, {}, {"w": -2})
    residual = {seat: {"w": torch.zeros(3)} for seat in (0, 1)}
    wanted = {0: torch.tensor([1.0, 0.25, 0.0]), 1: torch.tensor([0.125, -1.0, 0.0])}
    found = []
    for round in range(2):
        updates = {}
        for seat, move in wanted.items():
            params = {"w": model.params["w"] - move * (round == 0)}
            last = SeatState(params, {}, {}, residual[seat], 1, 1)
            updates[seat], carried_state = close_round(manifest, model, last, DITHER)
            residual[seat] = carried_state.residual
        record = all_standing(updates, manifest)
        model = merge(
            model, updates, record=record, data_seed=DATA_SEED, manifest=manifest
        ).global_state
        found.append(model.params["w"].tolist())
    assert found == [[-0.75, 0.75, 0.0], [-1.0, 1.0, 0.0]]


def test_golden_demo(job: Job) -> None:
    """Of 64 equal numbers the transform has one coefficient; the outer step is the sign.

    Every value is 1/4, a step: the first coefficient is 8 steps. Of 64 coefficients four are kept,
    the other three 0; none may exceed four of their steps, so steps are doubled, and 8 is sent as
    3 · 2. Two bits have no zero: the others are sent as 1 · 2. Back in coordinates that is 6/8 of a
    step and 2·√(2/64) (cos t + cos 2t + cos 3t), which is −0.47 at least: positive, so every number
    moves by −1/16.
    """
    changes = {"kind": "dct", "feedback": "1", "min_exponent": -2, "max_exponent": -2}
    spec = SPEC.model_copy(update=changes)
    robust = job.manifest.robust.model_copy(update={"rule": "contributor_mean", "f": 0})
    fields = {"kind": "sign", "lr": "0.0625"}
    outer = job.manifest.outer.model_copy(update=fields)
    manifest = job.manifest.model_copy(update={"codec": spec, "robust": robust, "outer": outer})
    model = GlobalState(0, {"w": torch.zeros(64)}, {}, {"w": -2})
    last = SeatState({"w": torch.full((64,), -0.25)}, {}, {}, {"w": torch.zeros(64)}, 1, 1)
    update, carried_state = close_round(manifest, model, last, DITHER)
    angles = torch.arange(1, 128, 2) * math.pi / 128
    cosines = sum(torch.cos(angles * k) for k in (1, 2, 3))
    residual = 0.25 - 0.25 * (6 / 8 + 2 * math.sqrt(2 / 64) * cosines)
    torch.testing.assert_close(carried_state.residual["w"], residual, atol=1e-3, rtol=0)
    record = all_standing([0, 1], manifest)
    after = merge(
        model, {0: update, 1: update}, record=record, data_seed=DATA_SEED, manifest=manifest
    ).global_state
    assert after.params["w"].unique().tolist() == [-0.0625]
