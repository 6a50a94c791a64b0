"""Which chains a network is deployed to, and which are refused by name."""

from __future__ import annotations

import pytest

from atoll.chain.supported_chains import SUPPORTED, UNSOUND, check_chain
from atoll.errors import ConfigError


@pytest.mark.parametrize("chain_id", SUPPORTED)
def test_a_chain_of_the_table_is_taken(chain_id: int) -> None:
    check_chain(chain_id)


@pytest.mark.parametrize(("chain_id", "name"), [(42161, "Arbitrum One"), (324, "zkSync Era")])
def test_a_chain_without_sound_randomness_or_code_is_refused_by_name(
    chain_id: int, name: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is not supported: its ") as caught:
        check_chain(chain_id)
    assert "Base (8453)" in str(caught.value.next_step)


def test_a_chain_that_nobody_has_looked_at_is_refused_by_its_number() -> None:
    with pytest.raises(ConfigError, match=r"^chain 56 is not supported"):
        check_chain(56)
    assert not set(SUPPORTED) & set(UNSOUND)
