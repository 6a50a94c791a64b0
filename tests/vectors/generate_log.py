"""Writes the vector of a job's log: `python tests/vectors/generate_log.py`.

Rule of this file: the events are those of a scripted network (`tests/unit/protocol/script.py`),
which hashes and draws for itself; the view is what `atoll.protocol.rounds` folds of them.
`README.md` beside it says what the file holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.support.manifests import make_terms
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, Script

from atoll.protocol.rounds import apply_all
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import NO_ROUND
from atoll.protocol.views import JobView

HERE = Path(__file__).parent
Json: TypeAlias = dict[str, Any]


def played() -> Script:
    """Four rounds: one holder leaves and one comes, a seat does half, another does five eighths of
    a round that merges nothing, the last is audited.
    """
    script = Script.ready(make_terms(rounds=4, seats=5), seats=4, slots=4)
    net = script.net
    script.honest_round()
    net.leave_seat(PROVIDERS[3])
    net.join(PROVIDERS[5], 4)
    script.train({1: 4})
    script.say()
    net.wait(1)
    script.settle(excluded={1}, merged=3)
    script.train({2: 5})
    script.say()
    net.wait(1)
    script.settle(merged=0)
    net.leave_pool(VERIFIERS[3])
    script.audit(script.honest_round())
    return script


def plain(value: Any) -> Any:
    """With the text's names, bytes in hex, and integers as they are."""
    if is_dataclass(value):
        return {name_of(f.name): plain(getattr(value, f.name)) for f in fields(value)}
    return f"0x{value.hex()}" if isinstance(value, bytes) else value


def name_of(field: str) -> str:
    head, *tail = field.split("_")
    return "from" if field == "start" else head + "".join(part.capitalize() for part in tail)


def view_of(view: JobView) -> Json:
    """What the second client follows, and where the job stands."""
    held = [*view.providers.values(), *view.verifiers.values()]
    named = ("role", "id", "account", "index", "start", "to")
    holders = [{name_of(name): plain(getattr(h, name)) for name in named} for h in held]
    return {
        "holders": [h | {"to": None if h["to"] == NO_ROUND else h["to"]} for h in holders],
        "phase": view.phase.name,
        "round": view.round,
        "rounds": [settled_of(round) for round in view.settled],
        "status": view.status.name,
    }


def settled_of(told: SettledRound) -> Json:
    return {
        "auditSeed": plain(told.record.audit_seed),
        "bodies": {str(id): plain(body.to_bytes()) for id, body in told.opened_reports.items()},
        "digest": plain(told.digest),
        "drawn": told.drawn,
        "duties": {str(slot): list(seats) for slot, seats in told.duties.items()},
        "keys": {str(seat): plain(key) for seat, key in told.keys.items()},
        "pay": told.pay,
        "reveals": {str(s): plain(r.reveal.update_root) for s, r in told.reveals.items()},
        "segments": {str(s): r.segments for s, r in told.reveals.items()},
        "signers": told.signers,
        "state": plain(told.verdict.state),
        "votes": {str(slot): has for slot, has in told.votes.items()},
    }


def log() -> Json:
    net = played().net
    view = apply_all(JobView.of(net.domain, net.job), net.log)
    return {
        "chainId": net.domain.chain_id,
        "events": [
            {"arguments": plain(e), "block": plain(block), "name": type(e).__name__}
            for e, block in net.log
        ],
        "jobId": net.job,
        "rounds": str(net.domain.rounds),
        "view": view_of(view),
    }


FILES: Mapping[str, Callable[[], Json]] = {"log.json": log}


def render(build: Callable[[], Json]) -> str:
    """The file's text: keys in alphabetical order."""
    return json.dumps(build(), indent=1, sort_keys=True) + "\n"


def main() -> None:
    for name, build in FILES.items():
        (HERE / name).write_text(render(build))


if __name__ == "__main__":
    main()
