"""A provider that is killed, or loses its disk, says what it would have said."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from eth_account import Account
from tests.support.identities import JOB, cid, digest
from tests.unit.protocol.script import PROVIDERS, Script
from tests.unit.service.held import state_of

from atoll.chain.keys import sign_typed
from atoll.protocol.checkpoint_commitments import key_hash
from atoll.protocol.hashing import commitment
from atoll.protocol.types import ZERO_DIGEST, SeatIndex
from atoll.service.duties.material import DoFetchSpec, JobRefused
from atoll.service.effects import Effects
from atoll.service.entries import Done, Entries
from atoll.service.journal import Journal
from atoll.service.machine import Head, State
from atoll.service.task import TaskCall
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.duties.commit import SendCommit, SendKey, SendReveal
from atoll_node.duties.serve import DoServe
from atoll_node.duties.train import RUN_TRAINING, DoTrain, Trained, Work
from atoll_node.machine import decide

ME, SEAT = PROVIDERS[0], SeatIndex(0)
KEY = Account.from_key(digest("the account's key"))
DONE = Work(
    states=tuple(digest(f"state {j}") for j in range(8)),
    work_tags=tuple(digest(f"work_tag {j}") for j in range(8)),
    update_root=digest("update"),
    update_cid=cid("update"),
    loss=1.0,
    seconds=1.0,
    thread_seconds=1.0,
)


@dataclass
class Paper:
    """Effects of a machine: training gives the same each time, and calls are noted."""

    shown: list[bytes] = field(default_factory=list)
    store: Any = field(default_factory=lambda: SimpleNamespace(holding=nullcontext))
    update: bytes = b""

    def effects(self, journal: Any = None) -> Effects:
        async def work(call: TaskCall[Work], *, due: int) -> Work:
            assert call.task == RUN_TRAINING
            if not self.update:
                return DONE
            return replace(DONE, update_cid=self.store.add_bytes(self.update).to_bytes())

        async def keep(*_: object) -> None:
            return None

        async def transact(view: Any, command: Any, call: Any) -> Done[Any]:
            self.shown.append(call)
            return Done(block=1)

        context = SimpleNamespace(
            me=ME,
            store=self.store,
            journal=journal or SimpleNamespace(measure=lambda *_: None),
            sign=lambda message: sign_typed(KEY, message),
        )
        calls = SimpleNamespace(show_key=lambda job, round, key, bond: key, reveal=lambda *_: b"")
        return cast(
            Effects,
            SimpleNamespace(
                context=context,
                work=work,
                keep=keep,
                transact=transact,
                calls=calls,
                store_dir="",
            ),
        )


@pytest.fixture
def script() -> Script:
    made = Script.ready()
    made.net.advance()
    return made


def machine(script: Script, entries: Entries | None = None) -> State[Any]:
    return state_of(script.net, ME, ProviderBehaviour(), entries)


def wanted(state: State[Any], kind: type[Any]) -> list[Any]:
    return [c for d in decide(state) for c in d.commands if isinstance(c, kind)]


async def train(state: State[Any]) -> State[Any]:
    """The state once the training that it wants is done."""
    (command,) = wanted(state, DoTrain)
    entry = (await command.perform(Paper().effects(), state.view)).entry
    return replace(state, entries=state.entries.plus(command.key, entry))


def open_all(script: Script) -> None:
    """The others commit, and our commitment is on the chain."""
    for seat in sorted(script.net.waited - {0}):
        script.commit(seat)


async def test_a_lost_disk_trains_to_the_same_commitment_and_opens_it(script: Script) -> None:
    first = await train(machine(script))
    (commit,) = wanted(first, SendCommit)
    script.net.commit(ME, commit.commitment)
    open_all(script)
    lost = machine(script)  # an empty journal, in REVEAL
    assert wanted(lost, SendReveal) == []
    again = await train(lost)
    (reveal,) = wanted(again, SendReveal)
    running = again.view.open
    assert running is not None
    made = commitment(
        running.round_id, running.seed, SEAT, ME, reveal=reveal.reveal, model=ZERO_DIGEST
    )
    assert made == commit.commitment
    script.net.reveal(ME, reveal.reveal)  # which the contract takes
    assert wanted(machine(script), DoTrain) == []


async def test_who_never_committed_trains_nothing_in_reveal(script: Script) -> None:
    open_all(script)
    script.net.wait_until(script.net.deadline)
    script.net.advance()
    assert wanted(machine(script), DoTrain) == []


async def test_salts_and_keys_of_two_rounds_and_seats_are_others(script: Script) -> None:
    state = machine(script)
    (command,) = wanted(state, DoTrain)
    others = [
        command,
        replace(command, seat=SeatIndex(1)),
        replace(command, data_seed=digest("another seed")),
        replace(command, round_id=replace(command.round_id, job=JOB + 1)),
    ]
    entries = [(await c.perform(Paper().effects(), state.view)).entry for c in others]
    assert len({entry.reveal.salt for entry in entries}) == len(others)
    assert len({entry.reveal.key_hash for entry in entries}) == len(others)
    assert all(entry.reveal.salt != entry.reveal.key_hash for entry in entries)


async def test_what_was_trained_is_on_disk_before_it_is_committed_to(
    script: Script, tmp_path: Path
) -> None:
    """The loop writes a command's entry before the machine sees it; a restart reads it back."""
    state = machine(script)
    (command,) = wanted(state, DoTrain)
    journal = Journal(tmp_path / "journal.sqlite")
    effects = Effects.__new__(Effects)
    paper = Paper().effects(journal)
    for name, value in vars(paper).items():
        setattr(effects, name, value)
    done = await Effects.run(effects, state.view, command)
    journal.close()
    again = Journal(tmp_path / "journal.sqlite")
    entries = again.read(JOB).after_restart()
    again.close()
    assert entries.of(DoTrain, *command.about) == done.entry
    restarted = machine(script, entries)
    assert wanted(restarted, DoTrain) == []
    (commit,) = wanted(restarted, SendCommit)
    script.net.commit(ME, commit.commitment)
    open_all(script)
    (reveal,) = wanted(machine(script, entries), SendReveal)
    assert isinstance(done.entry, Trained)
    assert reveal.reveal == done.entry.reveal
    script.net.reveal(ME, reveal.reveal)


