"""Whoever sees a wrong merge looks for what shows it, and shows that in a block behind."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.identities import address, digest
from tests.unit.protocol.script import WATCHER, Script
from tests.unit.service.held import state_of

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.chain.txconfig import MOST_CALLDATA
from atoll.chain.view import View
from atoll.errors import NotFound
from atoll.protocol import events as ev
from atoll.protocol.call_structs import Piece
from atoll.protocol.strikes import (
    AHEAD,
    CarriedState,
    ShownUpdate,
    StrikePlace,
    StrikeProof,
    parts_of,
)
from atoll.protocol.types import ZERO_DIGEST, Bitmap, RoundIndex, SeatIndex
from atoll.protocol.views import JobView
from atoll.service.commands import Transaction
from atoll.service.duties import strike as strike_duty
from atoll.service.duties.merge import statement_cid
from atoll.service.duties.strike import (
    DoFindStrike,
    FoundStrike,
    SendAnnouncement,
    SendRows,
    SendStrike,
    StrikeSought,
    decide_strikes,
)
from atoll.service.effects import Effects
from atoll.service.entries import Done
from atoll.service.machine import State
from atoll.service.watcher import Player
from atoll.storage.cid import RAW, Cid
from atoll.storage.errors import MalformedDag

PIECE = Piece(b"piece", (digest("sibling"),))
PLACES = [
    StrikePlace(),
    StrikePlace(seat=SeatIndex(1)),
    StrikePlace(0, 7),
    StrikePlace(is_nothing=True),
    StrikePlace(is_derived=True),
]


def proof_of(place: StrikePlace) -> StrikeProof:
    updates = tuple(ShownUpdate(seat, 5, (PIECE,)) for seat in range(4))
    shown = (updates, ShownUpdate(0, 5, (PIECE,))) if place.section is not None else ((), None)
    return StrikeProof(place, b"statement", b"shape", 2, (digest("leaf"),), *shown)


@pytest.fixture
def script() -> Script:
    made = Script.ready()
    made.net.advance()
    made.honest_round()
    return made


@pytest.mark.parametrize(
    ("place", "carried", "label"),
    [
        (PLACES[0], None, "strikeStatement"),
        (PLACES[1], None, "strikeMissing"),
        (PLACES[2], None, "strikeCoordinate"),
        (PLACES[3], None, "strikeNothing"),
        (PLACES[3], CarriedState(b"parts"), "strikeCarried"),
    ],
)
def test_each_proof_has_its_call(
    script: Script, place: StrikePlace, carried: CarriedState | None, label: str
) -> None:
    calls = Calls(Deployment(31337, 0, dict.fromkeys(REQUIRED, address("strikes"))))
    proof = replace(proof_of(place), carried=carried, owed=Bitmap(0b0111))
    about = calls.about(script.net.view.settled[0])
    assert about.strike(proof, digest("salt")).label == label


def test_of_a_round_that_merged_nothing_what_was_merged_before_it_is_looked_at(
    script: Script,
) -> None:
    stated = digest("statement of round 0")
    first = script.net.view.settled[0]
    script.train()
    script.say()
    script.net.wait(1)
    script.settle(merged=0)
    state = watching(script)
    verdict = replace(first.verdict, statement=stated)
    settled = [replace(first, verdict=verdict), state.view.settled[1]]
    state = replace(state, view=replace(state.view, settled=type(state.view.settled)(settled)))
    wanted = [each for each in decide_strikes(state).commands if isinstance(each, DoFindStrike)]
    assert [each.before for each in wanted] == [ZERO_DIGEST, stated]


def watching(script: Script) -> State[Any]:
    return state_of(script.net, WATCHER, Player())


def sought(state: State[Any], proof: StrikeProof | None) -> State[Any]:
    (seeking,) = decide_strikes(state).commands
    assert isinstance(seeking, DoFindStrike)
    entry = StrikeSought(0, FoundStrike(proof), digest("salt"))
    return replace(state, entries=state.entries.plus(seeking.key, entry))


def test_an_outsider_looks_at_every_merge_once(script: Script) -> None:
    state = watching(script)
    (seeking,) = decide_strikes(state).commands
    assert isinstance(seeking, DoFindStrike)
    assert [update.seat for update in seeking.updates] == [0, 1, 2, 3]
    assert seeking.owed == 0b1111
    assert decide_strikes(sought(state, None)).commands == ()


def test_what_is_found_is_struck_until_somebody_has(script: Script) -> None:
    state = sought(watching(script), proof_of(PLACES[2]))
    (strike,) = decide_strikes(state).commands
    assert isinstance(strike, SendStrike)
    script.net.emit(
        ev.MergeStruck(script.net.job, RoundIndex(0), WATCHER, state.view.settled[0].signers)
    )
    struck = replace(state, view=script.net.view)
    assert struck.view.settled[0].struck_by == WATCHER
    assert struck.view.settled[0].signers == struck.view.settled[0].unsigned == 0
    assert struck.view.cancel_requested
    assert decide_strikes(struck).commands == ()


def test_behind_the_window_nothing_is_looked_at(script: Script) -> None:
    state = watching(script)
    over = state.view.settled[0].clock.window_end
    later = replace(state, head=replace(state.head, time=over))
    assert decide_strikes(later).commands == ()


@dataclass
class Sent:
    """A queue that says what it was given."""

    calls: list[tuple[Transaction[Any], Call]] = field(default_factory=list)

    async def transact(self, view: Any, command: Transaction[Any], call: Call) -> Done[Any]:
        self.calls.append((command, call))
        return Done(block=7)


@dataclass
class ToyChain:
    """A chain that grows by a block a look, and tells what was announced and shown.

    Attributes:
        announced: the block of the announcement.
        shown: seats whose rows were shown before.
    """

    announced: int = 100
    shown: int = 0
    number: int = 100

    async def ask(self, view: View[Any]) -> int:
        return self.announced if view.name == "announcedIn" else self.shown

    async def head(self) -> SimpleNamespace:
        self.number += 1
        return SimpleNamespace(number=self.number, timestamp=0)


def effects_of(
    sent: Sent, proof: StrikeProof | None = None, chain: ToyChain | None = None, **views: Any
) -> Effects:
    """Of a machine whose search finds that, on a chain where so much has been seen."""

    async def work_soon(work: Any) -> FoundStrike:
        del work
        return FoundStrike(proof)

    addresses = dict.fromkeys(REQUIRED, address("strikes"))
    context = SimpleNamespace(
        me=WATCHER,
        store=SimpleNamespace(holding=nullcontext),
        chain=chain or ToyChain(),
        follower=SimpleNamespace(views={view.job_id: view for view in views.values()}),
    )
    calls = Calls(Deployment(31337, 0, addresses))
    work = SimpleNamespace(work_soon=work_soon, store_dir="", transact=sent.transact)
    return cast(Effects, SimpleNamespace(context=context, calls=calls, **vars(work)))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strike_duty, "LOOK_SECONDS", 0.0)


@pytest.mark.parametrize(("size", "is_sent"), [(1024, True), (MOST_CALLDATA, False)])
def test_what_no_node_takes_is_not_announced(script: Script, size: int, is_sent: bool) -> None:
    proof = replace(proof_of(PLACES[2]), statement=bytes(size))
    state = watching(script)
    (seeking,) = decide_strikes(state).commands
    assert isinstance(seeking, DoFindStrike)
    entry = asyncio.run(seeking.perform(effects_of(Sent(), proof), state.view)).entry
    assert entry is not None
    assert (entry.strike.proof == proof) == is_sent
    assert is_sent or "bytes" in entry.why
    later = replace(state, entries=state.entries.plus(seeking.key, entry))
    assert len(decide_strikes(later).commands) == is_sent


def struck_with(
    script: Script, proof: StrikeProof, chain: ToyChain | None = None, **views: Any
) -> list[tuple[Transaction[Any], Call]]:
    """What is sent for a strike."""
    strike, sent = SendStrike(RoundIndex(0), proof, digest("salt")), Sent()
    effects = effects_of(sent, chain=chain, **views)
    asyncio.run(strike.perform(effects, script.net.view))
    return sent.calls


STATEMENT = b"statement"
OPENING = Cid(RAW, digest("opening"))


@dataclass
class Withheld:
    """A machine that has all files but those, and whose search finds that where it is asked."""

    cids: frozenset[Cid]
    proof: StrikeProof | None
    error: Exception = field(default_factory=lambda: NotFound("nobody has it"))
    looked_at: list[SeatIndex] = field(default_factory=list)

    async def fetch(self, view: Any, round: int, cid: Cid, *about: Any) -> None:
        del view, round, about
        if cid in self.cids:
            raise self.error

    async def work_soon(self, work: Any) -> FoundStrike:
        self.looked_at += [update.seat for update in work.args[0].updates]
        return FoundStrike(self.proof)

    def effects(self) -> Effects:
        effects = effects_of(Sent())
        store = SimpleNamespace(holding=nullcontext, get_block=lambda cid: STATEMENT)
        effects.context.store = cast(Any, store)
        return cast(
            Effects,
            SimpleNamespace(**vars(effects) | {"fetch": self.fetch, "work_soon": self.work_soon}),
        )


def seeking_stated(script: Script) -> DoFindStrike:
    """A search for what is wrong in a merge that has a statement."""
    (seeking,) = decide_strikes(watching(script)).commands
    assert isinstance(seeking, DoFindStrike)
    return replace(seeking, verdict=replace(seeking.verdict, statement=digest("statement")))


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> Cid:
    """The CID of the merged update, as the statement has it."""
    cid = Cid(RAW, digest("merged"))

    async def model_of_round(effects: Effects, view: JobView, round: int, manifest: bytes) -> bytes:
        await effects.fetch(view, round, OPENING, len(manifest))
        return OPENING.to_bytes()

    monkeypatch.setattr(strike_duty, "update_cid_of", lambda block: cid.to_bytes())
    monkeypatch.setattr(strike_duty, "model_of_round", model_of_round)
    return cid


@pytest.mark.parametrize("withheld", ["an update", "the merged one", "the opening", "all"])
def test_who_withholds_a_file_is_struck_by_what_needs_it_not(
    script: Script, merged: Cid, withheld: str
) -> None:
    seeking = seeking_stated(script)
    update = Cid.from_bytes(seeking.updates[1].cid)
    cids = {
        "an update": {update},
        "the merged one": {merged},
        "the opening": {OPENING},
        "all": {update, merged, OPENING},
    }[withheld]
    proof = proof_of(PLACES[1])
    machine = Withheld(frozenset(cids), proof)
    entry = asyncio.run(seeking.perform(machine.effects(), script.net.view)).entry
    assert entry is not None
    assert entry.strike.proof == proof
    assert machine.looked_at == ([0, 1, 2, 3] if update not in cids else [0, 2, 3])


@pytest.mark.parametrize("error", [NotFound("nobody has it"), MalformedDag("no file")])
def test_a_round_that_merged_nothing_is_struck_whatever_became_of_the_one_before(
    script: Script, error: Exception
) -> None:
    seeking = seeking_stated(script)
    verdict = replace(seeking.verdict, merged=0, statement=ZERO_DIGEST)
    seeking = replace(seeking, verdict=verdict, before=digest("before"))
    machine = Withheld(frozenset({statement_cid(digest("before"))}), proof_of(PLACES[3]), error)
    entry = asyncio.run(seeking.perform(machine.effects(), script.net.view)).entry
    assert entry is not None
    assert entry.strike.proof == machine.proof


def test_what_is_withheld_is_looked_for_again(script: Script, merged: Cid) -> None:
    """It may show what nothing else does; without any of it there is nothing to look for."""
    seeking = seeking_stated(script)
    for cids in ({merged}, {Cid.from_bytes(seeking.updates[1].cid)}, {OPENING}):
        with pytest.raises(NotFound):
            asyncio.run(seeking.perform(Withheld(frozenset(cids), None).effects(), script.net.view))
    machine = Withheld(frozenset({statement_cid(digest("statement"))}), proof_of(PLACES[0]))
    with pytest.raises(NotFound):
        asyncio.run(seeking.perform(machine.effects(), script.net.view))
    assert machine.looked_at == []


@pytest.mark.parametrize("place", PLACES)
def test_a_strike_is_shown_behind_its_announcement_and_its_rows(
    script: Script, place: StrikePlace
) -> None:
    chain = ToyChain()
    (first, announced), *rows, (last, shown) = struck_with(script, proof_of(place), chain)
    assert isinstance(first, SendAnnouncement)
    assert isinstance(last, SendStrike)
    assert shown.data != announced.data
    assert chain.number == 100 + AHEAD
    assert len(rows) == (place.section is not None)
    assert all(isinstance(command, SendRows) for command, _ in rows)
    assert all(call.label == "showRows" for _, call in rows)


LONG = Piece(bytes(1024), (digest("sibling"),) * 21)


def test_rows_of_64_seats_go_in_parts_and_only_those_that_nobody_showed(script: Script) -> None:
    """Of a billion parameters; every part of it is the same whenever it is asked for again."""
    updates = tuple(ShownUpdate(seat % 4, 5, (LONG, LONG)) for seat in range(64))
    parts = list(parts_of(updates))
    assert sum(parts, ()) == updates
    assert len(parts) == 3
    few = replace(proof_of(PLACES[2]), updates=updates[:4])
    about = Calls(Deployment(31337, 0, dict.fromkeys(REQUIRED, address("strikes")))).about(
        script.net.view.settled[0]
    )
    assert all(len(about.show_rows(few, part).data) < MOST_CALLDATA for part in parts)
    everybody = ToyChain(shown=0b1111)
    kinds = [type(command) for command, _ in struck_with(script, few, everybody)]
    assert kinds == [SendAnnouncement, SendStrike]
    kinds = [type(command) for command, _ in struck_with(script, few, ToyChain(shown=0b0111))]
    assert kinds == [SendAnnouncement, SendRows, SendStrike]


def test_rows_are_not_shown_once_somebody_has_struck(script: Script) -> None:
    view = script.net.view
    signers = view.settled[0].signers
    script.net.emit(ev.MergeStruck(script.net.job, RoundIndex(0), WATCHER, signers))
    strike, sent = SendStrike(RoundIndex(0), proof_of(PLACES[2]), digest("salt")), Sent()
    never = ToyChain(announced=0)
    asyncio.run(strike.perform(effects_of(sent, chain=never, newest=script.net.view), view))
    assert [type(command) for command, _ in sent.calls] == [SendAnnouncement, SendStrike]


def test_an_announcement_that_is_in_no_block_is_waited_for_until_the_window_ends(
    script: Script,
) -> None:
    view = script.net.view
    chain = ToyChain(announced=0)
    ends = view.settled[0].clock.window_end

    async def head() -> SimpleNamespace:
        chain.number += 1
        return SimpleNamespace(number=chain.number, timestamp=ends - 3 + chain.number - 100)

    chain.head = head  # type: ignore[method-assign]
    struck_with(script, proof_of(PLACES[0]), chain)
    assert chain.number == 103
