"""A replay gives the trace's bits, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from tests.unit.train.factories import DITHER, NEXT, Job

from atoll.bits.layout import seat_layout
from atoll.bits.link import Sent, check_link, close_round
from atoll.bits.segment import Course, SegmentRun, run_segment
from atoll.bits.state import SeatState
from atoll.content.cid import Cid
from atoll.errors import MalformedTrace
from atoll.law.trace import LeafKind, TraceLeaf
from atoll.law.words import Digest
from atoll.train.replay import replay_segment, served
from atoll.train.round import TrainedRound, read_seat_state, train_round


def test_every_segment_replays(job: Job, trained: TrainedRound) -> None:
    for segment, leaf in enumerate(trained.document.leaves):
        replay = job.replay(trained, segment)
        assert replay.matches
        assert replay.differs == ()
        assert (replay.state_digest, replay.steps) == (leaf.state_digest, 2)


def test_a_round_with_persisted_moments_replays(job: Job, trained: TrainedRound) -> None:
    task = replace(job.task, slot=NEXT, opening_optimiser=trained.document.states[-1])
    second = train_round(task, job.store)
    later = replace(job, task=task)
    for segment in range(4):
        assert later.replay(second, segment, trained.optimiser_root).matches


ANOTHER_PROCESS = """
import sys
from pathlib import Path
from atoll.content.cid import Cid
from atoll.content.local import LocalStore
from atoll.law.manifest import Manifest
from atoll.law.trace import TraceDocument
from atoll.law.words import ZERO_DIGEST, Digest
from atoll.train.probe import check_environment, configure_native
from atoll.bits.opening import opening_digest
from atoll.train.replay import ReplayTask, replay_segment, served

configure_native()
root, manifest, trace, seed, params_root = sys.argv[1:]
store = LocalStore(root)
manifest = Manifest.from_bytes(bytes.fromhex(manifest))
check_environment(manifest)
document = TraceDocument.from_bytes(store.read_bytes(Cid.parse(trace), 1 << 20))
for leaf in document.leaves:
    digest = opening_digest(document, leaf.segment, bytes.fromhex(params_root), ZERO_DIGEST)
    task = ReplayTask(manifest, document.slot, document.seat, bytes.fromhex(seed), digest)
    blob = store.read_bytes(Cid.from_bytes(document.states[leaf.segment]), 1 << 30)
    print(replay_segment(task, served(task, blob), leaf, store).matches)
"""


def test_another_process_replays_the_same_bits(job: Job, trained: TrainedRound) -> None:
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            ANOTHER_PROCESS,
            str(job.store.root),
            job.manifest.to_bytes().hex(),
            str(Cid.from_bytes(trained.trace_cid)),
            job.task.data_seed.hex(),
            job.model.params_root().hex(),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr == ""
    assert result.stdout.split() == ["True"] * 4


def test_a_diverged_segment_replays_to_the_same_leaf(job: Job) -> None:
    wild = job.with_inner(lr="10000", weight_decay="1000", warmup_steps=0)
    trained = train_round(wild.task, wild.store)
    last = len(trained.document.leaves) - 1
    replay = wild.replay(trained, last)
    assert replay.matches
    assert replay.kind is LeafKind.DIVERGED


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("first_step", 3),
        ("last_step", 2),
        ("kind", LeafKind.DIVERGED),
        ("state_digest", Digest(bytes(32))),
        ("batch_digest", Digest(bytes(32))),
        ("loss_bits", 0x40000000),
        ("work_word", Digest(bytes(32))),
    ],
)
def test_a_leaf_that_says_anything_else_differs(
    job: Job, trained: TrainedRound, field: str, value: object
) -> None:
    leaf: TraceLeaf = replace(trained.document.leaves[1], **{field: value})
    task, opening = job.replay_task(trained, 1), job.blob(trained.document.states[1])
    replay = replay_segment(task, served(task, opening), leaf, job.store)
    assert replay.differs == (field,)
    assert not replay.matches


def test_only_the_committed_opening_state_is_used(job: Job, trained: TrainedRound) -> None:
    task, leaf = job.replay_task(trained, 1), trained.document.leaves[1]
    blob = bytearray(job.blob(trained.document.states[1]))
    blob[-1] ^= 1
    for wrong in (bytes(blob), job.blob(trained.document.states[2]), b"", b"garbage"):
        with pytest.raises(MalformedTrace, match="the state served"):
            replay_segment(task, served(task, wrong), leaf, job.store)


def test_a_first_segment_must_open_with_the_chains_moments(job: Job, trained: TrainedRound) -> None:
    with pytest.raises(MalformedTrace):
        job.replay(trained, 0, optimiser_root=Digest(b"\x01" * 32))


def lazy(state: SeatState, segment: int, course: Course) -> SegmentRun:
    """Skips the second step of each segment, and states the honest batches."""
    done = run_segment(state, segment, course)
    manifest = course.manifest
    one = manifest.inner.model_copy(update={"segment": 1})
    half = replace(course, manifest=manifest.model_copy(update={"inner": one}))
    short = run_segment(state, done.first_step, half)
    return replace(done, state=short.state, roots=short.roots)


def test_skipped_steps_are_found(job: Job) -> None:
    cheat = train_round(job.task, job.store, run=lazy)
    for segment in range(4):
        replay = job.replay(cheat, segment)
        assert replay.differs == ("state_digest",)


def test_the_link_is_checked(job: Job, trained: TrainedRound) -> None:
    assert job.link(trained, trained.update)
    flipped = bytearray(trained.update)
    flipped[-1] ^= 1
    for wrong in (bytes(flipped), trained.update[:-1], b""):
        assert not job.link(trained, wrong)
    leaf, early = trained.document.leaves[-1], job.blob(trained.document.states[1])
    root = trained.optimiser_root
    with pytest.raises(MalformedTrace):
        check_link(job.manifest, job.model, leaf, early, Sent(trained.update, root, DITHER))


def test_a_poisoned_update_breaks_the_link(job: Job, trained: TrainedRound) -> None:
    last = read_seat_state(job.manifest, trained.document.states[-1], job.store)
    moved = {n: p + (p - last.params[n]) for n, p in job.model.params.items()}
    flipped, _ = close_round(job.manifest, job.model, replace(last, params=moved), DITHER)
    assert len(flipped) == len(trained.update)
    assert not job.link(trained, flipped)


def test_where_a_state_lies_in_memory_does_not_matter(job: Job, trained: TrainedRound) -> None:
    """Kernels choose vector paths by alignment; blobs are copied into aligned memory first."""
    blob = job.blob(trained.document.states[1])
    for shift in (1, 4, 20):
        shifted = memoryview(bytes(shift) + blob)[shift:]
        again = SeatState.from_bytes(shifted, seat_layout(job.manifest))
        assert all(p.data_ptr() % 64 == 0 for p in again.params.values())
        leaf = trained.document.leaves[1]
        task = job.replay_task(trained, 1)
        assert replay_segment(task, served(task, bytes(shifted)), leaf, job.store).matches
    assert torch.get_num_threads() == 1
