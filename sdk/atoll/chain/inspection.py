"""What is at a deployment's addresses: code compared with the artefacts, wiring, parameters.

Rule of this file: which contracts there are and what they can be asked follows from the deployment
and the artefacts; none is named but the token, which a network may have brought along.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from eth_abi.abi import decode as abi_decode
from eth_utils.address import to_checksum_address

from atoll.chain import response_checks
from atoll.chain.abi import Function, load_artifact, registry
from atoll.chain.contracts import LATEST, AtollChain
from atoll.chain.deployment import DEVELOPMENT_CHAINS
from atoll.chain.drand import QUICKNET
from atoll.chain.verdicts import RpcRefused
from atoll.protocol.types import Address

ERC20: Final = "AtollToken"
DRAND: Final = "DrandBeacon"
WORD: Final = 32
_NOBODY: Final = Address("0x" + "00" * 20)
_LEAST_ADDRESS: Final = 1 << 64
"""Immutables below are numbers of seconds; an address so small belongs to nobody."""


@dataclass(frozen=True, slots=True)
class ContractCheck:
    """One contract.

    Attributes:
        code_bytes: of what is at the address.
        problems: why it is not what the artefacts say, in words; none where it is.
        note: what is worth knowing and no problem.
    """

    name: str
    address: Address
    code_bytes: int
    problems: tuple[str, ...] = ()
    note: str = ""

    def to_json_value(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "contract": self.name,
            "address": self.address,
            "code_bytes": self.code_bytes,
            "ok": not self.problems,
            "problems": list(self.problems),
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class _Code:
    """Code with zeros for its immutables, and those."""

    sha256: str
    immutables: tuple[int, ...]


async def verify_contracts(chain: AtollChain) -> list[ContractCheck]:
    """Compares every contract of the deployment with the artefacts of this version.

    Code has to be equal but for immutables. Immutables that are addresses, and views that are named
    for a contract, have to name this deployment's; the one other account that code may name is who
    deployed it, and that is one.

    Raises:
        RpcUnavailable: no endpoint answers.
    """
    addresses = chain.deployment.addresses
    names = sorted(addresses)
    codes = await asyncio.gather(*(chain.code_at(addresses[name]) for name in names))
    strangers: dict[str, set[Address]] = {}
    checks = []
    for name, code in zip(names, codes, strict=True):
        check, strangers[name] = _compared(chain, name, code)
        checks.append(check)
    often = Counter(address for stranger in strangers.values() for address in stranger).most_common(
        1
    )
    deployer = {address for address, _ in often}
    return [
        _with(check, [*_foreign(strangers[check.name] - deployer), *await _miswired(chain, check)])
        for check in checks
    ]


async def read_parameters(chain: AtollChain) -> dict[str, dict[str, Any]]:
    """What the deployment's contracts say of themselves: contract → view without arguments → value.

    Tuples, and several outputs, are objects by the names of their fields; bytes are hexadecimal,
    large numbers text.

    Raises:
        RpcUnavailable: no endpoint answers.
    """
    parameters: dict[str, dict[str, Any]] = {}
    for name in sorted(chain.deployment.addresses):
        if name not in _shipped():
            continue
        for item in load_artifact(name)["abi"]:
            if _is_plain_view(item):
                value = await _ask_view(chain, name, item)
                parameters.setdefault(name, {})[item["name"]] = value
    return parameters


def _compared(chain: AtollChain, name: str, code: bytes) -> tuple[ContractCheck, set[Address]]:
    """The check of one contract's code, and the addresses in it that are not the deployment's."""
    address = chain.deployment.addresses[name]
    plain = ContractCheck(name, address, len(code))
    if not code:
        return _with(plain, ["there is no code at its address"]), set()
    if name not in _shipped():
        return _with(plain, ["this version knows no such contract"]), set()
    wanted = load_artifact(name)["runtime"]
    places: list[int] = wanted["immutables"]
    here = _masked(code, places)
    if here.sha256 != wanted["sha256"]:
        if name == ERC20:
            return ContractCheck(name, address, len(code), note="another token than ours"), set()
        return _with(plain, ["its code is not this version's"]), set()
    named = {Address(to_checksum_address(w.to_bytes(20, "big"))) for w in _addresses(here)}
    return plain, named - set(chain.deployment.addresses.values())


def _masked(code: bytes, places: list[int]) -> _Code:
    masked, words = bytearray(code), []
    for place in places:
        words.append(int.from_bytes(code[place : place + WORD], "big"))
        masked[place : place + WORD] = bytes(len(code[place : place + WORD]))
    return _Code(hashlib.sha256(masked).hexdigest(), tuple(words))


def _addresses(code: _Code) -> list[int]:
    return [word for word in code.immutables if _LEAST_ADDRESS <= word < 1 << 160]


def _foreign(strangers: set[Address]) -> list[str]:
    return [
        f"its code names {address}, which is not of this deployment"
        for address in sorted(strangers)
    ]


async def _miswired(chain: AtollChain, check: ContractCheck) -> list[str]:
    """Views that are named for a contract of the deployment, and give another address."""
    if check.problems or check.note:
        return []
    addresses, wrong = chain.deployment.addresses, []
    known = {name.lower(): address for name, address in addresses.items()}
    known["token"] = addresses[ERC20]
    known["beacon"] = addresses[DRAND if DRAND in addresses else "HistoryBeacon"]
    for part in (name for name in addresses if _whole(name, addresses) == check.name):
        known[part.removeprefix(check.name).lower()] = addresses[part]
    # A part runs in the storage of its whole; what it names in its own, which is empty, is nothing.
    unsaid = {_NOBODY} if _whole(check.name, addresses) else set()
    for item in load_artifact(check.name)["abi"]:
        if not _is_plain_view(item) or item["name"].lower() not in known:
            continue
        if [output["type"] for output in item["outputs"]] != ["address"]:
            continue
        value = await _ask_view(chain, check.name, item)
        if value not in {known[item["name"].lower()], *unsaid}:
            wrong.append(f"its {item['name']} is {value}, not the deployment's")
    if check.name == DRAND and chain.deployment.chain_id not in DEVELOPMENT_CHAINS:
        wrong += await _of_another_drand(chain)
    return wrong


async def _of_another_drand(chain: AtollChain) -> list[str]:
    """Whoever has the secret of that key would know every draw before the others."""
    artifact = {item.get("name"): item for item in load_artifact(DRAND)["abi"]}
    wanted = {
        "key": f"0x{QUICKNET.key.hex()}",
        "genesis": QUICKNET.genesis,
        "period": QUICKNET.period,
    }
    values = {name: await _ask_view(chain, DRAND, artifact[name]) for name in wanted}
    return [f"its {name} is not quicknet's" for name in wanted if values[name] != wanted[name]]


def _whole(name: str, names: Iterable[str]) -> str | None:
    """The contract that another is a part of: the one whose name its own begins with."""
    return next((other for other in names if other != name and name.startswith(other)), None)


def _with(check: ContractCheck, problems: list[str]) -> ContractCheck:
    return ContractCheck(
        check.name, check.address, check.code_bytes, (*check.problems, *problems), check.note
    )


def _shipped() -> frozenset[str]:
    folder = resources.files("atoll.chain") / "artifacts"
    return frozenset(entry.name.removesuffix(".json") for entry in folder.iterdir())


def _is_plain_view(item: dict[str, Any]) -> bool:
    return (
        item["type"] == "function"
        and item["stateMutability"] in {"view", "pure"}
        and not item["inputs"]
        and bool(item["outputs"])
    )


async def _ask_view(chain: AtollChain, contract: str, item: dict[str, Any]) -> Any:
    """A view's value in JSON; None where the contract refuses to answer."""
    function = registry().function(item["name"], contract)
    query = {"to": chain.deployment.addresses[contract], "data": f"0x{function.selector.hex()}"}

    def read(value: Any) -> Any:
        return _plain_outputs(function, item["outputs"], response_checks.data(value))

    try:
        return await chain.provider.ask("eth_call", [query, LATEST], read)
    except RpcRefused:
        return None


def _plain_outputs(function: Function, outputs: list[dict[str, Any]], returned: bytes) -> Any:
    if not returned:
        raise ValueError(f"{function.contract} has no code that answers {function.name}")
    values = abi_decode(function.outputs, returned)
    if len(outputs) > 1:
        return _plain({"type": "tuple", "components": outputs}, values)
    return _plain(outputs[0], values[0])


def _plain(item: dict[str, Any], value: Any) -> Any:
    if item["type"] == "tuple":
        fields = zip(item["components"], value, strict=True)
        return {field["name"]: _plain(field, part) for field, part in fields}
    if item["type"] == "address":
        return to_checksum_address(value)
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1 << 53:
        return str(value)  # more than a double holds, which is what many read JSON numbers into
    return list(value) if isinstance(value, tuple) else value
