"""What `atoll claim` makes of a chain that does not say what games owe."""

from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from atoll.cli.earnings import _due
from atoll.errors import ChainError
from atoll.law.events import BondReturned
from atoll.law.owners import Ownership
from atoll.law.words import Address

ME, OTHER = Address("0x" + "11" * 20), Address("0x" + "22" * 20)


async def _owes_five(*_: object, **__: object) -> tuple[int]:
    return (5,)


async def _fails(*_: object, **__: object) -> NoReturn:
    raise ChainError("no endpoint answers")


async def _due_where(read: object, payee: Address = ME) -> list[Any]:
    async def ownership(_: Address) -> Ownership:
        return Ownership(ME, payee)

    async def kept(_: Address) -> int:
        return 3 * (payee != ME)

    calls = SimpleNamespace(
        collect_bond=lambda account: ("bond", account), collect=lambda account: ("kept", account)
    )
    chain = SimpleNamespace(calls=calls, read=read, ownership=ownership, kept=kept)
    sent = [BondReturned(ME, 5), BondReturned(ME, 5), BondReturned(OTHER, 5)]
    known = SimpleNamespace(views={}, head=SimpleNamespace(timestamp=1), events=sent)
    return await _due(cast("Any", SimpleNamespace(chain=chain)), cast("Any", known), ME, None)


async def test_what_games_owe_is_collected() -> None:
    (collect,) = await _due_where(_owes_five)
    assert (collect.wei, collect.key) == (5, f"games:{ME}:2:5")


async def test_what_games_owe_an_owner_and_what_could_not_be_sent_are_collected() -> None:
    """The bonds that an account put go home to it; its gains and its pay are its payee's."""
    due = await _due_where(_owes_five, OTHER)
    assert [(item.call, item.wei) for item in due] == [
        (("bond", ME), 5),
        (("bond", OTHER), 5),
        (("kept", ME), 3),
    ]


async def test_a_chain_that_does_not_say_it_is_no_chain_that_owes_nothing() -> None:
    with pytest.raises(ChainError, match="no endpoint"):
        await _due_where(_fails)
