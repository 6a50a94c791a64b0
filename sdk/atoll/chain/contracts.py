"""The chain as Atoll sees it: typed reads of one deployment, and calls to send to it.

Rule of this file: every read is one question to the chain; nothing is remembered between two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from eth_abi.abi import decode as abi_decode
from eth_abi.abi import encode as abi_encode
from eth_typing import ChecksumAddress, HexStr
from eth_utils.address import to_checksum_address
from web3 import AsyncWeb3
from web3.exceptions import BlockNotFound
from web3.types import BlockData

from atoll.chain.abi import registry
from atoll.chain.calls import Call, Calls
from atoll.chain.decode import RawLog, event_topics, from_abi, to_abi
from atoll.chain.deployment import Deployment
from atoll.chain.revert import reason_of
from atoll.chain.rpc import FailoverProvider, RpcRefused, request
from atoll.errors import ChainError, TransactionFailed
from atoll.law.views import RoundState
from atoll.law.words import (
    Address,
    Attempt,
    BlockRef,
    Digest,
    JobId,
    JobStatus,
    Reveal,
    Role,
    RoundIndex,
    SeatIndex,
    Terms,
    Verdict,
    VerifierIndex,
)

LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Escrow:
    """Wei; funded = claimed + refunded + balance."""

    funded: int
    claimed: int
    refunded: int
    balance: int


@dataclass(frozen=True, slots=True)
class Stake:
    """Wei. `active` includes `locked`: what may be locked or thawed is the difference."""

    active: int
    locked: int
    thawing: int


@dataclass(frozen=True, slots=True)
class FinalRounds:
    """What claims are checked against: the last final round's tree and its total (wei)."""

    count: int
    claims_root: Digest
    cumulative_total: int


