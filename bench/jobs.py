"""What a job's size costs each role: peak memory, bytes and seconds, one process for each part.

    python bench/jobs.py [--json] [--preset gpt2-small] [--seq 64] [--steps 1] [--seats 2]
                         [--layers 11] [--rounds 1]

The model has random weights of the preset's shapes, or is one of fewer layers. One provider trains
a round of one segment of `--steps` steps of two sequences and writes its update; an auditor replays
the round; a member checks the update and merges those of `--seats` (the same one over again: their
sizes are what counts). The parts whose names begin with `warm` are those of the next round, which
opens with the merged moments. Each part is what a worker process runs for it, in a process of its
own; its peak is the largest resident memory that the operating system saw. `start` is a worker that
has done nothing yet. The bar is 20 bytes a parameter and 1 GB (10^9) for every part; `of_bar` is
the peak's share of it. `said_bytes` is what the part takes by arithmetic, `of_said` the peak's
share of that.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

BYTES_A_PARAMETER, BYTES_MORE = 20, 10**9
MICRO_BATCHES = 2
"""Of a step, a sequence each: from the second on there are gradients to add to."""
WARM = "warm "
"""What the names of the second round's parts begin with."""
COLD_PARTS = ("start", "open", "train", "replay", "check", "merge")
PARTS = COLD_PARTS + tuple(WARM + part for part in COLD_PARTS[2:])
END = "<|endoftext|>"
DATA_SEED, KEY = bytes([5]) * 32, bytes([9]) * 32


@dataclass(frozen=True, slots=True)
class Bench:
    """A folder with a store, the manifest, and what earlier parts left; and the round."""

    folder: Path
    round: int = 0

    @property
    def store(self) -> str:
        return str(self.folder / "store")

    @property
    def manifest(self) -> bytes:
        return (self.folder / "manifest").read_bytes()

    @property
    def initial_state(self) -> bytes:
        """The CID of the global state that the round opens from."""
        return self.kept(f"opening {self.round}")["cid"]

    def keep(self, name: str, fields: dict[str, bytes]) -> None:
        as_hex = {field: value.hex() for field, value in fields.items()}
        (self.folder / name).write_text(json.dumps(as_hex))

    def kept(self, name: str) -> dict[str, bytes]:
        as_hex: dict[str, str] = json.loads((self.folder / name).read_text())
        return {field: bytes.fromhex(value) for field, value in as_hex.items()}


def main() -> None:
    options = _options()
    if options.part:
        print(json.dumps(_measured(options.part, Bench(Path(options.folder)))))
        return
    with tempfile.TemporaryDirectory(prefix="atoll-jobs-", dir=options.folder or None) as folder:
        document = _document(options, Bench(Path(folder)))
    print(json.dumps(document) if options.json else _table(document))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--preset", default="gpt2-small")
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--layers", type=int, default=0, help="else as many as the preset has")
    parser.add_argument("--rounds", type=int, default=2, choices=(1, 2))
    parser.add_argument("--seats", type=int, default=2, help="whose updates are merged")
    parser.add_argument("--text-mb", type=float, default=1.0, help="of the standard library")
    parser.add_argument("--folder", default="", help="where to work; else the temporary folder")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    return parser.parse_args()


def _document(options: argparse.Namespace, bench: Bench) -> dict[str, Any]:
    from atoll.protocol.manifest import Manifest
    from atoll.train.memory_limit import room_for_work
    from atoll.train.memory_needs import peaks, plan_for

    parameters = _prepare(options, bench)
    bar = BYTES_A_PARAMETER * parameters + BYTES_MORE
    parts: dict[str, dict[str, Any]] = {}
    for part in PARTS if options.rounds == 2 else COLD_PARTS:
        command = [sys.executable, __file__, "--part", part, "--folder", str(bench.folder)]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode != 0:
            raise SystemExit(f"{part} failed:\n{process.stderr}")
        parts[part] = json.loads(process.stdout.splitlines()[-1])
        if part == "train":
            manifest = Manifest.from_bytes(bench.manifest)
            # A machine that is short of memory plans as a worker does; the parts are seen so, too.
            plan = plan_for(manifest, room_for_work())
            predicted = peaks(manifest, parts[part]["update_bytes"], plan)
        parts[part]["of_bar"] = round(parts[part]["peak_bytes"] / bar, 3)
        start = parts["start"]["peak_bytes"]
        parts[part]["bytes_a_parameter"] = round(
            (parts[part]["peak_bytes"] - start) / parameters, 1
        )
    for part, figures in parts.items():
        known = predicted[part.removeprefix(WARM)]
        figures |= {"said_bytes": known, "of_said": round(figures["peak_bytes"] / known, 3)}
    seen = [each["peak_bytes"] for each in parts.values()]
    return {
        "bench": "jobs",
        "preset": options.preset,
        "parameters": parameters,
        "seq": options.seq,
        "steps": options.steps,
        "seats": options.seats,
        "bar_bytes": bar,
        "holds": max(seen) <= bar,
        "parts": parts,
    }


