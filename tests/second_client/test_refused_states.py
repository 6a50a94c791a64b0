"""States: the second client takes the bytes that atoll takes, and no others."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.second_client import state
from tests.second_client.documents import read_manifest
from tests.second_client.state import seat_shapes
from tests.second_client.test_moments import warm_state
from tests.second_client.test_refusals import is_taken
from tests.second_client.words import decode_cbor, encode_cbor
from tests.support.manifests import make_manifest

from atoll.errors import ManifestError
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import seat_layout
from atoll.numerics.tensors import MalformedState
from atoll.protocol.manifest import Manifest

CASES = 1_000
START = len(state.MAGIC) + 4
VALUES: list[Any] = [
    None, True, -1, 0, 1, 2, 64, 65, -65, 2**32, 2**48 - 1, 2**48, 2**63 - 1, 2**63, b"", b"\0",
    "", "float32", "int8", "int64", "params/w", "m/w", "second/w", "params/", "/w", "other/w",
    "w", "a/b/c", "ü", [], [4], [0], [-1], [1, 1, 1, 1, 4], {}, {"w": -3}, {"w": None},
]  # fmt: skip


def places_of(node: Any) -> list[tuple[Any, Any]]:
    """Every list's and map's entries, with what holds them."""
    if not isinstance(node, dict | list):
        return []
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    return [(node, key) for key in keys] + [p for key in keys for p in places_of(node[key])]


def with_another_header(draw: random.Random, data: bytes) -> bytes:
    """One or two entries are others, gone, twice there, or under another name."""
    end = START + int.from_bytes(data[len(state.MAGIC) : START], "little")
    header, body = decode_cbor(data[START:end]), data[end:]
    for _ in range(draw.choice([1, 1, 2])):
        holder, key = draw.choice(places_of(header) or [({"": 0}, "")])
        kind = draw.random()
        if kind < 0.6:
            holder[key] = draw.choice(VALUES)
        elif kind < 0.75:
            del holder[key]
        elif isinstance(holder, list):
            holder.insert(draw.randrange(len(holder) + 1), holder[key])
        else:
            holder[draw.choice(["w", "x", "other"])] = holder[key]
    raw = encode_cbor(header if draw.random() < 0.97 else draw.choice([[], "", 1, {}]))
    body = draw.choice([body] * 6 + [body[:-1], body + b"\0", body[8:], b""])
    return data[: len(state.MAGIC)] + len(raw).to_bytes(4, "little") + raw + body


def with_other_bytes(draw: random.Random, data: bytes) -> bytes:
    """Some are others, gone, or between; more often of the first hundreds, where the header is."""
    at = draw.randrange(draw.choice([16, 300, len(data)]))
    count = draw.choice([0, 1, 1, 1, 4])
    return data[:at] + draw.randbytes(draw.choice([0, count, count])) + data[at + count :]


def compared(
    data: bytes, readers: list[tuple[Callable[[bytes], Any], type[Exception]]], seed: int
) -> int:
    """How many of the mutated are taken, by both."""
    draw, taken = random.Random(seed), 0
    for _ in range(CASES):
        mutate = draw.choice([with_another_header, with_other_bytes])
        odd = mutate(draw, data)
        found = [partial(is_taken, read)(odd, error) for read, error in readers]
        assert found[0] == found[1], odd
        taken += found[0]
    return taken


@pytest.mark.parametrize("is_warm", [True, False])
def test_of_mutated_global_states_both_take_the_same(is_warm: bool) -> None:
    fields, tensors = warm_state()
    if not is_warm:
        fields |= {"count": 0, "m_exponents": {}}
        tensors = {n: t for n, t in tensors.items() if n.split("/")[0] not in state.MOMENTS}
    data = state.write_blob(state.GLOBAL_KIND, fields, tensors)
    readers = [(state.read_global, ValueError), (GlobalState.from_bytes, MalformedState)]
    assert is_taken(*(readers[0][0], data, ValueError))
    assert 0 < compared(data, readers, 3 + is_warm) < CASES


def test_of_mutated_seat_states_both_take_the_same() -> None:
    small = {"layers": 1, "width": 8, "ffn": 8, "heads": 1, "kv_heads": 1, "head_dim": 8}
    spec = make_manifest({f"model.{name}": value for name, value in small.items()})
    manifest = read_manifest(spec.to_bytes())
    seat = {
        group: {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        for group, shapes in seat_shapes(manifest).items()
    }
    data = state.seat_bytes(seat | {"batches": 2, "count": 3})
    layout = seat_layout(spec)
    readers = [
        (partial(state.read_seat, manifest=manifest), ValueError),
        (partial(SeatState.from_bytes, layout=layout), MalformedState),
    ]
    assert 0 < compared(data, readers, 5) < CASES


def test_of_manifests_with_other_bytes_both_take_the_same() -> None:
    draw, data = random.Random(6), make_manifest().to_bytes()
    for _ in range(CASES):
        odd = with_other_bytes(draw, data)
        ours = is_taken(read_manifest, odd, ValueError)
        assert ours == is_taken(Manifest.from_bytes, odd, ManifestError), odd
