"""Rounds that sample and learn: alike for who trains and who replays, with ids or without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.manifests import whole_manifest
from tests.unit.train.factories import KEY, task_of
from torch import Tensor

from atoll.errors import ManifestError
from atoll.numerics.problems import Problem, written
from atoll.numerics.rollouts import Place, Rollouts, Sampler, read_ids
from atoll.numerics.sections import UpdateLayout
from atoll.numerics.segment import Course, run_segment
from atoll.numerics.state import SeatState
from atoll.numerics.state_layout import seat_layout, trained_shapes
from atoll.protocol.canonical import encode
from atoll.protocol.manifest import Manifest
from atoll.protocol.task_spec import TaskSpec
from atoll.protocol.types import ZERO_DIGEST
from atoll.service.update_limits import max_update_bytes
from atoll.storage.local import LocalStore
from atoll.train.data import write_tokens
from atoll.train.initial_model import open_initial_state
from atoll.train.own_run import program_header
from atoll.train.replay import RevealedRound, replay_seat
from atoll.train.resume import Keeping, checkpoints_of
from atoll.train.rollout_figures import figures_of
from atoll.train.round import train_round
from atoll.train.seat_task import TrainTask, course_of, run_alone
from atoll.train.second_run import run_by_reference

VOCAB, SEQ = 40, 16
REWARD = {"kind": "answer", "weight": 1000, "opening": "", "closing": "", "least": 0, "most": 0}
TASK: Mapping[str, Any] = {
    "prompts": 6, "prompt_tokens": 4, "answer_bytes": 2, "group": 4, "new_tokens": 8,
    "ends": [2], "rewards": [REWARD],
}  # fmt: skip
TEXTS = [bytes([65 + token % 8]) for token in range(VOCAB)]
PROBLEMS = [Problem((5 + i, 7, 9)[: 1 + i % 3], bytes([65 + i % 8])) for i in range(6)]


def rl_manifest(store: LocalStore, **changes: Any) -> Manifest:
    task = TaskSpec.model_validate(TASK)
    data = write_tokens(written(PROBLEMS, TEXTS, task, "uint16"), store)
    fields = {"cid": data.cid, "nodes_cid": data.nodes_cid, "root": data.root}
    model = {"vocab": VOCAB, "width": 16, "layers": 1, "heads": 2, "kv_heads": 1, "seq": SEQ}
    text = whole_manifest(
        {
            "model": model | {"head_dim": 8, "ffn": 24},
            "inner": {"steps": 4, "segment": 2, "batch": 8, "micro_batch": 4, "lr": "0.01"},
            "data": fields | {"dtype": "uint16", "train_tokens": task.words(VOCAB)},
        }
        | changes
    )
    return Manifest.model_validate(text.model_dump() | {"task": dict(TASK)})


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", sync=False)


@pytest.fixture
def task(store: LocalStore) -> TrainTask:
    manifest = rl_manifest(store)
    model = open_initial_state(manifest, store)
    return task_of(manifest, store.add_bytes(model.to_bytes()).to_bytes())


def initial(task: TrainTask, store: LocalStore) -> SeatState:
    model = open_initial_state(task.manifest, store)
    return SeatState.initial(model, seat_layout(task.manifest))


def sampled(task: TrainTask, course: Course, state: SeatState, step: int = 0) -> Rollouts:
    rollouts = course.input_of(step, course.begin(state, step)).rollouts
    assert rollouts is not None
    return rollouts


def test_a_replay_gives_what_was_trained(task: TrainTask, store: LocalStore) -> None:
    trained = train_round(task, store)
    assert trained.segments == 2
    claimed = RevealedRound(trained.checkpoint_commitments(KEY), trained.update_root)
    assert replay_seat(task, claimed, store).mismatch_at is None
    other = replace(trained, work_tags=(ZERO_DIGEST, *trained.work_tags[1:]))
    assert (
        replay_seat(
            task, replace(claimed, checkpoint_commitments=other.checkpoint_commitments(KEY)), store
        ).work_tags
        == trained.work_tags
    )


def test_the_reference_samples_the_same(task: TrainTask, store: LocalStore) -> None:
    course = course_of(task, store)
    fast = run_alone([initial(task, store)], 0, course)
    slow = run_by_reference([initial(task, store)], 0, course)
    assert (fast.roots, fast.work_tag) == (slow.roots, slow.work_tag)
    assert fast.roots.buffers_root != ZERO_DIGEST
    assert fast.state.rollouts == fast.roots.buffers_root
    layout = seat_layout(task.manifest)
    assert SeatState.from_bytes(fast.state.to_bytes(), layout).rollouts == fast.state.rollouts


def test_ids_that_are_right_spare_the_generation(
    task: TrainTask, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = train_round(task, store)
    raw = trained.sampled
    assert len(raw) == 4 * 8 * (SEQ + 1) * 4
    ids = read_ids(raw + b"more", batch=8, seq=SEQ)
    claimed = RevealedRound(trained.checkpoint_commitments(KEY), trained.update_root, sampled=ids)
    monkeypatch.setattr("atoll.numerics.rollouts.generate", None)
    assert replay_seat(task, claimed, store).work_tags == trained.work_tags


def test_ids_that_are_false_convict_nobody_and_spare_nobody(
    task: TrainTask, store: LocalStore
) -> None:
    trained = train_round(task, store)
    commitments = trained.checkpoint_commitments(KEY)
    false = read_ids(bytes(len(trained.sampled)), batch=8, seq=SEQ)
    claimed = RevealedRound(commitments, trained.update_root, sampled=false)
    assert replay_seat(task, claimed, store).work_tags == trained.work_tags


def test_a_seat_that_edits_its_rollouts_is_found_with_its_ids_and_without(
    task: TrainTask, store: LocalStore
) -> None:
    class Editing(Sampler):
        def rollouts(
            self, params: Mapping[str, Tensor], place: Place, claimed: Tensor | None = None
        ) -> Rollouts:
            made = super().rollouts(params, place, claimed)
            return replace(made, ids=WRONG["one token"](made.ids)) if place.step == 2 else made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("atoll.numerics.segment.Sampler", Editing)
        cheat = train_round(task, store)
    claimed = RevealedRound(cheat.checkpoint_commitments(KEY), cheat.update_root)
    for ids in ({}, read_ids(cheat.sampled, batch=8, seq=SEQ)):
        assert replay_seat(task, replace(claimed, sampled=ids), store).mismatch_at == 1


WRONG = {
    "one token": lambda ids: ids.index_put((torch.tensor(1), torch.tensor(6)), ids[1, 6] ^ 1),
    "a prompt": lambda ids: ids.index_put((torch.tensor(0), torch.tensor(0)), torch.tensor(3)),
    "something behind": lambda ids: ids.index_put(
        (torch.tensor(0), torch.tensor(SEQ)), torch.tensor(3)
    ),
    "no id": lambda ids: ids - 1,
    "too many sequences": lambda ids: torch.cat((ids, ids)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_ids_that_are_wrong_change_nothing(task: TrainTask, store: LocalStore, wrong: str) -> None:
    course, state = course_of(task, store), initial(task, store)
    right = sampled(task, course, state)
    said: Tensor = WRONG[wrong](right.ids)
    other = sampled(task, replace(course, sampled={0: said}), state)
    assert torch.equal(other.ids, right.ids)
    assert (other.drawn, other.rewards) == (right.drawn, right.rewards)


def test_ids_are_the_last_section_of_an_update(task: TrainTask, store: LocalStore) -> None:
    trained, half = train_round(task, store), train_round(replace(task, segments=1), store)
    layout = UpdateLayout.of(task.manifest, trained_shapes(task.manifest), round=0)
    assert len(trained.update) == layout.encoded_length
    size = task.manifest.sampled_bytes
    assert size == len(trained.sampled)
    assert trained.update[-size:] == trained.sampled
    assert half.update[-size:] == trained.sampled[: size // 2] + bytes(size // 2)
    assert len(trained.update) <= max_update_bytes(task.manifest)


def test_what_ids_are_worth_is_known_without_a_model(task: TrainTask, store: LocalStore) -> None:
    seen: list[Rollouts] = []

    class Seeing(Sampler):
        def rollouts(
            self, params: Mapping[str, Tensor], place: Place, claimed: Tensor | None = None
        ) -> Rollouts:
            seen.append(super().rollouts(params, place, claimed))
            return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("atoll.numerics.segment.Sampler", Seeing)
        trained = train_round(task, store)
    figures = figures_of(task, trained.sampled, store)
    assert figures is not None
    rewards = [reward for made in seen for reward in made.rewards]
    assert figures.reward == sum(rewards) / len(rewards) / 1000
    assert figures.length == sum(int((made.targets >= 0).sum()) for made in seen) / len(rewards)
    learns = [bool(made.weights[at : at + 4].any()) for made in seen for at in (0, 4)]
    assert figures.spread == sum(learns) / len(learns)
    assert figures_of(task, b"", store) is None


def test_other_ids_in_an_update_are_another_update(task: TrainTask, store: LocalStore) -> None:
    trained = train_round(task, store)
    edited = replace(trained, update=trained.update[:-1] + b"\1")
    claimed = RevealedRound(edited.checkpoint_commitments(KEY), edited.update_root)
    said = replay_seat(task, claimed, store)
    assert (said.mismatch_at, said.own) == (2, trained.update_root)


def test_a_round_that_goes_on_has_all_its_ids(task: TrainTask, store: LocalStore) -> None:
    whole = train_round(task, store)
    checkpoints = checkpoints_of(task, store, share=0)
    train_round(replace(task, segments=2), store, keeping=Keeping(checkpoints))
    again = train_round(task, store, keeping=Keeping(checkpoints_of(task, store, share=0)))
    assert again.seconds_before > 0
    assert (again.sampled, again.update_root) == (whole.sampled, whole.update_root)


def test_what_is_learned_are_the_sampled_tokens(task: TrainTask, store: LocalStore) -> None:
    course, state = course_of(task, store), initial(task, store)
    made = sampled(task, course, state)
    assert len(made.rewards) == 8
    assert set(made.rewards) == {0, 1000}
    learned = made.targets >= 0
    assert torch.equal(made.targets[learned], made.ids[:, 1:][learned])
    assert not made.weights[~learned].any()
    for group in (range(4), range(4, 8)):
        rows = [made.weights[row][learned[row]] for row in group]
        assert all(len(set(row.tolist())) == 1 for row in rows)  # one advantage a completion
        assert sum(float(row[0]) for row in rows) == pytest.approx(0, abs=1e-9)
    batches = made.micro_batches(4)
    assert [len(m.ids) for m in batches] == [4, 4]
    assert all(m.is_sampled for m in batches)


def test_reward_rises(task: TrainTask, store: LocalStore) -> None:
    changes = {"steps": 48, "segment": 48, "warmup_steps": 0, "schedule": "constant"}
    changes |= {"batch": 32, "micro_batch": 32, "lr": "0.03"}
    inner = task.manifest.inner.model_copy(update=changes)
    assert task.manifest.task is not None
    shorter = task.manifest.task.model_copy(update={"new_tokens": 2})
    manifest = task.manifest.model_copy(update={"inner": inner, "task": shorter})
    course = replace(course_of(task, store), manifest=manifest)
    course = replace(course, recipe=replace(course.recipe, inner=inner, total_steps=48))
    seen: list[float] = []

    class Seeing(Sampler):
        def rollouts(
            self, params: Mapping[str, Tensor], place: Place, claimed: Tensor | None = None
        ) -> Rollouts:
            made = super().rollouts(params, place, claimed)
            seen.append(sum(made.rewards) / len(made.rewards))
            return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("atoll.numerics.segment.Sampler", Seeing)
        run_segment(initial(task, store), 0, course)
    assert sum(seen[-12:]) > 1.3 * sum(seen[:12])


def test_a_job_of_text_has_no_task_and_no_null(task: TrainTask) -> None:
    plain = task.manifest.model_dump()
    assert Manifest.from_bytes(encode(plain)) == task.manifest
    with pytest.raises(ManifestError, match="and no null"):
        Manifest.from_bytes(encode(plain | {"task": None}))


def test_its_program_has_a_trace_of_each_token(task: TrainTask, store: LocalStore) -> None:
    header = program_header(task.manifest, ZERO_DIGEST).header
    assert header.is_sampled and header.step_nodes > header.generation_nodes[0] > 0
