"""The model card of a result: where it is from, who trained and checked it, and how to check that.

Rule of this file: pure; every number is the chain's, or has whose word it is beside it. Source of
the front matter: https://huggingface.co/docs/hub/model-cards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from atoll.content.cid import Cid
from atoll.job.figures import RoundFigures
from atoll.job.narrate import OFFENCES, tokens, words
from atoll.law.events import Punished
from atoll.law.manifest import Manifest
from atoll.law.views import JobView, SettledRound
from atoll.law.words import NO_SEGMENT, Address, bits

UNKNOWN_LICENSE = "unknown"
CARD, FACTS = "README.md", "card.json"


@dataclass(frozen=True, slots=True)
class Labels:
    """What a card says that no manifest has: `license` and `base_model` as the Hub names them."""

    license: str = UNKNOWN_LICENSE
    base_model: str = ""


NO_LABELS = Labels()


@dataclass(frozen=True, slots=True)
class Origin:
    """What a card is made of.

    Attributes:
        merged: how many rounds were merged into the model that it is about.
        slashes: every punishment of the job, in order.
    """

    view: JobView
    manifest: Manifest
    merged: int
    figures: Sequence[RoundFigures]
    slashes: Sequence[Punished]
    labels: Labels = NO_LABELS


def facts(origin: Origin) -> dict[str, Any]:
    """All that the card says, as JSON has it; amounts are wei as text, rounds count from 0."""
    view, manifest = origin.view, origin.manifest
    data, init = manifest.data, manifest.init
    rounds = view.settled[: origin.merged]
    return {
        "name": manifest.name,
        "job": view.job_id,
        "chain_id": view.domain.chain_id,
        "rounds_contract": view.domain.rounds,
        "jobs_contract": view.jobs,
        "submitter": view.submitter,
        "status": words(view.state.status),
        "spec_digest": view.spec_digest.hex(),
        "spec_cid": _cid(view.spec_cid),
        "rounds_merged": origin.merged,
        "rounds_planned": view.require_terms().rounds,
        "model_digest": _hex(rounds[-1].verdict.merged_digest if rounds else None),
        "model_cid": _cid(rounds[-1].verdict.merged_cid if rounds else None),
        "data": {
            "train_cid": _cid(data.cid),
            "train_root": data.root.hex(),
            "train_tokens": data.train_tokens,
            "held_out_cid": _cid(data.eval_cid),
            "tokenizer_cid": _cid(data.tokenizer_cid),
        },
        "init": {"seed": init.seed, "cid": _cid(init.cid), "root": _hex(init.root)},
        "rounds": [_round(past, index) for index, past in enumerate(rounds)],
        "members": _members(rounds),
        "slashes": [
            {
                "round": slash.round,
                "account": slash.account,
                "for": OFFENCES[slash.offence],
                "wei": str(slash.amount),
            }
            for slash in origin.slashes
        ],
        "curve": [item.to_plain() for item in origin.figures[: origin.merged + 1]],
    }


def card(origin: Origin) -> str:
    """README.md: the front matter that the Hub reads, and the same facts for people."""
    told = facts(origin)
    return "\n".join([*_front_matter(origin, told), *_head(told), *_tables(told), *_check(told)])


def _round(past: SettledRound, index: int) -> dict[str, Any]:
    verdict, evidence = past.verdict, past.evidence
    return {
        "round": index,
        "model_digest": _hex(verdict.merged_digest),
        "model_cid": _cid(verdict.merged_cid),
        "verdict_hash": past.verdict_hash.hex(),
        "tokens": verdict.tokens_total,
        "accepted": bits(evidence.accepted),
        "rejected": bits(evidence.rejected),
        "unresolved": bits(evidence.unresolved),
        "verifiers": [past.verifiers[i] for i in sorted(past.verifiers)],
        "final": past.is_final,
        "reports": [
            {
                "seat": record.report.seat,
                "segment": None if record.report.segment == NO_SEGMENT else record.report.segment,
                "fault": words(record.report.fault),
                "outcome": words(record.outcome),
                "accused": record.accused,
                "reporter": record.reporter,
            }
            for record in past.reports
        ],
    }


def _members(rounds: Sequence[SettledRound]) -> list[dict[str, Any]]:
    """Everyone who had a part in a settled round, providers first, with what they did."""
    found: dict[tuple[str, Address], dict[str, Any]] = {}

    def member(role: str, account: Address) -> dict[str, Any]:
        plain = {"role": role, "account": account, "rounds": 0, "tokens": 0}
        return found.setdefault((role, account), plain)

    for past in rounds:
        for seat, revealed in sorted(past.reveals.items()):
            who = member("provider", revealed.account)
            who["rounds"] += 1
            who["tokens"] += past.tokens[seat]
    for past in rounds:
        for account in past.verifiers.values():
            member("verifier", account)["rounds"] += 1
    return list(found.values())


def _front_matter(origin: Origin, told: dict[str, Any]) -> list[str]:
    lines = ["---", f"license: {json.dumps(origin.labels.license)}", "library_name: transformers"]
    lines += ["pipeline_tag: text-generation"]
    lines += (
        [f"base_model: {json.dumps(origin.labels.base_model)}"] if origin.labels.base_model else []
    )
    sets = [told["data"]["train_cid"], told["data"]["held_out_cid"]]
    lines += ["datasets:", *(f"- {json.dumps(cid)}" for cid in sets if cid)]
    return [*lines, "tags:", "- atoll", "- decentralized-training", "---", ""]


def _head(told: dict[str, Any]) -> list[str]:
    # A name is a stranger's text: written as JSON it is one line, and no markup.
    data, init = told["data"], told["init"]
    drawn, given = f"drawn from seed {init['seed']}", f"{init['cid']}, root {init['root']}"
    rows = [
        ("job", f"{told['job']} on chain {told['chain_id']}"),
        ("contracts", f"rounds {told['rounds_contract']}, jobs {told['jobs_contract']}"),
        ("submitter", told["submitter"]),
        ("specification", f"{told['spec_cid']}, SHA-256 {told['spec_digest']}"),
        ("rounds", f"{told['rounds_merged']} of {told['rounds_planned']} merged"),
        ("status", told["status"]),
        ("model", f"{told['model_cid']}, digest {told['model_digest']}"),
        ("training text", f"{data['train_cid']}, {data['train_tokens']} tokens"),
        ("held-out text", data["held_out_cid"]),
        ("tokenizer", data["tokenizer_cid"]),
        ("first weights", given if init["cid"] else drawn),
    ]
    name = json.dumps(told["name"]).replace("`", "'")
    intro = [f"# `{name}`", "", "Trained by strangers with Atoll, and checked by replays.", ""]
    return [*intro, *_table(("what", "which"), rows)]


def _tables(told: dict[str, Any]) -> list[str]:
    models = [(r["round"], r["model_digest"], r["model_cid"], r["tokens"]) for r in told["rounds"]]
    curve = [
        (item["merged"], item["held_out_loss"], item["bits"], len(item["verifiers"]))
        for item in told["curve"]
    ]
    members = [(m["role"], m["account"], m["rounds"], m["tokens"]) for m in told["members"]]
    audits = [
        (r["round"], _listed(r["accepted"]), _listed(r["rejected"]), _listed(r["unresolved"]))
        for r in told["rounds"]
    ]
    reports = [
        (r["round"], item["seat"], item["fault"], item["outcome"], item["accused"])
        for r in told["rounds"]
        for item in r["reports"]
    ]
    slashes = [(s["round"], s["account"], s["for"], tokens(int(s["wei"]))) for s in told["slashes"]]
    judged = ("round", "accepted", "rejected", "unresolved")
    accused = ("round", "seat", "fault", "outcome", "accused")
    evaluated = ("merged", "nats a target", "binary64", "verifiers that told it")
    return [
        *_section("Model after each round", ("round", "digest", "CID", "tokens paid for"), models),
        *_section("Held-out loss by rounds merged", evaluated, curve),
        *_section("Members", ("role", "account", "rounds", "tokens accepted"), members),
        *_section("Audits: seats of each round", judged, audits),
        *_section("Reports", accused, reports),
        *_section("Slashed", ("round", "account", "for", "tokens"), slashes),
    ]


def _check(told: dict[str, Any]) -> list[str]:
    job = told["job"]
    return [
        "## How to check it",
        "",
        f"`{FACTS}` has these facts for programs. `atoll job logs {job}` tells them from the",
        f"chain, `atoll job status {job} --evaluate` computes the held-out losses again, and",
        f"`atoll job checkpoint {job} FOLDER --round R` fetches a round's model and compares its",
        "digest with the one that the verifiers signed.",
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
    return None if data is None else str(Cid.from_bytes(data))


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
