"""States have one encoding and a digest over every bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from libipld import decode_dag_cbor
from tests.support.moments import warm
from tests.unit.train.factories import DATA_SEED, SMALL_LAYOUT, Job, seat_state

from atoll.numerics.errors import MalformedState
from atoll.numerics.initial_state import open_round
from atoll.numerics.state import GlobalState, SeatState, rng_digest
from atoll.numerics.state_layout import (
    MAX_HEADER_BYTES,
    max_state_bytes,
    param_count,
    param_shapes,
    seat_layout,
)
from atoll.numerics.step import state_roots
from atoll.numerics.tensors import CHUNK_BYTES, MAGIC, tree_root
from atoll.protocol.canonical import encode
from atoll.protocol.hashing import sha256
from atoll.protocol.merkle import merkle_root
from atoll.protocol.types import ZERO_DIGEST, SeatIndex
from atoll.train.course import open_course


def global_state() -> GlobalState:
    params = seat_state().params
    momentum = {name: torch.arange(p.numel()).view(p.shape) for name, p in params.items()}
    return GlobalState(3, params, {"momentum": momentum}, {"a.weight": -11, "b.weight": 4})


def with_header(data: bytes, **changes: object) -> bytes:
    """The same blob with some header entries replaced."""
    start = len(MAGIC) + 4
    end = start + int.from_bytes(data[len(MAGIC) : start], "little")
    header = decode_dag_cbor(data[start:end])
    assert isinstance(header, dict)
    encoded = encode(header | changes)  # type: ignore[operator]
    return MAGIC + len(encoded).to_bytes(4, "little") + encoded + data[end:]


def test_a_seat_state_reads_back_as_it_was_written() -> None:
    state = seat_state()
    again = SeatState.from_bytes(state.to_bytes(), SMALL_LAYOUT)
    assert again.to_bytes() == state.to_bytes()
    assert state_roots(again) == state_roots(state)
    assert (again.count, again.batches) == (3, 2)


def test_a_state_goes_to_a_device_whole() -> None:
    state = replace(seat_state(), residual={"a.weight": torch.ones(2)})
    there = state.on(torch.device("meta"))
    groups = (there.params, there.m, there.v, there.feedback, there.residual)
    assert all(groups)
    assert {t.device.type for group in groups for t in group.values()} == {"meta"}
    assert (there.count, there.batches) == (state.count, state.batches)
    assert state.on(torch.device("cpu")) is state


def test_a_global_state_reads_back_as_it_was_written() -> None:
    state = global_state()
    again = GlobalState.from_bytes(state.to_bytes())
    assert again.to_bytes() == state.to_bytes()
    assert again.digest() == state.digest()
    assert (again.round, again.exponents) == (3, state.exponents)


def test_tensors_are_read_into_aligned_memory() -> None:
    again = SeatState.from_bytes(b"".join(seat_state().pieces()), SMALL_LAYOUT)
    assert all(t.data_ptr() % 64 == 0 for t in again.params.values())


def test_special_values_keep_their_bits() -> None:
    odd = torch.tensor([0.0, -0.0, float("inf"), float("nan"), 1e-45])
    state = GlobalState(0, {"x": odd}, {}, {"x": 0})
    back = GlobalState.from_bytes(state.to_bytes()).params["x"]
    assert torch.equal(back.view(torch.int32), odd.view(torch.int32))


@pytest.mark.parametrize(
    "other",
    [
        {"b": torch.zeros(4)},
        {"a": torch.zeros(2, 2)},
        {"a": torch.zeros(2, dtype=torch.int64)},
        {"a": torch.zeros(4), "b": torch.zeros(1)},
    ],
    ids=["name", "shape", "dtype", "more"],
)
def test_equal_bytes_under_another_name_shape_or_dtype_have_another_root(
    other: dict[str, torch.Tensor],
) -> None:
    assert tree_root({"a": torch.zeros(4)}) != tree_root(other)


def test_the_order_of_insertion_does_not_matter() -> None:
    a, b = torch.ones(2), torch.zeros(3)
    assert tree_root({"a": a, "b": b}) == tree_root({"b": b, "a": a})


def test_no_tensors_have_the_zero_root() -> None:
    assert tree_root({}) == ZERO_DIGEST


def test_a_root_is_that_of_the_laws_tree_over_chunks_of_4_kib() -> None:
    """SPEC.md, section 9, written once more with nothing but hashes."""
    tensors = {"b": torch.arange(3, dtype=torch.int64), "a": torch.arange(2500.0).reshape(50, 50)}
    leaves = []
    for name, dtype, shape in (("a", "float32", [50, 50]), ("b", "int64", [3])):
        raw = tensors[name].numpy().tobytes()
        for index in range(-(-len(raw) // 4096)):
            head = encode(["atoll.chunk.v1", name, dtype, shape])
            chunk = raw[4096 * index : 4096 * (index + 1)]
            leaves.append(sha256(head + index.to_bytes(8, "big") + chunk))
    assert len(leaves) == 4
    assert tree_root(tensors) == merkle_root(leaves, sha256)


def test_minus_zero_is_another_state() -> None:
    assert tree_root({"a": torch.tensor([0.0])}) != tree_root({"a": torch.tensor([-0.0])})


@pytest.mark.parametrize("at", [0, CHUNK_BYTES // 4 - 1, CHUNK_BYTES // 4, CHUNK_BYTES // 2 + 5])
def test_every_chunk_counts(at: int) -> None:
    tensor = torch.zeros(CHUNK_BYTES // 2 + 6)
    changed = tensor.clone()
    changed[at] = -0.0
    assert tree_root({"a": tensor}) != tree_root({"a": changed})


def test_a_fresh_optimiser_has_the_zero_root_and_any_bit_in_it_another() -> None:
    initial_state = SeatState.initial(global_state(), SMALL_LAYOUT)
    assert initial_state.optimiser_root() == ZERO_DIGEST
    assert (initial_state.m.keys(), initial_state.v.keys()) == (
        SMALL_LAYOUT.m.keys(),
        SMALL_LAYOUT.v.keys(),
    )
    touched = {**initial_state.m, "b.weight": torch.tensor([0.0, -0.0, 0.0, 0.0])}
    assert replace(initial_state, m=touched).optimiser_root() != ZERO_DIGEST
    feedback = {"a.weight": torch.full((3, 5), -0.0)}
    assert replace(initial_state, feedback=feedback).optimiser_root() != ZERO_DIGEST
    assert replace(initial_state, count=1).optimiser_root() != ZERO_DIGEST


def test_who_goes_on_keeps_its_state_or_takes_the_models_parameters(job: Job) -> None:
    """The counter of batches is the last round's until the first step."""
    model, last = global_state(), seat_state(seed=7, count=40)
    initial_state = open_round(job.manifest, model, last)
    assert initial_state.params_root() == model.params_root()
    assert initial_state.optimiser_root() == last.optimiser_root()
    assert open_round(job.with_codec(mixing="0.5").manifest, model, last) == last
    course = open_course(
        job.manifest, data_seed=DATA_SEED, seat=SeatIndex(0), round=0, store=job.store
    )
    assert state_roots(course.begin(last, 0)).rng_digest == rng_digest(0)
    assert course.begin(last, 1) == last


