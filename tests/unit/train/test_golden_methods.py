"""MuLoCo and lo-fi from inner step to merge, on gradients that are given, worked by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from tests.support.batches import step_on
from tests.support.merging import all_standing, bearing_none
from tests.unit.train.factories import Job, with_method

from atoll.aggregation.merge_round import merge
from atoll.job.methods import METHODS
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.gradients import BatchGradients
from atoll.numerics.schedule import Recipe
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.update_proof import close_round
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Digest

SEED = Digest((287).to_bytes(32, "big"))


@pytest.fixture
def gradients(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, torch.Tensor]]:
    """What the inner steps take for the loss's gradients; to be filled by the test."""
    given: dict[str, torch.Tensor] = {}
    monkeypatch.setattr(
        "atoll.numerics.step.batch_gradients", lambda *_: BatchGradients((0.0,), dict(given))
    )
    yield given


def with_inner(manifest: Manifest, **changes: object) -> Manifest:
    plain = {"weight_decay": "0", "clip": "100", "warmup_steps": 0} | changes
    return manifest.model_copy(update={"inner": manifest.inner.model_copy(update=plain)})


def trained(state: SeatState, manifest: Manifest) -> SeatState:
    """After a round's inner steps."""
    no_tokens = torch.zeros(1, 2, dtype=torch.int64)
    for step in range(manifest.inner.steps):
        state = step_on(state, no_tokens, step, Recipe.of(manifest)).state
    return state


def test_golden_muloco(job: Job, gradients: dict[str, torch.Tensor]) -> None:
    """One matrix W, gradient diag(3, 4), a step a round at rate 1; grid of 1/4, feedback 1.

    Muon: the gradient over its norm is diag(0.6, 0.8), and five iterations bring both to between
    0.68 and 1.14 (to 0.7229 and 1.1192). Times 0.2·√2 that is a move d of 0.19 to 0.33.
    Dither: under this data seed the noise of seat 0 begins 16 a9 bc 62, that of seat 1 19 9b 79 59;
    below 40 that is -1 step, from 40 to bf it is 0: -1 for the first value, 0 for the others.
    Round 0: d is below 2 steps. The first is below 1, less 1 sent as -1, plus 1 read as 0; the last
    is sent as 1/4, and so are the zeros. Left are d, d − 1/4, and −1/4 of the zeros.
    Outer rate 1/2, momentum 1/2: m = g = 0 or 1/4, x = −1/2 · (m/2 + g) = 0 or −3/16.
    Round 1: of the first wanted 2d, 1.6 steps, less 1 sent as 1, plus 1 read as 1/2; m = 1/2 and
    x = −1/2 · (1/4 + 1/2) = −3/8. Of the last wanted 2d − 1/4, below 2 steps, sent as 1/4;
    m = 1/8 + 1/4, x = −3/16 − 1/2 · (3/16 + 1/4) = −13/32. Elsewhere −1/4, sent as that;
    m = 1/8 − 1/4, x = −3/16 + 1/2 · (1/16 + 1/4) = −1/32.
    """
    gradients["w"] = torch.diag(torch.tensor([3.0, 4.0]))
    manifest = bearing_none(with_method(job.manifest, "muloco"))
    grid = dict.fromkeys(("min_exponent", "max_exponent"), -2) | {"feedback": "1"}
    outer = manifest.outer.model_copy(update={"lr": "0.5", "momentum": "0.5"})
    codec = manifest.codec.model_copy(update=grid)
    manifest = manifest.model_copy(update={"outer": outer, "codec": codec})
    manifest = with_inner(manifest, lr="1", steps=1, segment=1)
    zero = {"w": torch.zeros(2, 2)}
    slots = {"momentum": {"w": torch.zeros(2, 2, dtype=torch.int64)}}
    model, seat, found = GlobalState(0, zero, slots, {"w": -2}), None, []
    for _ in range(2):
        initial_state = SeatState(zero, zero, {}, zero, 0, 0)
        if seat is not None:
            initial_state = replace(seat, params=model.params, feedback=seat.residual)
        last = trained(initial_state, manifest)
        moved = (model.params["w"] - last.params["w"]).diagonal() / (0.2 * 2**0.5)
        torch.testing.assert_close(moved, torch.tensor([0.7229, 1.1192]), atol=1e-3, rtol=0)
        updates = {}
        for place in (0, 1):
            dither = DitherKey(SEED, place)
            updates[place], seat = close_round(manifest, model, last, dither)
        record = all_standing(updates, manifest)
        model = merge(model, updates, record=record, data_seed=SEED, manifest=manifest).global_state
        found.append(model.params["w"].flatten().tolist())
    assert found == [[0.0, *[-3 / 16] * 3], [-3 / 8, -1 / 32, -1 / 32, -13 / 32]]


def test_golden_lo_fi(job: Job, gradients: dict[str, torch.Tensor]) -> None:
    """Seats that meet once, at the end: the mean of where four steps led each of two.

    SGD inside, rate 1/4: seat 0 moves by (−1/128, 1/256) a step to (−1/32, 1/64), seat 1 by
    (0, −1/256) to (0, −1/64). The mean is (−1/64, 0), and there is no other round.
    """
    assert METHODS["lo_fi"].one_round
    manifest = bearing_none(with_method(job.manifest, "lo_fi"))
    terms = replace(manifest.terms, rounds=1)
    manifest = manifest.model_copy(update={"terms": terms})
    unused = dict.fromkeys(("beta1", "beta2", "eps", "momentum"), "0")
    manifest = with_inner(manifest, optimizer="sgd", lr="0.25", steps=4, **unused)
    model = GlobalState(0, {"w": torch.zeros(2)}, {}, {"w": -11})
    updates = {}
    for seat, gradient in enumerate(([1 / 32, -1 / 64], [0.0, 1 / 64])):
        gradients["w"] = torch.tensor(gradient)
        last = trained(SeatState(model.params, {}, {}, {}, 0, 0), manifest)
        updates[seat], _ = close_round(manifest, model, last, DitherKey(SEED, seat))
    record = all_standing(updates, manifest)
    merged = merge(model, updates, record=record, data_seed=SEED, manifest=manifest).global_state
    assert merged.params["w"].tolist() == [-1 / 64, 0.0]
    assert merged.round == manifest.terms.rounds
