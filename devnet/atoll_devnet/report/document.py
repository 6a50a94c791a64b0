"""report.json: what a run came to, every amount an integer in a string."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

from atoll.chain.structs import Escrow
from atoll.job.books import Books, keep_books
from atoll.job.event_text import via
from atoll.job.figures import paid_seats
from atoll.job.history import History, Loss, RoundRecord
from atoll.job.signs import Signs, merged_seats
from atoll.protocol.claims import BOND_SHARE
from atoll.protocol.game_records import GameRecord, parties, window_of
from atoll.protocol.games.machine import Outcome
from atoll.protocol.held_out import loss_bytes
from atoll.protocol.manifest import Manifest
from atoll.protocol.safety import last_safe, unsafe_rounds
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.terms import WHOLE_BPS
from atoll.protocol.views import JobView
from atoll.protocol.words import Address, Role, RoundIndex, bits
from atoll.service.metrics import read_metrics
from atoll.storage.cid import Cid
from atoll_devnet.processes.cluster import Cluster, Member
from atoll_devnet.report.observer import INITIAL

GAS_LABELS = {
    "commit": "commit",
    "reveal": "reveal",
    "have": "word",
    "settle": "settle",
    "audit_report": "sealAuditReport",
    "open": "open",
    "key": "key",
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
        stranger: how often a hostile stranger did what; empty where there was none.
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
    stranger: Mapping[str, int] = field(default_factory=dict)

    def name(self, account: Address) -> str:
        """What the network calls an account."""
        names = {member.account: member.name for member in self.cluster.members}
        return names.get(account, account)


def build_report(result: RunResult) -> dict[str, Any]:
    """The report as plain data, ready to be written as JSON."""
    metrics = {member.name: _Metrics.of(member) for member in result.cluster.members}
    view, cluster = result.view, result.cluster
    books = keep_books(view, result.history.events)
    return {
        "job": {
            "id": int(view.job_id),
            "spec_cid": str(Cid.from_bytes(view.spec_cid)),
            "status": view.status.name.lower(),
        },
        "outsiders": _outsiders(view),
        "stranger": dict(sorted(result.stranger.items())),
        "chain": {
            "backend": cluster.config.backend,
            "chain_id": cluster.chain.chain_id,
            "blocks": result.blocks,
        },
        "rounds": [_round(record, result) for _, record in sorted(result.history.rounds.items())],
        "providers": [_provider(member, result, books) for member in cluster.providers],
        "verifiers": [
            _verifier(member, result, books, metrics[member.name]) for member in cluster.verifiers
        ],
        "watchers": [_watcher(member, result) for member in cluster.watchers],
        "games": [_game(game, result) for _, game in sorted(view.games.items())],
        "losses": [_loss(loss, result) for loss in result.history.losses],
        "cheats": list_cheats(result),
        "unsafe": _safety(view),
        "signs": signs_of(result).to_plain(),
        "escrow": _escrow(result, books),
        "eval": _eval(result.losses),
        "bytes": _bytes(result, metrics),
        "uplink_bytes_per_parameter": _traffic(result, metrics, "bytes_up"),
        "downlink_bytes_per_parameter": _traffic(result, metrics, "bytes_down"),
        "utilisation": _utilisation(result, metrics),
        "audit_overhead": _audit_overhead(metrics.values()),
        "gas": _gas(metrics.values()),
        "result_dir": str(result.result_dir) if result.result_dir else None,
    }


def write_report(report: Mapping[str, Any], path: Path) -> None:
    """Writes the JSON at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    text = json.dumps(report, indent=2, allow_nan=False)
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)


def slashed_honest(report: Mapping[str, Any]) -> list[str]:
    """Addresses that cheated nowhere and lost stake for a lie: there must be none.

    What a machine was too slow for is a miss, which costs an honest party its small cut.
    """
    parties_ = (*report["providers"], *report["verifiers"])
    return [
        p["address"] for p in parties_ if not p["cheat"] and p["slashed_wei"] != p["missed_wei"]
    ]


