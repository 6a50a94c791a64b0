"""The DiLoCo family in one small setting: validation loss at equal tokens, and bytes sent.

    python bench/diloco.py [--quick] [--seeds N] [--jobs N] [--only NAME ...] [--json]

A byte-level model of 117,000 parameters trains on the source of Python's standard library, in
native numerics, one thread a run. Every row sees the same number of tokens, 4 seats times 600
batches (rows of codecs 300, but for `…_long`). A row is one manifest, and its rounds go through the
code that providers and verifiers run: inner steps, codec with feedback, merge, outer step; only
digests, the chain and the network are left out.

The peers are AdamW on all seats' batches at once (`synchronous`: a gradient of 4 bytes a parameter
is sent every step), one worker that takes all batches one after another (`one_worker`), and one
that has only its own share (`alone`). `dense` is DiLoCo with the outer rate
and momentum that end lowest in this setting, which has fewer rounds than the published 0.7 and 0.9
are for. The last line is JSON: per row the mean validation loss in nats a token, each seed's, and
bytes per parameter and round; `against` compares a row with another, seed by seed, in percent of
the other's loss, with the standard error of the mean over seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sysconfig
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atoll.bits.batch import gather_batch
from atoll.bits.codec.dither import DitherKey
from atoll.bits.codec.layout import Layout
from atoll.bits.codec.registry import codec_of
from atoll.bits.init import initial_global_state
from atoll.bits.layout import param_count, seat_layout
from atoll.bits.link import close_round
from atoll.bits.model import forward
from atoll.bits.opening import open_round
from atoll.bits.schedule import Recipe
from atoll.bits.segment import Course
from atoll.bits.state import GlobalState, SeatState, Tensors
from atoll.bits.step import inner_step
from atoll.job.methods import METHODS
from atoll.job.presets import preset
from atoll.law.canonical import dag_cbor_cid
from atoll.law.hashing import sha256
from atoll.law.manifest import (
    UNSCALED,
    CodecSpec,
    DataSpec,
    Manifest,
    ModelSpec,
    NumericsSpec,
    OuterSpec,
    epoch_of,
)
from atoll.law.merge_inputs import MergeFacts
from atoll.law.words import ZERO_DIGEST, Bitmap, SeatIndex, to_bitmap
from atoll.merge.round import merge

SEATS, BATCH, SEQ, EVAL_BATCHES = 4, 8, 64, 64
TRAIN_BYTES, HELD_OUT = 6_000_000, 400_000
Tokens = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Row:
    """One way to train.

    Attributes:
        method: a name of METHODS; the peers take only its inner optimiser.
        steps: H, inner steps of a round.
        segment: steps of a segment, which only an overlap depends on; all of a round by default.
        total: inner steps of a seat in all rounds.
        codec, rule, outer: in place of the method's.
        lr: the inner rate.
        peer: "synchronous", "one_worker" or "alone".
    """

    method: str = "fedavg"
    steps: int = 10
    segment: int | None = None
    total: int = 600
    schedule: str = "constant"
    lr: str = "0.004"
    codec: CodecSpec | None = None
    rule: str | None = None
    outer: OuterSpec | None = None
    peer: str | None = None


def dense(kind: str, exponent: int, feedback: str = "0") -> CodecSpec:
    """A codec whose every tensor starts at one exponent."""
    start = dict.fromkeys(("embedding", "matrix", "vector"), exponent)
    low, high = (-40, -40) if kind == "fp32" else (-30, -4)
    return CodecSpec.model_validate(
        {
            "kind": kind,
            "exponents": start,
            "moment_exponents": start,
            "min_exponent": low,
            "max_exponent": high,
            "feedback": feedback,
            "fragments": 1,
            "overlap": 0,
            "mixing": "0",
        }
    )


CODEC_RUN: dict[str, Any] = {
    "steps": 20,
    "total": 300,
    "rule": "mean",
    "schedule": "cosine",
    "lr": "0.002",
}
"""What a codec alone costs: outer SGD, a plain mean, and a rate at which runs that differ in
rounding stay together (at twice the rate int4 and fp32 end up to two percent apart, either way)."""
WAITED_FOR = METHODS["streaming"].codec.model_copy(update={"mixing": "0"})
"""Fragments without overlap and mixing."""
SHORT = METHODS["diloco"].outer.model_copy(update={"lr": "0.5", "momentum": "0.5"})
ROWS: dict[str, Row] = {
    "synchronous": Row(lr="0.008", peer="synchronous"),
    "one_worker": Row(peer="one_worker"),
    "alone": Row(peer="alone"),
    "fedavg": Row(),
    "diloco": Row("diloco"),
    "dense": Row("diloco", outer=SHORT),
    "fedadam": Row("fedadam"),
    "delayed_nesterov": Row("delayed_nesterov"),
    "streaming": Row("streaming", steps=5, segment=1),
    "fragments": Row("streaming", steps=5, codec=WAITED_FOR),
    "muloco": Row("muloco", steps=30),
    "muloco_int8": Row("muloco", steps=30, codec=dense("grid8", -11)),
    "sparseloco": Row("sparseloco"),
    "demo": Row("demo", steps=1),
    "lo_fi": Row("lo_fi"),
    "fp32": Row(**CODEC_RUN, codec=dense("fp32", -40)),
    "int8": Row(**CODEC_RUN, codec=dense("grid8", -11)),
    "int4": Row(**CODEC_RUN, codec=dense("grid4", -8)),
    "two_bit": Row(**CODEC_RUN, codec=dense("two_bit", -10, "0.9")),
    "sign": Row(**CODEC_RUN, codec=dense("sign", -11, "0.9")),
    "fp32_long": Row(**CODEC_RUN | {"total": 600}, codec=dense("fp32", -40)),
    "two_bit_long": Row(**CODEC_RUN | {"total": 600}, codec=dense("two_bit", -10, "0.9")),
}
COMPARED = {
    "int8": "fp32",
    "int4": "fp32",
    "two_bit": "fp32",
    "sign": "fp32",
    "two_bit_long": "fp32_long",
    "muloco": "muloco_int8",
    "sparseloco": "dense",
    "diloco": "synchronous",
    "dense": "synchronous",
    "streaming": "fragments",
}
"""Rows, and the rows that they are held against."""


def main() -> None:
    options = _options()
    seeds = range(1 if options.quick else options.seeds)
    rows: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        running = {
            name: [pool.submit(sample, name, seed, quick=options.quick) for seed in seeds]
            for name in options.only or ROWS
        }
        for name, samples in running.items():
            rows[name] = summary(name, [each.result() for each in samples], quick=options.quick)
            if not options.json:
                print(f"{name:18} {rows[name]}", flush=True)
    print(json.dumps({"bench": "diloco", "seats": SEATS, "rows": rows, "against": against(rows)}))


def sample(name: str, seed: int, *, quick: bool) -> tuple[float, float, float]:
    """One run of a row: validation loss, bytes a parameter and round, CPU seconds."""
    torch.set_num_threads(1)
    started = time.process_time()
    loss, size = train(row_of(name, quick=quick), seed, text())
    return loss, size, time.process_time() - started


def row_of(name: str, *, quick: bool) -> Row:
    """A row, cut to a few rounds where only its working is looked at."""
    return replace(ROWS[name], total=60) if quick else ROWS[name]


def summary(name: str, samples: list[tuple[float, float, float]], *, quick: bool) -> dict[str, Any]:
    """What is printed of a row."""
    losses, row = [loss for loss, _, _ in samples], row_of(name, quick=quick)
    return {
        "loss": round(statistics.fmean(losses), 4),
        "seeds": [round(loss, 5) for loss in losses],
        "bytes_per_parameter_and_round": round(samples[0][1], 4),
        "rounds": rounds_of(row),
        "tokens": SEATS * row.total * BATCH * SEQ,
        "cpu_seconds": round(math.fsum(cpu_s for _, _, cpu_s in samples), 1),
    }


def against(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By how many percent each compared row ends above the other."""
    compared = {}
    for name, other in COMPARED.items():
        if name in rows and other in rows:
            pairs = zip(rows[name]["seeds"], rows[other]["seeds"], strict=True)
            percents = [100 * (ours / theirs - 1) for ours, theirs in pairs]
            compared[name] = {"of": other, "percent": round(statistics.fmean(percents), 3)}
            if len(percents) > 1:
                error = statistics.stdev(percents) / math.sqrt(len(percents))
                compared[name]["standard_error"] = round(error, 3)
    return compared


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="60 batches a seat, one seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs side by side")
    parser.add_argument("--only", nargs="*", choices=ROWS, metavar="NAME")
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    return parser.parse_args()


