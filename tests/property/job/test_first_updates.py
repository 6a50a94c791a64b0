"""The first grids that a job is made with keep its first merged update, whatever its rates are."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from tests.support.batches import step_on
from tests.support.jobs import PLAIN
from tests.support.manifests import unstored_data
from tests.support.merging import all_standing
from tests.unit.train.factories import DITHER, TEXT, small_model

from atoll.aggregation.merge_round import merge
from atoll.job.methods import DENSE_CODECS
from atoll.job.plan import filled
from atoll.job.presets import preset
from atoll.job.spec import JobSpec
from atoll.numerics.batch import Windows
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.registry import seat_codec
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.frozen_base import Base, freeze
from atoll.numerics.init import initial_global_state, initial_params
from atoll.numerics.ops import NativeOps
from atoll.numerics.schedule import Recipe
from atoll.numerics.state import SeatState
from atoll.numerics.state_layout import param_shapes, seat_layout
from atoll.numerics.tensors import tree_root
from atoll.numerics.update_proof import close_round
from atoll.protocol.families import LINEARS
from atoll.protocol.hashing import sha256
from atoll.protocol.manifest import InitSpec, Manifest, NumericsSpec
from atoll.protocol.method_spec import TensorExponents
from atoll.protocol.model_spec import LoraSpec
from atoll.protocol.optimisers import INNER_OPTIMISERS

SEATS, LENGTHS = 3, (4, 24, 128, 500)
RATES = ("0.000001", "0.0001", "0.01")
MODEL = small_model()
LORA = LoraSpec(rank=4, alpha="16", targets=tuple(LINEARS))
TOKENS = np.frombuffer(TEXT.encode(), dtype=np.uint8)
SGD = {"optimizer": "sgd", "beta1": "0", "beta2": "0", "eps": "0", "weight_decay": "0"}
INNER = {name: {"optimizer": name} for name in INNER_OPTIMISERS} | {
    "muon": {"optimizer": "muon", "momentum": "0.95"},
    "sgd": SGD,
    "momentum": SGD | {"momentum": "0.9"},
}
"""Every optimiser, with other values than the usual ones where those say little."""
DENSE = tuple(DENSE_CODECS)
CODECS_OF = dict.fromkeys(INNER, DENSE) | {"adamw": (*DENSE, "sparse")}
EXACT = {(name, codec) for name in INNER for codec in ("grid8", "fp32")}
"""Of whose updates nearly all is kept; the others drop a part of any update, whatever its grid."""
OTHERS = (-6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6)
"""Grids that are tried beside the first, in exponents."""
OF_BEST = dict.fromkeys(INNER, 0.8) | {"adamw": 0.9, "muon": 0.9}
"""Of what the best grid keeps, where the codec drops a part of any update. Few of SGD's values have
most of its squared length, and a grid is a power of two: its codecs have more to lose by one. All
of Lion's move alike, so that one bit loses by the step between two of a block's scales."""


def manifest_of(optimiser: str, codec: str, rate: str, steps: int, *, adapters: bool) -> Manifest:
    """Of a job of one round; `dct` is that of the method whose rounds are of a step."""
    data = unstored_data(train_tokens=len(TOKENS))
    methods = {"sparse": "sparseloco", "dct": "demo"}
    choices = {
        "model": MODEL, "inner.lr": rate, "inner.steps": steps, "inner.segment": steps,
        "inner.batch": 4, "inner.micro_batch": 4, "rounds": 1,
        "method.name": methods.get(codec, "fedavg"),
        "members.seats": SEATS, "members.min_providers": SEATS,
    } | {f"inner.{name}": value for name, value in INNER[optimiser].items()}  # fmt: skip
    job: JobSpec = PLAIN.but(choices)
    if codec not in methods:
        job = job.but({"method.codec": codec})
    numerics = NumericsSpec(code_digest=sha256(b"code"), probe_digest=sha256(b"probe"))
    if not adapters:
        return job.resolve(data, None, numerics, now=0)
    init = InitSpec(seed=None, cid=data.cid, root=sha256(b"weights"))
    return job.model_copy(update={"lora": LORA}).resolve(data, init, numerics, now=0)


@lru_cache(maxsize=1)
def frozen() -> Base:
    weights = initial_params(param_shapes(MODEL), seed=2)
    return freeze(weights.items(), tree_root(weights), MODEL, LORA, NativeOps())


@lru_cache(maxsize=64)
def trained(optimiser: str, rate: str, adapters: bool) -> dict[int, SeatState]:
    """A seat after so many steps of its first round; rates do not depend on its length."""
    manifest = manifest_of(optimiser, "grid8", rate, max(LENGTHS), adapters=adapters)
    return after_steps(manifest, max(LENGTHS), frozen() if adapters else None)


def after_steps(manifest: Manifest, most: int, base: Base | None) -> dict[int, SeatState]:
    """A seat's states after the steps that are looked at and after the last."""
    recipe = Recipe(MODEL, manifest.inner, most, NativeOps(), base)
    random, found = np.random.default_rng(0), {}
    state = SeatState.initial(initial_global_state(manifest), seat_layout(manifest))
    for step in range(most):
        places = random.integers(0, len(TOKENS) - MODEL.seq - 1, 4).tolist()
        batch = Windows(TOKENS, MODEL.seq).signed(places)
        state = step_on(state, batch, step, recipe).state
        if step + 1 in (*LENGTHS, most):
            found[step + 1] = state
    return found


