"""A small DiLoCo run with colluders: local training, codec, merge and outer step are the project's.

Rule of this file: a run is a function of its setting, rule and adversary. The colluders hold the
lowest seats, which win every tie. Every round opens from what was merged, moments included, and all
sections of an update can be attacked. No replay finds anybody: the colluders are there for ever,
and what holds them is the checks on bytes and the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256

import numpy as np
import torch
from tests.adversary.codecs import DEFAULT, Parts, read, spec_of, write
from tests.adversary.corpus import KIND_BYTES, Mix, seat_text, text_of
from tests.adversary.seats import Stack, train_seats
from tests.support.jobs import PLAIN
from tests.support.manifests import model_spec, unstored_data
from torch import Tensor

from atoll.numerics.batch import Windows
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.held_out_loss import window_starts
from atoll.numerics.init import initial_global_state
from atoll.numerics.model import forward
from atoll.numerics.ops import NativeOps
from atoll.numerics.schedule import Recipe
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import param_count, param_shapes
from atoll.numerics.update_proof import close_round
from atoll.protocol.draws import batch_offsets
from atoll.protocol.manifest import Manifest, NumericsSpec
from atoll.protocol.types import Digest, SeatIndex

MODEL = model_spec(width=32, layers=1, heads=2, kv_heads=2, ffn=88, seq=32)
"""Twenty thousand parameters over single bytes."""
BATCH = 8
EVALUATED = 512
"""Held-out sequences that a final loss is the mean of."""
JUDGED = 64
"""Those by which colluders compare what they could send."""
UNKNOWN = NumericsSpec(code_digest=bytes(32), probe_digest=bytes(32))
"""Nobody is asked for the bits of these runs."""


@dataclass(frozen=True)
class Setting:
    """Who takes part, and in what training.

    Attributes:
        n: seats.
        f: how many of them collude; the rule bears as many.
        seed: of initial weights and data draws.
        steps: inner steps a round.
        codec: how updates are written.
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
    """What a merge has before it: bytes by seat, whatever they are."""

    state: GlobalState
    updates: Mapping[int, bytes]
    data_seed: Digest
    manifest: Manifest


Merge = Callable[[Arrived], GlobalState]
Text = tuple[Tensor, Tensor]
"""Inputs and targets of a batch, each [B, T]."""


@dataclass(frozen=True)
class Knowledge:
    """What colluders know when they choose their updates: everything.

    Attributes:
        honest: updates of the honest seats.
        trained: what the colluders' own training gave; no rows where they do not train.
        arrives: what the codec makes of rows.
        merged: the model that would be merged if the colluders sent these.
        damage: a held-out loss of that.
        lasting: that of the mean of honest seats after a round more, which opens with it.
        rng: the adversary's own.
    """

    round: int
    rounds: int
    f: int
    honest: Parts
    trained: Parts
    arrives: Callable[[Parts], Parts]
    merged: Callable[[Parts], GlobalState]
    damage: Callable[[Parts], float]
    lasting: Callable[[Parts], float]
    rng: np.random.Generator


@dataclass(frozen=True)
class Adversary:
    """f seats with one mind. A new one for every run, since some keep a state.

    Attributes:
        submit: their updates; None while they are not seated.
        text: what they train on, of what they draw in a round; None where they do not train.
        tamper: what they do to their encoded bytes.
    """

    submit: Callable[[Knowledge], Parts | None]
    text: Callable[[int, Text], Text] | None = None
    tamper: Callable[[bytes], bytes] = bytes


@dataclass(frozen=True)
class PlayedRound:
    """One round as it happened.

    Attributes:
        initial_state: the model it started from.
        updates: what arrived, by seat.
        state: the model after it.
    """

    initial_state: GlobalState
    updates: Mapping[int, bytes]
    state: GlobalState


