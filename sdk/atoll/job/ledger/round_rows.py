"""What became of each round of a job: who was there, what was merged, who was audited, and what it
costs.

Rule of this file: pure; everything follows from the job's ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from atoll.errors import ConfigError
from atoll.job.event_text import Names
from atoll.job.job_snapshot import final_rounds
from atoll.job.ledger.ledger import Ledger, paid_seats
from atoll.job.signs import merged_seats
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.pay import round_pay
from atoll.protocol.safety import last_safe, unsafe_rounds
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import SeatIndex, bits, to_bitmap
from atoll.protocol.views import JobView
from atoll.storage.cid import cid_text

Row: TypeAlias = dict[str, Any]
"""A round as JSON has it; seats by number, but for `committee` and `signed`, which are slots.

`phase` is train, reveal or merge; of a settled round what its audit waits for: audit (audit
reports), open, keys, window, game; final, where nothing changes any more; void, where nobody took
part. That is over at `until` at the latest, in unix seconds; 0 where it is over, or a game decides.

`available` are seats whose updates more than half of the committee had, `excluded` those that were
left out of the merge, `named` by the checks alone, `merged_seats` those that the rule merged, and
`merged` how many it certified. `drawn` are to be audited: `valid` and `mismatch` is what was opened
about them, `accusations` who said where they differ. `paid` and `cost_wei` are as things stand,
`slashed` those whose holders lost the round. A round is `is_unsafe` where more were slashed than
the merge bears, and `is_consistent` where the certificate's record are those that the events give.
"""
_SEATS: Final = (
    "seated", "committed", "revealed", "committee", "available", "excluded", "named",
    "merged_seats", "signed", "drawn", "valid", "mismatch", "paid", "slashed",
)  # fmt: skip
_NOT_SETTLED: Final[Row] = dict.fromkeys(_SEATS, 0) | {
    "merged": 0,
    "accusations": [],
    "is_unsafe": False,
    "is_consistent": None,
    "cost_wei": "0",
    "model_digest": None,
    "model_cid": None,
    "certificate": None,
}


def safe_round(view: JobView) -> int | None:
    """The last round after which the model is safe; None where that is the newest there is.

    Raises:
        ConfigError: more were slashed in the first round than its merge bears.
    """
    before = last_safe(view).before
    if before == len(view.settled):
        return None
    if before == 0:
        raise ConfigError(
            f"job {view.job_id} has no safe model: more were slashed in round 0 than it bears",
            next_step="submit the job's file anew, with --again",
        )
    return before - 1


def round_rows(ledger: Ledger, name: Names = str) -> list[Row]:
    """Every round that was opened, oldest first; the open one last."""
    view, running = ledger.view, ledger.view.open
    unsafe, final = set(unsafe_rounds(view)), final_rounds(view, ledger.now)
    rows = []
    for settled in view.settled:
        phase, until = _phase(settled, ledger.now, is_final=settled.round < final)
        known = _settled(ledger, settled, name) | {"is_unsafe": settled.round in unsafe}
        rows.append(known | _clock(ledger, settled.round, phase, until))
    if running is not None:
        phase = running.phase.name.lower()
        rows.append(_running(running) | _clock(ledger, running.round, phase, running.deadline))
    for round in sorted(ledger.times):
        if round >= len(rows):
            rows.append(_NOT_SETTLED | _clock(ledger, round, "void", 0))
    return [row | {key: bits(row[key]) for key in _SEATS} for row in rows]


def _clock(ledger: Ledger, round: int, phase: str, until: int) -> Row:
    times = ledger.times[round]
    return {"round": round, "phase": phase, "until": until} | times.to_json_value()


def _phase(settled: SettledRound, now: int, *, is_final: bool) -> tuple[str, int]:
    clock = settled.clock
    ends = (clock.audit_end, clock.open_end, clock.keys_end, clock.window_end)
    for name, end in zip(("audit", "open", "keys", "window"), ends, strict=True):
        if now < end:
            return name, end
    return ("final" if is_final else "game"), 0


def _running(running: OpenRound) -> Row:
    return _NOT_SETTLED | {
        "seated": running.seated,
        "committed": running.committed,
        "revealed": running.revealed,
        "committee": running.committee,
        "available": running.available,
    }


def _settled(ledger: Ledger, settled: SettledRound, name: Names) -> Row:
    view, verdict, record = ledger.view, settled.verdict, settled.record
    accusations = list(_accusations(view, settled, name))
    mismatch = to_bitmap(item["seat"] for item in accusations)
    lost_from = {s: view.providers[item.holder].lost_from for s, item in settled.reveals.items()}
    logs = ledger.seat_logs.get(settled.round, {})
    return {
        "seated": to_bitmap(settled.seats),
        "committed": to_bitmap(seat for seat, events in logs.items() if "commit" in events),
        "revealed": record.revealed,
        "committee": record.committee,
        "available": record.available,
        "excluded": verdict.excluded,
        "named": verdict.excluded & ~settled.accused,
        "merged": verdict.merged,
        "merged_seats": to_bitmap(merged_seats(view, settled)),
        "signed": settled.signers,
        "drawn": settled.drawn,
        "valid": to_bitmap(_called_valid(settled)) & ~mismatch,
        "mismatch": mismatch,
        "accusations": accusations,
        "paid": to_bitmap(paid_seats(view, settled)),
        "slashed": to_bitmap(s for s, round in lost_from.items() if round <= settled.round),
        "is_consistent": settled.is_consistent,
        "cost_wei": str(_cost(view, settled)),
        "model_digest": verdict.state.hex(),
        "model_cid": cid_text(verdict.cid) if verdict.cid else None,
        "certificate": settled.digest.hex() if any(settled.digest) else None,
    }


def _accusations(view: JobView, settled: SettledRound, name: Names) -> Iterator[dict[str, Any]]:
    for auditor, body in settled.opened_reports.items():
        account = view.verifiers[auditor].account
        for entry in body.entries:
            if not entry.is_valid:
                is_update_proof = entry.at == settled.reveals[entry.seat].segments
                where = {
                    "seat": entry.seat,
                    "segment": entry.at,
                    "is_update_proof": is_update_proof,
                }
                yield where | {"auditor": name(account), "account": account}


def _called_valid(settled: SettledRound) -> Iterator[SeatIndex]:
    """Seats that an opened report calls valid, in words that nobody has contested."""
    for auditor, body in settled.opened_reports.items():
        for entry in body.entries:
            if entry.is_valid and (auditor, entry.seat) not in settled.contests:
                yield entry.seat


def _cost(view: JobView, settled: SettledRound) -> int:
    """Pay that stands, and fees; what slashes took is burnt and costs as much."""
    terms = view.require_terms()
    holders = [view.providers[reveal.holder] for reveal in settled.reveals.values()]
    holders += [view.verifiers[id] for id in dict.fromkeys(settled.slots.values())]
    return sum(round_pay(terms, settled, holder) for holder in holders)
