"""report.json: what a run came to, every amount an integer in a string."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from atoll.chain.contracts import Escrow
from atoll.content.cid import Cid
from atoll.law import events as ev
from atoll.law.manifest import Manifest
from atoll.law.views import GameRecord, JobView
from atoll.law.words import Fault
from atoll.service.metrics import read_metrics
from atoll_devnet.processes.cluster import Cluster, Member
from atoll_devnet.report.history import History, Rejection, RoundRecord
from atoll_devnet.report.observer import INITIAL

GAS_LABELS = {
    "commit": "commit",
    "reveal": "reveal",
    "report": "ballot",
    "attest": "attest",
    "settle": "settle",
    "claim": "claim",
}
"""The report's name of each transaction, and the contract function it is."""


@dataclass(frozen=True)
class RunResult:
    """What a report is made from.

    Attributes:
        losses: on held-out text after each round; `observer.INITIAL` before the first.
        blocks: height of the chain at the end.
        parameters, update_bytes: of the model and of one update; 0 where none was revealed.
    """

    cluster: Cluster
    manifest: Manifest
    view: JobView
    history: History
    escrow: Escrow
    losses: Mapping[int, float]
    blocks: int
    parameters: int
    update_bytes: int
    result_dir: Path | None


def build_report(result: RunResult) -> dict[str, Any]:
    """The report as plain data, ready to be written as JSON."""
    metrics = {member.name: _Metrics.of(member) for member in result.cluster.members}
    view, cluster, escrow = result.view, result.cluster, result.escrow
    return {
        "job": {
            "id": int(view.job_id),
            "spec_cid": str(Cid.from_bytes(view.spec_cid)),
            "status": view.state.status.name.lower(),
            "reason": view.status_reason,
        },
        "chain": {
            "backend": cluster.config.backend,
            "chain_id": cluster.chain.chain_id,
            "blocks": result.blocks,
        },
        "rounds": [_round(record, result) for _, record in sorted(result.history.rounds.items())],
        "providers": [_provider(member, result) for member in cluster.providers],
        "verifiers": [
            _verifier(member, result, metrics[member.name]) for member in cluster.verifiers
        ],
        "watchers": [_watcher(member, result) for member in cluster.watchers],
        "games": [_game(game, result) for _, game in sorted(view.games.items())],
        "falls": [_fall(event, result) for event in result.history.falls],
        "cheats": list_cheats(result),
        "escrow": {
            "funded_wei": str(escrow.funded),
            "paid_wei": str(escrow.claimed),
            "refunded_wei": str(escrow.refunded),
            "balance_wei": str(escrow.balance),
        },
        "eval": _eval(result.losses),
        "bytes": _bytes(result, metrics.values()),
        "utilisation": _utilisation(result, metrics),
        "audit_overhead": _audit_overhead(metrics.values()),
        "gas": _gas(metrics.values()),
        "result_dir": str(result.result_dir) if result.result_dir else None,
    }


