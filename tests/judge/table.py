"""A chain with the judge on it, at whose table anybody may play: bonds, moves, what they cost.

Claims are whatever a player says (`ToyClaims`); judge, game and families are the network's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from eth_abi.abi import decode, encode
from eth_utils.abi import collapse_if_tuple
from eth_utils.crypto import keccak
from tests.integration.chain.local_anvil import Anvil, start_anvil, start_ganache, stop

from atoll.chain.deploy import FAMILIES
from atoll.protocol.games.calls import calldata, evidence_of
from atoll.protocol.games.game_machine import GamePhase, Outcome
from atoll.protocol.games.judge import Need, Operations
from atoll.protocol.games.moves import Claim, Move
from atoll.protocol.types import TOKEN, Digest, Wei

ARTEFACTS: Final = Path(__file__).resolve().parents[2] / "sdk" / "atoll" / "chain" / "artifacts"
TEST_ARTEFACTS: Final = Path(__file__).resolve().parent
LONGEST: Final = 10**6
SUPPLY: Final = 10**9 * TOKEN
BOND: Final = Wei(10**18)
TRANSACTION_GAS: Final = 16_000_000
"""Below EIP-7825's limit of 2²⁴."""
DEPLOY_GAS: Final = 15_000_000
HARDFORK: Final = "osaka"
CODE_LIMIT: Final = 24_576
"""Bytes of a contract (EIP-170)."""
_FAMILY: Final = "uint16,bytes,uint256,bytes[]"
_NEED: Final = keccak(f"need({_FAMILY})".encode())[:4]
_RUN: Final = keccak(f"run({_FAMILY})".encode())[:4]


class Refused(Exception):
    """A transaction that reverted."""


@dataclass(slots=True)
class Bill:
    """What the transactions of a game used: their number and gas, by side."""

    transactions: int = 0
    provider: int = 0
    challenger: int = 0
    dearest: int = 0

    def add(self, gas: int, *, by_holder: bool) -> None:
        """One more transaction."""
        self.transactions += 1
        self.dearest = max(self.dearest, gas)
        if by_holder:
            self.provider += gas
        else:
            self.challenger += gas


class Families(Operations):
    """The operations, as the contracts of a chain work them out."""

    def __init__(self, node: Anvil, places: Sequence[str]) -> None:
        self._node, self._places = node, places

    def need(self, op: int, attributes: bytes, element: int, opened: Sequence[bytes]) -> Need:
        answer = self._ask(_NEED, op, attributes, element, opened)
        return Need(*decode(["uint256", "uint256", "uint256"], answer))

    def run(self, op: int, attributes: bytes, element: int, opened: Sequence[bytes]) -> bytes:
        (output,) = decode(["bytes"], self._ask(_RUN, op, attributes, element, opened))
        return bytes(output)

    def _ask(self, selector: bytes, *arguments: object) -> bytes:
        data = selector + encode(_FAMILY.split(","), list(arguments))
        op = arguments[0]
        assert isinstance(op, int)
        call = {"to": self._places[op >> 8], "data": "0x" + data.hex(), "gas": hex(TRANSACTION_GAS)}
        try:
            return bytes.fromhex(str(self._node.ask("eth_call", call, "latest"))[2:])
        except RuntimeError as error:
            raise ValueError(str(error)) from error


