"""Memory: one state and one set of gradients, whatever the bits would be with more of both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from tests.property.train.test_exact_mode import KINDS
from tests.support.batches import micro_batch
from tests.support.live_bytes import LiveBytes
from tests.unit.train.factories import DATA_SEED, Job, small_model, with_method
from tests.unit.train.test_step import inner_of
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from atoll.aggregation.merge_round import merge_updates
from atoll.numerics import update_proof
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.frozen_base import freeze
from atoll.numerics.gradients import StepInput, batch_gradients
from atoll.numerics.init import initial_params
from atoll.numerics.kernels.philox import Mask
from atoll.numerics.memory_plan import LEAN, RECOMPUTING, ROOMY, MemoryPlan
from atoll.numerics.model import forward
from atoll.numerics.ops import operations
from atoll.numerics.optimisers import STEPS, Update
from atoll.numerics.schedule import Recipe, clip_scale, dropper
from atoll.numerics.sections import joined
from atoll.numerics.segment import Course, run_segment
from atoll.numerics.shards import Shape
from atoll.numerics.state import GlobalState, SeatState, Tensors
from atoll.numerics.state_layout import (
    adapter_shapes,
    optimiser_layout,
    optimiser_of,
    param_shapes,
    seat_layout,
    trained_count,
)
from atoll.numerics.step import inner_step, state_roots, step_in_place
from atoll.numerics.tensors import Allocate, tree_root
from atoll.numerics.update_proof import close_round
from atoll.protocol.merge_inputs import MergeRecord
from atoll.protocol.model_spec import LoraSpec, ModelSpec
from atoll.protocol.optimisers import INNER_FIELDS, INNER_OPTIMISERS
from atoll.protocol.types import Digest, SeatIndex
from atoll.storage.local import LocalStore
from atoll.train import memory_room, seat_task
from atoll.train import round as train_round_module
from atoll.train.initial_model import open_initial_state
from atoll.train.mapped_tensors import MappedTensors
from atoll.train.memory_needs import _SUMS, _Sizes
from atoll.train.round import train_round

LORA = LoraSpec(rank=2, alpha="4", targets=("q", "v", "down"))
KEY = (3, 5)


def recipe_of(model: ModelSpec, optimiser: str, lora: LoraSpec | None, dropout: str) -> Recipe:
    usual = INNER_OPTIMISERS[optimiser].usual
    fields = {name: usual.get(name, "0") for name in INNER_FIELDS}
    inner = inner_of(batch=6, micro_batch=2, optimizer=optimiser, dropout=dropout, **fields)
    recipe = Recipe(model, inner, total_steps=8, ops=operations())
    if lora is None:
        return recipe
    weights = initial_params(param_shapes(model), seed=1)
    return replace(
        recipe, base=freeze(weights.items(), tree_root(weights), model, lora, recipe.ops)
    )


def start_of(recipe: Recipe, lora: LoraSpec | None) -> SeatState:
    shapes = param_shapes(recipe.model) if lora is None else adapter_shapes(recipe.model, lora)
    params = initial_params(shapes, seed=2)
    random = torch.Generator().manual_seed(4)
    moved = {name: p + torch.randn(p.shape, generator=random) * 0.1 for name, p in params.items()}
    layout = optimiser_layout(shapes, recipe.inner)
    return SeatState.initial(GlobalState(0, moved, {}, {}), layout)


def step_input(step: int) -> StepInput:
    random = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, 256, (6, 17), generator=random)
    learned = torch.rand(6, 17, generator=random) > 0.2
    signed = torch.where(learned, tokens, -1 - tokens)
    return StepInput([micro_batch(part) for part in signed.split(2)], step, KEY)


def whole_gradients(params: Tensors, given: StepInput, recipe: Recipe) -> Tensors:
    """One backward pass of the whole model a micro-batch, and all gradients of all of them."""
    mask = Mask(recipe.inner.dropout, given.dropout_key, given.global_step, site=0, first=0)
    sums: list[Tensor] = []
    for index, (m, share) in enumerate(zip(given.batch, given.shares, strict=True)):
        drop = dropper(mask, 2 * index, recipe.ops)
        leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
        logits = forward(leaves, m.ids, recipe.model, recipe.ops, drop, base=recipe.base)
        loss = recipe.ops.cross_entropy(logits, m.targets, m.weights) * torch.tensor(share)
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        sums = [a + b for a, b in zip(sums, gradients, strict=True)] if sums else [*gradients]
    return dict(zip(params, sums, strict=True))


def step_with_two_states(state: SeatState, given: StepInput, recipe: Recipe) -> SeatState:
    """The next state beside the one before it."""
    gradients = whole_gradients(state.params, given, recipe)
    scale = clip_scale(recipe.ops.global_norm(gradients.values()), float(recipe.inner.clip))
    rate = float(recipe.schedule.rates[given.global_step])
    params: Tensors = {}
    after: dict[str, Tensors] = {"m": {}, "v": {}}
    for name, p in state.params.items():
        before = {"m": state.m, "v": state.v}
        slots = {slot: tensors[name] for slot, tensors in before.items() if name in tensors}
        step = STEPS[optimiser_of(name, p.shape, recipe.inner)]
        update = Update(p, slots, gradients[name], scale, rate, state.count + 1, recipe)
        params[name], kept = step(update)
        for slot, tensor in kept.items():
            after[slot][name] = tensor
    return replace(state, params=params, **after, count=state.count + 1, batches=state.batches + 1)


def all_bits(tensors: Tensors) -> bytes:
    return sha256(tree_root({name: t.clone() for name, t in tensors.items()})).digest()


def settings() -> Iterator[tuple[str, str, LoraSpec | None, str]]:
    for kind in KINDS:
        yield kind, "adamw", None, "0"
        yield kind, "muon", LORA, "0"
    for optimiser in INNER_OPTIMISERS:
        yield "all", optimiser, None, "0.1"
        yield "all", optimiser, LORA, "0.1"


@pytest.mark.parametrize(("kind", "optimiser", "lora", "dropout"), list(settings()))
def test_a_step_in_place_and_by_layer_has_the_bits_of_one_that_holds_everything(
    kind: str, optimiser: str, lora: LoraSpec | None, dropout: str
) -> None:
    recipe = recipe_of(small_model(**KINDS[kind]), optimiser, lora, dropout)
    expected = start_of(recipe, lora)
    states = {plan: start_of(recipe, lora) for plan in (ROOMY, LEAN)}
    for step in range(2):
        given = step_input(step)
        gradients = all_bits(whole_gradients(expected.params, given, recipe))
        expected = step_with_two_states(expected, given, recipe)
        for plan, state in states.items():
            how = replace(recipe, memory=plan)
            by_layer = batch_gradients(state.params, given, how).gradients
            assert all_bits(by_layer) == gradients
            states[plan] = step_in_place(state, given, how).state
            assert state_roots(states[plan]) == state_roots(expected)


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_moments_in_a_file_have_the_bits_of_moments_in_memory(
    optimiser: str, tmp_path: Path
) -> None:
    recipe = recipe_of(small_model(), optimiser, None, "0")
    expected, state = start_of(recipe, None), start_of(recipe, None)
    mapped = MappedTensors(tmp_path)
    m, v = (
        {name: mapped.empty(tuple(t.shape), t.dtype).copy_(t) for name, t in tensors.items()}
        for tensors in (state.m, state.v)
    )
    state = replace(state, m=m, v=v)
    assert not any(tmp_path.iterdir())  # nothing of them is left when the process ends
    places = [t.data_ptr() for t in (*m.values(), *v.values())]
    for step in range(3):
        expected = step_with_two_states(expected, step_input(step), recipe)
        state = step_in_place(state, step_input(step), replace(recipe, memory=LEAN)).state
        assert state_roots(state) == state_roots(expected)
    assert [t.data_ptr() for t in (*state.m.values(), *state.v.values())] == places
    layout = optimiser_layout(param_shapes(recipe.model), recipe.inner)
    read = SeatState.from_bytes(state.to_bytes(), layout, allocate=of_files(mapped))
    assert state_roots(read) == state_roots(expected)


def of_files(mapped: MappedTensors) -> Allocate:
    def allocate(_: str, shape: Shape, dtype: torch.dtype) -> Tensor:
        return mapped.empty(shape, dtype)

    return allocate


@pytest.mark.parametrize("method", ["diloco", "fedadam"])
def test_a_round_has_the_same_bits_where_memory_is_short(
    job: Job, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that has room for nothing computes layers again, and has moments and slots in
    files.
    """
    some = job.of(with_method(job.manifest, method))
    expected = train_round(some.task, some.store)
    in_memory = open_initial_state(some.manifest, some.store)
    monkeypatch.setattr(memory_room, "room_on", lambda _: 0)
    start = seat_task.open_with(some.task, some.store, [])
    assert all(is_mapped(t) for t in (*start.m.values(), *start.v.values()))
    trained = train_round(some.task, some.store)
    assert (trained.states, trained.update) == (expected.states, expected.update)
    model = open_initial_state(some.manifest, some.store)
    assert model.digest() == in_memory.digest()
    slots = [t for tensors in model.outer.values() for t in tensors.values()]
    assert slots
    assert all(map(is_mapped, slots))
    seats = [SeatIndex(seat) for seat in range(4)]
    record = MergeRecord(15, 1, [15], dict.fromkeys(seats, some.manifest.segments))
    updates = dict.fromkeys(seats, trained.update)
    merged = merge_updates(
        model, updates, record=record, data_seed=DATA_SEED, manifest=some.manifest
    )
    assert merged.numerators
    moved = merged.moves(in_memory, some.manifest).digest()
    assert merged.moves(model, some.manifest).digest() == moved


