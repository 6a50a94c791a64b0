"""What `atoll job check` says of the hours of a job whose steps sample: generation, training and a
dispute apart.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.jobs import PLAIN
from tests.unit.job.test_every_choice import manifest_of

from atoll.job.draft import Draft
from atoll.job.feasibility import feasibility_of
from atoll.job.pace_by_shape import pace_by_shape
from atoll.job.plan import complete
from atoll.job.quote import Quote, quote
from atoll.job.quote_report import report
from atoll.job.quote_summary import summary
from atoll.numerics.operation_counts import token_operations
from atoll.protocol.manifest import Manifest
from atoll.service.needs import Machine
from atoll.service.pace import HOUR, OPERATIONS_A_SECOND, TRACE_STEPS, Pace

TASK = {"task": {"group": 2, "new_tokens": 4, "rewards": [{"kind": "answer"}]}}
PACE = Pace(
    step_seconds=72.0,
    segment_seconds=0.0,
    parameters=200_000,
    timed_parameters=200_000,
    update_bytes=400_000,
    generation_seconds=54.0,
    token_seconds=720.0,
    token_moves=9,
)


def looked_at(pace: Pace = PACE) -> tuple[Manifest, Draft, Quote]:
    manifest = manifest_of(TASK)
    draft = Draft("key", PLAIN.but(TASK), manifest, (), pace)
    return manifest, draft, quote(draft, pace, fee_cap=1)


def test_a_disputes_hours_are_apart_from_those_of_generation_and_training() -> None:
    manifest, draft, look = looked_at()
    inner, hours = manifest.inner, manifest.terms.rounds * manifest.inner.steps / HOUR
    assert look.generation_hours == pytest.approx(54 * hours)
    assert look.seat_hours == pytest.approx(72 * hours)
    run = inner.steps * manifest.reset_period + inner.segment + TRACE_STEPS
    assert look.game_hours == pytest.approx((72 * run + 720) / HOUR)
    assert look.token_hours == 0.2
    trained = look.seat_hours - look.generation_hours
    (line,) = (line for line in summary(draft, look).splitlines() if line[:5] == "hours")
    assert f"generates for {look.generation_hours:.3g} and trains for {trained:.3g}" in line
    assert f"a dispute takes a side {look.game_hours:.3g} at most, 0.2 of them" in line
    text = report(draft, look)
    assert f"a side works for {look.game_hours:.3g} h at most" in text
    assert "0.2 h of a side's work and 9 moves of both sides more at most" in text
    assert look.to_json_value()["token_moves"] == 9


def test_a_job_of_text_has_no_hours_of_a_token() -> None:
    pace = replace(PACE, generation_seconds=0.0, token_seconds=0.0, token_moves=0)
    plain = manifest_of({})
    draft = Draft("key", PLAIN, plain, (), pace)
    look = quote(draft, pace, fee_cap=1)
    assert (look.generation_hours, look.token_hours, look.token_moves) == (0.0, 0.0, 0)
    assert look.game_hours > 0
    assert "hours " not in summary(draft, look)
    assert f"a side works for {look.game_hours:.3g} h at most" in report(draft, look)


def test_the_window_of_a_dispute_has_room_for_a_tokens_trace() -> None:
    spec = PLAIN.but(TASK | {"windows.game": None})
    without, with_trace = (
        complete(spec, replace(PACE, token_seconds=seconds)) for seconds in (0.0, 7200.0)
    )
    more = (with_trace[0].windows.game or 0) - (without[0].windows.game or 0)
    assert more == 7200 * float(spec.windows.slower)
    (why,) = (figure.reason for figure in with_trace[1] if figure.path == "windows.game")
    assert "a step's trace and a token's" in why


def test_members_count_a_tokens_trace_among_what_a_game_asks_of_them() -> None:
    manifest, _, look = looked_at()
    machine = Machine(memory=1 << 40, disk=1 << 40)
    for role in ("provider", "verifier"):
        even = feasibility_of(role, manifest, PACE, machine)
        (game,) = (check for check in even.checks if check.name == "game")
        assert game.needed == pytest.approx(HOUR * look.game_hours)
        assert "the traces of a step and of a token" in game.text


def test_a_machine_that_takes_half_as_long_traces_a_token_in_half_the_time() -> None:
    half = PACE.by(0.5)
    assert (half.token_seconds, half.token_moves) == (360.0, 9)


def test_without_torch_a_tokens_trace_follows_from_the_models_shape() -> None:
    manifest = manifest_of(TASK)
    pace = pace_by_shape(manifest)
    model = manifest.model
    forward = model.seq * token_operations(model) / 3 / OPERATIONS_A_SECOND
    assert pace.token_seconds == pytest.approx(TRACE_STEPS * forward)
    look = looked_at(pace)[2]
    assert look.token_hours > 0
    assert "moves of both sides more" not in report(looked_at(pace)[1], look)
    assert pace_by_shape(manifest_of({})).token_seconds == 0