class Table:
    """The contracts on a chain, a holder and a challenger who have coins and tokens."""

    def __init__(self, node: Anvil, game: str = "Game") -> None:
        self.node = node
        self.holder, self.challenger = node.ask("eth_accounts")[:2]
        self.places: dict[str, str] = {}
        families = [self._deploy(name) for name in FAMILIES]
        token = self._deploy(
            "AtollToken", ["address", "uint256", "uint8"], [self.challenger, SUPPLY, 18]
        )
        judge = self._deploy("Judge", ["address[]"], [families])
        terms = [token, LONGEST, judge]
        self._game = self._deploy(game, ["address", "uint256", "address"], terms)
        claims = self._deploy("ToyClaims")
        self._call(self.holder, self._game, "wire(address)", [claims])
        self._call(self.challenger, token, "approve(address,uint256)", [self._game, SUPPLY])
        self.operations = Families(node, families)
        self._games = 0

    @contextmanager
    def undone(self) -> Iterator[None]:
        """What happens on the chain within it has not happened after it."""
        games, before = self._games, self.node.ask("evm_snapshot")
        yield
        self.node.ask("evm_revert", before)
        self._games = games

    def code_sizes(self) -> Mapping[str, int]:
        """Bytes of each contract, by name."""
        codes = {
            name: self.node.ask("eth_getCode", at, "latest") for name, at in self.places.items()
        }
        return {name: len(code) // 2 - 1 for name, code in codes.items()}

    def challenge(self, claim: Claim) -> tuple[int, int]:
        """A new game about a claim: its number, and the gas of its challenge."""
        signature = "challenge(bytes,uint128)"
        arguments = [evidence_of(claim), int(claim.lowest_bond)]
        gas = self._call(self.challenger, self._game, signature, arguments)
        self._games += 1
        return self._games, gas

    def move(self, game: int, claim: Claim, move: Move, *, by_holder: bool) -> int:
        """Sends a move; its gas. Raises Refused where it reverts."""
        sender = self.holder if by_holder else self.challenger
        return self._send(sender, self._game, calldata(game, claim, move))

    def conclude(self, game: int) -> int:
        """Pays, after a move that decided; its gas."""
        return self._call(self.challenger, self._game, "conclude(uint256)", [game])

    def withdraw(self, account: str) -> int:
        """Sends an account what it is owed."""
        return self._call(account, self._game, "withdraw(address)", [account])

    def outcome(self, game: int) -> tuple[GamePhase, Outcome]:
        """How far a game is, as the contract has it."""
        fields = self.match(game)
        return GamePhase(fields["phase"]), Outcome(fields["outcome"])

    def match(self, game: int) -> dict[str, Any]:
        """Everything that the contract keeps of a game."""
        names, types = match_fields()
        selector = keccak(b"gameOf(uint256)")[:4]
        call = {"to": self._game, "data": "0x" + (selector + encode(["uint256"], [game])).hex()}
        answer = bytes.fromhex(str(self.node.ask("eth_call", call, "latest"))[2:])
        return dict(zip(names, decode([f"({','.join(types)})"], answer)[0], strict=True))

    def set(self, game: int, fields: Mapping[str, Any]) -> None:
        """Of a `SetGame`: how far the game is."""
        names, types = match_fields()
        kinds = f"({','.join(types)})"
        values = tuple(fields[name] for name in names)
        self._call(self.holder, self._game, f"set(uint256,{kinds})", [game, values])

    def _deploy(self, name: str, types: Sequence[str] = (), values: Sequence[object] = ()) -> str:
        data = creation_code(name) + encode(list(types), list(values))
        order = {"from": self.holder, "data": "0x" + data.hex(), "gas": hex(DEPLOY_GAS)}
        place = str(self._mined(order)["contractAddress"])
        self.places[name] = place
        return place

    def _call(self, sender: str, to: str, signature: str, values: Sequence[object]) -> int:
        data = keccak(signature.encode())[:4] + encode(_types(signature), list(values))
        return self._send(sender, to, data)

    def _send(self, sender: str, to: str, data: bytes) -> int:
        gas = hex(TRANSACTION_GAS)
        receipt = self._mined({"from": sender, "to": to, "data": "0x" + data.hex(), "gas": gas})
        return int(receipt["gasUsed"], 16)

    def _mined(self, order: Mapping[str, str]) -> dict[str, Any]:
        try:
            sent = self.node.ask("eth_sendTransaction", order)
        except RuntimeError as error:
            raise Refused(str(error)) from error
        receipt: dict[str, Any] | None = None
        while receipt is None:  # the node mines at once, but answers first
            receipt = self.node.ask("eth_getTransactionReceipt", sent)
        if receipt["status"] != "0x1":
            raise Refused(self._reason(order))
        return receipt

    def _reason(self, order: Mapping[str, str]) -> str:
        try:
            self.node.ask("eth_call", dict(order), "latest")
        except RuntimeError as error:
            return str(error)
        return "it reverted, and does not any more"


@contextmanager
def table(game: str = "Game") -> Iterator[Table]:
    """A table on a chain of its own."""
    limits = ("--gas-limit", str(10 * TRANSACTION_GAS), "--disable-code-size-limit")
    node = start_anvil(*limits, "--hardfork", HARDFORK)
    try:
        yield Table(node, game)
    finally:
        stop(node)


@contextmanager
def ganache_table() -> Iterator[Table]:
    """A table on a Ganache, which knows no opcode after Shanghai's."""
    node = start_ganache()
    try:
        yield Table(node)
    finally:
        stop(node)


def creation_code(name: str) -> bytes:
    """Of a contract of the network's, or of the tests' own."""
    found = (folder / f"{name}.json" for folder in (ARTEFACTS, TEST_ARTEFACTS))
    path = next(path for path in found if path.is_file())
    return bytes.fromhex(json.loads(path.read_text())["bytecode"][2:])


def match_fields() -> tuple[list[str], list[str]]:
    """Names and types of what the game keeps."""
    abi = json.loads((ARTEFACTS / "Game.json").read_text())["abi"]
    (entry,) = (e for e in abi if e["type"] == "function" and e["name"] == "gameOf")
    parts = entry["outputs"][0]["components"]
    return [part["name"] for part in parts], [collapse_if_tuple(part) for part in parts]


def _types(signature: str) -> list[str]:
    """Types of a signature's arguments, of which the last may be a tuple."""
    inside = signature[signature.index("(") + 1 : -1]
    if "(" not in inside:
        return [kind for kind in inside.split(",") if kind]
    first, _, rest = inside.partition("(")
    return [*(kind for kind in first.split(",") if kind), f"({rest}"]


def bonded(claim: Claim, number: int) -> Claim:
    """The claim with bond, clocks and a window that is open, on a set of its own."""
    name = Digest(keccak(b"set" + number.to_bytes(8, "big")))
    return replace(
        claim,
        set=name,
        position=name,
        window_end=1 << 62,
        lowest_bond=BOND,
        holder_seconds=10_000,
        challenger_seconds=10_000,
        move_seconds=100,
    )
