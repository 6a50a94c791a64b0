"""A whole trace, then the same trace with one thing wrong."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dag_cbor
import pytest
from tests.unit.law.factories import SEAT, SLOT, digest, make_manifest, make_trace

from atoll.errors import MalformedTrace
from atoll.law.hashing import keccak256, sha256
from atoll.law.trace import (
    DIVERGED_LOSS_BITS,
    LeafKind,
    StateRoots,
    StepWork,
    TraceDocument,
    leaf_count,
    work_word,
)
from atoll.law.words import Attempt, SeatIndex

MANIFEST = make_manifest()
SEED = digest("data seed")


@pytest.mark.parametrize("steps", [None, 0, 4, 5, 37])
def test_a_whole_trace_is_read_back_and_passes_its_checks(steps: int | None) -> None:
    document, reveal = make_trace(MANIFEST, steps=steps, data_seed=SEED)
    read = TraceDocument.from_bytes(document.to_bytes())
    assert read == document
    read.check(reveal, MANIFEST, SLOT, SEAT)
    read.check_batches(MANIFEST, SEED)


def test_a_diverged_trace_ends_with_the_step_that_was_not_finite() -> None:
    document, reveal = make_trace(MANIFEST, steps=12)
    assert [leaf.kind for leaf in document.leaves] == [LeafKind.OK] * 2 + [LeafKind.DIVERGED]
    assert (document.leaves[-1].first_step, document.leaves[-1].last_step) == (10, 12)
    assert reveal.steps == 12


def test_leaf_counts_of_whole_and_diverged_traces() -> None:
    assert [leaf_count(s, 40, 5) for s in (0, 4, 5, 39, 40)] == [1, 1, 2, 8, 8]


def test_another_slot_seat_or_reveal_is_refused() -> None:
    document, reveal = make_trace(MANIFEST)
    with pytest.raises(MalformedTrace, match="another slot"):
        document.check(reveal, MANIFEST, replace(SLOT, attempt=Attempt(0)), SEAT)
    with pytest.raises(MalformedTrace, match="another slot"):
        document.check(reveal, MANIFEST, SLOT, SeatIndex(3))
    with pytest.raises(MalformedTrace, match="revealed root"):
        document.check(replace(reveal, trace_root=digest("x")), MANIFEST, SLOT, SEAT)
    with pytest.raises(MalformedTrace, match="optimiser"):
        document.check(replace(reveal, optimiser_root=digest("x")), MANIFEST, SLOT, SEAT)
    with pytest.raises(MalformedTrace, match="leaves for"):
        document.check(replace(reveal, steps=34), MANIFEST, SLOT, SEAT)
    with pytest.raises(MalformedTrace, match="leaves for"):
        document.check(replace(reveal, steps=41), MANIFEST, SLOT, SEAT)


LEAF_CHANGES: dict[str, dict[str, Any]] = {
    "first step": {"first_step": 6},
    "last step": {"last_step": 10},
    "kind": {"kind": LeafKind.DIVERGED},
    "state": {"state_digest": digest("other")},
    "previous": {"previous": digest("other")},
    "segment": {"segment": 3},
    "seat": {"seat": SeatIndex(3)},
}


@pytest.mark.parametrize("change", LEAF_CHANGES.values(), ids=LEAF_CHANGES.keys())
def test_a_leaf_that_does_not_follow_from_its_place_is_refused(change: dict[str, Any]) -> None:
    document, reveal = make_trace(MANIFEST)
    leaves = list(document.leaves)
    leaves[1] = replace(leaves[1], **change)
    forged = replace(document, leaves=tuple(leaves))
    reveal = replace(reveal, trace_root=forged.trace_root)
    with pytest.raises(MalformedTrace, match=r"leaf [12]"):
        forged.check(reveal, MANIFEST, SLOT, SEAT)


def test_a_diverged_leaf_states_the_one_nan() -> None:
    document, reveal = make_trace(MANIFEST, steps=12)
    last = replace(document.leaves[-1], loss_bits=DIVERGED_LOSS_BITS + 1)
    forged = replace(document, leaves=(*document.leaves[:-1], last))
    with pytest.raises(MalformedTrace, match="loss bits"):
        forged.check(replace(reveal, trace_root=forged.trace_root), MANIFEST, SLOT, SEAT)


def test_batches_of_another_seed_are_refused() -> None:
    document, _ = make_trace(MANIFEST, data_seed=SEED)
    with pytest.raises(MalformedTrace, match="leaf 0"):
        document.check_batches(MANIFEST, digest("another seed"))


def test_the_opening_state_is_the_global_model_and_the_seats_own_moments() -> None:
    document, _ = make_trace(MANIFEST)
    params, optimiser, _, _ = document.state_roots[0]
    document.check_opening(params, optimiser)
    with pytest.raises(MalformedTrace, match="parameters"):
        document.check_opening(digest("x"), optimiser)
    with pytest.raises(MalformedTrace, match="optimiser"):
        document.check_opening(params, digest("x"))


WIRE_CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "another version": lambda plain: plain.update(version=2),
    "an unknown field": lambda plain: plain.update(note="x"),
    "a missing field": lambda plain: plain.pop("states"),
    "no leaves": lambda plain: plain.update(leaves=[], states=[], state_roots=[]),
    "a state too few": lambda plain: plain["states"].pop(),
    "roots too few": lambda plain: plain["state_roots"].pop(),
    "three roots": lambda plain: plain["state_roots"][0].pop(),
    "a CID of another kind": lambda plain: plain["states"].__setitem__(0, bytes(36)),
    "a leaf of another kind": lambda plain: plain["leaves"][0].update(kind=2),
    "a step beyond 32 bits": lambda plain: plain["leaves"][0].update(last_step=1 << 32),
    "a negative step": lambda plain: plain["leaves"][0].update(first_step=-1),
    "a boolean step": lambda plain: plain["leaves"][0].update(first_step=False),
    "a short digest": lambda plain: plain["leaves"][0].update(state_digest=bytes(31)),
    "an address in lower case": lambda plain: plain.update(rounds=plain["rounds"].lower()),
    "a leaf that is a list": lambda plain: plain["leaves"].__setitem__(0, []),
    "leaves that are no list": lambda plain: plain.update(leaves={}),
    "too many leaves": lambda plain: plain.update(leaves=plain["leaves"] * 9),
    "too many bytes": lambda plain: plain.update(states=plain["states"] * 900),
}


@pytest.mark.parametrize("change", WIRE_CHANGES.values(), ids=WIRE_CHANGES.keys())
def test_a_document_with_one_thing_wrong_is_refused(change: Callable[..., object]) -> None:
    document, _ = make_trace(MANIFEST)
    plain: Any = dag_cbor.decode(document.to_bytes())
    change(plain)
    with pytest.raises(MalformedTrace):
        TraceDocument.from_bytes(dag_cbor.encode(plain))


def test_a_state_digest_is_over_its_four_parts_in_order() -> None:
    parts = [digest(i) for i in range(4)]
    assert StateRoots(*parts).digest() == sha256(b"atoll.state.v1" + b"".join(parts))


def test_a_work_word_is_over_norms_and_losses_as_big_endian_floats() -> None:
    steps = [StepWork(1.5, (2.0, -0.0)), StepWork(math.inf, (0.0, math.inf))]
    written = "3ff8000000000000 40000000 80000000 7ff0000000000000 00000000 7f800000"
    assert work_word(steps) == keccak256(bytes.fromhex(written))


@pytest.mark.parametrize("bits", ["7ff8000000000000", "fff8000000000000", "7ff0000000000001"])
def test_every_nan_is_the_one(bits: str) -> None:
    (nan,) = struct.unpack(">d", bytes.fromhex(bits))
    written = bytes.fromhex("7ff8000000000000 7fc00000")
    assert work_word([StepWork(nan, (nan,))]) == keccak256(written)