@dataclass(frozen=True)
class Trained:
    """What some seats' training of a round gave: their bytes, and what these say."""

    updates: tuple[bytes, ...]
    parts: Parts


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

    def play(self) -> Iterator[PlayedRound]:
        """Every round in turn."""
        state = initial_global_state(self.manifest)
        rng = np.random.default_rng(self.setting.seed)
        for _ in range(self.setting.rounds):
            honest = self._honest(state)
            updates = self._sent(state, honest, rng)
            merged = self._merged(state, updates)
            yield PlayedRound(state, updates, merged)
            state = merged

    def final_loss(self) -> float:
        """Held-out loss, nats a byte, after the last round."""
        *_, last = self.play()
        return self.loss(last.state)

    def loss(self, state: GlobalState) -> float:
        """Held-out loss of a model, nats a byte."""
        return loss_of(state, self.setting, EVALUATED)

    def seed_of(self, round: int) -> Digest:
        """The round's data seed."""
        return Digest(sha256(f"{self.setting.seed}:{round}".encode()).digest())

    def dither_of(self, seat: int, state: GlobalState) -> DitherKey:
        """Of a seat's update of the round that opens with this state."""
        return DitherKey(self.seed_of(state.round), SeatIndex(seat))

    def parts_of(self, updates: Mapping[int, bytes], state: GlobalState) -> Parts:
        """What bytes by seat say. Raises MalformedUpdate."""
        return Parts.stacked(
            [
                read(data, self.manifest, state, self.dither_of(seat, state))
                for seat, data in updates.items()
            ]
        )

    def arrived(self, state: GlobalState, updates: Mapping[int, bytes]) -> Arrived:
        """What is merged of these bytes."""
        return Arrived(state, updates, self.seed_of(state.round), self.manifest)

    def _merged(self, state: GlobalState, updates: Mapping[int, bytes]) -> GlobalState:
        return self.merge(self.arrived(state, updates))

    def _honest(self, state: GlobalState) -> Trained:
        key = state.digest()
        if key not in self.memo:
            stack = self._trained(self.setting.honest, state)
            self.memo[key] = self._written(self.setting.honest, state, stack)
        return self.memo[key]

    def _trained(self, seats: range, state: GlobalState) -> Stack:
        def batches(step: int) -> Text:
            drawn = [self._batch(seat, state.round, step) for seat in seats]
            inputs, targets = zip(*drawn, strict=True)
            return torch.cat(inputs), torch.cat(targets)

        manifest, steps = self.manifest, self.setting.steps
        total = (self.setting.rounds + 1) * steps  # one round more, for what colluders foresee
        recipe = Recipe(manifest.model, manifest.inner, total, NativeOps())
        initial_state = Stack.initial(state, len(seats), self.layout)
        return train_seats(initial_state, batches, state.round * steps, self.layout, recipe)

    def _written(self, seats: range, state: GlobalState, stack: Stack) -> Trained:
        steps, updates = self.setting.steps, []
        for row, seat in enumerate(seats):
            named = (self._named(rows[row]) for rows in (stack.params, stack.m, stack.v))
            last = SeatState(*named, {}, stack.count, steps)
            updates.append(close_round(self.manifest, state, last, self.dither_of(seat, state))[0])
        found = self.parts_of(dict(zip(seats, updates, strict=True)), state)
        return Trained(tuple(updates), found)

    def _named(self, flat_d: Tensor) -> dict[str, Tensor]:
        return {name: flat_d[span].view(shape) for name, shape, span in self.layout.spans()}

    def _batch(self, seat: int, round: int, step: int) -> Text:
        text = seat_text(self.setting.mix, seat, self.setting.n)
        limit = len(text) - MODEL.seq
        offsets = batch_offsets(self.seed_of(round), SeatIndex(seat), step, BATCH, limit)
        batch_BT1 = Windows(text, MODEL.seq).signed(offsets)
        drawn = batch_BT1[:, :-1], batch_BT1[:, 1:]
        if seat in self.setting.colluders and self.adversary and self.adversary.text:
            return self.adversary.text(round, drawn)
        return drawn

    def _sent(
        self, state: GlobalState, honest: Trained, rng: np.random.Generator
    ) -> dict[int, bytes]:
        setting, adversary = self.setting, self.adversary
        updates = dict(zip(setting.honest, honest.updates, strict=True))
        if adversary is None:
            return updates
        known = self._known(state, honest, rng)
        bad = adversary.submit(known)
        if bad is None:
            return updates
        written = self._bytes_of(bad, state)
        return {seat: adversary.tamper(data) for seat, data in written.items()} | updates

    def _known(self, state: GlobalState, honest: Trained, rng: np.random.Generator) -> Knowledge:
        setting, adversary = self.setting, self.adversary
        updates = dict(zip(setting.honest, honest.updates, strict=True))
        trained = honest.parts.mean(0)
        if adversary is not None and adversary.text is not None:
            stack = self._trained(setting.colluders, state)
            trained = self._written(setting.colluders, state, stack).parts

        def merged(bad: Parts) -> GlobalState:
            return self._merged(state, self._bytes_of(bad, state) | updates)

        def lasting(bad: Parts) -> float:
            after = merged(bad)
            params = self._trained(setting.honest, after).params.mean(dim=0)
            return loss_of(replace(after, params=self._named(params)), setting, JUDGED)

        return Knowledge(
            round=state.round,
            rounds=setting.rounds,
            f=setting.f,
            honest=honest.parts,
            trained=trained,
            arrives=lambda bad: self.parts_of(self._bytes_of(bad, state), state),
            merged=merged,
            damage=lambda bad: loss_of(merged(bad), setting, JUDGED),
            lasting=lasting,
            rng=rng,
        )

    def _bytes_of(self, bad: Parts, state: GlobalState) -> dict[int, bytes]:
        return {
            seat: write(bad, seat, self.manifest, state, self.dither_of(seat, state))
            for seat in range(len(bad))
        }


def loss_of(state: GlobalState, setting: Setting, count: int) -> float:
    """Mean loss over `count` evenly spaced sequences of the held-out text, nats a byte."""
    _, text = text_of(setting.mix)
    ops = NativeOps()
    with torch.no_grad():
        batch_BT1 = Windows(text, MODEL.seq).signed(window_starts(len(text) - MODEL.seq - 1, count))
        logits_BTV = forward(state.params, batch_BT1[:, :-1], MODEL, ops)
        targets_BT = batch_BT1[:, 1:]
        return ops.cross_entropy(logits_BTV, targets_BT, torch.ones(targets_BT.shape)).item()


@cache
def manifest_of(setting: Setting) -> Manifest:
    """The plain job for this many seats and codec; the data it names is in no store."""
    data = unstored_data(train_tokens=KIND_BYTES)
    job = PLAIN.but(
        {
            "init.seed": setting.seed,
            "rounds": setting.rounds,
            "method.name": "fedavg",
            "inner.steps": setting.steps,
            "inner.segment": setting.steps,
            "inner.batch": BATCH,
            "model": MODEL,
            "members.seats": max(setting.n, 4),
        }
    )
    plain = job.resolve(data, None, UNKNOWN, now=0)
    codec = spec_of(setting.codec, param_count(MODEL))
    robust = plain.robust.model_copy(update={"f": setting.f})
    terms = replace(plain.terms, f=setting.f)
    return plain.model_copy(update={"codec": codec, "robust": robust, "terms": terms})
