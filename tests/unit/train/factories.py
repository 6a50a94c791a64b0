"""A tiny job whose every part is valid; tests break one thing of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tests.support.jobs import PLAIN
from tests.support.manifests import model_spec

from atoll.job.methods import method_of
from atoll.job.prepare_manifest import prepare_data
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.init import initial_global_state
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import SeatLayout, Shapes
from atoll.protocol.manifest import Manifest, NumericsSpec
from atoll.protocol.method_spec import reset_period_of
from atoll.protocol.model_spec import ModelSpec
from atoll.protocol.types import Address, Digest, Domain, JobId, RoundId, RoundIndex, SeatIndex
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train.initial_model import open_initial_state
from atoll.train.probe import numerics_spec
from atoll.train.replay import RevealedRound, SeatReplay, replay_seat
from atoll.train.round import TrainedRound
from atoll.train.seat_task import TrainTask

SMALL_SHAPES: Shapes = {"a.weight": (3, 5), "b.weight": (4,)}
SMALL_LAYOUT = SeatLayout(
    SMALL_SHAPES, m=SMALL_SHAPES, v={"b.weight": (4,)}, feedback={"a.weight": (3, 5)}
)
"""Slots as no optimiser has them all: v of one tensor, feedback of the other."""
DATA_SEED = Digest(b"\x05" * 32)
KEY = Digest(b"\x09" * 32)
"""Under which work tags are masked."""
DITHER = DitherKey(DATA_SEED, 2)
"""Of the seat that jobs here have."""
FIRST = RoundId(Domain(31337, Address("0x" + "11" * 20)), JobId(1), RoundIndex(0))
NEXT = replace(FIRST, round=RoundIndex(1))
TEXT = "".join(f"line {i}: the quick brown fox jumps over {i * i} lazy dogs\n" for i in range(300))


def small_model(**changes: object) -> ModelSpec:
    sizes = {"width": 16, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 8, "ffn": 24}
    return model_spec(**{**sizes, "seq": 16, **changes})


def seat_state(seed: int = 0, count: int = 3, layout: SeatLayout = SMALL_LAYOUT) -> SeatState:
    generator = torch.Generator().manual_seed(seed)

    def draw(shapes: Shapes) -> dict[str, torch.Tensor]:
        return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}

    slots = (draw(shapes) for shapes in (layout.m, layout.v, layout.feedback))
    params = draw(layout.params)
    return SeatState(params, *slots, count, batches=2, residual=draw(layout.residual))


@dataclass(frozen=True)
class Job:
    """A prepared job in a store of its own: 4 segments of 2 steps."""

    store: LocalStore
    manifest: Manifest
    model: GlobalState
    task: TrainTask

    def with_inner(self, **changes: object) -> Job:
        inner = self.manifest.inner.model_copy(update=changes)
        manifest = self.manifest.model_copy(update={"inner": inner})
        return replace(self, manifest=manifest, task=replace(self.task, manifest=manifest))

    def with_numerics(self, numerics: NumericsSpec) -> Job:
        manifest = self.manifest.model_copy(update={"numerics": numerics})
        return replace(self, manifest=manifest, task=replace(self.task, manifest=manifest))

    def with_codec(self, **changes: object) -> Job:
        codec = self.manifest.codec.model_copy(update=changes)
        return self.of(self.manifest.model_copy(update={"codec": codec}))

    def of(self, manifest: Manifest) -> Job:
        """The same data and round id under another manifest; its codec says its reset period."""
        reset_period = reset_period_of(manifest.codec, manifest.terms.rounds)
        manifest = manifest.model_copy(update={"reset_period": reset_period})
        model = open_initial_state(manifest, self.store)
        cid = self.store.add_bytes(model.to_bytes()).to_bytes()
        task = replace(self.task, manifest=manifest, global_state_cid=cid)
        return replace(self, manifest=manifest, model=model, task=task)

    def replay(self, trained: TrainedRound) -> SeatReplay:
        """An auditor's replay of what was revealed."""
        claimed = RevealedRound(trained.checkpoint_commitments(KEY), trained.update_root)
        return replay_seat(self.task, claimed, self.store)

    def blob(self, cid: bytes) -> bytes:
        return self.store.read_bytes(Cid.from_bytes(cid), 1 << 30)


def make_job(folder: Path) -> Job:
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "text.txt"
    text.write_text(TEXT)
    store = LocalStore(folder / "store", sync=False)
    sizes = {"inner.steps": 8, "inner.segment": 2, "inner.batch": 4, "inner.micro_batch": 2}
    text_and_model = {"data.paths": [str(text)], "evaluate.batches": 2, "model": small_model()}
    job = PLAIN.but(sizes | text_and_model)
    data = prepare_data(job, store)
    manifest = job.resolve(data, None, numerics_spec(), now=0)
    model = initial_global_state(manifest)
    initial_state = store.add_bytes(model.to_bytes()).to_bytes()
    return Job(store, manifest, model, task_of(manifest, initial_state))


def with_method(manifest: Manifest, name: str) -> Manifest:
    """The manifest with all that a method sets."""
    method, inner = method_of(name), manifest.inner
    inner = inner.model_copy(update=dict(method.inner))
    if method.one_step:
        inner = inner.model_copy(update={"steps": 1, "segment": 1})
    robust = manifest.robust.model_copy(update={"rule": method.rule})
    parts = {"outer": method.outer, "codec": method.codec, "inner": inner, "robust": robust}
    reset_period = reset_period_of(method.codec, manifest.terms.rounds)
    return manifest.model_copy(update=parts | {"reset_period": reset_period})


def task_of(manifest: Manifest, initial_state: bytes) -> TrainTask:
    """Seat 2's first round, from the global state with this CID."""
    return TrainTask(
        manifest=manifest,
        round_id=FIRST,
        seat=SeatIndex(2),
        data_seed=DATA_SEED,
        global_state_cid=initial_state,
    )
