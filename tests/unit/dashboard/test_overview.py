"""The first screen's numbers: what is trained, how fast, until when, for how much, by which seat.

Each is held against the SDK's own: the quote's, the history's, the ledger's, the manifest's.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.support.manifests import make_manifest, make_terms
from tests.unit.dashboard.jobs import LIAR, document_of, finished, items_of, ledger_of, names_of
from tests.unit.dashboard.scripted import GAS, PRICE, ScriptedClient, gas_of
from tests.unit.protocol.script import PROVIDERS, Script

from atoll.chain.deployment import Deployment
from atoll.dashboard.fees import Fees
from atoll.dashboard.network_document import DAY, days_of
from atoll.dashboard.reader import Reader
from atoll.job.ledger.history_rows import round_history, seat_history
from atoll.job.ledger.overview import Beside, GasSpent
from atoll.job.quote import Quote
from atoll.job.quote_summary import MILLION, million_wei, trained_tokens, training_share
from atoll.job.verification import expected_fees
from atoll.numerics.state_layout import param_count
from atoll.protocol.clocks import AuditClock, last_audits
from atoll.protocol.pay import budget
from atoll.protocol.task_spec import TaskSpec
from atoll.protocol.types import TOKEN
from atoll.storage.cid import cid_text


@pytest.fixture(scope="module")
def ended() -> Script:
    return finished()


@pytest.fixture(scope="module")
def told(ended: Script) -> dict[str, Any]:
    return document_of(ended, names=names_of(ended))


# --- what ---


def test_what_is_trained_is_the_manifests() -> None:
    manifest = make_manifest()
    what = document_of(finished(), beside=Beside(manifest, sources=("hf://x/y@1",)))["what"]
    assert what["name"] == manifest.name
    assert what["parameters"] == what["trained_parameters"] == param_count(manifest.model)
    assert (what["layers"], what["width"]) == (manifest.model.layers, manifest.model.width)
    assert what["train_tokens"] == manifest.data.train_tokens
    assert what["train_cid"] == cid_text(manifest.data.cid)
    assert what["sources"] == ["hf://x/y@1"]
    words = " ".join(line["text"] for line in what["method"])
    for word in (manifest.inner.optimizer, manifest.codec.kind, manifest.robust.rule):
        assert word in words
    assert f"{manifest.inner.steps} steps of {manifest.inner.batch} sequences" in words


def test_what_its_submitter_says_is_the_manifests(ended: Script) -> None:
    said = make_manifest().model_copy(update={"about": "Stories of a reef."})
    for manifest, about in ((said, "Stories of a reef."), (make_manifest(), None)):
        assert document_of(ended, beside=Beside(manifest=manifest))["what"]["about"] == about


def test_a_manifest_that_nobody_serves_is_left_out(told: dict[str, Any]) -> None:
    assert told["what"] is None


# --- how fast, until when ---


def test_progress_is_the_historys(ended: Script, told: dict[str, Any]) -> None:
    history = round_history(ledger_of(ended), [])
    progress, first = told["progress"], history[0].started
    assert [point["merged"] for point in progress] == [0, 1, 2]
    for point, row in zip(progress[1:], history, strict=True):
        assert point["tokens"] == row.total_tokens
        assert int(point["cost_wei"]) == round(row.total_cost * TOKEN)
    ends = [settled.clock.settled_at - first for settled in ended.net.view.settled]
    assert [point["seconds"] for point in progress] == [0, *ends]


def test_speed_is_tokens_by_the_chains_seconds(ended: Script, told: dict[str, Any]) -> None:
    speed, last = told["speed"], told["progress"][-1]
    assert speed["tokens"] == last["tokens"] == sum(m["tokens"] for m in told["members"])
    assert speed["tokens_per_second"] == last["tokens"] / last["seconds"]
    assert speed["planned_tokens"] == trained_tokens(ended.net.terms)
    assert speed["trained_by"] == ended.net.view.settled[-1].clock.settled_at
    assert speed["final_by"] == ended.net.view.settled[-1].clock.window_end
    assert not speed["is_training"]


def test_of_a_job_that_trains_the_end_goes_by_its_pace() -> None:
    script = Script.ready(make_terms(rounds=10))
    for _ in range(3):
        script.honest_round()
        script.net.wait(7)
    document = document_of(script)
    speed, view = document["speed"], script.net.view
    settled = [item.clock.settled_at for item in view.settled]
    pace = (settled[-1] - document["rounds"][0]["started"]) / 3
    assert speed["seconds_a_round"] == pace
    assert speed["trained_by"] == max(script.net.now, round(settled[-1] + 7 * pace))
    terms = script.net.terms
    audits = last_audits(terms.seats, terms.min_verifiers)
    behind = AuditClock.of(terms, 0, audits=audits).window_end
    assert speed["final_by"] == speed["trained_by"] + behind
    assert speed["ends_at_most"] == terms.expiry


def test_before_the_first_settled_round_nothing_is_estimated() -> None:
    speed = document_of(Script.ready())["speed"]
    assert (speed["trained_by"], speed["tokens_per_second"], speed["tokens"]) == (None, None, 0)


def test_the_phases_own_deadline_is_the_open_rounds() -> None:
    script = Script.ready()
    script.honest_round()
    job = document_of(script)["job"]
    assert script.net.view.open is not None
    assert job["deadline"] == script.net.view.open.deadline != 0


# --- for how much ---


def test_prices_at_most_are_the_quotes(ended: Script, told: dict[str, Any]) -> None:
    terms, price = ended.net.terms, told["price"]
    trained = terms.rounds * terms.seats * terms.segments * terms.segment_pay
    look = cast(Quote, _Look(budget(terms), trained, expected_fees(terms)))
    assert int(price["budget_wei"]) == budget(terms)
    assert int(price["million_wei"]) == million_wei(terms, look)
    assert price["planned_training_share"] == pytest.approx(float(training_share(look)), abs=1e-15)


def test_what_was_earned_is_the_ledgers(ended: Script, told: dict[str, Any]) -> None:
    price, money = told["price"], told["money"]
    # All is claimed: what was earned was paid, or burnt by the slash.
    assert int(price["earned_wei"]) == int(money["paid_wei"]) + int(money["burnt_wei"])
    for_training = int(money["paid_for_wei"]["training"]) + int(money["burnt_wei"])
    assert int(price["training_wei"]) == for_training
    fees = int(money["paid_for_wei"]["signatures"]) + int(money["paid_for_wei"]["audits"])
    assert int(price["verification_wei"]) == fees
    assert price["training_share"] + price["verification_share"] == pytest.approx(1.0)
    tokens = told["speed"]["tokens"]
    assert int(price["earned_million_wei"]) == int(price["earned_wei"]) * MILLION // tokens


class _Look:
    """What of a quote prices are made of."""

    def __init__(self, budget_wei: int, training_wei: int, verification_wei: int) -> None:
        self.budget_wei, self.training_wei = budget_wei, training_wei
        self.verification_wei = verification_wei


# --- by seat ---


def test_seats_sums_are_those_of_their_history(ended: Script, told: dict[str, Any]) -> None:
    tokens, seconds, paid = defaultdict(int), defaultdict(int), defaultdict(float)
    for row in seat_history(ledger_of(ended)):
        tokens[row.seat] += row.tokens
        seconds[row.seat] += row.seconds or 0
        paid[row.seat] += row.paid
    whole = sum(row.seconds for row in round_history(ledger_of(ended), []))
    for seat, entry in enumerate(told["seats"]):
        assert (entry["seat"], entry["name"]) == (seat, f"provider {seat}")
        assert entry["account"] == PROVIDERS[seat]
        assert entry["tokens"] == tokens[seat]
        assert int(entry["paid_wei"]) / TOKEN == pytest.approx(paid[seat])
        assert entry["utilisation"] == seconds[seat] / whole
        assert sum(int(r["paid_wei"]) for r in entry["rounds"]) == int(entry["paid_wei"])
    assert told["seats"][LIAR]["tokens"] == 0
    assert [r["segments"] for r in told["seats"][2]["rounds"]] == [ended.net.terms.segments, 0]


def test_a_seats_distances_are_those_that_were_measured(ended: Script) -> None:
    measured = {(0, 1): 1.25, (1, 0): 0.5}
    seats = document_of(ended, beside=Beside(distances=measured))["seats"]
    for seat in seats:
        for row in seat["rounds"]:
            assert row["distance"] == measured.get((row["round"], seat["seat"]))
    assert [row["distance"] for row in seats[1]["rounds"]] == [1.25, None]


# --- gas ---


async def test_gas_is_that_of_the_receipts(ended: Script) -> None:
    client, fees, ledger = ScriptedClient(ended), Fees(), ledger_of(ended)
    count = len({item.transaction for item in ledger.items})
    first = await fees.of(client, ledger, 5)
    assert first == GasSpent(count, 5, 5 * GAS, 5 * GAS * PRICE)
    assert await fees.of(client, ledger) == gas_of(ended)
    client.is_silent = True  # known ones are not asked for again
    assert await fees.of(client, ledger) == gas_of(ended)


async def test_a_receipt_that_no_endpoint_has_is_asked_for_again(ended: Script) -> None:
    client, fees, ledger = ScriptedClient(ended, is_silent=True), Fees(), ledger_of(ended)
    assert (await fees.of(client, ledger)).counted == 0
    client.is_silent = False
    assert await fees.of(client, ledger) == gas_of(ended)


# --- what the reader adds ---


async def test_names_explorer_and_manifest_come_with_the_document(ended: Script) -> None:
    names = dict(names_of(ended))
    deployment = Deployment(31337, 0, {}, "https://explorer.example", names)
    client = ScriptedClient(ended, manifest=make_manifest(), deployment=deployment)
    reader = Reader(client.as_client)
    document = await reader.job(ended.net.job)
    assert document["explorer"] == "https://explorer.example"
    assert document["what"]["name"] == make_manifest().name
    assert {m["name"] for m in document["members"]} <= set(names.values())
    network = await reader.network()
    assert network["jobs"][0]["name"] == make_manifest().name
    assert network["explorer"] == document["explorer"]
    assert (await reader.member(PROVIDERS[0]))["name"] == "provider 0"


async def test_the_newest_model_is_asked_once(ended: Script) -> None:
    client = ScriptedClient(ended, manifest=make_manifest())
    reader = Reader(client.as_client, prompt="Once")
    for _ in range(2):
        sample = (await reader.job(ended.net.job))["sample"]
        assert sample == {"prompt": "Once", "text": "and 1", "merged": 2}
    assert client.prompts == ["Once"]
    assert (await Reader(client.as_client).job(ended.net.job))["sample"] is None


async def test_a_model_that_nobody_serves_writes_nothing(ended: Script) -> None:
    reader = Reader(ScriptedClient(ended).as_client, prompt="Once")
    assert (await reader.job(ended.net.job))["sample"] is None


async def test_a_served_page_does_not_wait_for_what_a_model_writes(ended: Script) -> None:
    client = ScriptedClient(ended, manifest=make_manifest())
    reader = Reader(client.as_client, prompt="Once", waits=False)
    assert (await reader.job(ended.net.job))["sample"] is None
    await asyncio.gather(*reader._asking.values())
    assert (await reader.job(ended.net.job))["sample"]["text"] == "and 1"


async def test_distances_are_measured_where_they_are_asked_for(ended: Script) -> None:
    """Once a settled round; a page that others wait for has them a document later."""
    client = ScriptedClient(ended, manifest=make_manifest())
    assert _distances(await Reader(client.as_client).job(ended.net.job)) == []
    served = Reader(client.as_client, waits=False, measures=True)
    assert _distances(await served.job(ended.net.job)) == []
    await asyncio.gather(*served._measuring.values())
    told = _distances(await served.job(ended.net.job))
    assert told == [1 + seat / 4 for seat in (0, 1, 2, 3) for _ in range(1 if seat == 2 else 2)]
    assert not served._measuring  # all is measured
    written = Reader(ScriptedClient(ended, manifest=make_manifest()).as_client, measures=True)
    assert _distances(await written.job(ended.net.job)) == told


async def test_rewards_are_counted_once_a_round_of_a_job_that_learns_by_them(
    ended: Script,
) -> None:
    task = TaskSpec.model_construct(prompts=3, group=2, new_tokens=4, rewards=())
    client = ScriptedClient(ended, manifest=make_manifest())
    reader = Reader(client.as_client)
    job = ended.net.job
    assert (await reader.job(job))["what"]["task"] is None
    assert client.counted == []
    client.manifest = make_manifest().model_copy(update={"task": task})
    reader = Reader(client.as_client)
    for _ in range(2):
        document = await reader.job(job)
    assert document["what"]["task"] == {"prompts": 3, "group": 2, "new_tokens": 4, "rewards": []}
    assert client.counted == [len(ended.net.view.settled)]


def _distances(document: dict[str, Any]) -> list[float]:
    rows = [row["distance"] for seat in document["seats"] for row in seat["rounds"]]
    return [distance for distance in rows if distance is not None]


# --- a network's days ---


async def test_a_days_sums_are_those_of_the_jobs_and_the_stakes(ended: Script) -> None:
    network = await Reader(ScriptedClient(ended).as_client).network()
    days, job = network["days"], network["jobs"][0]
    assert [day["day"] % 86_400 for day in days] == [0] * len(days)
    assert sum(day["tokens"] for day in days) == job["tokens"] == network["sums"]["tokens"]
    assert sum(int(day["paid_wei"]) for day in days) == int(job["paid_wei"])
    slashed = sum(int(member["slashed_wei"]) for member in network["members"])
    assert sum(int(day["slashed_wei"]) for day in days) == slashed > 0
    assert network["sums"]["rounds"] == job["settled_rounds"] == 2


def test_days_without_anything_are_listed_between_others() -> None:
    script = finished()
    items = items_of(script)
    late = replace(items[-1].block, timestamp=items[-1].block.timestamp + 3 * DAY)
    paid = next(item for item in items if type(item.event).__name__ == "Claimed")
    days = days_of({script.net.job: script.net.view}, [*items, replace(paid, block=late)])
    assert [day["day"] - days[0]["day"] for day in days] == [0, DAY, 2 * DAY, 3 * DAY]
    assert days[1] == {"day": days[0]["day"] + DAY, "tokens": 0, "rounds": 0,
                       "paid_wei": "0", "slashed_wei": "0"}  # fmt: skip
