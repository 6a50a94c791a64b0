"""The vectors that Python and Solidity share, read by the second client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.second_client import (
    arithmetic,
    codec,
    constants,
    documents,
    kernels,
    moments,
    money,
    provide,
    sections,
    state,
    words,
)

VECTORS = Path(__file__).parents[1] / "vectors"
Json = dict[str, Any]


def load(name: str) -> Json:
    return json.loads((VECTORS / name).read_text())


def unhex(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def test_pieces_and_update_roots() -> None:
    for case in load("pieces.json")["strings"]:
        data = unhex(case["data"])
        assert words.piece_root(data) == unhex(case["root"])
        assert codec.update_root(data) == unhex(case["updateRoot"])
        leaf, siblings = words.keccak(unhex(case["piece"])), [unhex(s) for s in case["proof"]]
        assert words.proves(leaf, case["index"], case["count"], unhex(case["root"]), siblings)


def test_dither() -> None:
    vectors = load("dither.json")
    for case in vectors["dithers"]:
        seat = unhex(vectors["dataSeed"]), case["seat"]
        place = case["section"], case["piece"]
        assert codec.dither_key(seat, *place) == unhex(case["key"])
        drawn = unhex(case["noise"])
        assert codec.noise(seat, *place, len(drawn)) == drawn


def test_updates_of_dense_codecs() -> None:
    vectors = load("updates.json")
    shapes = {name: tuple(shape) for name, shape in vectors["shapes"].items()}
    values, at, delta = np.frombuffer(unhex(vectors["delta"]), ">f4").astype(np.float32), 0, {}
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        delta[name] = values[at : at + size].reshape(shape)
        at += size
    seat = unhex(vectors["dataSeed"]), vectors["seat"]
    for case in vectors["cases"]:
        kind, exponents = case["codec"], case["exponents"]
        update = codec.encode(kind, delta, exponents, seat)
        assert update == unhex(case["bytes"])
        body = update[len(codec.header(kind, shapes, exponents)) :]
        merged = codec.merged_integers(kind, body, at, seat).tolist()
        assert merged == [int(value) for value in case["row"]]


def test_state_trees() -> None:
    for case in load("states.json")["roots"]:
        tensors = {
            item["name"]: np.frombuffer(
                unhex(item["data"]), np.dtype(item["dtype"]).newbyteorder("<")
            ).reshape(item["shape"])
            for item in case["tensors"]
        }
        assert state.tree_root(tensors) == unhex(case["root"])


MOMENTS = load("moments.json")


def array(item: Json) -> Any:
    kind = np.dtype(item["dtype"])
    words = np.frombuffer(bytes.fromhex(item["bits"]), kind.newbyteorder(">"))
    return words.astype(kind).reshape(item["shape"])


@pytest.mark.parametrize("case", MOMENTS["sums"], ids=lambda case: case["name"])
def test_sums_of_second_moments(case: Json) -> None:
    v = {name: array(item) for name, item in case["second"].items()}
    shapes = {name: tensor.shape for name, tensor in v.items()}
    if case["section"] is None:
        with pytest.raises(ValueError, match="not finite"):
            moments.sums_of(v)
        return
    section = moments.write_factored(moments.sums_of(v), shapes)
    assert section == unhex(case["section"])
    read = moments.named_sums(moments.read_factored(section, shapes), shapes)
    assert moments.write_factored(read, shapes) == section


@pytest.mark.parametrize("case", MOMENTS["openings"], ids=lambda case: case["name"])
def test_openings(case: Json) -> None:
    sums = {part: {"w": array(case[part])} if part in case else {} for part in moments.PARTS}
    m = moments.initial_m(array(case["merged"]), case["exponent"])
    assert m.tobytes() == array(case["m"]).tobytes()
    assert moments.initial_v(m, sums, "w").tobytes() == array(case["v"]).tobytes()
    if "rows" in case:
        total = moments.sums_along(sums["rows"]["w"], 0)
        assert total.tobytes() == array(case["total"]).tobytes()


def test_sections_of_updates() -> None:
    for case in MOMENTS["sections"]:
        parts, update = [unhex(part) for part in case["sections"]], unhex(case["update"])
        assert sections.joined(parts) == update
        assert sections.cut(update, [len(part) for part in parts]) == parts


@pytest.mark.parametrize("case", MOMENTS["states"], ids=lambda case: case["name"])
def test_global_states(case: Json) -> None:
    model = state.read_global(unhex(case["bytes"]))
    assert state.global_bytes(model) == unhex(case["bytes"])
    roots = {
        "params": state.tree_root(model["params"]),
        "outer": state.tree_root(state.grouped(model["outer"])),
        "exponents": state.exponents_digest(model),
        "moments": state.tree_root(state.grouped(model["moments"])),
        "initial_state": state.initial_root(model),
    }
    assert roots == {name: unhex(root) for name, root in case["roots"].items()}
    assert state.global_digest(model) == unhex(case["digest"])


@pytest.mark.parametrize("case", load("tables.json")["tables"])
def test_tables(case: Json) -> None:
    steps = case["steps"]
    inner = case["inner"] | {"steps": steps}
    manifest = {"model": case["model"], "inner": inner, "terms": {"rounds": 1}}
    rates = [constants.rate(manifest, step) for step in range(steps)]
    assert np.array(rates, ">f8").tobytes() == unhex(case["rates"])
    pairs = [constants.corrections(manifest, count) for count in range(1, steps + 1)]
    expected = unhex(case["corrections"])
    assert np.array(pairs, ">f8").tobytes() == expected or inner["optimizer"] == "sgd"
    rotary = np.stack(constants.rotary(case["model"]), axis=-1)
    assert rotary.astype(">f4").tobytes() == unhex(case["rotary"])
    assert constants.tables_root(manifest) == unhex(case["root"])


def test_state_digests() -> None:
    vectors = load("trace.json")
    roots = tuple(unhex(part) for part in vectors["stateRoots"])
    assert state.state_digest(roots) == unhex(vectors["stateDigest"])


def test_work_tags() -> None:
    for case in load("trace.json")["works"]:
        work = b""
        for norm, losses in zip(case["norms"], case["losses"], strict=True):
            (value,) = np.frombuffer(unhex(norm), ">f8")
            values = np.concatenate([np.frombuffer(unhex(loss), ">f4") for loss in losses])
            work += provide.work_of(float(value), values)
        assert words.keccak(work) == unhex(case["workTag"])


def test_the_demos_manifest_and_its_terms() -> None:
    vectors = load("manifest.json")
    data = unhex(vectors["bytes"])
    manifest = documents.read_manifest(data)
    assert words.sha256(data) == unhex(vectors["digest"])
    terms = money.read_terms(manifest["terms"])
    assert money.terms_hash(terms) == unhex(vectors["termsHash"])
    plain = [terms[name] for name in money.TERMS]
    assert [str(v) if isinstance(v, int) else v for v in plain] == [
        unhex(v) if str(v).startswith("0x") else str(v) for v in vectors["terms"]
    ]


EXACT = load("exact.json")


def floats(bits: list[int]) -> Any:
    return np.array(bits, np.uint32).view(np.float32)


def test_philox_and_what_it_drops() -> None:
    for case in EXACT["philox"]:
        drawn = arithmetic.philox([[word] for word in case["counter"]], tuple(case["key"]))
        assert [int(word[0]) for word in drawn] == case["words"]
    for case in EXACT["dropped"]:
        x, scale = floats(case["x"]), arithmetic.dropout_scale(case["share"])
        span = range(case["first"], case["first"] + len(x))
        place = tuple(case["key"]), case["step"], case["site"]
        keep = arithmetic.kept(case["share"], *place, span)
        assert scale.view(np.uint32) == case["scale"]
        assert kernels.drop(x, keep, scale).view(np.uint32).tolist() == case["y"]


@arithmetic.quiet
def test_grids_and_functions_at_their_edges() -> None:
    for case in EXACT["grids"]:
        integers, step = arithmetic.grid(floats(case["x"]), 0, case["levels"])
        assert integers.astype(np.int64).tolist() == case["integers"]
        assert step.view(np.uint32).tolist() == [case["step"]]
    functions = {
        "exp": arithmetic.exp,
        "log": arithmetic.ln,
        "sigmoid": arithmetic.sigmoid,
        "root": arithmetic.root,
        "reciprocalRoot": lambda x: np.float32(1.0) / arithmetic.root(x),
        "squaredRelu": kernels.squared_relu,
    }
    for case in EXACT["elementwise"]:
        y = arithmetic.one_nan(functions[case["name"]](floats(case["x"])))
        assert y.view(np.uint32).tolist() == case["y"], case["name"]
