"""Works a finished job out again: `python -m tests.second_client FOLDER`.

In the folder lie `manifest.cbor`, `tokens` (the training tokens, raw), `held_out` (the evaluation
set's) and `revealed.json`: the domain, and for every round the slot's attempt, the data seed, and
of each seat the steps and the reset that it revealed. Where the manifest names initial weights,
they lie there as `weights`. What is printed is JSON: for every round the roots of every seat's
trace, update and optimiser, the digest of the merge, and the merged model's held-out loss.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tests.second_client import provide
from tests.second_client.documents import read_manifest
from tests.second_client.evaluate import held_out_loss
from tests.second_client.merge import merge
from tests.second_client.state import State, global_digest, initial_global_state


def main() -> None:
    folder = Path(sys.argv[1])
    manifest = read_manifest((folder / "manifest.cbor").read_bytes())
    width = {"uint8": "<u1", "uint16": "<u2", "uint32": "<u4"}[manifest["data"]["dtype"]]
    tokens = np.frombuffer((folder / "tokens").read_bytes(), dtype=width)
    revealed = json.loads((folder / "revealed.json").read_text())
    held_out = np.frombuffer((folder / "held_out").read_bytes(), dtype=width)
    weights = (folder / "weights").read_bytes() if manifest["init"]["cid"] else b""
    job = provide.open_job(manifest, tokens, weights)
    model, carried = initial_global_state(manifest, weights), dict[int, State]()
    rounds = []
    for number, told in enumerate(revealed["rounds"]):
        slot = (revealed["chain"], bytes.fromhex(revealed["contract"]), revealed["job"], number)
        model, found = work_out(job, model, carried, (*slot, told["attempt"]), told)
        loss = held_out_loss(job.base | model["params"], manifest, job.tables, held_out)
        rounds.append(found | {"held_out": loss.hex()})
    json.dump(rounds, sys.stdout)


def work_out(
    job: provide.Job, model: State, carried: dict[int, State], slot: provide.Slot, told: Any
) -> tuple[State, dict[str, Any]]:
    """The next global state, and what a round's seats and merge should have said."""
    seed, found, updates = bytes.fromhex(told["data_seed"]), {}, {}
    for name, seat in told["seats"].items():
        brought = None if seat["reset"] else carried[int(name)]  # a public job's always reset
        done = provide.provide(job, model, brought, slot, (seed, int(name)))
        carried[int(name)], updates[int(name)] = done["carried"], done["update"]
        roots = ("trace_root", "update_root", "optimiser_root")
        found[name] = {root: done[root].hex() for root in roots} | {"steps": done["steps"]}
    facts = {"revealed": sum(1 << seat for seat in updates), "rejected": 0, "unresolved": 0}
    facts |= {"caught": 0, "steps": {int(s): seat["steps"] for s, seat in told["seats"].items()}}
    after, _ = merge(job.manifest, model, facts, updates, seed)
    return after, {
        "seats": found,
        "merged": global_digest(after).hex(),
    }


if __name__ == "__main__":
    main()
