"""Overlap and mixing: what a round merged comes back inside the next, and is checked there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from tests.jobs import PLAIN
from tests.merging import all_standing
from tests.unit.train.factories import DATA_SEED, DITHER, Job
from tests.unit.train.test_methods import Run, manifest_for, replays
from tests.unit.train.test_streaming import HALVES, SHAPES, A, B, moved, values

from atoll.bits.layout import SeatLayout
from atoll.bits.link import close_round
from atoll.bits.schedule import Recipe
from atoll.bits.segment import Course, SegmentRun, run_segment
from atoll.bits.state import GlobalState, SeatState
from atoll.bits.step import state_roots, take_in
from atoll.content.cid import Cid
from atoll.errors import MalformedTrace, NotFound
from atoll.law.manifest import Manifest
from atoll.law.trace import LeafKind
from atoll.law.words import ZERO_DIGEST, SeatIndex
from atoll.merge.round import merge
from atoll.train.course import open_course
from atoll.train.round import read_seat_state, train_ahead, train_round
from atoll.train.tolerance import default_tolerance

CHOICES = [(1, 2, "0"), (1, 3, "0.5"), (2, 0, "0.5"), (2, 1, "0.25"), (2, 2, "0.5"), (2, 3, "0")]
"""Fragments, overlap and mixing, in rounds of two segments of two steps."""


def with_codec(manifest: Manifest, **changes: object) -> Manifest:
    return Manifest.model_validate(
        manifest.model_dump() | {"codec": manifest.codec.model_dump() | changes}
    )


def started(job: Job, fragments: int = 2, overlap: int = 1, mixing: str = "0.5") -> Run:
    """A job after its first round."""
    plain = manifest_for(job, "streaming")
    run = Run(job.of(with_codec(plain, fragments=fragments, overlap=overlap, mixing=mixing)))
    run.one_round()
    return run


# --- what is computed ---


def test_golden_overlap(job: Job) -> None:
    """Two layers of one number, (a, b), sent in turn, mixed by halves before step 1 of two.

    Every step seat 0 moves by (−1, −1) and seat 1 by (−2, −1/2); outer SGD at rate 1, a plain mean.
    Round 0 sends a: they end with (−2, −2) and (−4, −1); a = −3.
    Round 1 sends b. After step 0 they are at (−3, −3) and (−6, −3/2); half their own a and half the
    merged one make −3 and −9/2; they end with (−4, −4) and (−13/2, −2); b = 0 − (4 + 2)/2 = −3.
    Round 2 sends a. After step 0 they are at (−5, −5) and (−17/2, −5/2); their b becomes −4 and
    −11/4; they end with (−6, −5) and (−21/2, −13/4); a = −3 − (3 + 15/2)/2 = −33/4.
    """
    codec = HALVES.model_copy(update={"overlap": 1, "mixing": "0.5"})
    robust = job.manifest.robust.model_copy(update={"rule": "mean"})
    manifest = job.manifest.model_copy(update={"codec": codec, "robust": robust})
    model = GlobalState(0, {A: torch.zeros(1), B: torch.zeros(1)}, {}, {A: -2, B: -2})
    carried: list[SeatState | None] = [None, None]
    closings, merged = [], []
    for round in range(3):
        local = frozenset(name for name in SHAPES if codec.is_local(name, round))
        course = course_of(manifest, model)
        updates = {}
        for seat, by in enumerate((("-1", "-1"), ("-2", "-1/2"))):
            state = SeatState.opening(model, carried[seat], SeatLayout(SHAPES, {}, {}, {}, local))
            for step in range(2):
                state = moved(course.begin(state, step), by)
            closings.append(values(state.params))
            updates[seat], carried[seat] = close_round(manifest, model, state, DITHER)
        facts = all_standing(updates, manifest)
        model = merge(
            model, updates, facts=facts, data_seed=DATA_SEED, manifest=manifest
        ).global_state
        merged.append(values(model.params))
    assert closings == ["-2 -2", "-4 -1", "-4 -4", "-13/2 -2", "-6 -5", "-21/2 -13/4"]
    assert merged == ["-3 0", "-3 -3", "-33/4 -3"]


def course_of(manifest: Manifest, model: GlobalState) -> Course:
    """The course of seat 0 in the model's round, over no tokens."""
    recipe, tokens = Recipe.of(manifest), np.empty(0, np.uint8)
    return Course(manifest, recipe, tokens, ZERO_DIGEST, SeatIndex(0), model.round, model)


