"""Ports of local networks: free, below the system's own, and never two processes' at once."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

from atoll_devnet.processes.process import BLOCK, FIRST_GIVEN_PORT, LOWEST_PORT, free_port

ASKS = """
import json, sys
from atoll_devnet.processes.process import free_port
print(json.dumps([free_port() for _ in range(int(sys.argv[1]))]), flush=True)
sys.stdin.read()
"""


def test_no_port_is_given_to_two_processes() -> None:
    """None of them listens yet: only what they have taken keeps them apart."""
    count = str(3 * BLOCK)
    askers = [
        subprocess.Popen(
            [sys.executable, "-c", ASKS, count],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    try:
        given = [json.loads((asker.stdout or sys.stdin).readline()) for asker in askers]
    finally:
        for asker in askers:
            asker.communicate()
    ours = [free_port() for _ in range(BLOCK)]
    every = [port for ports in (*given, ours) for port in ports]
    assert len(set(every[: -len(ours)])) == 4 * 3 * BLOCK
    assert len(set(ours)) == BLOCK
    assert all(LOWEST_PORT < port < FIRST_GIVEN_PORT for port in every)


def test_what_somebody_listens_on_is_passed_over() -> None:
    port = free_port()
    while (port + 1 - LOWEST_PORT) % BLOCK == 0:  # the next may be another process's
        port = free_port()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port + 1))
        listener.listen()
        assert free_port() != port + 1
