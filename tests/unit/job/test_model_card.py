"""The model card: what the Hub reads, and every number where it is from."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import yaml
from tests.support.manifests import make_manifest, make_terms
from tests.unit.dashboard.jobs import ledger_of
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, Script

from atoll.job.figures import RoundFigures
from atoll.job.model_card import Labels, Origin, facts, model_card
from atoll.protocol.events import Missed
from atoll.protocol.losses import loss_bytes
from atoll.protocol.types import HolderId, MissedDuty, Role, RoundIndex

FIGURES = [
    RoundFigures(0, None, loss_bytes(5.5)),
    RoundFigures(1, loss_bytes(5.25), before=5.5),
]
_CUT = (RoundIndex(0), MissedDuty.SEAT, 5 * 10**17)


@pytest.fixture
def origin() -> Origin:
    """A job of one settled round, in which seat 3 was slashed for another thing than it said."""
    script = Script.ready(make_terms(rounds=1))
    net, round = script.net, script.honest_round()
    for id in script.auditors(round):
        mismatch = {3: 5} if 3 in net.duties(round, id) else None
        script.audit_report(round, id, script.body(round, id, mismatch))
    net.wait_until(net.settled[round].ends["audit"])
    for id in script.auditors(round):
        script.open(round, id)
    net.slash(Role.PROVIDER, net.at(Role.PROVIDER, 3, 0).id, VERIFIERS[0], 0)
    labels = Labels("apache-2.0", "Qwen/Qwen3-0.6B")
    missed = Missed(net.job, PROVIDERS[2], Role.PROVIDER, HolderId(3), *_CUT)
    return Origin(ledger_of(script, missed), make_manifest(), 1, FIGURES, labels)


def test_the_hub_reads_its_front_matter(origin: Origin) -> None:
    _, front, _ = model_card(origin).split("---\n", 2)
    read = yaml.safe_load(front)
    told = facts(origin)
    assert read["license"] == "apache-2.0"
    assert read["base_model"] == "Qwen/Qwen3-0.6B"
    assert read["datasets"] == [told["data"]["train_cid"]]
    assert "atoll" in read["tags"]


def test_what_came_from_the_hub_has_its_name_and_its_commit(origin: Origin) -> None:
    source = "hf://datasets/bob/lines@" + "b" * 40
    labels = Labels("mit", "ann/tiny", ("bob/lines",), (source,))
    card = model_card(replace(origin, labels=labels))
    _, front, text = card.split("---\n", 2)
    assert yaml.safe_load(front)["datasets"][0] == "bob/lines"
    assert f"| from the Hub, says the submitter | {source} |" in text


def test_what_no_manifest_says_is_not_made_up(origin: Origin) -> None:
    plain = Origin(origin.ledger, origin.manifest, 1, ())
    _, front, _ = model_card(plain).split("---\n", 2)
    read = yaml.safe_load(front)
    assert read["license"] == "unknown"
    assert "base_model" not in read


def test_the_tables_have_the_facts(origin: Origin) -> None:
    view, told = origin.view, facts(origin)
    (settled_round,) = view.settled
    rows = _tables(model_card(origin))
    (model,) = told["rounds"]
    tokens = 3 * view.require_terms().steps * view.require_terms().tokens_per_step
    digest = settled_round.verdict.state.hex()
    assert rows["Model after each round"] == [["0", digest, model["model_cid"], str(tokens)]]
    assert rows["Held-out loss by rounds merged"] == [
        ["0", "5.5", "4016000000000000", "the committee"],
        ["1", "5.25", "4015000000000000", "this machine"],
    ]
    assert rows["Merges: seats of each round"] == [
        ["0", "0, 1, 2, 3", "0, 1, 2, 3", "none", "4 of 4"]
    ]
    assert rows["Audits: seats of each round"] == [["0", "0, 1, 2, 3", "0, 1, 2"]]
    assert {tuple(row[:3]) for row in rows["Accusations"]} == {("0", "3", "5")}
    assert [row[1:] for row in rows["Penalties"]] == [
        [PROVIDERS[3], "a key that it never showed", "100"],
        [PROVIDERS[2], "a missing commit or reveal, or too little work", "0.5"],
    ]


def test_members_are_told_with_what_they_did(origin: Origin) -> None:
    rows = _tables(model_card(origin))["Members"]
    (settled_round,) = origin.view.settled
    whole = str(origin.view.require_terms().steps * origin.view.require_terms().tokens_per_step)
    assert ["provider", PROVIDERS[0], "1", whole, "0"] in rows
    assert ["provider", PROVIDERS[3], "1", "0", "0"] in rows
    audits = sum(len(body.entries) for body in settled_round.opened_reports.values())
    assert sum(int(row[4]) for row in rows if row[0] == "verifier") == audits == 4


def test_a_name_is_one_line_and_no_markup(origin: Origin) -> None:
    name = "a`\n# b"
    manifest = origin.manifest.model_copy(update={"name": name})
    lines = model_card(Origin(origin.ledger, manifest, 1, ())).splitlines()
    assert [line for line in lines if line.startswith("# ")] == ['# `"a\'\\n# b"`']


def test_what_its_submitter_says_is_one_line_and_no_markup(origin: Origin) -> None:
    manifest = origin.manifest.model_copy(update={"about": "for `you`\n# b"})
    card = model_card(Origin(origin.ledger, manifest, 1, ()))
    assert "Its submitter says: `\"for 'you'\\n# b\"`." in card.splitlines()
    assert "Its submitter says" not in model_card(Origin(origin.ledger, origin.manifest, 1, ()))


def _tables(text: str) -> dict[str, list[list[str]]]:
    """The rows of each section's table, without its head."""
    found: dict[str, Any] = {}
    for part in text.split("\n## ")[1:]:
        title, *lines = part.splitlines()
        rows = [re.split(r" \| ", line.strip("| ")) for line in lines if line.startswith("|")]
        if rows:
            found[title] = rows[2:]
    return found
