"""The step that both machines share: what is wanted and not under way is given, once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Never

from tests.support.identities import address
from tests.unit.protocol.network import Network

from atoll.protocol.types import Digest, Role
from atoll.protocol.views import JobView
from atoll.service.commands import Transaction, Work
from atoll.service.effects import Effects
from atoll.service.entries import Done, Entries, Entry, key_of
from atoll.service.machine import (
    LONGEST_RETRY_SECONDS,
    REMEMBERED,
    AnyCommand,
    Cancel,
    Decision,
    Event,
    Failed,
    Finished,
    Head,
    HeadAdvanced,
    Order,
    Ordered,
    State,
    ViewChanged,
    advance,
    by_view_and_entries,
)


@dataclass(frozen=True, slots=True)
class Dug(Entry):
    kind: ClassVar[str] = "test-dug.v1"
    place: str


@dataclass(frozen=True, slots=True)
class Guessed(Entry):
    kind: ClassVar[str] = "test-guessed.v1"
    outlives_start: ClassVar[bool] = False
    place: str


@dataclass(frozen=True, slots=True)
class DoDig(Work[Dug]):
    kind: ClassVar[str] = "test-dig.v1"
    name: str

    async def perform(self, effects: Effects, view: JobView) -> Done[Dug]:
        return Done(Dug(self.name))


@dataclass(frozen=True, slots=True)
class SendVote(Transaction[Never]):
    kind: ClassVar[str] = "test-word.v1"
    name: str

    async def perform(self, effects: Effects, view: JobView) -> Done[Never]:
        return Done(block=1)


DIG, WORD = key_of(DoDig, "a"), key_of(SendVote, "a")
VIEW = Network().view


def stepping(*wanted: AnyCommand) -> tuple[State[tuple[AnyCommand, ...]], list[Order]]:
    state = State(address("me"), wanted, VIEW, Head(100, 1000))
    return moved(state, HeadAdvanced(Head(100, 1000)))


def moved(
    state: State[tuple[AnyCommand, ...]], *events: Event
) -> tuple[State[tuple[AnyCommand, ...]], list[Order]]:
    return advance(state, events, lambda s: [Decision("all", "wanted", s.setup)])


def test_a_command_is_given_once_while_it_is_under_way() -> None:
    state, given = stepping(DoDig("a"))
    assert given == [DoDig("a")]
    assert moved(state, HeadAdvanced(Head(101, 1001)))[1] == []


def test_what_came_at_once_is_decided_once_and_as_after_the_last() -> None:
    state, _ = stepping(DoDig("a"), SendVote("a"))
    events = (Failed(WORD, "refused"), Finished(DIG, Dug("hole")), HeadAdvanced(Head(102, 1002)))
    decided: list[int] = []

    def decide(state: State[tuple[AnyCommand, ...]]) -> list[Decision]:
        decided.append(state.now)
        return [Decision("all", "wanted", state.setup)]

    at_once, given = advance(state, events, decide)
    assert decided == [1002]
    assert given == [DoDig("a"), SendVote("a")]
    for event in events:
        state, _ = moved(state, event)
    assert at_once == replace(state, entries=at_once.entries)
    assert at_once.entries.of(DoDig, "a") == state.entries.of(DoDig, "a") == Dug("hole")


def test_what_comes_of_view_and_entries_is_worked_out_once_for_each() -> None:
    asked: list[int] = []

    @by_view_and_entries
    def counts(state: State[tuple[AnyCommand, ...]]) -> int:
        asked.append(len(state.entries))
        return len(asked)

    state, _ = stepping()
    assert counts(state) == counts(replace(state, head=Head(101, 1001))) == 1
    other = replace(state, entries=Entries().plus("a", Dug("a")))
    assert counts(other) == 2
    assert counts(replace(state, view=replace(VIEW))) == 3
    assert (counts(state), counts(other)) == (1, 2)
    for _ in range(REMEMBERED + 1):  # what was asked for longest ago goes
        last = counts(replace(state, entries=Entries()))
    assert counts(state) == last + 1


def test_two_duties_that_want_one_effect_get_it_once() -> None:
    _, given = stepping(DoDig("a"), DoDig("a"))
    assert given == [DoDig("a")]


def test_a_finished_command_leaves_its_entries() -> None:
    state, _ = stepping(DoDig("a"))
    state, given = moved(replace(state, setup=()), Finished(DIG, Dug("hole")))
    assert given == []
    assert state.entries.of(DoDig, "a") == Dug("hole")
    assert state.in_flight == {}


def test_keys_tell_kinds_and_what_they_are_about_apart() -> None:
    assert DoDig("a").key == DIG == "test-dig.v1:a"
    assert DIG != WORD
    assert key_of(DoDig, 1, Digest(b"\x0f" * 32), Role.VERIFIER, None, (1, 2)) == (
        f"test-dig.v1:1:{'0f' * 32}:1:None:1,2"
    )


def test_a_restart_believes_what_outlives_it() -> None:
    entries = Entries().plus("lasting", Dug("a")).plus("passing", Guessed("b"))
    assert [*entries.after_restart().all_of(Entry)] == [Dug("a")]


def test_a_failed_command_is_given_again_after_a_pause_that_grows() -> None:
    state, _ = stepping(SendVote("a"))
    state, given = moved(state, Failed(WORD, "refused"))
    assert given == []
    assert moved(state, HeadAdvanced(Head(101, 1001)))[1] == []
    state, given = moved(state, HeadAdvanced(Head(102, 1002)))
    assert given == [SendVote("a")]
    state, _ = moved(state, Failed(WORD, "refused"))
    assert moved(state, HeadAdvanced(Head(103, 1005)))[1] == []
    assert moved(state, HeadAdvanced(Head(103, 1006)))[1] == [SendVote("a")]


def test_a_transaction_is_not_repeated_before_its_block_is_in_the_view() -> None:
    state, _ = stepping(SendVote("a"))
    state, given = moved(state, Finished(WORD, block=105))
    assert given == []
    assert moved(state, ViewChanged(VIEW, 104))[1] == []
    assert moved(state, ViewChanged(VIEW, 105))[1] == [SendVote("a")]


def test_how_far_the_view_goes_is_told_with_it() -> None:
    state, _ = moved(stepping(SendVote("a"))[0], ViewChanged(VIEW, 104, None, 1_040))
    assert (state.block, state.block_time, state.now) == (104, 1_040, 1_000)


def test_work_nobody_wants_any_more_is_cancelled_and_transactions_are_not() -> None:
    state, _ = stepping(DoDig("a"), SendVote("b"))
    state, given = moved(replace(state, setup=()), HeadAdvanced(Head(101, 1001)))
    assert given == [Cancel(DIG)]
    assert set(state.in_flight) == {key_of(SendVote, "b")}


def test_an_order_is_remembered_until_the_next_one() -> None:
    state, _ = stepping()
    state, _ = moved(state, Ordered("is paused, as ordered"))
    assert state.sits_out == "is paused, as ordered"
    assert moved(state, Ordered(""))[0].sits_out == ""


def test_what_is_too_early_is_given_again_at_the_named_time() -> None:
    state, _ = stepping(SendVote("a"))
    state, given = moved(state, Failed(WORD, "too early", due_at=1500))
    assert given == []
    state, given = moved(state, HeadAdvanced(Head(200, 1499)))
    assert given == []
    state, given = moved(state, HeadAdvanced(Head(201, 1500)))
    assert given == [SendVote("a")]
    state, _ = moved(state, Failed(WORD, "too early", due_at=1400))
    state, given = moved(state, HeadAdvanced(Head(202, 1501)))
    assert given == []
    _, given = moved(state, HeadAdvanced(Head(203, 1502)))
    assert given == [SendVote("a")]


def test_a_failure_of_what_nobody_wants_any_more_is_forgotten_after_a_while() -> None:
    """Else it would be told as a fault for ever; a decision that comes and goes forgets nothing."""
    state, _ = stepping(DoDig("a"))
    state, _ = moved(state, Failed(DIG, "no spade"))
    idle = replace(state, setup=())
    free = HeadAdvanced(Head(101, state.holds[DIG].until_time))
    later = HeadAdvanced(Head(102, state.holds[DIG].until_time + LONGEST_RETRY_SECONDS))
    assert set(moved(idle, free)[0].holds) == {DIG}
    assert moved(idle, later)[0].holds == {}
    assert set(moved(state, later)[0].holds) == {DIG}


def test_what_was_sent_in_vain_is_known_for_good() -> None:
    """By it, what is refused for ever comes after what was not asked for yet."""
    state, _ = stepping(SendVote("a"))
    state, _ = moved(state, Finished(WORD, None, 101))
    later = HeadAdvanced(Head(900, 900_000))
    assert moved(replace(state, setup=(), block=900), later)[0].holds[WORD].until_block == 101
