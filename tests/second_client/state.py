"""The two states of a job, their bytes and their digests: SPEC.md, section 9.

A tensor is a little-endian array, float32, int64 or int8. A *seat state* is a dict of the groups
`params`, `m`, `v`, `feedback` and `left` (each a dict of arrays by parameter), and the counters
`count` and `batches`. A *global state* is a dict of `round`, `params`, `outer` (slots, each a dict
of arrays), `exponents`, `moment_exponents`, `moments` (the groups `m`, `rows`, `columns` and
`whole`, empty where it is cold), `m_exponents` and `count`.
"""

from __future__ import annotations

import re
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
from tests.second_client.moments import PARTS, initial_m, initial_v
from tests.second_client.refusals import integer, of, refuse
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
    start = len(MAGIC) + 4
    refuse(len(data) < start or data[: len(MAGIC)] != MAGIC, f"{kind}: another beginning")
    at = start + int.from_bytes(data[len(MAGIC) : start], "little")
    refuse(at - start > MOST_HEADER or at > len(data), f"{kind}: no room for the header")
    header = decode_cbor(data[start:at])
    refuse(not HEADER(header), f"{kind}: no header of a state")
    refuse(header["kind"] != kind, f"{header['kind']} is not {kind}")
    names = [name for name, _, _ in header["tensors"]]
    refuse(names != sorted(set(names)), f"{kind}: names that do not ascend")
    sizes = [prod(shape) * _DTYPES[dtype].itemsize for _, dtype, shape in header["tensors"]]
    refuse(at + sum(sizes) != len(data), f"{kind}: not as many bytes as its tensors have")
    groups: dict[str, dict[str, Any]] = {}
    for (full_name, dtype, shape), size in zip(header["tensors"], sizes, strict=True):
        group, _, name = full_name.partition("/") if kind != PARAMS_KIND else ("", "", full_name)
        refuse(not name, f"{kind}: a tensor of no group")
        tensor = np.frombuffer(data[at : at + size], _DTYPES[dtype]).reshape(shape)
        groups.setdefault(group, {})[name] = tensor
        at += size
    return header["fields"], groups


def is_tensor(entry: Any) -> bool:
    """Name, dtype and shape: of at most four sizes, none of them zero."""
    if not isinstance(entry, list) or len(entry) != 3:
        return False
    name, dtype, shape = entry
    is_named = isinstance(name, str) and NAME.fullmatch(name) is not None
    is_typed = isinstance(dtype, str) and dtype in _DTYPES
    is_shape = isinstance(shape, list) and len(shape) <= 4
    return is_named and is_typed and is_shape and all(map(integer(1, 2**40 - 1), shape))


def is_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 1 << 16 and all(map(is_tensor, value))


def is_exponents(value: Any) -> bool:
    """A map of parameters to small integers."""
    return isinstance(value, dict) and all(map(integer(-64, 64), value.values()))


NAME = re.compile("[A-Za-z0-9_./-]{1,200}")
MOST_HEADER = 4 << 20
HEADER = of(
    {
        "fields": lambda value: isinstance(value, dict),
        "kind": lambda value: isinstance(value, str),
        "tensors": is_list,
    }
)
COUNTER = integer(0, 2**48 - 1)
"""So that nothing counts beyond 64 bits."""
FIELDS = ("exponents", "moment_exponents", "m_exponents")
GLOBAL_FIELDS = of(
    {"count": COUNTER, "round": integer(0, 2**32 - 1), **dict.fromkeys(FIELDS, is_exponents)}
)
SEAT_FIELDS = of({"count": COUNTER, "batches": COUNTER})
ROLLOUTS = of({str(i): integer(0, 2**32 - 1) for i in range(8)})


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


def global_bytes(model: State) -> bytes:
    fields = {name: model[name] for name in (*FIELDS, "count", "round")}
    tensors = {"params": model["params"], **model["outer"], **model["moments"]}
    return write_blob(GLOBAL_KIND, fields, grouped(tensors))


def read_global(data: bytes) -> State:
    """Raises ValueError unless the moments are whole, or none."""
    fields, groups = read_blob(GLOBAL_KIND, data)
    refuse(not GLOBAL_FIELDS(fields), "not the fields of a global state")
    moments = {group: groups.pop(group, {}) for group in MOMENTS}
    state = {"params": groups.pop("params", {}), "outer": groups, "moments": moments, **fields}
    _check_types(state)
    shapes = {name: p.shape for name, p in state["params"].items()}
    refuse(set(fields["exponents"]) != set(shapes), "not an exponent a parameter")
    refuse(not set(fields["moment_exponents"]) <= set(shapes), "an exponent of no parameter")
    m, m_exponents = moments["m"], fields["m_exponents"]
    expected = set(fields["moment_exponents"]) if m else set()
    is_whole = set(m) == set(m_exponents) == expected and (fields["count"] > 0) == bool(m)
    refuse(not is_whole, "not the first moments that a state has")
    refuse(any(t.shape != shapes[n] for n, t in m.items()), "first moments of another shape")
    _check_sums(moments, shapes)
    return state


