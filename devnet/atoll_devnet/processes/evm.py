"""Contract code on an Anvil of its own, with any amount of gas: for tests and benches."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final, Self

from eth_utils.crypto import keccak

from atoll_devnet.processes.chain import ChainConfig, Endpoint, LocalChain

GAS: Final = 8 * 10**12
"""Of one call: hours of it."""
MEMORY_BYTES: Final = 1 << 32
CALL_SECONDS: Final = 600.0
IDLE_SECONDS: Final = 3600.0
"""Between blocks: nothing here is a transaction."""


class Evm:
    """Runs pure functions of contracts; use it as an async context manager.

    Attributes:
        folder: for the chain's log.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        limits = ("--gas-limit", str(2 * GAS), "--memory-limit", str(MEMORY_BYTES))
        options = (*limits, "--disable-code-size-limit")
        self._chain = LocalChain(ChainConfig(folder, block_seconds=IDLE_SECONDS, options=options))
        self._endpoint = Endpoint(self._chain.rpc_url, self._chain.chain_id, CALL_SECONDS)

    async def __aenter__(self) -> Self:
        await self._chain.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._chain.kill()

    async def place(self, creation: bytes) -> str:
        """Address of a contract, whatever its size, that this creation code makes.

        Raises:
            ChainError: its constructor fails.
        """
        code = await self._endpoint.rpc("eth_call", {"data": _hex(creation), "gas": hex(GAS)})
        address = _hex(keccak(creation)[:20])
        await self._endpoint.rpc("anvil_setCode", address, code)
        return address

    async def call(self, address: str, data: bytes) -> bytes:
        """What the contract returns for this calldata.

        Raises:
            ChainError: it reverts.
        """
        call = {"to": address, "data": _hex(data), "gas": hex(GAS)}
        return bytes.fromhex(str(await self._endpoint.rpc("eth_call", call))[2:])


def _hex(data: bytes) -> str:
    return "0x" + data.hex()
