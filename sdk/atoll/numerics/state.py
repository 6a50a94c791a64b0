"""The two states of a job: the global model, and what one seat's training carries along.

Rule of this file: a state's digest covers every bit that the next step depends on. Digests are
those of SPEC.md, section 9: SHA-256 over params root, optimiser root, buffers root, RNG digest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import islice
from typing import TypeAlias

import torch
from torch import Tensor

from atoll.numerics.errors import MalformedState
from atoll.numerics.kernels.freed_memory import let_go_of_pages
from atoll.numerics.moments import COLD, GROUPS, Moments
from atoll.numerics.shards import Held, Shards, copied, shapes_of
from atoll.numerics.state_layout import MomentLayout, SeatLayout, Shapes
from atoll.numerics.tensors import (
    Allocate,
    ByteSource,
    Fields,
    TreeRoot,
    check_layout,
    in_memory,
    read_blob,
    tree_root,
    write_blob,
    write_lazily,
)
from atoll.protocol.method_spec import CodecSpec
from atoll.protocol.optimisers import OUTER_OPTIMISERS
from atoll.protocol.types import ZERO_DIGEST, Digest

_GLOBAL = "atoll.global-state.v2"
_SEAT = "atoll.seat-state.v1"
_SLOT_NAMES = tuple(sorted({name for kind in OUTER_OPTIMISERS.values() for name in kind.slots}))
_GLOBAL_FIELDS = {"count", "exponents", "m_exponents", "moment_exponents", "round"}
_SEAT_GROUPS = ("params", "m", "v", "feedback", "left")
_MOMENTS = ("m", "v")
COUNTER_LIMIT = 1 << 48
"""So that no replay of a forged state counts beyond 64 bits."""
Tensors: TypeAlias = dict[str, Tensor]
Holds: TypeAlias = Callable[[str], Held]
"""Makes what the tensors of a group of a seat's state are put into, by its name in the bytes."""


def in_this_process(_group: str) -> Held:
    """A mapping that has its tensors here."""
    return {}


