"""When a provider applies a merge, merges by itself, or has nothing to train on."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.identities import cid, digest
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, Script
from tests.unit.service.held import MANIFEST, state_of

from atoll.errors import NotFound
from atoll.numerics.pieces import PIECE_BYTES, root_of_update
from atoll.numerics.shown_pieces import MOST_SHOWN, PieceTree
from atoll.protocol.types import Digest, Phase, SeatIndex
from atoll.service.duties import apply_merge
from atoll.service.duties.apply_merge import (
    NO_MODEL,
    OPEN_STATEMENT,
    DoApply,
    MergeApplied,
    OpenedStatement,
    ShownSpots,
    applies,
)
from atoll.service.duties.disagreement import SendDisagree
from atoll.service.duties.merge import DoMerge, RoundMerged
from atoll.service.duties.round_start import DoPrepareRoundStart, RoundStartReady
from atoll.service.duties.updates import DoGetUpdate, RevealedUpdate
from atoll.service.machine import Head, State
from atoll.service.update_limits import HEADER_BYTES, max_update_bytes
from atoll.storage.download import Asked
from atoll.storage.local import LocalStore
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.duties.train import DoTrain
from atoll_node.machine import decide

ME = PROVIDERS[0]
STATEMENT = digest("statement")


def wanted(state: State[Any], kind: type[Any]) -> list[Any]:
    return [c for d in decide(state) for c in d.commands if isinstance(c, kind)]


def provider(net: Network, merge: str = "apply") -> State[Any]:
    state = state_of(net, ME, ProviderBehaviour())
    return replace(state, setup=replace(state.setup, merge=merge))


def at(script: Script, state: State[Any], *, after: float = 0) -> State[Any]:
    """The same machine now, so much of TRAIN later."""
    net = script.net
    later = net.now + int(after * net.terms.train_seconds)
    return replace(state, view=net.view, head=Head(net.number, later), block=net.number)


def settled(script: Script, state: State[Any], statement: Digest = STATEMENT) -> State[Any]:
    script.net.statement = statement
    script.settle()
    return at(script, state)


def with_applied(state: State[Any], made: bytes, *, is_checked: bool = True) -> State[Any]:
    (command,) = wanted(state, DoApply)
    entry = MergeApplied(command.merge.round_id.round, made, "" if made else "a lie", is_checked)
    return replace(state, entries=state.entries.plus(command.key, entry))


@pytest.fixture
def script() -> Script:
    """At MERGE of round 0, every vote cast."""
    made = Script.ready()
    made.net.advance()
    made.train()
    made.say()
    return made


def test_it_fetches_no_update_and_waits_for_the_committees_merge(script: Script) -> None:
    state = provider(script.net)
    for kind in (DoGetUpdate, DoMerge, DoTrain):
        assert wanted(state, kind) == []
    after = settled(script, state)
    (command,) = wanted(after, DoApply)
    assert (command.statement, command.state) == (STATEMENT, script.net.view.model)
    for kind in (DoMerge, DoTrain, DoPrepareRoundStart):
        assert wanted(after, kind) == []


@pytest.mark.parametrize("merge", ["self", "auto"])
def test_who_merges_a_small_job_by_itself_fetches_every_update(script: Script, merge: str) -> None:
    state = provider(script.net, merge)
    assert len(wanted(state, DoGetUpdate)) == 4
    assert wanted(settled(script, state), DoApply) == []


def test_only_large_jobs_are_not_merged_by_everybody(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = settled(script, provider(script.net, "auto"))
    update = max_update_bytes(MANIFEST) - HEADER_BYTES
    assert not applies(state)
    monkeypatch.setattr(apply_merge, "LARGE_BYTES", MANIFEST.terms.seats * update - 1)
    assert applies(state) and wanted(state, DoApply)


def test_a_job_that_is_over_is_left_alone(script: Script) -> None:
    state = settled(script, provider(script.net))
    closed = replace(state, view=replace(state.view, phase=Phase.CLOSED, open=None))
    assert wanted(closed, DoApply) == wanted(closed, DoMerge) == []


def test_what_was_applied_is_trained_on(script: Script) -> None:
    state = with_applied(settled(script, provider(script.net)), cid("applied"))
    (initial_state,) = wanted(state, DoPrepareRoundStart)
    assert (initial_state.cid, initial_state.is_own) == (cid("applied"), True)
    (train,) = wanted(state, DoTrain)
    assert (train.round_id.round, train.initial_state) == (1, cid("applied"))
    for kind in (DoApply, DoMerge, SendDisagree):
        assert wanted(state, kind) == []


def test_a_merge_that_is_wrong_is_made_again_and_that_one_decides(script: Script) -> None:
    state = with_applied(settled(script, provider(script.net)), b"")
    (merge,) = wanted(state, DoMerge)
    assert wanted(state, DoApply) == wanted(state, DoTrain) == []
    verdict = script.net.view.settled[0].verdict
    agreed = state.entries.plus(merge.key, RoundMerged(replace(verdict, cid=cid("ours"))))
    (initial_state,) = wanted(replace(state, entries=agreed), DoPrepareRoundStart)
    assert initial_state.cid == cid("ours")
    other = RoundMerged(replace(verdict, state=digest("other"), cid=cid("other")))
    differs = replace(state, entries=state.entries.plus(merge.key, other))
    (say,) = wanted(differs, SendDisagree)
    assert say.root == digest("other")
    assert wanted(differs, DoTrain) == []


def test_who_has_waited_for_a_quarter_of_train_merges_by_itself(script: Script) -> None:
    state = settled(script, provider(script.net))
    assert wanted(at(script, state, after=0.2), DoMerge) == []
    late = at(script, state, after=0.3)
    assert len(wanted(late, DoMerge)) == len(wanted(late, DoApply)) == 1


def test_who_has_neither_disagrees_with_none_before_the_deadline(script: Script) -> None:
    state = settled(script, provider(script.net))
    assert wanted(at(script, state, after=0.7), SendDisagree) == []
    late = at(script, state, after=0.8)
    (say,) = wanted(late, SendDisagree)
    assert say.root == NO_MODEL and any(NO_MODEL)
    script.net.disagree(ME)  # which the contract takes, without a missed duty
    gone = at(script, late, after=0.8)
    assert wanted(gone, SendDisagree) == wanted(gone, DoTrain) == []
    assert not any(holder.penalties for holder in gone.view.providers.values())


def test_without_a_statement_it_merges_by_itself(script: Script) -> None:
    state = settled(script, provider(script.net), Digest(bytes(32)))
    assert wanted(state, DoApply) == []
    assert len(wanted(state, DoMerge)) == 1


@pytest.mark.parametrize("withheld", [False, True], ids=["all is shown", "one batch is withheld"])
async def test_a_round_of_which_a_drawn_piece_is_withheld_is_unchecked(
    script: Script, tmp_path: Path, withheld: bool
) -> None:
    """Whoever is asked sees the numbers, and where it lied it shows nothing."""
    data = os.urandom((MOST_SHOWN + 1) * PIECE_BYTES)
    store, tree = LocalStore(tmp_path, sync=False), PieceTree(data)
    (command,) = wanted(settled(script, provider(script.net)), DoApply)
    update = RevealedUpdate(SeatIndex(0), cid("update"), root_of_update(data))
    command = replace(command, merge=replace(command.merge, updates=(update,)))
    spots = tuple((number,) for number in range(MOST_SHOWN + 1))

    async def nothing(*_: object, **__: object) -> None:
        pass

    async def show(asked: Asked, _prefer: object) -> None:
        if withheld and MOST_SHOWN in asked.numbers:
            raise NotFound("nobody shows it")
        asked.accept(asked.cid, tree.show(asked.numbers))

    async def work(call: Any) -> Any:
        if call.task == OPEN_STATEMENT:
            return OpenedStatement(cid("merged"), 1, len(data), spots)
        (shown,) = (each for each in call.args if isinstance(each, ShownSpots))
        assert shown.spots == tuple(range(MOST_SHOWN + (not withheld)))
        return RoundStartReady(cid("applied"), command.state)

    async def for_each(items: Any, bring: Any) -> None:
        for item in items:
            await bring(item)

    fetcher = SimpleNamespace(show=show)
    effects = SimpleNamespace(
        context=SimpleNamespace(store=store, fetcher_of=lambda _: fetcher),
        store_dir=str(tmp_path),
        fetch=nothing,
        fetch_handed_on=nothing,
        keep=nothing,
        work_soon=work,
        for_each=for_each,
    )
    done = await command.perform(cast(Any, effects), script.net.view)
    round_ = command.merge.round_id.round
    assert done.entry == MergeApplied(round_, cid("applied"), is_checked=not withheld)
    last = await replace(command, must_check=True).perform(cast(Any, effects), script.net.view)
    assert last.entry is not None and bool(last.entry.cid) != withheld


async def test_a_batch_that_comes_late_is_asked_for_once_more(
    script: Script, tmp_path: Path
) -> None:
    data = os.urandom(PIECE_BYTES)
    store, tree = LocalStore(tmp_path, sync=False), PieceTree(data)
    (command,) = wanted(settled(script, provider(script.net)), DoApply)
    update = RevealedUpdate(SeatIndex(0), cid("update"), root_of_update(data))
    command = replace(command, merge=replace(command.merge, updates=(update,)))
    asked_for = list[tuple[int, ...]]()

    async def show(asked: Asked, _prefer: object) -> None:
        asked_for.append(tuple(asked.numbers))
        if len(asked_for) == 1:
            raise NotFound("it reads")
        asked.accept(asked.cid, tree.show(asked.numbers))

    async def for_each(items: Any, bring: Any) -> None:
        for item in items:
            await bring(item)

    context = SimpleNamespace(store=store, fetcher_of=lambda _: SimpleNamespace(show=show))
    effects = SimpleNamespace(context=context, for_each=for_each)
    opened = OpenedStatement(cid("merged"), 1, len(data), ((0,),))
    shown = await command._shown(cast(Any, effects), script.net.view, opened)
    assert (shown.spots, asked_for) == ((0,), [(0,), (0,)])


def test_the_third_round_of_which_nobody_serves_updates_has_to_be_checked(script: Script) -> None:
    state = settled(script, provider(script.net))
    (command,) = wanted(state, DoApply)
    assert not command.must_check
    before = [replace(command.merge.round_id, round=-n) for n in (1, 2)]
    entries = state.entries
    for round_id in before:
        earlier = replace(command, merge=replace(command.merge, round_id=round_id))
        entry = MergeApplied(round_id.round, cid("applied"), is_checked=False)
        entries = entries.plus(earlier.key, entry)
    (again,) = wanted(replace(state, entries=entries), DoApply)
    assert again.must_check
    assert again.key == command.key
