"""What the contracts say to clients, as forge left it under `out/`: events, calls and views.

Rule of this file: it reads and judges nothing. Signatures are the ABI's; what an ABI cannot say is
NatSpec's: who may call (`@custom:caller`, without which a function is between contracts and no
client's), what an event does to a job's state (`@custom:state`), units, and the type that a number
has (`@param seats Bitmap: ...`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

Item = dict[str, Any]
Interface = dict[str, dict[str, list[Item]]]

OUT: Final = Path(__file__).resolve().parent.parent / "out"
SOURCES: Final[dict[str, tuple[str, ...]]] = {
    "Rounds": ("IRoundsEvents", "IRounds", "Rounds"),
    "Members": ("IMembers", "Members"),
    "Audits": ("IAudits", "Audits"),
    "LateVotes": ("ILateVotes", "LateVotes"),
    "Strikes": ("IStrikes", "Strikes"),
    "Jobs": ("IJobs", "IOwners", "Jobs"),
    "Stakes": ("IStakes", "Stakes"),
    "Game": ("GameQueue", "Game"),
    "BlsPolicy": ("IBlsKeys", "BlsPolicy"),
    "DrandBeacon": ("IDrandBeacon", "DrandBeacon"),
    "Config": ("IConfig", "Config"),
    "AtollToken": ("AtollToken",),
}
"""Contract → where its signatures are read: what implements an interface may leave names out."""
INHERITED: Final[dict[str, dict[str, str]]] = {
    "Config": {
        "transferOwnership": "the network's owner",
        "acceptOwnership": "the proposed owner",
        "pendingOwner": "anyone",
    },
    "AtollToken": {
        "approve": "the account",
        "transfer": "the account",
        "balanceOf": "anyone",
        "allowance": "anyone",
    },
}
"""Who may call what comes from OpenZeppelin, where no tag of ours can stand."""
SILENT: Final = frozenset({"BlsPolicy", "Config", "AtollToken"})
"""Whose events no client follows: what they say is read with a view where it is needed."""

NEVER_EMITTED: Final = frozenset({"EIP712DomainChanged"})
"""Of EIP-5267's interface: a domain of ours changes with its chain alone, and says nothing then."""


def read_interface() -> Interface:
    """Contract → its events, its calls and its views, in the order of the sources."""
    return {name: _of(name, sources) for name, sources in SOURCES.items()}


def _of(contract: str, sources: tuple[str, ...]) -> dict[str, list[Item]]:
    events: dict[str, Item] = {}
    functions: dict[str, Item] = {}
    artifacts = [_artifact(source) for source in sources]
    order = [name for artifact in artifacts for name in _declared(artifact["ast"])]
    for artifact in artifacts:
        for item in _described(artifact):
            signature = _signature(item)
            if item["name"] in NEVER_EMITTED:
                continue
            if item["type"] == "event":
                events.setdefault(signature, item)
            elif item["type"] == "function":
                functions.setdefault(signature, item)
    rank = {name: order.index(name) for name in order}
    for item in functions.values():
        item["caller"] = item.get("caller") or INHERITED.get(contract, {}).get(item["name"])
    public = [item for item in _ranked(functions, rank) if item["caller"]]
    return {
        "events": [] if contract in SILENT else [_kept(item) for item in _ranked(events, rank)],
        "calls": [_kept(item) for item in public if item["stateMutability"] == "nonpayable"],
        "views": [_kept(item) for item in public if item["stateMutability"] in {"view", "pure"}],
    }


def _ranked(items: dict[str, Item], rank: dict[str, int]) -> list[Item]:
    """In the order of the sources, since an ABI is sorted by name; what is inherited last."""
    return sorted(items.values(), key=lambda item: rank.get(item["name"], len(rank)))


def _artifact(source: str) -> Item:
    (path,) = OUT.glob(f"*/{source}.json")
    found: Item = json.loads(path.read_text())
    return found


def _described(artifact: Item) -> list[Item]:
    """The ABI's items, each with what NatSpec says of it."""
    # Whole: what forge parses of it lacks events and tags of our own.
    output = json.loads(artifact["rawMetadata"])["output"]
    items = [item for item in artifact["abi"] if item["type"] in {"event", "function"}]
    return [item | _natspec(output, item) for item in items]


def _natspec(output: Item, item: Item) -> Item:
    """What the source says of an item, a public variable's getter among them."""
    said: Item = {}
    for docs in (output["userdoc"], output["devdoc"]):
        if item["type"] == "function":
            said |= _docs(docs.get("stateVariables", {}).get(item["name"], {}))
        group = docs.get("events" if item["type"] == "event" else "methods", {})
        said |= _docs(group.get(_signature(item), {}))
    return said


def _docs(docs: Item) -> Item:
    """NatSpec's fields under the names that the rest of the generator uses."""
    names = {"custom:caller": "caller", "custom:state": "state", "details": "dev"}
    kept = ("notice", "params", "returns", *names)
    return {names.get(key, key): docs[key] for key in kept if key in docs}


def _declared(tree: Item) -> list[str]:
    """Names of a file's declarations."""
    return [
        node["name"]
        for unit in tree["nodes"]
        for node in unit.get("nodes", [])
        if node["nodeType"] in {"EventDefinition", "FunctionDefinition", "VariableDeclaration"}
    ]


def _signature(item: Item) -> str:
    return f"{item['name']}({','.join(_spelled(field) for field in item['inputs'])})"


def _spelled(field: Item) -> str:
    if not field["type"].startswith("tuple"):
        return str(field["type"])
    inner = ",".join(_spelled(part) for part in field["components"])
    return f"({inner}){field['type'].removeprefix('tuple')}"


def _kept(item: Item) -> Item:
    """What the generators read of an item; what is empty is left out."""
    names = ("name", "inputs", "outputs", "notice", "dev", "params", "returns", "caller", "state")
    return {name: item[name] for name in names if item.get(name)} | {"inputs": item["inputs"]}
