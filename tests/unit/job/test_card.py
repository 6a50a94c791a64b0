"""The model card: what the Hub reads, and every number where it is from."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from tests.unit.law.factories import ScriptedJob, address, make_manifest

from atoll.job.card import Labels, Origin, card, facts
from atoll.job.figures import RoundFigures
from atoll.law.events import Punished
from atoll.law.held_out import loss_bytes
from atoll.law.words import Digest, Offence, RoundIndex

LIAR = address("verifier 2")
FIGURES = [
    RoundFigures(0, None, {LIAR: loss_bytes(5.5)}),
    RoundFigures(1, loss_bytes(5.25), {LIAR: loss_bytes(5.0)}, before=5.5),
]


@pytest.fixture
def origin() -> Origin:
    """A job of one settled round, one of whose members was slashed."""
    job = ScriptedJob(make_manifest())
    job.honest_round()
    slash = Punished(
        job.view.job_id, RoundIndex(0), Offence.SEAT_MISSED, 3, address("provider 3"),
        Digest(bytes(32)), 5 * 10**17,
    )  # fmt: skip
    labels = Labels("apache-2.0", "Qwen/Qwen3-0.6B")
    return Origin(job.view, job.manifest, 1, FIGURES, [slash], labels)


def test_the_hub_reads_its_front_matter(origin: Origin) -> None:
    _, front, _ = card(origin).split("---\n", 2)
    read = yaml.safe_load(front)
    told = facts(origin)
    assert read["license"] == "apache-2.0"
    assert read["base_model"] == "Qwen/Qwen3-0.6B"
    assert read["datasets"] == [told["data"]["train_cid"]]
    assert "atoll" in read["tags"]


def test_what_no_manifest_says_is_not_made_up(origin: Origin) -> None:
    plain = Origin(origin.view, origin.manifest, 1, (), ())
    _, front, _ = card(plain).split("---\n", 2)
    read = yaml.safe_load(front)
    assert read["license"] == "unknown"
    assert "base_model" not in read


def test_the_tables_have_the_facts(origin: Origin) -> None:
    view, told = origin.view, facts(origin)
    (past,) = view.settled
    rows = _tables(card(origin))
    assert past.verdict.merged_digest is not None
    (model,) = told["rounds"]
    digest = past.verdict.merged_digest.hex()
    tokens = str(past.verdict.tokens_total)
    assert rows["Model after each round"] == [["0", digest, model["model_cid"], tokens]]
    assert rows["Held-out loss by rounds merged"] == [
        ["0", "5.5", "4016000000000000", "1"],
        ["1", "5.25", "4015000000000000", "1"],
    ]
    assert ["provider", str(past.seats[0]), "1", str(past.tokens[0])] in rows["Members"]
    assert len(rows["Members"]) == len(past.reveals) + len(past.verifiers)
    assert rows["Audits: seats of each round"] == [["0", "0, 1, 2, 3", "none", "none"]]
    assert rows["Slashed"] == [
        ["0", str(address("provider 3")), "a missing commit or reveal", "0.5"]
    ]
    assert "Reports" not in rows


def test_a_name_is_one_line_and_no_markup(origin: Origin) -> None:
    name = "a`\n# b"
    manifest = origin.manifest.model_copy(update={"name": name})
    lines = card(Origin(origin.view, manifest, 1, (), ())).splitlines()
    assert [line for line in lines if line.startswith("# ")] == ['# `"a\'\\n# b"`']


def test_who_says_another_number_is_named() -> None:
    before, after = FIGURES
    assert before.differing == ()
    assert after.differing == (LIAR,)
    assert after.change == -0.25
    assert f"verifier {LIAR} says 5.0" in after.text()
    assert "5.250000 (-0.250000)" in after.text()


def test_without_our_own_number_most_verifiers_are_believed() -> None:
    said = {address(f"v{i}"): loss_bytes(loss) for i, loss in enumerate([2.0, 3.0, 3.0])}
    assert RoundFigures(1, None, said).loss == 3.0
    assert RoundFigures(1, None, said).differing == (address("v0"),)
    assert RoundFigures(1).loss is None


def _tables(text: str) -> dict[str, list[list[str]]]:
    """The rows of each section's table, without its head."""
    found: dict[str, Any] = {}
    for part in text.split("\n## ")[1:]:
        title, *lines = part.splitlines()
        rows = [re.split(r" \| ", line.strip("| ")) for line in lines if line.startswith("|")]
        if rows:
            found[title] = rows[2:]
    return found
