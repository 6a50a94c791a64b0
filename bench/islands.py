"""Ranks beside PyTorch's own data parallelism: bytes between them in a step, memory, and time.

    python bench/islands.py [--ranks R --width W --layers L --vocab V --seq T --steps N] [--json]

Each rank has one micro-batch, and a lane. Bytes are counted where they are handed over: what all
ranks send one another in a step, as the least that a broadcast, all-to-all or gather needs. FSDP2's
are counted likewise: weights gathered in bf16 for the forward and the backward pass, gradients
scattered in fp32. DDP and FSDP2 train the same model by PyTorch's own operations, under bf16
autocast, in as many processes of one thread each; why FSDP2 is left out where gloo cannot run it is
said. Times are by the clock, the median of the steps, one way after the other in the same run.
Memory is what the operating system saw at most, of each rank that follows; what they hold is
counted by bench/shards.py.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch reads it, as a worker has it

import torch
import torch.distributed as dist
from torch import Tensor, nn

from atoll.lab.differential import LabRun
from atoll.numerics.batch import MicroBatch
from atoll.numerics.gradients import StepInput
from atoll.numerics.init import initial_params
from atoll.numerics.model import forward
from atoll.numerics.ops import NativeOps, operations
from atoll.numerics.schedule import Recipe
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import optimiser_layout, param_shapes
from atoll.numerics.step import state_roots, step_in_place
from atoll.protocol.method_spec import InnerSpec
from atoll.protocol.model_spec import ModelSpec
from atoll.train.island import Island
from traffic import counted

SEQUENCES = 2
"""Of a micro-batch."""
GATHERS, ALL = 0.55, 0.8
"""Of FSDP2's bytes, at most: weights in bf16, and with gradients in fp32."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, value in (
        ("ranks", 2), ("width", 512), ("layers", 4), ("vocab", 8192), ("seq", 128), ("steps", 5),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    document = compared(options)
    print(json.dumps(document) if options.json else table(document))


def compared(options: argparse.Namespace) -> dict[str, Any]:
    model, inner = model_of(options), inner_of(options)
    count = sum(torch.Size(shape).numel() for shape in param_shapes(model).values())
    others = options.ranks - 1
    document: dict[str, Any] = {
        "parameters": count,
        "ranks": options.ranks,
        "island": island(model, inner, options),
        "fsdp2_bytes": {"gathers": 2 * 2 * count * others, "gradients": 4 * count * others},
    }
    sent, theirs = document["island"]["bytes"], document["fsdp2_bytes"]
    document["gathers_of_fsdp2"] = sent["broadcast"] / theirs["gathers"]
    document["all_of_fsdp2"] = sum(sent.values()) / sum(theirs.values())
    for name in ("ddp", "fsdp2"):
        document[f"{name}_step_s"] = native(name, options)
    return document


def model_of(options: argparse.Namespace) -> ModelSpec:
    shape = LabRun(width=options.width, layers=options.layers, seq=options.seq).model()
    return shape.model_copy(update={"vocab": options.vocab})


def inner_of(options: argparse.Namespace) -> InnerSpec:
    sizes = {"batch": SEQUENCES * options.ranks, "micro_batch": SEQUENCES, "lanes": options.ranks}
    return LabRun(steps=options.steps + 1).inner().model_copy(update=sizes)


