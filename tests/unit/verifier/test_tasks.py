"""What the verifier's worker says of a seat's work: nothing of valid work, and why of any other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import dag_cbor
import pytest
from tests.unit.train.factories import Job, make_job, reveal_of, task_of

from atoll.bits.layout import max_state_bytes
from atoll.content.unixfs import Entry, FileBuilder
from atoll.law.hashing import sha256
from atoll.law.manifest import Manifest
from atoll.law.merge_inputs import MergeFacts
from atoll.law.words import ZERO_DIGEST, Address, Bitmap, Digest, RoundIndex, SeatIndex
from atoll.merge.round import merge, named_inputs
from atoll.train.probe import configure_native
from atoll.train.round import TrainedRound, read_global_state, train_round
from atoll_verifier import tasks
from atoll_verifier.duties.merge import DoMerge
from atoll_verifier.duties.score import DoScore, RevealedUpdate
from atoll_verifier.limits import max_update_bytes
from atoll_verifier.seatwork import SeatWork

SEATS = 3
WRONG = sha256(b"something else")


@dataclass(frozen=True)
class Round:
    """A job in which every seat has trained; `works` and `trained` by seat."""

    job: Job
    works: list[SeatWork]
    trained: list[TrainedRound]

    @property
    def store(self) -> str:
        return str(self.job.store.root)

    def put(self, data: bytes) -> bytes:
        return self.job.store.add_bytes(data).to_bytes()

    def with_trace(self, **changes: Any) -> SeatWork:
        """Seat 0's work with another document, whose root is not what was revealed."""
        plain: Any = dag_cbor.decode(self.job.blob(self.works[0].reveal.trace_cid))
        cid = self.put(dag_cbor.encode(plain | changes))
        return with_reveal(self.works[0], trace_cid=cid)

    def facts(self) -> MergeFacts:
        steps = {SeatIndex(seat): self.trained[seat].steps for seat in range(SEATS)}
        return MergeFacts(Bitmap((1 << SEATS) - 1), Bitmap(0), Bitmap(0), 0, steps)

    def updates(self) -> list[RevealedUpdate]:
        reveals = [work.reveal for work in self.works]
        return [
            RevealedUpdate(i, item.update_cid, item.update_root) for i, item in enumerate(reveals)
        ]


def with_reveal(work: SeatWork, **changes: Any) -> SeatWork:
    return replace(work, reveal=replace(work.reveal, **changes))


@pytest.fixture(scope="module")
def round_(tmp_path_factory: pytest.TempPathFactory) -> Round:
    configure_native()
    job = make_job(tmp_path_factory.mktemp("tasks"))
    works, rounds = [], []
    for seat in range(SEATS):
        task = replace(task_of(job.manifest, job.task.global_state_cid), seat=SeatIndex(seat))
        rounds.append(train_round(task, job.store))
        works.append(
            SeatWork(
                slot=task.slot,
                seat=seat,
                reveal=reveal_of(rounds[-1]),
                account=Address("0x" + "22" * 20),
                gateway="",
                data_seed=task.data_seed,
                manifest=job.manifest.to_bytes(),
                opening=task.global_state_cid,
                params_root=job.model.params_root(),
                optimiser_root=ZERO_DIGEST,
            )
        )
    return Round(job, works, rounds)


def test_of_valid_work_there_is_nothing_to_say(round_: Round) -> None:
    for work, trained in zip(round_.works, round_.trained, strict=True):
        assert tasks.check_seat(work, round_.store) == ""
        assert tasks.link(work, round_.store) == ""
        for segment, leaf in enumerate(trained.document.leaves):
            done = tasks.replay(work, segment, round_.store, 5)
            assert (done.differs, done.work_word) == ("", leaf.work_word)
            assert (done.steps, done.computed) == (2, leaf.state_digest)
            assert done.seconds > 0


def test_each_cheap_check_says_what_is_wrong(round_: Round) -> None:
    work, manifest = round_.works[0], round_.job.manifest
    another = round_.works[1].reveal
    long = round_.put(bytes(max_update_bytes(manifest) + 1))
    cases = {
        "do not have the revealed root": with_reveal(work, update_root=WRONG),
        "allowed": with_reveal(work, update_cid=long),
        "has 100 bytes": with_reveal(
            work,
            update_cid=round_.put(bytes(100)),
            update_root=tasks.root_of_update(bytes(100)),
        ),
        "not DAG-CBOR": with_reveal(work, trace_cid=round_.put(b"\xff")),
        "seat": with_reveal(work, trace_cid=another.trace_cid),
        "open": replace(work, params_root=WRONG),
        "batch": replace(work, data_seed=Digest(b"\x06" * 32)),
    }
    for said, wrong in cases.items():
        assert said in tasks.check_seat(wrong, round_.store), said


def test_a_diverged_seats_update_is_not_looked_at(round_: Round) -> None:
    wrong = with_reveal(round_.works[0], update_root=WRONG, steps=7)
    assert "root" in tasks.check_seat(with_reveal(wrong, steps=8), round_.store)
    assert "revealed root" not in tasks.check_seat(wrong, round_.store)


