"""Local names are free in the code digest, and nothing else is that a name may decide.

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
    return "@program" in text


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
        for statement, node in draw.sample(found, min(4, len(found))):
            before, kept = words(ast.unparse(statement)), getattr(node, field)
            setattr(node, field, kept + 1 if kind == "constant" else f"{kept}_")
            assert words(ast.unparse(statement)) != before, (name, kind)
            setattr(node, field, kept)
            count += 1
    assert count > 200


SAME = [
    "def f(p):\n A = p\n return A",
    "def f():\n def g(): return A\n A = 1\n return g",
    "x = [A for A in y]",
    "x = lambda y: [A + y for A in y]",
    "def f(p):\n try: p()\n except E as A: return A",
    "def f(p):\n match p:\n  case [A, *B]: return A, B",
    "def f(p):\n match p:\n  case {1: A, **B}: return A, B",
    "def f(p):\n if (A := p): return A",
    "def f(p):\n [(A := B) for B in p]\n return A",
    "class K:\n def m(self):\n  with self as A: A += 1\n  return A",
    "def f():\n A = 1\n raise E(f'{A}')",
]
"""`A` and `B` are variables of the function."""
DIFFERENT = [
    # what can be seen from outside
    ("def f(a): return a", "def f(b): return b"),
    ("def f(*a): return a", "def f(*b): return b"),
    ("f = lambda a: a", "f = lambda b: b"),
    ("a = 1", "b = 1"),
    ("class K:\n a = 1", "class K:\n b = 1"),
    ("def f():\n global a\n a = 1", "def f():\n global b\n b = 1"),
    ("def f():\n from m import a\n return a", "def f():\n from m import b\n return b"),
    ("def f():\n def a(): pass\n return a", "def f():\n def b(): pass\n return b"),
    ("def f():\n class K:\n  a = 1\n return K", "def f():\n class K:\n  b = 1\n return K"),
    ("[(a := q) for q in p]", "[(b := q) for q in p]"),
    # what can be asked for
    *[
        (f"def f():\n a = 1\n return {asks}", f"def f():\n b = 1\n return {asks}")
        for asks in ("locals()", "vars()", "dir()", "eval('a')", "sys._getframe()", "h(locals)")
    ],
    ("def f():\n a = 1\n exec('b = a')", "def f():\n b = 1\n exec('b = a')"),
    ("@jit\ndef f():\n a = 1\n return a", "@jit\ndef f():\n b = 1\n return b"),
    ("def f():\n a = 1\n return f'{a=}'", "def f():\n b = 1\n return f'{b=}'"),
    # one variable is not another
    ("def f():\n a = g()\n return a", "def f():\n a = g()\n return b"),
    ("def f():\n a = b = g()\n a = h()\n return a", "def f():\n a = b = g()\n a = h()\n return b"),
    ("def f():\n a, b = g()\n return a", "def f():\n b, a = g()\n return a"),
    ("def f():\n from m import a, b\n return a", "def f():\n from m import a, b\n return b"),
    ("def f():\n a = 1\n return [a for b in g()]", "def f():\n a = 1\n return [a for a in g()]"),
    ("def f(a):\n return [a for a in a]", "def f(a):\n return [b for b in b]"),
    ("def f():\n a = 1\n return lambda: a", "def f():\n a = 1\n return lambda a: a"),
    ("def f():\n a = 1\n return lambda b=a: b", "def f():\n a = 1\n return lambda b=b: b"),
    ("def f():\n a = 1\n def g():\n  a = 2\n g()\n return a",
     "def f():\n a = 1\n def g():\n  nonlocal a\n  a = 2\n g()\n return a"),
    ("def f():\n a = 1\n def g():\n  a = 2\n  return a\n return a",
     "def f():\n a = 1\n def g():\n  b = 2\n  return a\n return a"),
    ("def f():\n x = 0\n [(x := i) for i in r]\n return x",
     "def f():\n x = 0\n [(y := i) for i in r]\n return x"),
    ("def f():\n len = 1\n return len", "def f():\n a = 1\n return len"),
    ("class K:\n def m(self):\n  __a = 1\n  _K__a = 2\n  return __a",
     "class K:\n def m(self):\n  __a = 1\n  b = 2\n  return __a"),
    # what a class makes of a name with two underscores, wherever it stands
    ("class K:\n def m(self):\n  global __a\n  _K__a = 2",
     "class K:\n def m(self):\n  global __a\n  b = 2"),
    ("class K:\n def m(self, __a):\n  _K__a = 2\n  return __a",
     "class K:\n def m(self, __a):\n  b = 2\n  return __a"),
    ("class K:\n def m(self):\n  import q as __a\n  _K__a = 2\n  return __a",
     "class K:\n def m(self):\n  import q as __a\n  b = 2\n  return __a"),
    # `super()` without arguments looks for a variable of this name
    ("class K:\n def m(self):\n  __class__ = D\n  return lambda: super().n()",
     "class K:\n def m(self):\n  other = D\n  return lambda: super().n()"),
]  # fmt: skip


@pytest.mark.parametrize("text", SAME)
def test_a_variable_may_be_called_anything(text: str) -> None:
    one, other = (
        text.replace("A", name).replace("B", second) for name, second in (("a", "b"), ("z", "a"))
    )
    assert words(one) == words(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_a_name_may_decide_is_in_the_digest(one: str, other: str) -> None:
    assert words(one) != words(other)


@pytest.mark.parametrize(
    "word", ["f_locals", "co_varnames", "_getframe", "currentframe", "gi_frame", "import locals"]
)
def test_no_file_asks_what_anothers_variables_are_called(word: str) -> None:
    assert not [name for name in FILES if word in (PACKAGE / name).read_text()]
