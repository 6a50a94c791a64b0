"""The contracts on a node, as tests call them one transaction at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import rlp
from eth_abi.abi import decode, encode
from eth_utils.abi import collapse_if_tuple, event_abi_to_log_topic
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from tests.integration.chain.local_anvil import Anvil
from tests.support.identities import address
from tests.unit.protocol.script import SECRETS

from atoll.chain.abi import load_artifact
from atoll.chain.decode import from_abi, to_abi
from atoll.protocol.events import EVENT_TYPES, ContractEvent
from atoll.protocol.typed_data import enrolment
from atoll.protocol.types import (
    TOKEN,
    Address,
    Digest,
    Params,
)

LONGEST_GAME = 20_000
SUBMITTER = address("submitter")
PARAMS = Params(100, 3_000, 1, 1, 1, TOKEN, TOKEN)
START = 1_000_000


class Reverted(Exception):
    """A contract refused a transaction."""


@dataclass(frozen=True, slots=True)
class Contract:
    """One deployed contract and its interface."""

    address: Address
    abi: list[dict[str, Any]]

    def calldata(self, name: str, *arguments: Any) -> bytes:
        item = next(i for i in self.abi if i["type"] == "function" and i["name"] == name)
        types = [collapse_if_tuple(i) for i in item["inputs"]]
        selector = keccak(f"{name}({','.join(types)})".encode())[:4]
        return selector + encode(types, [to_abi(value) for value in arguments])


class Chain:
    """All contracts of the fourth design on a node whose accounts need no keys."""

    def __init__(self, anvil: Anvil, policy: str = "EcdsaPolicy") -> None:
        newest = anvil.ask("eth_getBlockByNumber", "latest", False)
        self.anvil, self.now = anvil, int(newest["timestamp"], 16) + 1
        self.events: dict[bytes, dict[str, Any]] = {}
        self.receipt: dict[str, Any] = {}
        owner = SUBMITTER
        self.rich(owner)
        token = self.deploy("AtollToken", owner, 10**9 * TOKEN, 18)
        self.token, self.policy = token, self.deploy(policy)
        delays, policies = (7 * 86_400, 2 * 86_400, LONGEST_GAME), [self.policy.address]
        fixed = (*delays, self.deploy("HistoryBeacon").address)
        config = self.deploy("Config", token.address, owner, PARAMS, *fixed, policies)
        self.config = config
        self.stakes = self.deploy("Stakes", config.address)
        judge = self.deploy("Judge", [])
        game = self.deploy("Game", token.address, LONGEST_GAME, judge.address)
        self.game = game
        asked = [self.next_address(count) for count in (3, 4, 5)]
        self.jobs = self.deploy("Jobs", config.address, *asked, game.address)
        jobs = self.jobs.address
        parts = [self.deploy(f"Rounds{part}", jobs) for part in ("Settlement", "Membership")]
        behind = [part.address for part in parts]
        made = self.deploy("Rounds", jobs, LONGEST_GAME, *behind)
        self.rounds = Contract(made.address, [item for c in (made, *parts) for item in c.abi])
        self.members = self.deploy("Members", self.stakes.address, jobs)
        rounds, members = self.rounds.address, self.members.address
        self.audits = self.deploy("Audits", rounds, members, jobs)
        audits = self.audits.address
        self.late_votes = self.deploy("LateVotes", rounds, members, audits)
        late_votes = self.late_votes.address
        derived = self.deploy("DerivedStrikes", rounds, members, jobs).address
        self.strikes = self.deploy("Strikes", rounds, members, jobs, derived)
        strikes = self.strikes.address
        claims = self.claims = self.deploy("Claims", rounds, members, jobs, audits)
        for contract, others in (
            (self.stakes, (members, jobs)),
            (self.rounds, (members, audits, late_votes, strikes)),
            (self.members, (rounds, audits, late_votes, claims.address, strikes, game.address)),
            (self.audits, (game.address,)),
            (claims, (game.address,)),
            (game, (claims.address,)),
        ):
            self.send(owner, contract, "wire", *others)

    def enrolment(self, account: Address, job: int, slot: int, bond: int) -> bytes:
        """What an account shows to take a slot."""
        chain_id = int(self.anvil.ask("eth_chainId"), 16)
        where = (chain_id, self.members.address, job, slot)
        return signature(account, enrolment(*where, bond=bond, account=account).digest)

    def next_address(self, count: int) -> Address:
        """Where the contract goes that is created so many contracts after the next one."""
        nonce = int(self.anvil.ask("eth_getTransactionCount", SUBMITTER, "latest"), 16) + count
        sender = bytes.fromhex(SUBMITTER.removeprefix("0x"))
        return Address(to_checksum_address(keccak(rlp.encode([sender, nonce]))[12:]))

    def rich(self, account: Address) -> None:
        self.anvil.ask("anvil_setBalance", account, hex(10**24))

    def deploy(self, name: str, *arguments: Any) -> Contract:
        built = load_artifact(name)
        abi, bytecode = built["abi"], built["bytecode"]
        made = next((i for i in abi if i["type"] == "constructor"), {"inputs": []})
        types = [collapse_if_tuple(i) for i in made["inputs"]]
        data = bytecode + encode(types, [to_abi(value) for value in arguments]).hex()
        receipt = self.transact({"from": SUBMITTER, "data": data})
        for item in abi:
            if item["type"] == "event":
                self.events[bytes(event_abi_to_log_topic(cast(Any, item)))] = item
        return Contract(Address(to_checksum_address(receipt["contractAddress"])), abi)

    def transact(self, call: dict[str, Any]) -> dict[str, Any]:
        """Mined alone, at `now`. Raises Reverted; the block is mined all the same."""
        self.anvil.ask("evm_setNextBlockTimestamp", self.now)
        sent = self.anvil.ask("eth_sendTransaction", {"gas": hex(16_000_000), **call})
        found = None
        while found is None:
            found = self.anvil.ask("eth_getTransactionReceipt", sent)
        self.receipt = found
        self.now += 1
        if int(self.receipt["status"], 16) != 1:
            raise Reverted(call.get("what"))
        return self.receipt

    def send(self, sender: Address, contract: Contract, name: str, *arguments: Any) -> None:
        data = "0x" + contract.calldata(name, *arguments).hex()
        self.transact({"from": sender, "to": contract.address, "data": data})

    def said(self) -> list[ContractEvent]:
        """Atoll's events of the last transaction."""
        found = []
        for log in self.receipt["logs"]:
            item = self.events.get(bytes.fromhex(log["topics"][0][2:]))
            if item is not None and item["name"] in EVENT_TYPES:
                values = _values(item["inputs"], log)
                found.append(from_abi(EVENT_TYPES[item["name"]], values))
        return found

    def block(self) -> dict[str, Any]:
        """Of the last transaction."""
        found: dict[str, Any] = self.anvil.ask(
            "eth_getBlockByHash", self.receipt["blockHash"], False
        )
        return found

    def call(self, contract: Contract, name: str, *arguments: Any) -> tuple[Any, ...]:
        item = next(i for i in contract.abi if i["type"] == "function" and i["name"] == name)
        data = "0x" + contract.calldata(name, *arguments).hex()
        answer = self.anvil.ask("eth_call", {"to": contract.address, "data": data}, "latest")
        types = [collapse_if_tuple(i) for i in item["outputs"]]
        return tuple(decode(types, bytes.fromhex(answer[2:])))


def _values(inputs: list[dict[str, Any]], log: dict[str, Any]) -> tuple[Any, ...]:
    plain = [collapse_if_tuple(i) for i in inputs if not i["indexed"]]
    data = iter(decode(plain, bytes.fromhex(log["data"][2:])))
    topics = iter(bytes.fromhex(topic[2:]) for topic in log["topics"][1:])
    return tuple(
        decode([i["type"]], next(topics))[0] if i["indexed"] else next(data) for i in inputs
    )


def signature(account: Address, message: Digest) -> bytes:
    """A member's, of 32 bytes as they are."""
    raw = SECRETS[account].sign_recoverable(message, hasher=None)
    return raw[:64] + bytes([raw[64] + 27])
