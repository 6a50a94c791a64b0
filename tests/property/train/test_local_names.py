"""In every file that a replay runs, local names are free in the code digest, and nothing else is.

The renaming here knows scopes from `symtable`, which is Python's own; the product has its own.
"""

from __future__ import annotations

import ast
import random
import symtable
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from atoll.train import code

PACKAGE = Path(code.__file__).parents[1]
FILES = [str(f.relative_to(PACKAGE)) for f in code.closure() if f.suffix == ".py"]
PLACES = {ast.Name: "id", ast.ExceptHandler: "name", ast.MatchAs: "name", ast.MatchStar: "name"}


def words(text: str) -> bytes:
    return code._read(text.encode())[1]


def tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from tables(child)


def private_names(text: str) -> set[str]:
    """Names of a file that are nothing but variables of functions, wherever they are used."""
    uses: dict[str, list[bool]] = defaultdict(list)
    for table in tables(symtable.symtable(text, "file", "exec")):
        for symbol in table.get_symbols():
            is_bound = symbol.is_local() and not symbol.is_parameter()
            named = symbol.is_imported() or symbol.is_namespace() or symbol.is_nonlocal()
            is_ours = table.get_type() == "function" and (is_bound or symbol.is_free())
            # A comprehension's first iterator is its parameter `.0`.
            uses[symbol.get_name()].append(is_ours and not named)
    return {name for name, ours in uses.items() if all(ours) and not name.startswith((".", "__"))}


def is_read_by_a_compiler(text: str) -> bool:
    """Programs of a GPU, whose compiler reads the source."""
    return "@program" in text or "triton.jit(" in text


class Rename(ast.NodeTransformer):
    def __init__(self, other: Callable[[str], str]) -> None:
        self.other = other

    def generic_visit(self, node: ast.AST) -> ast.AST:
        place = PLACES.get(type(node))
        name = getattr(node, place) if place else None
        if place and name:
            setattr(node, place, self.other(name))
        return super().generic_visit(node)


def test_other_names_of_variables_change_nothing() -> None:
    """In every file of the closure, each its own; thousands of them."""
    count = 0
    for name in FILES:
        text = (PACKAGE / name).read_text()
        if is_read_by_a_compiler(text):
            continue
        private = private_names(text)
        count += len(private)
        other = Rename(lambda n, private=private: f"zz_{n[::-1]}" if n in private else n)
        renamed = ast.unparse(other.visit(ast.parse(text)))
        if private:
            assert renamed != ast.unparse(ast.parse(text))
        compile(renamed, name, "exec")
        assert words(renamed) == words(text), name
    assert count > 1500


@pytest.mark.parametrize("name", FILES)
def test_another_variable_in_one_place_changes_the_digest(name: str) -> None:
    """Of those that are free: one of them read in place of another of its function."""
    text = (PACKAGE / name).read_text()
    private, draw = private_names(text), random.Random(name)
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
    for function in draw.sample(functions, min(4, len(functions))):
        before = words(ast.unparse(function))
        uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id in private]
        uses = [
            n for n in uses if sum(u.id == n.id for u in uses) > 1 and not _in_prose(function, n)
        ]
        names = sorted({n.id for n in uses})
        reads = [n for n in uses if isinstance(n.ctx, ast.Load)]
        for use in draw.sample(reads, min(4, len(reads))) if len(names) > 1 else ():
            kept, use.id = use.id, draw.choice([n for n in names if n != use.id])
            assert words(ast.unparse(function)) != before
            use.id = kept


def _in_prose(function: ast.AST, use: ast.AST) -> bool:
    raised = [n for n in ast.walk(function) if isinstance(n, ast.Raise) and n.exc]
    return any(use in ast.walk(node) for node in raised)


FIELDS = {
    "constant": "value",
    "attribute": "attr",
    "keyword": "arg",
    "parameter": "arg",
    "global": "id",
    "import": "name",
}
"""Where a node of each kind has what can be changed."""
Place = tuple[ast.stmt, ast.AST]
"""A statement of a file, and a node below it."""


@cache
def places(name: str) -> dict[str, list[Place]]:
    """What decides something in a file, by kind; the words of errors and prose decide nothing."""
    text = (PACKAGE / name).read_text()
    tree, private = ast.parse(text), private_names(text)
    prose = {n for r in ast.walk(tree) if isinstance(r, ast.Raise) for n in ast.walk(r)}
    prose |= {n for e in ast.walk(tree) if isinstance(e, ast.Expr) for n in [e.value]}
    within = [(s, n) for s in tree.body for n in ast.walk(s) if n not in prose]
    return {
        "constant": [p for p in within if isinstance(p[1], ast.Constant) and _is_number(p[1])],
        "attribute": [p for p in within if isinstance(p[1], ast.Attribute)],
        "keyword": [p for p in within if isinstance(p[1], ast.keyword) and p[1].arg],
        "parameter": [p for p in within if isinstance(p[1], ast.arg)],
        "global": [p for p in within if isinstance(p[1], ast.Name) and p[1].id not in private],
        "import": [p for p in within if isinstance(p[1], ast.alias) and p[1].name != "annotations"],
    }


def _is_number(node: ast.Constant) -> bool:
    return type(node.value) is int


@pytest.mark.parametrize("kind", FIELDS)
def test_anything_else_changes_the_digest(kind: str) -> None:
    """In a statement, and so in its file, whose words are those of its statements."""
    draw, count, field = random.Random(kind), 0, FIELDS[kind]
    for name in FILES:
        found = places(name)[kind]
        for statement, node in draw.sample(found, min(3, len(found))):
            before, kept = words(ast.unparse(statement)), getattr(node, field)
            setattr(node, field, kept + 1 if kind == "constant" else f"{kept}_")
            assert words(ast.unparse(statement)) != before, (name, kind)
            setattr(node, field, kept)
            count += 1
    assert count > 200
