"""What `job check` says of the trace of a sampled token is what a game has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from tests.support.games import flipped
from tests.unit.numerics.trace.jobs import JOBS, make_small
from tests.unit.protocol.sampling_games import TEMPLATES, TOKEN_NODES, TOKEN_PART, Side, played
from tests.unit.protocol.test_sampling_games import lying

from atoll.numerics.trace.run import run
from atoll.protocol.games.moves import PickToken
from atoll.train import measure_pace
from atoll.train.token_trace import BYTE_SECONDS, NO_TRACE, RUNS, most_moves, token_trace


@pytest.mark.parametrize("name", ["rl", "rl of adapters"])
def test_its_nodes_and_bytes_are_those_that_are_run(name: str) -> None:
    job = make_small(JOBS[name])
    header = job.program.header
    sources = job.sources(job.initial_state, 0)
    sources = replace(sources, context=replace(sources.context, token=5))
    part = header.generation_part(header.step_part(0, 0))
    made = [tensor for _, tensor in run(job.program, part, sources)]
    said = token_trace(job.manifest)
    assert said.nodes == len(made) == header.generation_nodes[0]
    assert said.size == sum(tensor.nbytes for tensor in made)


@pytest.mark.parametrize("tampers", [{2: flipped(3)}, {0: flipped(30_000), 2: flipped(3)}])
def test_no_game_goes_on_for_more_moves(tampers: Mapping[int, Callable[[bytes], bytes]]) -> None:
    moves = [move for _, move in played(Side({1: lying}, tampers), Side())[:-1]]
    (first,) = (at for at, move in enumerate(moves) if isinstance(move, PickToken))
    own = [template for template in TEMPLATES if template.part == TOKEN_PART]
    most, count = most_moves(TOKEN_NODES, tuple(own)), len(moves) - first
    assert count == most if 0 in tampers else count < most


def test_a_machine_is_timed_with_the_trace_of_a_token_where_steps_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measure_pace, "MIN_SECONDS", 0.01)
    manifest = make_small(JOBS["rl"]).manifest
    found, trace = measure_pace.measure(manifest), token_trace(manifest)
    assert found["token_seconds"] == RUNS * trace.size * BYTE_SECONDS > 0
    assert found["token_moves"] == trace.moves == 9
    assert found["generation_seconds"] > 0
    plain = make_small(JOBS["plain"]).manifest
    assert token_trace(plain) == NO_TRACE
    assert (NO_TRACE.seconds, NO_TRACE.moves) == (0, 0)