def is_mapped(tensor: Tensor) -> bool:
    return tensor.untyped_storage().filename is not None


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_head_s_gradient_is_one_with_the_embedding_s(tied: bool) -> None:
    recipe = recipe_of(small_model(tied=tied), "adamw", None, "0")
    params, given = start_of(recipe, None).params, step_input(0)
    expected = all_bits(whole_gradients(params, given, recipe))
    for plan in (ROOMY, LEAN):
        gradients = batch_gradients(params, given, replace(recipe, memory=plan)).gradients
        assert list(gradients) == list(params)
        assert all_bits(gradients) == expected


def test_a_step_changes_no_state_that_somebody_holds(job: Job) -> None:
    recipe = recipe_of(small_model(), "adamw", None, "0")
    state = start_of(recipe, None)
    before = state_roots(state)
    inner_step(state, step_input(0), recipe)
    assert state_roots(state) == before
    course = course_of(job)
    start = SeatState.initial(job.model, seat_layout(job.manifest))
    before, model = state_roots(start), job.model.digest()
    first, second = (run_segment(start, 0, course).digest for _ in range(2))
    assert first == second
    assert (state_roots(start), job.model.digest()) == (before, model)


def course_of(job: Job, memory: MemoryPlan = ROOMY) -> Course:
    course = seat_task.course_of(job.task, job.store)
    return replace(course, recipe=replace(course.recipe, memory=memory))


