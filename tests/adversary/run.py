"""A small DiLoCo run with colluders: local training, codec, merge and outer step are the project's.

Rule of this file: a run is a function of its setting, rule and adversary. The colluders hold the
lowest seats, which win every tie. What is attacked is the section that moves the model: seats keep
their moments, as in jobs with feedback. Draws find nobody: what is left to catch them is their
bytes and, where a merge asks for it, the full replay of whoever stands out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256

import numpy as np
import torch
from tests.adversary.codecs import DEFAULT, Written, spec_of, write, write_row
from tests.adversary.corpus import KIND_BYTES, Mix, seat_text, text_of
from tests.adversary.seats import Stack, train_seats
from tests.adversary.updates import Rows
from tests.jobs import PLAIN
from torch import Tensor

from atoll.bits.batch import gather_batch
from atoll.bits.codec.base import Integers
from atoll.bits.codec.dither import DitherKey
from atoll.bits.codec.layout import Layout
from atoll.bits.codec.registry import seat_codec
from atoll.bits.held_out import window_starts
from atoll.bits.init import initial_global_state
from atoll.bits.layout import param_shapes
from atoll.bits.model import forward
from atoll.bits.ops import NativeOps
from atoll.bits.schedule import Recipe
from atoll.bits.state import GlobalState
from atoll.errors import MalformedUpdate
from atoll.law.canonical import dag_cbor_cid
from atoll.law.draws import batch_offsets
from atoll.law.hashing import sha256 as sha256_of
from atoll.law.manifest import (
    SPARSE_CODECS,
    UNSCALED,
    DataSpec,
    Manifest,
    ModelSpec,
    epoch_of,
)
from atoll.law.words import Digest, SeatIndex
from atoll.train.probe import numerics_spec

MODEL = ModelSpec(
    kind="llama", vocab=256, width=32, layers=1, heads=2, kv_heads=2, head_dim=16,
    qkv_bias=False, qk_norm=False, mlp="swiglu", ffn=88, seq=32, tied=True, norm_eps="0.00001",
    rope_base=10000, rope_scaling=UNSCALED,
)  # fmt: skip
"""Twenty thousand parameters over single bytes."""
BATCH = 8
EVALUATED = 512
"""Held-out sequences that a final loss is the mean of."""
JUDGED = 64
"""Those by which colluders compare what they could send."""


@dataclass(frozen=True)
class Setting:
    """Who takes part, and in what training.

    Attributes:
        n: seats.
        f: how many of them collude.
        seed: of initial weights and data draws.
        steps: inner steps a round.
        codec: how updates are written; sparse ones have SparseLoCo's merge and outer step.
    """

    n: int
    f: int
    seed: int = 0
    mix: Mix = Mix.SHARED
    rounds: int = 10
    steps: int = 10
    codec: str = DEFAULT

    @property
    def colluders(self) -> range:
        return range(self.f)

    @property
    def honest(self) -> range:
        return range(self.f, self.n)


@dataclass(frozen=True)
class Arrived:
    """What a merge has before it.

    Attributes:
        updates: well-formed bytes by seat.
        caught: seats whose bytes were not.
        colluders: seats that a full replay would catch.
    """

    state: GlobalState
    updates: Mapping[int, bytes]
    caught: int
    colluders: frozenset[int]
    data_seed: Digest
    manifest: Manifest


Merge = Callable[[Arrived], GlobalState]


@dataclass(frozen=True)
class Knowledge:
    """What colluders know when they choose their updates: everything.

    Attributes:
        honest: updates of the honest seats, (n − f, d) in grid steps.
        trained: what the colluders' own training gave, (f, d); (0, d) where they do not train.
        arrives: what the codec makes of rows.
        damage: a held-out loss of the model that would be merged if the colluders sent these rows.
        rng: the adversary's own.
    """

    round: int
    rounds: int
    f: int
    codec: str
    honest: Rows
    trained: Rows
    arrives: Callable[[Rows], Rows]
    damage: Callable[[Rows], float]
    rng: np.random.Generator


def _as_sent(data: bytes, _codec: str) -> bytes:
    return data


@dataclass(frozen=True)
class Adversary:
    """f seats with one mind. A new one for every run, since some keep a state.

    Attributes:
        submit: their updates in grid steps, (f, d); None while they are not seated.
        targets: what they train on instead of the targets; None where they do not train.
        tamper: what they do to their encoded bytes, given the codec's name.
    """

    submit: Callable[[Knowledge], Rows | None]
    targets: Callable[[Tensor], Tensor] | None = None
    tamper: Callable[[bytes, str], bytes] = _as_sent


@dataclass(frozen=True)
class RoundRecord:
    """One round as it happened.

    Attributes:
        opening: the model it started from.
        updates: what arrived, by seat.
        state: the model after it.
    """

    opening: GlobalState
    updates: Mapping[int, bytes]
    state: GlobalState


@dataclass(frozen=True)
class Trained:
    """Where some seats stand after a round's training, and what each of them wrote."""

    stack: Stack
    written: tuple[Written, ...]

    @property
    def rows(self) -> Rows:
        """Their updates in grid steps, (n, d)."""
        return np.stack([one.row for one in self.written]).astype(np.float64)


