"""Ranks are processes, and whatever becomes of them the bits are one process's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.property.train.test_one_state import LORA, all_bits, recipe_of, start_of
from tests.support.batches import micro_batch
from tests.unit.train.factories import Job, small_model, with_method
from torch import Tensor

from atoll.errors import MachineFault
from atoll.lab.differential import LabResult, LabRun, Setting, expected_digest, run_apart
from atoll.numerics import optimisers
from atoll.numerics.errors import MalformedState
from atoll.numerics.gradients import BatchGradients, StepInput, batch_gradients
from atoll.numerics.kernels.variables import DEVICES_VARIABLE
from atoll.numerics.memory_plan import LEAN, RECOMPUTING, ROOMY, MemoryPlan
from atoll.numerics.optimisers import Stepped, Update
from atoll.numerics.schedule import Recipe
from atoll.numerics.segment import Course, SegmentRun
from atoll.numerics.shards import Held, shapes_of
from atoll.numerics.state import SeatState, Tensors
from atoll.numerics.state_layout import optimiser_layout
from atoll.numerics.step import StepResult, gradients_of, inner_step, state_roots, step_in_place
from atoll.protocol.checkpoint_commitments import StateRoots, work_tag
from atoll.protocol.model_spec import LoraSpec
from atoll.protocol.optimisers import INNER_OPTIMISERS
from atoll.service.processes import started_at
from atoll.train import island, memory_room, rank_sums, sharded
from atoll.train.island import MOST_FAILURES, Island, again_where_ranks_end
from atoll.train.rank_steps import is_reference
from atoll.train.rank_sums import losses_by_micro_batch, runs_of
from atoll.train.resume import Keeping, checkpoints_of
from atoll.train.round import TrainedRound, train_round
from atoll.train.seat_task import run_alone
from atoll.train.second_run import _checked

DOWN_PROJECTION = "model.layers.1.mlp.down_proj.weight"
BATCH = 8
"""Sequences, each a micro-batch."""


def given(step: int = 0) -> StepInput:
    random = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, 256, (BATCH, 17), generator=random)
    learned = torch.rand(BATCH, 17, generator=random) > 0.2
    signed = torch.where(learned, tokens, -1 - tokens)
    return StepInput([micro_batch(part) for part in signed.split(1)], step, (3, 5))


def recipe(
    lanes: int, lora: LoraSpec | None = None, dropout: str = "0.1", optimiser: str = "adamw"
) -> Recipe:
    made = recipe_of(small_model(), optimiser, lora, dropout)
    changes = {"batch": BATCH, "micro_batch": 1, "lanes": lanes}
    return replace(made, inner=made.inner.model_copy(update=changes))


@pytest.fixture(scope="class", params=[2, 3, 4], ids=lambda ranks: f"{ranks} ranks")
def ranks(request: pytest.FixtureRequest) -> Iterator[Island]:
    """Started once for a class: it takes seconds, and a process has one island at a time."""
    made = Island(request.param)
    yield made
    made.end()


@pytest.fixture
def two() -> Iterator[Island]:
    made = Island(2, silence=timedelta(seconds=20))
    yield made
    made.end()


def bits(gradients: BatchGradients) -> tuple[bytes, tuple[float, ...]]:
    return all_bits(dict(gradients.gradients)), gradients.losses


def shared(island: Island, state: SeatState, how: Recipe) -> SeatState:
    """The state with all ranks."""
    return state.held_by(island.holds(shapes_of(state.params), how.inner))


def together(island: Island, params: Tensors, step: StepInput, how: Recipe) -> BatchGradients:
    params_only = SeatState(params, {}, {}, {}, 0, 0)
    return gradients_of(shared(island, params_only, how).params, step, how)


def roots_of(done: StepResult) -> StateRoots:
    return state_roots(done.state)


class TestAnyNumberOfRanks:
    @pytest.mark.parametrize("lora", [None, LORA], ids=["full", "adapters"])
    @pytest.mark.parametrize("lanes", [1, 2, 4, 8])
    @pytest.mark.parametrize("memory", [ROOMY, RECOMPUTING], ids=["roomy", "by layer"])
    def test_a_step_has_the_bits_of_one(
        self, ranks: Island, lanes: int, lora: LoraSpec | None, memory: MemoryPlan
    ) -> None:
        how = replace(recipe(lanes, lora), memory=memory)
        state = start_of(how, lora)
        expected = bits(batch_gradients(state.params, given(), how))
        held = shared(ranks, state, how)
        assert bits(gradients_of(held.params, given(), how)) == expected
        alone = inner_step(state, given(), how)
        beside = inner_step(held, given(), how)
        assert roots_of(beside) == roots_of(alone)
        assert state_roots(held) == state_roots(state)  # which is as it was
        assert beside.work == alone.work
        assert beside.state.to_bytes() == alone.state.to_bytes()
        assert len(ranks.processes) > 0  # they were there to the end

    @pytest.mark.parametrize("optimiser", sorted(INNER_OPTIMISERS))
    @pytest.mark.parametrize("lora", [None, LORA], ids=["full", "adapters"])
    def test_every_optimiser_steps_rows_as_it_steps_tensors(
        self, ranks: Island, optimiser: str, lora: LoraSpec | None
    ) -> None:
        how = recipe(2, lora, optimiser=optimiser)
        alone = start_of(how, lora)
        held = shared(ranks, alone, how)
        for step in range(3):
            alone = step_in_place(alone, given(step), how).state
            held = step_in_place(held, given(step), how).state
            assert state_roots(held) == state_roots(alone)

    @pytest.mark.parametrize("memory", [ROOMY, RECOMPUTING], ids=["roomy", "by layer"])
    def test_more_ranks_than_micro_batches_are_of_use_for_memory(
        self, ranks: Island, memory: MemoryPlan
    ) -> None:
        plain = recipe(1)
        inner = plain.inner.model_copy(update={"batch": 1, "micro_batch": 1, "lanes": 1})
        how = replace(plain, inner=inner, memory=memory)
        few = replace(given(), batch=given().batch[:1])
        state = start_of(how, None)
        alone = inner_step(state, few, how)
        beside = inner_step(shared(ranks, state, how), few, how)
        assert roots_of(beside) == roots_of(alone)
        assert beside.loss == alone.loss

    def test_moments_in_files_have_the_same_bits(self, ranks: Island, tmp_path: Path) -> None:
        how = replace(recipe(2), memory=LEAN)
        alone = start_of(how, None)
        holds = ranks.holds(shapes_of(alone.params), how.inner, apart=str(tmp_path))
        held = alone.held_by(holds)
        for step in range(2):
            alone = step_in_place(alone, given(step), replace(how, memory=ROOMY)).state
            held = step_in_place(held, given(step), how).state
            assert state_roots(held) == state_roots(alone)

    def test_a_state_is_read_and_written_by_rows(self, ranks: Island) -> None:
        how = recipe(2)
        state = inner_step(start_of(how, None), given(), how).state
        layout = optimiser_layout(shapes_of(state.params), how.inner)
        holds = ranks.holds(layout.params, how.inner)
        read = SeatState.from_bytes(state.to_bytes(), layout, holds=holds)
        assert state_roots(read) == state_roots(state)
        assert read.to_bytes() == state.to_bytes()
        other = optimiser_layout({**layout.params, "model.norm.weight": (7,)}, how.inner)
        with pytest.raises(MalformedState):
            SeatState.from_bytes(state.to_bytes(), other, holds=holds)

    def test_what_was_sampled_is_weighed_as_it_is(self, ranks: Island) -> None:
        """Each micro-batch as it is, and not by its share of all targets."""
        random = torch.Generator().manual_seed(5)
        batch = [
            replace(m, weights=torch.randn(m.weights.shape, generator=random), is_sampled=True)
            for m in given().batch
        ]
        sampled = replace(given(), batch=batch)
        assert sampled.shares == [1.0] * BATCH
        how = recipe(4)
        params = dict(start_of(how, None).params)
        expected = bits(batch_gradients(params, sampled, how))
        assert bits(together(ranks, params, sampled, how)) == expected

    @pytest.mark.parametrize("where", ["model.norm.weight", DOWN_PROJECTION])
    @pytest.mark.parametrize("value", [torch.nan, torch.inf])
    def test_numbers_that_are_not_finite_are_sent_as_they_are(
        self, ranks: Island, where: str, value: float
    ) -> None:
        how = recipe(2, dropout="0")
        state = start_of(how, None)
        state.params[where].view(-1)[0] = value
        held = shared(ranks, state, how)
        expected = batch_gradients(state.params, given(), how)
        gradients = gradients_of(held.params, given(), how)
        assert bits_of_words(gradients.gradients) == bits_of_words(expected.gradients)
        alone, beside = inner_step(state, given(), how), inner_step(held, given(), how)
        assert alone.diverged and beside.diverged
        assert work_tag([beside.work]) == work_tag([alone.work])

    def test_the_reference_finds_what_a_rank_computes(self, ranks: Island) -> None:
        """The second run of a step is all ranks', and is compared by each for its rows."""
        how = recipe(2)
        alone = start_of(how, None)
        checked = _checked(None)
        done = checked(shared(ranks, alone, how), given(), how)
        assert roots_of(done) == roots_of(step_in_place(alone, given(), how))

    @pytest.mark.parametrize("wrong", ["gradients", "optimiser"])
    def test_what_a_rank_computes_wrongly_is_found(
        self, ranks: Island, wrong: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        how = recipe(2)
        state = start_of(how, None)
        held = shared(ranks, state, how)
        if wrong == "gradients":
            compute = rank_sums.micro_batch_gradients

            def computed(*args: Any) -> float:
                *before, take = args
                harm = 0.0 if is_reference(args[2].ops) else 2.0**-20
                return compute(*before, lambda name, gradient: take(name, gradient + harm))

            monkeypatch.setattr(rank_sums, "micro_batch_gradients", computed)
        else:
            adamw = optimisers.STEPS["adamw"]

            def stepped(of: Update) -> Stepped:
                p, slots = adamw(of)
                return (p if is_reference(of.recipe.ops) else p + 2.0**-20), slots

            monkeypatch.setattr(optimisers, "STEPS", {**optimisers.STEPS, "adamw": stepped})
        with pytest.raises(MachineFault):
            _checked(None)(held, given(), how)
        assert len(ranks.processes) > 0  # who are still a group

    def test_states_are_a_share_of_what_one_process_holds(self, ranks: Island) -> None:
        how = replace(recipe(8), memory=RECOMPUTING)
        state = start_of(how, None)
        count = sum(p.numel() for p in state.params.values())
        ranks.end()
        held = shared(ranks, state, how)
        size = len(ranks.processes) + 1
        step_in_place(held, given(), how)
        most = ranks.most_bytes()
        assert len(most) == size
        assert sum(most) == 16 * count
        assert max(most) <= 1.15 * 16 * count / size


def bits_of_words(gradients: Held) -> dict[str, list[int]]:
    return {n: words(g) for n, g in gradients.items()}


def words(tensor: Tensor) -> list[int]:
    flat: list[int] = tensor.contiguous().view(torch.int32).flatten().tolist()
    return flat


def test_sums_of_local_sums_would_have_other_bits() -> None:
    """What an all-reduce makes of two ranks' own gradients."""
    how = recipe(1)
    params = start_of(how, None).params
    whole = batch_gradients(params, given(), how)
    halves = replace(how, inner=how.inner.model_copy(update={"lanes": 2}))
    assert bits(batch_gradients(params, given(), halves)) != bits(whole)


@pytest.mark.parametrize("count", [2, 3, 5, 8, 9])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
@pytest.mark.parametrize("memory", [ROOMY, RECOMPUTING])
def test_every_micro_batch_is_computed_once_and_its_loss_is_in_its_place(
    count: int, lanes: int, memory: MemoryPlan
) -> None:
    how = replace(recipe(lanes), memory=memory)
    runs = runs_of(BATCH, how, count)
    assert [index for run in runs for index in run] == list(range(BATCH))
    for shift in (0, 1):
        by_rank = [
            [float(index) for run in runs[(rank + shift) % count :: count] for index in run]
            for rank in range(count)
        ]
        losses = losses_by_micro_batch(BATCH, how, by_rank, shift=shift)
        assert losses == tuple(map(float, range(BATCH)))


def killed(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def frozen(process: int) -> None:
    os.kill(process, signal.SIGSTOP)


@pytest.mark.parametrize("harm", [killed, frozen], ids=["killed", "frozen"])
def test_a_rank_that_is_gone_takes_its_rows_with_it_and_others_come(
    harm: Callable[[int], None],
) -> None:
    two = Island(2, silence=timedelta(seconds=20))
    how = recipe(2)
    state = start_of(how, None)
    expected = roots_of(inner_step(state, given(), how))
    harmed: list[int] = []

    def work() -> StateRoots:
        held = shared(two, state, how)
        if not harmed:
            harmed.extend(two.processes)
            harm(*harmed)
        return roots_of(step_in_place(held, given(), how))

    try:
        assert again_where_ranks_end(work) == expected
        assert started_at(*harmed) == ""
        assert two.processes not in ([], harmed)
    finally:
        two.end()


ORDERS = ("make", "put", "gradients", "norm", "optimise", "hash", "get")


@pytest.mark.parametrize("order", ORDERS)
def test_a_rank_killed_at_any_moment_costs_no_bit(
    two: Island, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = recipe(1)
    state = start_of(how, None)
    alone = inner_step(state, given(), how).state
    send, left = sharded.send_document, [order]

    def sent(document: dict[str, Any]) -> None:
        send(document)
        if left == [document["kind"]]:
            left.clear()
            killed(*two.processes)

    def work() -> tuple[StateRoots, bytes]:
        after = step_in_place(shared(two, state, how), given(), how).state
        return state_roots(after), after.to_bytes()

    monkeypatch.setattr(sharded, "send_document", sent)
    assert again_where_ranks_end(work) == (state_roots(alone), alone.to_bytes())
    assert left == []


def test_ranks_that_end_again_and_again_are_left_alone(
    two: Island, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("connection closed by peer")

    starts: list[int] = []
    monkeypatch.setattr(island, "_Started", lambda ranks, *_: starts.append(ranks) or broken())
    how = recipe(1)
    state = start_of(how, None)
    held = again_where_ranks_end(lambda: shared(two, state, how))
    assert isinstance(held.params, dict)
    assert two.is_alone
    assert starts == [2] * MOST_FAILURES


@pytest.fixture
def two_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Island]:
    """This process's own, as a worker of two ranks has them."""
    monkeypatch.setenv(DEVICES_VARIABLE, "cpu,cpu")
    monkeypatch.setattr(island, "_islands", {})
    yield island.island_here()
    island.island_here().end()


@pytest.fixture
def with_lanes(job: Job) -> Job:
    inner = job.manifest.inner.model_copy(update={"micro_batch": 1, "lanes": 2})
    return job.of(job.manifest.model_copy(update={"inner": inner}))


def rounds_are_the_same(trained: TrainedRound, expected: TrainedRound) -> bool:
    return (trained.states, trained.work_tags, trained.update) == (
        expected.states,
        expected.work_tags,
        expected.update,
    )


@pytest.mark.parametrize("method", ["diloco", "fedadam", "sparseloco"])
def test_a_round_of_several_ranks_is_the_round(
    with_lanes: Job, method: str, request: pytest.FixtureRequest
) -> None:
    some = with_lanes.of(with_method(with_lanes.manifest, method))
    expected = train_round(some.task, some.store)
    two_here = request.getfixturevalue("two_here")
    trained = train_round(some.task, some.store)
    assert len(two_here.processes) == 1
    assert rounds_are_the_same(trained, expected)


def test_a_round_goes_on_from_its_last_checkpoint_where_a_rank_ends(
    with_lanes: Job, request: pytest.FixtureRequest
) -> None:
    some = with_lanes
    expected = train_round(some.task, some.store)
    two_here = request.getfixturevalue("two_here")
    begun: list[int] = []

    def run(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        begun.append(segment)
        if begun == [0, 1]:
            killed(*two_here.processes)
        return run_alone(states, segment, course)

    checkpoints = checkpoints_of(some.task, some.store, share=0)
    trained = train_round(some.task, some.store, run=run, keeping=Keeping(checkpoints))
    assert begun[:3] == [0, 1, 1]  # and not the first one again
    assert rounds_are_the_same(trained, expected)


def test_the_lab_has_the_digest_of_the_repository_with_two_ranks() -> None:
    what = LabRun(optimizer="muon", width=32, layers=1, seq=16, steps=4)
    result = run_apart(what, Setting(ranks=2))
    assert isinstance(result, LabResult), result
    assert result.digest == expected_digest(what)


def test_ranks_share_the_memory_of_a_machine(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[tuple[int, int]] = []
    monkeypatch.setattr(memory_room, "room_on", lambda _: 1000)
    monkeypatch.setattr(memory_room, "plan_for", lambda _, *how: rooms.append(how) or ROOMY)
    for devices in ("cpu", "cpu,cpu,cpu,cpu", ""):
        monkeypatch.setenv(DEVICES_VARIABLE, devices)
        assert memory_room.plan_here(job.manifest) == ROOMY
    assert rooms == [(1000, 1), (250, 4), (1000, 1)]


LEADER = """
import os, signal, sys
from tests.property.train import test_island as t
two, how = t.Island(2), t.recipe(1)
held = t.shared(two, t.start_of(how, None), how)
print(*two.processes, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_ranks_end_with_the_first() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEADER], capture_output=True, text=True, timeout=300, check=False
    )
    follower = int(done.stdout.splitlines()[-1])  # behind what is logged
    for _ in range(300):
        if not started_at(follower):
            return
        time.sleep(0.1)
    with suppress(ProcessLookupError):
        killed(follower)
    pytest.fail("a rank outlives the first")