# ------------------------------------------------------------------------------- bytes, counted


def of_size(job: Job, width: int, layers: int) -> Job:
    model = small_model(width=width, layers=layers, head_dim=width // 2, ffn=2 * width, seq=16)
    return job.of(job.manifest.model_copy(update={"model": model}))


def state_bytes(job: Job) -> int:
    return 4 * seat_layout(job.manifest).elements


def tensors_of(state: SeatState) -> list[Tensor]:
    return [*state.params.values(), *state.m.values(), *state.v.values()]


def peak_of_a_segment(job: Job, memory: MemoryPlan) -> int:
    """Of its steps; the state is given up, as whoever trains gives it up."""
    course = course_of(job, memory)
    states = [SeatState.initial(job.model.copied(), seat_layout(job.manifest))]
    with LiveBytes(tensors_of(states[0])) as live:
        run_segment(states.pop(), 0, course)
    return live.peak


@pytest.mark.parametrize(("width", "layers"), [(64, 4), (128, 3)])
def test_a_segment_holds_one_state_and_one_set_of_gradients(
    job: Job, width: int, layers: int
) -> None:
    """Two states of AdamW are 24 bytes a parameter, two sets of gradients beside one are 20."""
    large = of_size(job, width, layers)
    count = trained_count(large.manifest)
    for plan in (ROOMY, RECOMPUTING):
        peak = peak_of_a_segment(large, plan)
        said = _Sizes(large.manifest).steps(plan) - _SUMS  # of which a small product needs nothing
        assert 0.8 * said < peak < min(1.05 * said, 22.5 * count)


def test_layers_that_are_computed_again_keep_what_they_read(job: Job) -> None:
    deep = of_size(job, 32, 12)
    assert peak_of_a_segment(deep, RECOMPUTING) < 0.8 * peak_of_a_segment(deep, ROOMY)


def test_an_update_proof_holds_no_difference_of_two_models(job: Job) -> None:
    large = of_size(job, 128, 3)
    model = large.model.copied()
    last = SeatState.initial(model.copied(), seat_layout(large.manifest))
    with LiveBytes([*model.params.values(), *tensors_of(last)]) as live:
        close_round(large.manifest, model, last, DitherKey(Digest(bytes(32)), 0))
    largest = 4 * 256 * 128
    assert live.peak <= state_bytes(large) + 4 * trained_count(large.manifest) + 2 * largest


def test_the_model_is_let_go_before_an_update_is_joined(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[StorageWeakRef] = []

    def read(task: seat_task.TrainTask, store: LocalStore) -> GlobalState:
        model = seat_task.model_of(task, store)
        kept.extend(StorageWeakRef(p.untyped_storage()) for p in model.params.values())
        return model

    def join(sections: Iterable[bytes]) -> bytes:
        assert kept
        assert all(storage.expired() for storage in kept)
        return joined(sections)

    monkeypatch.setattr(train_round_module, "model_of", read)
    monkeypatch.setattr(update_proof, "joined", join)
    assert train_round(job.task, job.store).update
