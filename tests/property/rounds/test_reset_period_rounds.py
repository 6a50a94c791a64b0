"""Rounds of a reset period: a seat goes on with its own state, and its auditor runs all of them
again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.property.rounds.reset_periods import ROUNDS, ResetPeriod, streaming, trained_reset_period
from tests.support.small_job import damage
from tests.unit.train.factories import make_job

from atoll.errors import DiskFull
from atoll.numerics.segment import Course, SegmentRun
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import seat_layout
from atoll.numerics.step import state_roots
from atoll.protocol.hashing import sha256
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Digest
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train import replay
from atoll.train.checkpoints import CARRIED_STATE, REPLAYED, Checkpoint, Checkpoints, release
from atoll.train.replay import RevealedRound, SeatReplay, replay_seat
from atoll.train.resume import Keeping, carry, checkpoints_of, round_start_of
from atoll.train.round import train_round
from atoll.train.seat_task import TrainTask, run_alone
from atoll.train.stored_states import read_global_state


@pytest.fixture(scope="module")
def reset_period(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResetPeriod]:
    folder: Path = tmp_path_factory.mktemp("reset_period")
    yield trained_reset_period(streaming(make_job(folder)))


def test_a_round_goes_on_with_the_state_of_the_one_before(reset_period: ResetPeriod) -> None:
    for number, task in enumerate(reset_period.tasks[1:], 1):
        initial_state = round_start_of(task, reset_period.job.store)
        assert initial_state.batches == reset_period.job.manifest.inner.steps
        public = round_start_of(replace(task, earlier=()), reset_period.job.store)
        assert public.batches == 0
        alone = train_round(replace(task, earlier=()), reset_period.job.store)
        assert alone.states != reset_period.trained[number].states


class Runs:
    """Counts the segments that are run to come to an opening."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        patch.setattr("atoll.train.resume.run_alone", self._run)

    def _run(self, states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        self.count += 1
        return run_alone(states, segment, course)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(monkeypatch)


def kept(reset_period: ResetPeriod, round: int = 0) -> Checkpoint:
    """What a provider that trained the round has kept of it."""
    task, store = reset_period.tasks[round], reset_period.job.store
    carried_state(task, store).drop()
    train_round(task, store, keeping=Keeping(last=carry(task, store)))
    (found,) = carried_state(task, store).before(99)
    return found


def carried_state(task: TrainTask, store: LocalStore) -> Checkpoints:
    return checkpoints_of(task, store, share=0, last_part=f"{CARRIED_STATE}/{task.seat}")


def reached(task: TrainTask, store: LocalStore) -> Digest:
    return state_roots(round_start_of(task, store)).digest()


def test_who_was_killed_between_two_rounds_goes_on_with_what_it_kept(
    reset_period: ResetPeriod, runs: Runs
) -> None:
    last = kept(reset_period).states[-1]
    runs.count = 0
    assert reached(reset_period.tasks[1], LocalStore(reset_period.job.store.root)) == last
    assert runs.count == 0
    assert (
        reached(reset_period.tasks[2], reset_period.job.store) == reset_period.trained[1].states[-1]
    )
    assert runs.count == reset_period.job.manifest.segments  # what is kept is the round's before


@pytest.mark.parametrize(
    ("room", "left", "ran"), [(0.5, 0, 1), (1.5, 1, 0), (2.5, 1, 0), (-1.0, 0, 1)]
)
def test_an_older_state_stays_until_there_is_a_newer_one(
    reset_period: ResetPeriod,
    runs: Runs,
    monkeypatch: pytest.MonkeyPatch,
    room: float,
    left: int,
    ran: int,
) -> None:
    """Else who has no room for the newer one runs the reset period anew.

    Args:
        room: in states, beside the older one; less than none: the disk turns out to be full.
        left: the round of which a state is kept, and `ran` how many rounds have to be run again.
    """
    kept(reset_period)
    task, store = reset_period.tasks[1], reset_period.job.store
    size = 4 * seat_layout(task.manifest).elements

    def has_room(store: LocalStore, wanted: int) -> bool:
        held = sum(CARRIED_STATE in pin.reason for pin in store.pins())
        return room < 0 or wanted <= (room + 1 - held) * size

    def full(*_: object) -> Cid:
        raise DiskFull("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "has_room", has_room)
        if room < 0:
            patch.setattr(LocalStore, "add_pieces", full)
        train_round(task, store, keeping=Keeping(last=carry(task, store)))
    assert [pin.reason for pin in store.pins() if CARRIED_STATE in pin.reason] == [
        f"job/{task.round_id.job}/round/{left}{CARRIED_STATE}/{task.seat}"
    ]
    runs.count = 0
    assert reached(reset_period.tasks[2], store) == reset_period.trained[1].states[-1]
    assert runs.count == ran * reset_period.job.manifest.segments


def test_a_damaged_state_is_made_again(reset_period: ResetPeriod, runs: Runs) -> None:
    found, store = kept(reset_period), reset_period.job.store
    damage(store, found.state)
    runs.count = 0
    assert reached(reset_period.tasks[1], store) == found.states[-1]
    assert runs.count == reset_period.job.manifest.segments


def test_a_whole_state_that_is_not_the_rounds_last_is_made_again(
    reset_period: ResetPeriod, runs: Runs
) -> None:
    """Written from memory that was wrong by then: the store's own digests are right."""
    found, store = kept(reset_period), reset_period.job.store
    other = round_start_of(reset_period.tasks[0], store)
    checkpoints = carried_state(reset_period.tasks[0], store)
    checkpoints.drop()
    checkpoints.write(found, other.pieces(), 0)
    runs.count = 0
    assert reached(reset_period.tasks[1], store) == found.states[-1]
    assert runs.count == reset_period.job.manifest.segments


@pytest.mark.parametrize("change", ["data_seed", "global_state_cid"])
def test_what_was_kept_of_another_history_is_not_gone_on_with(
    reset_period: ResetPeriod, runs: Runs, change: str
) -> None:
    """After a reorg, or with another model than was foreseen."""
    kept(reset_period)
    runs.count = 0
    task = reset_period.tasks[1]
    (first,) = task.earlier
    other = {
        "data_seed": sha256(b"other"),
        "global_state_cid": reset_period.tasks[2].global_state_cid,
    }
    changed = replace(task, earlier=(replace(first, **{change: other[change]}),))
    assert reached(changed, reset_period.job.store) != reset_period.trained[0].states[-1]
    assert runs.count == reset_period.job.manifest.segments


def test_who_was_killed_within_a_round_goes_on_from_its_checkpoint(
    reset_period: ResetPeriod,
) -> None:
    task, store = reset_period.tasks[1], reset_period.job.store
    kept(reset_period)
    run: list[int] = []

    def runner(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        if segment == 2 and len(run) == 2:
            run.append(-1)
            raise InterruptedError
        run.append(segment)
        return run_alone(states, segment, course)

    for _ in range(2):
        with suppress(InterruptedError):
            checkpoints = checkpoints_of(task, store, share=0)
            keeping = Keeping(checkpoints, last=carry(task, store))
            done = train_round(task, store, run=runner, keeping=keeping)
    assert run == [0, 1, -1, 2, 3]
    assert (done.states, done.update) == (
        reset_period.trained[1].states,
        reset_period.trained[1].update,
    )
    release(store, task.round_id.job, task.round_id.round)
    assert reached(reset_period.tasks[2], store) == done.states[-1]  # kept for the round after it


@pytest.mark.parametrize("round", range(ROUNDS))
def test_an_honest_round_is_valid_with_all_before_it(reset_period: ResetPeriod, round: int) -> None:
    found = replay_seat(
        reset_period.tasks[round], reset_period.claimed(round), reset_period.job.store
    )
    assert (found.mismatch_at, found.earlier) == (None, None)
    assert found.work_tags == reset_period.trained[round].work_tags


@pytest.mark.parametrize(("round", "segment"), [(0, 1), (1, 0), (1, 4)])
def test_what_differs_in_a_round_that_nobody_drew_is_found_in_a_later_one(
    reset_period: ResetPeriod, round: int, segment: int
) -> None:
    """Segment 4 of four is the update proof: states as they are, another update."""
    false, done = Digest(bytes(range(32))), list(reset_period.trained)
    states = list(done[round].states)
    if segment < len(states):
        states[segment] = false
        done[round] = replace(done[round], states=tuple(states))
    else:
        done[round] = replace(done[round], update=done[round].update[:-1] + b"\x55")
    last = ROUNDS - 1
    found = replay_seat(
        reset_period.tasks[last], reset_period.claimed(last, done), reset_period.job.store
    )
    assert (found.earlier, found.mismatch_at) == (round, segment)
    own = reset_period.trained[round]
    right = own.states[segment] if segment < len(states) else own.update_root
    assert found.own == right
    account = reset_period.job.task.seat
    entry = found.entry(account, "0x" + "11" * 20)  # type: ignore[arg-type]  # an address
    assert (entry.at, entry.digest) == (0, right)


def replayed(
    reset_period: ResetPeriod, round: int, claimed: RevealedRound | None = None
) -> tuple[SeatReplay, int]:
    """What it gives, and how many segments were run for it."""
    ran: list[int] = []

    def run(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        ran.append(segment)
        return run_alone(states, segment, course)

    told = reset_period.claimed(round) if claimed is None else claimed
    replayed = replay_seat(reset_period.tasks[round], told, reset_period.job.store, run=run)
    return replayed, len(ran)


@pytest.fixture
def nothing_kept(reset_period: ResetPeriod) -> None:
    task, store = reset_period.tasks[0], reset_period.job.store
    carried_state(task, store).drop()
    checkpoints_of(task, store, share=0, last_part=f"{REPLAYED}/{task.seat}").drop()


@pytest.mark.usefixtures("nothing_kept")
def test_an_auditor_goes_on_from_its_own_replay_of_an_earlier_round(
    reset_period: ResetPeriod,
) -> None:
    """Else the last round of a reset period of 64 is 64 rounds of work for who audited the one
    before.
    """
    segments, last = reset_period.job.manifest.segments, ROUNDS - 1
    ran = []
    for round in (last, last, 0, last, last - 1, last):
        found, count = replayed(reset_period, round)
        assert (found.mismatch_at, found.work_tags) == (None, reset_period.trained[round].work_tags)
        ran.append(count)
    # A later round's state is no beginning; a newer replay's takes the place of an older one's.
    assert ran == [segments * rounds for rounds in (3, 3, 1, 2, 2, 1)]


@pytest.mark.usefixtures("nothing_kept")
def test_models_of_rounds_that_it_goes_on_from_are_not_read_again(
    reset_period: ResetPeriod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading 63 models may take longer than a step. One that is certified otherwise is said."""
    read: list[bytes] = []

    def reading(manifest: Manifest, cid: bytes, store: LocalStore, **parts: bool) -> GlobalState:
        read.append(cid)
        return read_global_state(manifest, cid, store, **parts)

    monkeypatch.setattr(replay, "read_global_state", reading)
    last = ROUNDS - 1
    for round in range(last):
        assert replayed(reset_period, round)[0].mismatch_at is None
    said = reset_period.claimed(last)
    other = replace(said.earlier[-1], model=sha256(b"other"))
    with pytest.raises(replay.Disagreement):
        replayed(reset_period, last, replace(said, earlier=(*said.earlier[:-1], other)))
    read.clear()
    assert replayed(reset_period, last)[0].mismatch_at is None
    assert read == [reset_period.tasks[last].global_state_cid]


@pytest.mark.usefixtures("nothing_kept")
def test_a_replay_does_not_fail_where_no_pin_can_be_changed(
    reset_period: ResetPeriod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: it took hours, and what it found is known by then."""
    replayed(reset_period, 0)
    store, unpin = reset_period.job.store, LocalStore.unpin

    def full(self: LocalStore, reason: str, cid: Cid | None = None) -> int:
        if CARRIED_STATE in reason:
            raise DiskFull("the disk is full")
        return unpin(self, reason, cid)

    monkeypatch.setattr(LocalStore, "unpin", full)
    assert replayed(reset_period, 1)[0].mismatch_at is None
    assert train_round(
        reset_period.tasks[1], store, keeping=Keeping(last=carry(reset_period.tasks[1], store))
    ).update


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize(("what", "ran"), [("checkpoint_commitments", 1), ("update_root", 2 * 4)])
def test_it_does_not_where_the_seat_is_held_to_something_else(
    reset_period: ResetPeriod, what: str, ran: int
) -> None:
    """As after a reorg. The segment that differs is run again by the reference, of an update proof
    none."""
    assert replayed(reset_period, 0)[1] == reset_period.job.manifest.segments == 4
    first, other = reset_period.claimed(0), reset_period.claimed(1)
    changed = replace(first, **{what: getattr(other, what)})
    found, count = replayed(reset_period, 1, replace(other, earlier=(changed,)))
    assert (found.earlier, count) == (0, ran)


def test_nothing_is_kept_of_a_reset_periods_last_round(reset_period: ResetPeriod) -> None:
    task, kept = reset_period.tasks[0], list[Checkpoint]()
    for length in (1, ROUNDS):
        manifest = task.manifest.model_copy(update={"reset_period": length})
        keeping = Keeping(last=lambda done, _: kept.append(done))
        train_round(replace(task, manifest=manifest), reset_period.job.store, keeping=keeping)
    assert [done.segments for done in kept] == [task.manifest.segments]


@pytest.mark.usefixtures("nothing_kept")
def test_nothing_is_kept_of_a_round_whose_link_is_false(reset_period: ResetPeriod) -> None:
    segments = reset_period.job.manifest.segments
    false = replace(reset_period.claimed(0), update_root=Digest(bytes(32)))
    assert replayed(reset_period, 0, false)[0].mismatch_at == segments
    assert replayed(reset_period, 1)[1] == 2 * segments
