"""The contracts' interfaces, read from the generated artefacts and merged.

Rule of this file: which contract has which function is looked up here and written nowhere else, so
moving a function between contracts changes no Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, cast

from eth_utils.abi import (
    abi_to_signature,
    collapse_if_tuple,
    event_abi_to_log_topic,
    function_signature_to_4byte_selector,
)

from atoll.errors import ChainError
from atoll.nested import loads

ENTRY_CONTRACTS = (
    "Rounds",
    "Members",
    "Audits",
    "LateVotes",
    "Strikes",
    "Jobs",
    "Stakes",
    "Config",
    "AtollToken",
    "EcdsaPolicy",
    "BlsPolicy",
    "DrandBeacon",
)
"""Contracts that are called directly; of others (the game, the claims) the caller names which."""


@dataclass(frozen=True, slots=True)
class Function:
    """One function of one contract; types as eth-abi spells them."""

    contract: str
    name: str
    selector: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EventAbi:
    """One event: its fields in ABI order, and which of them are indexed."""

    name: str
    topic: bytes
    fields: tuple[str, ...]
    types: tuple[str, ...]
    indexed: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class ErrorAbi:
    name: str
    selector: bytes
    fields: tuple[str, ...]
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Registry:
    """Everything the contracts can be asked, can say and can refuse with."""

    functions: dict[tuple[str, str], Function]
    events: dict[bytes, EventAbi]
    errors: dict[bytes, ErrorAbi]

    def function(self, name: str, contract: str | None = None) -> Function:
        """Finds a function by its Solidity name.

        Args:
            contract: which contract's, where several have a function of this name.
        Raises:
            ChainError: no entry contract has it (the artefacts are of another version), or several.
        """
        candidates = (contract,) if contract else ENTRY_CONTRACTS
        found = [self.functions[c, name] for c in candidates if (c, name) in self.functions]
        if not found:
            raise ChainError(f"no contract has a function {name}: another version's artefacts")
        if len(found) > 1:
            names = ", ".join(function.contract for function in found)
            raise ChainError(f"several contracts have a function {name} ({names}): name one")
        return found[0]


def load_artifact(name: str) -> dict[str, Any]:
    """The artefact of one contract: `abi` and `bytecode`.

    Raises:
        ChainError: the package ships no such contract.
    """
    path = resources.files("atoll.chain") / "artifacts" / f"{name}.json"
    try:
        return cast(dict[str, Any], loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise ChainError(f"the package ships no contract {name}") from error


@cache
def registry() -> Registry:
    """The merged interfaces of every shipped contract."""
    folder = resources.files("atoll.chain") / "artifacts"
    names = sorted(entry.name.removesuffix(".json") for entry in folder.iterdir())
    functions: dict[tuple[str, str], Function] = {}
    events: dict[bytes, EventAbi] = {}
    errors: dict[bytes, ErrorAbi] = {}
    for name in names:
        for item in load_artifact(name)["abi"]:
            if item["type"] == "function":
                functions[(name, item["name"])] = _function(name, item)
            elif item["type"] == "event":
                event = _event(item)
                events[event.topic] = event
            elif item["type"] == "error":
                error = _error(item)
                errors[error.selector] = error
    return Registry(functions, events, errors)


def input_types(items: list[dict[str, Any]]) -> tuple[str, ...]:
    """eth-abi's spelling of a parameter list, tuples written out."""
    return tuple(collapse_if_tuple(item) for item in items)


def _function(contract: str, item: dict[str, Any]) -> Function:
    selector = bytes(function_signature_to_4byte_selector(abi_to_signature(cast(Any, item))))
    outputs = input_types(item["outputs"])
    return Function(contract, item["name"], selector, input_types(item["inputs"]), outputs)


def _event(item: dict[str, Any]) -> EventAbi:
    inputs = item["inputs"]
    return EventAbi(
        name=item["name"],
        topic=bytes(event_abi_to_log_topic(cast(Any, item))),
        fields=tuple(field["name"] for field in inputs),
        types=input_types(inputs),
        indexed=tuple(field["indexed"] for field in inputs),
    )


def _error(item: dict[str, Any]) -> ErrorAbi:
    types = input_types(item["inputs"])
    selector = function_signature_to_4byte_selector(f"{item['name']}({','.join(types)})")
    return ErrorAbi(
        item["name"], bytes(selector), tuple(field["name"] for field in item["inputs"]), types
    )