@dataclass(frozen=True, slots=True)
class GlobalState:
    """The model between rounds, as every party holds it.

    Attributes:
        round: outer steps taken; 0 is the initial model.
        params: fp32, named as `layout.param_shapes` says.
        outer: the outer optimiser's int64 tensors, by slot (`OUTER_OPTIMISERS`) and parameter.
        exponents: each tensor's grid exponent e for this round: updates count steps of 2**e.
        moment_exponents: the same of each first moment; none where seats keep theirs.
        moments: merged in the round before; nothing writes into them.
        is_whole: whether nothing was excluded when it was read; else it has no digest.
    """

    round: int
    params: Held
    outer: dict[str, Tensors]
    exponents: dict[str, int]
    moment_exponents: dict[str, int] = field(default_factory=dict)
    moments: Moments = COLD
    is_whole: bool = True

    def sent_part(self, codec: CodecSpec) -> GlobalState:
        """What updates of this round speak of: the whole state, or that of a fragment."""
        names = [name for name in self.params if codec.is_sent(name, self.round)]
        if len(names) == len(self.params):
            return self
        return replace(
            self,
            params={name: self.params[name] for name in names},
            outer={slot: {name: kept[name] for name in names} for slot, kept in self.outer.items()},
            exponents={name: self.exponents[name] for name in names},
        )

    def with_part(self, part: GlobalState) -> GlobalState:
        """This state with the part of it that is given, whose round it takes."""
        return replace(
            self,
            round=part.round,
            params={**self.params, **part.params},
            outer={slot: kept | part.outer[slot] for slot, kept in self.outer.items()},
            exponents=self.exponents | part.exponents,
        )

    def copied(self) -> GlobalState:
        """The same with parameters and slots in memory of its own."""
        return replace(
            self,
            params={name: p.clone() for name, p in self.params.items()},
            outer={
                slot: {name: t.clone() for name, t in kept.items()}
                for slot, kept in self.outer.items()
            },
        )

    @property
    def shapes(self) -> Shapes:
        """Of the parameters."""
        return shapes_of(self.params)

    def params_root(self) -> Digest:
        """The root every seat's initial state must have."""
        return tree_root(self.params)

    def digest(self) -> Digest:
        """The verdict's mergedDigest: SHA-256 over the round and all of `roots`."""
        return _hash(_GLOBAL, self.round.to_bytes(8, "big"), *self.roots())

    def roots(self) -> tuple[Digest, Digest, Digest, Digest, Digest]:
        """What the digest is made of, beside the round, in the order of `claims.ModelRoots`.

        Raises:
            ValueError: the state was read without a part of it.
        """
        if not self.is_whole:
            raise ValueError("a state that was read in part has no digest")
        return (
            self.params_root(),
            tree_root(_grouped(**self.outer)),
            Digest(sha256(self.exponent_bytes()).digest()),
            self.moments.root(),
            self.moments.initial_root,
        )

    def exponent_bytes(self) -> bytes:
        """Every exponent as a big-endian int16, each group in ascending order of name.

        Names are excluded, since the roots of the tensors have them: a contract that is shown the
        exponents of a large model is shown 2 bytes a tensor.
        """
        groups = (self.exponents, self.moment_exponents, self.moments.m_exponents)
        return b"".join(
            struct.pack(">h", group[name]) for group in groups for name in sorted(group)
        )

    def check_moments(self, shared: MomentLayout) -> None:
        """Raises MalformedState unless these can be moments of a job that shares such ones."""
        moments, seconds = self.moments, {*self.moments.rows, *self.moments.whole}
        fits = set(self.moment_exponents) == set(shared.m)
        if moments.m:
            fits = fits and (set(moments.m), seconds) == (set(shared.m), set(shared.v))
        if not fits:
            raise MalformedState(f"{_GLOBAL}: moments are not those that the job shares")

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The canonical bytes, a tensor at a time."""
        fields: Fields = {
            "count": self.moments.count,
            "exponents": dict(self.exponents),
            "m_exponents": dict(self.moments.m_exponents),
            "moment_exponents": dict(self.moment_exponents),
            "round": self.round,
        }
        tensors = _grouped(params=dict(self.params), **self.outer) | self.moments.tensors()
        return write_blob(_GLOBAL, fields, tensors)

    def to_bytes(self) -> bytes:
        """The canonical bytes: 4 a parameter, 8 more for each slot, moments, plus a header."""
        return b"".join(self.pieces())

    @classmethod
    def from_bytes(
        cls,
        data: bytes | memoryview | ByteSource,
        shapes: Mapping[str, Sequence[int]] | None = None,
        *,
        outer: bool = True,
        moments: bool = True,
        allocate: Allocate = in_memory,
        params: Held | None = None,
    ) -> GlobalState:
        """Parses canonical bytes; `shapes` are the model's, where they are known.

        Args:
            outer: false leaves the slots out: only who takes an outer step needs them.
            moments: false leaves those out: only who opens a round with them needs them.
            allocate: where each tensor lies.
            params: takes the parameters as they are read; None for a mapping of this process.

        Raises:
            MalformedState: if the bytes are not canonical, or not of these shapes.
        """
        excluded = ((*_SLOT_NAMES,) if not outer else ()) + (GROUPS if not moments else ())
        params = {} if params is None else params
        blob = read_blob(
            _GLOBAL,
            data,
            lambda name: name.partition("/")[0] not in excluded,
            allocate=allocate,
            into={"params": params}.get,
        )
        groups = _ungrouped(_GLOBAL, blob.tensors, (*_SLOT_NAMES, *GROUPS))
        shared = {group: groups.pop(group) for group in GROUPS}
        slots = {slot: tensors for slot, tensors in groups.items() if tensors}
        if set(blob.fields) != _GLOBAL_FIELDS:
            raise MalformedState(f"{_GLOBAL}: fields are not {sorted(_GLOBAL_FIELDS)}")
        round_index, count = (_counter(_GLOBAL, blob.fields[name]) for name in ("round", "count"))
        if round_index >= 1 << 32:
            raise MalformedState(f"{_GLOBAL}: round {round_index} out of range")
        _check_group(_GLOBAL, params, torch.float32, shapes or shapes_of(params))
        for tensors in slots.values():
            _check_group(_GLOBAL, tensors, torch.int64, shapes_of(params))
        exponents, m_exponents, moment_exponents = (
            _exponents(blob.fields[name], set(params))
            for name in ("exponents", "m_exponents", "moment_exponents")
        )
        if set(exponents) != set(params):
            raise MalformedState(f"{_GLOBAL}: exponents are not one a parameter")
        found = Moments(count, m_exponents=m_exponents, **shared)
        if moments:
            found.check(params)
        if set(m_exponents) != (set(moment_exponents) if found.is_warm else set()):
            raise MalformedState(f"{_GLOBAL}: first moments of other parameters than updates tell")
        own = (params, slots, exponents, moment_exponents, found)
        return cls(round_index, *own, is_whole=blob.is_whole)


@dataclass(frozen=True, slots=True)
class SeatState:
    """What a seat's next inner step depends on.

    Attributes:
        params, m, v, feedback, residual: fp32, of the names and shapes that `layout.SeatLayout`
            says.
        count: steps in the moments (bias correction); persists across rounds with them.
        batches: batches drawn so far in the round, the counter of the round's draw stream; until a
            round's first step that of the round before, where the state is carried over.
        residual: what the update would leave out if the round ended here: the next round's
            feedback.
        rollouts: of all ids that were sampled in the round; zero before, and where text is learned.
    """

    params: Held
    m: Held
    v: Held
    feedback: Held
    count: int
    batches: int
    residual: Held = field(default_factory=dict)
    rollouts: Digest = ZERO_DIGEST

    def unshared(self) -> SeatState:
        """The same tensors in groups of its own, in which a step may replace them."""
        params, m, v, feedback, residual = (copied(self._group(group)) for group in _SEAT_GROUPS)
        return replace(self, params=params, m=m, v=v, feedback=feedback, residual=residual)

    def on(self, device: torch.device, *, moments_apart: bool = False) -> SeatState:
        """The same with every tensor on a device of that type; all of a state lie on one, and those
        of shards where their holders have them.

        Args:
            moments_apart: whether the moments stay where they are.
        """
        if isinstance(self.params, Shards):
            return self
        if all(p.device.type == device.type for p in islice(self.params.values(), 1)):
            return self
        params, m, v, feedback, residual = (
            self._group(group)
            if moments_apart and group in _MOMENTS
            else {name: tensor.to(device) for name, tensor in self._group(group).items()}
            for group in _SEAT_GROUPS
        )
        return replace(self, params=params, m=m, v=v, feedback=feedback, residual=residual)

    def held_by(self, holds: Holds) -> SeatState:
        """The same, tensor by tensor, in what `holds` makes of each group."""
        groups = {group: holds(group) for group in _SEAT_GROUPS}
        for group, tensors in groups.items():
            before = self._group(group)
            for name in before:
                tensors[name] = before[name]
        named = {_attribute(group): tensors for group, tensors in groups.items()}
        return replace(self, **named)  # type: ignore[arg-type]  # of names that are the state's

    def params_root(self) -> Digest:
        """Root over the parameters."""
        return tree_root(self.params)

    def optimiser_root(self) -> Digest:
        """Root over moments, both feedbacks and step count; 32 zero bytes for a fresh optimiser."""
        root = TreeRoot()
        if not self._is_fresh():
            root.add("count", torch.tensor(self.count, dtype=torch.int64))
            for group in sorted(set(_SEAT_GROUPS) - {"params"}):
                root.add_all(self._group(group), f"{group}/")
        return root.digest()

    def _group(self, name: str) -> Held:
        """A group by its name in the canonical bytes, in which the residual is `left`."""
        group: Held = getattr(self, _attribute(name))
        return group

    def _is_fresh(self) -> bool:
        slots = (self.m, self.v, self.feedback, self.residual)
        return self.count == 0 and not any(_has_set_bit(t) for g in slots for t in g.values())

    def under_optimiser_root(self) -> Tensors:
        """The tensors that the optimiser root is over; none for a fresh optimiser."""
        if self._is_fresh():
            return {}
        groups = {group: dict(self._group(group)) for group in _SEAT_GROUPS if group != "params"}
        slots = _grouped(**groups)
        return {**slots, "count": torch.tensor(self.count, dtype=torch.int64)}

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The canonical bytes, a tensor at a time."""
        fields: Fields = {"batches": self.batches, "count": self.count}
        if self.rollouts != ZERO_DIGEST:
            fields["rollouts"] = _words_of(self.rollouts)
        shapes = {
            f"{group}/{name}": ("float32", shape)
            for group in _SEAT_GROUPS
            for name, shape in shapes_of(self._group(group)).items()
        }
        return write_lazily(_SEAT, fields, shapes, self._tensor)

    def _tensor(self, full_name: str) -> Tensor:
        group, _, name = full_name.partition("/")
        return self._group(group)[name]

    def to_bytes(self) -> bytes:
        """The canonical bytes: 4 a number, plus a header."""
        return b"".join(self.pieces())

    @classmethod
    def from_bytes(
        cls,
        data: bytes | memoryview | ByteSource,
        layout: SeatLayout,
        *,
        allocate: Allocate = in_memory,
        holds: Holds = in_this_process,
    ) -> SeatState:
        """Parses canonical bytes.

        Args:
            holds: what takes the tensors of each group as they are read.

        Raises:
            MalformedState: if the bytes are not canonical, or their tensors not the layout's.
        """
        groups = {group: holds(group) for group in _SEAT_GROUPS}
        blob = read_blob(_SEAT, data, allocate=allocate, into=groups.get)
        _ungrouped(_SEAT, blob.tensors, ())
        for name, group in groups.items():
            _check_group(_SEAT, group, torch.float32, getattr(layout, _attribute(name)))
        if set(blob.fields) - {"rollouts"} != {"batches", "count"}:
            raise MalformedState(f"{_SEAT}: fields are not batches and count")
        rollouts = _digest_of(blob.fields["rollouts"]) if "rollouts" in blob.fields else ZERO_DIGEST
        count, batches = (_counter(_SEAT, blob.fields[name]) for name in ("count", "batches"))
        residual = groups.pop("left")
        params, m, v, feedback = (groups[name] for name in ("params", "m", "v", "feedback"))
        return cls(params, m, v, feedback, count, batches, residual, rollouts)

    @classmethod
    def initial(
        cls,
        model: GlobalState,
        layout: SeatLayout,
        *,
        allocate: Allocate = in_memory,
        holds: Holds = in_this_process,
    ) -> SeatState:
        """What a round starts from that opens publicly: the global model, and its moments.

        Those are zero where it has none, and so is the feedback. Moments are made one after
        another, and each then lies where `allocate` says by its name in the canonical bytes.

        Args:
            holds: what takes the tensors of each group as they are made; the parameters are where
                the model has them.
        """
        shared = model.moments
        groups = {group: holds(group) for group in _SEAT_GROUPS if group != "params"}
        makers = {"m": shared.first, "v": shared.second}
        for group, tensors in groups.items():
            shapes: Shapes = getattr(layout, _attribute(group))
            for name, shape in shapes.items():
                kept = allocate(f"{group}/{name}", tuple(shape), torch.float32).zero_()
                if shared.is_warm and group in makers:
                    kept.copy_(makers[group](name))
                let_go_of_pages(kept)
                tensors[name] = kept
        m, v, feedback = (groups[group] for group in ("m", "v", "feedback"))
        return cls(model.params, m, v, feedback, shared.count, batches=0, residual=groups["left"])


