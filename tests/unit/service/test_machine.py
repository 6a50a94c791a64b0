"""The step that both machines share: what is wanted and not under way is given, once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.unit.law.factories import ScriptedJob, address, make_manifest

from atoll.service.commands import Transaction, Work
from atoll.service.journal import Fact
from atoll.service.machine import (
    Cancel,
    Command,
    Decision,
    Drain,
    Event,
    Failed,
    Finished,
    Head,
    HeadAdvanced,
    State,
    ViewChanged,
    advance,
)


@dataclass(frozen=True, slots=True)
class DoDig(Work):
    key: str


@dataclass(frozen=True, slots=True)
class SendWord(Transaction):
    key: str


@dataclass(frozen=True, slots=True)
class Dug(Fact):
    place: str

    @property
    def key(self) -> str:
        return self.place


VIEW = ScriptedJob(make_manifest()).view


def stepping(*wanted: Command) -> tuple[State[tuple[Command, ...]], list[Command]]:
    state = State(address("me"), wanted, VIEW, Head(100, 1000))
    return moved(state, HeadAdvanced(Head(100, 1000)))


def moved(
    state: State[tuple[Command, ...]], event: Event
) -> tuple[State[tuple[Command, ...]], list[Command]]:
    return advance(state, event, lambda s: [Decision("all", "wanted", s.setup)])


def test_a_command_is_given_once_while_it_is_under_way() -> None:
    state, given = stepping(DoDig("a"))
    assert given == [DoDig("a")]
    assert moved(state, HeadAdvanced(Head(101, 1001)))[1] == []


def test_two_duties_that_want_one_effect_get_it_once() -> None:
    _, given = stepping(DoDig("a"), DoDig("a"))
    assert given == [DoDig("a")]


def test_a_finished_command_leaves_its_facts() -> None:
    state, _ = stepping(DoDig("a"))
    state, given = moved(replace(state, setup=()), Finished("a", (Dug("hole"),)))
    assert given == []
    assert state.facts.get(Dug, "hole") == Dug("hole")
    assert state.in_flight == {}


def test_a_failed_command_is_given_again_after_a_pause_that_grows() -> None:
    state, _ = stepping(SendWord("a"))
    state, given = moved(state, Failed("a", "refused"))
    assert given == []
    assert moved(state, HeadAdvanced(Head(101, 1001)))[1] == []
    state, given = moved(state, HeadAdvanced(Head(102, 1002)))
    assert given == [SendWord("a")]
    state, _ = moved(state, Failed("a", "refused"))
    assert moved(state, HeadAdvanced(Head(103, 1005)))[1] == []
    assert moved(state, HeadAdvanced(Head(103, 1006)))[1] == [SendWord("a")]


def test_data_that_nobody_has_is_remembered_until_it_comes() -> None:
    state, _ = stepping(DoDig("a"))
    state, _ = moved(state, Failed("a", "nobody", not_found=True))
    assert state.is_missing("a")
    state, _ = moved(state, HeadAdvanced(Head(102, 1002)))
    assert state.is_missing("a")
    state, _ = moved(state, Finished("a"))
    assert not state.is_missing("a")


def test_a_transaction_is_not_repeated_before_its_block_is_in_the_view() -> None:
    state, _ = stepping(SendWord("a"))
    state, given = moved(state, Finished("a", block=105))
    assert given == []
    assert moved(state, ViewChanged(VIEW, 104))[1] == []
    assert moved(state, ViewChanged(VIEW, 105))[1] == [SendWord("a")]


def test_work_nobody_wants_any_more_is_cancelled_and_transactions_are_not() -> None:
    state, _ = stepping(DoDig("a"), SendWord("b"))
    state, given = moved(replace(state, setup=()), HeadAdvanced(Head(101, 1001)))
    assert given == [Cancel("a")]
    assert set(state.in_flight) == {"b"}


def test_asking_to_drain_is_remembered() -> None:
    state, _ = stepping()
    assert moved(state, Drain())[0].draining


def test_what_is_too_early_is_given_again_at_the_named_time() -> None:
    state, _ = stepping(SendWord("a"))
    state, given = moved(state, Failed("a", "too early", due_at=1500))
    assert given == []
    state, given = moved(state, HeadAdvanced(Head(200, 1499)))
    assert given == []
    state, given = moved(state, HeadAdvanced(Head(201, 1500)))
    assert given == [SendWord("a")]
    state, _ = moved(state, Failed("a", "too early", due_at=1400))
    state, given = moved(state, HeadAdvanced(Head(202, 1501)))
    assert given == []
    _, given = moved(state, HeadAdvanced(Head(203, 1502)))
    assert given == [SendWord("a")]
