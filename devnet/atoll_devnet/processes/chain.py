"""The local chain: Anvil, or Ganache as the stand-in for chains without the newer precompiles."""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal

import aiohttp

from atoll.errors import ChainError, ConfigError
from atoll_devnet.processes.miner import Miner, ask
from atoll_devnet.processes.process import Process, free_port, is_port_free
from atoll_devnet.processes.tools import find_anvil, find_ganache, find_node

Backend = Literal["anvil", "ganache"]

CHAIN_IDS: dict[Backend, int] = {"anvil": 31337, "ganache": 1337}
MNEMONIC = "test test test test test test test test test test test junk"
FAUCET_KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
"""First account of `MNEMONIC`: known to everyone, rich on every development chain, nowhere else."""
FAUCET = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
"""Its address."""
ASK_SECONDS = 0.1
START_SECONDS = 600.0
"""What does not answer by then hangs: a busy machine starts a chain late."""
SAVE_SECONDS = 600.0
CONFIRMATIONS = 2
"""Blocks on top of the one that is believed, at most."""
KEPT_STATES = 256
"""Of old blocks, in memory; Anvil would otherwise write every state to disk, gigabytes of them."""


def block_interval(backend: Backend, seconds: float) -> float:
    """Seconds between blocks where so many are wanted: Ganache knows whole ones only."""
    return seconds if backend == "anvil" else float(max(1, round(seconds)))


@dataclass(frozen=True, slots=True)
class ChainConfig:
    """What chain to start.

    Attributes:
        folder: for the log and, with Anvil, the state that a restart continues from.
        block_seconds: the least between two blocks of Anvil, which has one when a transaction
            waits, and seldom else; Ganache mines on this interval, full or empty.
        port: 0 takes a free one.
        options: more of Anvil's own.
    """

    folder: Path
    backend: Backend = "anvil"
    block_seconds: float = 0.5
    port: int = 0
    options: tuple[str, ...] = ()


class Endpoint:
    """A development chain that answers at `rpc_url`, whoever started it."""

    def __init__(
        self,
        rpc_url: str,
        chain_id: int,
        patience: float = 120.0,
        backend: Backend = "anvil",
    ) -> None:
        self.rpc_url = rpc_url
        self.chain_id = chain_id
        self.patience = patience
        self.backend = backend

    async def rpc(self, method: str, *params: object) -> Any:
        """One JSON-RPC call.

        Raises:
            ChainError: no answer, or an error answer.
        """
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}
        try:
            async with (
                aiohttp.ClientSession(
                    timeout=aiohttp.ClientTimeout(total=self.patience)
                ) as session,
                session.post(self.rpc_url, json=body) as response,
            ):
                answer = await response.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ChainError(f"the chain at {self.rpc_url} does not answer: {error}") from error
        if "error" in answer:
            raise ChainError(f"{method}: {answer['error'].get('message', answer['error'])}")
        return answer["result"]

    async def sign_for(self, address: str, wei: int) -> None:
        """Has the chain sign what that account sends from now on, and gives it so much coin."""
        if self.backend == "anvil":
            await self.rpc("anvil_impersonateAccount", address)
            await self.rpc("anvil_setBalance", address, hex(wei))
            return
        await self.rpc("evm_addAccount", address, "")
        await self.rpc("personal_unlockAccount", address, "", 0)
        # A balance that is set while Ganache makes a block is gone with the block.
        if int(await self.rpc("eth_getBalance", address, "latest"), 16) < wei:
            await self.send({"from": FAUCET, "to": address, "value": hex(wei)})

    async def send(self, order: Mapping[str, str]) -> None:
        """Sends from an account that the chain signs for; returns once it is in a block.

        Raises ChainError where it had no effect.
        """
        sent = await self.rpc("eth_sendTransaction", dict(order))
        receipt = None
        while receipt is None:  # blocks come on the chain's own interval
            await asyncio.sleep(ASK_SECONDS)
            receipt = await self.rpc("eth_getTransactionReceipt", sent)
        if receipt["status"] != "0x1":
            raise ChainError(f"a transaction had no effect ({sent})")

    async def set_code(self, address: str, code: str) -> None:
        """Puts other code where a contract is."""
        if self.backend == "anvil":
            await self.rpc("anvil_setCode", address, code)
            return
        is_there = False
        while not is_there:  # as with balances, until a block has it
            await self.rpc("evm_setAccountCode", address, code)
            before = await self.block_number()
            while await self.block_number() == before:  # noqa: ASYNC110 (the chain is polled)
                await asyncio.sleep(ASK_SECONDS)
            is_there = await self.rpc("eth_getCode", address, "latest") == code

    async def block_number(self) -> int:
        """Height of the newest block."""
        return int(await self.rpc("eth_blockNumber"), 16)