def _attribute(group: str) -> str:
    return "residual" if group == "left" else group


def _words_of(digest: Digest) -> dict[str, int]:
    """A digest as a header has it, which is of integers: big-endian, of 32 bits each."""
    return {str(i): word for i, word in enumerate(struct.unpack(">8I", digest))}


def _digest_of(words: object) -> Digest:
    try:
        if not isinstance(words, dict) or set(words) != set(map(str, range(8))):
            raise MalformedState(f"{_SEAT}: rollouts are no eight words")
        digest = Digest(struct.pack(">8I", *(words[str(i)] for i in range(8))))
    except struct.error as error:
        raise MalformedState(f"{_SEAT}: a word of rollouts is none") from error
    if digest == ZERO_DIGEST:
        raise MalformedState(f"{_SEAT}: a digest of rollouts that were not")
    return digest


def rng_digest(batches: int) -> Digest:
    """SHA-256("atoll.rng.v1" ‖ batches drawn in the round as big-endian uint64)."""
    return _hash("atoll.rng.v1", batches.to_bytes(8, "big"))


def _hash(tag: str, *parts: bytes) -> Digest:
    return Digest(sha256(b"".join((tag.encode(), *parts))).digest())


def _grouped(**groups: Tensors) -> Tensors:
    return {
        f"{group}/{name}": t for group, tensors in groups.items() for name, t in tensors.items()
    }


