"""What work costs by what it does, and not by the clock: the functions that it calls."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any

from tests.support.identities import DOMAIN
from tests.support.synthetic_chain import SyntheticJob

from atoll.chain.deployment import REQUIRED, Deployment
from atoll.chain.follower import Fold
from atoll.chain.indexed import Indexed
from atoll.protocol.types import Address
from atoll.protocol.views import JobView
from atoll.service.machine import Head, Setup, State, ViewChanged
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.machine import step as provider_step
from atoll_verifier.behaviour import VerifierBehaviour
from atoll_verifier.machine import step as verifier_step


def calls_of(work: Callable[[], object]) -> int:
    """How many functions of Python a piece of work calls; a generator counts for each item."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def idle_step(view: JobView, me: Address, *, is_verifier: bool) -> Callable[[], object]:
    """A member's step at the next block, in which nothing happened."""
    setup: Any = Setup("http://127.0.0.1:1", VerifierBehaviour() if is_verifier else None)
    if not is_verifier:
        setup = Setup("http://127.0.0.1:1", ProviderBehaviour())
    step: Any = verifier_step if is_verifier else provider_step
    head = Head(view.block.number + 1, view.block.timestamp + 1)
    state: State[Any] = State(me, setup, view, head, view.block.number, view.block.timestamp)
    state, _ = step(state)
    changed = ViewChanged(view, view.block.number, None, view.block.timestamp)
    return lambda: step(state, changed)


@dataclass(frozen=True, slots=True)
class FoldedJob:
    """What folding a job's events came to.

    Attributes:
        cpu_s: of all of them; calls_an_event: of the newest.
    """

    fold: Fold
    cpu_s: float
    calls_an_event: float


NEWEST = 2_000
"""Events, at least, whose calls are counted where a job has so many: that takes six times as long
as folding them.
"""


def folded(job: SyntheticJob) -> FoldedJob:
    """Folds a job's events as they are made: those of 10,000 rounds are more than memory has."""
    fold, cpu_s, newest = _nothing_folded(), 0.0, list[Indexed]()
    items = (Indexed(event, block, at) for at, (event, block) in enumerate(job.events()))
    while part := list(islice(items, NEWEST)):
        if len(newest) > NEWEST:
            start = time.process_time()
            fold.fold_all(newest[:-NEWEST])
            cpu_s += time.process_time() - start
        newest = [*newest[-NEWEST:], *part]
    counted = fold.copy()
    calls = calls_of(lambda: counted.fold_all(newest))
    start = time.process_time()
    fold.fold_all(newest)
    return FoldedJob(fold, cpu_s + time.process_time() - start, calls / len(newest))


def _nothing_folded() -> Fold:
    deployment = Deployment(DOMAIN.chain_id, 0, dict.fromkeys(REQUIRED, DOMAIN.rounds))
    return Fold(deployment, None)
