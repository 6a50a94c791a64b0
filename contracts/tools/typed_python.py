"""Typed Python for the contracts' interface: events, structs, calls and views.

Rule of this file: text only, from `interface.read_interface()` alone, so that two runs give the
same bytes. What Python calls a type is written in the tables here and nowhere else; a type that
they lack stops the run, since a silent `Any` would end what mypy knows of a field.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from interface import Interface, Item

PROTOCOL: Final = "atoll.protocol"
TYPES: Final = f"{PROTOCOL}.types"
NAMED: Final[dict[tuple[str, str], str]] = {
    ("uint256", "jobId"): "JobId",
    ("uint32", "round"): "RoundIndex",
    ("uint32", "from"): "RoundIndex",
    ("uint32", "to"): "RoundIndex",
    ("uint32", "lostFrom"): "RoundIndex",
    ("uint16", "seat"): "SeatIndex",
    ("uint16", "slot"): "SlotIndex",
    ("uint32", "id"): "HolderId",
    ("uint32", "seatId"): "HolderId",
    ("uint32", "late"): "HolderId",
    ("uint256", "has"): "Bitmap",
}
"""What a name means in every contract; another name's type is said in its `@param`."""
KINDS: Final = frozenset({"Bitmap", "HolderId", "RoundIndex", "SeatIndex", "SlotIndex"})
"""Types that NatSpec may name."""
HOMES: Final[dict[str, str]] = {
    **dict.fromkeys(
        KINDS | {"Address", "Digest", "JobId", "JobStatus", "MissedDuty", "Role"}, TYPES
    ),
    **dict.fromkeys(("Terms", "Params", "Reveal", "Verdict", "RoundRecord"), TYPES),
    "Claim": f"{PROTOCOL}.games.moves",
    "GameOutcome": f"{PROTOCOL}.games.game_machine",
    "Escrow": "atoll.chain.structs",
    "RoundState": "atoll.chain.structs",
}
"""Type → the module that has it, written by hand."""
STRUCTS: Final = "call_structs"
"""The module of structs that only calls take; these are generated."""
RENAMED: Final = {"Outcome": "GameOutcome"}
EVENT_MODULES: Final[dict[str, tuple[str, ...]]] = {
    "round_events": ("Rounds",),
    "member_events": ("Members",),
    "audit_events": ("Audits", "LateVotes"),
    "job_events": ("Jobs",),
    "stake_events": ("Stakes",),
    "game_events": ("Game",),
}
CALL_MODULES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "round_calls": (
        "RoundCalls",
        ("Rounds", "Members", "Audits", "LateVotes", "Strikes", "BlsPolicy"),
    ),
    "account_calls": (
        "AccountCalls",
        ("Jobs", "Stakes", "Game", "Config", "AtollToken", "DrandBeacon"),
    ),
}
WIDTH: Final = 100
MOST_POSITIONAL: Final = 5
"""Parameters; a call with more of them takes all by name."""
QUOTE: Final = '"'
MADE: Final = "Made by contracts/tools/export_artifacts.py from the contracts; not edited by hand."


@dataclass
class Module:
    """The text of one module, and what it has to import."""

    purpose: str
    imports: dict[str, set[str]] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)

    def use(self, module: str, name: str) -> None:
        self.imports.setdefault(module, set()).add(name)

    def text(self) -> str:
        """Unsorted and unformatted: ruff does both."""
        lines = [f"from {module} import {', '.join(sorted(names))}" for module, names in
                 sorted(self.imports.items())]  # fmt: skip
        head = f'"""{self.purpose}\n\n{MADE}\n"""\n\nfrom __future__ import annotations\n'
        return "\n".join([head, *lines, "", *self.parts]) + "\n"

    def type_of(self, item: Item, doc: str, array: str = "tuple[{}, ...]") -> str:
        """The Python type of a field or parameter, which is imported."""
        inner = item["type"].partition("[")[0]
        name = _named(inner, item, doc)
        if name == STRUCTS:
            name = _struct(item)
            self.use(f"{PROTOCOL}.{STRUCTS}", name)
        elif name == "GameOutcome":
            self.use(HOMES[name], "Outcome as GameOutcome")
        elif name in HOMES:
            self.use(HOMES[name], name)
        if "[" not in item["type"]:
            return name
        if array.startswith("Sequence"):
            self.use("collections.abc", "Sequence")
        return array.format(name)


def _named(inner: str, item: Item, doc: str) -> str:
    marked = doc.partition(":")[0]
    if marked in KINDS:
        return marked
    internal = str(item.get("internalType", "")).partition("[")[0]
    if internal.startswith("enum "):
        name = internal.removeprefix("enum ")
        return _known(RENAMED.get(name, name))
    if inner == "tuple":
        name = _struct(item)
        return name if name in HOMES else STRUCTS
    plain = {"address": "Address", "bytes32": "Digest", "bytes": "bytes", "bytes8": "bytes"}
    plain |= {"string": "str", "bool": "bool"}
    if inner in plain:
        return plain[inner]
    if re.fullmatch(r"u?int\d+", inner):
        return NAMED.get((inner, item["name"].rstrip("_")), "int")
    raise SystemExit(f"no Python type is known for {inner} ({item['name']})")