def write_report(report: Mapping[str, Any], path: Path) -> None:
    """Writes the JSON at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def list_cheats(result: RunResult) -> list[dict[str, Any]]:
    """For each cheat whether it was caught, by what, and in which round."""
    return [_cheat(member, result) for member in result.cluster.members if member.cheat]


def slashed_honest(report: Mapping[str, Any]) -> list[str]:
    """Addresses that cheated nowhere and lost stake: there must be none."""
    parties = (*report["providers"], *report["verifiers"])
    return [p["address"] for p in parties if not p["cheat"] and p["slashed_wei"] != "0"]


@dataclass(frozen=True)
class _Metrics:
    """What one member measured."""

    totals: Mapping[str, float]
    gas: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, member: Member) -> _Metrics:
        data: Any = read_metrics(member.metrics_file)
        totals: dict[str, float] = {}
        for rounds in data.get("jobs", {}).values():
            for names in rounds.values():
                for name, value in names.items():
                    totals[name] = totals.get(name, 0.0) + value
        return cls(totals, data.get("gas", {}))

    def total(self, name: str) -> float:
        return self.totals.get(name, 0.0)


def _round(record: RoundRecord, result: RunResult) -> dict[str, Any]:
    return {
        "round": record.round,
        "status": record.status,
        "accepted": record.accepted,
        "rejected": [_rejection(item) for item in record.rejected],
        "merged_digest": record.merged_digest or None,
        "eval_loss": result.losses.get(record.round),
        "seconds": dict(record.seconds),
        "attempts": record.attempts,
        "voids": record.voids,
        "verdicts": len(set(record.verdicts.values())),
    }


def _rejection(item: Rejection) -> dict[str, Any]:
    found_by = "chain" if item.found_by is None else f"verifier {item.found_by}"
    return {
        "seat": item.seat,
        "fault": item.fault.name.lower().replace("_", "-"),
        "segment": item.segment,
        "found_by": found_by,
    }


def _provider(member: Member, result: RunResult) -> dict[str, Any]:
    accepted, tokens = 0, 0
    for settled in result.view.settled:
        for seat, holder in settled.seats.items():
            if holder == member.account and settled.evidence.accepted >> seat & 1:
                accepted += 1
                tokens += settled.tokens[seat]
    return {
        "seat": member.index,
        "address": member.account,
        "cheat": member.cheat,
        "accepted_rounds": accepted,
        "paid_wei": str(result.history.paid.get(member.account, 0)),
        "slashed_wei": str(result.history.slashed.get(member.account, 0)),
        "verified_tokens": tokens,
    }


def _verifier(member: Member, result: RunResult, metrics: _Metrics) -> dict[str, Any]:
    return {
        "index": member.index,
        "address": member.account,
        "cheat": member.cheat,
        "segments_replayed": int(metrics.total("replayed_segments")),
        "segments_claimed": result.history.findings.get(member.account, 0),
        "attested_rounds": result.history.attested.get(member.account, 0),
        "paid_wei": str(result.history.paid.get(member.account, 0)),
        "slashed_wei": str(result.history.slashed.get(member.account, 0)),
    }


def _watcher(member: Member, result: RunResult) -> dict[str, Any]:
    falls = [event for event in result.history.falls if event.challenger == member.account]
    return {"index": member.index, "address": member.account, "won": len(falls)}


def _game(game: GameRecord, result: RunResult) -> dict[str, Any]:
    names = {member.account: member.name for member in result.cluster.members}
    return {
        "game": game.id,
        "round": game.claim.round,
        "seat": game.claim.seat,
        "segment": game.claim.segment,
        "is_link": game.claim.is_link,
        "challenger": names.get(game.challenger, game.challenger),
        "bond_wei": str(game.bond),
        "outcome": game.outcome.name.lower().replace("_", "-"),
    }


def _fall(event: ev.Fell, result: RunResult) -> dict[str, Any]:
    """A game that a provider lost, and to whom."""
    names = {member.account: member.name for member in result.cluster.members}
    return {
        "round": event.round,
        "seat": event.seat,
        "challenger": names.get(event.challenger, event.challenger),
        "slashed_wei": str(event.slashed),
        "withheld_wei": str(event.withheld),
    }


def _cheat(member: Member, result: RunResult) -> dict[str, Any]:
    history = result.history
    found: tuple[int, str] | None = None
    if member in result.cluster.providers:
        found = _first_rejection(member.index, history) or _first_fall(member, result)
    elif history.slashed.get(member.account):
        found = _first_offence(member, history)
    return {
        "who": member.name,
        "cheat": member.cheat,
        "caught": found is not None,
        "round": found[0] if found else None,
        "by": found[1] if found else None,
        "slashed_wei": str(history.slashed.get(member.account, 0)),
    }


def _first_rejection(seat: int, history: History) -> tuple[int, str] | None:
    for index, record in sorted(history.rounds.items()):
        for item in record.rejected:
            if item.seat == seat:
                return index, _words(item)
    return None


def _first_fall(member: Member, result: RunResult) -> tuple[int, str] | None:
    falls = (event for event in result.history.falls if event.account == member.account)
    event = next(falls, None)
    if event is None:
        return None
    return event.round, f"{_fall(event, result)['challenger']}: a game before the contract"


def _words(item: Rejection) -> str:
    what = item.fault.name.lower().replace("_", " ")
    if item.fault in {Fault.NO_COMMIT, Fault.NO_REVEAL}:
        return f"the chain: {what}"
    where = "" if item.segment is None else f" in segment {item.segment}"
    return f"verifier {item.found_by}: {what}{where}"


def _first_offence(member: Member, history: History) -> tuple[int, str] | None:
    offences = history.offences.get(member.account, [])
    return offences[0] if offences else None


def _eval(losses: Mapping[int, float]) -> dict[str, float | None]:
    rounds = [index for index in losses if index != INITIAL]
    return {
        "loss_start": losses.get(INITIAL),
        "loss_end": losses[max(rounds)] if rounds else None,
    }


def _bytes(result: RunResult, metrics: Iterable[_Metrics]) -> dict[str, Any]:
    everyone = list(metrics)
    per_parameter = result.update_bytes / result.parameters if result.parameters else 0.0
    return {
        "update_bytes_per_parameter": round(per_parameter, 4),
        "uploaded": int(sum(item.total("bytes_up") for item in everyone)),
        "downloaded": int(sum(item.total("bytes_down") for item in everyone)),
    }


def _utilisation(result: RunResult, metrics: Mapping[str, _Metrics]) -> dict[str, Any]:
    """Seconds in training steps ÷ seconds of the rounds that the provider trained in."""
    shares: dict[str, float] = {}
    for member in result.cluster.providers:
        wall = sum(
            settled_seconds(result.history.rounds[settled.slot.round])
            for settled in result.view.settled
            if member.account in settled.seats.values()
        )
        if wall:
            shares[str(member.index)] = metrics[member.name].total("train_seconds") / wall
    mean = fmean(shares.values()) if shares else 0.0
    return {
        "providers": {seat: round(share, 4) for seat, share in shares.items()},
        "mean": round(mean, 4),
    }


def settled_seconds(record: RoundRecord) -> int:
    """Wall time of a settled round, in the chain's seconds."""
    return max(0, record.ended - record.started)


def _audit_overhead(metrics: Iterable[_Metrics]) -> float:
    everyone = list(metrics)
    trained = sum(item.total("trained_steps") for item in everyone)
    replayed = sum(item.total("replayed_steps") for item in everyone)
    return round(replayed / trained, 4) if trained else 0.0


def _gas(metrics: Iterable[_Metrics]) -> dict[str, int]:
    """The dearest transaction of each kind."""
    everyone = list(metrics)
    return {
        name: max((int(m.gas[label]["highest"]) for m in everyone if label in m.gas), default=0)
        for name, label in GAS_LABELS.items()
    }
