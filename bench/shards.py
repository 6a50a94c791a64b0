"""What each of several ranks holds of a seat's state in a step, counted and seen.

    python bench/shards.py [--preset gpt2-small] [--layers N] [--ranks 1 2 3 4] [--seq 32]
                           [--steps 2] [--plan layers-again] [--adapters RANK] [--json]

A model with random weights of the preset's shapes is trained for some steps of short sequences, a
micro-batch for each rank of the largest group and a lane, with the memory that the plan leaves:
`roomy`, `layers-again` for layers that are computed again, `lean` for moments in files besides. Of
each number of ranks are said: the largest number of bytes of parameters, moments and gradients'
sums that a rank held at once, and its share of the bar, which is 1.15 of 16 bytes a parameter
divided by the ranks (of 8 where the moments are in files, which are not counted); what the
operating system saw of each process at most, what `rank_bytes` says of it, and their ratio; and the
digest, which has to be one and the same. Each number of ranks has a first process of its own. With
`--adapters` the model is a frozen base, and adapters of that rank on all its linears are trained:
what each rank holds of the base is said, too, and of all jobs what all ranks send one another in a
step to read weights (`gathered_bytes`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ["OMP_NUM_THREADS"] = "1"  # before torch reads it, as a worker has it

BAR, BYTES, BYTES_BESIDE = 1.15, 16, 8
"""The last ones are a parameter's without its moments."""
MANIFEST = "manifest"
PLANS = ("roomy", "layers-again", "lean")
MICRO_BATCHES = 4
"""Of a step, each a lane: as many as the largest group has ranks."""


def main() -> None:
    options = _options()
    if options.part:
        print(json.dumps(_measured(options, Path(options.folder))))
        return
    with TemporaryDirectory(prefix="atoll-shards-") as folder:
        document = _document(options, Path(folder))
    print(json.dumps(document) if options.json else _table(document))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--preset", default="gpt2-small")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--seq", type=int, default=32)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--layers", type=int, default=0, help="else as many as the preset has")
    parser.add_argument("--plan", choices=PLANS, default="layers-again")
    parser.add_argument("--adapters", type=int, default=0, help="of this rank, on a frozen base")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