@dataclass(frozen=True)
class _Metrics:
    """What one member measured: sums by round and name, and gas."""

    rounds: Mapping[int, Mapping[str, float]]
    gas: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, member: Member) -> _Metrics:
        data: Any = read_metrics(member.metrics_file)
        found: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for rounds in data.get("jobs", {}).values():
            for round_, names in rounds.items():
                for name, value in names.items():
                    found[int(round_)][name] += value
        return cls(found, data.get("gas", {}))

    def of_round(self, round_: int, name: str) -> float:
        return self.rounds.get(round_, {}).get(name, 0.0)

    def total(self, name: str) -> float:
        return sum(self.of_round(round_, name) for round_ in self.rounds)


# --- rounds and games ---


def _round(record: RoundRecord, result: RunResult) -> dict[str, Any]:
    plain = {
        "round": record.round,
        "status": record.status,
        "eval_loss": _number(result.losses.get(record.round)),
        "seconds": dict(record.seconds),
        "voids": record.voids,
        "committee_draws": record.committee_draws,
    }
    past = result.view.settled_round(RoundIndex(record.round))
    return plain | (_settled(past, result) if past is not None else _UNSETTLED)


def _settled(past: SettledRound, result: RunResult) -> dict[str, Any]:
    """A settled round's seats; `named` are those that only the checks excluded, and `merged_seats`
    those that the rule merged, where it merged any.
    """
    said = [
        (auditor, duty)
        for auditor, body in past.bodies.items()
        for duty in body.duties
        if (auditor, duty.seat) not in past.contests
    ]
    return {
        "revealed": bits(past.facts.revealed),
        "available": bits(past.facts.available),
        "named": bits(past.facts.excluded & ~past.accused),
        "excluded": bits(past.facts.excluded),
        "merged": past.verdict.merged,
        "merged_seats": [int(seat) for seat in merged_seats(result.view, past)],
        "signers": len(bits(past.signers)),
        "drawn": bits(past.drawn),
        "audited": sorted({int(duty.seat) for _, duty in said}),
        "differs": [
            {
                "seat": duty.seat,
                "segment": duty.at,
                "is_link": duty.at == past.reveals[duty.seat].segments,
                "auditor": result.name(result.view.verifiers[auditor].account),
            }
            for auditor, duty in said
            if not duty.is_fine
        ],
        "paid": [int(seat) for seat in paid_seats(result.view, past)],
        "merged_digest": past.verdict.state.hex() if any(past.digest) else None,
    }


_UNSETTLED: dict[str, Any] = {
    "revealed": [],
    "available": [],
    "named": [],
    "excluded": [],
    "merged": 0,
    "merged_seats": [],
    "signers": 0,
    "drawn": [],
    "audited": [],
    "differs": [],
    "paid": [],
    "merged_digest": None,
}


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


def _game(game: GameRecord, result: RunResult) -> dict[str, Any]:
    about = parties(game.claim)
    winners = {Outcome.HOLDER_FELL: game.challenger, Outcome.CHALLENGER_FELL: game.claim.holder}
    winner = winners.get(game.outcome)
    return {
        "game": game.id,
        "round": game.claim.round,
        "via": window_of(game.claim),
        "seat": game.claim.seat,
        "segment": game.claim.segment,
        "is_link": game.claim.is_link,
        "about": "fine" if about and about[1] is Role.VERIFIER else "seat",
        "holder": result.name(game.claim.holder),
        "challenger": result.name(game.challenger),
        "bond_wei": str(game.bond),
        "moves": result.history.moves.get(game.id, 0),
        "outcome": game.outcome.name.lower().replace("_", "-"),
        "winner": None if winner is None else result.name(winner),
    }


# --- members ---


def _provider(member: Member, result: RunResult, books: Books) -> dict[str, Any]:
    view, segments, rounds = result.view, 0, 0
    for past in view.settled:
        for seat in paid_seats(view, past):
            if past.reveals[seat].account == member.account:
                rounds += 1
                segments += past.reveals[seat].segments
    terms = view.require_terms()
    return {
        "seat": member.index,
        "address": member.account,
        "cheat": member.cheat,
        "paid_rounds": rounds,
        "verified_tokens": segments * terms.segment_steps * terms.tokens_per_step,
        **_money(member, result, books),
    }


