"""A provider's real process in the background: asked, frozen, stopped, and without its journal."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.chain.conftest import KEYS
from tests.integration.chain.local_anvil import Anvil
from tests.integration.chain.paying_process import SOMEONE
from tests.support.patience import PATIENCE

from atoll.chain.call import Call
from atoll.chain.deployment import Deployment
from atoll.chain.keys import import_key
from atoll.cli import services
from atoll.cli.stopping import stop
from atoll.errors import ConfigError
from atoll.service.transactions import opened_queue

PASSWORD = "correct horse battery"


@pytest.fixture
def config(anvil: Anvil, deployment: Deployment, tmp_path: Path) -> Path:
    deployment.save(tmp_path / "deployment.json")
    (tmp_path / "password").touch(mode=0o600)
    (tmp_path / "password").write_text(PASSWORD)
    key = import_key(tmp_path / "keys", KEYS[0], PASSWORD, devnet=True)
    (tmp_path / "config.toml").write_text(
        f'role = "provider"\nrpc_urls = ["{anvil.url}"]\ndeployment = "deployment.json"\n'
        f'keystore = "{key.path}"\npassword_file = "password"\ndata_dir = "data"\n'
        "confirmations = 0\npoll_interval_s = 0.05\n"
    )
    return tmp_path / "config.toml"


@contextmanager
def started(config: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """As a shell does it with `nohup … &` in a script, without a terminal."""
    command = (sys.executable, "-m", "atoll.cli.main", "node", "run", "--config", str(config))
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(
        [*command, *options], stdin=nowhere, stdout=nowhere, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def blocking(config: Path) -> str:
    """The name of what keeps the service from its work; empty where nothing does."""
    found = services.status_of(config).get("blocking") or {}
    return str(found.get("name", ""))


def wait_for(config: Path, name: str) -> None:
    """Until that is what keeps the service from its work."""
    until, pause = time.monotonic() + PATIENCE, threading.Event()
    while blocking(config) != name:
        assert time.monotonic() < until
        pause.wait(0.05)


def freeze(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def test_a_service_in_the_background_is_asked_frozen_and_stopped(config: Path) -> None:
    with started(config) as process:
        wait_for(config, "no job")
        freeze(process)
        assert blocking(config) == "frozen"
        with pytest.raises(ConfigError, match="is frozen"):
            services.order(config, "drain")
        process.send_signal(signal.SIGCONT)
        wait_for(config, "no job")
        assert stop(config, PATIENCE, kills=False)["was_running"]
        assert process.wait() == 0
    assert blocking(config) == "stopped"
    with started(config) as process:
        wait_for(config, "no job")
        freeze(process)
        assert stop(config, PATIENCE, kills=False)["was_running"]
        assert process.wait() == 0


def test_a_service_whose_journal_is_gone_says_what_to_do_and_goes_on_when_told(
    config: Path,
) -> None:
    settings = services.load(config)

    async def send() -> None:
        async with opened_queue(settings) as queue:
            await queue.submit("a", Call(SOMEONE, b"", "send"), value=1)
            await queue.pump()

    asyncio.run(send())
    journal = settings.journal_file
    journal.write_bytes(b"")
    for _ in range(2):
        with started(config) as process:
            _, told = process.communicate(timeout=PATIENCE)
        assert process.returncode == 2
        assert "error: the journal" in told
        assert "is gone" in told
        assert "--new-journal" in told
    with started(config, "--new-journal") as process:
        wait_for(config, "doppelganger")
        assert stop(config, PATIENCE, kills=False)["was_running"]
    with started(config) as process:  # it has not waited long enough, and does so now
        wait_for(config, "doppelganger")
        assert stop(config, PATIENCE, kills=False)["was_running"]
    assert journal.with_name("journal.sqlite.gone-1").exists()