def text() -> tuple[Tokens, Tokens]:
    """Bytes to train on and bytes held out, of modules that are the same on one Python version."""
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    joined = np.frombuffer(b"".join(path.read_bytes() for path in paths), dtype=np.uint8)
    return joined[:TRAIN_BYTES][:-HELD_OUT], joined[:TRAIN_BYTES][-HELD_OUT:]


def train(row: Row, seed: int, tokens: tuple[Tokens, Tokens]) -> tuple[float, float]:
    """Trains a row to its end; the validation loss, and bytes a parameter and round."""
    manifest = manifest_of(row, seed, len(tokens[0]))
    if row.peer is not None:
        params = train_alone(manifest, row.peer, seed, tokens[0])
        return evaluate(params, manifest, tokens[1]), 4.0 * (row.peer == "synchronous")
    state = train_together(manifest, seed, tokens[0])
    sent = Layout.of_tensors(state.sent_part(manifest.codec).params)
    length = codec_of(manifest.codec).encoded_length(sent)
    size = length / param_count(manifest.model)
    return evaluate(state.params, manifest, tokens[1]), size


def rounds_of(row: Row) -> int:
    """Outer steps; of a peer, the gradients it takes."""
    if row.peer is not None:
        return row.total * SEATS if row.peer == "one_worker" else row.total
    return 1 if METHODS[row.method].one_round else row.total // row.steps