@pytest.mark.parametrize("mixing", ["0", "0.1", "0.5", "0.999999"])
def test_mixing_rounds_after_every_operation(mixing: str) -> None:
    generator = torch.Generator().manual_seed(1)
    own, merged = (torch.randn(999, generator=generator) for _ in range(2))
    model = GlobalState(1, {A: merged, B: merged}, {}, {})
    state = SeatState({A: own, B: own}, {}, {}, {}, 1, 1)
    codec = HALVES.model_copy(update={"overlap": 1, "mixing": mixing})
    found = take_in(state, model, codec).params
    a, one = np.float32(float(Fraction(mixing))), np.float32(1)
    expected = own.numpy() * a + merged.numpy() * (one - a)
    assert expected.dtype == np.float32
    assert found[A].numpy().tobytes() == expected.tobytes()
    assert found[B] is own  # not of the fragment that round 0 merged


@pytest.mark.parametrize(("fragments", "overlap", "mixing"), CHOICES)
def test_rounds_train_replay_link_and_merge(
    job: Job, fragments: int, overlap: int, mixing: str
) -> None:
    run = started(job, fragments, overlap, mixing)
    for _ in range(2):
        before = run.job.model
        run.one_round()  # replays and links everything
        sent = {n for n in before.params if run.job.manifest.codec.is_sent(n, before.round)}
        moved = {n for n, p in before.params.items() if not torch.equal(p, run.job.model.params[n])}
        assert moved == sent


def test_a_round_opens_with_nothing_of_the_model_and_takes_the_fragment_in(job: Job) -> None:
    run = started(job, overlap=1)
    seat, carried = run.seat(0), run.carried[0]
    assert carried is not None
    trained = train_round(seat.task, seat.store)
    own = read_seat_state(seat.manifest, carried, seat.store, 1)
    opening = read_seat_state(seat.manifest, trained.document.states[0], seat.store, 1)
    assert all(torch.equal(p, own.params[n]) for n, p in opening.params.items())
    assert trained.document.state_roots[0].params_root == ZERO_DIGEST
    assert trained.document.state_roots[0].optimiser_root == run.roots[0]


def test_without_overlap_and_mixing_the_fragment_is_there_at_the_opening(job: Job) -> None:
    run = started(job, overlap=0, mixing="0")
    seat = run.seat(0)
    trained = train_round(seat.task, seat.store)
    opening = read_seat_state(seat.manifest, trained.document.states[0], seat.store, 1)
    codec = seat.manifest.codec
    merged = {n for n in seat.model.params if codec.is_sent(n, 0)}
    assert all(torch.equal(opening.params[n], seat.model.params[n]) for n in merged)
    assert opening.local == seat.model.params.keys() - merged


# --- ahead of the download ---


@pytest.mark.parametrize(("overlap", "segments"), [(1, 0), (2, 1), (3, 1)])
def test_what_comes_before_the_overlap_needs_no_model(
    job: Job, overlap: int, segments: int
) -> None:
    run = started(job, overlap=overlap)
    seat = run.seat(0)
    whole = train_round(seat.task, seat.store)
    nowhere = replace(seat.task, global_state_cid=Cid.of(b"not here yet").to_bytes())
    ahead = train_ahead(nowhere, seat.store)
    assert len(ahead.document.leaves) == segments == seat.manifest.segments_ahead
    assert ahead.document.leaves == whole.document.leaves[:segments]
    with pytest.raises(NotFound):
        train_round(nowhere, seat.store)
    if segments:
        task = replace(seat.task, begun=ahead.document.to_bytes())
        done = train_round(task, seat.store)
        assert (done.document, done.update) == (whole.document, whole.update)
        assert done.losses == whole.losses[2 * segments :]


