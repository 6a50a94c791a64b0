"""What a provider commits to about its training: one leaf a segment, and the trace document.

Rule of this file: a document is checked whole before anything in it is believed, and every failure
is a MalformedTrace that anyone can reproduce from the bytes, the reveal and the manifest.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, Literal, NamedTuple

from dag_cbor.ipld import IPLDKind
from eth_utils.address import is_checksum_address

from atoll.errors import MalformedTrace
from atoll.law.canonical import CID_BYTES, decode, encode, is_cid
from atoll.law.draws import batch_digest
from atoll.law.hashing import hash_fields, keccak256, sha256, tag
from atoll.law.manifest import Manifest
from atoll.law.merkle import merkle_root
from atoll.law.words import (
    ZERO_DIGEST,
    Address,
    Attempt,
    Digest,
    Domain,
    JobId,
    Reveal,
    RoundIndex,
    SeatIndex,
    SegmentIndex,
    Slot,
)

TRACE_VERSION: Final = 1
MAX_TRACE_BYTES: Final = 64 * 1024
MAX_LEAVES: Final = 64
"""A finding is a 64-bit map of segments."""
DIVERGED_LOSS_BITS: Final = 0x7FC00000
"""The one NaN that a DIVERGED leaf may state as its loss."""
_NANS: Final = {">d": bytes.fromhex("7ff8000000000000"), ">f": bytes.fromhex("7fc00000")}
_DIGEST = 32
_STATE_TAG = b"atoll.state.v1"
_LEAF_TYPES = (
    "bytes32",
    "uint256",
    "address",
    "uint256",
    "uint32",
    "uint16",
    "uint16",
    "uint16",
    "uint32",
    "uint32",
    "uint8",
    "bytes32",
    "bytes32",
    "uint32",
    "bytes32",
    "bytes32",
)


class LeafKind(IntEnum):
    OK = 0
    DIVERGED = 1


class StateRoots(NamedTuple):
    """The four parts of a state's digest, 32 bytes each.

    `optimiser_root` is ZERO_DIGEST for the zero state that a seat without history opens with.
    """

    params_root: Digest
    optimiser_root: Digest
    buffers_root: Digest
    rng_digest: Digest

    def digest(self) -> Digest:
        """SHA-256 of the tag and the four parts."""
        return sha256(_STATE_TAG + b"".join(self))


@dataclass(frozen=True, slots=True)
class TraceLeaf:
    """One segment as its provider states it.

    Steps count from 0 within the round and `last_step` is inclusive. A DIVERGED leaf ends at the
    first step that was not finite; its state is the one before that step.
    """

    slot: Slot
    seat: SeatIndex
    segment: SegmentIndex
    first_step: int
    last_step: int
    kind: LeafKind
    state_digest: Digest
    batch_digest: Digest
    loss_bits: int
    """IEEE 754 binary32 of the segment's mean loss."""
    work_word: Digest
    """Of the segment's steps, see `work_word`."""
    previous: Digest
    """Hash of the leaf before it; zero for the first."""

    @property
    def hash(self) -> Digest:
        """The leaf of the trace tree."""
        domain = self.slot.domain
        return hash_fields(
            _LEAF_TYPES,
            (
                tag("atoll.leaf.v1"),
                domain.chain_id,
                domain.rounds,
                self.slot.job,
                self.slot.round,
                self.slot.attempt,
                self.seat,
                self.segment,
                self.first_step,
                self.last_step,
                int(self.kind),
                self.state_digest,
                self.batch_digest,
                self.loss_bits,
                self.work_word,
                self.previous,
            ),
        )


class StepWork(NamedTuple):
    """What only who ran a step knows of it.

    Attributes:
        norm: of the whole gradient, before it was clipped.
        losses: of each micro-batch in order, mean nats a token: values of binary32.
    """

    norm: float
    losses: tuple[float, ...]


def work_word(steps: Iterable[StepWork]) -> Digest:
    """keccak-256 of the norm (binary64) and losses (binary32) of every step, all big-endian."""
    parts = [
        float_bytes(">d", step.norm) + b"".join(float_bytes(">f", loss) for loss in step.losses)
        for step in steps
    ]
    return keccak256(b"".join(parts))


def float_bytes(layout: Literal[">d", ">f"], value: float) -> bytes:
    """The bytes of a binary64 or binary32; every NaN has the same."""
    # Which NaN an operation gives is the processor's choice, so its own bits would part machines.
    return _NANS[layout] if math.isnan(value) else struct.pack(layout, value)


