"""The two states of a job, their bytes and their digests: SPEC.md, section 9.

A tensor is a little-endian array, float32 or int64. A *seat state* is a dict of the groups
`params`, `m`, `v` and `feedback` (each a dict of arrays by parameter), the counters `count` and
`batches`, and the set `local` of parameters that the round opened with as the seat's own. A *global
state* is a dict of `round`, `params`, `outer` (slots, each a dict of arrays) and `exponents`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
from tests.second_client.arithmetic import Array
from tests.second_client.constants import initial_params
from tests.second_client.documents import (
    OUTER_SLOTS,
    Manifest,
    exponent_of,
    is_delayed,
    is_sent,
    local_names,
    moments_of,
    shapes_of,
    trained_of,
)
from tests.second_client.words import ZERO, decode_cbor, encode_cbor, root, sha256, u64

State = dict[str, Any]
Tensors = Mapping[str, Any]
MAGIC = b"ATOLLTN1"
CHUNK = 4096
GROUPS = ("params", "m", "v", "feedback")
SEAT_KIND = "atoll.seat-state.v1"
GLOBAL_KIND = "atoll.global-state.v1"
PARAMS_KIND = "atoll.params.v1"
_DTYPES = {"float32": np.dtype("<f4"), "int64": np.dtype("<i8")}

# ------------------------------------------------------------------------------ tensors as bytes


def tree_root(tensors: Tensors) -> bytes:
    """The SHA-256 tree over the chunks of named tensors; zero where there are none."""
    leaves = []
    for name in sorted(tensors):
        tensor = tensors[name]
        prefix = encode_cbor(["atoll.chunk.v1", name, str(tensor.dtype), list(tensor.shape)])
        raw = tensor.tobytes()
        for index, at in enumerate(range(0, len(raw), CHUNK)):
            leaves.append(sha256(prefix + u64(index) + raw[at : at + CHUNK]))
    return root(leaves, sha256) if leaves else ZERO


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
    """Round 0's: initial weights, exponents of the manifest, slots of zeros (eps² for second).

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
    exponents = {name: exponent_of(name, manifest["codec"]) for name in params}
    return {"round": 0, "params": params, "outer": slots, "exponents": exponents}


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


def global_bytes(model: State) -> bytes:
    fields = {"exponents": model["exponents"], "round": model["round"]}
    return write_blob(GLOBAL_KIND, fields, grouped({"params": model["params"], **model["outer"]}))


def read_global(data: bytes) -> State:
    fields, groups = read_blob(GLOBAL_KIND, data)
    return {"params": groups.pop("params"), "outer": groups, **fields}


def global_digest(model: State) -> bytes:
    """The verdict's mergedDigest."""
    numbers = [model["exponents"][name] for name in sorted(model["exponents"])]
    exponents = b"".join(number.to_bytes(2, "big", signed=True) for number in numbers)
    return sha256(
        GLOBAL_KIND.encode()
        + u64(model["round"])
        + tree_root(model["params"])
        + tree_root(grouped(model["outer"]))
        + sha256(exponents)
    )


# ------------------------------------------------------------------------------------ seat state


def seat_bytes(state: State) -> bytes:
    fields = {"batches": state["batches"], "count": state["count"]}
    return write_blob(SEAT_KIND, fields, grouped({group: state[group] for group in GROUPS}))


def read_seat(data: bytes, manifest: Manifest, round: int) -> State:
    """Raises ValueError unless the state has exactly the tensors that the manifest asks for."""
    fields, groups = read_blob(SEAT_KIND, data)
    state = {group: groups.get(group, {}) for group in GROUPS} | fields
    for group, shapes in seat_shapes(manifest).items():
        found = {name: tensor.shape for name, tensor in state[group].items()}
        if found != shapes or any(t.dtype != np.float32 for t in state[group].values()):
            raise ValueError(f"{group} is not the job's")
    if set(groups) - set(GROUPS) or set(fields) != {"batches", "count"}:
        raise ValueError("not the groups and counters of a seat state")
    return state | {"local": local_names(manifest, round)}


def seat_shapes(manifest: Manifest) -> dict[str, dict[str, tuple[int, ...]]]:
    """The tensors of a seat's state by group."""
    shapes, (first, second) = trained_of(manifest), moments_of(manifest)
    return {
        "params": shapes,
        "m": {name: shapes[name] for name in first},
        "v": {name: shapes[name] for name in second},
        "feedback": shapes if manifest["codec"]["feedback"] != "0" else {},
    }


def opening_state(manifest: Manifest, model: State, brought: State | None) -> State:
    """What a seat opens the model's round with: `brought` is its carried state, None for none."""
    local = local_names(manifest, model["round"])
    if brought is None:
        zeros = {
            group: {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
            for group, shapes in seat_shapes(manifest).items()
        }
        return zeros | {"params": model["params"], "count": 0, "batches": 0, "local": local}
    own = {name: brought["params"][name] for name in local}
    return brought | {"params": model["params"] | own, "batches": 0, "local": local}


def params_root(state: State) -> bytes:
    """Over the parameters that the round opened with from the global model."""
    return tree_root({n: p for n, p in state["params"].items() if n not in state["local"]})


def optimiser_root(state: State) -> bytes:
    """Over what the seat brought: moments, feedback, steps counted, its own parameters."""
    local = {name: state["params"][name] for name in state["local"]}
    groups = {"m": state["m"], "v": state["v"], "feedback": state["feedback"], "local": local}
    tensors = grouped(groups)
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
    return is_delayed(codec) and round > 0 and step == codec["overlap"]


def take_in(state: State, model: State, codec: dict[str, Any]) -> State:
    """p ← a·p + (1 − a)·g of the fragment that the round before the model's merged."""
    own = np.float32(float(codec["mixing"]))
    others = np.float32(1.0) - own
    mixed: dict[str, Array] = {
        name: p * own + model["params"][name] * others
        for name, p in state["params"].items()
        if is_sent(name, codec, model["round"] - 1)
    }
    return state | {"params": state["params"] | mixed}
