"""Which devices a host's ranks compute on: lists, what CUDA shows, and what is there."""

from __future__ import annotations

import os

import pytest
import torch

from atoll.errors import ConfigError
from atoll.numerics.kernels.devices import (
    ALL,
    GPUS_VARIABLE,
    as_text,
    device_kind,
    kind_here,
    require_devices,
    show_devices,
    told_devices,
)
from atoll.numerics.kernels.variables import DEVICES_VARIABLE
from atoll.train import island
from atoll.train.devices_here import devices_here, gpus_of_ranks
from atoll.train.island import island_here, ranks_on
from atoll.train.rank_wire import GLOO, NCCL, backend_of


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set first, so that what the code sets is undone, too.
    for name in (DEVICES_VARIABLE, GPUS_VARIABLE):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(island, "_islands", {})


def tell(
    monkeypatch: pytest.MonkeyPatch, devices: str, gpus: int, shown: str | None = None
) -> None:
    """What this process is told, and how many GPUs CUDA finds of what it is shown."""
    monkeypatch.setenv(DEVICES_VARIABLE, devices)
    if shown is not None:
        monkeypatch.setenv(GPUS_VARIABLE, shown)

    def count() -> int:
        """As CUDA counts: up to the first that is not there."""
        visible = os.environ.get(GPUS_VARIABLE)
        names = list(range(gpus)) if visible is None else [int(n) for n in visible.split(",") if n]
        return next((at for at, name in enumerate(names) if name >= gpus), len(names))

    monkeypatch.setattr(torch.cuda, "is_available", lambda: count() > 0)
    monkeypatch.setattr(torch.cuda, "device_count", count)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([], "0 devices are named"),
        (["cpu"] * 65, "65 devices are named"),
        (["cuda"], "'cuda' is no device"),
        (["cuda:01"], "'cuda:01' is no device"),
        (["cuda:-1"], "'cuda:-1' is no device"),
        (["tpu:0"], "'tpu:0' is no device"),
        (["cpu:0"], "'cpu:0' is no device"),
        (["cuda:0", "cpu"], "GPUs and CPUs are named"),
        (["cuda:1", "cuda:0", "cuda:1"], "cuda:1 is named twice"),
    ],
)
def test_lists_that_no_host_can_have(names: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        require_devices(names)
    assert "a rank each" in (caught.value.next_step or "")


def test_the_variable_names_them_as_a_config_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told_devices() is None
    assert kind_here() == "cpu"
    for devices, kind in ((ALL, "cuda"), (("cuda:2", "cuda:0"), "cuda"), (("cpu", "cpu"), "cpu")):
        monkeypatch.setenv(DEVICES_VARIABLE, as_text(devices))
        assert told_devices() == devices
        assert (kind_here(), device_kind(devices)) == (kind, kind)
    monkeypatch.setenv(DEVICES_VARIABLE, "many")
    with pytest.raises(ConfigError, match="'many' is no device"):
        told_devices()


def test_no_devices_are_one_rank_on_the_cpu() -> None:
    assert devices_here() == ("cpu",)
    assert gpus_of_ranks(None) == ()
    assert island_here().is_alone


def test_cpus_are_as_many_ranks_as_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, "cpu,cpu,cpu", gpus=2)
    assert devices_here() == ("cpu",) * 3
    assert (island_here().size, gpus_of_ranks(None)) == (3, ())
    assert ranks_on(torch.device("cpu")) == 3
    assert GPUS_VARIABLE not in os.environ


def test_all_are_those_that_cuda_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, "all", gpus=8)
    assert devices_here() == tuple(f"cuda:{at}" for at in range(8))
    assert ranks_on(torch.device("cuda")) == 1  # each has one to itself
    tell(monkeypatch, "all", gpus=8, shown="6,3")
    assert devices_here() == ("cuda:0", "cuda:1")
    assert gpus_of_ranks(None) == ("6", "3")


def test_all_are_fewer_once_one_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, "all", gpus=4)
    assert island_here().size == 4
    tell(monkeypatch, "all", gpus=3)
    assert island_here().size == 3


def test_all_of_a_machine_without_gpus_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, "all", gpus=0)
    with pytest.raises(ConfigError, match="no CUDA device that torch can use") as caught:
        devices_here()
    assert "one rank on the CPU" in (caught.value.next_step or "")


def test_a_process_sees_what_is_named_in_that_order(monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, "cuda:3,cuda:1", gpus=4)
    assert devices_here() == ("cuda:0", "cuda:1")  # as they are numbered from now on
    assert os.environ[GPUS_VARIABLE] == "3,1"
    show_devices()  # as a process that this one starts does
    assert (os.environ[DEVICES_VARIABLE], os.environ[GPUS_VARIABLE]) == ("cuda:0,cuda:1", "3,1")
    assert gpus_of_ranks(None) == ("3", "1")
    assert island_here().size == 2


def test_names_are_counted_among_what_the_process_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tell(monkeypatch, "cuda:1", gpus=8, shown="5,7")
    assert gpus_of_ranks(None) == ("7",)
    for shown in ("5", ""):
        tell(monkeypatch, "cuda:1", gpus=8, shown=shown)
        with pytest.raises(ConfigError, match=f"no cuda:1 among CUDA_VISIBLE_DEVICES={shown}"):
            devices_here()


def test_one_that_is_gone_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, "cuda:0,cuda:3", gpus=4)
    assert len(devices_here()) == 2
    monkeypatch.delenv(GPUS_VARIABLE)
    tell(monkeypatch, "cuda:0,cuda:3", gpus=3)
    with pytest.raises(ConfigError, match="no cuda:1 among CUDA_VISIBLE_DEVICES=0,3") as caught:
        devices_here()
    assert "nvidia-smi" in (caught.value.next_step or "")


def test_what_a_gpu_refused_has_an_island_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, "cuda:0,cuda:1", gpus=2)
    on_gpus, ended = island_here(), list[bool]()
    assert island_here() is on_gpus
    monkeypatch.setattr(on_gpus, "end", lambda: ended.append(True))
    monkeypatch.setenv(DEVICES_VARIABLE, "cpu")
    assert island_here().is_alone
    assert ended == [True]  # the GPUs' memory is not held meanwhile
    monkeypatch.setenv(DEVICES_VARIABLE, "cuda:0,cuda:1")
    assert island_here() is on_gpus


def test_ranks_that_share_a_gpu_speak_by_gloo() -> None:
    assert backend_of(("0", "1")) == NCCL
    assert backend_of(("0", "0")) == backend_of(()) == GLOO
