"""Runs tests, keeping every core busy, and ends with one line: `tests: N passed, N failed`.

    .venv/bin/python .ci/tests.py             all of them, as `make test-all` does
    .venv/bin/python .ci/tests.py --newcomer  those of `make test`
    .venv/bin/python .ci/tests.py contracts   this part only

`make test` runs what a newcomer needs and what set-up alone provides for. It leaves out what
tests/conftest.py marks with `beyond`, the mutants, and most runs of the contracts' fuzz tests.

What waits (whole networks, real chains and nodes) goes first, on two cores three networks at once,
or five where the cores are quick: their members wait for each other most of the time, and have
deadlines when they train. What computes has a process a core and takes what is left. A part's
output is printed whole, when it ends. At last comes how much of the cores all took: on a machine
that others use, too, this alone tells whether the tests have become slower.
"""
# ruff: noqa: S603, T201 -- fixed commands; it prints

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
PYTHON = str(ROOT / ".venv" / "bin" / "python")
CORES = os.cpu_count() or 1
NEWCOMER = "--newcomer"
WAITING = ("tests/e2e", "tests/network", "tests/integration")
PYTEST = (PYTHON, "-m", "pytest", "--dist=loadgroup", "--no-loadscope-reorder", "--durations=10")
NICE = 10
# Every process compiles our sources anew where it may not keep what it compiled.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
ADDITIONS = 1_000_000
QUICK_NS = 100
"""What an addition takes at most in this Python on cores of the usual speed: 60 as a rule."""
PR_SET_CHILD_SUBREAPER = 36
LOOK_SECONDS = 0.1
COUNTS = re.compile(r"(\d+)(?: tests)? (passed|failed|errors?)\b")


@dataclass(frozen=True, slots=True)
class Part:
    """One command; its last line with counts says how many tests passed and failed.

    Attributes:
        after: parts of which one must have ended first, so that no more at once want a core.
    """

    name: str
    command: tuple[str, ...]
    nice: int = NICE
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a part came to; `code` is its exit code."""

    code: int
    passed: int
    failed: int


def networks_at_once() -> int:
    """Three for two cores, or five for two quick ones.

    On slow cores five miss deadlines; on quick ones three wait for blocks, and nothing computes.
    """
    started, total = time.process_time(), 0
    for number in range(ADDITIONS):
        total += number
    is_quick = time.process_time() - started < QUICK_NS * ADDITIONS / 1e9
    return max(3, min((5 if is_quick else 3) * CORES // 2, 8))


def newcomers_parts(
    commit: str, chosen: tuple[str, ...] = ("-m", "not beyond")
) -> tuple[Part, ...]:
    """What `make test` runs, the longest first.

    Args:
        chosen: pytest's options that choose among the tests.
    """
    seed = str(int(commit[:8], 16))
    elsewhere = [f"--ignore={folder}" for folder in WAITING]
    networks = (*PYTEST, *chosen, f"-n{networks_at_once()}", *WAITING)
    # Ten seconds of a core for each process that imports the tests: one a core, no more, while
    # networks wait beside it.
    computing = (*PYTEST, *chosen, f"-n{max(2, CORES)}", f"--hypothesis-seed={seed}", *elsewhere)
    return (
        Part("networks", networks, nice=0),
        Part("contracts", ("contracts/tools/gas", "others")),
        Part("gas", ("contracts/tools/gas",)),
        Part("computing", (*computing, "tests")),
    )


def every_part(commit: str) -> tuple[Part, ...]:
    """What `make test-all` runs: each test once, so fuzz tests of contracts only with more runs."""
    fewer = ("contracts/tools/gas", "others-but-fuzz")
    return (
        *(
            replace(part, command=fewer) if part.name == "contracts" else part
            for part in newcomers_parts(commit, chosen=())
        ),
        Part("fuzz", ("contracts/tools/gas", "fuzz")),
        Part("proofs", (PYTHON, "contracts/tools/halmos")),
        Part(
            "mutants",
            (PYTHON, "-m", "tests.mutants", "--seed", commit),
            after=("networks", "computing"),
        ),
        Part(
            "contracts-mutants",
            (PYTHON, "-m", "tests.mutants.contracts", "--seed", commit),
            after=("contracts",),
        ),
    )


class Run:
    """All parts as processes of this one, each followed by a thread of its own."""

    def __init__(self, chosen: tuple[Part, ...]) -> None:
        self._chosen = {part.name for part in chosen}
        self._ended: set[str] = set()
        self._one_ended = threading.Condition()
        self._threads = [threading.Thread(target=self._follow, args=(p,)) for p in chosen]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._starting, self._printing = threading.Lock(), threading.Lock()
        self._is_ended = False
        self.outcomes: dict[str, Outcome] = {}

    def start(self) -> None:
        threading.Thread(target=self._collect_orphans, daemon=True).start()
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()

    def end(self, *_: object) -> NoReturn:
        """On a signal: nothing is left behind."""
        with self._starting:  # what waited for a part that ends now does not begin
            self._is_ended = True
        for process in self._processes:
            process.terminate()
        os._exit(130)

    def _collect_orphans(self) -> None:
        """As whoever had them before `adopt_orphans` did: tests wait until processes are gone."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:  # nothing runs
                ended = None
            with self._starting:
                parts = {process.pid for process in self._processes}
            if ended is None or ended.si_pid in parts:  # which its own thread collects
                time.sleep(LOOK_SECONDS)
            else:
                os.waitpid(ended.si_pid, 0)

    def _follow(self, part: Part) -> None:
        if awaited := self._chosen.intersection(part.after):
            with self._one_ended:
                self._one_ended.wait_for(lambda: awaited & self._ended)
        started = time.monotonic()
        with tempfile.TemporaryFile() as output:
            command = ("nice", "-n", str(part.nice), *part.command)
            with self._starting:
                if self._is_ended:
                    return
                process = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=ENVIRONMENT,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
                self._processes.append(process)
            _, status, used = os.wait4(process.pid, 0)
            code = process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            text = output.read().decode("utf-8", "replace")
        seconds = time.monotonic() - started
        with self._printing:
            took = f"{seconds:.0f} s, of cores {used.ru_utime + used.ru_stime:.0f} s"
            print(f"=== {part.name}: {took}, exit code {code}\n{text}", flush=True)
        self.outcomes[part.name] = outcome(part.name, code, text)
        with self._one_ended:
            self._ended.add(part.name)
            self._one_ended.notify_all()


