"""What torchrun says of a process, and how ranks find the process that leads them."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from torch.distributed import HashStore

from atoll.errors import ConfigError
from atoll.numerics.kernels.interface import CPU
from atoll.numerics.kernels.variables import DEVICES_VARIABLE
from atoll.service.config import ServiceConfig
from atoll.service.devices import DEVICES_HERE, devices_of
from atoll.service.machine_section import MachineSection
from atoll.service.task import TaskCall
from atoll.service.worker import Worker
from atoll.train import follower, island
from atoll.train.follower import Meeting, follow_hosts
from atoll.train.island import island_here, ranks_on
from atoll.train.torchrun import LEADS_VARIABLE, Torchrun

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


@pytest.fixture(autouse=True)
def no_islands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(island, "_islands", {})
    for name in (DEVICES_VARIABLE, LEADS_VARIABLE):
        monkeypatch.setenv(name, "")


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
    assert Torchrun.led() is None
    assert island_here().is_alone  # as workers are that do not lead
    monkeypatch.setenv(LEADS_VARIABLE, "1")
    assert Torchrun.led() == HERE
    assert ranks_on(CPU) == HERE.host_size  # which share this machine's memory
    assert island_here().size == HERE.size
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert Torchrun.here() is None
    assert ranks_on(CPU) == 1
    assert island_here().is_alone


@pytest.mark.usefixtures("started")
def test_a_host_has_as_many_devices_as_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEADS_VARIABLE, "1")
    monkeypatch.setenv(DEVICES_VARIABLE, "cpu,cpu")
    assert island_here().size == HERE.size
    monkeypatch.setenv(DEVICES_VARIABLE, "cpu,cpu,cpu")
    what = "started 2 ranks on this host, and the config names 3 devices"
    for of_process in (island_here, lambda: follow_hosts(HERE)):
        with pytest.raises(ConfigError, match=what) as caught:
            of_process()
        assert "--nproc-per-node 3" in (caught.value.next_step or "")


def test_ranks_that_a_batch_system_names_are_not_torchrun_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert Torchrun.here() is None


def config(*devices: str) -> ServiceConfig:
    return ServiceConfig.model_construct(machine=MachineSection(devices=devices or None))


@pytest.mark.usefixtures("started")
async def test_a_service_s_ranks_are_torchrun_s_or_it_does_not_start() -> None:
    """Nothing is asked of a worker where there are no GPUs: no process is started."""
    worker = Worker()
    assert await devices_of(config(), worker, HERE) == ("cpu", "cpu")
    assert await devices_of(config("cpu", "cpu"), worker, HERE) == ("cpu", "cpu")
    with pytest.raises(ConfigError, match="started 2 ranks on this host, and the config names 1"):
        await devices_of(config("cpu"), worker, HERE)


async def test_a_service_starts_a_rank_for_each_device() -> None:
    assert await devices_of(config(), Worker(), None) == ("cpu",)
    assert await devices_of(config("cpu", "cpu", "cpu"), Worker(), None) == ("cpu",) * 3


class _Asked(Worker):
    """Answers as a worker on a host with three GPUs."""

    async def run(self, call: TaskCall[Any], **_: object) -> Any:
        assert call.task is DEVICES_HERE
        return "cuda:0", "cuda:1", "cuda:2"


async def test_all_gpus_are_what_the_worker_finds() -> None:
    everything = ServiceConfig.model_construct(machine=MachineSection(devices="all"))
    assert await devices_of(everything, _Asked(), None) == ("cuda:0", "cuda:1", "cuda:2")
    with pytest.raises(ConfigError, match="names 3 devices"):
        await devices_of(everything, _Asked(), HERE)
    assert await devices_of(config("cuda:5", "cuda:4"), _Asked(), None) == ("cuda:5", "cuda:4")


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
