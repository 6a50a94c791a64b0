"""What `atoll claim` makes of a chain that does not say what games owe."""

from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from atoll.cli.earnings import _due
from atoll.errors import ChainError
from atoll.law.words import Address


async def _owes_five(*_: object, **__: object) -> tuple[int]:
    return (5,)


async def _fails(*_: object, **__: object) -> NoReturn:
    raise ChainError("no endpoint answers")


async def _due_where(read: object) -> list[Any]:
    async def nonce(_: Address) -> int:
        return 7

    calls = SimpleNamespace(collect_bond=lambda account: ("collect", account))
    reader = SimpleNamespace(chain=SimpleNamespace(calls=calls, read=read, nonce=nonce))
    known = SimpleNamespace(views={}, head=SimpleNamespace(timestamp=1))
    return await _due(cast("Any", reader), cast("Any", known), Address("0x" + "11" * 20), None)


async def test_what_games_owe_is_collected() -> None:
    (collect,) = await _due_where(_owes_five)
    assert collect.wei == 5


async def test_a_chain_that_does_not_say_it_is_no_chain_that_owes_nothing() -> None:
    with pytest.raises(ChainError, match="no endpoint"):
        await _due_where(_fails)
