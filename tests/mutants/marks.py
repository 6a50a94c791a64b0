"""Which lines of some files a test runs, by marks that are put into their functions at the import.

A tracer is called at every line of all that runs, and doubles what the tests take; marks run where
mutants are. One stands at the head of each block, and behind each statement that has blocks.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

NAME = "__ran__"
Functions = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class _Marked:
    """A module as it was imported once: the lines of each block, and whether that has run."""

    file: str
    blocks: list[set[int]]
    ran: bytearray


class Marks(importlib.abc.MetaPathFinder):
    """Gives modules that are imported from now on their marks, until it is taken away.

    Args:
        files: relative to `root`; none of them has been imported.
    """

    def __init__(self, root: Path, files: Sequence[str]) -> None:
        self._files = {str(root / file): file for file in files}
        self._marked: list[_Marked] = []
        sys.meta_path.insert(0, self)

    def end(self) -> None:
        sys.meta_path.remove(self)

    def clear(self) -> None:
        for one in self._marked:
            one.ran[:] = bytes(len(one.ran))

    def lines(self) -> Iterator[tuple[str, int]]:
        """File and line of what ran since `clear`; some more than once."""
        for one in self._marked:
            for has_run, lines in zip(one.ran, one.blocks, strict=True):
                if has_run:
                    yield from ((one.file, line) for line in lines)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin not in self._files:
            return None
        spec.loader = _Loader(name, spec.origin, self._files[spec.origin], self._marked)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, file: str, all_marked: list[_Marked]) -> None:
        super().__init__(name, path)
        self._file, self._all_marked = file, all_marked

    def exec_module(self, module: ModuleType) -> None:
        tree = ast.parse(Path(self.path).read_text("utf-8"))
        blocks = marked(tree)
        vars(module)[NAME] = ran = bytearray(len(blocks))
        self._all_marked.append(_Marked(self._file, blocks, ran))
        exec(compile(tree, self.path, "exec", dont_inherit=True), vars(module))


def marked(tree: ast.Module) -> list[set[int]]:
    """Puts marks into every function of a tree; the lines that each of them is about."""
    blocks: list[set[int]] = []
    _enter(tree, blocks)
    return blocks


def _enter(node: ast.AST, blocks: list[set[int]]) -> None:
    """Marks the functions in what is no function."""
    for body in _bodies(node):
        for statement in body:
            if isinstance(statement, Functions):
                statement.body[:] = _with_marks(statement.body, blocks)
            else:
                _enter(statement, blocks)


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of a statement, those of its handlers and cases, too."""
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, ast.ExceptHandler | ast.match_case):
                    yield each.body


def _with_marks(body: list[ast.stmt], blocks: list[set[int]]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    current: set[int] | None = None
    for statement in body:
        if current is None and not _is_docstring(statement):
            mark = ast.parse(f"{NAME}[{len(blocks)}] = 1").body[0]
            found.append(_at(mark, statement.lineno))
            current = set()
            blocks.append(current)
        found.append(statement)
        if current is not None:
            current |= _own_lines(statement)
        for inner in list(_bodies(statement)):
            inner[:] = _with_marks(inner, blocks)
            if not isinstance(statement, Functions):
                current = None
    return found


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _at(mark: ast.stmt, line: int) -> ast.stmt:
    for node in ast.walk(mark):
        if isinstance(node, ast.stmt | ast.expr):
            node.lineno = node.end_lineno = line
    return mark


def _own_lines(statement: ast.stmt) -> set[int]:
    """But for those of its blocks."""
    inner = {line for body in _bodies(statement) for one in body for line in _lines(one)}
    return (_lines(statement) - inner) | {statement.lineno}


def _lines(statement: ast.stmt) -> set[int]:
    return set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
