"""Whatever bytes are served as a state: taken as written, or refused."""

from __future__ import annotations

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from libipld import decode_dag_cbor
from tests.property.border import VALUES, bent, paths, put
from tests.unit.train.factories import SMALL_LAYOUT, SMALL_SHAPES, seat_state

from atoll.numerics.errors import MalformedState
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.tensors import MAGIC

SEAT = bytes(seat_state().to_bytes())
PARAMS = {name: torch.full(shape, 0.5) for name, shape in SMALL_SHAPES.items()}
GLOBAL = bytes(GlobalState(3, PARAMS, {}, dict.fromkeys(PARAMS, -9)).to_bytes())


def parts(blob: bytes) -> tuple[bytes, bytes]:
    """A blob's header, and what follows it."""
    start = len(MAGIC) + 4
    end = start + int.from_bytes(blob[len(MAGIC) : start], "little")
    return blob[start:end], blob[end:]


def headed(blob: bytes, path: tuple[object, ...], value: object) -> bytes:
    """A blob with `value` at one place of its header, whose length is right."""
    header, rest = parts(blob)
    changed = put(header, path, value)
    return MAGIC + len(changed).to_bytes(4, "little") + changed + rest


def with_header(blob: bytes) -> st.SearchStrategy[bytes]:
    """A blob with any value at any one place of its header."""
    places = st.sampled_from(paths(decode_dag_cbor(parts(blob)[0])))
    return st.builds(lambda path, value: headed(blob, path, value), places, VALUES)


@settings(max_examples=300)
@example(headed(SEAT, ("tensors", 0, 1), []))
@given(bent(SEAT) | with_header(SEAT))
def test_a_bent_seat_state_is_taken_as_written_or_refused(data: bytes) -> None:
    try:
        state = SeatState.from_bytes(data, SMALL_LAYOUT)
    except MalformedState:
        return
    assert bytes(state.to_bytes()) == data


@settings(max_examples=300)
@given(bent(GLOBAL) | with_header(GLOBAL), st.booleans())
def test_a_bent_global_state_is_taken_as_written_or_refused(data: bytes, known: bool) -> None:
    try:
        state = GlobalState.from_bytes(data, SMALL_SHAPES if known else None)
    except MalformedState:
        return
    assert bytes(state.to_bytes()) == data