def _prepare(options: argparse.Namespace, bench: Bench) -> int:
    """Text and manifest; how many parameters the model has."""
    from tests.support.jobs import PLAIN

    from atoll.job.plan import filled
    from atoll.job.prepare_manifest import prepare_data
    from atoll.job.presets import preset
    from atoll.numerics.state_layout import param_shapes
    from atoll.storage.local import LocalStore
    from atoll.train.probe import numerics_spec, pin_torch

    pin_torch()
    library = str(Path(json.__file__).parent.parent)
    chosen = preset(options.preset)
    if chosen.model is None:
        raise SystemExit(f"--preset: {options.preset} has no model of its own")
    changes = {"seq": options.seq} | ({"layers": options.layers} if options.layers else {})
    spec = chosen.but(
        {
            "rounds": 2,
            "model": chosen.model.model_dump() | changes,
            "data": {
                "paths": [library],
                "tokenizer": (tokenizer := _tokenizer(bench.folder, chosen.model.vocab)),
                "end_token": END if tokenizer else "",
                "suffixes": [".py"],
                "max_tokens": int(options.text_mb * 1e6),
            },
            "inner": {
                "steps": options.steps,
                "segment": options.steps,
                "batch": MICRO_BATCHES,
                "micro_batch": 1,
            },
            "members.seats": max(4, options.seats),
            "money": PLAIN.money.model_dump(),
            "windows": PLAIN.windows.model_dump(),
            "lifetime": PLAIN.lifetime,
        }
    )
    data = prepare_data(spec, LocalStore(bench.store))
    manifest = filled(spec).resolve(data, None, numerics_spec(), int(time.time()))
    (bench.folder / "manifest").write_bytes(manifest.to_bytes())
    return sum(math.prod(shape) for shape in param_shapes(manifest.model).values())