class AtollChain:
    """One deployment, asked through one or more RPC endpoints.

    Attributes:
        calls: builds what can be sent.
        deployment: where the contracts are.
        provider: the endpoints, for raw JSON-RPC.
        web3: the same endpoints as web3.py's client.
    """

    def __init__(self, rpc: str | Sequence[str], deployment: Deployment) -> None:
        urls = [rpc] if isinstance(rpc, str) else list(rpc)
        self.deployment = deployment
        self.calls = Calls(deployment)
        self.provider = FailoverProvider(urls, deployment.chain_id)
        self.web3: AsyncWeb3[Any] = AsyncWeb3(self.provider, middleware=[])

    @classmethod
    async def connect(cls, rpc: str | Sequence[str], deployment: Deployment) -> AtollChain:
        """Opens and checks: endpoints answer, chain id fits, the contracts are there.

        Raises:
            RpcUnavailable: no endpoint answers.
            WrongChain: an endpoint serves another chain.
            ChainError: no contract at a deployment's address.
        """
        chain = cls(rpc, deployment)
        try:
            await chain.provider.check_all()
            address = deployment.addresses["Rounds"]
            if not await chain.web3.eth.get_code(_checksum(address)):
                raise ChainError(
                    f"no contract at {address} on chain {deployment.chain_id}",
                    next_step="check the deployment file: was the chain started afresh?",
                )
        except BaseException:
            await chain.close()
            raise
        return chain

    async def close(self) -> None:
        """Closes the connections."""
        await self.provider.disconnect()

    # Blocks and logs

    async def head(self) -> BlockRef:
        """The newest block."""
        return _block_ref(await self.web3.eth.get_block("latest"))

    async def block(self, number: int) -> BlockRef | None:
        """The block of that height on the node's chain, or None where it has none."""
        try:
            return _block_ref(await self.web3.eth.get_block(number))
        except BlockNotFound:
            return None

    async def logs(self, first: int, last: int) -> list[RawLog]:
        """Logs of Atoll's events in the blocks first…last, in chain order.

        Raises:
            RpcRefused: among others where the node finds the range too long.
        """
        where = [a for name, a in self.deployment.addresses.items() if name != "AtollToken"]
        query = {
            "fromBlock": hex(first),
            "toBlock": hex(last),
            "address": where,
            "topics": [[f"0x{topic.hex()}" for topic in event_topics()]],
        }
        found = await request(self.provider, "eth_getLogs", [query])
        return sorted(
            (_raw_log(log) for log in found), key=lambda log: (log.block_number, log.index)
        )

    # Jobs

    async def state(self, job: JobId) -> RoundState:
        return from_abi(RoundState, (await self._read("state", job))[0])

    async def terms(self, job: JobId) -> Terms:
        return from_abi(Terms, (await self._read("termsOf", job))[0])

    async def job_status(self, job: JobId) -> JobStatus:
        return JobStatus((await self._read("statusOf", job))[0])

    async def escrow(self, job: JobId) -> Escrow:
        return Escrow(*await self._read("escrowOf", job))

    async def budget(self, terms: Terms) -> int:
        """Wei that a job of these terms has to be funded with: every round at its dearest."""
        return int((await self._read("budget", terms))[0])

    async def paid_to(self, job: JobId, account: Address) -> int:
        """Wei claimed by this account so far."""
        return int((await self._read("paidTo", job, account))[0])

    async def credit_of(self, job: JobId, account: Address) -> int:
        """Wei credited to this account by rounds that ran out of attempts."""
        return int((await self._read("creditOf", job, account))[0])

    async def final_rounds(self, job: JobId) -> FinalRounds:
        return from_abi(FinalRounds, await self._read("finalRounds", job))

    async def last_optimiser_root(self, job: JobId, seat: SeatIndex) -> Digest:
        return Digest((await self._read("lastOptimiserRoot", job, seat))[0])

    async def commitment_of(
        self,
        job: JobId,
        round_: RoundIndex,
        attempt: Attempt,
        seat: SeatIndex,
        *,
        sender: Address,
        reveal: Reveal,
    ) -> Digest:
        """The contract's own computation, to compare ours with."""
        read = await self._read("commitmentOf", job, round_, attempt, seat, sender, reveal)
        return Digest(read[0])

    async def verdict_hash(
        self, job: JobId, round_: RoundIndex, attempt: Attempt, verdict: Verdict
    ) -> Digest:
        """The contract's own computation, to compare ours with."""
        return Digest((await self._read("verdictHash", job, round_, attempt, verdict))[0])

    # Members and money

    async def seat_of(self, job: JobId, account: Address) -> SeatIndex | None:
        seated, seat = await self._read("seatOf", job, account)
        return SeatIndex(seat) if seated else None

    async def verifier_of(self, job: JobId, account: Address) -> VerifierIndex | None:
        joined, verifier = await self._read("verifierOf", job, account)
        return VerifierIndex(verifier) if joined else None

    async def stake(self, account: Address, role: Role) -> Stake:
        return Stake(*await self._read("stakeOf", account, role))

    async def token_balance(self, account: Address) -> int:
        return int((await self._read("balanceOf", account, contract="AtollToken"))[0])

    async def allowance(self, owner: Address, spender: Address) -> int:
        return int((await self._read("allowance", owner, spender, contract="AtollToken"))[0])

    async def native_balance(self, account: Address) -> int:
        """Wei for gas."""
        return int(await self.web3.eth.get_balance(_checksum(account)))

    # Anything

    async def read(self, name: str, *args: Any, contract: str | None = None) -> tuple[Any, ...]:
        """Any view function by its Solidity name; its outputs as a tuple.

        Raises:
            TransactionFailed: the view reverted.
        """
        return await self._read(name, *args, contract=contract)

    async def simulate(self, call: Call, sender: Address, block: str = LATEST) -> bytes:
        """Runs a call without sending it; what it would return.

        Raises:
            TransactionFailed: it would revert; the message has the reason.
        """
        query = {"from": sender, "to": call.to, "data": f"0x{call.data.hex()}"}
        return await self._eth_call(query, call.label, block)

    async def _read(self, name: str, *args: Any, contract: str | None = None) -> tuple[Any, ...]:
        function = registry().function(name, contract)
        data = function.selector + abi_encode(function.inputs, [to_abi(value) for value in args])
        address = self.deployment.addresses[function.contract]
        returned = await self._eth_call({"to": address, "data": f"0x{data.hex()}"}, name, LATEST)
        if not returned and function.outputs:
            raise ChainError(
                f"{function.contract} at {address} has no code",
                next_step="check the deployment file: was the chain started afresh?",
            )
        return abi_decode(function.outputs, returned)

    async def _eth_call(self, query: dict[str, str], label: str, block: str) -> bytes:
        try:
            returned = await request(self.provider, "eth_call", [query, block])
        except RpcRefused as refused:
            reason = reason_of(refused)
            if reason is None:
                raise
            raise TransactionFailed(
                f"{label} reverted: {reason}", error=reason.name, args=reason.args
            ) from refused
        return bytes.fromhex(returned.removeprefix("0x"))


def _checksum(address: Address) -> ChecksumAddress:
    return cast(ChecksumAddress, address)


def _block_ref(block: BlockData) -> BlockRef:
    return BlockRef(block["number"], Digest(bytes(block["hash"])), block["timestamp"])


def _raw_log(log: dict[str, Any]) -> RawLog:
    return RawLog(
        address=Address(to_checksum_address(log["address"])),
        topics=tuple(_unhex(topic) for topic in log["topics"]),
        data=_unhex(log["data"]),
        block_number=int(log["blockNumber"], 16),
        block_hash=_unhex(log["blockHash"]),
        index=int(log["logIndex"], 16),
    )


def _unhex(text: HexStr | str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))
