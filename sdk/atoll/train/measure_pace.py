"""How fast this machine trains a job's model.

A model too large for a few seconds is timed by a smaller one of its kind, and scaled by operations.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.registry import seat_codec
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.frozen_base import freeze
from atoll.numerics.generate import Generator, Request, generate
from atoll.numerics.init import initial_global_state, initial_params
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.interface import CPU
from atoll.numerics.operation_counts import token_operations
from atoll.numerics.ops import operations
from atoll.numerics.sampling import Draw
from atoll.numerics.schedule import Recipe
from atoll.numerics.sections import UpdateLayout
from atoll.numerics.segment import Course, run_segment
from atoll.numerics.state import SeatState
from atoll.numerics.state_layout import (
    param_count,
    param_shapes,
    seat_layout,
    trained_count,
    trained_shapes,
)
from atoll.numerics.step import inner_step
from atoll.numerics.tensors import tree_root
from atoll.numerics.tokens import DTYPES
from atoll.protocol.manifest import InitSpec, Manifest
from atoll.protocol.model_spec import LoraSpec, ModelSpec
from atoll.protocol.task_spec import TaskSpec
from atoll.protocol.types import ZERO_DIGEST, SeatIndex
from atoll.train.token_trace import token_trace

MAX_TIMED = 3_000_000
"""Parameters up to which a model is timed itself."""
MAX_TIMED_GPU, SEQ_TIMED_GPU = 60_000_000, 1024
"""On a GPU, which small models do not keep busy: what they take would be no measure of others."""
MAX_FIRST, SEQ_FIRST, BATCH_FIRST, FIRST_STEPS = 200_000, 32, 4, 8
"""Parameters, positions, sequences and steps of the training that shows what a job's first grid
keeps of an update: which hangs on rates, optimiser and codec, and hardly on the size."""
GENERATED_AT_ONCE = 8
"""Sequences: of one alone a token takes as long as of a few."""
MIN_SECONDS = 1.0
"""Steps are repeated for this long."""


def smaller(model: ModelSpec, most: int = MAX_TIMED, seq: int = 256) -> ModelSpec:
    """A model of the same kind that is timed in seconds; itself where it is small enough.

    Args:
        most: parameters; `seq` tokens of a sequence.
    """
    fields = {"layers": min(model.layers, 2), "vocab": min(model.vocab, 4096)}
    small = model.model_copy(update=fields | {"seq": min(model.seq, seq)})
    while param_count(small) > most and small.heads % 2 == 0 and small.kv_heads % 2 == 0:
        halved = {name: getattr(small, name) // 2 for name in ("width", "heads", "kv_heads", "ffn")}
        small = small.model_copy(update=halved)
    return model if param_count(model) <= most else small


def seconds_of(act: Callable[[], object], warm_ups: int = 1) -> float:
    """The mean over as many runs as fill `MIN_SECONDS`, after those that warm up."""
    for _ in range(warm_ups):
        act()
    started, runs = time.perf_counter(), 0
    while (spent := time.perf_counter() - started) < MIN_SECONDS:
        act()
        runs += 1
    return spent / runs


class Measured(TypedDict):
    """Seconds of a step and of what a segment costs besides; sizes in bytes."""

    step_seconds: float
    segment_seconds: float
    parameters: int
    timed_parameters: int
    update_bytes: int
    generation_seconds: float
    token_seconds: float
    token_moves: int


def measure(manifest: Manifest) -> Measured:
    """How fast this machine trains the job's model."""
    model, inner = manifest.model, manifest.inner
    is_gpu = operations().device.type == "cuda"
    timed = smaller(model, MAX_TIMED_GPU, SEQ_TIMED_GPU) if is_gpu else smaller(model)
    single = {"steps": 1, "segment": 1, "batch": inner.micro_batch, "lanes": 1}
    once = inner.model_copy(update=single)
    codec = manifest.codec.model_copy(update={"overlap": 0})
    changes = {"model": timed, "inner": once, "codec": codec, "lora": _fitting(manifest, timed)}
    trial = manifest.model_copy(update=changes | {"task": None})
    step, besides = _times(trial)
    sizes = token_operations(model) * model.seq, token_operations(timed) * timed.seq
    by_operations = sizes[0] / sizes[1]
    by_size = trained_count(manifest) / trained_count(trial)
    shapes = trained_shapes(manifest)
    rounds = (UpdateLayout.of(manifest, shapes, r) for r in range(manifest.codec.fragments))
    generation = by_operations * inner.batch * _sequence_seconds(trial, manifest.task)
    token = token_trace(manifest)
    return {
        "step_seconds": step * by_operations * inner.micro_batches + generation,
        "segment_seconds": besides * by_size,
        "parameters": param_count(model),
        "timed_parameters": param_count(timed),
        "update_bytes": max(each.encoded_length for each in rounds),
        "generation_seconds": generation,
        "token_seconds": token.seconds,
        "token_moves": token.moves,
    }


