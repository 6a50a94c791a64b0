"""Puts a set of contracts on a chain, in the order of `contracts/DEPLOY.md`.

Rule of this file: addresses follow from the deployer's nonces, so what fits in a block is sent at
once and then checked, contract by contract.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import rlp  # type: ignore[import-untyped]  # it ships no annotations
from eth_abi.abi import encode as abi_encode
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from atoll.chain.abi import input_types, load_artifact, registry
from atoll.chain.default_params import default_params
from atoll.chain.deployment import Deployment
from atoll.chain.drand import QUICKNET, DrandChain
from atoll.chain.prices import ask_prices
from atoll.chain.response_checks import data, header, quantity, receipt, tx_hash
from atoll.chain.rpc import FailoverProvider
from atoll.chain.supported_chains import beacon_of, check_chain
from atoll.chain.verdicts import Refusal, RpcRefused, floor_of, refusal_of
from atoll.errors import (
    ChainError,
    ConfigError,
    InsufficientFunds,
    RpcUnavailable,
    TransactionFailed,
)
from atoll.protocol.token_units import MOST_DECIMALS, checked_decimals
from atoll.protocol.types import Address, Params

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

T = TypeVar("T")
DAY = 24 * 60 * 60
WIRE_GAS = 400_000  # twice what the dearest of these calls uses
CREATE_MARGIN_GAS = 1_500_000
"""For constructors; what is not used is not paid."""
BLOCK_GAS = 25_000_000
"""Of the gas limits of a block's transactions; development chains have 30 million."""
LONGEST_MOVES = 10 * 60 * 60
"""Seconds that a game's moves take at most, beside both clocks, which the terms' bounds bound."""
FAMILIES = (
    "ImportSteps",
    "IntegerSteps",
    "AttentionSteps",
    "FloatSteps",
    "OptimiserSteps",
    "StateSteps",
    "UpdateProofSteps",
    "RolloutSteps",
)
"""The judge's contracts of operations, by op >> 8."""
_G1_ADD = "0x" + (0x0B).to_bytes(20, "big").hex()
"""EIP-2537's addition of two points; of nothing and nothing here, which is nothing of 128 bytes."""
_DECIMALS = "0x313ce567"
"""The selector of ERC-20's `decimals()`."""
BID_SECONDS = 20.0  # more than a block of any chain that we know
TIP = 10**9  # wei a gas, at first, where no endpoint suggests any
MOST_TIP = 100 * 10**9
"""Of what endpoints suggest: no cap bounds a deployment, and they may say anything."""
POLL_SECONDS = 0.1  # a development chain mines at once; on others it costs a few requests


@dataclass(frozen=True, slots=True)
class DeployConfig:
    """What a new network is made of; the defaults suit a development network.

    Attributes:
        token: an ERC-20 with permit and without transfer fees; None makes a new one.
        decimals, supply: of a new token: its decimals, and how many whole ones there are, all of
            them the deployer's.
        owner: of the configuration; None is the deployer.
        params: in units of the token; None is the chain's own (`default_params`).
        beacon: the contract that draws, `HistoryBeacon` or `DrandBeacon`; None is the chain's own
            (`beacon_of`).
        drand: the chain of drand's whose signatures that contract takes.
        unbonding_delay, change_delay: seconds.
        timeout: seconds until a transaction that no block takes is an error.
    """

    token: Address | None = None
    decimals: int = MOST_DECIMALS
    supply: int = 10**9
    owner: Address | None = None
    params: Params | None = None
    beacon: str | None = None
    drand: DrandChain = QUICKNET
    unbonding_delay: int = 7 * DAY
    change_delay: int = 2 * DAY
    timeout: float = 120.0


@dataclass(frozen=True, slots=True)
class _Step:
    """One transaction of the deployment."""

    what: str
    to: Address | None
    data: bytes
    gas: int