@pytest.mark.parametrize("damage", ["none", "a bit", "gone"])
async def test_an_update_that_the_disk_lost_is_whole_again_before_it_is_revealed(
    script: Script, tmp_path: Path, damage: str
) -> None:
    paper = Paper(store=LocalStore(tmp_path, sync=False), update=bytes(range(256)) * 10_000)
    state, _ = await in_reveal(script, paper)
    (reveal,) = wanted(state, SendReveal)
    path = max((tmp_path / "blocks").rglob("*"), key=lambda path: path.stat().st_size)
    if damage == "gone":
        path.unlink()
    elif damage == "a bit":
        path.write_bytes(b"\xff" + path.read_bytes()[1:])
    trained: list[Any] = []
    effects = paper.effects()
    work = effects.work
    effects.work = lambda *args, **how: trained.append(args) or work(*args, **how)  # type: ignore[method-assign,func-returns-value]
    await reveal.perform(effects, script.net.view)
    assert len(paper.shown) == 1
    assert len(trained) == (damage != "none")
    # A round that ended early for want of time ends there again, or its update would be another.
    assert all(call.args[0].segments == len(DONE.states) for (call,) in trained)
    read = paper.store.read_bytes(Cid.from_bytes(reveal.reveal.update_cid), 1 << 24)
    assert read == paper.update


@pytest.mark.parametrize("damage", ["none", "a bit", "gone"])
async def test_an_update_that_the_disk_loses_while_others_get_it_is_made_again(
    script: Script, tmp_path: Path, damage: str
) -> None:
    paper = Paper(store=LocalStore(tmp_path, sync=False), update=bytes(range(256)) * 10)
    effects, state = paper.effects(), await in_merge(script, paper)
    work, trained = effects.work, list[Any]()
    effects.work = lambda *args, **how: trained.append(args) or work(*args, **how)  # type: ignore[method-assign,func-returns-value]
    (serve,) = wanted(state, DoServe)
    (path,) = (path for path in (tmp_path / "blocks").rglob("*") if path.is_file())
    if damage == "gone":
        path.unlink()
    elif damage == "a bit":
        path.write_bytes(b"\xff" + path.read_bytes()[1:])
    done = await serve.perform(effects, state.view)
    assert path.read_bytes() == paper.update
    assert len(trained) == (damage != "none")
    assert all(call.args[0].segments == len(DONE.states) for (call,) in trained)
    looked = replace(state, entries=state.entries.plus(serve.key, done.entry))
    assert wanted(looked, DoServe) == []  # until the next look


