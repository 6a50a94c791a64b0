"""What `atoll claim` waits for, and makes of a chain that does not say what games owe."""

from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from atoll.cli import earnings_command
from atoll.cli.earnings_command import _due
from atoll.errors import ChainError
from atoll.job.ledger.entries import Line, State
from atoll.job.ledger.statements import Statement
from atoll.protocol.events import BondReturned
from atoll.protocol.owners import Ownership
from atoll.protocol.types import TOKEN, Address, JobId, Role, RoundIndex

ME, OTHER = Address("0x" + "11" * 20), Address("0x" + "22" * 20)


async def _owes_five(*_: object) -> int:
    return 5


async def _fails(*_: object, **__: object) -> NoReturn:
    raise ChainError("no endpoint answers")


async def _due_where(owed: object, payee: Address = ME) -> list[Any]:
    async def ownership(_: Address) -> Ownership:
        return Ownership(ME, payee)

    async def kept(_: Address) -> int:
        return 3 * (payee != ME)

    calls = SimpleNamespace(
        game_withdraw=lambda account: ("bond", account), collect=lambda account: ("kept", account)
    )
    chain = SimpleNamespace(calls=calls, owed_by_games=owed, ownership=ownership, kept=kept)
    sent = [BondReturned(ME, 5), BondReturned(ME, 5), BondReturned(OTHER, 5)]
    known = SimpleNamespace(views={}, head=SimpleNamespace(timestamp=1), events=sent)
    return await _due(cast("Any", SimpleNamespace(chain=chain)), cast("Any", known), ME, None)


async def test_what_games_owe_is_collected() -> None:
    (collect,) = await _due_where(_owes_five)
    assert (collect.wei, collect.key) == (5, f"games:{ME}:2:5")


async def test_what_games_owe_and_what_could_not_be_sent_are_collected() -> None:
    due = await _due_where(_owes_five, OTHER)
    assert [(item.call, item.wei) for item in due] == [
        (("bond", ME), 5),
        (("kept", ME), 3),
    ]


async def test_a_chain_that_does_not_say_it_is_no_chain_that_owes_nothing() -> None:
    with pytest.raises(ChainError, match="no endpoint"):
        await _due_where(_fails)


async def test_who_waits_is_told_for_what_and_until_when(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is earned, then a round's pay is pending, for two looks; then it is there."""
    done = "8 of 8 segments"
    line = Line(RoundIndex(0), Role.PROVIDER, 1, "training", State.PENDING, TOKEN, done, 60)
    none, pending = (Statement(JobId(7), lines, {}, ()) for lines in ((), (line,)))
    looks = [[none], [pending], [pending], [pending]]

    async def look(_: Address) -> Any:
        return SimpleNamespace(statements=lambda account: looks.pop(0))

    async def due(*_: object) -> list[str]:
        return [] if looks[1:] else ["pay"]

    monkeypatch.setattr(earnings_command, "_due", due)
    monkeypatch.setattr(earnings_command, "LOOK_SECONDS", 0.0)
    reader = cast("Any", SimpleNamespace(look=look))
    _, found = await earnings_command._claimable(reader, ME, None, is_patient=True)
    assert found == ["pay"]
    assert capsys.readouterr().err.splitlines() == [
        "waits: the account has earned nothing so far; Ctrl-C ends that",
        "waits: from 1970-01-01 00:01:00 UTC: 1, job 7, training: 8 of 8 segments",
    ]
