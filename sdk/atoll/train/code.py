"""Which code a replay and a merge run: one digest over all that decides a bit. Needs no torch.

The files are the import closure of `ROOTS`, computed and not listed: a list that is kept by hand
forgets, and a provider would lose its bond over what it forgot. What is hashed of each file is its
syntax tree without docstrings, comments, layout and the words of errors, and with a number for each
variable that a function has to itself, so that prose and such names are free and the digest is the
same for every Python that runs us.

The closure stops at `EXCLUDED`, where bytes come from. A file is what its CID names, in a format
of others' which their tools read as well; and tokens, models and frozen weights are held against
roots of the manifest and the chain after they were read. So a store can be mended, or be another
one, and everybody's jobs still take the version.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from atoll.protocol.types import Digest
from atoll.train.local_names import Local, mark_locals

PACKAGE = "atoll"
ROOTS = (
    "atoll.train.initial_model",
    "atoll.train.replay",
    "atoll.aggregation.merge_round",
    "atoll.train.evaluate",
)
"""What makes round 0's model, a seat's round (whoever trains it runs the same), the next global
model and its held-out loss, from the bytes in a store on."""
EXCLUDED = ("atoll.storage", "atoll.files")
"""Packages and modules whose files are not hashed, and not followed."""
_HERE = Path(__file__).parents[1]
_NOT_HASHED = frozenset({"kind", "type_comment", "ctx", "is_lazy"})
"""Fields of syntax trees that decide nothing, or are not there before Python 3.15 (`is_lazy`, of
imports)."""
_FILES_KEPT = 256
_C_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|/\*.*?\*/|//[^\n]*', re.DOTALL)
_C_SPACE = re.compile(r'("(?:\\.|[^"\\])*")|\s+')


@lru_cache(maxsize=1)
def code_digest() -> Digest:
    """SHA-256 over the name and the normalised content's SHA-256 of every file of the closure."""
    return digest_below(_HERE)


def digest_below(root: Path) -> Digest:
    """As `code_digest`, of the package `atoll` whose folder is `root`."""
    lines = []
    for file in closure(root):
        content = file.read_bytes()
        normalised = _normal_c(content) if file.suffix == ".c" else _read(content)[1]
        lines.append(f"{file.relative_to(root).as_posix()} {sha256(normalised).hexdigest()}\n")
    return Digest(sha256("".join(lines).encode()).digest())


def closure(root: Path = _HERE) -> list[Path]:
    """Every file below `root` that importing `ROOTS` executes, and the C beside it; ascending."""
    found: set[Path] = set()
    waiting, asked = list(ROOTS), set[str]()
    while waiting:
        module = waiting.pop()
        if module in asked:
            continue
        asked.add(module)
        for file in _files_of(module, root):
            if file not in found:
                found.add(file)
                waiting.extend(_read(file.read_bytes())[0])
    found.update(source for folder in {f.parent for f in found} for source in folder.glob("*.c"))
    return sorted(found)


def _files_of(module: str, root: Path) -> Iterator[Path]:
    """A module's file and those of the packages around it; nothing for what is not followed.

    `from a import b` is asked for as `a.b`, which may name something inside `a`. The outermost
    package is excluded: it says what a submitter may import, and decides nothing.
    """
    package, *names = module.split(".")
    place = root
    is_ours = package == PACKAGE and ".".join((package, *names[:1])) not in EXCLUDED
    for name in names if is_ours else ():
        if place != root and (place / "__init__.py").is_file():
            yield place / "__init__.py"
        if (place / f"{name}.py").is_file():
            yield place / f"{name}.py"
            return
        place /= name
    if place != root and (place / "__init__.py").is_file():
        yield place / "__init__.py"


@lru_cache(maxsize=_FILES_KEPT)
def _read(content: bytes) -> tuple[tuple[str, ...], bytes]:
    """What a file imports, and its normalised syntax tree."""
    tree = ast.parse(content)
    imported: list[str] = []
    _add_imports(tree, imported)
    mark_locals(tree)
    words: list[str] = []
    _add_words(tree, words, {})
    return tuple(imported), "\n".join(words).encode()


def _add_imports(tree: ast.AST, found: list[str]) -> None:
    """Modules that a file imports anywhere, but for those that only a type checker sees."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"line {node.lineno}: relative imports are not followed")
            found.extend(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            _add_imports(ast.Module(node.orelse, []), found)
        elif not isinstance(node, ast.expr):  # none has a statement in it
            _add_imports(node, found)


def _add_words(node: object, words: list[str], numbers: dict[Local, int]) -> None:
    """The tree as words, in an order of its own; a function's variables as they come in it.

    Not `ast.dump`: which empty fields that writes differs between versions of Python. Fields that a
    later version adds are excluded while they are empty; one that is 0 then is named above.
    """
    if isinstance(node, list):
        for item in node:
            _add_words(item, words, numbers)
    elif isinstance(node, Local):
        words.append(f"local {numbers.setdefault(node, len(numbers))}")
    elif not isinstance(node, ast.AST):
        words.append(f"{type(node).__name__} {node!r}")
    elif not _is_prose(node):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            # Which error is raised matters, its words do not.
            node = ast.Raise(node.exc.func)
        if isinstance(node, ast.JoinedStr):
            # Python 3.12.1 has an empty text after a value that is nested in another's format.
            texts = [part for part in node.values if getattr(part, "value", None) != ""]
            node = ast.JoinedStr(texts)
        words.append(f"({type(node).__name__}")
        for name in sorted(node._fields):
            value = getattr(node, name, None)
            is_none = value is None and not isinstance(node, ast.Constant)
            if not is_none and value != [] and name not in _NOT_HASHED:
                words.append(name)
                _add_words(value, words, numbers)
        words.append(")")


def _is_prose(node: ast.AST) -> bool:
    """A docstring, of whatever: a string that nobody uses."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


@lru_cache(maxsize=_FILES_KEPT)
def _normal_c(content: bytes) -> bytes:
    """Without comments, and with one space, or one line's end, wherever there is any."""
    bare = _C_COMMENT.sub(lambda found: found[1] or " ", content.decode())
    return _C_SPACE.sub(_c_space, bare).strip().encode()


def _c_space(found: re.Match[str]) -> str:
    """Lines' ends matter to the preprocessor; strings stay as they are."""
    return found[1] or ("\n" if "\n" in found[0] else " ")
