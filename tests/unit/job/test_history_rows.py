"""A job's history as rows: they are flat, add up, and are the ledger's numbers."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from tests.unit.dashboard.jobs import document_of, finished, ledger_of
from tests.unit.protocol.script import PROVIDERS, Script

from atoll.job.figures import RoundFigures
from atoll.job.ledger.history_rows import round_history, seat_history
from atoll.job.ledger.work import work_done
from atoll.protocol.losses import loss_bytes
from atoll.protocol.types import TOKEN, Role

FIGURES = [
    RoundFigures(0, loss_bytes(4.0)),
    RoundFigures(1, None, loss_bytes(3.0)),
    RoundFigures(2),
]


@pytest.fixture(scope="module")
def ended() -> Script:
    return finished()


def test_a_round_has_its_loss_before_and_after(ended: Script) -> None:
    first, second = round_history(ledger_of(ended), FIGURES)
    assert (first.loss_before, first.loss) == (4.0, 3.0)
    assert (second.loss_before, second.loss) == (3.0, None)
    assert first.is_settled and second.is_settled
    assert first.phase == "final"


def test_rounds_have_the_ledgers_money_time_and_tokens(ended: Script) -> None:
    ledger, document = ledger_of(ended), document_of(ended)
    rows = round_history(ledger, FIGURES)
    for row, told in zip(rows, document["rounds"], strict=True):
        assert row.cost == int(told["cost_wei"]) / TOKEN
        parts = (row.train_seconds, row.reveal_seconds, row.merge_seconds)
        assert parts == tuple(told["seconds"].values())
        assert row.seconds == sum(parts) > 0
        assert (row.seats, row.revealed) == (len(told["seated"]), len(told["revealed"]))
    view = ended.net.view
    work = work_done(view, view.settled)
    trained = sum(item.tokens for (role, _), item in work.items() if role is Role.PROVIDER)
    assert rows[-1].total_tokens == sum(row.tokens for row in rows) == trained > 0
    assert rows[-1].total_cost == pytest.approx(sum(row.cost for row in rows))


def test_seats_add_up_to_their_rounds(ended: Script) -> None:
    ledger = ledger_of(ended)
    seats, terms = seat_history(ledger), ended.net.terms
    for row in round_history(ledger, FIGURES):
        here = [seat for seat in seats if seat.round == row.round]
        assert [seat.seat for seat in here] == [0, 1, 2, 3]
        assert sum(seat.tokens for seat in here) == row.tokens
    first, late = seats[0], next(s for s in seats if (s.round, s.seat) == (1, 2))
    assert (first.account, first.segments) == (PROVIDERS[0], terms.segments)
    assert first.paid == terms.segments * terms.segment_pay / TOKEN
    assert (late.state, late.tokens, late.seconds, late.paid) == ("missed", 0, None, 0.0)
    assert next(s for s in seats if s.seat == 3).state == "slashed"


def test_a_seats_seconds_are_those_from_the_opening_to_its_commitment() -> None:
    script = Script.ready()
    script.net.advance()
    script.net.wait(7)
    script.commit(2)
    times = {seat.seat: seat.seconds for seat in seat_history(ledger_of(script))}
    assert times == {0: None, 1: None, 2: 7, 3: None}


def test_an_open_round_is_a_row_and_a_void_one_too() -> None:
    script = Script.ready()
    assert (round_history(ledger_of(script), []), seat_history(ledger_of(script))) == ([], [])
    script.net.advance()
    (row,) = round_history(ledger_of(script), FIGURES[:1])
    assert (row.phase, row.is_settled, row.tokens, row.cost) == ("train", False, 0, 0.0)
    assert (row.loss_before, row.loss) == (4.0, None)
    script.net.pass_deadline()
    (row,) = round_history(ledger_of(script), FIGURES[:1])
    assert (row.phase, row.is_settled) == ("void", False)


def test_rows_are_flat_so_that_a_table_has_a_column_a_name(ended: Script) -> None:
    ledger = ledger_of(ended)
    for row in (*round_history(ledger, FIGURES), *seat_history(ledger)):
        kinds = {type(value) for value in asdict(row).values()}
        assert kinds <= {int, float, str, bool, type(None)}
