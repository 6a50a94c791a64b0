"""The document of a job: every number is the one that law, ledger and contracts' model give."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.support.manifests import make_terms
from tests.unit.dashboard.jobs import (
    LIAR,
    document_of,
    finished,
    items_of,
    ledger_of,
    names_of,
    play,
    with_strangers,
)
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.job.event_text import describe
from atoll.job.figures import RoundFigures, known
from atoll.job.job_snapshot import JobSnapshot
from atoll.job.ledger import json_document as document_module
from atoll.job.ledger.json_document import job_document, money_document, name_of
from atoll.job.ledger.ledger import Ledger
from atoll.job.ledger.round_rows import round_rows
from atoll.job.ledger.seat_rows import STATES
from atoll.job.signs import Signs
from atoll.protocol import events as ev
from atoll.protocol.losses import loss_bytes, loss_of
from atoll.protocol.types import Role


@pytest.fixture(scope="module")
def ended() -> Script:
    return finished()


@pytest.fixture(scope="module")
def told(ended: Script) -> dict[str, Any]:
    return document_of(ended, names=names_of(ended))


def state_of(document: dict[str, Any], round: int, seat: int) -> str:
    state: str = document["grid"]["rows"][round][seat]["state"]
    return state


def test_it_is_json_and_the_same_from_the_same(ended: Script, told: dict[str, Any]) -> None:
    again = document_of(ended, names=names_of(ended))
    assert json.loads(json.dumps(told)) == told == again


# --- money ---


def test_money_is_that_of_the_ledger_and_of_the_contracts(
    ended: Script, told: dict[str, Any]
) -> None:
    net, money = ended.net, told["money"]
    ledger = ledger_of(ended)
    assert money_document(ledger, name_of(names_of(ended))).items() <= money.items()
    for name, wei in (
        ("funded", net.funded),
        ("paid", net.claimed),
        ("burnt", net.burnt),
        ("refunded", net.refunded),
        ("balance", net.funded - net.claimed - net.burnt - net.refunded),
    ):
        assert int(money[f"{name}_wei"]) == wei
    assert money["faults"] == []
    assert sum(int(row["paid_wei"]) for row in money["accounts"]) == net.claimed
    assert sum(map(int, money["paid_for_wei"].values())) == net.claimed


def test_each_account_is_paid_what_the_contracts_paid_it(
    ended: Script, told: dict[str, Any]
) -> None:
    paid = {event.account: 0 for event, _ in ended.net.log if isinstance(event, ev.Claimed)}
    for event, _ in ended.net.log:
        if isinstance(event, ev.Claimed):
            paid[event.account] += event.amount
    accounts = {row["account"]: int(row["paid_wei"]) for row in told["money"]["accounts"]}
    assert accounts == {account: wei for account, wei in paid.items() if wei}
    for member in told["members"]:
        assert int(member["paid_wei"]) == paid[member["account"]]


def test_what_seats_are_paid_is_what_they_claimed_for(ended: Script, told: dict[str, Any]) -> None:
    net = ended.net
    for seat in range(4):
        shown = [int(row[seat]["paid_wei"]) for row in told["grid"]["rows"]]
        holder = net.at(Role.PROVIDER, seat, 0)
        worth = [net.worth(holder, round) * (round < holder.lost_from) for round in (0, 1)]
        assert shown == worth


def test_a_fault_of_the_ledger_is_told(ended: Script) -> None:
    items = items_of(ended)
    at = next(i for i, item in enumerate(items) if isinstance(item.event, ev.Claimed))
    claimed = items[at].event
    assert isinstance(claimed, ev.Claimed)
    items[at] = replace(items[at], event=replace(claimed, amount=claimed.amount + 1))
    ledger = Ledger.of(ended.net.view, items, ended.net.now)
    (fault,) = job_document(ledger)["money"]["faults"]
    assert "by the law of pay" in fault


def test_what_can_be_claimed_stands_until_it_is() -> None:
    script = Script.ready(make_terms(rounds=1))
    script.audit(script.honest_round())
    net = script.net
    before = document_of(script)["members"]
    net.wait_until(net.settled[0].ends["window"])
    due = {(m["role"], m["index"]): int(m["claimable_wei"]) for m in document_of(script)["members"]}
    assert not any(int(member["claimable_wei"]) for member in before)
    for (role, _), member in net.members.items():
        assert due[role.name.lower(), member.index] == net.worth(member, 0)
    net.claim(Role.PROVIDER, 1, 1)
    (first, *_) = document_of(script)["members"]
    assert (first["claimable_wei"], int(first["paid_wei"])) == ("0", due["provider", 0])


def test_what_bonds_lost_is_told_with_the_reason(ended: Script, told: dict[str, Any]) -> None:
    penalties = [e for e, _ in ended.net.log if isinstance(e, ev.Missed | ev.HolderSlashed)]
    wei = [e.penalty if isinstance(e, ev.Missed) else e.slashed for e in penalties]
    assert [int(loss["wei"]) for loss in told["losses"]] == wei
    assert [loss["slashed"] for loss in told["losses"]] == [
        isinstance(e, ev.HolderSlashed) for e in penalties
    ]
    lost = {m["name"]: int(m["slashed_wei"]) for m in told["members"]}
    assert lost[f"provider {LIAR}"] == ended.net.terms.provider_bond
    assert "missing commit" in next(x["for"] for x in told["losses"] if x["name"] == "provider 2")


# --- rounds ---


def test_rounds_are_those_of_the_ledger(ended: Script, told: dict[str, Any]) -> None:
    rows = round_rows(ledger_of(ended), name_of(names_of(ended)))
    assert len(rows) == 2 and told["rounds"] == rows


def test_phases_took_what_the_chains_clock_says(ended: Script, told: dict[str, Any]) -> None:
    times = {
        (type(item.event), item.event.round): item.block.timestamp
        for item in items_of(ended)
        if isinstance(item.event, ev.RoundOpened | ev.RevealOpened | ev.MergeOpened | ev.Settled)
    }
    for shown in told["rounds"]:
        order = (ev.RoundOpened, ev.RevealOpened, ev.MergeOpened, ev.Settled)
        at = [times[kind, shown["round"]] for kind in order]
        lengths = [later - earlier for earlier, later in pairwise(at)]
        assert [shown["seconds"][name] for name in ("train", "reveal", "merge")] == lengths
        assert (shown["started"], shown["ended"]) == (at[0], at[-1])
    assert told["rounds"][1]["seconds"]["train"] == ended.net.terms.train_seconds


def test_deadlines_are_those_of_the_clock_the_next_one_first() -> None:
    script = Script.ready()
    script.honest_round()
    net, clock = script.net, script.net.view.settled[0].clock
    assert document_of(script)["job"]["deadlines"] == [
        {"text": "round 1: train", "until": net.deadline},
        {"text": "round 0: audit", "until": clock.audit_end},
    ]


def test_where_the_job_stands_is_its_snapshot(ended: Script, told: dict[str, Any]) -> None:
    job, snapshot = told["job"], JobSnapshot.of(ended.net.view, ended.net.now)
    assert (job["status"], job["phase"]) == ("done", "closed")
    assert job.items() >= snapshot.to_json_value().items()
    assert (job["settled_rounds"], job["is_final"]) == (2, True)
    assert (job["seats"], job["model_digest"]) == (4, ended.net.view.model.hex())


# --- the grid ---


def test_a_finished_jobs_grid(ended: Script, told: dict[str, Any]) -> None:
    drawn = ended.net.settled[0].drawn
    for seat in (0, 1, 2):
        assert state_of(told, 0, seat) == ("valid" if seat in drawn else "paid")
    assert [state_of(told, 1, seat) for seat in range(4)] == [
        "valid",
        "partial",
        "missed",
        "slashed",
    ]
    assert state_of(told, 0, LIAR) == "slashed"
    text = told["grid"]["rows"][0][LIAR]["text"]
    assert "Game 1 about it: holder lost." in text and "Not paid." in text
    assert "did not commit in time" in told["grid"]["rows"][1][2]["text"]


def unavailable(script: Script) -> None:
    script.train()
    script.say(has=0b1110)
    script.net.wait(1)
    script.settle()


def in_vain(script: Script) -> None:
    script.train({0: 5})
    script.say()
    script.net.wait(1)
    script.settle(merged=0)


def excluded(script: Script) -> None:
    script.train()
    script.say()
    script.net.wait(1)
    script.settle(excluded={0})


def unrevealed(script: Script) -> None:
    script.net.advance()
    for seat in range(4):
        script.commit(seat)
    for seat in (1, 2, 3):
        script.reveal(seat)
    script.net.wait_until(script.net.deadline)
    script.net.advance()
    script.say(has=0b1110)
    script.net.wait(1)
    script.settle()


def stopped(script: Script) -> None:
    script.net.advance()
    script.net.disagree(PROVIDERS[0])
    for seat in (1, 2, 3):
        script.commit(seat)
    for seat in (1, 2, 3):
        script.reveal(seat)
    script.say(has=0b1110)
    script.net.wait(1)
    script.settle()


@pytest.mark.parametrize(
    ("what", "state", "sentence"),
    [
        (unavailable, "unavailable", "Only 0 of 4 members had its update. Not paid."),
        (in_vain, "partial", "too short to be merged. Nothing was merged, so it earns nothing."),
        (excluded, "excluded", "excluded from the merge: it stood out among the updates. Drawn"),
        (unrevealed, "missed", "did not reveal in time. Not paid."),
        (stopped, "stopped", "stopped: it disagreed, or was slashed. Not paid."),
    ],
)
def test_what_becomes_of_one_seat(
    what: Callable[[Script], None], state: str, sentence: str
) -> None:
    script = Script.ready()
    what(script)
    cell = document_of(script)["grid"]["rows"][0][0]
    assert cell["state"] == state
    for part in sentence.split(". "):
        assert part.rstrip(".") in cell["text"]
    others = {state_of(document_of(script), 0, seat) for seat in (1, 2, 3)}
    assert others <= {"paid", "drawn"}


def test_an_open_accusation_is_seen_before_anybody_is_slashed() -> None:
    script = Script.ready(make_terms(rounds=1))
    round = script.honest_round()
    for id in script.auditors(round):
        mismatch = {LIAR: 2} if LIAR in script.net.duties(round, id) else None
        script.audit_report(round, id, script.body(round, id, mismatch))
    assert state_of(document_of(script), 0, LIAR) == "drawn"
    script.net.wait_until(script.net.settled[round].ends["audit"])
    for id in script.auditors(round):
        script.open(round, id)
    document = document_of(script)
    assert [state_of(document, 0, seat) for seat in range(4)] == [*["valid"] * 3, "mismatch"]
    assert "segment 2 has a mismatch" in document["grid"]["rows"][0][LIAR]["text"]
    play(script, 1, VERIFIERS[0], ends=False)
    (game,) = document_of(script)["games"]
    assert (game["outcome"], len(game["moves"])) == ("open", 4)


def test_a_key_that_is_not_shown_is_seen() -> None:
    script = Script.ready(make_terms(rounds=1))
    net, round = script.net, script.honest_round()
    net.wait_until(net.settled[round].ends["open"])
    script.show_keys(round, [0, 1, 2])
    net.wait_until(net.settled[round].ends["keys"])
    net.report_missing_key(round, 3)
    cell = document_of(script)["grid"]["rows"][0][3]
    assert (cell["state"], cell["paid_wei"]) == ("keyless", "0")


def test_an_open_round_says_who_has_done_what() -> None:
    script = Script.ready()
    script.net.advance()
    script.commit(2)
    assert [state_of(document_of(script), 0, s) for s in range(4)] == [
        "trains", "trains", "committed", "trains",
    ]  # fmt: skip
    for seat in (0, 1, 3):
        script.commit(seat)
    script.reveal(1)
    assert state_of(document_of(script), 0, 1) == "revealed"


def test_a_seat_that_nobody_holds_is_empty() -> None:
    script = Script.ready(make_terms(seats=5))
    script.honest_round()
    assert state_of(document_of(script), 0, 4) == "empty"


def test_each_state_has_a_letter_or_a_look_of_its_own() -> None:
    letters = [letter for letter, _ in STATES.values() if letter]
    assert len(letters) == len(set(letters)) == len(STATES) - 1


def test_evidence_names_the_logs_that_say_it(ended: Script, told: dict[str, Any]) -> None:
    logs = {(item.block.number, item.log_index): item.event for item in items_of(ended)}
    kinds = {"commit": ev.Committed, "reveal": ev.Revealed, "game 1": ev.Challenged}
    for round, row in enumerate(told["grid"]["rows"]):
        for seat, cell in enumerate(row):
            for item in cell["evidence"]:
                if "cid" in item:
                    continue
                event = logs[item["block"], item["log"]]
                assert isinstance(event, kinds.get(item["text"], ev.Opened))
                if not isinstance(event, ev.Challenged):
                    assert event.round == round
                if isinstance(event, ev.Committed | ev.Revealed):
                    assert event.seat == seat


def test_a_long_job_shows_its_newest_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script.ready()
    for _ in range(3):
        script.honest_round()
    whole = document_of(script)["grid"]
    monkeypatch.setattr(document_module, "GRID_CELLS", 8)
    grid = document_of(script)["grid"]
    assert (whole["first"], grid["first"]) == (0, 2)
    assert grid["rows"] == whole["rows"][2:]


# --- losses, safety, games, words ---


def test_losses_are_those_that_committees_signed(ended: Script, told: dict[str, Any]) -> None:
    figures = known(None, ended.net.view)
    assert [item["merged"] for item in told["curve"]] == [0, 1, 2]
    for shown, item in zip(told["curve"], figures, strict=True):
        certified = None if item.certified is None else loss_of(item.certified)
        assert (shown["certified"], shown["own"]) == (certified, None)


def test_a_loss_of_ours_stands_beside_the_certified_one(ended: Script) -> None:
    figures = known(None, ended.net.view)
    figures[2] = replace(figures[2], computed=loss_bytes(2.5))
    figures[1] = replace(figures[1], computed=loss_bytes(1.5), certified=loss_bytes(1.25))
    shown = document_of(ended, figures=figures)["curve"]
    names = ("merged", "certified", "own", "disputed", "held_out_loss")
    assert [shown[2][name] for name in names] == [2, None, 2.5, False, 2.5]
    assert [shown[1][name] for name in names] == [1, 1.25, 1.5, True, 1.5]


def test_a_loss_that_is_no_number_is_none(ended: Script) -> None:
    figures = known(None, ended.net.view)
    figures[2] = replace(figures[2], computed=loss_bytes(float("nan")))
    assert document_of(ended, figures=figures)["curve"][2]["own"] is None


def test_rounds_of_which_too_many_were_slashed_are_told() -> None:
    script = Script.ready()
    script.honest_round()
    assert document_of(script)["unsafe"]["rounds"] == []
    for seat in (0, 1):
        script.net.slash(Role.PROVIDER, script.net.at(Role.PROVIDER, seat, 0).id, WATCHER, 0)
    document = document_of(script)
    assert document["unsafe"] == {"rounds": [0], "safe_before": 0, "safe_digest": None}


def test_what_speaks_against_the_models_is_told(ended: Script) -> None:
    told = document_of(ended)["signs"]
    assert told == Signs.of(ended.net.view).to_json_value()
    assert told["tainted"] == [{"round": 0, "seats": [LIAR]}, {"round": 1, "seats": [LIAR]}]
    assert any("tainted" in line for line in told["lines"])


def test_losses_of_the_page_are_signs_of_it_too() -> None:
    script = Script.ready()
    script.honest_round()
    figures = [RoundFigures(merged, loss_bytes(5.5)) for merged in range(2)]
    told = document_of(script, figures=figures)["signs"]
    assert (told["moved_nothing"], told["tainted"]) == ([0], [])


def test_a_game_is_told_move_by_move(ended: Script, told: dict[str, Any]) -> None:
    (game,) = told["games"]
    own = [i for i in items_of(ended) if getattr(i.event, "id", None) == 1]
    moves = [i for i in own if not hasattr(i.event, "job_id")]
    assert [(m["block"], m["log"]) for m in game["moves"]] == [
        (i.block.number, i.log_index) for i in moves
    ]
    assert [m["is_move"] for m in game["moves"]] == [False, False, True, True, False]
    assert (game["seat"], game["round"], game["segment"]) == (LIAR, 0, 2)
    assert (game["holder"], game["challenger"]) == (f"provider {LIAR}", "verifier 0")
    assert game["outcome"] == "holder lost"


def test_a_game_says_by_which_round_it_came() -> None:
    for through_round, said in ((0, "Game 1 about it: "), (1, "Game 1 about it through round 1: ")):
        document = document_of(finished(through_round))
        (game,) = document["games"]
        assert (game["round"], game["through_round"]) == (0, through_round)
        assert said in json.dumps(document["grid"]["rows"][0][LIAR])


def test_what_happened_is_told_in_order(ended: Script, told: dict[str, Any]) -> None:
    name = name_of(names_of(ended))
    texts = [describe(item.event, name) for item in items_of(ended)]
    assert [line["text"] for line in told["log"]["lines"]] == [text for text in texts if text]
    assert told["log"]["count"] == len(told["log"]["lines"])


def test_what_happens_in_other_jobs_is_not_told(ended: Script, told: dict[str, Any]) -> None:
    items = items_of(ended)
    others = [
        replace(item, event=replace(item.event, job_id=item.event.job_id + 1))  # type: ignore[type-var]
        for item in items
        if hasattr(item.event, "job_id")
    ]
    both = [item for pair in zip(items, others, strict=False) for item in pair]
    both += items[len(others) :]
    ledger = Ledger.of(ended.net.view, both, ended.net.now)
    assert job_document(ledger, name=name_of(names_of(ended))) == told


def test_strangers_words_are_kept_as_they_are() -> None:
    script = with_strangers(finished())
    document = document_of(script)
    urls = {event.account: event.url for event, _ in script.net.log
            if isinstance(event, ev.GatewayAnnounced)}  # fmt: skip
    shown = {m["account"]: m["gateway"] for m in document["members"] if m["gateway"]}
    assert shown == urls


def test_a_cid_that_is_none_is_told_as_bytes() -> None:
    script = Script.ready()
    script.train()
    reveal = next(i for i, (e, _) in enumerate(script.net.log) if isinstance(e, ev.Revealed))
    event, _ = script.net.log[reveal]
    assert isinstance(event, ev.Revealed)
    told = replace(event.reveal, update_cid=b"<b>no</b>")
    running = script.net.view.open
    assert running is not None
    reveals = {**running.reveals, event.seat: replace(running.reveals[event.seat], reveal=told)}
    script.net.view = replace(script.net.view, open=replace(running, reveals=reveals))
    script.say()
    script.net.wait(1)
    script.settle()
    cell = document_of(script)["grid"]["rows"][0][event.seat]
    assert cell["evidence"][0]["cid"] == f"not a CID: {b'<b>no</b>'.hex()}"


def test_a_document_before_any_round_is_whole() -> None:
    document = document_of(Script.ready())
    assert (document["rounds"], document["grid"]["rows"], document["games"]) == ([], [], [])
    assert [m["paid_wei"] for m in document["members"]] == ["0"] * 8