@pytest.mark.parametrize(("one", "other"), [("m", "v"), ("m", "feedback"), ("v", "feedback")])
def test_slots_cannot_be_swapped(one: str, other: str) -> None:
    state = seat_state()
    swapped = replace(state, **{one: getattr(state, other), other: getattr(state, one)})
    assert state_roots(swapped).digest() != state_roots(state).digest()


def test_a_jobs_layout_has_both_moments_of_every_parameter_for_adamw(job: Job) -> None:
    layout = seat_layout(job.manifest)
    assert layout.params == layout.m == layout.v == param_shapes(job.manifest.model)
    assert layout.feedback == {}
    assert layout.elements == 3 * param_count(job.manifest.model)


def test_moments_are_where_the_optimiser_reads_them(job: Job) -> None:
    shapes = param_shapes(job.manifest.model)
    ends = {n: s for n, s in shapes.items() if len(s) == 1 or "embed" in n}
    nothing = {"beta1": "0", "beta2": "0", "eps": "0"}
    for changes, m, v in (
        ({"optimizer": "muon", "momentum": "0.95"}, shapes, ends),
        ({"optimizer": "sgd", "momentum": "0.9"} | nothing, shapes, {}),
        ({"optimizer": "sgd", "momentum": "0"} | nothing, {}, {}),
    ):
        layout = seat_layout(job.with_inner(**changes).manifest)
        assert (layout.params, layout.m, layout.v) == (shapes, m, v)