def outcome(name: str, code: int, text: str) -> Outcome:
    """Counts from the last line that has any; a part that failed without one failed once."""
    if name.endswith("mutants"):
        return Outcome(code, int(code == 0), int(code != 0))
    counted = next(
        (found for line in reversed(text.splitlines()) if (found := COUNTS.findall(line))), []
    )
    counts = {word.rstrip("s") if word.startswith("error") else word: int(n) for n, word in counted}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    return Outcome(code, counts.get("passed", 0), failed or int(code != 0))


def adopt_orphans() -> None:
    """Has Linux give this process whatever a part leaves behind, as members of networks are.

    What they took of the cores is not counted else: those that started them never collect them.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def seconds_of_cores() -> float:
    """What all that has ended took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def newest_commit() -> str:
    """Seeds what is drawn at random, so that a run can be repeated."""
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "0" * 40


def main(arguments: list[str]) -> int:
    commit, started = newest_commit(), time.monotonic()
    names = [name for name in arguments if name != NEWCOMER]
    every = newcomers_parts(commit) if NEWCOMER in arguments else every_part(commit)
    known = [part.name for part in every]
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no part is called {', '.join(unknown)}: there are {', '.join(known)}")
        return 2
    chosen = tuple(part for part in every if not names or part.name in names)
    print(f"tests: {', '.join(p.name for p in chosen)}; seeded by commit {commit}", flush=True)
    adopt_orphans()
    run = Run(chosen)
    signal.signal(signal.SIGTERM, run.end)
    signal.signal(signal.SIGINT, run.end)
    run.start()
    run.wait()
    passed = sum(outcome.passed for outcome in run.outcomes.values())
    failed = sum(outcome.failed for outcome in run.outcomes.values())
    took = f"{time.monotonic() - started:.0f} s, of cores {seconds_of_cores():.0f} s"
    print(f"=== all: {took}")
    print(f"tests: {passed} passed, {failed} failed", flush=True)
    return int(failed > 0 or len(run.outcomes) < len(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