def _check_sums(moments: dict[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    words = [t.view("<u4") for part in PARTS for t in moments[part].values()]
    is_odd = any((line >= 0x7F800000).any() for line in words)
    refuse(is_odd, "a sum is negative, minus zero or not finite")
    second = set(moments["rows"]) | set(moments["whole"])
    refuse(not second <= set(moments["m"]), "sums of no first moment")
    sides = {
        "rows": {name: shapes[name][:1] for name in second if len(shapes[name]) > 1},
        "columns": {name: shapes[name][1:] for name in second if len(shapes[name]) > 1},
        "whole": {name: shapes[name] for name in second if len(shapes[name]) == 1},
    }
    for part in PARTS:
        found = {name: t.shape for name, t in moments[part].items()}
        refuse(found != sides[part], "not the sums that a state has")


def _check_types(state: State) -> None:
    moments, params = state["moments"], state["params"]
    floats = [params, *(moments[part] for part in PARTS)]
    types = {str(t.dtype) for t in moments["m"].values()}
    is_one = len(types) <= 1 and types <= {"int8", "float32"}
    refuse(not is_one, "first moments are neither all integers nor all floats")
    is_odd = any(t.dtype != np.float32 for group in floats for t in group.values())
    refuse(is_odd, "parameters and sums are float32")
    refuse(not set(state["outer"]) <= {"momentum", "second", "buffer"}, "a group of no state")
    shapes = {name: p.shape for name, p in params.items()}
    for slot in state["outer"].values():
        refuse({n: t.shape for n, t in slot.items()} != shapes, "slots are of every parameter")
        refuse(any(t.dtype != np.int64 for t in slot.values()), "slots are int64")


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
        + initial_root(model)
    )


def opened_moments(model: State) -> State:
    """`m`, `v` and `count` with which every seat opens the round of a warm state."""
    exponents, sums = model["m_exponents"], model["moments"]
    m = {name: initial_m(n, exponents[name]) for name, n in sums["m"].items()}
    second = (*sums["rows"], *sums["whole"])
    return {"m": m, "v": {n: initial_v(m[n], sums, n) for n in second}, "count": model["count"]}


def initial_root(model: State) -> bytes:
    """What a judge reads instead of working the opening out."""
    if not model["m_exponents"]:
        return ZERO
    opened = opened_moments(model) | {"params": {}, "feedback": {}, "left": {}}
    return optimiser_root(opened)


# ------------------------------------------------------------------------------------ seat state


def seat_bytes(state: State) -> bytes:
    fields: dict[str, Any] = {"batches": state["batches"], "count": state["count"]}
    rollouts = state.get("rollouts", ZERO)
    if rollouts != ZERO:
        words = (rollouts[at : at + 4] for at in range(0, 32, 4))
        fields["rollouts"] = {str(i): int.from_bytes(word, "big") for i, word in enumerate(words)}
    return write_blob(SEAT_KIND, fields, grouped({group: state[group] for group in GROUPS}))


def read_seat(data: bytes, manifest: Manifest) -> State:
    """Raises ValueError unless the state has exactly the tensors that the manifest asks for."""
    fields, groups = read_blob(SEAT_KIND, data)
    state = {group: groups.get(group, {}) for group in GROUPS} | fields
    if "rollouts" in fields:
        words = fields.pop("rollouts")
        is_whole = ROLLOUTS(words) and any(words.values())
        refuse(not is_whole, "rollouts of other than eight words, or of none")
        numbers = (words[str(i)] for i in range(8))
        state["rollouts"] = b"".join(word.to_bytes(4, "big") for word in numbers)
    for group, shapes in seat_shapes(manifest).items():
        found = {name: tensor.shape for name, tensor in state[group].items()}
        if found != shapes or any(t.dtype != np.float32 for t in state[group].values()):
            raise ValueError(f"{group} is not the job's")
    is_odd = bool(set(groups) - set(GROUPS)) or not SEAT_FIELDS(fields)
    refuse(is_odd, "not the groups and counters of a seat state")
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


def initial_state(manifest: Manifest, model: State, brought: State | None) -> State:
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
    """Parameters, optimiser, what was sampled in the round, and the counter of drawn batches."""
    counter = sha256(b"atoll.rng.v1" + u64(state["batches"]))
    return params_root(state), optimiser_root(state), state.get("rollouts", ZERO), counter


def state_digest(roots: tuple[bytes, bytes, bytes, bytes]) -> bytes:
    return sha256(b"atoll.state.v1" + b"".join(roots))


def mixes_in(manifest: Manifest, round: int, step: int) -> bool:
    """Whether a step of the round begins with what the round before it merged."""
    codec = manifest["codec"]
    return carries_params(codec) and round > 0 and step == codec["overlap"]


def mix_in(state: State, model: State, codec: dict[str, Any]) -> State:
    """p ← a·p + (1 − a)·g of the fragment that the round before the model's merged."""
    own = np.float32(float(codec["mixing"]))
    others = np.float32(1.0) - own
    mixed: dict[str, Array] = {
        name: p * own + model["params"][name] * others
        for name, p in state["params"].items()
        if is_sent(name, codec, model["round"] - 1)
    }
    return state | {"params": state["params"] | mixed, "feedback": state["left"]}
