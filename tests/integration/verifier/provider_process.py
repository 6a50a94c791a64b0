"""A provider on a machine of its own: `STORE MANIFEST OPENING THREADS WORK`, bytes in hex.

Trains the round of the unit tests' job and prints what it would reveal, as JSON.
"""

from __future__ import annotations

import json
import sys

import torch
from tests.unit.train.factories import task_of
from tests.unit.train.test_tolerant_mode import skips_a_step, with_inner

from atoll.bits.segment import run_segment
from atoll.content.local import LocalStore
from atoll.law.manifest import Manifest
from atoll.train.round import train_round

WORK = {
    "honest": run_segment,
    "a step skipped": skips_a_step,
    "no weight decay": with_inner(weight_decay="0"),
    "half the rate": with_inner(lr="0.0015"),
}


def main() -> None:
    store, manifest, opening, threads, work = sys.argv[1:]
    torch.set_num_threads(int(threads))
    task = task_of(Manifest.from_bytes(bytes.fromhex(manifest)), bytes.fromhex(opening))
    done = train_round(task, LocalStore(store, sync=False), run=WORK[work])
    revealed = {
        "trace_root": done.trace_root,
        "update_root": done.update_root,
        "optimiser_root": done.optimiser_root,
        "update_cid": done.update_cid,
        "trace_cid": done.trace_cid,
    }
    sys.stdout.write(json.dumps({name: value.hex() for name, value in revealed.items()}))


if __name__ == "__main__":
    main()