def _sequence_seconds(trial: Manifest, task: TaskSpec | None) -> float:
    """Of a sequence's generation, of several at a time; 0 without a task."""
    if task is None:
        return 0.0
    recipe = _recipe(trial)
    ops = recipe.ops
    assert isinstance(ops, ExactOps)
    params = initial_global_state(trial.model_copy(update={"init": InitSpec.drawn(0)})).params
    generator = Generator.of(params, trial.model, ops, recipe.base)
    new_tokens = min(task.new_tokens, trial.model.seq - 1)
    request = Request(
        prompts=[[0]] * GENERATED_AT_ONCE, new_tokens=new_tokens, draw=Draw((0, 0), 0)
    )
    return seconds_of(lambda: generate(generator, request), warm_ups=0) / GENERATED_AT_ONCE


def _fitting(manifest: Manifest, timed: ModelSpec) -> LoraSpec | None:
    """The job's adapters, of a rank that the timed model has."""
    if manifest.lora is None:
        return None
    smallest = min(min(timed.linears[name]) for name in manifest.lora.targets)
    return manifest.lora.model_copy(update={"rank": min(manifest.lora.rank, smallest)})


def _recipe(trial: Manifest) -> Recipe:
    if trial.lora is None:
        return Recipe.of(trial)
    weights = initial_params(param_shapes(trial.model), seed=0)
    root, ops = tree_root(weights), operations()
    base = freeze(weights.items(), root, trial.model, trial.lora, ops)
    return Recipe.of(trial, base)


def kept_share(manifest: Manifest) -> float:
    """Share of a first update's squared length that its bytes say: 0 where the grid is too coarse.

    Of a seat's first steps on any text, from any weights, of a small model of the job's kind,
    stretched to a whole round: by as much as rates add up, over the fourth root of the steps,
    between weights that always move one way and such as wander. The gradients that SGD moves by are
    the smaller the more numbers share their norm.
    """
    model = smaller(manifest.model, MAX_FIRST, SEQ_FIRST)
    batch = min(manifest.inner.micro_batch, BATCH_FIRST)
    inner = manifest.inner.model_copy(update={"batch": batch, "micro_batch": batch, "lanes": 1})
    codec = manifest.codec.model_copy(update={"overlap": 0})
    small = {"model": model, "inner": inner, "lora": _fitting(manifest, model), "codec": codec}
    trial = manifest.model_copy(update=small | {"init": InitSpec.drawn(0), "task": None})
    is_shared = inner.properties.moves_by_gradient
    same = trained_count(trial) / trained_count(manifest) if is_shared else 1.0
    return _kept(trial, math.sqrt(same))


def _kept(trial: Manifest, scale: float) -> float:
    """The share, of updates of the trial that are larger by a factor."""
    tokens, trial = _any_tokens(trial)
    model, inner, recipe = initial_global_state(trial), trial.inner, _recipe(trial)
    course = Course(
        manifest=trial,
        recipe=recipe,
        tokens=tokens,
        data_seed=ZERO_DIGEST,
        seat=SeatIndex(0),
        round=0,
        model=model,
    )
    state, steps = SeatState.initial(model, seat_layout(trial)), min(inner.steps, FIRST_STEPS)
    for step in range(steps):
        state = inner_step(state, course.input(step), recipe).state
    rates = recipe.schedule.rates
    longer = float(rates[: inner.steps].sum() / rates[:steps].sum())
    longer *= scale / (inner.steps / steps) ** 0.25
    part, last = model.sent_part(trial.codec), state.on(CPU)
    delta = {name: (p - last.params[name]) * longer for name, p in part.params.items()}
    codec = seat_codec(trial.codec, DitherKey(ZERO_DIGEST, 0))
    data = codec.encode(delta, part.exponents)
    said = codec.decode(data, Layout.of_tensors(delta), part.exponents)
    along = sum(float((delta[name].double() * said[name].double()).sum()) for name in delta)
    whole = sum(float(delta[name].double().square().sum()) for name in delta)
    return min(along / whole, 1.0) if whole else 0.0


def _any_tokens(trial: Manifest) -> tuple[NDArray[Any], Manifest]:
    """A few sequences, and the job that has them for its data."""
    count = 4 * trial.model.seq
    tokens = (np.arange(count) * 7 % trial.model.vocab).astype(DTYPES[trial.data.dtype])
    data = trial.data.model_copy(update={"train_tokens": count, "masked": False})
    return tokens, trial.model_copy(update={"data": data})


def _times(trial: Manifest) -> tuple[float, float]:
    """Of one step of one micro-batch, and of a segment's digests and copies; of any weights."""
    trial = trial.model_copy(update={"init": InitSpec.drawn(0)})
    model = initial_global_state(trial)
    tokens, trial = _any_tokens(trial)
    course = Course(
        manifest=trial,
        recipe=_recipe(trial),
        tokens=tokens,
        data_seed=ZERO_DIGEST,
        seat=SeatIndex(0),
        round=0,
        model=model,
    )
    # Where steps leave it: it is brought there once a segment.
    initial_state = SeatState.initial(model, seat_layout(trial)).on(course.recipe.ops.device)
    given = course.input(0)
    # On a GPU the first compiles, and the second captures what all others launch.
    warm_ups = 1 if course.recipe.ops.device.type == "cpu" else 2
    step = seconds_of(lambda: inner_step(initial_state, given, course.recipe), warm_ups)
    segment = seconds_of(lambda: run_segment(initial_state, 0, course))
    return step, max(0.0, segment - step)