def _verifier(member: Member, result: RunResult, books: Books, metrics: _Metrics) -> dict[str, Any]:
    view = result.view
    ids = view.ids_of(member.account, Role.VERIFIER)
    signed = sum(
        holder in ids and bool(past.signers >> place & 1)
        for past in view.settled
        for place, holder in past.places.items()
    )
    duties = [
        duty for p in view.settled for i, b in p.bodies.items() if i in ids for duty in b.duties
    ]
    return {
        "index": member.index,
        "address": member.account,
        "cheat": member.cheat,
        "segments_replayed": int(metrics.total("replayed_segments")),
        "signed_rounds": signed,
        "seats_audited": len(duties),
        "differs": sum(not duty.is_fine for duty in duties),
        "games_won": _games_won(member, result),
        **_money(member, result, books),
    }


def _money(member: Member, result: RunResult, books: Books) -> dict[str, Any]:
    amounts = books.paid.get(member.account, {})
    return {
        "paid_wei": str(sum(amounts.values())),
        "paid_for_wei": {reason: str(amount) for reason, amount in amounts.items()},
        "won_wei": str(result.history.won.get(member.account, 0)),
        "slashed_wei": str(result.history.lost(member.account)),
        "missed_wei": str(result.history.missed(member.account)),
    }


def _watcher(member: Member, result: RunResult) -> dict[str, Any]:
    won = _games_won(member, result)
    wei = str(result.history.won.get(member.account, 0))
    return {"index": member.index, "address": member.account, "won": won, "won_wei": wei}


def _games_won(member: Member, result: RunResult) -> int:
    name = member.name
    return sum(_game(game, result)["winner"] == name for game in result.view.games.values())


def _loss(loss: Loss, result: RunResult) -> dict[str, Any]:
    return {
        "who": result.name(loss.account),
        "round": loss.round,
        "wei": str(loss.wei),
        "for": loss.why,
        "fell": loss.is_fall,
    }


# --- cheats ---


def list_cheats(result: RunResult) -> list[dict[str, Any]]:
    """For each cheat whether it was caught, by what, and in which round."""
    return [_cheat(member, result) for member in result.cluster.members if member.cheat]


def _cheat(member: Member, result: RunResult) -> dict[str, Any]:
    found = _caught(member, result)
    return {
        "who": member.name,
        "cheat": member.cheat,
        "caught": found is not None,
        "round": found[0] if found else None,
        "by": found[1] if found else None,
        "slashed_wei": str(result.history.lost(member.account)),
    }


def _caught(member: Member, result: RunResult) -> tuple[int, str] | None:
    """A lost game, else a fall, else a miss, else a round that was not had and is not paid."""
    for _, game in sorted(result.view.games.items()):
        plain = _game(game, result)
        was_in = member.name in {plain["holder"], plain["challenger"]}
        if was_in and plain["winner"] not in {None, member.name}:
            what = "its update" if game.claim.is_link else f"segment {game.claim.segment}"
            reached = via(game.claim)
            return plain["round"], f"{plain['winner']}: a game about {what}{reached}"
    for loss in result.history.losses_of(member.account):
        return loss.round, f"the chain: {loss.why}"
    for past in result.view.settled:
        for seat, told in past.reveals.items():
            if told.account == member.account and not past.facts.available >> seat & 1:
                return past.round, "the committee: its update was not there"
    return None


def _safety(view: JobView) -> dict[str, Any]:
    """Rounds of which more seats fell than the rule bears, and what to go on from then."""
    safe = last_safe(view)
    return {
        "rounds": list(unsafe_rounds(view)),
        "last_safe_round": safe.before - 1 if safe.before else None,
        "last_safe_digest": None if safe.digest is None else safe.digest.hex(),
    }


def signs_of(result: RunResult) -> Signs:
    """What speaks against the models, by the losses that the observer computed."""
    losses, rounds = result.losses, range(INITIAL, len(result.view.settled))
    known = [loss_bytes(losses[r]) if r in losses else None for r in rounds]
    return Signs.of(result.view, known)


