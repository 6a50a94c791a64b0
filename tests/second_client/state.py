"""The two states of a job, their bytes and their digests: SPEC.md, section 9.

A tensor is a little-endian array, float32, int64 or int8. A *seat state* is a dict of the groups
`params`, `m`, `v`, `feedback` and `left` (each a dict of arrays by parameter), and the counters
`count` and `batches`. A *global state* is a dict of `round`, `params`, `outer` (slots, each a dict
of arrays), `exponents`, `moment_exponents`, `moments` (the groups `m`, `rows`, `columns` and
`whole`, empty where it is cold), `m_exponents` and `count`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from tests.second_client.arithmetic import Array
from tests.second_client.constants import initial_params
from tests.second_client.documents import (
    OUTER_SLOTS,
    Manifest,
    carries_params,
    exponent_of,
    is_public,
    is_sent,
    moments_of,
    shapes_of,
    trained_of,
)
from tests.second_client.moments import PARTS, opening_m, opening_v
from tests.second_client.words import ZERO, decode_cbor, encode_cbor, root, sha256, u64

State = dict[str, Any]
Tensors = Mapping[str, Any]
MAGIC = b"ATOLLTN1"
CHUNK = 4096
GROUPS = ("params", "m", "v", "feedback", "left")
SEAT_KIND = "atoll.seat-state.v1"
GLOBAL_KIND = "atoll.global-state.v2"
MOMENTS = ("m", *PARTS)
PARAMS_KIND = "atoll.params.v1"
_DTYPES = {"float32": np.dtype("<f4"), "int64": np.dtype("<i8"), "int8": np.dtype("i1")}

# ------------------------------------------------------------------------------ tensors as bytes


def tree_root(tensors: Tensors) -> bytes:
    """The SHA-256 tree over the chunks of named tensors; zero where there are none."""
    leaves = []
    for name in sorted(tensors):
        tensor = tensors[name]
        prefix = _chunk_prefix(name, tensor.dtype, tensor.shape)
        raw = tensor.tobytes()
        for index, at in enumerate(range(0, len(raw), CHUNK)):
            leaves.append(sha256(prefix + u64(index) + raw[at : at + CHUNK]))
    return root(leaves, sha256) if leaves else ZERO


@lru_cache(maxsize=4096)
def _chunk_prefix(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    return encode_cbor(["atoll.chunk.v1", name, str(dtype), list(shape)])


def grouped(groups: Mapping[str, Tensors]) -> dict[str, Any]:
    """One dict of tensors, named group/parameter."""
    return {
        f"{group}/{name}" if group else name: tensor
        for group, part in groups.items()
        for name, tensor in part.items()
    }


def write_blob(kind: str, fields: Mapping[str, Any], tensors: Tensors) -> bytes:
    """A header that says what follows, and the tensors in ascending order of name."""
    names = sorted(tensors)
    layout = [[n, str(tensors[n].dtype), list(tensors[n].shape)] for n in names]
    header = encode_cbor({"fields": fields, "kind": kind, "tensors": layout})
    body = b"".join(tensors[name].tobytes() for name in names)
    return MAGIC + len(header).to_bytes(4, "little") + header + body


def read_blob(kind: str, data: bytes) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Fields, and tensors by group and parameter. Raises ValueError on any other spelling."""
    at = len(MAGIC) + 4 + int.from_bytes(data[len(MAGIC) : len(MAGIC) + 4], "little")
    header = decode_cbor(data[len(MAGIC) + 4 : at])
    groups: dict[str, dict[str, Any]] = {}
    for full_name, dtype, shape in header["tensors"]:
        group, _, name = full_name.rpartition("/")
        size = prod(shape) * _DTYPES[dtype].itemsize
        tensor = np.frombuffer(data[at : at + size], _DTYPES[dtype]).reshape(shape)
        groups.setdefault(group, {})[name] = tensor
        at += size
    if write_blob(header["kind"], header["fields"], grouped(groups)) != data:
        raise ValueError(f"{kind}: not the canonical bytes")
    if header["kind"] != kind:
        raise ValueError(f"{header['kind']} is not {kind}")
    return header["fields"], groups


# ---------------------------------------------------------------------------------- global state


