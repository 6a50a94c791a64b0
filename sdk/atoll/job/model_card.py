"""The model card of a result: where it is from, who trained and checked it, and how to check that.

Rule of this file: pure; every number is the chain's, or has whose word it is beside it. Source of
the front matter: https://huggingface.co/docs/hub/model-cards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from atoll.job.delivery import Delivery
from atoll.job.event_text import tokens, words
from atoll.job.figures import RoundFigures, cid_of
from atoll.job.ledger.json_document import losses_document
from atoll.job.ledger.ledger import Ledger
from atoll.job.ledger.round_rows import Row, round_rows
from atoll.job.ledger.work import member_work, signers, tokens_paid, work_done
from atoll.job.signs import Signs
from atoll.protocol.manifest import Manifest
from atoll.protocol.views import JobView
from atoll.storage.cid import cid_text

UNKNOWN_LICENSE = "unknown"
MODEL_CARD, FACTS = "README.md", "card.json"
REWARD_FIGURES = ("reward", "length", "spread", "held_out_reward")
_REWARDS = ("mean reward", "tokens", "groups with an advantage", "held-out reward")
_MERGES = ("round", "revealed", "available", "excluded", "signed by")


@dataclass(frozen=True, slots=True)
class Labels:
    """What a card says that no manifest has: `license`, `base_model` and `datasets` as the Hub
    names them, and as `sources` the commits of the Hub that the job's file names."""

    license: str = UNKNOWN_LICENSE
    base_model: str = ""
    datasets: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


NO_LABELS = Labels()


@dataclass(frozen=True, slots=True)
class Origin:
    """What a card is made of.

    Attributes:
        merged: how many rounds were merged into the model that it is about.
        delivery: of a job's result, how it came about.
    """

    ledger: Ledger
    manifest: Manifest
    merged: int
    figures: Sequence[RoundFigures]
    labels: Labels = NO_LABELS
    delivery: Delivery | None = None

    @property
    def view(self) -> JobView:
        return self.ledger.view


def facts(origin: Origin) -> dict[str, Any]:
    """All that the card says, as JSON has it; amounts are wei as text, rounds count from 0."""
    view, manifest = origin.view, origin.manifest
    data, init = manifest.data, manifest.init
    rounds, delivery = view.settled[: origin.merged], origin.delivery
    certified = rounds[-1].verdict.state if rounds else None
    return {
        "name": manifest.name,
        "about": manifest.about,
        "job": view.job_id,
        "chain_id": view.domain.chain_id,
        "rounds_contract": view.domain.rounds,
        "submitter": view.submitter,
        "status": words(view.status),
        "spec_digest": view.spec_digest.hex(),
        "spec_cid": _cid(view.spec_cid),
        "rounds_merged": origin.merged,
        "rounds_planned": view.require_terms().rounds,
        "model_digest": _hex(certified if delivery is None else delivery.digest),
        "model_cid": _cid(cid_of(view, origin.merged) if delivery is None else delivery.cid),
        "certified_digest": _hex(certified),
        "delivery": None if delivery is None else delivery.to_json_value(),
        "data": {
            "train_cid": _cid(data.cid),
            "train_root": data.root.hex(),
            "train_tokens": data.train_tokens,
            "held_out_cid": _cid(data.eval_cid),
            "tokenizer_cid": _cid(data.tokenizer_cid),
        },
        "sources": list(origin.labels.sources),
        "init": {"seed": init.seed, "cid": _cid(init.cid), "root": _hex(init.root)},
        "rounds": [_round(view, row) for row in round_rows(origin.ledger)[: origin.merged]],
        "members": member_work(work_done(view, rounds)),
        "losses": losses_document(origin.ledger),
        "signs": signs_of(origin).to_json_value(),
        "curve": [item.to_json_value() for item in origin.figures[: origin.merged + 1]],
    }


def signs_of(origin: Origin) -> Signs:
    """What speaks against the model that the card is about; who was merged out of it does not."""
    losses, delivery = [item.bits for item in origin.figures], origin.delivery
    signs = Signs.of(origin.view, losses).after(origin.merged)
    return signs if delivery is None else delivery.signs(signs)


def model_card(origin: Origin) -> str:
    """README.md: the front matter that the Hub reads, and the same facts for people."""
    card = facts(origin)
    return "\n".join([*_front_matter(origin, card), *_head(card), *_tables(card), *_check(card)])


def _round(view: JobView, row: Row) -> dict[str, Any]:
    """As the ledger's document has it, with who signed, and how much is paid for."""
    settled = view.settled[row["round"]]
    tokens_of = tokens_paid(view, settled)
    return row | {
        "signers": signers(view, settled),
        "tokens": sum(tokens_of.values()),
    }


def _front_matter(origin: Origin, card: dict[str, Any]) -> list[str]:
    lines = ["---", f"license: {json.dumps(origin.labels.license)}", "library_name: transformers"]
    lines += ["pipeline_tag: text-generation"]
    lines += (
        [f"base_model: {json.dumps(origin.labels.base_model)}"] if origin.labels.base_model else []
    )
    data = card["data"]
    sets = [*origin.labels.datasets, data["train_cid"], data["held_out_cid"]]
    lines += ["datasets:", *(f"- {json.dumps(name)}" for name in sets if name)]
    return [*lines, "tags:", "- atoll", "- decentralized-training", "---", ""]