def merged(manifest: Manifest, last: SeatState) -> float:
    """Share of the seats' change's squared length that the model moved along it.

    All seats end in the same state, so that the rule has nothing to leave out.
    """
    outer = manifest.outer.model_copy(
        update={"kind": "sgd", "lr": "1", "momentum": "0", "beta2": "0", "eps": "0", "period": 0}
    )
    manifest = manifest.model_copy(update={"outer": outer})
    model, seed = initial_global_state(manifest), sha256(b"seed")
    updates = {
        seat: close_round(manifest, model, last, DitherKey(seed, seat))[0] for seat in range(SEATS)
    }
    record = all_standing(range(SEATS), manifest)
    after = merge(model, updates, record=record, data_seed=seed, manifest=manifest)
    assert len(after.inputs.merged) == SEATS
    along, whole = 0.0, 0.0
    for name, p in model.params.items():
        wanted = last.params[name].double() - p.double()
        moved = after.global_state.params[name].double() - p.double()
        along += float((wanted * moved).sum())
        whole += float(wanted.square().sum())
    return along / whole


def said(manifest: Manifest, last: SeatState) -> tuple[float, float]:
    """One less what an update's bytes lack of its squared length: on the first grid, and at most
    on any other, each kind of tensor on its own.
    """
    model, codec = initial_global_state(manifest), seat_codec(manifest.codec, DITHER)
    delta = {name: p - last.params[name] for name, p in model.params.items()}
    layout, first, most = Layout.of_tensors(delta), 0.0, dict[str, float]()
    for other in OTHERS:
        starts = {n: min(e + other, 0) for n, e in manifest.codec.exponents.model_dump().items()}
        kinds = TensorExponents(**starts)
        exponents = {name: kinds.of(name) for name in delta}
        found = codec.decode(codec.encode(delta, exponents), layout, exponents)
        lacks: dict[str, float] = {}
        for name, change in delta.items():
            lack = float((change.double() - found[name].double()).square().sum())
            lacks[kind_of(name)] = lacks.get(kind_of(name), 0.0) + lack
        first = sum(lacks.values()) if other == 0 else first
        most = {kind: min(lack, most.get(kind, lack)) for kind, lack in lacks.items()}
    whole = sum(float(change.double().square().sum()) for change in delta.values())
    return 1 - first / whole, 1 - sum(most.values()) / whole


def kind_of(name: str) -> str:
    """Of tensors that share an exponent."""
    marks = TensorExponents(embedding=-1, matrix=-2, vector=-3)
    return str(marks.of(name))


@pytest.mark.parametrize("adapters", [False, True])
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("optimiser", INNER)
def test_a_first_merged_update_is_not_lost_to_its_grid(
    optimiser: str, rate: str, adapters: bool
) -> None:
    lost = {}
    for steps in LENGTHS:
        last = trained(optimiser, rate, adapters)[steps]
        for codec in CODECS_OF[optimiser]:
            manifest = manifest_of(optimiser, codec, rate, steps, adapters=adapters)
            if (optimiser, codec) in EXACT:
                share, most = merged(manifest, last), 1.0
                least = 0.95
            else:
                share, most = said(manifest, last)
                least = OF_BEST[optimiser] * most
            if share < least:
                lost[codec, steps] = round(share, 3), round(most, 3)
    assert not lost


@pytest.mark.parametrize("adapters", [False, True])
@pytest.mark.parametrize("rate", RATES)
def test_nor_is_one_of_a_single_step(rate: str, adapters: bool) -> None:
    manifest = manifest_of("sgd", "dct", rate, 1, adapters=adapters)
    last = after_steps(manifest, 1, frozen() if adapters else None)[1]
    share, most = said(manifest, last)
    assert share >= 0.95 * most


@pytest.mark.parametrize("codec", [n for n in DENSE if DENSE_CODECS[n].properties.may_feed_back])
@pytest.mark.parametrize(("rate", "steps", "warm_up"), [("0.00002", 16, 0), ("0.0002", 4, 10)])
def test_adapters_of_the_preset_learn_in_rounds_of_small_rates(
    rate: str, steps: int, warm_up: int, codec: str
) -> None:
    changes = {
        "model": MODEL, "inner.lr": rate, "inner.warmup_steps": warm_up, "inner.steps": steps,
        "inner.segment": steps, "inner.batch": 4, "rounds": 1, "method.codec": codec,
        "members.seats": SEATS, "members.min_providers": SEATS, "lora.rank": 4,
    }  # fmt: skip
    job = filled(preset("lora").but(changes))
    like = manifest_of("adamw", "grid8", rate, steps, adapters=True)
    manifest = job.resolve(like.data, like.init, like.numerics, now=0)
    last = after_steps(manifest, steps, frozen_for(manifest))[steps]
    share, most = said(manifest, last)
    assert share >= (0.95 if codec == "grid8" else OF_BEST["adamw"] * most)
    assert merged(manifest, last) > 0.5


def frozen_for(manifest: Manifest) -> Base:
    """The model that a job's own adapters are added to."""
    assert manifest.lora is not None
    weights = initial_params(param_shapes(MODEL), seed=2)
    return freeze(weights.items(), tree_root(weights), MODEL, manifest.lora, NativeOps())