def initial_global_state(manifest: Manifest, content: bytes = b"") -> State:
    """Round 0's: initial weights, the manifest's exponents, slots of zeros (eps² for second), cold.

    `content` is the parameter set that the manifest names, where it names one.
    """
    seed = manifest["init"]["seed"]
    if seed is None:
        params = read_params(content, manifest)
    else:
        params = initial_params(trained_of(manifest), seed)
    outer = manifest["outer"]
    slots = {}
    for slot in OUTER_SLOTS[outer["kind"]]:
        start = round(Fraction(outer["eps"]) * 2**24) ** 2 if slot == "second" else 0
        slots[slot] = {name: np.full(p.shape, start, np.int64) for name, p in params.items()}
    first, _ = moments_of(trained_of(manifest), manifest["inner"])
    first = first if is_public(manifest["codec"]) else {}
    codec = manifest["codec"]
    exponents = {name: exponent_of(name, codec["exponents"]) for name in params}
    of_moments = {name: exponent_of(name, codec["moment_exponents"]) for name in first}
    return {
        "round": 0,
        "params": params,
        "outer": slots,
        "exponents": exponents,
        "moment_exponents": of_moments,
        "moments": {group: {} for group in MOMENTS},
        "m_exponents": {},
        "count": 0,
    }


def read_params(data: bytes, manifest: Manifest) -> Tensors:
    """A parameter set. Raises ValueError unless it is the one that the manifest names."""
    fields, groups = read_blob(PARAMS_KIND, data)
    params = groups.get("", {})
    shapes = {name: tensor.shape for name, tensor in params.items()}
    if fields or set(groups) != {""} or shapes != shapes_of(manifest["model"]):
        raise ValueError("not the parameters of the model")
    if any(t.dtype != np.float32 or not (np.abs(t) < 2.0**64).all() for t in params.values()):
        raise ValueError("not numbers that a parameter may be")
    if tree_root(params) != manifest["init"]["root"]:
        raise ValueError("these are not the manifest's initial weights")
    return params


FIELDS = ("exponents", "moment_exponents", "m_exponents")


def global_bytes(model: State) -> bytes:
    fields = {name: model[name] for name in (*FIELDS, "count", "round")}
    tensors = {"params": model["params"], **model["outer"], **model["moments"]}
    return write_blob(GLOBAL_KIND, fields, grouped(tensors))


def read_global(data: bytes) -> State:
    """Raises ValueError unless the moments are whole, or none."""
    fields, groups = read_blob(GLOBAL_KIND, data)
    moments = {group: groups.pop(group, {}) for group in MOMENTS}
    state = {"params": groups.pop("params"), "outer": groups, "moments": moments, **fields}
    _check_types(state)
    m, shapes = moments["m"], {name: p.shape for name, p in state["params"].items()}
    if {name: t.shape for name, t in m.items()} != {name: shapes[name] for name in m}:
        raise ValueError("first moments of another shape")
    expected = set(state["moment_exponents"]) if state["m_exponents"] else set()
    if not set(m) == set(state["m_exponents"]) == expected or (fields["count"] > 0) != bool(m):
        raise ValueError("not the first moments that a state has")
    second = set(moments["rows"]) | set(moments["whole"])
    sides = {
        "rows": {name: shapes[name][:1] for name in second if len(shapes[name]) == 2},
        "columns": {name: shapes[name][1:] for name in second if len(shapes[name]) == 2},
        "whole": {name: shapes[name] for name in second if len(shapes[name]) == 1},
    }
    words = [t.view("<u4") for part in PARTS for t in moments[part].values()]
    if any((line >= 0x7F800000).any() for line in words):
        raise ValueError("a sum is negative, minus zero or not finite")
    if not second <= set(m) or any(
        {name: t.shape for name, t in moments[part].items()} != sides[part] for part in PARTS
    ):
        raise ValueError("not the sums that a state has")
    return state


def _check_types(state: State) -> None:
    moments = state["moments"]
    floats = [state["params"], *(moments[part] for part in PARTS)]
    types = {str(t.dtype) for t in moments["m"].values()}
    if len(types) > 1 or not types <= {"int8", "float32"}:
        raise ValueError("first moments are neither all integers nor all floats")
    if any(t.dtype != np.float32 for group in floats for t in group.values()):
        raise ValueError("parameters and sums are float32")
    if any(t.dtype != np.int64 for slot in state["outer"].values() for t in slot.values()):
        raise ValueError("slots are int64")


def exponents_digest(model: State) -> bytes:
    """Of the three lists, one after another."""
    numbers = [model[field][name] for field in FIELDS for name in sorted(model[field])]
    return sha256(b"".join(number.to_bytes(2, "big", signed=True) for number in numbers))


def global_digest(model: State) -> bytes:
    """The verdict's mergedDigest."""
    return sha256(
        GLOBAL_KIND.encode()
        + u64(model["round"])
        + tree_root(model["params"])
        + tree_root(grouped(model["outer"]))
        + exponents_digest(model)
        + tree_root(grouped(model["moments"]))
        + opening_root(model)
    )


