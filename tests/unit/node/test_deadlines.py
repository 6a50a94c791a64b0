"""A provider that is too slow ends its round in time, with whole segments."""

from __future__ import annotations

import errno
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest
from tests.support.identities import digest
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, Script
from tests.unit.service.held import state_of, with_merge, with_updates

from atoll.errors import DiskFull, StorageError
from atoll.service.effects import Effects
from atoll.service.machine import State
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.deadlines import MARGIN_PART, Limit, deadline_file, tell
from atoll_node.duties import train
from atoll_node.duties.train import DeadlineTold, DoTrain, TellDeadline, Work
from atoll_node.machine import decide

ME = PROVIDERS[0]


class Run:
    """Segments that take ten seconds each, on a clock of paper."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self, *_: object) -> Any:
        self.now += 10.0
        return None

    def limit(self, file: Path) -> Limit:
        return Limit(file, cast(Any, self), clock=lambda: self.now)


def after(limit: Limit, segments: int) -> bool:
    """Whether the round ends once so many segments were run."""
    for segment in range(segments):
        limit(cast(Any, None), segment, cast(Any, None))
    return limit.is_reached(segments)


@pytest.mark.parametrize(("ends", "is_over"), [(1042.5, False), (1042.4, True)])
def test_a_segment_is_begun_if_it_can_end_in_time(
    tmp_path: Path, ends: float, is_over: bool
) -> None:
    (tmp_path / "ends").write_text(repr(ends))
    assert after(Run().limit(tmp_path / "ends"), 3) == is_over  # at 1030, the next takes 12.5


@pytest.mark.parametrize("text", [None, "", "soon"])
def test_nothing_ends_before_a_time_is_told(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "ends").write_text(text)
    assert not after(Run().limit(tmp_path / "ends"), 3)


@pytest.mark.parametrize("step", [-7200.0, 7200.0])
def test_a_wall_clock_that_is_set_moves_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    set_to = time.time() + step
    monkeypatch.setattr(time, "time", lambda: set_to)
    files = [tmp_path / "ends-1-0-00", tmp_path / "ends-2-0-00"]
    for file, seconds_left in zip(files, (3600.0, -1.0), strict=True):
        tell(file, seconds_left)
    assert [Limit(file, cast(Any, None)).is_reached(1) for file in files] == [False, True]


def test_where_nothing_can_be_written_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageError, match="cannot use"):
        tell(tmp_path / "no folder" / "ends-1-0-00", 5.0)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(DiskFull, match="no room left"):
        tell(tmp_path / "ends-1-0-00", 5.0)


def test_what_was_told_of_other_rounds_goes(tmp_path: Path) -> None:
    store, round_id = str(tmp_path / "store"), Network().view.round_id
    files = [deadline_file(store, round_id(round), digest(round)) for round in (0, 1)]
    for file in files:
        tell(file, 5.0)
    assert [file.exists() for file in files] == [False, True]


def machine(script: Script) -> State[Any]:
    return state_of(script.net, ME, ProviderBehaviour())


def wanted(state: State[Any], kind: type[Any]) -> list[Any]:
    return [c for d in decide(state) for c in d.commands if isinstance(c, kind)]


@pytest.fixture
def script() -> Script:
    made = Script.ready()
    made.net.advance()
    return made


def chain_at(now: int) -> SimpleNamespace:
    return SimpleNamespace(head=AsyncMock(return_value=SimpleNamespace(timestamp=now)))


async def test_the_worker_is_told_once_and_again_after_a_restart(
    script: Script, tmp_path: Path
) -> None:
    state, terms = machine(script), script.net.terms
    (told,) = wanted(state, TellDeadline)
    assert told.until == script.net.deadline - terms.train_seconds // MARGIN_PART
    context = SimpleNamespace(chain=chain_at(state.now))
    told_to = SimpleNamespace(store_dir=str(tmp_path / "store"), context=context)
    effects = cast(Effects, told_to)
    entry = (await told.perform(effects, state.view)).entry
    assert deadline_file(effects.store_dir, told.round_id, told.data_seed).exists()
    assert isinstance(entry, DeadlineTold)
    entries = state.entries.plus(told.key, entry)
    assert wanted(replace(state, entries=entries), TellDeadline) == []
    assert len(wanted(replace(state, entries=entries), DoTrain)) == 1
    again = entries.after_restart()
    assert again.of(TellDeadline, *told.about) is None


async def test_what_is_told_late_ends_no_later(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that waits until nobody else acts with its key tells what it decided before."""
    state, left = machine(script), list[float]()
    (told,) = wanted(state, TellDeadline)
    monkeypatch.setattr(train, "tell", lambda file, seconds_left: left.append(seconds_left))
    for waited in (0, 30):
        context = SimpleNamespace(chain=chain_at(state.now + waited))
        told_to = SimpleNamespace(store_dir=str(tmp_path / "store"), context=context)
        await told.perform(cast(Effects, told_to), state.view)
    assert left == [told.until - state.now, told.until - state.now - 30]


async def test_what_has_to_be_trained_again_has_to_end_in_time_too(
    script: Script, tmp_path: Path
) -> None:
    state = machine(script)
    (told,), (training,) = wanted(state, TellDeadline), wanted(state, DoTrain)
    work = Work((digest("s"),), (digest("w"),), digest("u"), b"\x01cid", 1.0, 1.0, 1.0)
    keep = AsyncMock(side_effect=[DiskFull("no room for a pin"), None])
    context = SimpleNamespace(
        store=SimpleNamespace(holding=nullcontext),
        sign=lambda message: bytes(65),
        chain=chain_at(state.now),
        journal=Mock(),
    )
    told_to = SimpleNamespace(
        store_dir=str(tmp_path / "store"),
        context=context,
        work=AsyncMock(return_value=work),
        keep=keep,
    )
    effects = cast(Effects, told_to)
    await told.perform(effects, state.view)
    file = deadline_file(effects.store_dir, told.round_id, told.data_seed)
    with pytest.raises(DiskFull):
        await training.perform(effects, state.view)
    assert file.exists()
    assert (await training.perform(effects, state.view)).entry.reveal.update_cid == work.update_cid
    assert not file.exists()


def test_who_trains_ahead_is_told_when_the_round_opens(script: Script) -> None:
    script.train()
    script.say()
    ready = with_updates(machine(script))
    state = with_merge(ready, script.net.verdict(set(), 4))
    (ahead,) = wanted(state, DoTrain)
    assert ahead.round_id.round == 1
    assert wanted(state, TellDeadline) == []
    script.settle()
    (told,) = wanted(machine(script), TellDeadline)
    assert (told.round_id.round, told.data_seed) == (1, ahead.data_seed)
