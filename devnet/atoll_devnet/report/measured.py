"""What a run's members measured and no chain knows: traffic, utilisation, replays, gas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from atoll.chain.structs import Escrow
from atoll.job.ledger.entries import RoundTimes
from atoll.job.ledger.ledger import Ledger
from atoll.job.ledger.overview import NOTHING_BESIDE, Beside
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Address
from atoll.protocol.views import JobView
from atoll.service.metrics import read_metrics
from atoll_devnet.processes.cluster import Cluster, Member

GAS_LABELS = {
    "commit": "commit",
    "reveal": "reveal",
    "have": "vote",
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
        escrow: what the contract says at the ledger's last block.
        losses: on held-out text after each round; -1 before the first.
        blocks: height of the chain at the end.
        parameters, update_bytes: of the model and of one update; 0 where none was revealed.
        stranger: how often a hostile stranger did what; empty where there was none.
    """

    cluster: Cluster
    manifest: Manifest
    ledger: Ledger
    escrow: Escrow
    losses: Mapping[int, float]
    blocks: int
    parameters: int
    update_bytes: int
    result_dir: Path | None
    stranger: Mapping[str, int] = field(default_factory=dict)
    beside: Beside = NOTHING_BESIDE

    @property
    def view(self) -> JobView:
        """The job after all of its events."""
        return self.ledger.view

    @property
    def names(self) -> Mapping[Address, str]:
        """What the network calls its members."""
        return self.cluster.names


def measured_document(result: RunResult, metrics: Mapping[str, Metrics]) -> dict[str, Any]:
    """The report's part that is from the members' own files."""
    return {
        "bytes": _bytes(result, metrics),
        "uplink_bytes_per_parameter": _traffic(result, metrics, "bytes_up"),
        "downlink_bytes_per_parameter": _traffic(result, metrics, "bytes_down"),
        "utilisation": _utilisation(result, metrics),
        "audit_overhead": _audit_overhead(metrics.values()),
        "gas": _gas(metrics.values()),
    }


@dataclass(frozen=True)
class Metrics:
    """What one member measured: sums by round and name, and gas."""

    rounds: Mapping[int, Mapping[str, float]]
    gas: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, member: Member) -> Metrics:
        data: Any = read_metrics(member.metrics_file)
        by_round: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for rounds in data.get("jobs", {}).values():
            for round_, names in rounds.items():
                for name, value in names.items():
                    by_round[int(round_)][name] += value
        return cls(by_round, data.get("gas", {}))

    def of_round(self, round_: int, name: str) -> float:
        return self.rounds.get(round_, {}).get(name, 0.0)

    def total(self, name: str) -> float:
        return sum(self.of_round(round_, name) for round_ in self.rounds)


def _bytes(result: RunResult, metrics: Mapping[str, Metrics]) -> dict[str, Any]:
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
    result: RunResult, metrics: Mapping[str, Metrics], members: Sequence[Member], name: str
) -> float:
    """Bytes a parameter and settled round that a member sent or received, the mean over these."""
    shared = result.parameters * len(result.view.settled) * len(members)
    total = sum(metrics[member.name].total(name) for member in members)
    return round(total / shared, 4) if shared else 0.0


def _rounds_of(member: Member, view: JobView) -> int:
    """Settled rounds that the member revealed in."""
    return sum(
        reveal.account == member.account
        for settled_round in view.settled
        for reveal in settled_round.reveals.values()
    )


def _traffic(result: RunResult, metrics: Mapping[str, Metrics], name: str) -> float:
    """Bytes a parameter and round that a provider sent or received, the mean over providers."""
    shares = [
        metrics[member.name].total(name) / (result.parameters * rounds)
        for member in result.cluster.providers
        if (rounds := _rounds_of(member, result.view)) and result.parameters
    ]
    return round(fmean(shares), 4) if shares else 0.0


def _utilisation(result: RunResult, metrics: Mapping[str, Metrics]) -> dict[str, Any]:
    """Seconds in training steps ÷ seconds, both of the settled rounds that the provider revealed
    in.
    """
    shares: dict[str, float] = {}
    for member in result.cluster.providers:
        rounds = [
            settled.round
            for settled in result.view.settled
            if any(reveal.account == member.account for reveal in settled.reveals.values())
        ]
        wall = sum(settled_seconds(result.ledger.times[round_]) for round_ in rounds)
        trained = sum(metrics[member.name].of_round(round_, "train_seconds") for round_ in rounds)
        if wall:
            shares[str(member.index)] = trained / wall
    mean = fmean(shares.values()) if shares else 0.0
    return {
        "providers": {seat: round(share, 4) for seat, share in shares.items()},
        "mean": round(mean, 4),
    }


def settled_seconds(times: RoundTimes) -> int:
    """Wall time of a settled round, in the chain's seconds."""
    return max(0, times.ended - times.started)


def _audit_overhead(metrics: Iterable[Metrics]) -> float:
    everyone = list(metrics)
    trained = sum(item.total("trained_steps") for item in everyone)
    replayed = sum(item.total("replayed_steps") for item in everyone)
    return round(replayed / trained, 4) if trained else 0.0


def _gas(metrics: Iterable[Metrics]) -> dict[str, int]:
    """The dearest transaction of each kind."""
    everyone = list(metrics)
    return {
        name: max((int(m.gas[label]["highest"]) for m in everyone if label in m.gas), default=0)
        for name, label in GAS_LABELS.items()
    }