async def test_an_update_is_looked_after_while_votes_are_cast_on_it(
    script: Script, tmp_path: Path
) -> None:
    paper = Paper(store=LocalStore(tmp_path, sync=False), update=b"an update")
    state = await in_merge(script, paper)
    running, (serve,) = state.view.open, wanted(state, DoServe)
    assert running is not None
    begun, ends = replace(state, in_flight={serve.key: serve}), running.votes_end
    for now in range(state.now, ends):
        assert wanted(replace(begun, head=Head(1, now)), DoServe) == [serve]  # is not begun anew
    assert wanted(replace(begun, head=Head(1, ends)), DoServe) == []
    # What cannot be made again in time would only keep us from the next round.
    late = ends - int(DONE.seconds)
    times = [replace(state, head=Head(1, now)) for now in range(state.now, late)]
    assert {wanted(at, DoServe)[0].look for at in times} == set(range(6))
    assert wanted(replace(state, head=Head(1, late)), DoServe) == []


async def in_reveal(script: Script, paper: Paper) -> tuple[State[Any], Trained]:
    """Our state once every seat has committed, and what we trained."""
    state = machine(script)
    (training,) = wanted(state, DoTrain)
    entry = (await training.perform(paper.effects(), state.view)).entry
    assert entry is not None
    (commit,) = wanted(replace(state, entries=state.entries.plus(training.key, entry)), SendCommit)
    script.net.commit(ME, commit.commitment)
    open_all(script)
    return machine(script, Entries().plus(training.key, entry)), entry


async def in_merge(script: Script, paper: Paper) -> State[Any]:
    """Our state once every seat has revealed."""
    state, trained = await in_reveal(script, paper)
    script.net.reveal(ME, trained.reveal)
    for seat in sorted(script.net.waited):
        script.reveal(seat)
    return machine(script, state.entries)


async def test_what_was_committed_to_is_opened_by_a_machine_that_trains_no_more(
    script: Script, tmp_path: Path
) -> None:
    """As while the probe is tried again after a start, or where a new version fails it."""
    paper = Paper(store=LocalStore(tmp_path, sync=False), update=b"an update")
    state, _ = await in_reveal(script, paper)
    refused = DoFetchSpec(b"", ZERO_DIGEST).key, JobRefused("its bits are others")
    state = replace(state, entries=state.entries.plus(*refused))
    running = script.net.view.open
    assert running is not None
    half = running.deadline - script.net.view.require_terms().reveal_seconds // 2
    assert wanted(replace(state, head=Head(1, half - 1)), SendReveal) == []
    (reveal,) = wanted(replace(state, head=Head(1, half)), SendReveal)
    await reveal.perform(paper.effects(), script.net.view)
    assert len(paper.shown) == 1


async def test_the_key_needs_no_disk(script: Script) -> None:
    first = await train(machine(script))
    (commit,) = wanted(first, SendCommit)
    script.net.commit(ME, commit.commitment)
    open_all(script)
    (reveal,) = wanted(replace(first, view=script.net.view), SendReveal)
    script.net.reveal(ME, reveal.reveal)
    for seat in sorted(script.net.waited):
        script.reveal(seat)
    script.say()
    script.net.wait(1)
    script.net.settle(set(script.net.committee), {0})  # excluded, and so drawn
    settled_round = script.net.view.settled[0]
    script.net.wait_until(settled_round.clock.keys_end - 1)
    (show,) = wanted(machine(script), SendKey)
    paper = Paper()
    await show.perform(paper.effects(), script.net.view)
    (key,) = paper.shown
    assert key_hash(key) == reveal.reveal.key_hash
    script.net.show_key(0, 0, key)
    assert wanted(machine(script), SendKey) == []