def _head(card: dict[str, Any]) -> list[str]:
    # A name is a stranger's text: written as JSON it is one line, and no markup.
    data, init = card["data"], card["init"]
    drawn, given = f"drawn from seed {init['seed']}", f"{init['cid']}, root {init['root']}"
    rows = [
        ("job", f"{card['job']} on chain {card['chain_id']}"),
        ("rounds contract", card["rounds_contract"]),
        ("submitter", card["submitter"]),
        ("specification", f"{card['spec_cid']}, SHA-256 {card['spec_digest']}"),
        ("rounds", f"{card['rounds_merged']} of {card['rounds_planned']} merged"),
        ("status", card["status"]),
        ("model", f"{card['model_cid']}, digest {card['model_digest']}"),
        ("training text", f"{data['train_cid']}, {data['train_tokens']} tokens"),
        ("held-out text", data["held_out_cid"]),
        ("tokenizer", data["tokenizer_cid"]),
        ("first weights", given if init["cid"] else drawn),
        *(("from the Hub, says the submitter", source) for source in card["sources"]),
    ]
    name = json.dumps(card["name"]).replace("`", "'")
    intro = [f"# `{name}`", "", "Trained by strangers with Atoll, and checked by replays.", ""]
    if card["about"] is not None:
        about = json.dumps(card["about"]).replace("`", "'")
        intro += [f"Its submitter says: `{about}`.", ""]
    delivery = card["delivery"]
    if delivery is not None and (delivery["slashed"] or delivery["struck"]):
        intro += [f"Of the result: {delivery['text']}.", ""]
    signs = card["signs"]["lines"]
    if signs:
        intro += ["**What speaks against it:**", "", *(f"- {line}" for line in signs), ""]
    return [*intro, *_table(("what", "which"), rows)]


def _tables(card: dict[str, Any]) -> list[str]:
    models = [(r["round"], r["model_digest"], r["model_cid"], r["tokens"]) for r in card["rounds"]]
    curve = [(c["merged"], c["held_out_loss"], c["bits"], _whose(c)) for c in card["curve"]]
    rewards = [[c["merged"], *(c[name] for name in REWARD_FIGURES)] for c in card["curve"]]
    rewards = [row for row in rewards if any(value is not None for value in row[1:])]
    members = [
        (m["role"], m["account"], m["rounds"], m["tokens"], m["audits"]) for m in card["members"]
    ]
    merges = [
        (
            r["round"],
            *(_listed(r[name]) for name in ("revealed", "available", "excluded")),
            f"{len(r['signers'])} of {len(r['committee'])}",
        )
        for r in card["rounds"]
    ]
    audits = [(r["round"], _listed(r["drawn"]), _listed(r["paid"])) for r in card["rounds"]]
    mismatches = [
        (r["round"], item["seat"], item["segment"], item["account"])
        for r in card["rounds"]
        for item in r["accusations"]
    ]
    penalties = [
        (c["round"], c["account"], c["for"], tokens(int(c["wei"]))) for c in card["losses"]
    ]
    did = ("role", "account", "rounds", "tokens paid for", "seats audited")
    return [
        *_section("Model after each round", ("round", "digest", "CID", "tokens paid for"), models),
        *_section("Held-out loss by rounds merged", ("merged", "nats", "binary64", "by"), curve),
        *(_section("Rewards, as counted here", ("merged", *_REWARDS), rewards) if rewards else ()),
        *_section("Members", did, members),
        *_section("Merges: seats of each round", _MERGES, merges),
        *_section("Audits: seats of each round", ("round", "drawn", "paid"), audits),
        *_section("Accusations", ("round", "seat", "mismatch at", "auditor"), mismatches),
        *_section("Penalties", ("round", "account", "for", "tokens"), penalties),
    ]


def _whose(item: dict[str, Any]) -> str:
    """Who says a loss."""
    if item["computed_here"]:
        return "this machine"
    return "nobody yet" if item["bits"] is None else "the committee"


def _check(card: dict[str, Any]) -> list[str]:
    job = card["job"]
    return [
        "## How to check it",
        "",
        f"`{FACTS}` has these facts for programs. `atoll job logs {job}` tells them from the",
        f"chain, `atoll job status {job} --evaluate` computes the held-out losses again,",
        f"`atoll job checkpoint {job} FOLDER --round R` fetches a round's model and compares its",
        "digest with the one that a committee signed, and",
        f"`atoll job audit {job}` trains seats again and recomputes every merge and all pay.",
        "",
    ]


def _section(title: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    return ["", f"## {title}", "", *(_table(names, rows) if rows else ["None.", ""])]


def _table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    lines = [names, ["---"] * len(names), *rows]
    return [*("| " + " | ".join(map(_cell, line)) + " |" for line in lines), ""]


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def _listed(seats: Sequence[int]) -> str:
    return ", ".join(map(str, seats)) or "none"


def _cid(data: bytes | None) -> str | None:
    return cid_text(data) if data else None


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
