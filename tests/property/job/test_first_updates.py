"""The first grids that a job is made with keep its first merged update, whatever its rates are."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
import torch
from tests.jobs import PLAIN
from tests.merging import all_standing
from tests.unit.train.factories import TEXT, small_model

from atoll.bits.base import Base, freeze
from atoll.bits.batch import gather_batch
from atoll.bits.codec.dither import DitherKey
from atoll.bits.init import initial_global_state, initial_params
from atoll.bits.layout import param_shapes, seat_layout
from atoll.bits.link import close_round
from atoll.bits.ops import NativeOps
from atoll.bits.schedule import Recipe
from atoll.bits.state import SeatState, Tensors
from atoll.bits.step import inner_step
from atoll.bits.tensors import tree_root
from atoll.job.spec import JobSpec
from atoll.law.canonical import dag_cbor_cid
from atoll.law.hashing import sha256
from atoll.law.manifest import LINEARS, DataSpec, InitSpec, LoraSpec, Manifest, NumericsSpec
from atoll.merge.round import merge

SEATS, LENGTHS = 3, (4, 24)
RATES = ("0.000001", "0.0001", "0.01")
MODEL = small_model()
LORA = LoraSpec(rank=4, alpha="16", targets=tuple(LINEARS))
TOKENS = np.frombuffer(TEXT.encode(), dtype=np.uint8)
METHODS_OF = {
    "adamw": {"grid8": "fedavg", "grid4": "fedavg", "two_bit": "fedavg", "sign": "fedavg",
              "fp32": "fedavg", "sparse": "sparseloco"},
    "muon": {"two_bit": "muloco", "grid8": "muloco", "grid4": "muloco"},
}  # fmt: skip
LOST = {"two_bit": 0.1, "sign": 0.65, "sparse": 0.97}
"""Share that a codec of few levels, or of few values, leaves out of any update; its best grid keeps
no more (the grid costs a twentieth of the rest)."""


def manifest_of(optimiser: str, codec: str, rate: str, steps: int, *, adapters: bool) -> Manifest:
    method = METHODS_OF[optimiser][codec]
    cid = dag_cbor_cid(sha256(b"none"))
    data = DataSpec(
        cid=cid, root=sha256(b"tokens"), nodes_cid=cid, dtype="uint8", masked=False,
        train_tokens=len(TOKENS), eval_cid=None, eval_tokens=0, eval_batches=0, tokenizer_cid=cid,
    )  # fmt: skip
    choices = {
        "model": MODEL, "inner.lr": rate, "inner.steps": steps, "inner.segment": steps,
        "inner.batch": 4, "inner.micro_batch": 4, "rounds": 1, "method.name": method,
        "members.seats": SEATS, "members.min_providers": SEATS,
    }  # fmt: skip
    job: JobSpec = PLAIN.but(choices)
    if codec != "sparse" and (codec, method) != ("two_bit", "muloco"):
        job = job.but({"method.codec": codec})
    numerics = NumericsSpec(code_digest=sha256(b"code"), probe_digest=sha256(b"probe"))
    if not adapters:
        return job.resolve(data, None, numerics, now=0)
    init = InitSpec(seed=None, cid=cid, root=sha256(b"weights"))
    return job.model_copy(update={"lora": LORA}).resolve(data, init, numerics, now=0)


@lru_cache(maxsize=1)
def frozen() -> Base:
    weights = initial_params(param_shapes(MODEL), seed=2)
    return freeze(weights.items(), tree_root(weights), MODEL, LORA, NativeOps())


@lru_cache(maxsize=64)
def trained(optimiser: str, rate: str, adapters: bool) -> dict[int, list[SeatState]]:
    """The seats after so many steps of their first round; rates do not depend on its length."""
    manifest = manifest_of(optimiser, "grid8", rate, max(LENGTHS), adapters=adapters)
    base = frozen() if adapters else None
    recipe = Recipe(MODEL, manifest.inner, max(LENGTHS), NativeOps(), base)
    found: dict[int, list[SeatState]] = {steps: [] for steps in LENGTHS}
    for seat in range(SEATS):
        random = np.random.default_rng(seat)
        state = SeatState.opening(initial_global_state(manifest), seat_layout(manifest))
        for step in range(max(LENGTHS)):
            places = random.integers(0, len(TOKENS) - MODEL.seq - 1, 4).tolist()
            batch = gather_batch(TOKENS, places, MODEL.seq)
            state = inner_step(state, batch, step, recipe).state
            if step + 1 in LENGTHS:
                found[step + 1].append(state)
    return found


def kept(manifest: Manifest, lasts: list[SeatState]) -> float:
    """Share of the seats' mean change's squared length that the model moved along it."""
    outer = manifest.outer.model_copy(
        update={"kind": "sgd", "lr": "1", "momentum": "0", "beta2": "0", "eps": "0", "period": 0}
    )
    manifest = manifest.model_copy(update={"outer": outer})
    model, seed = initial_global_state(manifest), sha256(b"seed")
    layout = seat_layout(manifest)
    zeros = {name: torch.zeros(shape) for name, shape in layout.feedback.items()}
    lasts = [SeatState(s.params, s.m, s.v, zeros, s.count, s.batches) for s in lasts]
    updates = {
        seat: close_round(manifest, model, last, DitherKey(seed, seat))[0]
        for seat, last in enumerate(lasts)
    }
    facts = all_standing(range(SEATS), manifest)
    after = merge(model, updates, facts=facts, data_seed=seed, manifest=manifest)
    assert len(after.inputs.merged) == SEATS
    wanted: Tensors = {
        name: sum(last.params[name].double() for last in lasts) / SEATS - p.double()
        for name, p in model.params.items()
    }
    moved = {n: p.double() - model.params[n].double() for n, p in after.global_state.params.items()}
    along = sum(float((wanted[name] * moved[name]).sum()) for name in wanted)
    return along / sum(float(change.square().sum()) for change in wanted.values())


@pytest.mark.parametrize("adapters", [False, True])
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("optimiser", METHODS_OF)
def test_a_first_merged_update_is_not_lost_to_its_grid(
    optimiser: str, rate: str, adapters: bool
) -> None:
    found = {
        (codec, steps): kept(manifest_of(optimiser, codec, rate, steps, adapters=adapters), lasts)
        for codec in METHODS_OF[optimiser]
        for steps, lasts in trained(optimiser, rate, adapters).items()
    }
    lost = {key: share for key, share in found.items() if share < 0.95 * (1 - LOST.get(key[0], 0))}
    assert not lost