def _known(name: str) -> str:
    if name not in HOMES:
        raise SystemExit(f"no Python type is known for {name}: add it to HOMES")
    return name


def _struct(item: Item) -> str:
    """`struct GameQueue.Match[]` is called Match."""
    return str(item["internalType"].partition("[")[0].removeprefix("struct ").split(".")[-1])


def snake(name: str) -> str:
    """`jobId` as `job_id`; `from`, which Python keeps for itself, as `start`."""
    spelled = re.sub(r"(?<!^)(?=[A-Z])", "_", name.rstrip("_")).lower()
    return "start" if spelled == "from" else spelled


# --- docstrings ---


def _said(doc: str) -> str:
    """What a field's text says beside its type."""
    marked, colon, rest = doc.partition(":")
    text = rest.strip() if colon and marked in KINDS else doc
    return text if not text or text.endswith((".", ":")) else f"{text}."


def _described(item: Item) -> Iterator[tuple[str, str]]:
    docs = item.get("params", {})
    for each in item["inputs"]:
        if each["name"] in docs:
            yield snake(each["name"]), _said(docs[each["name"]])


def docstring(notice: str, heading: str, rows: Iterable[tuple[str, str]], indent: str) -> str:
    """As the rest of the package writes them; empty where there is nothing to say."""
    room = WIDTH - len(indent)
    listed = list(rows)
    lines = textwrap.wrap(notice, room - 3)
    if not lines and not listed:
        return ""
    if len(lines) == 1 and len(lines[0]) + 6 > room:  # both quotes have to stand in its line
        lines = textwrap.wrap(notice, room - 6)
    if listed:
        lines += ["", f"{heading}:"]
        for name, doc in listed:
            filled = textwrap.wrap(f"{name}: {doc}", room, initial_indent="    ",
                                   subsequent_indent=" " * 8)  # fmt: skip
            lines += filled
    first = f'{indent}"""{" " if lines[0].startswith(QUOTE) else ""}{lines[0]}'
    if len(lines) == 1:
        return f'{first}{" " if first.endswith(QUOTE) else ""}"""\n'
    body = "\n".join(f"{indent}{line}".rstrip() for line in lines[1:])
    return f'{first}\n{body}\n{indent}"""\n'


# --- events and structs ---


def _dataclass(module: Module, item: Item, name: str, fields: list[Item]) -> str:
    module.use("dataclasses", "dataclass")
    docs = item.get("params", {})
    listed = _described({"params": docs, "inputs": fields})
    text = docstring(item.get("notice", ""), "Attributes", listed, "    ")
    rows = [
        f"    {snake(each['name'])}: {module.type_of(each, docs.get(each['name'], ''))}"
        for each in fields
    ]
    head = f"@dataclass(frozen=True, slots=True)\nclass {name}:\n"
    return head + text + ("\n" if text else "") + "\n".join(rows) + "\n\n"


def events(interface: Interface) -> dict[str, str]:
    """`protocol/events/`: a module for each group of contracts, and what joins them."""
    texts, groups = {}, {}
    for name, contracts in EVENT_MODULES.items():
        module = Module(f"Events of {' and '.join(contracts)}, named and ordered as in the ABI.")
        items = [item for contract in contracts for item in interface[contract]["events"]]
        for item in items:
            if not item.get("notice"):
                raise SystemExit(f"event {item['name']} has no @notice")
            module.parts.append(_dataclass(module, item, item["name"], item["inputs"]))
        groups[name] = [item["name"] for item in items]
        texts[f"{name}.py"] = module.text()
    texts["__init__.py"] = _joined(groups)
    return texts


def _joined(groups: dict[str, list[str]]) -> str:
    module = Module("What the contracts say, as data: one frozen dataclass per event.")
    names = [name for group in groups.values() for name in group]
    if len(names) != len(set(names)):
        raise SystemExit("two events have one name, and logs are told apart by it")
    for group, members in groups.items():
        for name in members:
            module.use(f"{PROTOCOL}.events.{group}", name)
    module.use("typing", "Final")
    public = sorted([*names, "EVENT_TYPES", "ContractEvent"])
    listed = "".join(f'    "{name}",\n' for name in public)
    rows = "".join(f'    "{name}": {name},\n' for name in names)
    module.parts += [
        f"__all__ = [\n{listed}]\n",
        f"ContractEvent = (\n    {' | '.join(names)}\n)",
        '"""Any event of the contracts."""\n',
        f"EVENT_TYPES: Final[dict[str, type[ContractEvent]]] = {{\n{rows}}}",
        '"""The decoding table, by the names of the ABI. `atoll.chain.decode` uses it."""',
    ]
    return module.text()


