"""Every small change of a source file that some test should notice.

Rule of this file: a change stands for one mistake a person could make. What cannot change behaviour
is left alone: docstrings, messages of errors, annotations, unions of types, asserts, decorators.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
EMPTY = {"[]", "()", "{}"}
Functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class Site:
    """One possible change of a tree.

    Attributes:
        line: of the node that changes.
        operator: what kind of change, in a word.
        inside: whether it lies in a function; what lies outside is executed by the import.
        apply: makes the change in the tree that the site was found in.
    """

    line: int
    operator: str
    inside: bool
    apply: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """The `index`-th site of a file; `file` is relative to the repository."""

    file: str
    index: int
    line: int
    operator: str
    inside: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.operator}"


def mutants_of(root: Path, file: str) -> list[Mutant]:
    """All of a file, in the order of its text."""
    found = sites(ast.parse((root / file).read_text("utf-8")))
    return [Mutant(file, i, s.line, s.operator, s.inside) for i, s in enumerate(found)]


def mutated(root: Path, mutant: Mutant) -> ast.Module:
    """The tree of the mutant's file with its change."""
    tree = ast.parse((root / mutant.file).read_text("utf-8"))
    next(s for i, s in enumerate(sites(tree)) if i == mutant.index).apply()
    return ast.fix_missing_locations(tree)


def difference(root: Path, mutant: Mutant) -> str:
    """The change as a diff of what `ast` writes for the file before and after."""
    before = ast.unparse(ast.parse((root / mutant.file).read_text("utf-8"))).splitlines()
    after = ast.unparse(mutated(root, mutant)).splitlines()
    lines = difflib.unified_diff(before, after, lineterm="", n=0)
    return "\n".join(line for line in lines if line[:3] not in {"---", "+++"} and line[0] != "@")


def sites(tree: ast.Module) -> list[Site]:
    """Every change of a tree, in the order of its text."""
    found = _Finder().visit(tree, inside=False)
    return sorted(found, key=lambda site: site.line)


class _Finder:
    """Walks a tree with, for each node, how to put another in its place."""

    def visit(self, node: ast.AST, *, inside: bool) -> Iterator[Site]:
        yield from self._of(node, inside=inside)
        for name, value in ast.iter_fields(node):
            if _is_silent(node, name):
                continue
            # Defaults are no part of a function's code: they are made where it is defined.
            within = inside or (isinstance(node, Functions) and name == "body")
            children = value if isinstance(value, list) else [value]
            for position, child in enumerate(children):
                if not isinstance(child, ast.AST) or _is_text(child):
                    continue
                place = value if isinstance(value, list) else None
                yield from _replacements(node, name, place, position, child, inside=within)
                is_bound = name in {"annotation", "returns"}
                yield from _calls_in(child, self) if is_bound else self.visit(child, inside=within)

    def _of(self, node: ast.AST, *, inside: bool) -> Iterator[Site]:
        """Changes of a node itself."""
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Compare):
            for position, operator in enumerate(node.ops):
                other = COMPARISONS[type(operator)]
                change = _set_item(node.ops, position, other)
                yield Site(line, "comparison", inside, change)
        elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in ARITHMETIC:
            yield Site(line, "arithmetic", inside, _set(node, "op", ARITHMETIC[type(node.op)]))
        elif isinstance(node, ast.BoolOp):
            other_op = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield Site(line, "boolean", inside, _set(node, "op", other_op))
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield Site(line, "boolean", inside, _set_value(node, not node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            for step in (1, -1):
                yield Site(line, "constant", inside, _set_value(node, node.value + step))
        elif isinstance(node, ast.If | ast.While | ast.IfExp) and not _is_for_types(node):
            yield Site(line, "branch", inside, _negate(node))
        elif isinstance(node, ast.comprehension):
            for position, condition in enumerate(node.ifs):
                change = _put(node.ifs, position, ast.UnaryOp(ast.Not(), condition))
                yield Site(condition.lineno, "branch", inside, change)
        elif isinstance(node, ast.Return) and not _is_falsy_or_text(node.value):
            yield Site(line, "return", inside, _set(node, "value", lambda: ast.Constant(None)))


def _replacements(
    parent: ast.AST,
    field: str,
    body: list[ast.AST] | None,
    position: int,
    child: ast.AST,
    *,
    inside: bool,
) -> Iterator[Site]:
    """Changes that put something else where a child stands."""
    if isinstance(child, ast.UnaryOp) and isinstance(child.op, ast.Not):
        operand = child.operand
        change = (
            _set(parent, field, lambda: operand) if body is None else _put(body, position, operand)
        )
        yield Site(child.lineno, "boolean", inside, change)
    if body is not None and _is_deletable(child):
        yield Site(child.lineno, "deletion", inside, _put(body, position, ast.Pass()))


def _is_deletable(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return all(isinstance(t, ast.Attribute | ast.Subscript) for t in node.targets)
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    return isinstance(node, ast.AugAssign | ast.Raise | ast.Delete | ast.Break | ast.Continue)


def _is_silent(node: ast.AST, field: str) -> bool:
    """Whether a field changes nothing that a caller could see."""
    if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr):
        return True
    if isinstance(node, ast.Assign) and _is_union(node.value):
        return True
    if isinstance(node, ast.keyword) and node.arg in {"repr", "strict"}:
        return True  # what is printed, and a check of what no caller gets wrong
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return field == "decorator_list" or getattr(node, "name", "") in {"__repr__", "__str__"}
    return _is_for_types(node)


def _is_union(node: ast.AST) -> bool:
    """Whether it is `A | B` of classes: a name for annotations."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return all(_is_union(side) or _is_class(side) for side in (node.left, node.right))
    return False


def _is_class(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name[:1].isupper() and not name.isupper()


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _is_falsy_or_text(node: ast.AST | None) -> bool:
    """A return that None does as well as, or whose words only a person reads."""
    empty = isinstance(node, ast.List | ast.Tuple | ast.Dict) and not ast.unparse(node).strip(
        "[](){}"
    )
    constant = isinstance(node, ast.Constant) and not node.value
    return node is None or empty or constant or isinstance(node, ast.JoinedStr)


def _calls_in(annotation: ast.AST, finder: _Finder) -> Iterator[Site]:
    """Of an annotation only what is called in it: pydantic's bounds are law."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                yield from finder.visit(keyword.value, inside=False)


def _set(node: ast.AST, field: str, make: Callable[[], ast.AST]) -> Callable[[], None]:
    return lambda: setattr(node, field, make())


def _set_value(node: ast.Constant, value: int) -> Callable[[], None]:
    return lambda: setattr(node, "value", value)


def _set_item(items: list[ast.cmpop], position: int, make: type[ast.cmpop]) -> Callable[[], None]:
    return lambda: items.__setitem__(position, make())


def _put(items: list[ast.AST] | list[ast.expr], position: int, node: ast.AST) -> Callable[[], None]:
    return lambda: items.__setitem__(position, node)  # type: ignore[call-overload,no-any-return]


def _negate(node: ast.If | ast.While | ast.IfExp) -> Callable[[], None]:
    return lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
