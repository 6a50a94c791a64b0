"""Which names of a syntax tree are a function's own, so that they can be numbered.

Rule of this file: pure, and where two files come out alike they behave alike. What others can see
of a name stays as it is written: parameters, which a caller may pass by keyword; what an import, a
nested function or class is called; what is declared global or nonlocal; all of a function that may
ask for its names, as `locals()` does, and of one whose decorator may read them, as a GPU's
compiler does.

Left are names that assignments, loops, comprehensions, `with`, `except` and `match` bind. Two
trees with equal numbers have the same shape, the same kept names, and the same places for each of
the others: so the one is the other with its variables called something else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

ASKS_FOR_NAMES = frozenset(
    {"locals", "vars", "dir", "eval", "exec", "globals", "_getframe", "__class__", "gi_frame"}
)
"""What a function's names can be had by; no file of the closure has others, which a test holds."""
NEUTRAL_DECORATORS = frozenset({
    "property", "staticmethod", "classmethod", "cached_property", "cache", "lru_cache",
    "contextmanager", "abstractmethod", "field_validator", "model_validator",
})  # fmt: skip
"""Those known not to look into what they decorate."""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (*_FUNCTIONS, *_COMPREHENSIONS)


@dataclass(frozen=True, eq=False, slots=True)
class Local:
    """A variable of one scope, in place of its name."""


@dataclass(eq=False)
class _Scope:
    """What one function, lambda or comprehension binds.

    Attributes:
        around: where its free names are looked up; None where that is a module or class.
    """

    node: ast.AST
    around: _Scope | None
    own: dict[str, Local] = field(default_factory=dict)

    def bind(self, name: str) -> None:
        self.own.setdefault(name, Local())

    def find(self, name: str) -> Local | None:
        """The variable that a name means in here; None for what is no function's."""
        if name in self.own or self.around is None:
            return self.own.get(name)
        return self.around.find(name)


def mark_locals(tree: ast.AST) -> None:
    """Puts a `Local` wherever the tree has a name that nobody outside of its function sees."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _SCOPES):
            if not _may_show_names(node):
                _mark_within(node)
        else:
            mark_locals(node)


def _mark_within(outermost: ast.AST) -> None:
    """As `mark_locals`, of a function, lambda or comprehension and all that is in it."""
    scopes = dict(_scopes(outermost, None))
    kept = set(_kept(scopes))
    for node, scope in scopes.items():
        for name in _bound(node):
            if scope is None:  # a module's or class's, by `:=` in a comprehension
                kept.add(name)
            else:
                scope.bind(name)
    for node, scope in scopes.items():
        for where, name in _names(node):
            local = None if name in kept or scope is None else scope.find(name)
            if local is not None:
                setattr(node, where, local)


def _scopes(node: ast.AST, scope: _Scope | None) -> Iterator[tuple[ast.AST, _Scope | None]]:
    """Every node from this one on with the scope that it is evaluated in."""
    yield node, scope
    if isinstance(node, ast.NamedExpr):
        # Its target is bound and meant where `_home_of_walrus` says.
        yield node.target, _home_of_walrus(scope)
        yield from _scopes(node.value, scope)
        return
    inner = _Scope(node, scope) if isinstance(node, _SCOPES) else scope
    if isinstance(node, ast.arg) and scope is not None:
        inner = scope.around  # what it is annotated with
    outside = set(map(id, _evaluated_outside(node)))
    for child in ast.iter_child_nodes(node):
        parts = [child]
        if isinstance(child, ast.arguments | ast.comprehension):  # a part of it may be outside
            yield child, inner
            parts = [*ast.iter_child_nodes(child)]
        for part in parts:
            yield from _scopes(part, scope if id(part) in outside else inner)


def _evaluated_outside(node: ast.AST) -> list[ast.AST]:
    """Those parts of a function, lambda or comprehension that are evaluated around it."""
    if isinstance(node, _COMPREHENSIONS):
        return [node.generators[0].iter]
    if not isinstance(node, _FUNCTIONS):
        return []
    found: list[ast.expr | None] = [*node.args.defaults, *node.args.kw_defaults]
    if not isinstance(node, ast.Lambda):
        found.extend((*node.decorator_list, node.returns))
    return [part for part in found if part is not None]


def _bound(node: ast.AST) -> list[str]:
    """Names that a node itself binds in its scope, of those that may be numbered."""
    is_read = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    return [] if is_read else [name for _, name in _names(node)]


def _names(node: ast.AST) -> list[tuple[str, str]]:
    """Where a node has a variable's name, and which."""
    where = {
        ast.Name: "id",
        ast.ExceptHandler: "name",
        ast.MatchAs: "name",
        ast.MatchStar: "name",
        ast.MatchMapping: "rest",
    }.get(type(node))
    name = getattr(node, where) if where else None
    return [(where, name)] if where and name else []


def _home_of_walrus(scope: _Scope | None) -> _Scope | None:
    """The scope that `:=` binds in: the nearest that is no comprehension."""
    while scope is not None and isinstance(scope.node, _COMPREHENSIONS):
        scope = scope.around
    return scope


def _kept(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names that are not numbered anywhere in the function, whatever they mean."""
    for node in nodes:
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names


def _may_show_names(outermost: ast.AST) -> bool:
    """Whether something in a function may see what its variables are called.

    A class does, whose attributes they may be; and a name with two underscores, which inside a
    class is another name.
    """
    for node in ast.walk(outermost):
        # `type X = ...` has its name in the value, and parameters of types are a scope.
        is_typed = getattr(node, "type_params", None) or type(node).__name__ == "TypeAlias"
        if isinstance(node, ast.ClassDef) or is_typed:
            return True
        names = {name for _, name in _names(node)} | {getattr(node, "attr", ""), *_kept([node])}
        if names & ASKS_FOR_NAMES or any(
            name.startswith("__") and not name.endswith("__") for name in names
        ):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            _last_name(decorator) not in NEUTRAL_DECORATORS for decorator in node.decorator_list
        ):
            return True
    return False


def _last_name(decorator: ast.expr) -> str:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
