"""A frozen base whose rows the ranks have: its bits are those of one that is whole, and no rank has
more of it than its rows and what it is reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import torch
from tests.property.train.test_island import (
    bits,
    given,
    killed,
    recipe,
    roots_of,
    rounds_are_the_same,
    shared,
)
from tests.property.train.test_one_state import LORA, start_of
from tests.unit.train.factories import Job
from tests.unit.train.test_lora import folder, job
from torch import Tensor

from atoll.numerics.errors import MalformedState
from atoll.numerics.frozen_base import HEAD, Base, checked, frozen_pieces
from atoll.numerics.gradients import batch_gradients
from atoll.numerics.init import initial_params
from atoll.numerics.kernels.interface import Frozen
from atoll.numerics.kernels.variables import DEVICES_VARIABLE
from atoll.numerics.memory_plan import RECOMPUTING, ROOMY, MemoryPlan
from atoll.numerics.schedule import Recipe
from atoll.numerics.state_layout import param_shapes
from atoll.numerics.step import gradients_of, inner_step, step_in_place
from atoll.protocol.types import Digest
from atoll.train import island, memory_room, sharded
from atoll.train.island import Island, again_where_ranks_end
from atoll.train.open_base import open_base, open_base_of_ranks
from atoll.train.rank_base import BaseRows
from atoll.train.round import train_round

__all__ = ["folder", "job"]  # pytest's fixtures

Pieces = Iterator[tuple[str, Frozen | Tensor]]


@pytest.fixture(scope="class", params=[2, 3], ids=lambda ranks: f"{ranks} ranks")
def ranks(request: pytest.FixtureRequest) -> Iterator[Island]:
    """Started once for a class: it takes seconds, and a process has one island at a time."""
    made = Island(request.param)
    yield made
    made.end()


@pytest.fixture
def how() -> Recipe:
    """Adapters; its base is whole, and of the weights that `pieces_of` freezes."""
    return replace(recipe(2, LORA), memory=RECOMPUTING)


def pieces_of(how: Recipe) -> Pieces:
    weights = initial_params(param_shapes(how.model), seed=1)
    return frozen_pieces(weights.items(), how.model, how.ops)


def in_rows(ranks: Island, how: Recipe, key: object = "some") -> Recipe:
    assert how.base is not None
    return replace(how, base=ranks.base_in_rows(key, lambda: pieces_of(how), how.base.scale))


def size_of(base: Base) -> int:
    tensors = [part for frozen in base.products.values() for part in frozen.parts]
    return sum(t.numel() * t.element_size() for t in (*tensors, *base.others.values()))


class TestRowsOfABase:
    def test_a_step_has_the_bits_of_one_and_each_rank_its_rows(
        self, ranks: Island, how: Recipe
    ) -> None:
        assert how.base is not None
        state = start_of(how, LORA)
        expected = bits(batch_gradients(state.params, given(), how))
        held, rows = shared(ranks, state, how), in_rows(ranks, how)
        assert bits(gradients_of(held.params, given(), rows)) == expected
        assert roots_of(inner_step(held, given(), rows)) == roots_of(
            inner_step(state, given(), how)
        )
        held_bytes = ranks.base_bytes()
        vectors = sum(4 * t.numel() for t in how.base.others.values() if t.dim() == 1)
        matrices = size_of(how.base) - vectors
        assert sum(held_bytes) == matrices + ranks.size * vectors
        assert max(held_bytes) - vectors < 1.1 * matrices / ranks.size

    def test_what_is_read_of_it_is_what_was_frozen(self, ranks: Island, how: Recipe) -> None:
        whole, view = how.base, in_rows(ranks, how).base
        assert whole is not None and view is not None
        assert list(view.products) == list(whole.products)
        assert set(view.others) == set(whole.others)
        assert view.scale == whole.scale
        for name, frozen in whole.products.items():
            read = view.head if name == HEAD else view.products[name]
            assert read.widths == frozen.widths
            assert all(map(torch.equal, read.parts, frozen.parts))
        assert all(torch.equal(view.others[name], tensor) for name, tensor in whole.others.items())
        with pytest.raises(KeyError):
            view.products["some"]
        with pytest.raises(KeyError):
            view.others[HEAD]

    def test_it_is_handed_out_once_and_given_back_for_another(
        self, ranks: Island, how: Recipe
    ) -> None:
        first = in_rows(ranks, how, "first").base
        assert in_rows(ranks, how, "first").base is first
        assert in_rows(ranks, how, "second").base is not first
        state = start_of(how, LORA)
        expected = bits(batch_gradients(state.params, given(), how))
        held = shared(ranks, state, how)
        assert bits(gradients_of(held.params, given(), replace(how, memory=ROOMY))) == expected
        assert ranks.base_bytes() == [0] * ranks.size  # the last one is whole, at each
        assert bits(gradients_of(held.params, given(), in_rows(ranks, how, "second"))) == expected

    def test_one_with_another_root_is_refused_and_the_ranks_go_on(
        self, ranks: Island, how: Recipe
    ) -> None:
        def wrong() -> Pieces:
            weights = initial_params(param_shapes(how.model), seed=1)
            return frozen_pieces(checked(weights.items(), Digest(bytes(32))), how.model, how.ops)

        with pytest.raises(MalformedState, match="another root"):
            ranks.base_in_rows("wrong", wrong, 1.0)
        with pytest.raises(MalformedState):
            ranks.base_in_rows("wrong", wrong, 1.0)  # it is not taken for one that is there
        state = start_of(how, LORA)
        held = shared(ranks, state, how)
        expected = bits(batch_gradients(state.params, given(), how))
        assert bits(gradients_of(held.params, given(), in_rows(ranks, how, "right"))) == expected

    def test_a_pass_gathers_each_product_twice_a_micro_batch_and_one_at_a_time(
        self, ranks: Island, how: Recipe, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Counted at the first rank: no gathered product outlives the layer that reads it."""
        state = start_of(how, LORA)
        held, rows = shared(ranks, state, how), in_rows(ranks, how)
        read: list[str] = []
        gathered = BaseRows.gathered

        def counting(self: BaseRows, name: str) -> tuple[Tensor, ...]:
            read.append(name)
            return gathered(self, name)

        monkeypatch.setattr(BaseRows, "gathered", counting)
        gradients_of(held.params, given(), rows)
        passes = -(-len(given().batch) // ranks.size)
        of_layer = [name for name in read if name.startswith("model.layers.1.")]
        products = [name for name in of_layer if not name.endswith((".weight", ".bias"))]
        assert all(products.count(name) == 2 * passes for name in products)
        assert read.count(HEAD) == passes


@pytest.mark.parametrize("order", ["new base", "base piece", "gradients"])
def test_a_rank_killed_at_any_moment_costs_no_bit(
    order: str, how: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Island(2, silence=timedelta(seconds=20))
    state = start_of(how, LORA)
    expected = roots_of(inner_step(state, given(), how))
    send, left = sharded.send_document, [order]

    def sent(document: dict[str, Any]) -> None:
        send(document)
        if left == [document["kind"]]:
            left.clear()
            killed(*two.processes)

    def work() -> Any:
        held = shared(two, state, how)
        return roots_of(step_in_place(held, given(), in_rows(two, how)))

    monkeypatch.setattr(sharded, "send_document", sent)
    try:
        assert again_where_ranks_end(work) == expected
        assert left == []
    finally:
        two.end()


@pytest.fixture
def two_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[MemoryPlan], Island]]:
    """This process's own, once they are asked for, and with them a plan."""
    monkeypatch.setattr(island, "_islands", {})

    def begin(plan: MemoryPlan) -> Island:
        monkeypatch.setenv(DEVICES_VARIABLE, "cpu,cpu")
        monkeypatch.setattr(memory_room, "plan_for", lambda *_: plan)
        return island.island_here()

    yield begin
    island.island_here().end()


def test_a_round_of_adapters_is_the_round_with_the_base_in_rows(
    job: Job, two_here: Callable[[MemoryPlan], Island]
) -> None:
    inner = job.manifest.inner.model_copy(update={"micro_batch": 1, "lanes": 2})
    some = job.of(job.manifest.model_copy(update={"inner": inner}))
    expected = train_round(some.task, some.store)
    whole = open_base(some.manifest, some.store)
    assert whole is not None
    for plan, is_whole in ((ROOMY, True), (RECOMPUTING, False)):
        two = two_here(plan)
        assert rounds_are_the_same(train_round(some.task, some.store), expected)
        assert (sum(two.base_bytes()) == 0) is is_whole
    assert size_of(whole) <= sum(two.base_bytes()) < 1.1 * size_of(whole)


def test_one_rank_alone_has_it_whole(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(island, "_islands", {})
    monkeypatch.setattr(memory_room, "plan_for", lambda *_: RECOMPUTING)
    assert open_base_of_ranks(job.manifest, job.store) is open_base(job.manifest, job.store)
    with pytest.raises(ValueError, match="one rank has a base whole"):
        Island(1).base_in_rows("some", lambda: iter(()), 1.0)
