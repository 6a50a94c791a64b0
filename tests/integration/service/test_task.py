"""Handles of the worker's functions: each names one function, whose types are the handle's."""

from __future__ import annotations

import ast
import importlib
import pickle
import pkgutil
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from inspect import get_annotations, signature
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from tests.integration.service import worker_tasks
from tests.vectors import generate_tags

import atoll
import atoll_devnet
import atoll_node
import atoll_verifier
from atoll.errors import ConfigError
from atoll.protocol.types import Digest, Verdict
from atoll.service import task as tasks
from atoll.service.duties.merge import MERGE_ROUND
from atoll.service.task import Task, declared

PACKAGES = ("atoll.", "atoll_node.", "atoll_verifier.", "atoll_devnet.")


class Declared(NamedTuple):
    """A handle where it is written down: a module, or a class of one."""

    module: ModuleType
    holder: Any
    name: str
    task: Task[..., Any]

    @property
    def hints(self) -> Any:
        """The handle's `Task[[...], ...]`. What only type checkers import, the function's module
        has.
        """
        where = importlib.import_module(self.task.module)
        known = {"Task": Task, **vars(where), **vars(self.module)}
        annotation = {"annotation": get_annotations(self.holder)[self.name]}
        holder = type("Holder", (), {"__annotations__": annotation})
        hint = typing.get_type_hints(holder, globalns=known)["annotation"]
        if typing.get_origin(hint) is typing.Final:
            (hint,) = typing.get_args(hint)
        (found,) = [h for h in (hint, *typing.get_args(hint)) if typing.get_origin(h) is Task]
        return found


def handles() -> list[Declared]:
    """Wherever the product writes one down: modules' constants, and behaviours' attributes."""
    generate_tags.load_all()
    for module in pkgutil.walk_packages(atoll_devnet.__path__, "atoll_devnet."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith(PACKAGES)]
    return [
        Declared(module, holder, name, value)
        for module in modules
        for holder in (module, *_classes(module))
        for name, value in list(vars(holder).items())
        if isinstance(value, Task) and name in get_annotations(holder)
    ]


def _classes(module: ModuleType) -> Iterator[type]:
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield value


def ours() -> list[Task[..., Any]]:
    return [task for task in declared().values() if task.module.startswith(PACKAGES)]


def test_every_handle_is_a_function_of_its_types() -> None:
    found = handles()
    assert {handle.task for handle in found} == set(ours())
    assert MERGE_ROUND in ours()
    for handle in found:
        *arguments, result = _flat(handle.hints)
        function = handle.task.resolve()
        hints = typing.get_type_hints(function)
        assert callable(function)
        assert function.__module__ == handle.task.module
        said = [hints[name] for name in signature(function).parameters]
        assert (said, hints["return"]) == (arguments, result), handle.name


def _flat(hint: Any) -> list[Any]:
    arguments, result = typing.get_args(hint)
    return [*arguments, result]


def test_no_handle_says_any() -> None:
    """A result that may be anything is checked nowhere."""
    lax = [h.name for h in handles() if "typing.Any" in re.split(r"[\[\], |]+", str(h.hints))]
    assert lax == []


def test_two_handles_never_are_one_function() -> None:
    """Else a fault of one is a fault of the other: what a cheat runs would be honest work."""
    functions = [task.resolve() for task in ours()]
    assert len(functions) == len(set(functions))


def test_no_module_has_what_it_runs_in_words() -> None:
    """The command line's own parts alone are named so, which start in its process."""
    packages = (atoll, atoll_node, atoll_verifier, atoll_devnet)
    roots = [Path(package.__path__[0]) for package in packages]
    named = [
        (str(path), node.value)
        for root in roots
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"[\w.]*:[a-z_]\w*", node.value)
        and node.value.split(":")[0].startswith(tuple(p.rstrip(".") for p in PACKAGES))
    ]
    assert [found for found in named if not found[1].startswith("atoll.cli.")] == []


def test_whoever_gives_work_needs_no_torch() -> None:
    """A service's own process would have half a gigabyte of it, and seconds of start, for nothing:
    its worker has it.
    """
    modules = sorted({handle.module.__name__ for handle in handles()})
    program = "\n".join(
        [
            *(f"import {module}" for module in modules),
            "import sys",
            "from atoll.service.task import declared",
            "from atoll.service.duties.material import CHECK_MACHINE",
            "CHECK_MACHINE(b'')",
            "assert 'torch' not in sys.modules",
            "print(*declared())",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == [task.kind for task in ours()]


# --- one handle ---


def test_work_crosses_to_a_process_as_its_tag_and_its_arguments() -> None:
    call = worker_tasks.ADD(2, 3)
    assert call() == 5
    sent = pickle.dumps(call)
    assert b"test-add.v1" in sent
    crossed = pickle.loads(sent)
    assert crossed == call
    assert crossed() == 5


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets the handles and functions of a test."""
    monkeypatch.setattr(tasks, "_declared", dict(tasks._declared))
    monkeypatch.setattr(tasks, "_functions", dict(tasks._functions))


@pytest.mark.usefixtures("registries")
def test_a_function_that_is_called_otherwise_does_the_same_work() -> None:
    handle: Task[[int], int] = Task("test-twice.v1", __name__)

    @handle.runs
    def whatever_it_is_called(number: int) -> int:
        return 2 * number

    assert pickle.loads(pickle.dumps(handle(21)))() == 42


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("module", ["no.such.module", __name__])
def test_work_that_nothing_runs_is_a_config_error(module: str) -> None:
    handle: Task[[], None] = Task("test-nobodys.v1", module)
    with pytest.raises(ConfigError, match=r"test-nobodys\.v1"):
        handle.resolve()


@pytest.mark.usefixtures("registries")
def test_one_tag_is_one_function() -> None:
    handle: Task[[], Digest] = Task("test-one.v1", __name__)
    assert Task("test-one.v1", __name__) == handle  # as a gateway's process reads it
    with pytest.raises(TypeError, match=rf"test-one\.v1 is work of {__name__} and of elsewhere"):
        Task("test-one.v1", "elsewhere")

    @handle.runs
    def first() -> Digest:
        return Digest(bytes(32))

    with pytest.raises(TypeError, match=r"is not what runs test-one\.v1"):

        @handle.runs
        def second() -> Digest:
            return Digest(bytes(32))

    assert handle.resolve() is first


@pytest.mark.usefixtures("registries")
def test_what_runs_is_where_the_handle_says() -> None:
    """Else another process imports that module, and finds nothing."""
    handle: Task[[], Verdict] = Task("test-elsewhere.v1", "elsewhere")
    with pytest.raises(TypeError, match=r"is not what runs test-elsewhere\.v1 of elsewhere"):

        @handle.runs
        def here() -> Verdict:
            raise AssertionError
