"""The chain as Atoll sees it: typed reads of one deployment, and calls to send to it.

Rule of this file: every read is one question to the chain; nothing is remembered between two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from eth_abi.abi import decode as abi_decode
from eth_abi.abi import encode as abi_encode

from atoll.chain import contract_views as views
from atoll.chain import response_checks
from atoll.chain.abi import Function, registry
from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.chain.decode import RawLog, to_abi
from atoll.chain.deployment import DEVELOPMENT_CHAINS, Deployment
from atoll.chain.logs import LogReader
from atoll.chain.revert import reason_of
from atoll.chain.rpc import FailoverProvider
from atoll.chain.structs import Escrow, RoundState
from atoll.chain.verdicts import RpcRefused
from atoll.chain.view import View
from atoll.errors import ChainError, RpcUnavailable, TransactionFailed
from atoll.protocol.owners import NOBODY, Ownership
from atoll.protocol.token_units import use_decimals
from atoll.protocol.types import (
    Address,
    BlockRef,
    Digest,
    HolderId,
    JobId,
    Role,
    RoundIndex,
    Terms,
)

T = TypeVar("T")
LATEST = "latest"


class AtollChain:
    """One deployment, asked through one or more RPC endpoints.

    Args:
        rpc: http(s) endpoints, the preferred one first.
        agreement: endpoints that have to give a block alike before it and its logs are believed.

    Attributes:
        calls: builds what can be sent.
        deployment: where the contracts are.
        provider: the endpoints, for raw JSON-RPC.
        events: reads the contracts' logs, and blocks.
        genesis: of a development chain the hash of block 0, which tells one that began anew from
            the one before; empty where no endpoint gives it. Others do not begin anew, and there
            an endpoint that names a wrong one would keep members from starting.
    """

    def __init__(
        self, rpc: str | Sequence[str], deployment: Deployment, agreement: int = 1
    ) -> None:
        urls = [rpc] if isinstance(rpc, str) else list(rpc)
        self.deployment = deployment
        use_decimals(deployment.decimals)
        self.calls = Calls(deployment)
        self.provider = FailoverProvider(urls, deployment.chain_id)
        self.events = LogReader(self.provider, deployment.addresses, agreement)
        self.genesis = b""

    @classmethod
    async def connect(
        cls, rpc: str | Sequence[str], deployment: Deployment, agreement: int = 1
    ) -> AtollChain:
        """Opens and checks: endpoints answer, chain id fits, the contracts are there.

        Raises:
            RpcUnavailable: no endpoint answers.
            WrongChain: an endpoint serves another chain.
            ChainError: no contract at a deployment's address.
        """
        chain = cls(rpc, deployment, agreement)
        try:
            await chain.provider.check_all()
            address = deployment.addresses["Rounds"]
            if not await chain.code_at(address):
                raise ChainError(
                    f"no contract at {address} on chain {deployment.chain_id}",
                    next_step="check the deployment file: was the chain started afresh?",
                )
            if deployment.chain_id in DEVELOPMENT_CHAINS:
                with suppress(RpcUnavailable):
                    first = await chain.block(0)
                    chain.genesis = b"" if first is None else bytes(first.hash)
        except BaseException:  # cancelled, too: nobody else knows of the connections yet
            await chain.close()
            raise
        return chain

    async def close(self) -> None:
        """Closes the connections."""
        await self.provider.disconnect()

    # Blocks and logs

    async def head(self, within: float = 0.0) -> BlockRef:
        """The newest block, as it was at most `within` seconds ago."""
        return (await self.events.newest(within)).ref

    async def base_fee(self) -> int:
        """Wei a gas that the newest block burns; 0 on a chain that burns none."""
        return (await self.events.newest()).base_fee

    async def block(self, number: int) -> BlockRef | None:
        """The block of that height, or None where the chain does not reach up to it."""
        header = await self.events.header(number)
        return None if header is None else header.ref

    async def logs(self, first: int, last: int) -> list[RawLog]:
        """Logs of Atoll's events in the blocks first…last, all of them, in chain order.

        Raises:
            RpcUnavailable: among others where the chain turned while it was read.
        """
        found = await self.events.proven(first, last, begins=self.deployment.block)
        if found is None:
            raise RpcUnavailable(f"the chain turned while blocks {first} to {last} were read")
        return list(found.logs)

    async def nonce(self, account: Address, block: str = LATEST) -> int:
        """How many transactions of the account are in blocks up to that one.

        Raises:
            RpcUnavailable: among others where no endpoint has the state of so old a block.
        """
        return await self.provider.ask(
            "eth_getTransactionCount", [account, block], response_checks.counter
        )

    async def hash_of(self, account: Address, nonce: int, number: int) -> str | None:
        """The hash of the account's transaction with that nonce; None where the block has none."""

        def read(value: Any) -> str | None:
            # A transaction of the chain itself may be from nobody.
            every, ours = value["transactions"], account.lower()
            sent = (t for t in every if str(t.get("from")).lower() == ours)
            return next(
                (
                    response_checks.tx_hash(t["hash"])
                    for t in sent
                    if response_checks.counter(t["nonce"]) == nonce
                ),
                None,
            )

        return await self.provider.ask("eth_getBlockByNumber", [hex(number), True], read)

    async def receipt(self, tx_hash: str) -> response_checks.TxReceipt | None:
        """What became of a transaction; None while no block has it."""

        def of_this_one(value: Any) -> response_checks.TxReceipt | None:
            found = response_checks.receipt(value)
            if found is not None and found.tx_hash != tx_hash.lower():
                raise ValueError(f"the receipt of {found.tx_hash}")
            if found is not None and None in (found.succeeded, found.gas_used):
                raise ValueError("a receipt that does not say what became of it")
            return found

        return await self.provider.ask("eth_getTransactionReceipt", [tx_hash], of_this_one)

    async def certificates(self, number: int, job: JobId) -> list[bytes]:
        """Certificates that transactions of a block called `settle` with, of one job.

        What another contract calls on somebody's behalf is not among them; what was refused is.
        """
        function = registry().function("settle")
        to = self.deployment.addresses[function.contract].lower()

        def read(value: Any) -> list[bytes]:
            sent = (
                response_checks.data(t["input"]) for t in value["transactions"] if _is_to(t, to)
            )
            calls = (data[4:] for data in sent if data[:4] == function.selector)
            return [
                certificate for data in calls if (certificate := _certificate(function, data, job))
            ]

        return await self.provider.ask("eth_getBlockByNumber", [hex(number), True], read)

    async def bls_key(self, account: Address) -> bytes:
        """The key under which the account signs certificates in BLS12-381; empty where it has none.

        Only of a deployment that has a registry of such keys.
        """
        return await self.ask(views.key_of(account))

    async def is_signer(self, account: Address, digest: Digest, signature: bytes) -> bool:
        """Whether certificates take the signature for the account's; asked of it if it has code."""
        given = (account, digest, signature)
        (answer,) = await self.read("isSigner", *given, contract="EcdsaPolicy")
        return bool(answer)

    async def bls_sum(self, accounts: Sequence[Address]) -> bytes:
        """What the keys of these accounts add up to, as it is kept; empty where it is not."""
        return await self.ask(views.sum_of(accounts))

    # Jobs

    async def state(self, job: JobId) -> RoundState:
        return await self.ask(views.state(job))

    async def terms(self, job: JobId) -> Terms:
        return await self.ask(views.terms_of(job))

    async def escrow(self, job: JobId, block: str = LATEST) -> Escrow:
        """As of the end of that block: what is held against events has to be of their block."""
        return await self.ask(views.escrow_of(job), block)

    async def budget(self, terms: Terms) -> int:
        """Wei that a job of these terms has to be funded with: every round at its dearest."""
        return await self.ask(views.budget(terms))

    async def refundable(self, job: JobId) -> int:
        """Wei that `refund` would send home now."""
        return await self.ask(views.refundable(job))

    async def credit_of(self, job: JobId, account: Address) -> int:
        """Wei that the account got by contests or by showing a key, and has not taken."""
        return await self.ask(views.credit_of(job, account))

    async def claimed_to(self, job: JobId, role: Role, id: HolderId) -> RoundIndex:
        """The first round that the holder has not claimed."""
        return await self.ask(views.claimed_to(job, role, id))

    async def absolute_end(self, job: JobId) -> int:
        """Unix seconds from which on no lock of the job holds."""
        return await self.ask(views.absolute_end(job))

    # Members and money

    async def id_of(self, job: JobId, account: Address) -> views.Id | None:
        """Which seat's or slot's holder the account is; None for none."""
        holder = await self.ask(views.id_of(job, account))
        return holder if holder.id else None

    async def stake(self, account: Address, role: Role, block: str = LATEST) -> views.Stake:
        """As of the end of that block: what is held against events has to be of their block."""
        return await self.ask(views.stake_of(account, role), block)

    async def ownership(self, account: Address) -> Ownership:
        """Who moves the account's stake, and whom its pay is sent to."""
        owner = await self.ask(views.owner_of(account))
        payee = await self.ask(views.payee_of(account))
        proposed = await self.ask(views.proposed_owner_of(account))
        return Ownership(owner, payee, None if proposed == NOBODY else proposed)

    async def kept(self, account: Address, block: str = LATEST) -> int:
        """Wei that were claimed for the account, and that its payee could not be sent."""
        return await self.ask(views.kept_of(account), block)

    async def delegate_of(self, holder: Address) -> Address:
        """Who may make the holder's moves in games beside itself; zero for nobody."""
        return await self.ask(views.delegate_of(holder))

    async def owed_by_games(self, account: Address, block: str = LATEST) -> int:
        """Wei that `withdraw` of the game contract would send to the account."""
        return await self.ask(views.owed(account), block)

    async def token_balance(self, account: Address) -> int:
        return await self.ask(views.balance_of(account))

    async def allowance(self, owner: Address, spender: Address) -> int:
        return await self.ask(views.allowance(owner, spender))

    async def native_balance(self, account: Address) -> int:
        """Wei for gas."""
        return await self.provider.ask(
            "eth_getBalance", [account, LATEST], response_checks.quantity
        )

    # Anything

    async def code_at(self, address: Address) -> bytes:
        """A contract's code; empty where no endpoint has any: one that is behind may not yet."""
        nothing = _Nothing()
        try:
            return await self.provider.ask(
                "eth_getCode",
                [address, LATEST],
                lambda value: nothing.else_(response_checks.data(value)),
            )
        except RpcUnavailable:
            if nothing.is_told:
                return b""
            raise

    async def read(self, name: str, *args: Any, contract: str | None = None) -> tuple[Any, ...]:
        """Any view function by its Solidity name; its outputs as a tuple. `ask` is the better way.

        Raises:
            TransactionFailed: the view reverted.
        """
        return await self._read(registry().function(name, contract), args, LATEST, tuple)

    async def ask(self, view: View[T], block: str = LATEST) -> T:
        """A typed view as of the end of that block.

        Raises:
            TransactionFailed: the view reverted.
        """
        function = registry().function(view.name, view.contract)
        return await self._read(function, view.args, block, view.read)

    async def simulate(self, call: Call, sender: Address, block: str = LATEST) -> bytes:
        """Runs a call without sending it; what it would return.

        Raises:
            TransactionFailed: it would revert; the message has the reason.
        """
        query = {"from": sender, "to": call.to, "data": f"0x{call.data.hex()}"}
        return await self._eth_call(query, call.label, block, bytes)

    async def _read(
        self,
        function: Function,
        args: Sequence[Any],
        block: str,
        to: Callable[[tuple[Any, ...]], T],
    ) -> T:
        """One view function; `to` makes its outputs into what is wanted, or raises."""
        data = function.selector + abi_encode(function.inputs, [to_abi(value) for value in args])
        address = self.deployment.addresses[function.contract]
        query = {"to": address, "data": f"0x{data.hex()}"}
        nothing = _Nothing()

        def read(returned: bytes) -> T:
            if function.outputs:
                nothing.else_(returned)
            return to(abi_decode(function.outputs, returned))

        try:
            return await self._eth_call(query, function.name, block, read)
        except RpcUnavailable as error:
            if not nothing.is_told:
                raise
            raise ChainError(
                f"{function.contract} at {address} has no code",
                next_step="check the deployment file: was the chain started afresh?",
            ) from error

    async def _eth_call(
        self, query: dict[str, str], label: str, block: str, read: Callable[[bytes], T]
    ) -> T:
        try:
            return await self.provider.ask(
                "eth_call", [query, block], lambda value: read(response_checks.data(value))
            )
        except RpcRefused as refused:
            reason = reason_of(refused)
            raise TransactionFailed(
                f"{label} reverted: {reason}", error=reason.name, args=reason.args
            ) from refused


def _is_to(transaction: Any, address: str) -> bool:
    return str(transaction.get("to")).lower() == address


def _certificate(function: Function, data: bytes, job: JobId) -> bytes | None:
    """Of a settlement of this job; what does not decode is nobody's."""
    try:
        asked, *_, (_, _, certificate) = abi_decode(function.inputs, data)
    except Exception:  # the bytes are a stranger's, and eth-abi documents no closed list
        return None
    return bytes(certificate) if asked == job else None


class _Nothing:
    """Whether an endpoint had nothing where a contract is: others are asked then, and may have it.

    Attributes:
        is_told: whether one had.
    """

    def __init__(self) -> None:
        self.is_told = False

    def else_(self, found: bytes) -> bytes:
        """What was found. Raises ValueError where that is nothing."""
        if not found:
            self.is_told = True
            raise ValueError("there is no contract yet, or it is another chain's")
        return found
