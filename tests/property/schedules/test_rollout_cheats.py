"""Every cheat with rollouts is found by one auditor with its ids and by one without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.train.factories import KEY, task_of
from tests.unit.train.test_rollouts import SEQ, rl_manifest

from atoll.numerics.rollouts import read_ids
from atoll.storage.local import LocalStore
from atoll.train.initial_model import open_initial_state
from atoll.train.replay import RevealedRound, replay_seat
from atoll.train.round import train_round
from atoll.train.seat_task import TrainTask
from atoll_devnet.cheats import provider_behaviour

FIRST_FALSE = {
    "pick-rollouts": 0,
    "stale-policy": 1,
    "reward-one": 0,
    "edit-rollouts": 0,
    "no-ids": 2,
    "wrong-ids": 2,
}
"""The segment; of the update proof how many there are. A first step's parameters are not stale."""


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", sync=False)


@pytest.fixture
def task(store: LocalStore) -> TrainTask:
    manifest = rl_manifest(store)
    model = open_initial_state(manifest, store)
    return task_of(manifest, store.add_bytes(model.to_bytes()).to_bytes())


@pytest.mark.parametrize("name", FIRST_FALSE)
def test_it_is_found_with_its_ids_and_without(
    name: str, task: TrainTask, store: LocalStore
) -> None:
    function = provider_behaviour(name).train_function.resolve()
    cheat = function(task, str(store.root), ())
    claimed = RevealedRound(cheat.checkpoint_commitments(KEY), cheat.update_root)
    ids = read_ids(cheat.sampled, batch=8, seq=SEQ)
    said = [replay_seat(task, replace(claimed, sampled=each), store) for each in ({}, ids)]
    honest = train_round(task, store)
    assert [each.mismatch_at for each in said] == [FIRST_FALSE[name]] * 2
    assert {each.own for each in said} <= {*honest.states, honest.update_root}
    assert honest.update_root != cheat.update_root
