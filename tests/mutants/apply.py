"""Puts a mutant into a process that has already imported the module.

Rule of this file: it runs in a fork that ends with the mutant, so nothing is ever put back.
"""

from __future__ import annotations

import ast
import gc
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from functools import _lru_cache_wrapper
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from tests.mutants.operators import Mutant, mutated

OWN = ("atoll", "atoll_node", "atoll_verifier", "atoll_devnet", "tests")


class Functions:
    """Every function of some files, found once: the fork need not search a million objects."""

    def __init__(self, root: Path, files: Sequence[str]) -> None:
        self._root = root
        self._of: dict[str, list[FunctionType]] = {str(root / file): [] for file in files}
        self._caches: list[_lru_cache_wrapper[object]] = []
        gc.unfreeze()  # tests/conftest.py froze what was imported, which else would not be found
        for thing in gc.get_objects():
            # Not isinstance, which asks lazy modules for their class, and so imports them.
            if type(thing) is FunctionType:
                self._of.get(thing.__code__.co_filename, []).append(thing)
            elif type(thing) is _lru_cache_wrapper and _is_ours(thing.__module__):
                self._caches.append(thing)

    def apply(self, mutant: Mutant) -> bool:
        """Gives the functions of the mutant's file their changed code; False if that cannot be."""
        path = str(self._root / mutant.file)
        codes = _codes(compile(mutated(self._root, mutant), path, "exec"))
        try:
            for function in self._of[path]:
                old = function.__code__
                # Two lambdas of one line cannot be told apart: a file with such is imported anew.
                (new,) = codes.get((old.co_qualname, old.co_firstlineno), [old])
                function.__code__ = new
        except ValueError:  # as many variables of the enclosing function as before are needed
            return False
        for cache in self._caches:
            cache.cache_clear()
        return True


def _is_ours(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in OWN


def _codes(module: CodeType) -> dict[tuple[str, int], list[CodeType]]:
    found: dict[tuple[str, int], list[CodeType]] = {}
    pending = [module]
    while pending:
        code = pending.pop()
        found.setdefault((code.co_qualname, code.co_firstlineno), []).append(code)
        pending += [part for part in code.co_consts if isinstance(part, CodeType)]
    return found


def import_anew(root: Path, mutant: Mutant) -> None:
    """From here on every module of ours is imported again, the mutant's with its change."""
    for name in [name for name in sys.modules if _is_ours(name)]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder(root / mutant.file, mutated(root, mutant)))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, path: Path, tree: ast.Module) -> None:
        self._path, self._tree = path, tree

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.rpartition(".")[2] != self._path.stem:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin != str(self._path):
            return None
        spec.loader = _Loader(name, str(self._path), self._tree)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, tree: ast.Module) -> None:
        super().__init__(name, path)
        self._tree = tree

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._tree, self.path, "exec", dont_inherit=True)
