"""What a job trains, how fast, until when and for how much: the first screen of its page.

Rule of this file: pure. What is trained is the manifest's; the rest follows from the job's events,
its terms and the chain's clock. An estimate says so in its name or its words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from atoll.job.ledger.ledger import Ledger
from atoll.job.ledger.round_rows import Row
from atoll.job.ledger.work import tokens_paid
from atoll.job.quote_summary import MILLION, trained_tokens
from atoll.job.serialization import plain_of
from atoll.job.verification import USUAL_WINNER_BPS, expected_fees
from atoll.numerics.state_layout import param_count, trained_count
from atoll.protocol.audit_rates import rate_in
from atoll.protocol.clocks import AuditClock, last_audits
from atoll.protocol.manifest import Manifest
from atoll.protocol.pay import budget, seat_pay
from atoll.protocol.task_spec import TaskSpec
from atoll.protocol.views import JobView
from atoll.service.pace import most_drawn
from atoll.storage.cid import cid_text

PACE_ROUNDS: Final = 5
"""So many of the newest settled rounds say how long one takes."""


@dataclass(frozen=True, slots=True)
class GasSpent:
    """Gas of the transactions that a job's events are in, from their receipts.

    Attributes:
        transactions: how many there are; `counted` those whose receipt was read so far.
        gas, wei: of the counted ones together.
    """

    transactions: int
    counted: int
    gas: int
    wei: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Text of a model: what it was given, what it added, after how many merged rounds."""

    prompt: str
    text: str
    merged: int


@dataclass(frozen=True, slots=True)
class Beside:
    """What a document has that no event says.

    Attributes:
        manifest: None where nobody serves it.
        sources: what the submitter's job file names on the Hub.
        sample: what the newest model goes on with after a prompt; None where nobody asked it.
        distances: how far an update lay from its round's merge, in lengths of the merged update, by
            round and seat, as far as somebody measured it.
        explorer: where the chain can be looked at; empty where the deployment names none.
    """

    manifest: Manifest | None = None
    sources: Sequence[str] = ()
    gas: GasSpent | None = None
    sample: Sample | None = None
    explorer: str = ""
    distances: Mapping[tuple[int, int], float] = field(default_factory=dict)


NOTHING_BESIDE: Final = Beside()


def overview_document(
    ledger: Ledger, rows: Sequence[Row], beside: Beside = NOTHING_BESIDE
) -> dict[str, Any]:
    """The parts `what`, `speed`, `price`, `progress`, `sample`, `commands` and `explorer`."""
    job, sample = ledger.view.job_id, beside.sample
    progress = _progress(ledger, rows)
    return {
        "what": None if beside.manifest is None else _what(beside.manifest, beside.sources),
        "speed": _speed(ledger, rows, progress),
        "price": _price(ledger, rows, progress[-1]["tokens"], beside.gas),
        "progress": progress,
        "sample": None if sample is None else plain_of(sample),
        "commands": {
            "sample": f'atoll job sample {job} --prompt "Once upon a time"',
            "model": f"atoll job checkpoint {job} DIR",
            "result": f"atoll job result {job} DIR",
            "audit": f"atoll job audit {job}",
        },
        "explorer": beside.explorer,
    }


# --- what ---


def _what(manifest: Manifest, sources: Sequence[str]) -> dict[str, Any]:
    model, data, lora = manifest.model, manifest.data, manifest.lora
    return {
        "name": manifest.name,
        "about": manifest.about,
        "created": manifest.created,
        "kind": model.kind,
        "parameters": param_count(model),
        "trained_parameters": trained_count(manifest),
        "layers": model.layers,
        "width": model.width,
        "heads": model.heads,
        "vocabulary": model.vocab,
        "context": model.seq,
        "adapters": None if lora is None else f"rank {lora.rank} on {', '.join(lora.targets)}",
        "start": _start(manifest),
        "train_tokens": data.train_tokens,
        "held_out_tokens": data.eval_tokens,
        "train_cid": cid_text(data.cid),
        "held_out_cid": None if data.eval_cid is None else cid_text(data.eval_cid),
        "tokenizer_cid": cid_text(data.tokenizer_cid),
        "sources": list(sources),
        "method": _method(manifest),
        "task": None if manifest.task is None else _task(manifest.task),
    }


def _task(task: TaskSpec) -> dict[str, Any]:
    """What is learned by rewards, where that is no text."""
    return {
        "prompts": task.prompts,
        "group": task.group,
        "new_tokens": task.new_tokens,
        "rewards": [f"{reward.kind}: {reward.weight}" for reward in task.rewards],
    }


def _start(manifest: Manifest) -> str:
    """What training begins with."""
    init = manifest.init
    if init.cid is None:
        return f"weights drawn from seed {init.seed}"
    given = f"the weights {cid_text(init.cid)}"
    return given if init.seed is None else f"{given}, adapters drawn from seed {init.seed}"


