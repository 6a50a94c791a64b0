"""Ranks that torchrun starts, on two "hosts", which are two agents of it on this one."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.integration.service.torchrun_service import SAYS, WAITS

from atoll_devnet.processes.process import free_port

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "hosts.md"
CONFIG = """
rpc_urls = ["http://127.0.0.1:1"]
deployment = "deployment.json"
keystore = "key.json"
password_file = "password"
data_dir = "data"
"""
"""Of what these name nothing is there: a rank that follows reads none of it."""


@contextmanager
def hosts(
    folder: Path, meeting: str, ranks: Sequence[int], devices: str = "", **variables: str
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """An agent for each host, with so many ranks; all are over in the end.

    Args:
        meeting: how the agents find each other.
        devices: of each host, as a config names them; empty names none.
    """
    config = folder / "config.toml"
    config.write_text(CONFIG + (f"[machine]\ndevices = {devices}\n" if devices else ""))
    port = free_port()
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": str(ROOT),
        SAYS: str(folder / "says"),
        **variables,
    }
    with ExitStack() as stack:
        agents = []
        for host, count in enumerate(ranks):
            log = stack.enter_context((folder / f"host-{host}.log").open("w"))
            command = [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(ranks))),
                *("--nproc-per-node", str(count), "--node-rank", str(host)),
                *("--rdzv-backend", meeting, "--rdzv-id", "test", "--max-restarts", "1"),
                *("--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"),
                *("-m", "tests.integration.service.torchrun_service", "--config", str(config)),
            ]
            agent = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
            stack.callback(ended, agent)
            agents.append(agent)
        yield agents


def ended(agent: subprocess.Popen[bytes]) -> None:
    """SIGTERM has an agent end its ranks, which have sessions of their own."""
    agent.terminate()
    try:
        agent.wait(60)
    except subprocess.TimeoutExpired:
        agent.kill()
        agent.wait()


def lines(folder: Path) -> list[list[object]]:
    says = folder / "says"
    return list(map(json.loads, says.read_text().splitlines())) if says.exists() else []


def logs(folder: Path) -> str:
    return "\n".join(log.read_text()[-4000:] for log in sorted(folder.glob("*.log")))


def test_ranks_of_two_hosts_have_the_bits_of_one(tmp_path: Path) -> None:
    """And they end once the service has, whose second worker led them as the first did."""
    with hosts(tmp_path, "static", (1, 2)) as agents:
        for agent in agents:
            assert agent.wait(300) == 0, logs(tmp_path)
    assert lines(tmp_path) == [[True, 3]] * 2, logs(tmp_path)


def test_a_killed_rank_ends_all_and_torchrun_starts_them_anew(tmp_path: Path) -> None:
    with hosts(tmp_path, "c10d", (1, 1), '["cpu"]', **{WAITS: "1"}) as agents:
        for _ in range(3000):
            if len(lines(tmp_path)) == 2:
                break
            time.sleep(0.1)
        (follower,) = children(agents[1].pid)
        os.kill(follower, signal.SIGKILL)
        for agent in agents:
            assert agent.wait(300) == 0, logs(tmp_path)
    assert lines(tmp_path) == [[True, 2]] * 4, logs(tmp_path)


def test_a_host_with_other_devices_than_ranks_ends_with_what_to_do(tmp_path: Path) -> None:
    with hosts(tmp_path, "static", (1, 2), '["cpu"]') as agents:
        assert agents[1].wait(300) != 0
    said = (tmp_path / "host-1.log").read_text()
    assert "torchrun has started 2 ranks on this host, and the config names 1 devices" in said
    assert "--nproc-per-node 1" in said


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for task in tasks for word in task.read_text().split()]


COMMANDS = [
    shlex.split(re.sub(r"\$\w+", "1", command.replace("\\\n", " ")))
    for command in re.findall(r"^ *(torchrun (?:.*\\\n)*.*)$", PAGE.read_text(), re.M)
]


def test_the_page_has_command_lines() -> None:
    assert len(COMMANDS) == 4


@pytest.mark.parametrize("command", COMMANDS, ids=range(len(COMMANDS)))
def test_torchrun_knows_every_option_of_the_page(command: list[str]) -> None:
    from torch.distributed.run import get_args_parser

    words = command[1:]
    chosen = get_args_parser().parse_args(words)
    assert chosen.module
    assert chosen.training_script in {"atoll_node", "atoll_verifier"}
    assert chosen.training_script_args[0] == "--config"
