"""What each of several ranks holds of a seat's state in a step, counted and seen.

    python bench/shards.py [--preset gpt2-small] [--ranks 1 2 3 4] [--seq 32] [--steps 2] [--json]

A model with random weights of the preset's shapes is trained for some steps of short sequences, a
micro-batch for each rank of the largest group and a lane, layers being computed again as where
memory is short. Of each number of ranks are said: the largest number of bytes of parameters,
moments and gradients' sums that a rank held at once, and its share of the bar, which is 1.15 of 16
bytes a parameter divided by the ranks; what the operating system saw of each process at most; and
the digest, which has to be one and the same. Each number of ranks has a first process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch reads it, as a worker has it

BAR, BYTES = 1.15, 16
MICRO_BATCHES = 4
"""Of a step, each a lane: as many as the largest group has ranks."""


def main() -> None:
    options = _options()
    if options.part:
        print(json.dumps(_measured(options, options.part)))
        return
    document = _document(options)
    print(json.dumps(document) if options.json else _table(document))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--preset", default="gpt2-small")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--seq", type=int, default=32)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--layers", type=int, default=0, help="else as many as the preset has")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


def _document(options: argparse.Namespace) -> dict[str, Any]:
    groups = {}
    for ranks in options.ranks:
        command = [sys.executable, __file__, *sys.argv[1:], "--part", str(ranks)]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode != 0:
            raise SystemExit(f"{ranks} ranks failed:\n{process.stderr}")
        groups[ranks] = json.loads(process.stdout.splitlines()[-1])
    digests = {group["digest"] for group in groups.values()}
    return {
        "bench": "shards",
        "preset": options.preset,
        "parameters": next(iter(groups.values()))["parameters"],
        "one_digest": len(digests) == 1,
        "holds": all(group["of_bar"] <= 1 for group in groups.values()),
        "groups": groups,
    }


def _measured(options: argparse.Namespace, ranks: int) -> dict[str, Any]:
    """Steps of a group, of which this is the first process."""
    import torch

    from atoll.lab.differential import LabRun
    from atoll.numerics.memory_plan import RECOMPUTING
    from atoll.numerics.ops import operations
    from atoll.numerics.schedule import Recipe
    from atoll.numerics.state import GlobalState, SeatState
    from atoll.numerics.state_layout import optimiser_layout, param_count, param_shapes
    from atoll.numerics.step import state_roots, step_in_place
    from atoll.train.island import Island

    torch.set_num_threads(1)
    model = _model(options)
    sizes = {"batch": MICRO_BATCHES, "micro_batch": 1, "lanes": MICRO_BATCHES}
    inner = LabRun(steps=8).inner().model_copy(update=sizes)
    recipe = Recipe(model, inner, inner.steps, operations(), memory=RECOMPUTING)
    shapes, count = param_shapes(model), param_count(model)
    layout = optimiser_layout(shapes, inner)
    with Island(ranks) as island:
        holds = island.holds(shapes, inner)
        params = holds("params")
        for index, (name, shape) in enumerate(shapes.items()):
            random = torch.Generator().manual_seed(index)
            is_gain = len(shape) == 1
            params[name] = torch.ones(shape) if is_gain else _normal(shape, random)
        state = SeatState.initial(GlobalState(0, params, {}, {}), layout, holds=holds)
        del params
        before = [_peak(pid) for pid in (os.getpid(), *island.processes)]
        seconds = []
        for step in range(options.steps):
            begun = time.perf_counter()
            state = step_in_place(state, _batch(model, inner, step), recipe).state
            seconds.append(round(time.perf_counter() - begun, 2))
        digest = state_roots(state).digest().hex()
        # One process has its sums beside the state.
        held = island.most_bytes() or [BYTES * count]
        seen = [_peak(pid) for pid in (os.getpid(), *island.processes)]
    return {
        "parameters": count,
        "held_bytes": held,
        "of_bar": round(max(held) * ranks / (BAR * BYTES * count), 3),
        "peak_bytes": seen,
        "peak_bytes_before_steps": before,
        "seconds": seconds,
        "digest": digest,
    }


def _model(options: argparse.Namespace) -> Any:
    from atoll.job.presets import preset

    model = preset(options.preset).model
    assert model is not None
    layers = options.layers or model.layers
    return model.model_copy(update={"seq": options.seq, "layers": layers})


def _normal(shape: Any, random: Any) -> Any:
    import torch

    return torch.randn(shape, generator=random).mul_(0.02)


def _batch(model: Any, inner: Any, step: int) -> Any:
    import torch

    from atoll.numerics.batch import MicroBatch
    from atoll.numerics.gradients import StepInput

    random = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, model.vocab, (inner.batch, model.seq + 1), generator=random)
    parts = tokens.split(inner.micro_batch)
    batch = [MicroBatch(p[:, :-1], p[:, 1:], torch.ones(p[:, 1:].shape)) for p in parts]
    return StepInput(batch, step)


def _peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _table(document: dict[str, Any]) -> str:
    lines = [f"{document['preset']}: {document['parameters']:,} parameters"]
    for ranks, group in document["groups"].items():
        held, seen = ([n / 1e9 for n in group[name]] for name in ("held_bytes", "peak_bytes"))
        lines.append(
            f"{ranks} ranks: {max(held):.3f} GB of state and sums at most "
            f"({group['of_bar']:.2f} of the bar), peaks {', '.join(f'{n:.2f}' for n in seen)} GB"
        )
    lines.append(f"one digest: {document['one_digest']}; the bar holds: {document['holds']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
