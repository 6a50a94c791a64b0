"""The worker process: results, errors, its death, and the death of its parent."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.service import worker_tasks

from atoll.errors import ConfigError, NotFound
from atoll.numerics.kernels.devices import GPUS_VARIABLE, Devices
from atoll.numerics.kernels.variables import DEVICES_VARIABLE
from atoll.service.config import ServiceConfig
from atoll.service.devices import devices_of
from atoll.service.machine_section import MachineSection
from atoll.service.task import Task
from atoll.service.worker import GIVES_WAY, Worker, WorkerDied

PATHS = (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", ""))
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    worker = Worker()
    yield worker
    worker.kill()


async def test_a_function_runs_in_another_process_with_one_thread(worker: Worker) -> None:
    pid, threads = await worker.run(worker_tasks.DESCRIBE())
    assert pid != os.getpid()
    assert threads == "1"
    assert (await worker.run(worker_tasks.DESCRIBE()))[0] == pid


async def test_an_error_of_the_tree_crosses_with_its_next_step(worker: Worker) -> None:
    with pytest.raises(NotFound, match="gone") as caught:
        await worker.run(worker_tasks.FAIL())
    assert caught.value.next_step == "look elsewhere"


async def test_a_killed_worker_is_an_error_and_the_next_call_works(worker: Worker) -> None:
    with pytest.raises(WorkerDied):
        await worker.run(worker_tasks.DIE())
    assert await worker.run(worker_tasks.ADD(1, 2)) == 3


@pytest.mark.parametrize("task", [worker_tasks.RUN_OUT_OF_GPU_MEMORY, worker_tasks.FIND_NO_DRIVER])
async def test_what_a_gpu_refused_is_done_on_the_cpu_and_the_log_says_why(
    task: Task[[], str | None], capfd: pytest.CaptureFixture[str]
) -> None:
    worker = Worker(devices=("cuda:0", "cuda:1"))
    try:
        pid, _ = await worker.run(worker_tasks.DESCRIBE())
        assert await worker.run(task()) == "cpu"
        said = capfd.readouterr().err
        assert "the GPU failed" in said
        assert task.kind in said
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            await worker.run(worker_tasks.FAIL_ELSEWHERE())
        assert "the GPU failed" not in capfd.readouterr().err
        # For whatever else is asked for.
        assert await worker.run(worker_tasks.DEVICE()) == "cuda:0,cuda:1"
        assert (await worker.run(worker_tasks.DESCRIBE()))[0] == pid
    finally:
        worker.kill()


async def test_the_devices_are_the_worker_s_and_else_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(DEVICES_VARIABLE, "cpu")
    for chosen, found in ((None, "cpu"), ("all", "all"), (("cpu", "cpu"), "cpu,cpu")):
        worker = Worker(devices=chosen)
        try:
            assert await worker.run(worker_tasks.DEVICE()) == found
        finally:
            worker.kill()


@pytest.mark.parametrize("devices", ["all", ("cuda:0", "cuda:1")])
async def test_gpus_that_are_not_there_are_an_error_before_anything_is_done(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GPUS_VARIABLE, "")  # as of a machine without any
    worker = Worker(devices=devices)
    config = ServiceConfig.model_construct(machine=MachineSection(devices=devices))
    try:
        with pytest.raises(ConfigError, match="this machine has no") as caught:
            await devices_of(config, worker, None)
        step = caught.value.next_step or ""
        assert "nvidia-smi" in step or "driver" in step
    finally:
        worker.kill()


async def test_a_process_that_died_with_nothing_to_do_costs_no_call(worker: Worker) -> None:
    pid, _ = await worker.run(worker_tasks.DESCRIBE())
    pool = worker._pool
    assert pool is not None
    notices = pool._executor_manager_thread  # type: ignore[attr-defined]  # ends once it has
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(notices.join)
    other, _ = await worker.run(worker_tasks.DESCRIBE())
    assert other != pid


async def test_cancelling_ends_the_process_and_the_next_call_works(
    worker: Worker, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    task = asyncio.create_task(worker.run(worker_tasks.HANG(str(started))))
    await asyncio.to_thread(started.read_text)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await worker.run(worker_tasks.ADD(1, 2)) == 3


async def test_a_waiting_call_is_cancelled_without_harm(worker: Worker) -> None:
    first = asyncio.create_task(worker.run(worker_tasks.DESCRIBE()))
    second = asyncio.create_task(worker.run(worker_tasks.DESCRIBE()))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    pid, _ = await first
    assert (await worker.run(worker_tasks.DESCRIBE()))[0] == pid


PARENT = """
import asyncio, sys
from atoll.service.worker import Worker
from tests.integration.service import worker_tasks

async def main():
    worker = Worker()
    pid, _ = await worker.run(worker_tasks.DESCRIBE())
    print(pid, flush=True)
    await worker.run(worker_tasks.HANG(sys.argv[1]))

if __name__ == "__main__":
    asyncio.run(main())
"""
IDLE = """
import multiprocessing, threading
from atoll.service.worker import fork_ahead

