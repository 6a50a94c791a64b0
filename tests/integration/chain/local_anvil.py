"""A local Ethereum node for tests: started on a free port, driven by its control calls."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONTRACTS = Path(__file__).parents[3] / "contracts"
ALWAYS = ("--silent", "--prune-history", "256")


@dataclass(frozen=True, slots=True)
class Anvil:
    """A running node and its control calls."""

    url: str
    process: subprocess.Popen[bytes]

    def ask(self, method: str, *params: Any) -> Any:
        """One JSON-RPC call, synchronously."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        request = urllib.request.Request(
            self.url, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as reply:
            answer = json.load(reply)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def answers(self) -> bool:
        try:
            self.ask("eth_chainId")
        except OSError:
            return False
        return True

    def mine(self, blocks: int = 1) -> None:
        self.ask("anvil_mine", hex(blocks))

    def automine(self, enabled: bool) -> None:
        self.ask("evm_setAutomine", enabled)

    def pending(self) -> list[dict[str, Any]]:
        """Transactions that no block has."""
        pool: dict[str, dict[str, dict[str, Any]]] = self.ask("txpool_content")["pending"]
        return [transaction for by_nonce in pool.values() for transaction in by_nonce.values()]

    def height(self) -> int:
        return int(self.ask("eth_blockNumber"), 16)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_anvil(*options: str) -> Anvil:
    """Starts a node and returns once it answers."""
    binary = next(CONTRACTS.glob("node_modules/@foundry-rs/anvil-*/bin/anvil"))
    with tempfile.TemporaryDirectory() as folder:
        for attempt in range(5):
            # Between finding a free port and taking it, somebody else may have taken it, and would
            # answer for ours while ours still starts. Anvil writes this file once it has the port.
            port, listens = free_port(), Path(folder, str(attempt))
            process = subprocess.Popen(
                [str(binary), *ALWAYS, "--port", str(port), "--config-out", str(listens), *options],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            anvil = Anvil(f"http://127.0.0.1:{port}", process)
            while process.poll() is None:
                if listens.exists() and anvil.answers():
                    return anvil
                time.sleep(0.01)
    raise RuntimeError(f"anvil exited with {process.returncode}")


def stop(anvil: Anvil) -> None:
    anvil.process.terminate()
    anvil.process.wait()


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition that another task brings about; pytest ends what hangs."""
    while not condition():  # noqa: ASYNC110 - the condition lives in SQLite
        await asyncio.sleep(0.01)


def start_ganache() -> Anvil:
    """Starts a Ganache with Anvil's accounts, and returns once it answers; it has no control calls
    of Anvil's.
    """
    mnemonic = "test test test test test test test test test test test junk"
    return _start_node_js(
        "ganache/dist/node/cli.js", ("--wallet.mnemonic", mnemonic), port="--server.port"
    )


def start_hardhat() -> Anvil:
    """Starts Hardhat's node, whose accounts are Anvil's, and returns once it answers."""
    return _start_node_js(
        "hardhat/internal/cli/bootstrap.js", ("node",), port="--port", folder=CONTRACTS / "hardhat"
    )


def start_optimism() -> Anvil:
    """An Anvil that answers as a node of the OP stack, with a block every two seconds."""
    return start_anvil("--network", "optimism", "--block-time", "2")


def _start_node_js(
    script: str, options: tuple[str, ...], *, port: str, folder: Path = CONTRACTS
) -> Anvil:
    """Starts what npm installed in a folder, and returns once it answers."""
    number = free_port()
    process = subprocess.Popen(
        ["node", str(folder / "node_modules" / script), *options, port, str(number)],
        cwd=folder,
        env={**os.environ, "HARDHAT_DISABLE_TELEMETRY_PROMPT": "true"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    node = Anvil(f"http://127.0.0.1:{number}", process)
    while process.poll() is None:
        try:
            node.ask("eth_chainId")
        except OSError:
            time.sleep(0.05)
            continue
        return node
    raise RuntimeError(f"{script} exited with {process.returncode}; run npm ci in {folder}")
