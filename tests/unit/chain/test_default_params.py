"""A new network's floors follow from how long its chain may stand still."""

from __future__ import annotations

import pytest

from atoll.chain.default_params import BASE, LONGEST_PAUSE, default_params
from atoll.chain.deployment import DEVELOPMENT_CHAINS
from atoll.chain.supported_chains import SUPPORTED
from atoll.protocol.terms import clock_floors

HOUR = 3_600


@pytest.mark.parametrize(("chain", "hours"), [(1, 1), (10, 12), (BASE, 12), (84532, 12)])
def test_a_side_of_a_game_has_as_long_as_the_chain_may_stand_still(chain: int, hours: int) -> None:
    params = default_params(chain)
    assert (params.min_window, params.min_move) == (60, 60)
    assert params.min_punishable == clock_floors(params)["game_seconds"] == hours * HOUR


@pytest.mark.parametrize("chain", DEVELOPMENT_CHAINS)
def test_on_a_development_chain_a_game_has_ten_moves_of_a_second(chain: int) -> None:
    floors = clock_floors(default_params(chain))
    assert floors.pop("game_seconds") == 10
    assert set(floors.values()) == {1}


def test_no_chain_of_the_table_is_trusted_for_less_than_the_longest_pause_seen() -> None:
    assert all(seconds >= HOUR for seconds in LONGEST_PAUSE.values())
    assert LONGEST_PAUSE[BASE] > 116 * 60  # Base, 2026
    assert LONGEST_PAUSE.keys() | DEVELOPMENT_CHAINS == SUPPORTED.keys()
