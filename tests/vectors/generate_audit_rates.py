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
    draw_by_rates,
    lowest_rate,
    most_retained,
    pack_rates,
    rate_of_stake,
    retained_part,
    stake_needed,
)
from atoll.protocol.types import Bitmap, Digest, SeatIndex, bits

HERE = Path(__file__).parent
Json: TypeAlias = dict[str, Any]
STAKES, DRAWS = 40, 12


def _number(seed: Digest, at: int, below: int) -> int:
    return int.from_bytes(seed[4 * at : 4 * at + 4], "big") % below


def stake(number: int) -> Json:
    """Terms, a pay and a bond; and at stakes around each border of the table what they support."""
    seed = digest(f"audit rates {number}")
    terms = Incentive(
        margin=1 + _number(seed, 0, 12),
        guard=1 + _number(seed, 1, 200),
        burnt_bps=_number(seed, 2, 10_001),
        retained_bps=_number(seed, 3, 10_001),
    )
    pay = 1 + int.from_bytes(seed[:11], "big")
    bond = pay * _number(seed, 4, 300)
    most, retained = most_retained(terms, pay, bond), pay * _number(seed, 5, 100)
    needed = [stake_needed(terms, pay, rate) for rate in range(len(RATES))]
    return {
        "bond": str(bond),
        "burntBps": terms.burnt_bps,
        "guard": terms.guard,
        "kept": str(retained_part(terms, pay, retained, most)),
        "lowest": lowest_rate(terms),
        "margin": terms.margin,
        "most": str(most),
        "needed": [str(each) for each in needed],
        "pay": str(pay),
        "ratesBelow": [rate_of_stake(terms, pay, each - 1) for each in needed],
        "retained": str(retained),
        "retainedBps": terms.retained_bps,
    }


def draw(number: int) -> Json:
    """Who is drawn of some seats at their rates."""
    seed = digest(f"audit draw {number}")
    revealed = Bitmap(int.from_bytes(digest(f"revealed {number}"), "big") >> (16 * number))
    rates = digest(f"rates {number}") * 8
    words = pack_rates({SeatIndex(seat): rates[seat] % 16 for seat in bits(revealed)})
    drawn = draw_by_rates(seed, revealed, words)
    return {
        "auditSeed": "0x" + seed.hex(),
        "drawn": hex(drawn),
        "rates": [hex(word) for word in words],
        "revealed": hex(revealed),
    }


def rates() -> Json:
    """The whole file."""
    return {
        "draws": [draw(number) for number in range(DRAWS)],
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