def _tokenizer(folder: Path, vocabulary: int) -> str:
    """A file of byte pairs for a model of more than bytes: tokens then take as much as it needs."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    if vocabulary <= 256:
        return ""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1000, initial_alphabet=alphabet, special_tokens=[END], show_progress=False
    )
    tokenizer.train([json.__file__], trainer)
    file = folder / "tokenizer.json"
    tokenizer.save(str(file))
    return str(file)


def _measured(part: str, bench: Bench) -> dict[str, Any]:
    import atoll.service.tasks
    import atoll_node.tasks
    from atoll.train.probe import pin_torch

    del atoll_node, atoll
    pin_torch()
    bench = replace(bench, round=int(part.startswith(WARM)))
    known: dict[str, Callable[[Bench], dict[str, Any]]] = {
        "start": lambda _: {},
        "open": _open,
        "train": _train,
        "replay": _replay,
        "check": _check,
        "merge": _merge,
    }
    started, cpu = time.perf_counter(), time.process_time()
    more = known[part.removeprefix(WARM)](bench)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "peak_bytes": peak,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
    } | more


def _round_id(bench: Bench) -> Any:
    from atoll.protocol.types import Address, Domain, JobId, RoundId, RoundIndex

    return RoundId(Domain(31337, Address("0x" + "11" * 20)), JobId(1), RoundIndex(bench.round))


def _open(bench: Bench) -> dict[str, Any]:
    from atoll.service.tasks import make_initial_state

    made = make_initial_state(bench.manifest, bench.store)
    bench.keep("opening 0", {"cid": made.cid, "digest": made.digest})
    return {}


def _train(bench: Bench) -> dict[str, Any]:
    import atoll_node.tasks
    from atoll.protocol.manifest import Manifest
    from atoll.protocol.types import Digest, SeatIndex
    from atoll.storage.local import LocalStore
    from atoll.train.seat_task import TrainTask

    task = TrainTask(
        manifest=Manifest.from_bytes(bench.manifest),
        round_id=_round_id(bench),
        seat=SeatIndex(0),
        data_seed=Digest(DATA_SEED),
        global_state_cid=bench.initial_state,
    )
    trained = atoll_node.tasks.train(task, bench.store, ())
    cid = LocalStore(bench.store).add_bytes(trained.update)
    reveal = {
        "checkpoint_commitments": trained.checkpoint_commitments(Digest(KEY)).to_bytes(),
        "root": trained.update_root,
    }
    bench.keep(f"trained {bench.round}", reveal | {"cid": cid.to_bytes()})
    return {
        "seconds_in_steps": round(trained.seconds_in_steps, 2),
        "update_bytes": len(trained.update),
        "loss": round(trained.losses[-1], 3),
    }


def _trained(bench: Bench) -> dict[str, bytes]:
    return bench.kept(f"trained {bench.round}")


def _replay(bench: Bench) -> dict[str, Any]:
    from atoll.protocol.types import Digest, SeatIndex
    from atoll.service.duties.replay_seat import DoReplay
    from atoll.service.tasks import replay

    reveal = _trained(bench)
    where = (_round_id(bench), SeatIndex(0), Digest(bytes(32)), Digest(DATA_SEED))
    certified = Digest(bench.kept("opening 1")["digest"]) if bench.round else None
    claimed = (reveal["checkpoint_commitments"], Digest(reveal["root"]), certified, bench.manifest)
    seat_replay = replay(DoReplay(*where, *claimed), bench.initial_state, bench.store)
    if seat_replay.mismatch_at is not None:
        raise SystemExit(f"the replay has a mismatch at {seat_replay.mismatch_at}")
    return {"seconds_in_steps": round(seat_replay.seconds, 2)}


def _updates(bench: Bench) -> list[Any]:
    from atoll.protocol.manifest import Manifest
    from atoll.protocol.types import Digest, SeatIndex
    from atoll.service.duties.updates import RevealedUpdate

    reveal, seats = _trained(bench), Manifest.from_bytes(bench.manifest).terms.seats
    return [
        RevealedUpdate(SeatIndex(seat), reveal["cid"], Digest(reveal["root"]))
        for seat in range(seats)
    ]


def _check(bench: Bench) -> dict[str, Any]:
    from atoll.protocol.types import Digest, RoundIndex
    from atoll.service.duties.updates import DoGetUpdate
    from atoll.service.tasks import is_canonical

    command = DoGetUpdate(
        round=RoundIndex(bench.round),
        commitment=Digest(bytes(32)),
        update=_updates(bench)[0],
        data_seed=Digest(DATA_SEED),
        manifest=bench.manifest,
        initial_state=bench.initial_state,
    )
    if not is_canonical(command, bench.store):
        raise SystemExit("the update is not canonical")
    return {}


def _merge(bench: Bench) -> dict[str, Any]:
    from atoll.protocol.manifest import Manifest
    from atoll.protocol.merge_inputs import MergeRecord
    from atoll.protocol.types import Digest, to_bitmap
    from atoll.service.duties.merge import DoMerge
    from atoll.service.tasks import merge_round

    manifest, updates = Manifest.from_bytes(bench.manifest), _updates(bench)
    seats = [update.seat for update in updates]
    there = to_bitmap(seats)
    record = MergeRecord(there, 1, [there], dict.fromkeys(seats, manifest.segments))
    where = (_round_id(bench), Digest(DATA_SEED), record, tuple(updates))
    merged = merge_round(DoMerge(*where, bench.manifest, bench.initial_state), bench.store)
    if not merged.merged:
        raise SystemExit("no update was merged")
    bench.keep(f"opening {bench.round + 1}", {"cid": merged.cid, "digest": merged.state})
    return {}


def _table(document: dict[str, Any]) -> str:
    lines = [f"{document['preset']}, {document['parameters']:,} parameters"]
    for name, part in document["parts"].items():
        lines.append(
            f"{name:11} peak {part['peak_bytes'] / 1e9:6.2f} GB, {part['bytes_a_parameter']:5.1f} "
            f"B a parameter above start, {part['of_bar']:.2f} of the bar, "
            f"{part['of_said']:.2f} of what is said, {part['seconds']:.1f} s"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