class LocalChain(Endpoint):
    """One running development chain. The port survives `stop`, so that `start` continues it."""

    def __init__(self, config: ChainConfig) -> None:
        self.config = config
        self.port = config.port or free_port()
        backend = config.backend
        super().__init__(f"http://127.0.0.1:{self.port}", CHAIN_IDS[backend], backend=backend)
        config.folder.mkdir(parents=True, exist_ok=True)
        self._process = Process("the chain", self._command(), config.folder / "chain.log")
        self._miner: Miner | None = None
        self._is_paused = False

    @property
    def state_file(self) -> Path:
        return self.config.folder / "state.json"

    @property
    def pid(self) -> int | None:
        return self._process.pid

    async def start(self) -> None:
        """Starts the chain, from its saved state if there is one, and waits until it answers.

        Raises:
            ConfigError: its program is missing, or its port is in use.
            ChainError: it did not answer.
        """
        if not is_port_free(self.port):
            raise ConfigError(
                f"port {self.port} on 127.0.0.1 is in use",
                next_step="end the program that holds it, or choose another with --port",
            )
        self._process.command = self._command()
        is_resumed = self.state_file.exists()
        self._process.start()
        await self._until_it_answers()
        if self.config.backend == "anvil":
            await self._set_clock()
            if is_resumed:
                # Of the blocks below, Anvil has no state any more, and logs are held against it.
                await self.rpc("anvil_mine", hex(CONFIRMATIONS))
            self._miner = Miner(self.port, self.config.block_seconds)
            self._miner.start()

    async def _until_it_answers(self) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            self._process.check()
            try:
                if int(str(await self.rpc("eth_chainId")), 16) == self.chain_id:
                    return
            except ChainError:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(0.1)

    async def _set_clock(self) -> None:
        """Goes on from the newest block's time: Anvil forgets what its clock was moved by.

        Blocks that are older than those below them would open windows that are over.
        """
        newest = int((await self.rpc("eth_getBlockByNumber", "latest", False))["timestamp"], 16)
        if newest > time.time():
            await self.rpc("evm_setTime", newest)

    def stop(self) -> None:
        """Ends the chain; Anvil's state is written first, if it still answers."""
        if self._miner is not None and not self._is_paused:
            with suppress(ChainError, OSError, HTTPException):  # it is about to end by itself
                self._miner.halt()
                ask(self.port, "evm_mine", seconds=SAVE_SECONDS)  # what waits would be gone
                self._save()
        self._end()
        self._process.stop()

    def _save(self) -> None:
        """Writes Anvil's blocks and accounts; nothing may be mined meanwhile.

        Raises OSError, HTTPException, ChainError.
        """
        state = str(ask(self.port, "anvil_dumpState", seconds=SAVE_SECONDS))
        partial = self.state_file.with_suffix(".partial")
        partial.write_bytes(gzip.decompress(bytes.fromhex(state[2:])))
        partial.replace(self.state_file)

    def _end(self) -> None:
        if self._miner is not None:
            self._miner.end()
        self._miner, self._is_paused = None, False

    @asynccontextmanager
    async def still(self) -> AsyncIterator[None]:
        """Inside, no block is made but those that are asked for. Anvil only.

        Raises:
            ChainError: it does not run, or does not finish a block.
        """
        if self._miner is None:
            raise ChainError("there is no Anvil here that makes blocks")
        async with self._miner.halted():
            yield

    def pause(self) -> None:
        """Answers nobody until `resume`. Raises ChainError where a block is not finished."""
        if self._miner is not None:
            self._miner.halt()  # what was asked of it would be done whenever it resumes
        self._is_paused = True
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Goes on where it paused."""
        self._signal(signal.SIGCONT)
        self._is_paused = False
        if self._miner is not None:
            self._miner.go_on()

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            os.kill(self.pid, number)

    async def crash(self) -> None:
        """SIGKILL; what was in blocks just before is on disk, as a node's is, the pool is not.

        Anvil only. Raises ChainError where it does not answer.
        """
        async with self.still():
            try:
                await asyncio.to_thread(self._save)
            except (OSError, HTTPException) as error:
                raise ChainError(f"the chain does not tell its state: {error}") from error
            self.kill()

    def kill(self) -> None:
        self._end()
        self._process.kill()

    def check(self) -> None:
        """Raises ProcessFailed if the chain ended by itself."""
        self._process.check()

    def hasten(self) -> None:
        """Has a block be made soon, although no transaction waits for one."""
        if self._miner is not None:
            self._miner.hasten()

    async def reorg(self, depth: int) -> None:
        """Replaces the newest `depth` blocks by empty ones. Anvil only."""
        async with self.still():
            await self.rpc("anvil_reorg", depth, [])

    def _command(self) -> list[str]:
        config = self.config
        if config.backend == "anvil":
            return [
                *(str(find_anvil()), "--host", "127.0.0.1", "--port", str(self.port)),
                *("--chain-id", str(self.chain_id), "--no-mining"),
                *("--accounts", "1", "--balance", "1000000000", "--mnemonic", MNEMONIC),
                *("--hardfork", "prague", "--order", "fifo", "--prune-history", str(KEPT_STATES)),
                *(("--load-state", str(self.state_file)) if self.state_file.exists() else ()),
                *config.options,
            ]
        return [
            *(str(find_node()), str(find_ganache()), "--server.host", "127.0.0.1"),
            *("--server.port", str(self.port), "--chain.chainId", str(self.chain_id)),
            *("--chain.hardfork", "shanghai", "--chain.networkId", str(self.chain_id)),
            *("--miner.blockTime", f"{block_interval('ganache', config.block_seconds):.0f}"),
            *("--wallet.totalAccounts", "1", "--wallet.defaultBalance", "1000000000"),
            *("--wallet.mnemonic", MNEMONIC, "--miner.blockGasLimit", "30000000"),
        ]
