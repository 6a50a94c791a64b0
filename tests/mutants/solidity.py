"""Every small change of a contract's source that some test should notice.

Rule of this file: places come from solc's syntax tree, changes are of the text. What the compiler
refuses is no mutant, and only it knows: see `contracts.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

BINARY: Final = {
    **{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    **{"+": "-", "-": "+", "*": "+", "/": "*", "%": "/"},
    **{"&": "|", "|": "&", "^": "|", "<<": ">>", ">>": "<<", "&&": "||", "||": "&&"},
}
ASSIGNMENTS: Final = {"+=": "-=", "-=": "+=", "&=": "|=", "|=": "&=", "^=": "|="}
NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9_]+")
Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a file: the bytes from `start` to `end` become `text`."""

    file: str
    operator: str
    start: int
    end: int
    text: str

    def of(self, source: bytes) -> bytes:
        """The file with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def difference(mutant: Mutant, source: bytes) -> str:
    """The line, or lines, before and after."""
    number = source.count(b"\n", 0, mutant.start) + 1
    first = source.rfind(b"\n", 0, mutant.start) + 1
    last = source.find(b"\n", mutant.end)
    after = source[first : mutant.start] + mutant.text.encode() + source[mutant.end : last]
    place = f"contracts/{mutant.file}:{number} {mutant.operator}"
    return f"{place}\n-{source[first:last].decode()}\n+{after.decode()}"


def mutants_of(file: str, tree: Node, source: bytes) -> list[Mutant]:
    """All of a file.

    Args:
        file: its name, as the tree has it.
        tree: what solc made of `source`.
    """
    found = (_mutant(file, node, source) for node in _nodes(tree))
    return sorted((m for m in found if m), key=lambda m: (m.start, m.end))


def _nodes(tree: object) -> Iterator[Node]:
    """All but what stands for nothing at run time, or tells why a call reverts."""
    if isinstance(tree, list):
        for each in tree:
            yield from _nodes(each)
    elif isinstance(tree, dict):
        kind = tree.get("nodeType")
        if kind in {"ErrorDefinition", "EventDefinition", "ArrayTypeName", "InlineAssembly"}:
            return
        if kind is not None:
            yield tree
        excluded = {"errorCall"} if kind == "RevertStatement" else set[str]()
        for name, value in tree.items():
            if name not in excluded:
                yield from _nodes(value)


def _mutant(file: str, node: Node, source: bytes) -> Mutant | None:
    change = _CHANGES.get(node["nodeType"])
    found = change(node, source) if change else None
    return Mutant(file, *found) if found else None


Change = tuple[str, int, int, str]
"""The operator's name, from where, to where, what."""


def _place(node: Node) -> tuple[int, int]:
    start, length, _ = map(int, node["src"].split(":"))
    return start, start + length


def _between(left: Node, right: Node, source: bytes, old: str, new: str) -> tuple[int, int, str]:
    """Where an operator stands between its operands, whatever brackets are there too."""
    at = source.index(old.encode(), _place(left)[1], _place(right)[0])
    return at, at + len(old), new


def _binary(node: Node, source: bytes) -> Change | None:
    old = node["operator"]
    if old not in BINARY:
        return None
    name = "boolean" if old in {"&&", "||"} else "arithmetic"
    name = "comparison" if old[0] in "<>=!" and old not in {"<<", ">>"} else name
    left, right = node["leftExpression"], node["rightExpression"]
    return (name, *_between(left, right, source, old, BINARY[old]))


def _assignment(node: Node, source: bytes) -> Change | None:
    old = node["operator"]
    if old not in ASSIGNMENTS:
        return None
    left, right = node["leftHandSide"], node["rightHandSide"]
    return ("arithmetic", *_between(left, right, source, old, ASSIGNMENTS[old]))


def _unary(node: Node, _: bytes) -> Change | None:
    start, _end = _place(node)
    return ("boolean", start, start + 1, "") if node["operator"] == "!" else None


def _literal(node: Node, source: bytes) -> Change | None:
    start, end = _place(node)
    text = source[start:end].decode()
    if node["kind"] != "number" or not NUMBER.fullmatch(text):
        return None
    return "constant", start, end, str(int(text.replace("_", ""), 0) + 1)


def _statement(node: Node, _: bytes) -> Change:
    return ("deletion", *_place(node), "0")


def _condition(node: Node, _: bytes) -> Change | None:
    """A demand that is not made, or a branch that is not taken."""
    return None if node.get("falseBody") else ("branch", *_place(node["condition"]), "false")


def _conditional(node: Node, _: bytes) -> Change:
    return ("branch", *_place(node["condition"]), "true")


_CHANGES: Final = {
    "BinaryOperation": _binary,
    "Assignment": _assignment,
    "UnaryOperation": _unary,
    "Literal": _literal,
    "ExpressionStatement": _statement,
    "IfStatement": _condition,
    "Conditional": _conditional,
}