Memo = dict[bytes, Trained]
"""Honest training by all the models that led to it, for runs of one setting to share."""


@dataclass
class Run:
    """One job from its initial model on; iterate over `play`. Without an adversary the colluders'
    seats stay empty.

    Attributes:
        memo: what runs of the same setting have trained; until colluders are merged, it is alike.
    """

    setting: Setting
    merge: Merge
    adversary: Adversary | None = None
    memo: Memo = field(default_factory=dict)
    manifest: Manifest = field(init=False)
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        self.manifest = manifest_of(self.setting)
        self.layout = Layout.of(param_shapes(MODEL))

    def play(self) -> Iterator[RoundRecord]:
        """Every round in turn."""
        state, history = initial_global_state(self.manifest), b""
        honest: Trained | None = None
        colluding: Trained | None = None
        rng = np.random.default_rng(self.setting.seed)
        for index in range(self.setting.rounds):
            history = sha256(history + state.digest()).digest()
            if history not in self.memo:
                self.memo[history] = self._trained(self.setting.honest, index, state, honest)
            honest = self.memo[history]
            if self.adversary is not None and self.adversary.targets is not None:
                colluding = self._trained(self.setting.colluders, index, state, colluding)
            updates = self._sent(index, state, honest, colluding, rng)
            merged = self._merged(state, updates)
            yield RoundRecord(state, updates, merged)
            state = merged

    def final_loss(self) -> float:
        """Held-out loss, nats a byte, after the last round."""
        *_, last = self.play()
        return self.loss(last.state)

    def loss(self, state: GlobalState) -> float:
        """Held-out loss of a model, nats a byte."""
        return loss_of(state, self.setting, EVALUATED)

    def _trained(
        self, seats: range, index: int, state: GlobalState, previous: Trained | None
    ) -> Trained:
        setting, seed = self.setting, self.seed_of(index)

        def batches(step: int) -> tuple[Tensor, Tensor]:
            drawn = [self._batch(seat, seed, step) for seat in seats]
            inputs, targets = zip(*drawn, strict=True)
            return torch.cat(inputs), torch.cat(targets)

        model_d = torch.cat([state.params[name].flatten() for name in self.layout.names])
        opening = Stack.opening(model_d, len(seats), previous.stack if previous else None)
        recipe = Recipe.of(self.manifest)
        stack = train_seats(opening, batches, index * setting.steps, self.layout, recipe)
        before = previous.written if previous else (None,) * len(seats)
        written = []
        for seat, last_d, own in zip(seats, stack.params, before, strict=True):
            delta = {
                name: state.params[name] - last_d[span].view(shape)
                for name, shape, span in self.layout.spans()
            }
            dither = DitherKey(seed, seat)
            written.append(write(delta, own, self.manifest.codec, dither, state.exponents))
        return Trained(stack, tuple(written))

    def _batch(self, seat: int, seed: Digest, step: int) -> tuple[Tensor, Tensor]:
        text = seat_text(self.setting.mix, seat, self.setting.n)
        limit = len(text) - MODEL.seq
        offsets = batch_offsets(seed, SeatIndex(seat), step, BATCH, limit)
        batch_BT1 = gather_batch(text, offsets, MODEL.seq)
        inputs, targets = batch_BT1[:, :-1], batch_BT1[:, 1:]
        if seat in self.setting.colluders and self.adversary and self.adversary.targets:
            targets = self.adversary.targets(targets)
        return inputs, targets

    def _sent(
        self,
        index: int,
        state: GlobalState,
        honest: Trained,
        colluding: Trained | None,
        rng: np.random.Generator,
    ) -> dict[int, bytes]:
        setting, adversary = self.setting, self.adversary
        updates = {seat: one.data for seat, one in zip(setting.honest, honest.written, strict=True)}
        if adversary is None:
            return updates

        def with_rows(bad: Rows) -> dict[int, bytes]:
            sent = zip(setting.colluders, bad, strict=True)
            return {seat: self._bytes_of(seat, row, state) for seat, row in sent} | updates

        known = Knowledge(
            round=index,
            rounds=setting.rounds,
            f=setting.f,
            codec=setting.codec,
            honest=honest.rows,
            trained=colluding.rows if colluding else np.empty((0, honest.rows.shape[1])),
            arrives=lambda rows: np.array(
                [self._arriving(seat, row, state) for seat, row in enumerate(rows)], float
            ),
            damage=lambda bad: loss_of(self._merged(state, with_rows(bad)), setting, JUDGED),
            rng=rng,
        )
        bad = adversary.submit(known)
        if bad is None:
            return updates
        return {
            seat: adversary.tamper(data, setting.codec) if seat in setting.colluders else data
            for seat, data in with_rows(bad).items()
        }

    def seed_of(self, round: int) -> Digest:
        """The round's data seed."""
        return Digest(sha256(f"{self.setting.seed}:{round}".encode()).digest())

    def row_of(self, seat: int, data: bytes, state: GlobalState) -> Integers:
        """What a seat's bytes say. Raises MalformedUpdate."""
        codec = seat_codec(self.manifest.codec, DitherKey(self.seed_of(state.round), seat))
        return codec.decode_flat(data, self.layout, state.exponents)

    def _bytes_of(self, seat: int, row: Rows, state: GlobalState) -> bytes:
        dither = DitherKey(self.seed_of(state.round), seat)
        return write_row(row, self.manifest.codec, dither, self.layout, state.exponents)

    def _arriving(self, seat: int, row: Rows, state: GlobalState) -> Integers:
        return self.row_of(seat, self._bytes_of(seat, row, state), state)

    def _merged(self, state: GlobalState, updates: Mapping[int, bytes]) -> GlobalState:
        """The merge of what is well-formed; whoever sent anything else is caught."""
        sound = {s: data for s, data in updates.items() if self._is_sound(s, data, state)}
        caught = len(updates) - len(sound)
        colluders = frozenset(self.setting.colluders)
        seed = self.seed_of(state.round)
        return self.merge(Arrived(state, sound, caught, colluders, seed, self.manifest))

    def _is_sound(self, seat: int, data: bytes, state: GlobalState) -> bool:
        try:
            self.row_of(seat, data, state)
        except MalformedUpdate:
            return False
        return True