def test_a_state_that_cannot_be_one_is_a_fault_of_the_segment(round_: Round) -> None:
    document = round_.trained[0].document
    too_long = round_.put(bytes(max_state_bytes(round_.job.manifest) + 1))
    for bad in (too_long, round_.put(b"no state")):
        first = round_.with_trace(states=[document.states[0], bad, *document.states[2:]])
        done = tasks.replay(first, 1, round_.store, 5)
        assert done.differs != "" and done.computed == done.work_word == ZERO_DIGEST
        assert (done.steps, done.seconds) == (0, 0.0)
        last = round_.with_trace(states=[*document.states[:-1], bad])
        assert "state" in tasks.link(last, round_.store)


@pytest.mark.parametrize("claimed", [-1, 1, -100])
def test_a_state_whose_root_lies_of_its_leaves_is_a_fault_too(round_: Round, claimed: int) -> None:
    """It is found when its last leaf is read, with most of the state parsed."""
    document, store = round_.trained[0].document, round_.job.store
    data = round_.job.blob(document.states[1])
    half = len(data) // 2
    builder = FileBuilder(store.put_block)
    for leaf, lie in ((data[:half], 0), (data[half:], claimed)):
        builder.add_leaf(Entry(store.add_block(leaf), len(leaf) + lie, len(leaf)))
    bad = builder.finish().cid.to_bytes()
    first = round_.with_trace(states=[document.states[0], bad, *document.states[2:]])
    done = tasks.replay(first, 1, round_.store, 5)
    assert done.differs != "" and done.steps == 0
    last = round_.with_trace(states=[*document.states[:-1], bad])
    assert "state" in tasks.link(last, round_.store)


def test_nobody_serves_the_state_that_a_round_opens_with(round_: Round) -> None:
    """Of a second round too, which opens with merged moments: its first state is junk here."""
    job, cid = (
        round_.job,
        tasks.merge_round(of(DoMerge, round_, round_.updates()), round_.store).cid,
    )
    model = read_global_state(job.manifest, cid, job.store)
    assert model.moments.is_warm
    slot = replace(job.task.slot, round=RoundIndex(1))
    trained = train_round(replace(job.task, slot=slot, global_state_cid=cid), job.store)
    assert trained.reset
    assert trained.document.state_roots[0].optimiser_root == model.moments.opening_root
    document = replace(trained.document, states=(round_.put(b"junk"), *trained.document.states[1:]))
    work = replace(
        with_reveal(round_.works[0], trace_cid=round_.put(document.to_bytes())),
        slot=slot,
        seat=job.task.seat,
        opening=cid,
        params_root=model.params_root(),
        optimiser_root=model.moments.opening_root,
    )
    done = tasks.replay(work, 0, round_.store, 5)
    assert (done.differs, done.computed) == ("", document.leaves[0].state_digest)
    cold = tasks.replay(replace(work, optimiser_root=ZERO_DIGEST), 0, round_.store, 5)
    assert "does not open with" in cold.differs


def test_a_replay_of_other_work_differs(round_: Round) -> None:
    other = replace(round_.works[0], data_seed=Digest(b"\x06" * 32))
    done = tasks.replay(other, 1, round_.store, 5)
    assert done.differs != ""
    assert done.computed != round_.trained[0].document.leaves[1].state_digest


def test_an_update_of_another_seat_does_not_follow(round_: Round) -> None:
    other = round_.works[1].reveal
    wrong = with_reveal(round_.works[0], update_cid=other.update_cid)
    assert "do not follow" in tasks.link(wrong, round_.store)
    assert "do not follow" in tasks.link(
        with_reveal(round_.works[0], optimiser_root=WRONG), round_.store
    )


def of(kind: type[Any], round_: Round, updates: list[RevealedUpdate]) -> Any:
    return kind(
        slot=round_.works[0].slot,
        manifest=round_.job.manifest.to_bytes(),
        opening=round_.works[0].opening,
        facts=round_.facts(),
        data_seed=round_.works[0].data_seed,
        updates=tuple(updates),
    )


def test_what_is_scored_and_merged_is_what_was_revealed(round_: Round) -> None:
    """An update that is another, or no file, counts as if it had not come."""
    bytes_by_seat = {
        seat: round_.job.blob(w.reveal.update_cid) for seat, w in enumerate(round_.works)
    }
    revealed, facts = round_.updates(), round_.facts()
    known: dict[str, Any] = {
        "facts": facts,
        "data_seed": round_.works[0].data_seed,
        "manifest": Manifest.from_bytes(round_.works[0].manifest),
    }
    whole = merge(round_.job.model, bytes_by_seat, **known).global_state
    without = merge(round_.job.model, {s: b for s, b in bytes_by_seat.items() if s}, **known)
    assert whole.digest() != without.global_state.digest()
    broken = {
        "another": replace(revealed[0], root=WRONG),
        "no CID": replace(revealed[0], cid=b"\x01"),
        "too long": replace(revealed[0], cid=round_.put(bytes(2 << 20))),
    }
    cases = {"": (revealed, whole)}
    cases |= {k: ([v, *revealed[1:]], without.global_state) for k, v in broken.items()}
    for case, (updates, expected) in cases.items():
        done = tasks.merge_round(of(DoMerge, round_, updates), round_.store)
        assert done.digest == expected.digest(), case
        assert round_.job.blob(done.cid) == expected.to_bytes(), case
    named = named_inputs(round_.job.model, bytes_by_seat, **known).in_full
    assert tasks.score(of(DoScore, round_, revealed), round_.store).in_full == named
