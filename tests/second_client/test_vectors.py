"""The vectors of the exact step: atoll writes them again, and the second client gives the same."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.second_client import (
    arithmetic,
    codec,
    constants,
    documents,
    evaluate,
    kernels,
    optimisers,
    provide,
    state,
    words,
)

VECTORS = Path(__file__).parents[1] / "vectors"
Json = dict[str, Any]


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_step", VECTORS / "generate_step.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = _generator()
OPS: Json = json.loads((VECTORS / "exact_ops.json").read_text())
TRAINING: Json = json.loads((VECTORS / "training.json").read_text())
HELD_OUT: Json = json.loads((VECTORS / "held_out.json").read_text())
GRIDS: Json = json.loads((VECTORS / "grids.json").read_text())


def array(item: Json) -> Any:
    """The array that a vector writes out."""
    kind = np.dtype(item["dtype"])
    words = np.frombuffer(bytes.fromhex(item["bits"]), kind.newbyteorder(">"))
    return words.astype(kind).reshape(item["shape"])


def inputs_of(name: str) -> list[Any]:
    """An operation's arguments in their order."""
    return [array(item) for item in OPS[name]["inputs"]]


def assert_bits(found: Any, expected: list[Json]) -> None:
    assert len(found) == len(expected)
    for x, item in zip(found, expected, strict=True):
        assert x.tobytes() == array(item).tobytes()


@pytest.mark.parametrize("name", sorted(GENERATOR.FILES))
def test_atoll_writes_the_same_file_again(name: str) -> None:
    assert GENERATOR.render(GENERATOR.FILES[name]) == (VECTORS / name).read_text()


# Each: inputs, gradients of the results, the case → results and the gradients of the inputs.


def embedding(inputs: list[Any], g: list[Any], case: Json) -> list[Any]:
    ids = np.array(case["ids"])
    (table,) = inputs
    return [kernels.embedding(ids, table), kernels.embedding_gradient(g[0], ids, len(table))]


def linear(inputs: list[Any], g: list[Any], case: Json) -> list[Any]:
    x, *weights = inputs
    cuts = np.cumsum([len(weight) for weight in weights])[:-1]
    y, saved = kernels.linear(x, np.concatenate(weights))
    dx, dw = kernels.linear_gradient(np.concatenate(g, axis=1), saved)
    return [*np.split(y, cuts, axis=1), dx, *np.split(dw, cuts)]


def head(inputs: list[Any], g: list[Any], case: Json) -> list[Any]:
    y, saved = kernels.head(*inputs)
    return [y, *kernels.head_gradient(g[0], saved)]


def frozen_linears(inputs: list[Any], g: list[Any], case: Json) -> list[Any]:
    """Linears whose weights have no gradient."""
    weights = [array(item) for item in case["frozen"]]
    cuts = np.cumsum([len(weight) for weight in weights])[:-1]
    y, saved = kernels.linear(inputs[0], np.concatenate(weights))
    return [*np.split(y, cuts, axis=1), kernels.linear_gradient(np.concatenate(g, 1), saved)[0]]


def frozen_head(inputs: list[Any], g: list[Any], case: Json) -> list[Any]:
    y, saved = kernels.head(inputs[0], array(case["frozen"][0]))
    return [y, kernels.head_gradient(g[0], saved)[0]]


def bias(inputs: list[Any], g: list[Any], case: Json) -> list[Any]:
    return [kernels.add_bias(*inputs), g[0], kernels.bias_gradient(g[0])]


def rms_norm(inputs: list[Any], g: list[Any], case: Json) -> list[Any]:
    y, saved = kernels.rms_norm(*inputs, float(case["eps"]))
    return [y, *kernels.rms_norm_gradient(g[0], saved)]


def rotary(inputs: list[Any], g: list[Any], case: Json) -> list[Any]:
    cosines, sines = array(case["cosines"]), array(case["sines"])
    return [kernels.rotate(inputs[0], cosines, sines), kernels.rotate(g[0], cosines, -sines)]


