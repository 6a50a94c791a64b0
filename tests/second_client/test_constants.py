"""What a job fixes before it starts: initial weights, rates, corrections, rotary tables, root."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.second_client import constants, documents

from atoll.numerics.decimals import rotary_tables
from atoll.numerics.init import initial_params
from atoll.numerics.schedule_tables import schedule_of, tables_root
from atoll.numerics.state_layout import param_shapes
from atoll.protocol.families import LAYER_KINDS
from atoll.protocol.method_spec import InnerSpec
from atoll.protocol.model_spec import ModelSpec

CASES = 10_000
"""Numbers, of each function at least."""
MODELS = 60
SCHEDULES = 150
ROLL = random.Random(16)
INNER = {
    "optimizer": "adamw", "lr": "0.003", "momentum": "0", "beta1": "0.9", "beta2": "0.99",
    "eps": "0.00000001", "weight_decay": "0.1", "dropout": "0", "clip": "1",
    "schedule": "cosine", "warmup_steps": 10, "steps": 8, "batch": 8, "segment": 4,
    "micro_batch": 8, "lanes": 1,
}  # fmt: skip


def fraction(digits: int, below: int = 1) -> str:
    """A decimal string of the law's spelling, above 0."""
    value = ROLL.randrange(1, below * 10**digits)
    whole, rest = divmod(value, 10**digits)
    return f"{whole}.{rest:0{digits}}".rstrip("0").rstrip(".")


def any_model() -> dict[str, Any]:
    heads, width = ROLL.randrange(1, 5), ROLL.randrange(8, 50)
    keys = ROLL.choice([keys for keys in range(1, heads + 1) if heads % keys == 0])
    return {
        "kind": ROLL.choice(list(LAYER_KINDS)), "vocab": ROLL.randrange(2, 60), "width": width,
        "heads": heads,
        "kv_heads": keys, "layers": ROLL.randrange(1, 4), "mlp": ROLL.choice(["swiglu", "relu2"]),
        "ffn": ROLL.randrange(8, 30), "seq": ROLL.randrange(2, 40), "tied": ROLL.random() < 0.5,
        "norm_eps": "0.00001", "rope_base": ROLL.randrange(2, 10**9),
        "head_dim": 2 * ROLL.randrange(1, 9), "qkv_bias": ROLL.random() < 0.5,
        "qk_norm": ROLL.random() < 0.5, "rope_scaling": any_scaling(),
    }  # fmt: skip


def any_scaling() -> dict[str, Any]:
    kind, low = ROLL.choice(["none", "linear", "llama3"]), ROLL.randrange(1, 4)
    fields = {"kind": kind, "factor": "1", "low": "0", "high": "0", "positions": 0}
    if kind != "none":
        fields["factor"] = ROLL.choice(["1", "1.5", "4", "8", "32.03125", "1000"])
    if kind == "llama3":
        fields |= {"low": str(low), "high": str(low + ROLL.randrange(1, 4))}
        fields["positions"] = ROLL.randrange(1, 2000)
    return fields


def any_manifest() -> documents.Manifest:
    """As much of a manifest as its tables follow from."""
    inner = INNER | {
        "optimizer": ROLL.choice(["adamw", "muon"]),
        "lr": fraction(ROLL.randrange(1, 18), 100),
        "beta1": fraction(ROLL.randrange(1, 6)),
        "beta2": fraction(ROLL.randrange(1, 6)),
        "schedule": ROLL.choice(["constant", "cosine"]),
        "warmup_steps": ROLL.choice([0, 1, 5, 31, 100]),
        "steps": ROLL.randrange(1, 30),
    }
    return {"model": any_model(), "inner": inner, "terms": {"rounds": ROLL.randrange(1, 8)}}


def test_initial_weights_have_every_bit() -> None:
    compared = 0
    for _ in range(MODELS):
        model, seed = any_model(), ROLL.getrandbits(64)
        shapes = param_shapes(ModelSpec.model_validate(model))
        assert documents.shapes_of(model) == shapes
        mine, theirs = constants.initial_params(shapes, seed), initial_params(shapes, seed)
        assert list(mine) == list(theirs)
        assert all(mine[name].tobytes() == theirs[name].numpy().tobytes() for name in mine)
        compared += sum(weights.size for weights in mine.values())
    assert compared > CASES


def test_the_schedule_is_the_same_at_every_step() -> None:
    compared = 0
    for _ in range(SCHEDULES):
        manifest = any_manifest()
        steps = constants.total_steps(manifest)
        inner = manifest["inner"] | {"segment": 1}
        schedule = schedule_of(InnerSpec.model_validate(inner), steps)
        assert [constants.rate(manifest, step) for step in range(steps)] == schedule.rates.tolist()
        for count in (*range(1, steps + 1), steps + 1, steps + 1000):
            assert constants.corrections(manifest, count) == schedule.correction(count)
            compared += 2
    assert compared > CASES


@pytest.mark.parametrize(
    ("beta", "count"), [("0.5", 54), ("0.25", 27), ("0.75", 27), ("0.875", 18)]
)
def test_a_correction_that_is_a_tie_is_rounded_to_even(beta: str, count: int) -> None:
    manifest = any_manifest()
    manifest["inner"] |= {"beta1": beta, "beta2": "0.9", "steps": 60, "segment": 1}
    exact = 1 - Fraction(beta) ** count
    below, above = math.nextafter(float(exact), 0.0), math.nextafter(float(exact), 2.0)
    assert exact in ((Fraction(float(exact)) + Fraction(x)) / 2 for x in (below, above))
    expected = 1.0 / float(exact)
    steps = constants.total_steps(manifest)
    schedule = schedule_of(InnerSpec.model_validate(manifest["inner"]), steps)
    assert constants.corrections(manifest, count)[0] == expected
    assert schedule.correction(count)[0] == expected


def test_rotary_tables_have_every_bit() -> None:
    compared = 0
    for _ in range(2 * MODELS):
        model = any_model()
        spec = ModelSpec.model_validate(model)
        theirs = rotary_tables(spec.seq, spec.head_dim, spec.rope_base, spec.rope_scaling)
        for mine, expected in zip(constants.rotary(model), theirs, strict=True):
            assert mine.tobytes() == np.ascontiguousarray(expected).tobytes()
            compared += mine.size
    assert compared > CASES


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_the_tables_root_is_the_same(optimizer: str) -> None:
    for _ in range(8):
        manifest = any_manifest()
        adam = {"beta1": "0", "beta2": "0", "eps": "0"} if optimizer == "sgd" else {}
        manifest["inner"] |= {"optimizer": optimizer, "segment": 1} | adam
        model = ModelSpec.model_validate(manifest["model"])
        inner = InnerSpec.model_validate(manifest["inner"])
        root = tables_root(model, inner, constants.total_steps(manifest))
        assert constants.tables_root(manifest) == root
