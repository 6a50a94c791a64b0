"""What torchrun says of a process, and how ranks find the process that leads them."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from torch.distributed import HashStore

from atoll.errors import ConfigError
from atoll.numerics.kernels.variables import RANKS_VARIABLE
from atoll.service.config import ServiceConfig
from atoll.service.context import ranks_of_workers
from atoll.train import follower
from atoll.train.follower import Meeting
from atoll.train.island import island_here, ranks_here
from atoll.train.torchrun import RANKS_OF_TORCHRUN, Torchrun

HERE = Torchrun(rank=0, size=6, host_rank=0, host_size=2, address="192.0.2.1", port=29500)
VARIABLES = {
    "TORCHELASTIC_RUN_ID": "some",
    "RANK": "0",
    "WORLD_SIZE": "6",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "192.0.2.1",
    "MASTER_PORT": "29500",
}
SOON = timedelta(seconds=60)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> HashStore:
    shared = HashStore()
    monkeypatch.setattr(follower, "store_of", lambda _: shared)
    return shared


@pytest.mark.usefixtures("started")
def test_a_process_of_torchrun_knows_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Torchrun.here() == HERE
    monkeypatch.setenv(RANKS_VARIABLE, str(RANKS_OF_TORCHRUN))
    assert ranks_here() == HERE.host_size  # which share this machine's memory
    assert island_here().size == HERE.size
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert Torchrun.here() is None
    assert ranks_here() == 1
    assert island_here().is_alone


def test_ranks_that_a_batch_system_names_are_not_torchrun_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert Torchrun.here() is None


def config(ranks: int) -> ServiceConfig:
    return ServiceConfig.model_construct(ranks=ranks)


@pytest.mark.usefixtures("started")
def test_one_worker_leads_the_ranks_of_torchrun() -> None:
    assert ranks_of_workers(config(1)) == (RANKS_OF_TORCHRUN, 1, 1)
    with pytest.raises(ConfigError, match="torchrun has started 6 ranks, and the config wants 2"):
        ranks_of_workers(config(2))


def test_every_worker_starts_ranks_where_torchrun_did_not() -> None:
    assert ranks_of_workers(config(3)) == (3, 3, 3)


def test_who_answers_a_call_is_of_its_group(store: HashStore) -> None:
    here = Torchrun(0, 3, 0, 3, "", 0)
    backends: dict[int, str | None] = {}

    def answer(rank: int) -> None:
        while not store.add("meetings", 0):
            pass
        backends[rank] = Meeting(store, 1).answered(rank, f"process of {rank}", lambda: False)

    answering = [threading.Thread(target=answer, args=(rank,)) for rank in (1, 2)]
    for thread in answering:
        thread.start()
    meeting = Meeting.called(here, "gloo", SOON)
    for thread in answering:
        thread.join()
    assert meeting.number == 1
    assert backends == {1: "gloo", 2: "gloo"}
    # One that torchrun started again comes to a call of a leader that may be gone.
    assert meeting.answered(2, "another process of 2", lambda: False) is None


def test_a_call_that_never_began_is_left_for_a_newer_one(store: HashStore) -> None:
    store.add("meetings", 2)
    assert Meeting(store, 1).answered(1, "some", lambda: False) is None
    assert Meeting(store, 2).answered(1, "some", lambda: True) is None


def test_a_rank_that_does_not_answer_ends_the_call(store: HashStore) -> None:
    with pytest.raises(RuntimeError):
        Meeting.called(Torchrun(0, 2, 0, 2, "", 0), "gloo", timedelta(seconds=0.2))
    assert store.add("meetings", 0) == 1
