"""A merge that nobody signs: for how long it goes on, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.support.contracts import Refused
from tests.support.manifests import make_terms
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, Script

from atoll.protocol.clocks import MOST_DRAWS, MOST_REPEATS, draws_of_a_stall, longest_leave
from atoll.protocol.keeper_calls import KeeperCallKind, is_releasable, keeper_calls
from atoll.protocol.types import Phase

PHASE = frozenset({KeeperCallKind.ADVANCE, KeeperCallKind.SETTLE_LATE})


def due(net: Network) -> list[KeeperCallKind]:
    return [each.call for each in keeper_calls(net.view, net.now, PHASE)]


def stalled(votes: Sequence[int]) -> Script:
    """The last committee draw that another one may follow is over; nobody ever signed."""
    script = Script.ready(make_terms(expiry=1_000_000 + 1800 * 86_400))
    net = script.net
    script.train()
    script.say(votes)
    for _ in range(draws_of_a_stall(net.terms) - 1):
        net.wait_until(net.deadline)
        assert due(net) == [KeeperCallKind.ADVANCE]
        net.advance()
        script.say(votes)
    net.wait_until(net.deadline)
    return script


def test_it_goes_on_while_all_stay() -> None:
    net = stalled([0, 1, 2, 3]).net
    assert due(net) == [KeeperCallKind.ADVANCE]
    with pytest.raises(Refused):
        net.settle_late()


def _a_seat(net: Network) -> None:
    net.leave_seat(PROVIDERS[1])


def _a_member(net: Network) -> None:
    net.leave_pool(VERIFIERS[2])


def _the_submitter(net: Network) -> None:
    net.cancel()


@pytest.mark.parametrize("leave", [_a_seat, _a_member, _the_submitter])
def test_it_ends_where_somebody_leaves(leave: Callable[[Network], None]) -> None:
    net = stalled([0, 1, 2]).net
    leave(net)
    assert due(net) == [KeeperCallKind.SETTLE_LATE]
    with pytest.raises(Refused):
        net.advance()
    net.settle_late()
    assert net.view.phase is Phase.CLOSED
    assert net.view.settled[0].pay == 0b1111
    net.wait_until(net.settled[0].ends["window"])
    for holder in net.view.providers.values():
        assert is_releasable(net.view, holder, net.now)


def test_where_most_are_silent_three_more_draws_follow() -> None:
    net = stalled([0]).net
    net.leave_seat(PROVIDERS[1])
    for _ in range(MOST_REPEATS):
        assert due(net) == [KeeperCallKind.ADVANCE]
        net.advance()
        net.wait_until(net.deadline)
    assert due(net) == [KeeperCallKind.SETTLE_LATE]


def test_it_lasts_two_merges_and_a_window() -> None:
    day = 86_400
    terms = make_terms(merge_seconds=100, audit_seconds=day, window_seconds=2 * day)
    window = 3 * day + terms.open_seconds + terms.key_seconds
    assert 0 <= draws_of_a_stall(terms) * 100 - 200 - window < 100
    assert draws_of_a_stall(make_terms(merge_seconds=1, window_seconds=day)) == MOST_DRAWS
    assert longest_leave(terms, 7 * day) - longest_leave(terms, 0) == 6 * 7 * day