def leaf_count(steps: int, round_steps: int, segment_steps: int) -> int:
    """Leaves of a trace with `steps` finite steps; fewer than `round_steps` if it diverged."""
    if steps == round_steps:
        return round_steps // segment_steps
    return steps // segment_steps + 1


def _fail(message: str) -> MalformedTrace:
    return MalformedTrace(f"trace: {message}")


@dataclass(frozen=True, slots=True)
class TraceDocument:
    """What a reveal's trace CID names: the leaves, and where the state between any two lies.

    `states` and `state_roots` have one entry more than `leaves`: entry i opens segment i.
    """

    slot: Slot
    seat: SeatIndex
    leaves: tuple[TraceLeaf, ...]
    states: tuple[bytes, ...]
    state_roots: tuple[StateRoots, ...]

    @property
    def trace_root(self) -> Digest:
        """Root of the tree over the leaves. Raises ValueError when there is none."""
        return merkle_root([leaf.hash for leaf in self.leaves])

    def to_bytes(self) -> bytes:
        """Canonical DAG-CBOR. What follows from the rest (slot, index, previous) is left out."""
        domain = self.slot.domain
        return encode(
            {
                "version": TRACE_VERSION,
                "chain_id": domain.chain_id,
                "rounds": domain.rounds,
                "job": self.slot.job,
                "round": self.slot.round,
                "attempt": self.slot.attempt,
                "seat": self.seat,
                "leaves": [_leaf_to_plain(leaf) for leaf in self.leaves],
                "states": list(self.states),
                "state_roots": [list(roots) for roots in self.state_roots],
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> TraceDocument:
        """Raises MalformedTrace on bytes that `to_bytes` could not have written."""
        try:
            plain = decode(data, MAX_TRACE_BYTES)
        except ValueError as error:
            raise _fail(str(error)) from error
        top = _fields(plain, _TOP_FIELDS)
        if top["version"] != TRACE_VERSION or isinstance(top["version"], bool):
            raise _fail(f"version {top['version']}, not {TRACE_VERSION}")
        domain = Domain(_integer(top["chain_id"], 64), _address(top["rounds"]))
        slot = Slot(
            domain,
            JobId(_integer(top["job"], 64)),
            RoundIndex(_integer(top["round"], 32)),
            Attempt(_integer(top["attempt"], 16)),
        )
        seat = SeatIndex(_integer(top["seat"], 16))
        document = cls(
            slot,
            seat,
            _leaves_from_plain(slot, seat, _list(top["leaves"])),
            tuple(_bytes(cid, CID_BYTES) for cid in _list(top["states"])),
            tuple(_roots(item) for item in _list(top["state_roots"])),
        )
        document._check_shape()
        return document

    def _check_shape(self) -> None:
        count = len(self.leaves)
        if not 1 <= count <= MAX_LEAVES:
            raise _fail(f"{count} leaves, not 1 to {MAX_LEAVES}")
        if len(self.states) != count + 1 or len(self.state_roots) != count + 1:
            raise _fail(f"{count} leaves need {count + 1} states with their roots")
        if not all(is_cid(cid) for cid in self.states):
            raise _fail("a state's CID is not a binary CIDv1 of SHA-256")

    def check(self, reveal: Reveal, manifest: Manifest, slot: Slot, seat: SeatIndex) -> None:
        """Raises MalformedTrace unless this is the whole trace that `reveal` speaks of.

        `slot` carries the attempt that trained. Replays decide whether the states are right.
        """
        self._check_shape()
        if self.slot != slot or self.seat != seat:
            raise _fail("another slot or seat")
        if self.trace_root != reveal.trace_root:
            raise _fail("the leaves do not hash to the revealed root")
        # What is carried on may have another root than the last state; the link check computes it.
        carries = manifest.codec.carries_more and reveal.steps == manifest.inner.steps
        if not carries and self.state_roots[-1].optimiser_root != reveal.optimiser_root:
            raise _fail("the last optimiser root is not the revealed one")
        self._check_leaves(reveal.steps, manifest.inner.steps, manifest.inner.segment)

    def _check_leaves(self, steps: int, round_steps: int, segment_steps: int) -> None:
        count = leaf_count(steps, round_steps, segment_steps)
        if steps > round_steps or len(self.leaves) != count:
            raise _fail(f"{len(self.leaves)} leaves for {steps} of {round_steps} steps")
        previous = ZERO_DIGEST
        for i, leaf in enumerate(self.leaves):
            diverged = steps < round_steps and i == count - 1
            first = i * segment_steps
            expected = replace(
                leaf,
                slot=self.slot,
                seat=self.seat,
                segment=SegmentIndex(i),
                first_step=first,
                last_step=steps if diverged else first + segment_steps - 1,
                kind=LeafKind.DIVERGED if diverged else LeafKind.OK,
                state_digest=self.state_roots[i + 1].digest(),
                previous=previous,
            )
            if leaf != expected:
                raise _fail(f"leaf {i} does not follow from its place and its state")
            if diverged and leaf.loss_bits != DIVERGED_LOSS_BITS:
                raise _fail(f"leaf {i} diverged with loss bits {leaf.loss_bits:#010x}")
            previous = leaf.hash

    def check_opening(self, params_root: Digest, optimiser_root: Digest) -> None:
        """Raises MalformedTrace unless the seat opened with the global model and its own moments.

        `optimiser_root` is the chain's last accepted one; ZERO_DIGEST there, or after a reset.
        """
        opening = self.state_roots[0]
        if opening.params_root != params_root:
            raise _fail("the opening parameters are not the global model's")
        if opening.optimiser_root != optimiser_root:
            raise _fail("the opening optimiser state is not the seat's last accepted one")

    def check_batches(self, manifest: Manifest, data_seed: Digest) -> None:
        """Raises MalformedTrace at the first leaf whose batches are not those of the data seed."""
        for leaf in self.leaves:
            steps = range(leaf.first_step, leaf.last_step + 1)
            offsets = [manifest.batch_offsets(data_seed, self.seat, step) for step in steps]
            if leaf.batch_digest != batch_digest(offsets):
                raise _fail(f"leaf {leaf.segment} names other batches than the data seed's")


_TOP_FIELDS = frozenset(
    {
        "version",
        "chain_id",
        "rounds",
        "job",
        "round",
        "attempt",
        "seat",
        "leaves",
        "states",
        "state_roots",
    }
)
_LEAF_FIELDS = frozenset(
    {
        "first_step",
        "last_step",
        "kind",
        "state_digest",
        "batch_digest",
        "loss_bits",
        "work_word",
    }
)


def _leaf_to_plain(leaf: TraceLeaf) -> IPLDKind:
    return {
        "first_step": leaf.first_step,
        "last_step": leaf.last_step,
        "kind": int(leaf.kind),
        "state_digest": leaf.state_digest,
        "batch_digest": leaf.batch_digest,
        "loss_bits": leaf.loss_bits,
        "work_word": leaf.work_word,
    }


def _leaves_from_plain(
    slot: Slot, seat: SeatIndex, items: Sequence[object]
) -> tuple[TraceLeaf, ...]:
    if len(items) > MAX_LEAVES:
        raise _fail(f"{len(items)} leaves, at most {MAX_LEAVES}")
    leaves: list[TraceLeaf] = []
    for i, item in enumerate(items):
        plain = _fields(item, _LEAF_FIELDS)
        kind = _integer(plain["kind"], 8)
        if kind not in tuple(LeafKind):
            raise _fail(f"leaf kind {kind}")
        leaves.append(
            TraceLeaf(
                slot=slot,
                seat=seat,
                segment=SegmentIndex(i),
                first_step=_integer(plain["first_step"], 32),
                last_step=_integer(plain["last_step"], 32),
                kind=LeafKind(kind),
                state_digest=_digest(plain["state_digest"]),
                batch_digest=_digest(plain["batch_digest"]),
                loss_bits=_integer(plain["loss_bits"], 32),
                work_word=_digest(plain["work_word"]),
                previous=leaves[-1].hash if leaves else ZERO_DIGEST,
            )
        )
    return tuple(leaves)


def _fields(value: object, names: frozenset[str]) -> dict[str, object]:
    if not isinstance(value, dict) or set(value) != names:
        raise _fail("fields are missing or unknown")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise _fail("not a list")
    return value


def _integer(value: object, bits: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << bits:
        raise _fail(f"{value!r} is not an unsigned integer of {bits} bits")
    return value


def _address(value: object) -> Address:
    if not isinstance(value, str) or not is_checksum_address(value):
        raise _fail("not a checksummed address")
    return Address(value)


def _bytes(value: object, length: int) -> bytes:
    if not isinstance(value, bytes) or len(value) != length:
        raise _fail(f"not {length} bytes")
    return value


def _digest(value: object) -> Digest:
    return Digest(_bytes(value, _DIGEST))


def _roots(value: object) -> StateRoots:
    items = _list(value)
    if len(items) != len(StateRoots._fields):
        raise _fail("a state has four roots")
    return StateRoots(*(_digest(item) for item in items))
