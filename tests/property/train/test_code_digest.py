"""In every file that a replay runs, another operator is another code digest."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from atoll.train import code

PACKAGE = Path(code.__file__).parents[1]
FILES = [str(file.relative_to(PACKAGE)) for file in code.closure()]
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr, ast.MatMult: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.Not: ast.UAdd, ast.USub: ast.UAdd,
}  # fmt: skip


class OneOperator(ast.NodeTransformer):
    """Changes the n-th operator of a file, of those that are not in the words of an error."""

    def __init__(self, place: int) -> None:
        self.left = place

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if type(node) in SWAPS:
            self.left -= 1
            return SWAPS[type(node)]() if self.left == -1 else node
        return super().generic_visit(node)


def count_operators(text: str) -> int:
    counter = OneOperator(-1)
    counter.visit(ast.parse(text))
    return -1 - counter.left


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code") / "atoll"
    ignored = shutil.ignore_patterns("__pycache__", "artifacts")
    shutil.copytree(PACKAGE, folder, ignore=ignored)
    return folder


@pytest.mark.parametrize("name", [n for n in FILES if n.endswith(".py")])
def test_one_changed_operator_changes_the_digest(copied: Path, name: str) -> None:
    file, text = copied / name, (copied / name).read_text()
    count = count_operators(text)
    for place in sorted({0, count // 2, count - 1} - {-1}) if count else ():
        changed = ast.unparse(OneOperator(place).visit(ast.parse(text)))
        assert code._read(changed.encode())[1] != code._read(text.encode())[1]
    # That a file's tree is in the digest need be seen once.
    file.write_text(text + "\n_ONE_MORE = 1\n")
    try:
        assert code.digest_below(copied) != code.code_digest()
    finally:
        file.write_text(text)