def structs(interface: Interface) -> str:
    """`protocol/call_structs.py`: structs that calls take and nothing else has."""
    module = Module("Structs that calls to the contracts take, named and ordered as in the ABI.")
    written: dict[str, str] = {}
    for parts in interface.values():
        for call in parts["calls"]:
            for item in call["inputs"]:
                _write_struct(module, item, written)
    module.parts += written.values()
    return module.text()


def _write_struct(module: Module, item: Item, written: dict[str, str]) -> None:
    """It, and before it those that it is made of."""
    if not item["type"].startswith("tuple"):
        return
    name = _struct(item)
    if name in HOMES or name in written:
        return
    for part in item["components"]:
        _write_struct(module, part, written)
    written[name] = _dataclass(module, {}, name, item["components"])
    module.imports.pop(f"{PROTOCOL}.{STRUCTS}", None)


# --- calls ---


def calls(interface: Interface) -> dict[str, str]:
    """`chain/round_calls.py` and `chain/account_calls.py`: one method a function."""
    listed = [call["name"] for parts in interface.values() for call in parts["calls"]]
    several = {name for name in listed if listed.count(name) > 1}
    return {
        f"{name}.py": _call_module(interface, title, contracts, several)
        for name, (title, contracts) in CALL_MODULES.items()
    }


def _call_module(
    interface: Interface, title: str, contracts: tuple[str, ...], several: set[str]
) -> str:
    named = f"{', '.join(contracts[:-1])} and {contracts[-1]}"
    module = Module(f"Typed calls of {named}, named as in Solidity.")
    module.use("atoll.chain.call", "Call")
    module.use("atoll.chain.call", "CallBuilder")
    body = [f"class {title}(CallBuilder):\n", '    """One method a function; it only encodes."""\n']
    for contract in contracts:
        body.append(f"    # {contract}\n")
        for call in interface[contract]["calls"]:
            body.append(_call(module, contract, call, several))
    module.parts.append("\n".join(body))
    return module.text()


def _call(module: Module, contract: str, call: Item, several: set[str]) -> str:
    names, typed = _parameters(call), _typed(module, call)
    if len(typed) > MOST_POSITIONAL:
        typed.insert(0, "*")
    # Where two contracts have a function of one name, the contract is named, too.
    method = snake(call["name"])
    if call["name"] in several:
        method = f"{contract.lower()}_{method}"
    once = ", permissionless=True" if call["caller"] == "anyone, once" else ""
    values = "".join(f", {name}" for name in names)
    text = docstring(call.get("notice", ""), "Args", _described(call), " " * 8)
    return (
        f"    def {method}({', '.join(['self', *typed])}) -> Call:\n{text}"
        f'        return self.build("{call["name"]}"{values}, contract="{contract}"{once})\n'
    )


def _parameters(function: Item) -> list[str]:
    """OpenZeppelin's and ours alike; the zero address of a mapping has no name."""
    names = [snake(item["name"]) for item in function["inputs"]]
    if not all(names):
        raise SystemExit(f"{function['name']} has a parameter without a name")
    return names


def _typed(module: Module, function: Item) -> list[str]:
    """Its parameters with their types."""
    docs = function.get("params", {})
    return [
        f"{name}: {module.type_of(item, docs.get(item['name'], ''), 'Sequence[{}]')}"
        for name, item in zip(_parameters(function), function["inputs"], strict=True)
    ]


# --- views ---


def views(interface: Interface) -> str:
    """`chain/contract_views.py`: one function a view, which says what it returns."""
    module = Module("Typed views of the contracts: what can be asked, and what the answer is.")
    module.use("atoll.chain.view", "View")
    for contract, parts in interface.items():
        for view in parts["views"]:
            module.parts.append(_view(module, contract, view))
    return module.text()


def _view(module: Module, contract: str, view: Item) -> str:
    names, typed = _parameters(view), _typed(module, view)
    before, result = "", _result(module, view)
    if len(view["outputs"]) > 1:
        result = view["name"][0].upper() + view["name"][1:].removesuffix("Of")
        fields = {"notice": f"What `{view['name']}` returns.", "params": view.get("returns", {})}
        before = _dataclass(module, fields, result, view["outputs"])
    said = view.get("notice") or _said(_first(view.get("returns", {})) if not before else "")
    text = docstring(said[:1].upper() + said[1:], "Args", _described(view), "    ")
    values = f"{names[0]}," if len(names) == 1 else ", ".join(names)
    return (
        f"{before}\ndef {snake(view['name'])}({', '.join(typed)}) -> View[{result}]:\n{text}"
        f'    return View("{contract}", "{view["name"]}", ({values}), {result})\n\n'
    )


def _result(module: Module, view: Item) -> str:
    if len(view["outputs"]) > 1:
        return ""
    return module.type_of(view["outputs"][0], _first(view.get("returns", {})))


def _first(docs: dict[str, Any]) -> str:
    return str(next(iter(docs.values()), ""))