async def deploy(
    rpc: str | Sequence[str], account: LocalAccount, config: DeployConfig | None = None
) -> Deployment:
    """Deploys and wires every contract; where they are.

    Raises:
        ConfigError: the chain is none that is supported, or the token has too few decimals.
        RpcUnavailable: no endpoint answers.
        InsufficientFunds: the account cannot pay for the gas.
        TransactionFailed: a contract was refused; the message says which and why.
    """
    urls = [rpc] if isinstance(rpc, str) else list(rpc)
    provider = FailoverProvider(urls, chain_id=None)
    try:
        return await _Deployer(provider, account, config or DeployConfig()).deploy()
    finally:
        await provider.disconnect()


async def decimals_of(provider: FailoverProvider, token: Address) -> int:
    """What a token says of itself. Raises ConfigError where it says nothing, or too few."""
    call = {"to": token, "data": _DECIMALS}
    answer = await provider.ask("eth_call", (call, "latest"), data)
    if len(answer) != 32:
        raise ConfigError(f"{token} does not say its decimals", next_step="name an ERC-20")
    return checked_decimals(int.from_bytes(answer, "big"))


async def ask_chain_id(rpc: Sequence[str]) -> int:
    """The number of the chain behind these endpoints. Raises RpcUnavailable, ChainError."""
    provider = FailoverProvider(list(rpc), chain_id=None)
    try:
        return await provider.ask("eth_chainId", (), quantity)
    finally:
        await provider.disconnect()


