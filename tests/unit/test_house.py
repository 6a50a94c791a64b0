"""The drawing, the table and the lint's contract say the same about which room imports which.

And the pages of both services name every place where one may depart from them, and the
contributors' page every cheat.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from atoll_devnet.cheats.catalogue import PROVIDER_CHEATS, VERIFIER_CHEATS, WATCHER_CHEATS
from atoll_node.behaviour import ProviderBehaviour
from atoll_verifier.behaviour import VerifierBehaviour

ROOT = Path(__file__).parents[2]


def _contract(name: str) -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    found: dict[str, Any] = next(c for c in settings["contracts"] if c["name"] == name)
    return found


def _layers() -> list[set[str]]:
    return [set(row.split(" | ")) for row in _contract("imports go down")["layers"]]


def test_the_table_for_contributors_is_the_contract() -> None:
    rows = re.findall(r"^\| (`atoll.*?) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert [set(re.findall(r"`([a-z_.]+)`", row)) for row in rows] == _layers()


def test_the_drawing_is_the_contract() -> None:
    drawing = (ROOT / "docs" / "ARCHITECTURE.md").read_text().split("```")[1]
    rows = [set(re.findall(r"\batoll[._][a-z]+", line)) for line in drawing.splitlines()]
    assert [row for row in rows if row] == _layers()


def test_every_package_has_a_room() -> None:
    named = {name for row in _layers() for name in row}
    folders = {f"atoll.{p.parent.name}" for p in (ROOT / "sdk" / "atoll").glob("*/__init__.py")}
    files = {"atoll.sync", "atoll.errors", "atoll.files", "atoll.nested", "atoll.proxies"}
    assert folders | files | {"atoll_devnet", "atoll_node", "atoll_verifier"} == named


def _called_pure() -> set[str]:
    """Modules above the law whose docstring says that the file is pure; the law all is."""
    found = set()
    for top in ("sdk/atoll", "node/atoll_node", "verifier/atoll_verifier", "devnet/atoll_devnet"):
        for file in (ROOT / top).rglob("*.py"):
            if re.search(r"Rule of this file:\s+pure\b", file.read_text(encoding="utf-8")):
                parts = file.relative_to(ROOT / top).with_suffix("").parts
                found.add(".".join((top.split("/")[1], *parts)))
    return {name for name in found if not name.startswith("atoll.protocol.")}


def test_what_calls_itself_pure_is_held_to_it() -> None:
    name = "what is called pure imports no clock, process, network or database"
    listed = set(_contract(name)["source_modules"])
    functions = {"atoll.numerics.init", "atoll_node.behaviour", "atoll_verifier.behaviour"}
    assert listed - functions == _called_pure()  # of these three a part of the file's rule


def _functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for top in ("sdk", "node", "verifier", "devnet", "tests", "bench", ".ci"):
        for file in (ROOT / top).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", node


def _is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Of the `atoll` program: Typer makes an option of each parameter."""
    called = [d.func for d in function.decorator_list if isinstance(d, ast.Call)]
    return any(isinstance(f, ast.Attribute) and f.attr == "command" for f in called)


