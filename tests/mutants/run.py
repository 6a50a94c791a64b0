"""Runs the tests once with their coverage, then each mutant in a fork of that warm process.

Rule of this file: a mutant is killed by a failed test or by its time limit; one that no test
covers, or that every chosen test passes, survived.
"""

from __future__ import annotations

import ast
import gc
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import Phase, settings
from tests.mutants.apply import Functions, import_anew
from tests.mutants.forks import Ended, Forks, allow
from tests.mutants.marks import Marks
from tests.mutants.operators import Mutant

Fate = Literal["killed", "too long", "survived", "not covered"]
SURVIVED, KILLED = 0, 1
ENOUGH = 1 / 25
"""Of the time of all tests, for one mutant, cheapest first: about the same tests on any machine."""
EXAMPLES = 20
FEW = 3
"""Files of tests, of those that name a mutant's module, that are asked before all others."""
PATIENCE = 4.0
GRACE_SECONDS = 3.0
IMPORT_SECONDS = 12.0
"""With a mutant a test may take this many times as long, and this much more; so may all of them
together, and where it is of an import, more again.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant; `tests` were chosen for it, `by` is the first that failed."""

    mutant: Mutant
    fate: Fate
    tests: int
    by: str
    seconds: float


@dataclass(eq=False)
class Evaluation:
    """A pytest plugin: takes the place of the test loop.

    Attributes:
        root: of the repository; tests are run from there.
        files: what mutants are of.
        marks: of these files, none of which has been imported.
        jobs: mutants at once.
    """

    root: Path
    files: Sequence[str]
    marks: Marks
    mutants: Sequence[Mutant]
    jobs: int
    arguments: Sequence[str]
    verdicts: list[Verdict] = field(default_factory=list)
    baseline_seconds: float = 0.0
    _items: dict[str, pytest.Item] = field(default_factory=dict)
    _seconds: dict[str, float] = field(default_factory=dict)
    _covering: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    _failed: list[str] = field(default_factory=list)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("tests cannot be collected")
        session.config.pluginmanager.unregister(name="terminalreporter")
        self._items = {item.nodeid: item for item in session.items}
        for item in session.items:
            _make_brief(item)
        self._record(session)
        if self._failed:
            raise session.Interrupted(f"without any mutant: {', '.join(self._failed)}")
        functions = Functions(self.root, self.files)
        gc.freeze()  # what forks share stays shared
        forks: Forks[tuple[Mutant, int]] = Forks(self.jobs)
        for mutant in self.mutants:
            asked = self._asked_of(mutant)
            tests = [test for some in asked for test in some]
            if not tests:
                self.verdicts.append(Verdict(mutant, "not covered", 0, "", 0.0))
                continue
            limit = GRACE_SECONDS + PATIENCE * sum(self._seconds[test] for test in tests)
            limit += 0 if mutant.inside else IMPORT_SECONDS
            self._note(forks.wait())
            live = partial(self._live, functions, mutant, asked)
            forks.start((mutant, len(tests)), limit, live)
        self._note(forks.wait(for_all=True))
        return True

    def _note(self, ended: list[Ended[tuple[Mutant, int]]]) -> None:
        for one in ended:
            mutant, tests = one.what
            fate: Fate = "survived" if one.code == SURVIVED else "killed"
            if one.code is None:
                fate = "too long"
            self.verdicts.append(Verdict(mutant, fate, tests, one.said, one.seconds))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.append(report.nodeid)
            sys.stderr.write(f"{report.longreprtext}\n")

    def _record(self, session: pytest.Session) -> None:
        """Runs every test; what it covers and how long it takes."""
        started = time.perf_counter()
        # After the last comes the first, as far as pytest knows: what lives for the session stays.
        for item, following in zip(
            session.items, [*session.items[1:], session.items[0]], strict=True
        ):
            self.marks.clear()
            begun = _processor_seconds()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._seconds[item.nodeid] = _processor_seconds() - begun
            for place in self.marks.lines():
                self._covering[place].add(item.nodeid)
        self.marks.end()
        self.baseline_seconds = time.perf_counter() - started

    def _asked_of(self, mutant: Mutant) -> list[list[str]]:
        """Cheapest first: those that run the line. Where only an import runs it, those that name
        the module and then those that use it, the first few files on their own: to import anew
        what all of them need takes seconds.
        """
        if mutant.inside:
            return [self._brief(self._covering[mutant.file, mutant.line])]
        lines = [tests for (file, _), tests in self._covering.items() if file == mutant.file]
        module = _module_of(mutant.file)
        naming = {name for name, i in self._items.items() if module in _imported_by(i.path)}
        chosen = self._brief(naming)
        files = list(dict.fromkeys(self._items[test].path for test in chosen))[:FEW]
        first = [test for test in chosen if self._items[test].path in files]
        others = [test for test in chosen if self._items[test].path not in files]
        return [first, others, self._brief(set().union(*lines) - set(chosen))]

    def _brief(self, names: set[str]) -> list[str]:
        chosen, total, enough = [], 0.0, ENOUGH * sum(self._seconds.values())
        for name in sorted(names, key=lambda name: self._seconds[name]):
            total += self._seconds[name]
            if chosen and total > enough:
                break
            chosen.append(name)
        return chosen

    def _live(
        self, functions: Functions, mutant: Mutant, asked: list[list[str]], home: Path
    ) -> int:
        """In the fork: the mutant's life; the test that ends it is named in `home`."""
        if mutant.inside and functions.apply(mutant):
            return self._run_here(asked[0], home)
        import_anew(self.root, mutant)
        options = ["-x", f"--basetemp={home / 'tmp'}", *self.arguments]
        for tests in filter(None, asked):
            code = pytest.main([*options, *_functions_of(tests)], plugins=[_Reporter(home)])
            if code != pytest.ExitCode.OK:
                return KILLED
        return SURVIVED

    def _run_here(self, tests: list[str], home: Path) -> int:
        self._failed.clear()
        items = [self._items[name] for name in tests]
        session = items[0].session
        session.config._tmp_path_factory._basetemp = home  # type: ignore[attr-defined]
        session._setupstate.teardown_exact(items[0])
        for item, following in zip(items, [*items[1:], items[0]], strict=True):
            allow(GRACE_SECONDS + PATIENCE * self._seconds[item.nodeid])
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                (home / "by").write_text(item.nodeid, "utf-8")
                return KILLED
        return SURVIVED