def _ungrouped(kind: str, tensors: Tensors, groups: tuple[str, ...]) -> dict[str, Tensors]:
    result: dict[str, Tensors] = {group: {} for group in groups}
    for full_name, tensor in tensors.items():
        group, _, name = full_name.partition("/")
        if group not in result or not name:
            raise MalformedState(f"{kind}: tensor {full_name!r} belongs to no group")
        result[group][name] = tensor
    return result


def _counter(kind: str, value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < COUNTER_LIMIT:
        raise MalformedState(f"{kind}: a counter is not a natural number below 2^48")
    return value


def _exponents(value: object, names: set[str]) -> dict[str, int]:
    if not isinstance(value, dict) or not set(value) <= names:
        raise MalformedState(f"{_GLOBAL}: exponents are not of its parameters")
    if any(abs(exponent) > 64 for exponent in value.values()):
        raise MalformedState(f"{_GLOBAL}: an exponent is no small integer")
    return dict(value)


def _check_group(
    kind: str, tensors: Held, dtype: torch.dtype, shapes: Mapping[str, Sequence[int]]
) -> None:
    check_layout(kind, tensors, shapes)
    if isinstance(tensors, Shards):
        return  # of fp32, else they had not been taken
    if any(tensor.dtype != dtype for tensor in tensors.values()):
        raise MalformedState(f"{kind}: a tensor is not {dtype}")


def _has_set_bit(tensor: Tensor) -> bool:
    return bool(tensor.contiguous().view(-1).view(torch.uint8).any())