def test_no_state_of_a_job_is_larger_than_its_limit(job: Job) -> None:
    outer = job.manifest.outer.model_copy(update={"kind": "adam"})
    adam = job.of(job.manifest.model_copy(update={"outer": outer}))
    largest = seat_state(layout=seat_layout(job.manifest))
    full = warm(adam.model, adam.manifest)
    for manifest, state in ((job.manifest, largest), (adam.manifest, full)):
        limit = max_state_bytes(manifest)
        assert limit - MAX_HEADER_BYTES < len(state.to_bytes()) <= limit


def test_every_part_of_the_global_state_is_in_its_digest() -> None:
    state = global_state()
    changed = [
        replace(state, round=4),
        replace(state, exponents=state.exponents | {"b.weight": 5}),
        replace(state, outer={}),
        replace(state, outer={"buffer": state.outer["momentum"]}),
        replace(state, params=seat_state(seed=1).params),
    ]
    assert len({s.digest() for s in [state, *changed]}) == 6


def test_the_seat_digest_is_pinned() -> None:
    zeros = {"w": torch.zeros(2, 2)}
    state = SeatState(zeros, zeros, zeros, {}, count=0, batches=0)
    assert (
        state_roots(state).digest().hex()
        == "385bf8e455b5bd05293eb4dcffe648b3dfbc5aa42de33d1154ab89289eff1026"
    )


BROKEN_SEAT_STATES = {
    "empty": lambda data: b"",
    "another magic": lambda data: b"X" + data[1:],
    "one byte short": lambda data: data[:-1],
    "one byte more": lambda data: data + b"\0",
    "header beyond the end": lambda data: MAGIC + b"\xff\xff\x0f\0" + data[12:],
    "header above the cap": lambda data: MAGIC + b"\xff\xff\xff\xff" + data[12:],
    "header not CBOR": lambda data: MAGIC + b"\x01\0\0\0\xff",
    "header nested too deep": lambda data: MAGIC + b"\x10\x27\0\0" + b"\x81" * 10000,
    "another kind": lambda data: with_header(data, kind="atoll.global-state.v1"),
    "an extra entry": lambda data: with_header(data, more=1),
    "fields not a map": lambda data: with_header(data, fields=[]),
    "a missing field": lambda data: with_header(data, fields={"count": 1}),
    "a negative counter": lambda data: with_header(data, fields={"batches": 0, "count": -1}),
    "a counter of 49 bits": lambda data: with_header(data, fields={"batches": 0, "count": 1 << 48}),
    "a float counter": lambda data: with_header(data, fields={"batches": 0, "count": 1.0}),
    "a true counter": lambda data: with_header(data, fields={"batches": 0, "count": True}),
    "tensors not a list": lambda data: with_header(data, tensors={}),
    "an unknown dtype": lambda data: with_header(data, tensors=[["params/a", "bfloat16", [1]]]),
    "a shape of zero": lambda data: with_header(data, tensors=[["params/a", "float32", [0]]]),
    "a negative shape": lambda data: with_header(data, tensors=[["params/a", "float32", [-1]]]),
    "a shape that is huge": lambda data: with_header(
        data, tensors=[["params/a", "float32", [1 << 39, 1 << 39]]]
    ),
    "a name of another alphabet": lambda data: with_header(
        data, tensors=[["params/é", "float32", [1]]]
    ),
    "names out of order": lambda data: with_header(
        data, tensors=[["params/b", "float32", [1]], ["params/a", "float32", [44]]]
    ),
    "names twice": lambda data: with_header(
        data, tensors=[["params/a", "float32", [1]], ["params/a", "float32", [44]]]
    ),
    "an unknown group": lambda data: with_header(data, tensors=[["w/a", "float32", [57]]]),
    "no moments": lambda data: with_header(data, tensors=[["params/a", "float32", [57]]]),
    "integers for floats": lambda data: GlobalState(
        0, {"a": torch.zeros(1)}, {"buffer": {"a": torch.zeros(1, dtype=torch.int64)}}, {"a": 0}
    ).to_bytes(),
}