def _document(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from atoll.numerics.memory_plan import PLANS as KNOWN
    from atoll.train.memory_needs import rank_bytes

    manifest, groups = _manifest(options), {}
    (folder / MANIFEST).write_bytes(manifest.to_bytes())
    for ranks in options.ranks:
        part = ["--part", str(ranks), "--folder", str(folder)]
        command = [sys.executable, __file__, *sys.argv[1:], *part]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode != 0:
            raise SystemExit(f"{ranks} ranks failed:\n{process.stderr}")
        groups[ranks] = json.loads(process.stdout.splitlines()[-1])
        known = rank_bytes(manifest, ranks, KNOWN[PLANS.index(options.plan)])
        shares = [round(peak / known, 3) for peak in groups[ranks]["peak_bytes"]]
        groups[ranks] |= {"said_bytes": known, "of_said": shares}
    digests = {group["digest"] for group in groups.values()}
    return {
        "bench": "shards",
        "preset": options.preset,
        "seq": options.seq,
        "plan": options.plan,
        "adapters": options.adapters,
        "parameters": next(iter(groups.values()))["parameters"],
        "one_digest": len(digests) == 1,
        "holds": all(group["of_bar"] <= 1 for group in groups.values()),
        "groups": groups,
    }


def _measured(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Steps of a group, of which this is the first process."""
    import torch

    from atoll.numerics import memory_plan
    from atoll.numerics.ops import operations
    from atoll.numerics.schedule import Recipe
    from atoll.numerics.state_layout import trained_count, trained_shapes
    from atoll.numerics.step import state_roots
    from atoll.protocol.manifest import Manifest
    from atoll.train.island import Island
    from traffic import counted

    torch.set_num_threads(1)
    manifest = Manifest.from_bytes((folder / MANIFEST).read_bytes())
    model, inner = manifest.model, manifest.inner
    plan = memory_plan.PLANS[PLANS.index(options.plan)]
    recipe = Recipe(model, inner, inner.steps, operations(), memory=plan)
    shapes, count = trained_shapes(manifest), trained_count(manifest)
    ranks, apart = options.part, str(folder) if plan.moments_apart else ""
    sent: Counter[str] = Counter()
    step_by = counted(sent) if ranks > 1 else counted(Counter())
    with Island(ranks) as island:
        state = _state(manifest, island.holds(shapes, inner, apart=apart), apart)
        if manifest.lora is not None:
            recipe = replace(recipe, base=_base(manifest, recipe, island))
        before = [_peak(pid) for pid in (os.getpid(), *island.processes)]
        seconds = []
        for step in range(options.steps):
            begun = time.perf_counter()
            state = step_by(state, _batch(model, inner, step), recipe).state
            seconds.append(round(time.perf_counter() - begun, 2))
        digest = state_roots(state).digest().hex()
        # One process has its sums beside the state.
        bytes_here = BYTES_BESIDE if plan.moments_apart else BYTES
        held = island.most_bytes() or [bytes_here * count]
        base = island.base_bytes()
        seen = [_peak(pid) for pid in (os.getpid(), *island.processes)]
    return {
        "parameters": count,
        "held_bytes": held,
        "of_bar": round(max(held) * ranks / (BAR * bytes_here * count), 3),
        "base_bytes": base,
        "gathered_bytes": sent["broadcast"] // options.steps,
        "peak_bytes": seen,
        "peak_bytes_before_steps": before,
        "seconds": seconds,
        "digest": digest,
    }


def _state(manifest: Any, holds: Any, apart: str) -> Any:
    """Random weights, or adapters, made a tensor at a time; alone, moments lie in files or here."""
    from atoll.numerics.state import GlobalState, SeatState
    from atoll.numerics.state_layout import optimiser_layout, trained_shapes
    from atoll.numerics.tensors import in_memory
    from atoll.train.mapped_tensors import MappedTensors

    def allocate(name: str, shape: Any, dtype: Any) -> Any:
        is_apart = apart and name.startswith(("m/", "v/"))
        return (
            MappedTensors(Path(apart)).empty(shape, dtype)
            if is_apart
            else in_memory(name, shape, dtype)
        )

    shapes, params = trained_shapes(manifest), holds("params")
    for name, tensor in _weights(shapes):
        params[name] = tensor
    layout = optimiser_layout(shapes, manifest.inner)
    return SeatState.initial(GlobalState(0, params, {}, {}), layout, allocate=allocate, holds=holds)


def _weights(shapes: Any) -> Iterator[tuple[str, Any]]:
    import torch

    for index, (name, shape) in enumerate(shapes.items()):
        random = torch.Generator().manual_seed(index)
        yield name, torch.ones(shape) if len(shape) == 1 else _normal(shape, random)


def _base(manifest: Any, recipe: Any, island: Any) -> Any:
    """As `open_base_of_ranks` has it."""
    from atoll.numerics.frozen_base import freeze_all, frozen_pieces
    from atoll.numerics.state_layout import param_shapes

    def weights() -> Iterator[tuple[str, Any]]:
        return _weights(dict(sorted(param_shapes(manifest.model).items())))

    if island.is_alone or not recipe.memory.recomputes_layers:
        return freeze_all(weights(), manifest.model, recipe.ops, scale=manifest.lora.scale)
    pieces = partial(frozen_pieces, model=manifest.model, ops=recipe.ops)
    return island.base_in_rows("base", lambda: pieces(weights()), manifest.lora.scale)


def _manifest(options: argparse.Namespace) -> Any:
    """Of a job with data that nobody has: the model's shapes are what counts."""
    from tests.support.manifests import unstored_data

    from atoll.job.plan import filled
    from atoll.job.presets import preset
    from atoll.protocol.families import LINEARS
    from atoll.protocol.manifest import Manifest, NumericsSpec

    chosen = preset(options.preset)
    if chosen.model is None:
        raise SystemExit(f"--preset: {options.preset} has no model of its own")
    layers = options.layers or chosen.model.layers
    steps = {"steps": 8, "segment": 8, "batch": MICRO_BATCHES, "micro_batch": 1}
    spec = chosen.but(
        {"model.seq": options.seq, "model.layers": layers}
        | {f"inner.{name}": value for name, value in steps.items()}
        | {"inner.lanes": MICRO_BATCHES, "evaluate.batches": 0}
    )
    wide = unstored_data(train_tokens=1_900_000).model_copy(update={"dtype": "uint32"})
    nobodys = NumericsSpec(code_digest=bytes(32), probe_digest=bytes(32))
    manifest = filled(spec).resolve(wide, None, nobodys, int(time.time()))
    if not options.adapters:
        return manifest
    lora = {"rank": options.adapters, "alpha": "8", "targets": list(LINEARS)}
    init = {"seed": 1, "cid": manifest.data.cid, "root": bytes(32)}
    return Manifest.model_validate(manifest.model_dump() | {"lora": lora, "init": init})


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
            f"({group['of_bar']:.2f} of the bar), peaks {', '.join(f'{n:.2f}' for n in seen)} GB "
            f"where {group['said_bytes'] / 1e9:.2f} GB are said; "
            f"{group['gathered_bytes'] / 1e6:.1f} MB gathered in a step"
        )
    lines.append(f"one digest: {document['one_digest']}; the bar holds: {document['holds']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