def _method(manifest: Manifest) -> list[dict[str, str]]:
    """Lines of a name and a text, in the job file's own words."""
    inner, outer, codec, robust = manifest.inner, manifest.outer, manifest.codec, manifest.robust
    warm = f" after {inner.warmup_steps} steps of warm-up" if inner.warmup_steps else ""
    stretch = f", in {codec.fragments} fragments" if codec.fragments > 1 else ""
    feedback = f", feedback {codec.feedback}" if codec.carries_feedback else ""
    resets = f", resumed for {manifest.reset_period} rounds" if manifest.reset_period > 1 else ""
    return [
        {
            "name": "Each seat",
            "text": f"{inner.optimizer}, rate {inner.lr}, {inner.schedule}{warm}",
        },
        {
            "name": "A round",
            "text": f"{inner.steps} steps of {inner.batch} sequences of {manifest.model.seq} "
            f"tokens{resets}",
        },
        {"name": "Updates", "text": f"{codec.kind}{stretch}{feedback}"},
        {
            "name": "Merge",
            "text": f"{robust.rule}, bears {robust.f} bad of {manifest.terms.seats} seats; "
            f"{outer.kind}, rate {outer.lr}",
        },
    ]


# --- how fast, until when ---


def _progress(ledger: Ledger, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """By how many rounds are merged: tokens that were paid for, seconds since the first round
    opened, and what it cost so far; the initial model first.
    """
    tokens = wei = 0
    progress: list[dict[str, Any]] = [_point(0, 0, 0, 0)]
    first = rows[0]["started"] if rows else 0
    for settled, row in zip(ledger.view.settled, rows, strict=False):
        tokens += sum(tokens_paid(ledger.view, settled).values())
        wei += int(row["cost_wei"])
        progress.append(_point(len(progress), tokens, row["ended"] - first, wei))
    return progress


def _point(merged: int, tokens: int, seconds: int, wei: int) -> dict[str, Any]:
    return {"merged": merged, "tokens": tokens, "seconds": seconds, "cost_wei": str(wei)}


def _speed(
    ledger: Ledger, rows: Sequence[Row], progress: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    view, terms = ledger.view, ledger.view.require_terms()
    newest, before = progress[-1], progress[max(0, len(progress) - 1 - PACE_ROUNDS)]
    counted = newest["merged"] - before["merged"]
    pace = newest["seconds"] - before["seconds"]
    trained_by, final_by = _ends(ledger, rows, pace / counted if counted else None)
    return {
        "tokens": newest["tokens"],
        "planned_tokens": trained_tokens(terms),
        "seconds": newest["seconds"],
        "tokens_per_second": _rate(newest["tokens"], newest["seconds"]),
        "recent_tokens_per_second": _rate(newest["tokens"] - before["tokens"], pace),
        "recent_rounds": counted,
        "seconds_a_round": pace / counted if counted else None,
        "is_training": not view.status.is_closed,
        "trained_by": trained_by,
        "final_by": final_by,
        "ends_at_most": terms.expiry,
    }


def _rate(tokens: int, seconds: int) -> float | None:
    return tokens / seconds if seconds else None


def _ends(ledger: Ledger, rows: Sequence[Row], pace: float | None) -> tuple[int | None, int | None]:
    """When the last round is settled and when nothing of the job changes any more, unix seconds.

    Of a job that trains they are estimates, by the pace of the newest rounds; None before the first
    is settled.
    """
    view, terms = ledger.view, ledger.view.require_terms()
    ended = rows[len(view.settled) - 1]["ended"] if view.settled else None
    left = terms.rounds - len(view.settled)
    if view.status.is_closed or not left:
        return ended, view.settled[-1].clock.window_end if view.settled else None
    if pace is None or ended is None:
        return None, None
    trained = max(ledger.now, round(ended + left * pace))
    drawn = most_drawn(terms.seats, rate_in(terms, is_last=True), terms.f)
    audits = last_audits(drawn, terms.min_verifiers)
    return trained, trained + AuditClock.of(terms, 0, audits=audits).window_end


# --- for how much ---


def _price(
    ledger: Ledger, rows: Sequence[Row], tokens: int, gas: GasSpent | None
) -> dict[str, Any]:
    """At most, as the terms say, and as things stand; shares of what was earned so far."""
    view, terms = ledger.view, ledger.view.require_terms()
    at_most = budget(terms)
    planned = terms.rounds * terms.seats * terms.segments * terms.segment_pay
    winner_bps = view.params.winner_share_bps if view.params else USUAL_WINNER_BPS
    honest = planned + expected_fees(terms, winner_bps)  # the budget has room for more than that
    spent = sum(int(row["cost_wei"]) for row in rows)
    training = _training_wei(view)
    return {
        "budget_wei": str(at_most),
        "million_wei": str(at_most * MILLION // trained_tokens(terms)),
        "planned_training_share": planned / honest if honest else None,
        "planned_verification_share": 1 - planned / honest if honest else None,
        "earned_wei": str(spent),
        "earned_million_wei": str(spent * MILLION // tokens) if tokens else None,
        "training_wei": str(training),
        "verification_wei": str(spent - training),
        "training_share": training / spent if spent else None,
        "verification_share": (spent - training) / spent if spent else None,
        "gas": None if gas is None else plain_of(gas) | {"wei": str(gas.wei)},
    }


def _training_wei(view: JobView) -> int:
    """Pay of seats that stands; `cost_wei` has it, and the fees."""
    terms = view.require_terms()
    return sum(
        seat_pay(terms, settled, seat) for settled in view.settled for seat in settled.reveals
    )