def island(model: ModelSpec, inner: InnerSpec, options: argparse.Namespace) -> dict[str, Any]:
    """Steps of one process and of the ranks, which have to come to the same state."""
    recipe, shapes = Recipe(model, inner, inner.steps, operations()), param_shapes(model)
    start = GlobalState(0, initial_params(shapes, seed=0), {}, {})
    layout = optimiser_layout(shapes, inner)
    sent: Counter[str] = Counter()
    seconds: dict[str, list[float]] = {"alone": [], "together": []}
    digests = {}
    with Island(options.ranks) as ranks:
        for name, step_by in (("alone", step_in_place), ("together", counted(sent))):
            state = SeatState.initial(start, layout).unshared()
            if name == "together":
                state = state.held_by(ranks.holds(shapes, inner))
            for step in range(inner.steps):
                given = batch_of(model, inner, step)
                begun = time.perf_counter()
                state = step_by(state, given, recipe).state
                seconds[name].append(time.perf_counter() - begun)
            digests[name] = state_roots(state).digest().hex()
            del state
        memory = [peak_of(pid) for pid in ranks.processes]
    assert digests["alone"] == digests["together"]
    steps_counted = len(seconds["together"])
    return {
        "alone_step_s": statistics.median(seconds["alone"][1:]),
        "step_s": statistics.median(seconds["together"][1:]),
        "bytes": {name: count // steps_counted for name, count in sorted(sent.items())},
        "follower_peak_bytes": memory,
    }


def peak_of(pid: int) -> int:
    (line,) = (x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) * 1024


def batch_of(model: ModelSpec, inner: InnerSpec, step: int) -> StepInput:
    random = torch.Generator().manual_seed(step)
    shape = (inner.batch, model.seq + 1)
    tokens = torch.randint(0, model.vocab, shape, generator=random)
    parts = tokens.split(inner.micro_batch)
    batch = [MicroBatch(p[:, :-1], p[:, 1:], torch.ones(p[:, 1:].shape)) for p in parts]
    return StepInput(batch, step)


class Native(nn.Module):
    """The model by PyTorch's own operations, as a module has it."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        params = initial_params(param_shapes(spec), seed=0)
        self.names = list(params)
        self.values = nn.ParameterList([nn.Parameter(p.clone()) for p in params.values()])

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        params = dict(zip(self.names, self.values, strict=True))
        ops = NativeOps()
        logits = forward(params, ids, self.spec, ops)
        return ops.cross_entropy(logits.float(), targets, torch.ones(targets.shape))


def native(name: str, options: argparse.Namespace) -> float | str:
    """Seconds of a step; why there is none."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=rank_of, args=(name, options, rank, folder, there))
            for rank in range(options.ranks)
        ]
        for process in processes:
            process.start()
        there.close()
        try:
            answer: float | str = here.recv()
        except EOFError:
            answer = "a process ended"
        for process in processes:
            process.join(30)
            process.kill()
    return answer


def rank_of(name: str, options: argparse.Namespace, rank: int, folder: str, up: Connection) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=options.ranks
    )
    try:
        answer: float | str = median_step(name, model_of(options), inner_of(options), rank)
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        answer = f"not here: {str(error).splitlines()[0]}"
    if rank == 0:
        up.send(answer)
    dist.destroy_process_group()


def median_step(name: str, model: ModelSpec, inner: InnerSpec, rank: int) -> float:
    module: nn.Module = Native(model)
    if name == "ddp":
        module = nn.parallel.DistributedDataParallel(module)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        fully_shard(module, mesh=mesh, mp_policy=policy)
    optimiser = torch.optim.AdamW(module.parameters(), lr=0.003, fused=name == "ddp")
    seconds = []
    for step in range(inner.steps):
        mine = batch_of(model, inner, step).batch[rank]
        begun = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = module(mine.ids, mine.targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds[1:])


def table(document: dict[str, Any]) -> str:
    own = document["island"]
    lines = [f"{document['parameters']:,} parameters, {document['ranks']} ranks"]
    lines += [f"{name}: {count / 1e6:.1f} MB a step" for name, count in own["bytes"].items()]
    for name, bar in (("gathers_of_fsdp2", GATHERS), ("all_of_fsdp2", ALL)):
        lines.append(f"{name}: {document[name]:.2f} (bar {bar})")
    lines.append(f"one process: {own['alone_step_s']:.3f} s a step; ranks: {own['step_s']:.3f} s")
    for name in ("ddp", "fsdp2"):
        seconds = document[f"{name}_step_s"]
        is_there = isinstance(seconds, float)
        ratio = f", ours is {own['step_s'] / seconds:.2f} of it" if is_there else ""
        lines.append(f"{name}: {seconds}{' s a step' if is_there else ''}{ratio}")
    peaks = ", ".join(f"{peak / 1e6:.0f}" for peak in own["follower_peak_bytes"])
    return "\n".join([*lines, f"peak of each rank that follows: {peaks} MB"])


if __name__ == "__main__":
    main()
