"""A digest covers every bit, and a blob has one spelling."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.train.factories import seat_state

from atoll.numerics.batch import Windows
from atoll.numerics.errors import MalformedState
from atoll.numerics.state import GlobalState, SeatState, Tensors
from atoll.numerics.state_layout import SeatLayout
from atoll.numerics.step import state_roots

SHAPES = {"a.weight": (40, 50), "b.weight": (7,)}
LAYOUT = SeatLayout(SHAPES, m=SHAPES, v={"b.weight": (7,)}, feedback={"a.weight": (40, 50)})
STATE = seat_state(layout=LAYOUT)
BLOB = STATE.to_bytes()
MODEL = GlobalState(
    round=2,
    params=STATE.params,
    outer={
        slot: {n: torch.ones(p.shape).long() for n, p in STATE.params.items()}
        for slot in ("momentum", "second")
    },
    exponents={"a.weight": -11, "b.weight": -12},
)
MODEL_BLOB = MODEL.to_bytes()


def read_seat(data: bytes) -> SeatState:
    return SeatState.from_bytes(data, LAYOUT)


def flipped(tensors: Tensors, bit: int) -> Tensors:
    """The same tensors with one bit of one element changed; `bit` counts over all of them."""
    result = {name: t.clone() for name, t in tensors.items()}
    for tensor in result.values():
        raw = tensor.view(-1).view(torch.uint8)
        if bit < raw.numel() * 8:
            raw[bit // 8] ^= 1 << bit % 8
            return result
        bit -= raw.numel() * 8
    raise IndexError(bit)


@given(st.data())
def test_any_bit_of_any_tensor_changes_the_digest(data: st.DataObject) -> None:
    group = data.draw(st.sampled_from(["params", "m", "v", "feedback"]))
    tensors = getattr(STATE, group)
    bit = data.draw(st.integers(0, sum(t.numel() for t in tensors.values()) * 32 - 1))
    changed = replace(STATE, **{group: flipped(tensors, bit)})
    assert state_roots(changed).digest() != state_roots(STATE).digest()


@given(st.sampled_from(["count", "batches"]), st.integers(0, 62))
def test_any_bit_of_any_counter_changes_the_digest(counter: str, bit: int) -> None:
    changed = replace(STATE, **{counter: getattr(STATE, counter) ^ (1 << bit)})
    assert state_roots(changed).digest() != state_roots(STATE).digest()


@given(st.data())
def test_any_bit_of_the_global_state_changes_its_digest(data: st.DataObject) -> None:
    group = data.draw(st.sampled_from(["params", "momentum", "second"]))
    width = 32 if group == "params" else 64
    bit = data.draw(st.integers(0, sum(p.numel() for p in MODEL.params.values()) * width - 1))
    if group == "params":
        changed = replace(MODEL, params=flipped(MODEL.params, bit))
    else:
        slots = MODEL.outer | {group: flipped(MODEL.outer[group], bit)}
        changed = replace(MODEL, outer=slots)
    assert changed.digest() != MODEL.digest()


@given(st.integers(0, len(BLOB) * 8 - 1))
def test_a_flipped_bit_in_a_blob_is_refused_or_changes_the_digest(bit: int) -> None:
    data = bytearray(BLOB)
    data[bit // 8] ^= 1 << bit % 8
    try:
        read = SeatState.from_bytes(bytes(data), LAYOUT)
    except MalformedState:
        return
    assert read.to_bytes() == bytes(data)
    assert state_roots(read).digest() != state_roots(STATE).digest()


edits = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 12), st.binary(max_size=12)),
    min_size=1,
    max_size=5,
)


@given(st.sampled_from([BLOB, MODEL_BLOB]), edits)
def test_an_edited_blob_is_refused_or_read_exactly(
    blob: bytes, changes: list[tuple[int, int, bytes]]
) -> None:
    for start, length, put in changes:
        blob = blob[:start] + put + blob[start + length :]
    for parse in (read_seat, GlobalState.from_bytes):
        try:
            read = parse(blob)
        except MalformedState:
            continue
        assert read.to_bytes() == blob


@given(st.binary(max_size=300))
def test_noise_is_never_a_state(noise: bytes) -> None:
    for parse, error in (
        (read_seat, MalformedState),
        (GlobalState.from_bytes, MalformedState),
    ):
        with pytest.raises(error):
            parse(noise)


@given(st.lists(st.integers(0, 83), min_size=1, max_size=6))
def test_a_batch_is_what_lies_at_its_offsets(offsets: list[int]) -> None:
    tokens = torch.arange(100).numpy().astype("u4")
    batch = Windows(tokens, 16).signed(offsets)
    assert batch.tolist() == [list(range(o, o + 17)) for o in offsets]
