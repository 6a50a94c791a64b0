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

import pytest
import torch
from tests.property.train.test_one_state import LORA, all_bits, recipe_of, start_of
from tests.support.batches import micro_batch
from tests.unit.train.factories import Job, small_model
from torch import Tensor

from atoll.lab.differential import LabResult, LabRun, Setting, expected_digest, run_apart
from atoll.numerics.gradients import BatchGradients, StepInput, batch_gradients
from atoll.numerics.kernels.variables import RANKS_VARIABLE
from atoll.numerics.memory_plan import ROOMY
from atoll.numerics.schedule import Recipe
from atoll.numerics.state import Tensors
from atoll.numerics.step import inner_step, state_roots
from atoll.protocol.model_spec import LoraSpec
from atoll.service.processes import started_at
from atoll.train import island, memory_room
from atoll.train.island import MOST_STARTS, Island
from atoll.train.rank_sums import losses_by_micro_batch, runs_of
from atoll.train.round import train_round

BATCH = 8
"""Sequences, each a micro-batch."""


def given(step: int = 0) -> StepInput:
    random = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, 256, (BATCH, 17), generator=random)
    learned = torch.rand(BATCH, 17, generator=random) > 0.2
    signed = torch.where(learned, tokens, -1 - tokens)
    return StepInput([micro_batch(part) for part in signed.split(1)], step, (3, 5))


def recipe(lanes: int, lora: LoraSpec | None = None, dropout: str = "0.1") -> Recipe:
    made = recipe_of(small_model(), "adamw", lora, dropout)
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
    return all_bits(gradients.gradients), gradients.losses


class TestAnyNumberOfRanks:
    @pytest.mark.parametrize("lora", [None, LORA], ids=["full", "adapters"])
    @pytest.mark.parametrize("lanes", [1, 2, 4, 8])
    def test_a_step_has_the_bits_of_one(
        self, ranks: Island, lanes: int, lora: LoraSpec | None
    ) -> None:
        how = recipe(lanes, lora)
        state = start_of(how, lora)
        expected = bits(batch_gradients(state.params, given(), how))
        assert bits(ranks.gradients(state.params, given(), how)) == expected
        assert len(ranks.processes) > 0  # they were there to the end
        alone = inner_step(state, given(), how)
        together = inner_step(state, given(), how, ranks.gradients)
        assert state_roots(together.state) == state_roots(alone.state)
        assert together.work == alone.work

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
        params = start_of(how, None).params
        expected = bits(batch_gradients(params, sampled, how))
        assert bits(ranks.gradients(params, sampled, how)) == expected
        assert len(ranks.processes) > 0

    def test_numbers_that_are_not_finite_are_sent_as_they_are(self, ranks: Island) -> None:
        how = recipe(2, dropout="0")
        params = start_of(how, None).params
        params["model.norm.weight"][0] = torch.nan
        params["model.layers.1.mlp.down_proj.weight"][0, 0] = torch.inf
        alone = batch_gradients(params, given(), how)
        assert bits_of_words(ranks.gradients(params, given(), how).gradients) == bits_of_words(
            alone.gradients
        )


def bits_of_words(gradients: Tensors) -> dict[str, list[int]]:
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
def test_every_micro_batch_is_computed_once_and_its_loss_is_in_its_place(
    count: int, lanes: int
) -> None:
    inner = recipe(lanes).inner
    runs = runs_of(BATCH, inner, count)
    assert [index for run in runs for index in run] == list(range(BATCH))
    by_rank = [
        [float(index) for run in runs[rank::count] for index in run] for rank in range(count)
    ]
    assert losses_by_micro_batch(BATCH, inner, by_rank) == tuple(map(float, range(BATCH)))


def killed(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def frozen(process: int) -> None:
    os.kill(process, signal.SIGSTOP)


@pytest.mark.parametrize("harm", [killed, frozen], ids=["killed", "frozen"])
def test_a_rank_that_is_gone_costs_time_and_no_bit(harm: Callable[[int], None]) -> None:
    two = Island(2, silence=timedelta(seconds=20))
    how = recipe(2)
    params = start_of(how, None).params
    try:
        assert bits(two.gradients(params, given(0), how)) == alone(params, 0, how)
        (first,) = two.processes
        harm(first)
        assert bits(two.gradients(params, given(1), how)) == alone(params, 1, how)
        assert two.processes == []
        assert started_at(first) == ""
        assert bits(two.gradients(params, given(2), how)) == alone(params, 2, how)
        assert two.processes not in ([], [first])
    finally:
        two.end()


def alone(params: Tensors, step: int, how: Recipe) -> tuple[bytes, tuple[float, ...]]:
    return bits(batch_gradients(params, given(step), how))


def test_a_rank_killed_while_it_computes_costs_no_bit(
    two: Island, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = recipe(1)
    params = start_of(how, None).params
    two.gradients(params, given(0), how)
    send = island.send_params

    def sent(*args: Tensors) -> None:
        send(*args)
        killed(*two.processes)

    monkeypatch.setattr(island, "send_params", sent)
    assert bits(two.gradients(params, given(1), how)) == alone(params, 1, how)
    assert two.processes == []


def test_ranks_that_end_again_and_again_are_left_alone(
    two: Island, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("connection closed by peer")

    starts: list[int] = []
    monkeypatch.setattr(island, "_Followers", lambda ranks, _: starts.append(ranks) or broken())
    how = recipe(1)
    params = start_of(how, None).params
    for step in range(MOST_STARTS + 2):
        assert bits(two.gradients(params, given(step), how)) == alone(params, step, how)
    assert starts == [2] * MOST_STARTS


def test_a_round_of_several_ranks_is_the_round(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = job.manifest.inner.model_copy(update={"micro_batch": 1, "lanes": 2})
    some = job.of(job.manifest.model_copy(update={"inner": inner}))
    expected = train_round(some.task, some.store)
    monkeypatch.setenv(RANKS_VARIABLE, "2")
    island._island.cache_clear()
    try:
        trained = train_round(some.task, some.store)
        assert len(island._island(2).processes) == 1
    finally:
        island._island(2).end()
        island._island.cache_clear()
    assert trained.states == expected.states
    assert trained.work_tags == expected.work_tags
    assert trained.update == expected.update


def test_the_lab_has_the_digest_of_the_repository_with_two_ranks() -> None:
    what = LabRun(optimizer="muon", width=32, layers=1, seq=16, steps=4)
    result = run_apart(what, Setting(ranks=2))
    assert isinstance(result, LabResult), result
    assert result.digest == expected_digest(what)


def test_ranks_share_the_memory_of_a_machine(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[int] = []
    monkeypatch.setattr(memory_room, "room_on", lambda _: 1000)
    monkeypatch.setattr(memory_room, "plan_for", lambda _, room: rooms.append(room) or ROOMY)
    for ranks in ("1", "4", "", "many"):
        monkeypatch.setenv(RANKS_VARIABLE, ranks)
        assert memory_room.plan_here(job.manifest) == ROOMY
    assert rooms == [1000, 250, 1000, 1000]


LEADER = """
import os, signal, sys
from tests.property.train import test_island as t
two, how = t.Island(2), t.recipe(1)
two.gradients(t.start_of(how, None).params, t.given(), how)
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