def opened_moments(model: State) -> State:
    """`m`, `v` and `count` with which every seat opens the round of a warm state."""
    exponents, sums = model["m_exponents"], model["moments"]
    m = {name: opening_m(n, exponents[name]) for name, n in sums["m"].items()}
    second = (*sums["rows"], *sums["whole"])
    return {"m": m, "v": {n: opening_v(m[n], sums, n) for n in second}, "count": model["count"]}


def opening_root(model: State) -> bytes:
    """What a judge reads instead of working the opening out."""
    if not model["m_exponents"]:
        return ZERO
    opened = opened_moments(model) | {"params": {}, "feedback": {}, "left": {}}
    return optimiser_root(opened)


# ------------------------------------------------------------------------------------ seat state


def seat_bytes(state: State) -> bytes:
    fields = {"batches": state["batches"], "count": state["count"]}
    return write_blob(SEAT_KIND, fields, grouped({group: state[group] for group in GROUPS}))


def read_seat(data: bytes, manifest: Manifest) -> State:
    """Raises ValueError unless the state has exactly the tensors that the manifest asks for."""
    fields, groups = read_blob(SEAT_KIND, data)
    state = {group: groups.get(group, {}) for group in GROUPS} | fields
    for group, shapes in seat_shapes(manifest).items():
        found = {name: tensor.shape for name, tensor in state[group].items()}
        if found != shapes or any(t.dtype != np.float32 for t in state[group].values()):
            raise ValueError(f"{group} is not the job's")
    if set(groups) - set(GROUPS) or set(fields) != {"batches", "count"}:
        raise ValueError("not the groups and counters of a seat state")
    return state


def seat_shapes(manifest: Manifest) -> dict[str, dict[str, tuple[int, ...]]]:
    """The tensors of a seat's state by group."""
    shapes = trained_of(manifest)
    first, second = moments_of(shapes, manifest["inner"])
    fed_back = shapes if manifest["codec"]["feedback"] != "0" else {}
    return {
        "params": shapes,
        "m": first,
        "v": second,
        "feedback": fed_back,
        "left": fed_back,
    }


def opening_state(manifest: Manifest, model: State, brought: State | None) -> State:
    """What a seat opens the model's round with.

    `brought` is its carried state, None for none: where nothing is, and always in a public job.
    """
    if is_public(manifest["codec"]) and brought is not None:
        raise ValueError("a public job's rounds open from public data alone")
    if brought is None:
        zeros = {
            group: {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
            for group, shapes in seat_shapes(manifest).items()
        }
        opened = opened_moments(model) if model["m_exponents"] else {}
        start = {"params": model["params"], "count": 0, "batches": 0}
        return zeros | start | opened
    return brought if carries_params(manifest["codec"]) else brought | {"params": model["params"]}


def params_root(state: State) -> bytes:
    """Over the parameters."""
    return tree_root(state["params"])


def optimiser_root(state: State) -> bytes:
    """Over moments, both feedbacks and steps counted."""
    tensors = grouped({group: state[group] for group in ("m", "v", "feedback", "left")})
    if state["count"] == 0 and not any(any(tensor.tobytes()) for tensor in tensors.values()):
        return ZERO
    return tree_root(tensors | {"count": np.array(state["count"], np.int64)})


def state_roots(state: State) -> tuple[bytes, bytes, bytes, bytes]:
    """Parameters, optimiser, buffers (there are none), and the counter of drawn batches."""
    counter = sha256(b"atoll.rng.v1" + u64(state["batches"]))
    return params_root(state), optimiser_root(state), ZERO, counter


def state_digest(roots: tuple[bytes, bytes, bytes, bytes]) -> bytes:
    return sha256(b"atoll.state.v1" + b"".join(roots))


def takes_in(manifest: Manifest, round: int, step: int) -> bool:
    """Whether a step of the round begins with what the round before it merged."""
    codec = manifest["codec"]
    return carries_params(codec) and round > 0 and step == codec["overlap"]


def take_in(state: State, model: State, codec: dict[str, Any]) -> State:
    """p ← a·p + (1 − a)·g of the fragment that the round before the model's merged."""
    own = np.float32(float(codec["mixing"]))
    others = np.float32(1.0) - own
    mixed: dict[str, Array] = {
        name: p * own + model["params"][name] * others
        for name, p in state["params"].items()
        if is_sent(name, codec, model["round"] - 1)
    }
    return state | {"params": state["params"] | mixed, "feedback": state["left"]}