def manifest_of(row: Row, seed: int, train_tokens: int) -> Manifest:
    """The row's manifest: the job's choices, over data that only this process has."""
    cid = dag_cbor_cid(sha256(b"bench/diloco.py"))
    rounds = rounds_of(row)
    inner_steps = row.total // rounds if row.peer is None else 1
    model = ModelSpec(
        kind="llama", vocab=256, width=64, layers=2, heads=4, kv_heads=4, head_dim=16,
        qkv_bias=False, qk_norm=False, ffn=176, mlp="swiglu", seq=SEQ, tied=True,
        norm_eps="0.00001", rope_base=10000, rope_scaling=UNSCALED,
    )  # fmt: skip
    data = DataSpec(
        cid=cid, root=ZERO_DIGEST, nodes_cid=cid, dtype="uint8", masked=False,
        train_tokens=train_tokens, eval_cid=None, eval_tokens=0, eval_batches=0, tokenizer_cid=cid,
    )  # fmt: skip
    numerics = NumericsSpec(
        mode="native",
        software_class="",
        code_digest=ZERO_DIGEST,
        probe_digest=ZERO_DIGEST,
        tolerance=None,
    )
    job = preset("demo").but(
        {
            "init.seed": seed,
            "rounds": rounds,
            "method.name": row.method,
            "inner.lr": row.lr,
            "inner.steps": inner_steps,
            "inner.segment": row.segment or inner_steps,
            "inner.micro_batch": BATCH,
            "inner.batch": BATCH * SEATS if row.peer == "synchronous" else BATCH,
            "inner.schedule": row.schedule,
            "inner.warmup_steps": max(1, rounds * inner_steps // 30),
            "model": model,
            "members.seats": SEATS,
        }
    )
    manifest = job.resolve(data, None, numerics, now=0)
    changes: dict[str, Any] = {}
    if row.codec is not None:
        changes["codec"] = row.codec
    if row.outer is not None:
        changes["outer"] = row.outer
    if row.rule is not None:
        changes["robust"] = manifest.robust.model_copy(update={"rule": row.rule})
    changes["epoch"] = epoch_of(changes.get("codec", manifest.codec), manifest.terms.rounds)
    return manifest.model_copy(update=changes)


def train_together(manifest: Manifest, seed: int, tokens: Tokens) -> GlobalState:
    """Every round as providers and verifiers compute it."""
    recipe, steps = Recipe.of(manifest), manifest.inner.steps
    state = initial_global_state(manifest)
    carried: list[SeatState | None] = [None] * SEATS
    for round in range(manifest.terms.rounds):
        data_seed, updates = sha256(f"{seed} {round}".encode()), {}
        for seat in range(SEATS):
            course = Course(manifest, recipe, tokens, data_seed, SeatIndex(seat), round, state)
            brought = None if manifest.opens_publicly(round) else carried[seat]
            last = open_round(manifest, round, state, brought)
            for step in range(steps):
                batch = gather_batch(tokens, course.offsets(step), manifest.model.seq)
                begun = course.begin(last, step)
                last = inner_step(begun, batch, course.global_step0 + step, recipe).state
            updates[seat], carried[seat] = close_round(
                manifest, state, last, DitherKey(data_seed, seat)
            )
        done = {SeatIndex(seat): steps for seat in updates}
        facts = MergeFacts(to_bitmap(done), Bitmap(0), Bitmap(0), 0, done)
        state = merge(
            state, updates, facts=facts, data_seed=data_seed, manifest=manifest
        ).global_state
    return state


def train_alone(manifest: Manifest, peer: str, seed: int, tokens: Tokens) -> Tensors:
    """One optimiser without rounds, on the batches of all seats or of one."""
    recipe = replace(Recipe.of(manifest), total_steps=manifest.terms.rounds)
    state = SeatState.opening(initial_global_state(manifest), None, seat_layout(manifest))
    for step in range(manifest.terms.rounds):
        offsets = manifest.batch_offsets(sha256(f"{seed} {peer}".encode()), SeatIndex(0), step)
        state = inner_step(
            state, gather_batch(tokens, offsets, manifest.model.seq), step, recipe
        ).state
    return state.params


def evaluate(params: Tensors, manifest: Manifest, tokens: Tokens) -> float:
    """Mean loss in nats a token on evenly spaced windows of the held-out text."""
    spec, ops = manifest.model, Recipe.of(manifest).ops
    starts = np.linspace(0, len(tokens) - spec.seq - 1, EVAL_BATCHES * BATCH).astype(int).tolist()
    losses = []
    with torch.no_grad():
        for at in range(0, len(starts), BATCH):
            batch = gather_batch(tokens, starts[at : at + BATCH], spec.seq)
            logits = forward(params, batch[:, :-1], spec, ops)
            losses.append(ops.cross_entropy(logits, batch[:, 1:]).item())
    return math.fsum(losses) / len(losses)


if __name__ == "__main__":
    main()
