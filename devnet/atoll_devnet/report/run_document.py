"""report.json: what a run came to.

It is the job's document, which `atoll job history --json` prints and report.html draws, with what
only the run knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

from atoll.job.event_text import through_round
from atoll.job.figures import RoundFigures, known
from atoll.job.ledger.json_document import amounts_document, job_document, name_of
from atoll.job.ledger.ledger import Ledger, winner_of
from atoll.job.ledger.work import Work, work_done
from atoll.protocol.claims import BOND_SHARE
from atoll.protocol.losses import loss_bytes
from atoll.protocol.terms import WHOLE_BPS
from atoll.protocol.types import Role
from atoll.protocol.views import JobView
from atoll_devnet.processes.cluster import Member
from atoll_devnet.report.measured import Metrics, RunResult, measured_document
from atoll_devnet.report.observer import INITIAL


def build_report(result: RunResult) -> dict[str, Any]:
    """The report as plain data, ready to be written as JSON."""
    metrics = {member.name: Metrics.of(member) for member in result.cluster.members}
    name = name_of(result.names)
    document = job_document(result.ledger, figures_of(result), name, result.beside)
    document["money"]["faults"] = result.ledger.faults_against(result.escrow)
    for row in document["rounds"]:
        row["eval_loss"] = _number(result.losses.get(row["round"]))
    return document | {
        "outsiders": _outsiders(result.view),
        "stranger": dict(sorted(result.stranger.items())),
        "chain": {
            "backend": result.cluster.config.backend,
            "chain_id": result.cluster.chain.chain_id,
            "blocks": result.blocks,
        },
        **_members(result, metrics),
        "cheats": [_cheat(member, result) for member in result.cluster.members if member.cheat],
        "eval": _eval(result.losses),
        "measured": measured_document(result, metrics),
        "result_dir": str(result.result_dir) if result.result_dir else None,
    }


def figures_of(result: RunResult) -> list[RoundFigures]:
    """The models' losses, with those that the observer computed where no committee signed any."""
    return [
        replace(item, computed=loss_bytes(result.losses[item.merged - 1]))
        if item.certified is None and item.merged - 1 in result.losses
        else item
        for item in known(None, result.view)
    ]


def write_report(report: Mapping[str, Any], path: Path) -> None:
    """Writes the JSON at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    text = json.dumps(report, indent=2, allow_nan=False)
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)


def slashed_honest(report: Mapping[str, Any]) -> list[str]:
    """Accounts that cheated nowhere and lost stake for a lie: there must be none.

    What a machine was too slow for is a missed duty, which costs an honest party its small penalty.
    """
    parties = (*report["providers"], *report["verifiers"])
    return [p["account"] for p in parties if not p["cheat"] and p["slashed_wei"] != p["missed_wei"]]


def _outsiders(view: JobView) -> dict[str, Any] | None:
    """What anybody can dispute a provider's work for; None where the chain told no parameters.

    The seconds are those from the end of audit reports to the last challenge.
    """
    terms = view.require_terms()
    if view.params is None:
        return None
    return {
        "bond_wei": str(max(1, terms.provider_bond // BOND_SHARE)),
        "wins_wei": str(terms.provider_bond * view.params.winner_share_bps // WHOLE_BPS),
        "seconds": terms.open_seconds + terms.key_seconds + terms.window_seconds,
    }


# --- members ---


def _members(result: RunResult, metrics: Mapping[str, Metrics]) -> dict[str, Any]:
    cluster, work = result.cluster, work_done(result.view, result.view.settled)

    def member(member: Member, role: Role) -> dict[str, Any]:
        return {
            "account": member.account,
            "cheat": member.cheat,
            **work.get((role, member.account), Work()).to_json_value(),
            **_money(member, result.ledger),
        }

    return {
        "providers": [
            {"seat": each.index} | member(each, Role.PROVIDER) for each in cluster.providers
        ],
        "verifiers": [
            {
                "index": each.index,
                "segments_replayed": int(metrics[each.name].total("replayed_segments")),
                "games_won": _games_won(each, result.view),
            }
            | member(each, Role.VERIFIER)
            for each in cluster.verifiers
        ],
        "watchers": [
            {
                "index": each.index,
                "account": each.account,
                "games_won": _games_won(each, result.view),
                "won_wei": str(result.ledger.won.get(each.account, 0)),
            }
            for each in cluster.watchers
        ],
    }


def _money(member: Member, ledger: Ledger) -> dict[str, Any]:
    seats = [held for held in ledger.view.providers.values() if held.account == member.account]
    return amounts_document(ledger, member.account) | {
        "won_wei": str(ledger.won.get(member.account, 0)),
        "slashed_wei": str(ledger.lost(member.account)),
        "missed_wei": str(ledger.missed(member.account)),
        "retained_wei": str(sum(held.retained for held in seats)),
    }


def _games_won(member: Member, view: JobView) -> int:
    return sum(winner_of(game) == member.account for game in view.games.values())


# --- cheats ---


def _cheat(member: Member, result: RunResult) -> dict[str, Any]:
    """Whether a cheat was caught, by what, and in which round."""
    caught = _caught(member, result)
    return {
        "who": member.name,
        "cheat": member.cheat,
        "caught": caught is not None,
        "round": caught[0] if caught else None,
        "by": caught[1] if caught else None,
        "slashed_wei": str(result.ledger.lost(member.account)),
    }


def _caught(member: Member, result: RunResult) -> tuple[int, str] | None:
    """A lost game, else a slash, else a missed duty, else a round that was not available and is not
    paid."""
    account, name = member.account, name_of(result.names)
    for _, game in sorted(result.view.games.items()):
        claim, winner = game.claim, winner_of(game)
        if winner not in {None, account} and account in {claim.holder, game.challenger}:
            what = "its update" if claim.is_update_proof else f"segment {claim.segment}"
            return claim.round, f"{name(winner)}: a game about {what}{through_round(claim)}"
    losses = (loss for loss in result.ledger.losses if loss.account == account)
    for loss in sorted(losses, key=lambda loss: not loss.is_slash):
        return loss.round, f"the chain: {loss.why}"
    for settled in result.view.settled:
        for seat, reveal in settled.reveals.items():
            if reveal.account == account and not settled.record.available >> seat & 1:
                return settled.round, "the committee: its update was not there"
    return None


# --- losses ---


def _eval(losses: Mapping[int, float]) -> dict[str, float | None]:
    rounds = [index for index in losses if index != INITIAL]
    return {
        "loss_start": _number(losses.get(INITIAL)),
        "loss_end": _number(losses[max(rounds)]) if rounds else None,
    }


def _number(loss: float | None) -> float | None:
    """A loss as JSON has it, which knows no NaN: what a model that diverged comes to."""
    return None if loss is None or isnan(loss) else loss
