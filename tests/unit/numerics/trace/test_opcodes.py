"""The operations of the code are those of the law's text, word for word."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from atoll.numerics.trace import attention, floats, integers, links, opcodes, optimisers, states
from atoll.numerics.trace.imports import READS
from atoll.numerics.trace.opcodes import Op

LAW = Path(opcodes.__file__).parents[2] / "protocol" / "SPEC-JUDGE.md"
_ROW = re.compile(r"\| ([0-9a-f]{4}) \| ([A-Z0-9_]+) \| (.+) \|")


def docstrings() -> dict[str, str]:
    """What stands under each operation, on one line."""
    (made,) = (
        node
        for node in ast.parse(Path(opcodes.__file__).read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    found, name = {}, ""
    for node in made.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        elif isinstance(node, ast.Expr) and name and isinstance(node.value, ast.Constant):
            found[name] = " ".join(str(node.value.value).split())
            name = ""
    return found


def test_the_law_has_the_table_of_the_code() -> None:
    rows = [_ROW.fullmatch(line) for line in LAW.read_text().splitlines()]
    law = [(int(row[1], 16), row[2], row[3].replace("\\|", "|")) for row in rows if row]
    texts = docstrings()
    assert law == [(op.value, op.name, texts[op.name]) for op in Op]


def test_every_operation_is_of_one_family() -> None:
    families = (READS, integers.OPERATIONS, attention.OPERATIONS, floats.OPERATIONS)
    families = (*families, optimisers.OPERATIONS, states.OPERATIONS, links.OPERATIONS)
    for number, operations in enumerate(families):
        assert set(operations) == {op for op in Op if op.family == number}