# --- money ---


def _escrow(result: RunResult, books: Books) -> dict[str, Any]:
    escrow = result.escrow
    return {
        "funded_wei": str(escrow.funded),
        "paid_wei": str(escrow.claimed),
        "burnt_wei": str(escrow.burnt),
        "refunded_wei": str(escrow.refunded),
        "balance_wei": str(escrow.balance),
        "paid_for_wei": {
            reason: str(books.total(reason))
            for reason in ("training", "signatures", "audits", "credits")
        },
        "faults": check_books(escrow, books),
    }


def check_books(escrow: Escrow, books: Books) -> list[str]:
    """What does not add up between the events, the law of pay and the contract; nothing should."""
    faults = list(books.faults)
    told = (escrow.funded, escrow.claimed, escrow.refunded, escrow.burnt, escrow.balance)
    kept = (books.funded, books.claimed, books.refunded, books.burnt, books.balance)
    names = ("funded", "claimed", "refunded", "burnt", "balance")
    for name, contract, own in zip(names, told, kept, strict=True):
        if contract != own:
            faults.append(f"the contract has {name} {contract} wei, its events {own}")
    return faults


# --- measures ---


def _eval(losses: Mapping[int, float]) -> dict[str, float | None]:
    rounds = [index for index in losses if index != INITIAL]
    return {
        "loss_start": _number(losses.get(INITIAL)),
        "loss_end": _number(losses[max(rounds)]) if rounds else None,
    }


def _number(loss: float | None) -> float | None:
    """A loss as JSON has it, which knows no NaN: what a model that diverged comes to."""
    return None if loss is None or isnan(loss) else loss


def _bytes(result: RunResult, metrics: Mapping[str, _Metrics]) -> dict[str, Any]:
    everyone = list(metrics.values())
    per_parameter = result.update_bytes / result.parameters if result.parameters else 0.0
    return {
        "update_bytes_per_parameter": round(per_parameter, 4),
        "by_role": {
            role: {
                "up_per_parameter": _share(result, metrics, members, "bytes_up"),
                "down_per_parameter": _share(result, metrics, members, "bytes_down"),
            }
            for role, members in (
                ("provider", result.cluster.providers),
                ("verifier", result.cluster.verifiers),
            )
        },
        "uploaded": int(sum(item.total("bytes_up") for item in everyone)),
        "downloaded": int(sum(item.total("bytes_down") for item in everyone)),
    }


def _share(
    result: RunResult, metrics: Mapping[str, _Metrics], members: Sequence[Member], name: str
) -> float:
    """Bytes a parameter and settled round that a member sent or received, the mean over these."""
    shared = result.parameters * len(result.view.settled) * len(members)
    total = sum(metrics[member.name].total(name) for member in members)
    return round(total / shared, 4) if shared else 0.0


def _rounds_of(member: Member, view: JobView) -> int:
    """Settled rounds that the member revealed in."""
    return sum(
        told.account == member.account for past in view.settled for told in past.reveals.values()
    )


def _traffic(result: RunResult, metrics: Mapping[str, _Metrics], name: str) -> float:
    """Bytes a parameter and round that a provider sent or received, the mean over providers."""
    shares = [
        metrics[member.name].total(name) / (result.parameters * rounds)
        for member in result.cluster.providers
        if (rounds := _rounds_of(member, result.view)) and result.parameters
    ]
    return round(fmean(shares), 4) if shares else 0.0


def _utilisation(result: RunResult, metrics: Mapping[str, _Metrics]) -> dict[str, Any]:
    """Seconds in training steps ÷ seconds, both of the settled rounds that the provider revealed
    in.
    """
    shares: dict[str, float] = {}
    for member in result.cluster.providers:
        own = [
            past.round
            for past in result.view.settled
            if any(told.account == member.account for told in past.reveals.values())
        ]
        wall = sum(settled_seconds(result.history.rounds[round_]) for round_ in own)
        trained = sum(metrics[member.name].of_round(round_, "train_seconds") for round_ in own)
        if wall:
            shares[str(member.index)] = trained / wall
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
