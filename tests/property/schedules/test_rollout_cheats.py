"""Every cheat with rollouts is found by one auditor with its ids and by one without; who checks no
ids, or meets huge parameters, is told from who cheats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.identities import address, digest
from tests.unit.train.factories import KEY, task_of
from tests.unit.train.test_rollouts import SEQ, rl_manifest

from atoll.numerics.rollouts import read_ids
from atoll.protocol.audit_reports import AuditEntry
from atoll.service.duties.replay_seat import DoReplay
from atoll.storage.local import LocalStore
from atoll.train.initial_model import open_initial_state
from atoll.train.replay import RevealedRound, SeatReplay, replay_seat
from atoll.train.round import TrainedRound, train_round
from atoll.train.seat_task import TrainTask
from atoll_devnet.cheats import provider_behaviour, verifier_behaviour

ACCOUNT = address("auditor")
FIRST_FALSE = {
    "pick-rollouts": 0,
    "stale-policy": 1,
    "reward-one": 0,
    "edit-rollouts": 0,
    "infinite": 0,
    "endless": 1,
    "no-ids": 2,
    "wrong-ids": 2,
}
"""The segment; of the update proof how many there are. A first step's parameters are not stale,
and no completion ends in the first segment."""


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
    said = replayed(cheat, task, store)
    honest = train_round(task, store)
    assert [each.mismatch_at for each in said] == [FIRST_FALSE[name]] * 2
    assert {each.own for each in said} <= {*honest.states, honest.update_root}
    assert honest.update_root != cheat.update_root


def replayed(cheat: TrainedRound, task: TrainTask, store: LocalStore) -> list[SeatReplay]:
    """By an auditor without its ids, and by one with them."""
    claimed = RevealedRound(cheat.checkpoint_commitments(KEY), cheat.update_root)
    ids = read_ids(cheat.sampled, batch=8, seq=SEQ)
    return [replay_seat(task, replace(claimed, sampled=each), store) for each in ({}, ids)]


def unchecked(done: TrainedRound, task: TrainTask, store: LocalStore) -> SeatReplay:
    """By a verifier that takes what the update ends with."""
    said = (task.data_seed, done.checkpoint_commitments(KEY).to_bytes(), done.update_root, None)
    command = DoReplay(
        task.round_id,
        task.seat,
        digest("commitment"),
        *said,
        task.manifest.to_bytes(),
        update=store.add_bytes(done.update).to_bytes(),
    )
    replay = verifier_behaviour("lazy-check").replay_function.resolve()
    return replay(command, task.global_state_cid, str(store.root))


def test_an_auditor_that_checks_no_ids_says_another_digest_than_those_that_do(
    task: TrainTask, store: LocalStore
) -> None:
    """What it says is held against the seat's own tags: so it is its author who loses a slot."""
    honest = train_round(task, store)
    lazy = unchecked(honest, task, store)
    assert lazy.mismatch_at is None
    entries = {each.entry(task.seat, ACCOUNT) for each in replayed(honest, task, store)}
    assert entries == {AuditEntry.valid(task.seat, ACCOUNT, honest.work_tags)}
    assert lazy.entry(task.seat, ACCOUNT) not in entries
    assert not set(lazy.work_tags) & set(honest.work_tags)


def test_an_auditor_that_checks_no_ids_lets_an_edited_token_pass(
    task: TrainTask, store: LocalStore
) -> None:
    train = provider_behaviour("edit-rollouts").train_function.resolve()
    cheat = train(task, str(store.root), ())
    assert unchecked(cheat, task, store).mismatch_at is None
    assert [each.mismatch_at for each in replayed(cheat, task, store)] == [0, 0]


@pytest.mark.parametrize("power", [7, 20, 40, 63])
def test_a_job_that_begins_with_huge_parameters_makes_no_honest_seat_fall(
    power: int, task: TrainTask, store: LocalStore
) -> None:
    """Above 2^8 nothing is cached, and above 2^40 no row is finite: the round ends before it."""
    model = open_initial_state(task.manifest, store)
    huge = {name: p.sign() * 2.0**power for name, p in model.params.items()}
    cid = store.add_bytes(replace(model, params=huge).to_bytes()).to_bytes()
    hostile = replace(task, global_state_cid=cid)
    honest = train_round(hostile, store)
    for said in replayed(honest, hostile, store):
        assert (said.mismatch_at, said.work_tags) == (None, honest.work_tags)
    assert honest.segments == len(honest.work_tags) == (2 if power < 40 else 0)
