"""Writes rates of audits, and draws by them: `python tests/vectors/generate_audit_rates.py`.

Rule of this file: what is written is what `atoll.protocol.audit_rates` says of values that are
drawn by SHA-256 from the case's number; edges of the table are among them. `README.md` beside it
says what the file holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tests.support.identities import digest

from atoll.protocol.audit_rates import (
    RATES,
    Incentive,
    lowest_rate,
    most_retained,
    rate_of_stake,
    retained_part,
    stake_for,
    stake_needed,
    steps_of,
)
from atoll.protocol.committee_draws import draw_audits
from atoll.protocol.terms import MAX_SEATS
from atoll.protocol.types import NO_BITS, Bitmap, Digest, SeatIndex, bits

HERE = Path(__file__).parent
Json: TypeAlias = dict[str, Any]
STAKES, RETENTIONS, DRAWS = 40, 24, 12


def _number(seed: Digest, at: int, below: int) -> int:
    return int.from_bytes(seed[4 * at : 4 * at + 4], "big") % below


def stake(number: int) -> Json:
    """Terms, a pay and a bond; and at stakes around each border of the table what they support."""
    seed = digest(f"audit rates {number}")
    terms = Incentive(
        margin=1 + _number(seed, 0, 12),
        guard=1 + _number(seed, 1, 200),
        burnt_bps=_number(seed, 2, 10_001),
    )
    pay = 1 + int.from_bytes(seed[:11], "big")
    needed = [stake_needed(terms, pay, rate) for rate in range(len(RATES))]
    return {
        "guard": terms.guard,
        "lowest": lowest_rate(terms),
        "margin": terms.margin,
        "needed": [str(each) for each in needed],
        "pay": str(pay),
        "ratesBelow": [rate_of_stake(terms, pay, each - 1) for each in needed],
    }


def retention(number: int) -> Json:
    """The burnt part of a bond, and claims: what is kept of each, and the steps after it."""
    seed = digest(f"retention {number}")
    bond, most_steps = 40 + int.from_bytes(seed[:11], "big"), 1 + _number(seed, 3, 15)
    claims = [bond * (1 + _number(seed, at, 4 << number % 8)) // 4 for at in range(4, 8)]
    retained, kept, steps = 0, [], []
    for earned in claims:
        part = retained_part(earned, retained, most_retained(bond, most_steps))
        retained += part
        kept.append(str(part))
        steps.append(steps_of(bond, retained))
    return {
        "bond": str(bond),
        "claims": [str(each) for each in claims],
        "kept": kept,
        "mostSteps": most_steps,
        "needed": [str(stake_for(bond, n)) for n in range(len(RATES))],
        "steps": steps,
    }


def draw(number: int) -> Json:
    """Who is drawn of some seats that have come down from a round's rate."""
    seed = digest(f"audit draw {number}")
    revealed = Bitmap(int.from_bytes(digest(f"revealed {number}"), "big") >> (16 * number))
    said, rate = digest(f"steps {number}") * 8, number % 4
    steps = {SeatIndex(seat): said[seat] % 16 for seat in bits(revealed)}
    drawn = draw_audits(seed, revealed, NO_BITS, rate=rate, left=MAX_SEATS, steps=steps)
    return {
        "auditSeed": "0x" + seed.hex(),
        "drawn": hex(drawn),
        "rate": rate,
        "revealed": hex(revealed),
        "steps": [steps.get(SeatIndex(seat), 0) for seat in range(MAX_SEATS)],
    }


def rates() -> Json:
    """The whole file."""
    return {
        "draws": [draw(number) for number in range(DRAWS)],
        "retention": [retention(number) for number in range(RETENTIONS)],
        "stakes": [stake(number) for number in range(STAKES)],
        "table": [str(rate) for rate in RATES],
    }


FILES: Mapping[str, Callable[[], Json]] = {"audit_rates.json": rates}


def render(build: Callable[[], Json]) -> str:
    """The file's text: keys in alphabetical order."""
    return json.dumps(build(), indent=1, sort_keys=True) + "\n"


def main() -> None:
    for name, build in FILES.items():
        (HERE / name).write_text(render(build), encoding="utf-8")


if __name__ == "__main__":
    main()