def loss_of(state: GlobalState, setting: Setting, count: int) -> float:
    """Mean loss over `count` evenly spaced sequences of the held-out text, nats a byte."""
    _, text = text_of(setting.mix)
    ops = NativeOps()
    with torch.no_grad():
        batch_BT1 = gather_batch(text, window_starts(len(text) - MODEL.seq - 1, count), MODEL.seq)
        logits_BTV = forward(state.params, batch_BT1[:, :-1], MODEL, ops)
        return ops.cross_entropy(logits_BTV, batch_BT1[:, 1:]).item()


class OwnMoments(Manifest):
    """A job whose updates are one section, whatever its codec."""

    @property
    def shares_moments(self) -> bool:
        return False


@cache
def manifest_of(setting: Setting) -> Manifest:
    """The demo preset for this many seats and codec; the data it names is in no store."""
    cid = dag_cbor_cid(sha256_of(b"the bytes of tests.adversary.corpus"))
    data = DataSpec(
        cid=cid, root=sha256_of(b"no tokens"), nodes_cid=cid, dtype="uint8", masked=False,
        train_tokens=KIND_BYTES, eval_cid=None, eval_tokens=0, eval_batches=0, tokenizer_cid=cid,
    )  # fmt: skip
    method = "sparseloco" if setting.codec in SPARSE_CODECS else "fedavg"
    job = PLAIN.but(
        {
            "init.seed": setting.seed,
            "rounds": setting.rounds,
            "method.name": method,
            "inner.steps": setting.steps,
            "inner.segment": setting.steps,
            "inner.batch": BATCH,
            "model": MODEL,
            "members.seats": setting.n,
        }
    )
    demo = job.resolve(data, None, numerics_spec("native"), now=0)
    codec = spec_of(setting.codec)
    epoch = epoch_of(codec, setting.rounds)
    return OwnMoments.model_construct(**dict(demo) | {"codec": codec, "epoch": epoch})
