"""`atoll node stop`, and `status` beside a process that is frozen or dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.identities import address

from atoll.chain.deployment import REQUIRED, Deployment
from atoll.cli import services, stopping
from atoll.cli.stopping import StillRuns, stop
from atoll.errors import ConfigError
from atoll.service.lock import LOCK_NAME, hold_folder, holder_in
from atoll.service.processes import is_frozen, send, started_at

SERVICE = """
import asyncio, signal, sys
from pathlib import Path
from atoll.service.control import listening
from atoll.service.lock import hold_folder
from atoll.service.main import until_stopped

async def serve(data_dir, kind):
    end = asyncio.Event()
    async def stop(_):
        end.set()
        owed = {"duty": "commit", "round": 2, "seconds_left": 40}
        return {"obligations": {"3": [owed]}, "under_way": ["3:train.v1:2"], "is_supervised": True}
    async def status(_):
        return {"role": "provider"}
    with hold_folder(data_dir, is_service=kind != "command"):
        if kind == "hangs":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if kind == "service":
            async with listening(data_dir, {"stop": stop, "status": status}):
                print("ready", flush=True)
                await end.wait()
                return
        print("ready", flush=True)
        await end.wait()

data_dir, kind = Path(sys.argv[1]), sys.argv[2]
if kind == "hangs":
    asyncio.run(serve(data_dir, kind))
else:
    sys.exit(asyncio.run(until_stopped(serve(data_dir, kind))))
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    Deployment(31337, 0, {name: address(name) for name in REQUIRED}).save(tmp_path / "net.json")
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "config.toml").write_text(
        'role = "provider"\nrpc_urls = ["http://127.0.0.1:1"]\ndeployment = "net.json"\n'
        'keystore = "key"\npassword_file = "password"\ndata_dir = "data"\n'
    )
    return tmp_path / "config.toml"


@contextmanager
def running(config: Path, kind: str = "service", **options: Any) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SERVICE, str(config.parent / "data"), kind]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, text=True, **options) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def freeze(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def test_a_service_that_answers_ends_and_says_what_it_owes(config: Path, capsys: Any) -> None:
    with running(config) as process:
        told = stop(config, 60, kills=False)
        assert process.wait() == 0
    assert told["was_running"] and f"process {process.pid} has ended" in told["text"]
    said = capsys.readouterr().err
    assert "job 3 owes commit of round 2, in 40 s" in said
    assert "3:train.v1:2" in said
    assert "systemctl stop" in said
    again = stop(config, 60, kills=False)
    assert (again["was_running"], "is running" in again["text"]) == (False, True)


def test_a_frozen_service_goes_on_and_ends(config: Path, capsys: Any) -> None:
    with running(config) as process:
        freeze(process)
        assert stop(config, 60, kills=False)["was_running"]
        assert process.wait() == 0
    assert f"process {process.pid} is frozen" in capsys.readouterr().err


def test_one_that_starts_and_answers_nothing_yet_is_sent_a_signal(config: Path) -> None:
    with running(config, "silent") as process:
        assert stop(config, 60, kills=False)["was_running"]
        assert process.wait() == 0


def test_one_that_does_not_end_is_killed_where_that_is_asked_for(config: Path) -> None:
    with running(config, "hangs") as process:
        with pytest.raises(StillRuns, match=f"process {process.pid} was told") as refused:
            stop(config, 0, kills=False)
        assert "--kill" in (refused.value.next_step or "")
        assert process.poll() is None
        assert "was killed" in stop(config, 0.5, kills=True)["text"]
        assert process.wait() == -signal.SIGKILL


def test_a_command_that_holds_the_folder_is_left_alone(config: Path) -> None:
    with running(config, "command") as process:
        with pytest.raises(ConfigError, match="is no service"):
            stop(config, 60, kills=True)
        assert process.poll() is None


def test_a_process_that_has_the_id_of_one_that_ended_is_left_alone(config: Path) -> None:
    """The lock is held on by a child of it, and its file names what is by now somebody else."""
    data = config.parent / "data"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        with hold_folder(data):
            (data / LOCK_NAME).write_text(f"{stranger.pid} 1 service")
            with pytest.raises(ConfigError, match="it was sent nothing"):
                stop(config, 60, kills=True)
        assert stranger.poll() is None
        assert not send(stranger.pid, "1", signal.SIGKILL)
        assert send(stranger.pid, started_at(stranger.pid), signal.SIGKILL)
        assert stranger.wait() == -signal.SIGKILL
    assert not send(stranger.pid, "1", signal.SIGKILL)


def test_a_lock_that_a_dead_process_left_is_nobody_s(config: Path) -> None:
    (config.parent / "data" / LOCK_NAME).write_text(
        f"{os.getpid()} {started_at(os.getpid())} service"
    )
    assert not stop(config, 60, kills=True)["was_running"]


def test_status_says_that_a_process_is_frozen(config: Path) -> None:
    with running(config) as process:
        assert services.status_of(config)["role"] == "provider"
        freeze(process)
        assert is_frozen(process.pid)
        told = services.status_of(config)
        assert told["running"]
        assert told["blocking"]["name"] == "frozen"
        assert f"process {process.pid}" in told["blocking"]["text"]
        assert f"kill -CONT {process.pid}" in told["blocking"]["next_step"]
        with pytest.raises(ConfigError, match="is frozen"):
            services.order(config, "pause")
        process.send_signal(signal.SIGCONT)
        os.waitid(os.P_PID, process.pid, os.WCONTINUED | os.WNOWAIT)
        assert services.status_of(config)["role"] == "provider"


@pytest.mark.parametrize(
    ("number", "is_ignored", "ends"),
    [
        (signal.SIGHUP, False, True),  # the terminal is gone
        (signal.SIGHUP, True, False),  # nohup
        (signal.SIGINT, False, True),
        (signal.SIGINT, True, False),  # `&` in a script: Ctrl-C is for what is in front
        (signal.SIGTERM, True, True),
    ],
)
def test_a_service_in_the_background_ends_by_what_is_meant_for_it(
    config: Path, number: signal.Signals, is_ignored: bool, ends: bool
) -> None:
    how = signal.SIG_IGN if is_ignored else signal.SIG_DFL
    before = signal.signal(number, how)  # which what is started here has, too
    try:
        with running(config, stdin=subprocess.DEVNULL, start_new_session=True) as process:
            process.send_signal(number)
            if not ends:
                assert services.status_of(config)["role"] == "provider"
                stop(config, 60, kills=False)
            assert process.wait() == 0
    finally:
        signal.signal(number, before)


def test_what_is_waited_for_is_said(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(stopping, "TELLS_S", 0.0)
    with running(config, "hangs") as process:
        with pytest.raises(StillRuns):
            stop(config, 0.3, kills=False)
        assert f"waits for process {process.pid} to end" in capsys.readouterr().err


def test_who_holds_a_folder_is_told_from_a_later_process(config: Path) -> None:
    with hold_folder(config.parent / "data", is_service=True):
        found = holder_in(config.parent / "data")
        assert found is not None
        assert (found.pid, found.started) == (os.getpid(), started_at(os.getpid()))
        assert (found.is_service, found.is_frozen) == (True, False)
    assert started_at(1 << 22) == ""