class _Deployer:
    def __init__(
        self, provider: FailoverProvider, account: LocalAccount, config: DeployConfig
    ) -> None:
        self._provider = provider
        self._account = account
        self._config = config
        self._sender = Address(to_checksum_address(account.address))
        self._addresses: dict[str, Address] = {}
        self._steps: list[_Step] = []
        self._first_nonce = 0
        self._tip, self._burnt = TIP, 0
        self._decimals = config.decimals

    async def deploy(self) -> Deployment:
        self._first_nonce = await self._ask(
            quantity, "eth_getTransactionCount", self._sender, "latest"
        )
        if (chain_id := self._provider.chain_id) is None:
            raise ChainError("the endpoint named no chain id")
        check_chain(chain_id)
        config = self._config
        token, new = config.token, checked_decimals(config.decimals)
        self._decimals = new if token is None else await decimals_of(self._provider, token)
        params = config.params or default_params(chain_id, self._decimals)
        has_bls = await self._has_bls()
        beacon = config.beacon or beacon_of(chain_id, has_bls=has_bls)
        if beacon == "DrandBeacon" and not has_bls:
            raise ConfigError(
                "this chain cannot check drand's signatures: it has no precompiles for BLS12-381",
                next_step="draw by blocks' hashes, with --beacon history",
            )
        self._plan(params, beacon, has_bls=has_bls)
        head = await self._ask(header, "eth_getBlockByNumber", "latest", False)
        prices = await ask_prices(self._provider, head, TIP)
        self._tip, self._burnt = min(prices.tip, MOST_TIP), 2 * prices.base_fee
        fee = self._burnt + self._tip
        await self._check_money(fee)
        blocks: list[int] = []
        try:
            async with asyncio.timeout(config.timeout):
                for begin, end in self._groups():
                    steps = range(begin, end)
                    sent = [await self._send(i, fee, self._tip) for i in steps]
                    mined = zip(steps, sent, strict=True)
                    blocks += [await self._mined(i, fee, tx_hash) for i, tx_hash in mined]
        except TimeoutError as error:
            raise ChainError(
                f"no block took the deployment within {config.timeout:.0f} seconds",
                next_step="check that the chain makes blocks",
            ) from error
        # No contract that is folded logs anything before the last of them is there, and the state
        # of a block in between does not answer for all.
        return Deployment(chain_id, max(blocks), self._addresses, decimals=self._decimals)

    def _groups(self) -> Iterator[tuple[int, int]]:
        """Steps that one block can hold, in order: some nodes forget what waits for a second."""
        begin, gas = 0, 0
        for place, step in enumerate(self._steps):
            if gas + step.gas > BLOCK_GAS:
                yield begin, place
                begin, gas = place, 0
            gas += step.gas
        yield begin, len(self._steps)

    async def _has_bls(self) -> bool:
        """Whether the chain has the precompiles of BLS12-381; else the call gives nothing."""
        call = {"to": _G1_ADD, "data": "0x" + bytes(256).hex()}
        try:
            return await self._ask(data, "eth_call", call, "latest") == bytes(128)
        except RpcRefused:  # a node that knows the address as taken and no such operation
            return False

    def _plan(self, params: Params, beacon: str, *, has_bls: bool) -> None:
        config, at = self._config, self._addresses
        owner = config.owner or self._sender
        if config.token is None:
            units = config.supply * 10**self._decimals
            self._create("AtollToken", self._sender, units, self._decimals)
        else:
            at["AtollToken"] = config.token
        self._create("EcdsaPolicy")
        policies = [at["EcdsaPolicy"]]
        if has_bls:
            self._create("BlsPolicy")
            policies.append(at["BlsPolicy"])
        self._create(beacon, *(config.drand.constructor() if beacon == "DrandBeacon" else ()))
        longest = config.unbonding_delay + LONGEST_MOVES
        fixed = (config.unbonding_delay, config.change_delay, longest, at[beacon])
        self._create("Config", at["AtollToken"], owner, astuple(params), *fixed, policies)
        self._create("Stakes", at["Config"])
        self._plan_judge(longest)
        # The escrow's code names the contracts that it asks, which come after it.
        asked = [self._address_in(count) for count in (3, 4, 5)]
        self._create("Jobs", at["Config"], *asked, at["Game"])
        self._create("RoundsSettlement", at["Jobs"])
        self._create("RoundsMembership", at["Jobs"])
        parts = (at["RoundsSettlement"], at["RoundsMembership"])
        self._create("Rounds", at["Jobs"], longest, *parts)
        self._create("Members", at["Stakes"], at["Jobs"])
        self._create("Audits", at["Rounds"], at["Members"], at["Jobs"])
        self._create("LateVotes", at["Rounds"], at["Members"], at["Audits"])
        struck = (at["Rounds"], at["Members"], at["Jobs"])
        self._create("DerivedStrikes", *struck)
        self._create("Strikes", *struck, at["DerivedStrikes"])
        self._create("Claims", at["Rounds"], at["Members"], at["Jobs"], at["Audits"])
        self._plan_wires()

    def _plan_judge(self, longest: int) -> None:
        at = self._addresses
        for name in FAMILIES:
            self._create(name)
        self._create("Judge", [at[name] for name in FAMILIES])
        self._create("Game", at["AtollToken"], longest, at["Judge"])

    def _plan_wires(self) -> None:
        at = self._addresses
        rounds, members, audits, late_votes, strikes = (
            at[n] for n in ("Rounds", "Members", "Audits", "LateVotes", "Strikes")
        )
        self._wire("Stakes", members, at["Jobs"])
        self._wire("Rounds", members, audits, late_votes, strikes)
        self._wire("Members", rounds, audits, late_votes, at["Claims"], strikes, at["Game"])
        self._wire("Audits", at["Game"])
        self._wire("Claims", at["Game"])
        self._wire("Game", at["Claims"])

    def _create(self, name: str, *args: Any) -> None:
        artifact = load_artifact(name)
        constructor = [item for item in artifact["abi"] if item["type"] == "constructor"]
        types = input_types(constructor[0]["inputs"]) if constructor else ()
        code = bytes.fromhex(artifact["bytecode"].removeprefix("0x"))
        made = code + abi_encode(types, args)
        # 16 a calldata byte, 2 an init code word, 200 a byte of code stored (EIP-2028, 3860, 170).
        gas = CREATE_MARGIN_GAS + len(made) * (16 + 200) + len(made) // 16
        self._addresses[name] = self._address_in(0)
        self._steps.append(_Step(f"creating {name}", None, made, gas))

    def _wire(self, name: str, *args: Address) -> None:
        function = registry().function("wire", name)
        call = function.selector + abi_encode(function.inputs, args)
        self._steps.append(_Step(f"wiring {name}", self._addresses[name], call, WIRE_GAS))

    def _address_in(self, count: int) -> Address:
        """Where a contract goes that the sender creates so many steps after the next one.

        It follows from the sender and its nonce (Yellow Paper 7).
        """
        nonce = self._first_nonce + len(self._steps) + count
        sender = bytes.fromhex(self._sender.removeprefix("0x"))
        return Address(to_checksum_address(keccak(rlp.encode([sender, nonce]))[12:]))

    async def _check_money(self, fee: int) -> None:
        cost = fee * sum(step.gas for step in self._steps)
        balance = await self._ask(quantity, "eth_getBalance", self._sender, "latest")
        if balance < cost:
            raise InsufficientFunds(
                f"{self._sender} has {balance} wei, and deploying may take {cost} wei of gas",
                next_step="send the account some native coin for gas",
            )

    async def _send(self, index: int, fee: int, tip: int) -> str:
        step, fee = self._steps[index], max(fee, self._burnt + tip)
        transaction: dict[str, Any] = {
            "type": 2,
            "chainId": self._provider.chain_id,
            "nonce": self._first_nonce + index,
            "gas": step.gas,
            "maxFeePerGas": fee,
            "maxPriorityFeePerGas": min(fee, tip),
            "value": 0,
            "data": step.data,
        }
        if step.to is not None:
            transaction["to"] = step.to
        raw = self._account.sign_transaction(transaction)
        try:
            shown = f"0x{bytes(raw.raw_transaction).hex()}"
            return await self._ask(tx_hash, "eth_sendRawTransaction", shown)
        except RpcRefused as refused:
            if refusal_of(refused) is Refusal.KNOWN:  # who took it may not have said so
                return f"0x{bytes(raw.hash).hex()}"
            floor = floor_of(refused) or 0
            if refusal_of(refused) is Refusal.UNDERPRICED and tip < floor <= MOST_TIP:
                self._tip = floor  # of the steps that follow, too
                return await self._send(index, fee, floor)
            raise TransactionFailed(f"{step.what} was refused: {refused.text}") from refused

    async def _mined(self, index: int, fee: int, sent: str) -> int:
        """The block of a step, which is bid for again, an eighth higher, while none takes it.

        A node may keep a transaction waiting for the one before, which a block took the moment that
        it came (Anvil, foundry issue 10122): only another one of its nonce is looked at anew.
        """
        step, clock, tip = self._steps[index], asyncio.get_running_loop().time, self._tip
        hashes, bid_at = [sent], clock() + BID_SECONDS
        while True:
            mined = None
            with suppress(RpcUnavailable):  # busy for a moment; the deployment's timeout bounds it
                receipts = [
                    await self._ask(receipt, "eth_getTransactionReceipt", tx_hash)
                    for tx_hash in hashes
                ]
                mined = next((each for each in receipts if each is not None), None)
            if mined is not None:
                break
            if clock() >= bid_at:
                fee, tip, bid_at = -(-fee * 9 // 8), -(-tip * 9 // 8), clock() + BID_SECONDS
                # Refused where it is mined meanwhile, or where there is no money for more.
                with suppress(RpcUnavailable, TransactionFailed):
                    hashes.append(await self._send(index, fee, tip))
            await asyncio.sleep(POLL_SECONDS)
        if mined.succeeded is False:
            raise TransactionFailed(f"{step.what} reverted (transaction {mined.tx_hash})")
        return mined.block_number

    async def _ask(self, read: Callable[[Any], T], method: str, *params: Any) -> T:
        return await self._provider.ask(method, params, read)
