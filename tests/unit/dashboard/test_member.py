"""The documents of an account, and of a job at each of its moments: the ledger's own numbers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.dashboard.jobs import LIAR, document_of, finished, items_of, ledger_of
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, Script

from atoll.dashboard.member import member_document
from atoll.job.ledger.entries import State
from atoll.job.ledger.statements import statement
from atoll.protocol.types import Address

KINDS = ("funded", "paid", "burnt", "refunded", "taken")
NOBODY = Address("0x" + "77" * 20)


@pytest.fixture(scope="module")
def ended() -> Script:
    return finished()


def document(script: Script, account: Address) -> dict[str, Any]:
    net = script.net
    return member_document(account, {net.job: net.view}, items_of(script), net.now)


@pytest.mark.parametrize("account", [PROVIDERS[0], PROVIDERS[LIAR], VERIFIERS[0]])
def test_an_accounts_amounts_are_those_of_its_statement(ended: Script, account: Address) -> None:
    net, found, ledger = ended.net, document(ended, account), ledger_of(ended)
    told = statement(ledger, account)
    (job,) = found["jobs"]
    assert job["lines"] == [line.to_json_value() for line in told.lines]
    assert job["faults"] == []
    for state in State:
        assert found["sums"][f"{state.name.lower()}_wei"] == str(told.total(state))
    assert int(found["sums"]["paid_wei"]) == sum(ledger.paid(account).values())
    bonds = sum(m.bond for m in net.members.values() if m.account == account)
    assert (int(found["bonds_wei"]), job["holdings"][0]["slashed"]) == (bonds, bonds == 0)


def test_an_account_that_nobody_heard_of_has_an_empty_document(ended: Script) -> None:
    found = document(ended, NOBODY)
    assert (found["jobs"], found["roles"], found["stake_wei"]) == ([], [], "0")
    assert found["log"]["lines"] == []


def test_the_last_moment_has_the_numbers_of_the_whole(ended: Script) -> None:
    told = document_of(ended)
    then, money = told["log"]["lines"][-1]["then"], told["money"]
    assert (then["paid_wei"], then["burnt_wei"]) == (money["paid_wei"], money["burnt_wei"])
    assert (then["funded_wei"], then["refunded_wei"]) == (
        money["funded_wei"],
        money["refunded_wei"],
    )
    assert int(then["taken_wei"]) == sum(int(loss["wei"]) for loss in told["losses"])
    assert (then["settled"], then["games"], then["phase"]) == (2, 0, "closed")


def test_a_game_is_open_from_its_challenge_to_its_end(ended: Script) -> None:
    lines = document_of(ended)["log"]["lines"]
    opened = [line["kind"] for line in lines if line["then"]["games"]]
    assert opened and opened[0] == "Challenged" and "Ended" not in opened
    rounds = [line["then"]["settled"] for line in lines]
    assert rounds == sorted(rounds)


def test_every_amount_has_the_transaction_that_shows_it(ended: Script) -> None:
    told = document_of(ended)
    moves, money = told["money"]["moves"], told["money"]
    txs = {(i.block.number, i.log_index): i.transaction.hex() for i in items_of(ended)}
    assert all(move["tx"] == f"0x{txs[move['block'], move['log']]}" for move in moves)
    sums = {kind: sum(int(m["wei"]) for m in moves if m["kind"] == kind) for kind in KINDS}
    assert sums.pop("taken") == sum(int(loss["wei"]) for loss in told["losses"])
    assert sums == {kind: int(money[f"{kind}_wei"]) for kind in sums}
