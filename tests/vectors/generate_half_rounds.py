"""Writes schedules of short and whole rounds: `python tests/vectors/generate_half_rounds.py`.

Rule of this file: jobs are those of a scripted network (`tests/unit/protocol/script.py`), which
counts for itself; what is written is what `atoll.protocol.rounds` folds of its events. What each
seat does is drawn by SHA-256 from the case's number. `README.md` beside it says what the file
holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tests.support.identities import digest
from tests.support.manifests import make_terms
from tests.unit.protocol.script import Script

from atoll.protocol.merge_inputs import is_whole_enough
from atoll.protocol.types import NO_ROUND, Phase
from atoll.protocol.views import JobView

HERE = Path(__file__).parent
Json: TypeAlias = dict[str, Any]
CASES, ROUNDS, SEATS = 72, 6, 4
DONE = (8, 8, 8, 7, 6, 5, 4, 0)
"""Segments of eight; 6 are enough to be merged."""
ABSENT = 0xFF


def case(number: int) -> Json:
    """A job that is played until it waits, ends, or has had its rounds."""
    f = number % 2
    script = Script.ready(make_terms(rounds=ROUNDS + 1, f=f, min_providers=1))
    columns = [_round(script, number, round) for round in _rounds(script)]
    names = ("done", "earned", "available", "merged", "missed", "pay")
    return {"f": f} | {name: [column[name] for column in columns] for name in names}


def _rounds(script: Script) -> Any:
    script.net.advance()
    for round in range(ROUNDS):
        if script.net.phase is Phase.TRAIN:
            yield round


def _round(script: Script, number: int, round: int) -> Json:
    net, drawn = script.net, digest(f"half rounds {number} {round}")
    before = missing(net.view)
    # Every third job is of seats that do the same, as who would stop it has them do.
    seats = [0] * SEATS if number % 3 == 0 else range(SEATS)
    done = {s: DONE[drawn[at] % len(DONE)] for s, at in enumerate(seats) if s in net.seated}
    available = set(done) - ({drawn[8] % SEATS} if drawn[9] % 4 == 0 else set())
    merged = sum(is_whole_enough(done[s], 8) for s in available)
    merged = merged if merged > 2 * net.terms.f else 0
    script.train(done)
    script.say(has=bitmap(available))
    net.wait(1)
    script.settle(merged=merged)
    settled_round = net.view.settled[-1]
    earning = settled_round.record.revealed & ~settled_round.unearned
    return {
        "done": "0x" + bytes(done.get(s, ABSENT) for s in range(SEATS)).hex(),
        "earned": sum(m for s, m in done.items() if earning >> s & 1),
        "available": bitmap(available),
        "merged": merged,
        "missed": bitmap(missing(net.view) - before),
        "pay": settled_round.pay,
    }


def missing(view: JobView) -> set[int]:
    """Seats whose penalty is due."""
    return {h.index for h in view.providers.values() if h.missed != NO_ROUND}


def bitmap(seats: set[int]) -> int:
    return sum(1 << seat for seat in seats)


def cases() -> Json:
    return {"cases": [case(number) for number in range(CASES)], "segments": 8}


FILES: Mapping[str, Callable[[], Json]] = {"half_rounds.json": cases}


def render(build: Callable[[], Json]) -> str:
    """The file's text: keys in alphabetical order."""
    return json.dumps(build(), indent=1, sort_keys=True) + "\n"


def main() -> None:
    for name, build in FILES.items():
        (HERE / name).write_text(render(build))


if __name__ == "__main__":
    main()