def _is_program(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Of a GPU: it is given places in memory and sizes, as a function in C is."""
    return any(ast.unparse(d) in {"program", "triton.jit"} for d in function.decorator_list)


def test_functions_are_short_and_have_few_parameters() -> None:
    long, wide = [], []
    for place, function in _functions():
        if (function.end_lineno or 0) - function.lineno >= 70:
            long.append(place)
        named = function.args
        count = [a.arg for a in (*named.posonlyargs, *named.args, *named.kwonlyargs)]
        is_free = _is_command(function) or _is_program(function)
        if len([n for n in count if n not in {"self", "cls"}]) > 6 and not is_free:
            wide.append(place)
    assert not long, "over 70 lines"
    assert not wide, "seven parameters or more"


def test_modules_are_short() -> None:
    tops = ("sdk", "node", "verifier", "devnet", "contracts/tools", "tests")
    files = [file for top in tops for file in (ROOT / top).rglob("*.py")]
    lengths = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    long = [str(file.relative_to(ROOT)) for file, length in lengths.items() if length > 500]
    assert not long, "over 500 lines"


@pytest.mark.parametrize(
    ("page", "behaviour"),
    [
        ("node/atoll_node/PROVIDER.md", ProviderBehaviour),
        ("verifier/atoll_verifier/VERIFIER.md", VerifierBehaviour),
    ],
)
def test_every_hook_of_a_behaviour_is_on_its_page(page: str, behaviour: type) -> None:
    told = (ROOT / page).read_text(encoding="utf-8").split("## Departing on purpose")[1]
    hooks = {name for name in vars(behaviour) if not name.startswith("_")}
    assert hooks <= set(re.findall(r"`(\w+)`", told))


def test_every_cheat_is_in_the_contributors_table() -> None:
    page = (ROOT / "docs" / "contributor.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`([a-z0-9-]+)`", page.split("## Cheats by name")[1]))
    assert {*PROVIDER_CHEATS, *VERIFIER_CHEATS, *WATCHER_CHEATS} <= told


EMPTY = frozenset({"done", "found", "one", "own", "past", "said", "told"})
"""Names that say nothing: each is something more exact where it stands."""
MOST_EMPTY = 161
"""It only falls: whoever takes some away writes down how many are left."""


def _bound(tree: ast.AST) -> Iterator[str]:
    """Every name that a module gives: variables, parameters, functions, classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def test_names_that_say_nothing_become_fewer() -> None:
    tops = ("sdk/atoll", "node/atoll_node", "verifier/atoll_verifier", "devnet/atoll_devnet")
    trees = [ast.parse(f.read_text()) for top in tops for f in (ROOT / top).rglob("*.py")]
    names = [name.strip("_").lower() for tree in trees for name in _bound(tree)]
    count = sum(name in EMPTY for name in names)
    assert count <= MOST_EMPTY, "give what you wrote a name that says what it is"
    assert count == MOST_EMPTY, f"fewer than before: write {count} in MOST_EMPTY"


ITEMS = re.compile(r"^( *)(?:Attributes|Args):\n((?:\1 {4}.*\n?)+)", re.MULTILINE)
"""A docstring's list of fields or parameters."""


def _run_together(names: set[str], items: str, indent: str) -> list[str]:
    """Items that stand in another one's sentence, and lines that begin as an item and are none."""
    inside = [name for name in re.findall(r"[.)] (\w+): ", items) if name in names]
    begun = re.findall(rf"^{indent} {{4}}(?! )(.*)$", items, re.MULTILINE)
    return inside + [line for line in begun if not re.match(r"[\w`., ]+: ", line)]


def test_fields_and_parameters_have_a_line_each_in_docstrings() -> None:
    """What wraps lines anew runs them together."""
    wrong = []
    for file in (
        file
        for top in ("sdk", "node", "verifier", "devnet", "tests")
        for file in (ROOT / top).rglob("*.py")
    ):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if not (lists := ITEMS.findall(ast.get_docstring(node, clean=False) or "")):
                continue
            names = {name for part in node.body for name in _bound(part)} | set(_bound(node))
            for indent, items in lists:
                spoiled = _run_together(names, items, indent)
                wrong += [f"{file.relative_to(ROOT)}, {node.name}: {item}" for item in spoiled]
    assert not wrong


def _items(doc: str, head: str) -> list[str]:
    """Names of a docstring's list under a head; `a, b: both` are two."""
    lines = doc.split("\n")
    if head not in lines:
        return []
    rest = takewhile(lambda line: not line or line.startswith(" "), lines[lines.index(head) + 1 :])
    listed = [re.match(r" {4}([*\w][\w, *]*):( |$)", line) for line in rest]
    return [name.strip(" *") for row in listed if row for name in row[1].split(",")]


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def _fields(node: ast.ClassDef) -> set[str]:
    """What a class's body gives, and what its methods set on `self`."""
    placed = {name for part in node.body for name in _bound(part)}
    return placed | {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
    }


def _documented(node: ast.AST) -> list[str]:
    """Names that a docstring lists and its class or function has not."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        doc = ast.get_docstring(node) or ""
        return [name for name in _items(doc, "Args:") if name not in _parameters(node)]
    doc = (ast.get_docstring(node) or "") if isinstance(node, ast.ClassDef) else ""
    if not isinstance(node, ast.ClassDef) or not any(head in doc for head in ("Args:", "Attrib")):
        return []
    fields = _fields(node)
    makers = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    given = _parameters(makers[0]) if makers else fields
    wrong = [name for name in _items(doc, "Attributes:") if name not in fields]
    return wrong + [name for name in _items(doc, "Args:") if name not in given]


def test_docstrings_list_fields_and_parameters_that_there_are() -> None:
    """What renames code does not rename them there."""
    wrong = [
        f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {name}"
        for top in ("sdk", "node", "verifier", "devnet", "tests", "bench", "contracts/tools")
        for file in (ROOT / top).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for name in _documented(node)
    ]
    assert not wrong


def test_every_name_in_a_row_of_an_event_is_of_an_abi() -> None:
    """contracts/EVENTS.md: its sentences come from NatSpec, which no compiler reads."""
    texts = [f.read_text() for f in (ROOT / "sdk/atoll/chain/artifacts").glob("*.json")]
    names = {name for text in texts for name in re.findall(r'"name": ?"(\w+)"', text)}
    rows = re.findall(r"^\| `.*$", (ROOT / "contracts" / "EVENTS.md").read_text(), re.MULTILINE)
    codes = [code for row in rows for code in re.findall(r"`([^`]+)`", row)]
    assert len(codes) > 80
    assert {name for code in codes for name in re.findall(r"[A-Za-z]\w*", code)} <= names


MAY_NAME = frozenset({"atoll.protocol.events", "atoll.protocol.types"})
"""What the contracts' model has in common with the product: the types of what it emits."""


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Module and name of each import; of a whole module no name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


MODEL = ROOT / "tests" / "support"


@pytest.mark.parametrize(
    "file", [*MODEL.glob("contracts/*.py"), MODEL / "identities.py"], ids=lambda file: file.stem
)
def test_the_contracts_model_takes_nothing_of_the_product(file: Path) -> None:
    """Else a fault of the law would be in both, and they would agree."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    ours = [item for item in _imported(tree) if item[0].startswith(("atoll", "tests"))]
    modules = {module if module in MAY_NAME else f"{module}.{name}" for module, name in ours}
    model = ("tests.support.identities.", "tests.support.contracts.", "tests.second_client.")
    assert {module for module in modules if not module.startswith(model)} <= MAY_NAME