def test_a_step_that_takes_the_model_in_is_not_run_without_it(job: Job) -> None:
    run = started(job, overlap=1)
    seat = run.seat(0)
    course = open_course(seat.manifest, seat.task.data_seed, SeatIndex(0), 1, seat.store)
    state = read_seat_state(seat.manifest, run.carried[0] or b"", seat.store, 1)
    with pytest.raises(ValueError, match="not here"):
        run_segment(state, 0, course)


def test_a_reset_opens_with_the_model_so_it_waits_for_it(job: Job) -> None:
    seat = started(job, overlap=2).seat(0)
    with pytest.raises(ValueError, match="global model"):
        train_ahead(replace(seat.task, opening_optimiser=None), seat.store)


# --- what is refused, and what is not ---


def test_a_reset_takes_the_fragment_in_all_the_same(job: Job) -> None:
    run = started(job, overlap=3)
    seat = run.seat(0)
    fresh = train_round(replace(seat.task, opening_optimiser=None), seat.store)
    fresh.document.check_opening(*seat.opening_roots(ZERO_DIGEST))
    with pytest.raises(MalformedTrace):
        fresh.document.check_opening(*seat.opening_roots(run.roots[0]))
    assert all(r.matches for r in replays(seat, fresh, ZERO_DIGEST))
    ignored = train_round(
        replace(seat.task, opening_optimiser=None), seat.store, run=never_taking_in
    )
    matches = [r.matches for r in replays(seat, ignored, ZERO_DIGEST)]
    assert matches == [True, False]


def never_taking_in(state: SeatState, segment: int, course: Course) -> SegmentRun:
    """Goes on with the seat's own parameters alone."""
    codec = course.manifest.codec.model_copy(update={"overlap": course.manifest.inner.steps})
    manifest = course.manifest.model_copy(update={"codec": codec})
    return run_segment(state, segment, replace(course, manifest=manifest))