@pytest.mark.parametrize("name", BROKEN_SEAT_STATES)
def test_a_broken_seat_state_is_refused(name: str) -> None:
    data = BROKEN_SEAT_STATES[name](seat_state().to_bytes())
    with pytest.raises(MalformedState):
        SeatState.from_bytes(data, SMALL_LAYOUT)


WRONG_SLOTS = {
    "no m": {"m": {}},
    "v of a tensor that has none": {
        "v": {"a.weight": torch.zeros(3, 5), "b.weight": torch.ones(4)}
    },
    "feedback that nobody asked for": {"feedback": {"b.weight": torch.zeros(4)}},
    "feedback of another shape": {"feedback": {"a.weight": torch.zeros(5, 3)}},
    "an integer moment": {"v": {"b.weight": torch.zeros(4).long()}},
    "a parameter too many": {"params": {**seat_state().params, "c.weight": torch.zeros(1)}},
}


@pytest.mark.parametrize("name", WRONG_SLOTS)
def test_slots_that_the_layout_does_not_name_are_refused(name: str) -> None:
    data = replace(seat_state(), **WRONG_SLOTS[name]).to_bytes()
    with pytest.raises(MalformedState):
        SeatState.from_bytes(data, SMALL_LAYOUT)


def test_a_header_that_is_not_canonical_is_refused() -> None:
    data = seat_state().to_bytes()
    header = data[12 : 12 + int.from_bytes(data[8:12], "little")]
    longer = header.replace(b"\x65count\x03", b"\x65count\x18\x03")
    assert len(longer) == len(header) + 1
    with pytest.raises(MalformedState, match=r"canonical|DAG-CBOR"):
        SeatState.from_bytes(
            MAGIC + len(longer).to_bytes(4, "little") + longer + data[12 + len(header) :],
            SMALL_LAYOUT,
        )


@pytest.mark.parametrize(
    "fields",
    [
        {"round": 1},
        {"round": -1, "exponents": {"a.weight": 0, "b.weight": 0}},
        {"round": 1 << 32, "exponents": {"a.weight": 0, "b.weight": 0}},
        {"round": 1, "exponents": {"a.weight": 0}},
        {"round": 1, "exponents": {"a.weight": 0, "b.weight": 65}},
        {"round": 1, "exponents": 0},
    ],
)
def test_a_global_state_with_broken_fields_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(MalformedState):
        GlobalState.from_bytes(with_header(global_state().to_bytes(), fields=fields))


def test_a_state_of_another_model_is_refused() -> None:
    other = replace(SMALL_LAYOUT, params={"a.weight": (5, 3), "b.weight": (4,)})
    with pytest.raises(MalformedState, match="not those of the job's model"):
        SeatState.from_bytes(seat_state().to_bytes(), other)
    with pytest.raises(MalformedState, match="not those of the job's model"):
        GlobalState.from_bytes(global_state().to_bytes(), {"a.weight": (3, 5)})