fork_ahead(2)
print(min(child.pid for child in multiprocessing.active_children()), flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("source", [PARENT, IDLE], ids=["busy", "forked ahead and not taken"])
def test_a_worker_does_not_outlive_its_parent(source: str, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(source)
    parent = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "started")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ENVIRONMENT,
    )
    assert parent.stdout is not None
    worker_pid = int(parent.stdout.readline())
    watched = os.pidfd_open(worker_pid)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    try:
        assert _ended(watched, seconds=600)
    finally:
        os.close(watched)


AHEAD = """
import asyncio
from atoll.service.worker import Worker, WorkerDied, fork_ahead
from tests.integration.service import worker_tasks

async def main():
    worker, second = Worker(threads=3), Worker(threads=2)
    print(*await worker.run(worker_tasks.INHERITED()))
    print(*await second.run(worker_tasks.INHERITED()))
    try:
        await worker.run(worker_tasks.DIE())
    except WorkerDied:
        print(*await worker.run(worker_tasks.INHERITED()))
    worker.kill()
    second.kill()

if __name__ == "__main__":
    worker_tasks.LOADED.append("loaded")
    fork_ahead(2)
    asyncio.run(main())
"""
ENDS_AT_ONCE = """
import asyncio, os
from atoll.service.worker import Worker
from tests.integration.service import worker_tasks

async def main():
    worker = Worker()
    await worker.run(worker_tasks.ADD(1, 2))
    worker.kill()

if __name__ == "__main__":
    asyncio.run(main())
    os._exit(0)
"""


def ran(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A script, in a process of its own."""
    script = folder / "script.py"
    script.write_text(source)
    return subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )


def test_first_processes_may_be_forked_ahead_with_all_that_is_loaded(tmp_path: Path) -> None:
    assert ran(AHEAD, tmp_path).stdout.splitlines() == ["3 loaded", "2 loaded", "3"]


def test_a_killed_worker_leaves_no_semaphores_to_a_process_that_ends_at_once(
    tmp_path: Path,
) -> None:
    """As members of a local network end; Python's resource tracker says what stayed."""
    assert ran(ENDS_AT_ONCE, tmp_path).stderr == ""


def _ended(pidfd: int, seconds: float) -> bool:
    """Whether the process behind a pidfd ends in time: it turns readable then."""
    ready, _, _ = select.select([pidfd], [], [], seconds)
    return bool(ready)


async def test_what_goes_first_passes_what_waits_and_what_is_due_sooner_what_is_due_later(
    worker: Worker, tmp_path: Path
) -> None:
    done: list[str] = []

    async def run(name: str, **how: object) -> None:
        await worker.run(worker_tasks.ADD(1, 2), **how)  # type: ignore[arg-type]  # flags only
        done.append(name)

    started = tmp_path / "started"
    os.mkfifo(started)
    long = asyncio.create_task(worker.run(worker_tasks.HANG(str(started))))
    await asyncio.to_thread(started.read_text)
    tasks = [asyncio.create_task(run(name)) for name in ("a", "b")]
    tasks += [asyncio.create_task(run(f"by {due}", due=due)) for due in (900, 700, 800)]
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(run("urgent", is_first=True)))
    await asyncio.sleep(0)
    long.cancel()
    await asyncio.gather(*tasks)
    assert done == ["urgent", "a", "b", "by 700", "by 800", "by 900"]


async def test_who_has_no_patience_is_told_and_holds_up_nobody(
    worker: Worker, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    long = asyncio.create_task(worker.run(worker_tasks.HANG(str(started))))
    await asyncio.to_thread(started.read_text)
    with pytest.raises(TimeoutError):
        await worker.run(worker_tasks.ADD(1, 2), is_first=True, patience_s=0.0)
    long.cancel()
    assert await worker.run(worker_tasks.ADD(1, 2)) == 3


async def test_what_comes_last_gives_way_and_begins_again(worker: Worker, tmp_path: Path) -> None:
    """Often, but not for ever: else whoever is always busy would never come to it."""
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    os.mkfifo(begun)
    os.mkfifo(gate)
    last = asyncio.create_task(worker.run_last(worker_tasks.BEGIN_AND_WAIT(str(begun), str(gate))))
    for times in range(1, GIVES_WAY):
        await asyncio.to_thread(begun.read_text)
        assert await worker.run(worker_tasks.ADD(1, times)) == 1 + times
    await asyncio.to_thread(begun.read_text)
    waits = asyncio.create_task(worker.run(worker_tasks.ADD(1, 2)))
    await asyncio.sleep(0)
    assert not waits.done()
    await asyncio.to_thread(gate.write_text, "open")
    assert await last == "open"
    assert await waits == 3


async def test_what_comes_last_and_dies_by_itself_is_an_error(worker: Worker) -> None:
    with pytest.raises(WorkerDied):
        await worker.run_last(worker_tasks.DIE())
    assert await worker.run_last(worker_tasks.ADD(1, 2)) == 3