@pytest.mark.parametrize(("overlap", "wrong"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_another_fragment_than_the_merged_one_fails_the_segment_that_takes_it_in(
    job: Job, overlap: int, wrong: int
) -> None:
    run = started(job, overlap=overlap)
    seat = run.seat(0)
    name = next(n for n in seat.model.params if seat.manifest.codec.is_sent(n, 0))
    params = seat.model.params | {name: seat.model.params[name] + 1}
    other = seat.store.add_bytes(replace(seat.model, params=params).to_bytes()).to_bytes()
    for task, run_ in (
        (replace(seat.task, global_state_cid=other), run_segment),
        (seat.task, never_taking_in),
    ):
        trained = train_round(task, seat.store, run=run_)
        trained.document.check_opening(*seat.opening_roots(run.roots[0]))
        matches = [r.matches for r in replays(seat, trained, run.roots[0])]
        assert matches == [segment != wrong for segment in range(2)]


def test_own_parameters_are_those_that_were_accepted(job: Job) -> None:
    """With one fragment, too: the carried root is the anchor of every parameter."""
    run = started(job, fragments=1)
    seat, carried = run.seat(0), run.carried[0]
    assert carried is not None
    state = read_seat_state(seat.manifest, carried, seat.store, 1)
    name = sorted(state.params)[0]
    poisoned = replace(state, params=state.params | {name: state.params[name] + 1})
    cid = seat.store.add_bytes(poisoned.to_bytes()).to_bytes()
    trained = train_round(replace(seat.task, opening_optimiser=cid), seat.store)
    with pytest.raises(MalformedTrace, match="optimiser"):
        trained.document.check_opening(*seat.opening_roots(run.roots[0]))


def test_a_round_that_merged_nothing_gives_its_old_fragment_back(job: Job) -> None:
    """The global state is the same but for its round, and is mixed in like any other."""
    run = started(job, overlap=1)
    trained = {seat: train_round(run.seat(seat).task, run.job.store) for seat in range(3)}
    manifest, facts = run.job.manifest, all_standing([], run.job.manifest)
    nothing = merge(run.job.model, {}, facts=facts, data_seed=DATA_SEED, manifest=manifest)
    assert not nothing.merged
    assert nothing.global_state.params_root() == run.job.model.params_root()
    run.job = replace(run.job, model=nothing.global_state)
    run.round += 1
    run.roots = {seat: done.optimiser_root for seat, done in trained.items()}
    run.carried = {seat: done.carried_cid for seat, done in trained.items()}
    run.one_round()


# --- divergence ---


@pytest.mark.parametrize("overlap", [1, 2, 3])
def test_a_step_that_diverges_on_the_merged_fragment_leaves_the_state_before_it(
    job: Job, overlap: int
) -> None:
    run = started(job, overlap=overlap, mixing="0")
    wild = {name: torch.full_like(p, 2.0**70) for name, p in run.job.model.params.items()}
    run.job = replace(run.job, model=replace(run.job.model, params=wild))
    seat = run.seat(0)
    trained = train_round(seat.task, seat.store)
    last = trained.document.leaves[-1]
    assert (trained.steps, last.last_step, last.kind) == (overlap, overlap, LeafKind.DIVERGED)
    state = read_seat_state(seat.manifest, trained.document.states[-1], seat.store, 1)
    assert all(float(p.abs().max()) < 1000 for p in state.params.values())
    assert state_roots(state) == trained.carried
    assert all(r.matches for r in replays(seat, trained, run.roots[0]))


# --- tolerant jobs ---


@pytest.fixture
def tolerant(job: Job) -> Run:
    fields = {"mode": "tolerant", "software_class": None, "probe_digest": None}
    numerics = job.manifest.numerics.model_copy(update=fields | {"tolerance": default_tolerance()})
    return started(job.with_numerics(numerics), overlap=1)


def standing_still(state: SeatState, segment: int, course: Course) -> SegmentRun:
    """Takes the fragment in where it must, and moves nothing by training."""
    done = run_segment(state, segment, course)
    first = done.first_step
    for step in range(first, done.last_step + 1):
        state = course.begin(state, step)
    idle = replace(done.state, params=state.params)
    return replace(done, state=idle, roots=state_roots(idle))


@pytest.mark.parametrize(
    ("run_", "good"), [(run_segment, True), (standing_still, False), (never_taking_in, False)]
)
def test_a_jump_is_no_work(
    tolerant: Run, run_: Callable[[SeatState, int, Course], SegmentRun], good: bool
) -> None:
    seat = tolerant.seat(0)
    trained = train_round(seat.task, seat.store, run=run_)
    first = replays(seat, trained, tolerant.roots[0])[0]
    assert first.differs == ()
    assert first.matches == good
    assert (first.excess == 0.0) == good


# --- the manifest ---


@pytest.mark.parametrize("changes", [{"overlap": 4}, {"overlap": -1}, {"mixing": "1"}])
def test_an_overlap_is_shorter_than_a_round_and_mixing_takes_something_in(
    job: Job, changes: dict[str, object]
) -> None:
    manifest = manifest_for(job, "streaming")
    assert (manifest.codec.overlap, manifest.codec.mixing) == (2, "0.5")
    with pytest.raises(ValidationError):
        with_codec(manifest, **changes)


def test_a_round_of_one_segment_only_mixes(job: Job) -> None:
    """There is no segment to be trained ahead."""
    whole = PLAIN.but({"method.name": "streaming", "inner.steps": 4, "inner.segment": 4})
    manifest = whole.resolve(job.manifest.data, None, job.manifest.numerics, now=0)
    assert (manifest.codec.overlap, manifest.segments_ahead) == (0, 0)
    assert manifest.codec.is_delayed