def attention(inputs: list[Any], g: list[Any], case: Json) -> list[Any]:
    y, saved = kernels.attention(*inputs)
    return [y, *kernels.attention_gradient(g[0], saved)]


def swiglu(inputs: list[Any], g: list[Any], case: Json) -> list[Any]:
    return [kernels.swiglu(*inputs), *kernels.swiglu_gradient(g[0], *inputs)]


def squared_relu(inputs: list[Any], g: list[Any], case: Json) -> list[Any]:
    return [kernels.squared_relu(*inputs), kernels.squared_relu_gradient(g[0], *inputs)]


def dropout(inputs: list[Any], g: list[Any], case: Json) -> list[Any]:
    span = range(case["first"], case["first"] + inputs[0].size)
    keep = arithmetic.kept(case["share"], tuple(case["key"]), case["step"], case["site"], span)
    scale = arithmetic.dropout_scale(case["share"])
    return [kernels.drop(x, keep, scale) for x in (inputs[0], g[0])]


def cross_entropy(inputs: list[Any], g: list[Any], case: Json) -> list[Any]:
    loss, saved = kernels.cross_entropy(inputs[0], np.array(case["targets"]))
    return [np.array([loss]), kernels.cross_entropy_gradient(g[0][0], saved)]


DIFFERENTIABLE: dict[str, Callable[[list[Any], list[Any], Json], list[Any]]] = {
    "embedding": embedding,
    "linear": linear,
    "head": head,
    "frozenLinears": frozen_linears,
    "frozenHead": frozen_head,
    "bias": bias,
    "rmsNorm": rms_norm,
    "rotary": rotary,
    "attention": attention,
    "attentionOverTiles": attention,
    "swiglu": swiglu,
    "squaredRelu": squared_relu,
    "dropout": dropout,
    "crossEntropy": cross_entropy,
    "crossEntropyMasked": cross_entropy,
    "crossEntropyOfNoTarget": cross_entropy,
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_an_operation_has_the_vectors_bits(name: str) -> None:
    case = OPS[name]
    inputs = inputs_of(name)
    g = [array(item) for item in case["gradientsOfResults"]]
    found = DIFFERENTIABLE[name](inputs, g, case)
    assert_bits(found, case["results"] + case["gradientsOfInputs"])


def test_every_operation_of_the_vectors_is_tried() -> None:
    others = {"adamw", "momentum", "orthogonalise", "globalNorm"}
    assert set(OPS) == set(DIFFERENTIABLE) | others


def test_optimisers_have_the_vectors_bits() -> None:
    case = OPS["adamw"]
    inner = {name: repr(case[name]) for name in ("beta1", "beta2", "eps")}
    inner["weight_decay"] = repr(case["decay"])
    scalars = tuple(case[name] for name in ("scale", "rate", "correct1", "correct2"))
    assert_bits(optimisers.adamw(*inputs_of("adamw"), scalars, inner), case["results"])
    keep, add = (np.float32(OPS["momentum"][name]) for name in ("keep", "add"))
    m, g = inputs_of("momentum")
    assert_bits([optimisers.flushed(m * keep + g * add)], OPS["momentum"]["results"])
    found = [optimisers.orthogonalised(matrix) for matrix in inputs_of("orthogonalise")]
    assert_bits(found, OPS["orthogonalise"]["results"])
    norm = optimisers.global_norm(inputs_of("globalNorm"))
    assert_bits([np.array([norm])], OPS["globalNorm"]["results"])


def test_grids_and_elementary_functions_have_the_vectors_bits() -> None:
    line = array(GRIDS["line"])
    for levels in (127, 1 << 18, 1 << 22):
        integers, step = arithmetic.grid(line, 1, levels)
        assert integers[0].tolist() == GRIDS[f"levels{levels}"]["integers"]
        assert_bits([step], [GRIDS[f"levels{levels}"]["step"]])
    high, low, step = arithmetic.split_grid(line, 1)
    assert (high[0].tolist(), low[0].tolist()) == (GRIDS["split"]["high"], GRIDS["split"]["low"])
    assert_bits([step, arithmetic.exact_sum(line, 1)], [GRIDS["split"]["step"], GRIDS["exactSum"]])
    functions = {
        "exp": arithmetic.exp,
        "sigmoid": arithmetic.sigmoid,
        "log": arithmetic.ln,
        "sqrt": arithmetic.root,
    }
    for name, function in functions.items():
        assert_bits([function(array(GRIDS[name]["arguments"]))], [GRIDS[name]["results"]])


@pytest.mark.parametrize("name", TRAINING)
def test_training_has_the_vectors_bits(name: str) -> None:
    case = TRAINING[name]
    manifest = documents.read_manifest(bytes.fromhex(case["manifest"]))
    tokens = np.frombuffer(bytes.fromhex(case["tokens"]), provide.token_type(manifest))
    job = provide.open_job(manifest, tokens, bytes.fromhex(case.get("frozenWeights", "")))
    model = state.initial_global_state(manifest)
    assert state.global_digest(model).hex() == case["globalDigest"]
    assert_bits([model["params"][min(model["params"])]], [case["initialWeights"]])
    steps = range(constants.total_steps(manifest))
    rates = np.array([constants.rate(manifest, step) for step in steps])
    corrections = [constants.corrections(manifest, step + 1) for step in steps]
    has_adam = manifest["inner"]["optimizer"] != "sgd"
    assert_bits([rates], [case["rates"]])
    assert_bits([np.array(corrections if has_adam else np.empty((0, 2)))], [case["corrections"]])

    seat = bytes.fromhex(case["dataSeed"]), case["seat"]
    initial_state = state.initial_state(manifest, model, None)
    assert provide.offsets_of(job, seat, 0) == case["step"]["offsets"]
    batch = provide.batch_of(job, case["step"]["offsets"])
    done = provide.step(initial_state, batch, 0, job, words.dropout_key(*seat))
    assert np.array(done["norm"], ">f8").tobytes().hex() == case["step"]["norm"]
    assert np.array(done["losses"], ">f4").tobytes().hex() == case["step"]["losses"]
    assert [part.hex() for part in state.state_roots(done)] == case["step"]["stateRoots"]

    ran = provide.segment(initial_state, 0, job, model, seat)
    assert ran is not None
    last, word, _ = ran
    assert state.state_digest(state.state_roots(last)).hex() == case["segment"]["stateDigest"]
    assert word.hex() == case["segment"]["workTag"]
    update, carried_state = provide.update_proof(manifest, model, last, seat)
    assert update.hex() == case["update"]
    assert codec.update_root(update).hex() == case["updateRoot"]
    assert state.optimiser_root(carried_state).hex() == case["carriedStateRoot"]


@pytest.mark.parametrize("name", HELD_OUT["jobs"])
def test_the_held_out_loss_has_the_vectors_bits(name: str) -> None:
    case = HELD_OUT["jobs"][name]
    manifest = documents.read_manifest(bytes.fromhex(case["manifest"]))
    tokens = np.frombuffer(bytes.fromhex(case["tokens"]), provide.token_type(manifest))
    params, tables = (
        state.initial_global_state(manifest)["params"],
        constants.rotary(manifest["model"]),
    )
    assert evaluate.windows_of(manifest, len(tokens)) == case["windows"]
    assert evaluate.held_out_loss(params, manifest, tables, tokens).hex() == case["loss"]
    norm = params["model.norm.weight"] * np.float32(np.inf)
    broken = params | {"model.norm.weight": norm}
    found = evaluate.held_out_loss(broken, manifest, tables, tokens)
    assert found.hex() == case["lossNotFinite"] == "7ff8000000000000"


def test_losses_are_joined_by_one_rounding() -> None:
    for case in HELD_OUT["means"]:
        losses = np.frombuffer(bytes.fromhex(case["losses"]), ">f4").astype(float).tolist()
        assert evaluate.mean(losses, case["counts"]).hex() == case["mean"]