@dataclass(frozen=True, slots=True)
class _Reporter:
    """Names the first test that fails of a session of its own."""

    home: Path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            (self.home / "by").write_text(report.nodeid, "utf-8")


def _processor_seconds() -> float:
    """Of this process and of its children that have ended, since a test may start some."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _module_of(file: str) -> str:
    """`sdk/atoll/protocol/types.py` as `atoll.protocol.types`."""
    parts = Path(file).with_suffix("").parts
    return ".".join(parts[next(i for i, part in enumerate(parts) if part.startswith("atoll")) :])


@cache
def _imported_by(path: Path) -> frozenset[str]:
    """Modules that a test's file names in an import, and what it takes of them."""
    tree = ast.parse(path.read_text("utf-8"))
    taken = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {f"{node.module}.{alias.name}" for node in taken for alias in node.names}
    return frozenset(names | {str(node.module) for node in taken})


def _functions_of(tests: Sequence[str]) -> list[str]:
    """Without their parameters, which a mutant may change the names of."""
    return list(dict.fromkeys(test.partition("[")[0] for test in tests))


def _make_brief(item: pytest.Item) -> None:
    """Hypothesis tries the same few examples every time, and stops at the first failure."""
    function = getattr(item, "obj", None)
    used = getattr(function, "_hypothesis_internal_use_settings", None)
    if used is not None and function is not None:
        function._hypothesis_internal_use_settings = settings(
            used,
            max_examples=min(used.max_examples, EXAMPLES),
            phases=(Phase.explicit, Phase.generate),
            database=None,
            derandomize=True,
        )
