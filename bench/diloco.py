"""The DiLoCo family in one small setting: validation loss at equal tokens, and bytes sent.

    python bench/diloco.py [--quick] [--seeds N] [--jobs N] [--only NAME ...] [--json]
    python bench/diloco.py --vocabulary 8000    # what public moments cost where most rows are rare
    python bench/diloco.py --rate 0.5           # every row at half its inner rate

A byte-level model of 117,000 parameters trains on the source of Python's standard library, in
native numerics, one thread a run. Every row sees the same number of tokens, 4 seats times 600
batches (rows of codecs 300, but for `…_long`). A row is one manifest, and its rounds go through the
code that providers and verifiers run: inner steps, codec with feedback, merge, outer step; only
digests, the chain and the network are excluded.

The peers are AdamW on all seats' batches at once (`synchronous`: a gradient of 4 bytes a parameter
is sent every step), one worker that takes all batches one after another (`one_worker`), and one
that has only its own share (`alone`). `dense` is DiLoCo with the outer rate and momentum that end
lowest in this setting, which has fewer rounds than the published 0.7 and 0.9 are for.
`sparseloco_reset_periods` and `demo_reset_periods` drop what seats keep as often as a job does that
chooses no other reset period; the other rows whose seats keep something never drop it. Rows called
`…_private` are peers, too: their seats keep their own moments from round to round, as no job's do,
and each is held against the row that opens from public ones.

`--vocabulary 8000` is another setting for the rows that have such a peer: byte pairs of the same
text, embeddings that are not tied, and 300 batches a seat of half the size, so that most rows of
the embedding are seen by no seat in a round, or by one.

The last line is JSON: per row the mean validation loss in nats a token, each seed's, and
bytes per parameter and round; `against` compares a row with another, seed by seed, in percent of
the other's loss, with the standard error of the mean over seeds. `largest_first_step` is that of
any parameter that AdamW steps after an opening, in rates.
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
from decimal import Decimal
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atoll.aggregation.merge_round import merge
from atoll.job.methods import METHODS, moment_exponents
from atoll.job.plan import priced
from atoll.job.presets import preset
from atoll.job.reach import Training, with_bounds
from atoll.job.spec import robust_f
from atoll.numerics.batch import Windows
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.init import initial_global_state
from atoll.numerics.initial_state import open_round
from atoll.numerics.model import forward
from atoll.numerics.ops import NativeOps
from atoll.numerics.schedule import Recipe
from atoll.numerics.schedule_tables import schedule_of
from atoll.numerics.sections import UpdateLayout
from atoll.numerics.segment import Course
from atoll.numerics.state import GlobalState, SeatState, Tensors
from atoll.numerics.state_layout import param_count, seat_layout, trained_count, trained_shapes
from atoll.numerics.step import inner_step
from atoll.numerics.update_proof import close_round
from atoll.protocol.canonical import dag_cbor_cid
from atoll.protocol.codecs import CODECS
from atoll.protocol.hashing import sha256
from atoll.protocol.manifest import DataSpec, Manifest, NumericsSpec
from atoll.protocol.merge_inputs import MergeRecord
from atoll.protocol.method_spec import CodecSpec, OuterSpec, reset_period_of
from atoll.protocol.model_spec import UNSCALED, ModelSpec
from atoll.protocol.optimisers import INNER_FIELDS, INNER_OPTIMISERS
from atoll.protocol.types import ZERO_DIGEST, SeatIndex, to_bitmap

SEATS, SEQ = 4, 64
WINDOWS, WINDOWS_AT_ONCE = 512, 8
"""Of the held-out text, of SEQ tokens each."""
TRAIN_BYTES, HELD_OUT = 6_000_000, 400_000
HELD_OUT_PAIRS = 100_000
Tokens = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """What all rows have in common.

    Attributes:
        vocabulary: 256 are bytes; more are byte pairs, and embeddings are not tied then.
        batch: sequences of a step.
        most: inner steps of a seat in all rounds of any row.
    """

    vocabulary: int
    width: int
    ffn: int
    batch: int
    most: int


SETTINGS = {256: Setting(256, 64, 176, 8, 600), 8000: Setting(8000, 48, 128, 4, 300)}


@dataclass(frozen=True, slots=True)
class Row:
    """One way to train.

    Attributes:
        method: a name of METHODS; the peers take only its inner optimiser.
        steps: H, inner steps of a round.
        segment: steps of a segment, which only an overlap depends on; all of a round by default.
        total: inner steps of a seat in all rounds.
        codec, rule, outer, optimizer: in place of the method's; what the inner optimiser reads is
            as usual.
        lr: the inner rate.
        peer: "synchronous", "one_worker" or "alone".
        private: seats keep their moments from round to round.
        reset_period: rounds after which seats drop what they carry, where they carry something; all
            of them by default.
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
    optimizer: str | None = None
    peer: str | None = None
    private: bool = False
    reset_period: int | None = None


MOMENT_EXPONENT = -16


def dense(kind: str, exponent: int, feedback: str = "0") -> CodecSpec:
    """A codec whose every tensor starts at one exponent."""
    start = dict.fromkeys(("embedding", "matrix", "vector"), exponent)
    is_exact = CODECS[kind].is_exact
    low, high = (exponent, exponent) if is_exact else (-30, -4)
    return CodecSpec.model_validate(
        {
            "kind": kind,
            "exponents": start,
            "moment_exponents": start if is_exact else dict.fromkeys(start, MOMENT_EXPONENT),
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
    "lion": Row(optimizer="lion", lr="0.002"),
    "diloco": Row("diloco"),
    "dense": Row("diloco", outer=SHORT),
    "fedadam": Row("fedadam"),
    "delayed_nesterov": Row("delayed_nesterov"),
    "streaming": Row("streaming", steps=5, segment=1),
    "fragments": Row("streaming", steps=5, codec=WAITED_FOR),
    "muloco": Row("muloco", steps=30),
    "muloco_feedback": Row("muloco", steps=30, codec=dense("two_bit", -10, "0.9")),
    "muloco_int8": Row("muloco", steps=30, codec=dense("grid8", -11)),
    "sparseloco": Row("sparseloco"),
    "sparseloco_reset_periods": Row("sparseloco", reset_period=METHODS["sparseloco"].reset_period),
    "demo": Row("demo", steps=1),
    "demo_reset_periods": Row("demo", steps=1, reset_period=METHODS["demo"].reset_period),
    "lo_fi": Row("lo_fi"),
    "fp32": Row(**CODEC_RUN, codec=dense("fp32", -40)),
    "int8": Row(**CODEC_RUN, codec=dense("grid8", -11)),
    "int4": Row(**CODEC_RUN, codec=dense("grid4", -8)),
    "two_bit": Row(**CODEC_RUN, codec=dense("two_bit", -10, "0.9")),
    "sign": Row(**CODEC_RUN, codec=dense("sign", -11, "0.9")),
    "fp32_long": Row(**CODEC_RUN | {"total": 600}, codec=dense("fp32", -40)),
    "two_bit_long": Row(**CODEC_RUN | {"total": 600}, codec=dense("two_bit", -10, "0.9")),
}
PUBLIC = {
    "int8": ROWS["int8"],
    "int4": ROWS["int4"],
    "two_bit_public": replace(ROWS["two_bit"], codec=dense("two_bit", -10)),
    "sign_public": replace(ROWS["sign"], codec=dense("sign", -11)),
    "fp32": ROWS["fp32"],
    "muloco": replace(ROWS["muloco"], codec=dense("two_bit", -10)),
    "muloco_int8": ROWS["muloco_int8"],
    **{f"h{steps}": Row(steps=steps, schedule="cosine", lr="0.002") for steps in (10, 20, 50, 100)},
}
"""Rows that open from public moments and are held against the same with private ones. At twice the
rate each of them ends higher, on either side."""
PEERS = {name: f"{name}_private" for name in PUBLIC} | {
    "two_bit_public": "two_bit",
    "sign_public": "sign",
    "muloco": "muloco_feedback",
}
"""What few bits feed back is private, too."""
ROWS |= PUBLIC
ROWS |= {p: replace(PUBLIC[name], private=True) for name, p in PEERS.items() if p not in ROWS}
COMPARED = {
    "int8": "fp32",
    "int4": "fp32",
    "two_bit": "fp32",
    "sign": "fp32",
    "two_bit_long": "fp32_long",
    "muloco": "muloco_int8",
    "sparseloco": "dense",
    "sparseloco_reset_periods": "sparseloco",
    "demo_reset_periods": "demo",
    "diloco": "synchronous",
    "dense": "synchronous",
    "lion": "fedavg",
    "streaming": "fragments",
}
"""Rows, and the rows that they are held against."""


def main() -> None:
    options = _options()
    seeds = range(1 if options.quick else options.seeds)
    setting = SETTINGS[options.vocabulary]
    known = ROWS if setting.vocabulary == 256 else (*PEERS, *PEERS.values())
    rows: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        running = {}
        for name in options.only or known:
            row = row_of(name, setting, quick=options.quick)
            row = replace(row, lr=str(Decimal(row.lr) * options.rate))
            running[name] = row, [pool.submit(sample, row, setting, seed) for seed in seeds]
        for name, (row, samples) in running.items():
            rows[name] = summary(row, setting, [each.result() for each in samples])
            if not options.json:
                print(f"{name:22} {rows[name]}", flush=True)
    print(
        json.dumps(
            {
                "bench": "diloco",
                "seats": SEATS,
                "vocabulary": setting.vocabulary,
                "rate": str(options.rate),
                "rows": rows,
                "against": against(rows, COMPARED),
                "against_private": against(rows, PEERS),
            }
        )
    )


def sample(row: Row, setting: Setting, seed: int) -> Run:
    """One run of a row."""
    torch.set_num_threads(1)
    started = time.process_time()
    run = train(row, setting, seed, text(setting.vocabulary))
    return replace(run, cpu_s=time.process_time() - started)


def row_of(name: str, setting: Setting, *, quick: bool) -> Row:
    """A row within the setting's steps, or a few rounds where only its working is looked at."""
    row = ROWS[name]
    return replace(row, total=max(60, 2 * row.steps) if quick else min(row.total, setting.most))


def summary(row: Row, setting: Setting, runs: list[Run]) -> dict[str, Any]:
    """What is printed of a row."""
    losses = [run.loss for run in runs]
    said = {
        "loss": round(statistics.fmean(losses), 4),
        "seeds": [round(loss, 5) for loss in losses],
        "bytes_per_parameter_and_round": round(runs[0].size, 4),
        "rounds": rounds_of(row),
        "tokens": SEATS * row.total * setting.batch * SEQ,
        "cpu_seconds": round(math.fsum(run.cpu_s for run in runs), 1),
    }
    first_steps = [run.first_step for run in runs if run.first_step is not None]
    return said | ({"largest_first_step": round(max(first_steps), 3)} if first_steps else {})


def against(rows: dict[str, dict[str, Any]], pairs: dict[str, str]) -> dict[str, dict[str, Any]]:
    """By how many percent each row of a pair ends above the other."""
    compared = {}
    for name, other in pairs.items():
        if name in rows and other in rows:
            losses = zip(rows[name]["seeds"], rows[other]["seeds"], strict=True)
            percents = [100 * (ours / theirs - 1) for ours, theirs in losses]
            compared[name] = {"of": other, "percent": round(statistics.fmean(percents), 3)}
            if len(percents) > 1:
                error = statistics.stdev(percents) / math.sqrt(len(percents))
                compared[name]["standard_error"] = round(error, 3)
    return compared


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="60 batches a seat, one seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, choices=SETTINGS, default=256)
    parser.add_argument("--rate", type=Decimal, default=Decimal(1), help="times each row's own")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs side by side")
    parser.add_argument("--only", nargs="*", choices=ROWS, metavar="NAME")
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    return parser.parse_args()


@lru_cache(maxsize=1)
def text(vocabulary: int) -> tuple[Tokens, Tokens]:
    """What is trained on and what is held out, of modules that are the same on one Python version:
    bytes, or byte pairs that are learnt from them.
    """
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    if vocabulary > 256:
        tokens = byte_pairs([path.read_text(errors="ignore") for path in paths], vocabulary)
        return tokens[:-HELD_OUT_PAIRS], tokens[-HELD_OUT_PAIRS:]
    joined = np.frombuffer(b"".join(path.read_bytes() for path in paths), dtype=np.uint8)
    return joined[:TRAIN_BYTES][:-HELD_OUT], joined[:TRAIN_BYTES][-HELD_OUT:]


def byte_pairs(texts: list[str], vocabulary: int) -> Tokens:
    """The texts' tokens, uint16, of as many byte pairs as are most frequent in them."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=letters, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return np.concatenate(
        [np.array(each.ids, dtype=np.uint16) for each in tokenizer.encode_batch(texts)]
    )


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a row and a seed.

    Attributes:
        loss: nats a token of the held-out text.
        size: bytes a parameter and round.
        first_step: the largest of any parameter after an opening, in rates; None where no round
            opened with moments.
    """

    loss: float
    size: float
    first_step: float | None = None
    cpu_s: float = 0.0


def train(row: Row, setting: Setting, seed: int, tokens: tuple[Tokens, Tokens]) -> Run:
    """Trains a row to its end."""
    manifest = manifest_of(row, setting, seed, len(tokens[0]))
    if row.peer is not None:
        params = train_alone(manifest, row.peer, seed, tokens[0])
        return Run(evaluate(params, manifest, tokens[1]), 4.0 * (row.peer == "synchronous"))
    state, first_step = train_together(manifest, seed, tokens[0])
    size = UpdateLayout.of(manifest, trained_shapes(manifest), 0).encoded_length / param_count(
        manifest.model
    )
    return Run(evaluate(state.params, manifest, tokens[1]), size, first_step)


def rounds_of(row: Row) -> int:
    """Outer steps; of a peer, the gradients it takes."""
    if row.peer is not None:
        return row.total * SEATS if row.peer == "one_worker" else row.total
    return 1 if METHODS[row.method].one_round else row.total // row.steps


class PrivateMoments(Manifest):
    """A job whose seats keep their moments, as no job's do: one reset period, and updates without
    them.
    """

    @property
    def shares_moments(self) -> bool:
        return False


def manifest_of(row: Row, setting: Setting, seed: int, train_tokens: int) -> Manifest:
    """The row's manifest: the job's choices, over data that only this process has."""
    cid = dag_cbor_cid(sha256(b"bench/diloco.py"))
    rounds = rounds_of(row)
    inner_steps = row.total // rounds if row.peer is None else 1
    model = ModelSpec(
        kind="llama", vocab=setting.vocabulary, width=setting.width, layers=2, heads=4, kv_heads=4,
        head_dim=setting.width // 4, qkv_bias=False, qk_norm=False, ffn=setting.ffn, mlp="swiglu",
        seq=SEQ, tied=setting.vocabulary == 256, norm_eps="0.00001", rope_base=10000,
        rope_scaling=UNSCALED,
    )  # fmt: skip
    data = DataSpec(
        cid=cid, root=ZERO_DIGEST, nodes_cid=cid, masked=False, aligned=False,
        dtype="uint8" if setting.vocabulary == 256 else "uint16",
        train_tokens=train_tokens, eval_cid=None, eval_tokens=0, eval_batches=0, tokenizer_cid=cid,
    )  # fmt: skip
    numerics = NumericsSpec(code_digest=ZERO_DIGEST, probe_digest=ZERO_DIGEST)
    job = preset("demo").but(
        {
            "init.seed": seed,
            "rounds": rounds,
            "method.name": "fedavg",
            "inner.lr": row.lr,
            "inner.steps": inner_steps,
            "inner.segment": row.segment or inner_steps,
            "inner.micro_batch": setting.batch,
            "inner.batch": setting.batch * (SEATS if row.peer == "synchronous" else 1),
            "inner.schedule": row.schedule,
            "inner.warmup_steps": max(1, rounds * inner_steps // 30),
            "model": model,
            "members.seats": SEATS,
        }
    )
    manifest = priced(job)[0].resolve(data, None, numerics, now=0)
    # Rows keep private moments, which no job has: the method's choices go in behind its back.
    method = METHODS[row.method]
    inner = manifest.inner.model_copy(update=dict(method.inner) | fields_of(row.optimizer))
    codec, rule = row.codec or method.codec, row.rule or method.rule
    if method.overlaps and row.codec is None:
        codec = codec.model_copy(update={"overlap": inner.segment})
    trained = trained_count(manifest)
    schedule = schedule_of(inner, rounds * inner_steps)
    rates = schedule.rates[: codec.fragments * inner_steps].tolist()
    starts = {
        "exponents": Training(inner, rates, None, trained).exponents(codec),
        "moment_exponents": moment_exponents(codec, trained),
    }
    codec = with_bounds(codec.model_copy(update=starts))
    robust = manifest.robust.model_copy(update={"rule": rule, "f": robust_f(SEATS, rule)})
    outer, reset_period = (
        row.outer or method.outer,
        reset_period_of(codec, row.reset_period or rounds),
    )
    changes: dict[str, Any] = {"codec": codec, "outer": outer, "inner": inner, "robust": robust}
    changes["reset_period"] = reset_period
    if row.private:
        return PrivateMoments.model_construct(**dict(manifest) | changes | {"reset_period": rounds})
    return manifest.model_copy(update=changes)


def fields_of(optimizer: str | None) -> dict[str, str]:
    """What an inner optimiser has in a manifest; nothing of one that nobody chose."""
    if optimizer is None:
        return {}
    usual = INNER_OPTIMISERS[optimizer].usual
    return {"optimizer": optimizer, **dict.fromkeys(INNER_FIELDS, "0"), **usual}


def train_together(
    manifest: Manifest, seed: int, tokens: Tokens
) -> tuple[GlobalState, float | None]:
    """Every round as providers and verifiers compute it; the model, and the largest first step."""
    recipe, steps = _recipe(manifest), manifest.inner.steps
    state = initial_global_state(manifest)
    carried_states: list[SeatState | None] = [None] * SEATS
    first_steps: list[float] = []
    for round in range(manifest.terms.rounds):
        data_seed, updates = sha256(f"{seed} {round}".encode()), {}
        for seat in range(SEATS):
            course = Course(
                manifest=manifest,
                recipe=recipe,
                tokens=tokens,
                data_seed=data_seed,
                seat=SeatIndex(seat),
                round=round,
                model=state,
            )
            brought = None if manifest.opens_publicly(round) else carried_states[seat]
            last = open_round(manifest, state, brought)
            for step in range(steps):
                begun = course.begin(last, step)
                last = inner_step(begun, course.input(step), recipe).state
                if step == 0 and state.moments.is_warm and last.v:
                    first_steps.append(largest_step(last, recipe))
            dither = DitherKey(data_seed, seat)
            updates[seat], carried_states[seat] = close_round(manifest, state, last, dither)
        done = {SeatIndex(seat): manifest.segments for seat in updates}
        there = to_bitmap(done)
        record = MergeRecord(there, 1, [there], done)
        state = merge(
            state, updates, record=record, data_seed=data_seed, manifest=manifest
        ).global_state
    return state, max(first_steps, default=None)


def _recipe(manifest: Manifest) -> Recipe:
    """Steps in PyTorch's own arithmetic."""
    total = manifest.terms.rounds * manifest.inner.steps
    return Recipe(manifest.model, manifest.inner, total, NativeOps())


def largest_step(state: SeatState, recipe: Recipe) -> float:
    """The largest that AdamW took of any parameter, in rates."""
    correct1, correct2 = recipe.schedule.correction(state.count)
    steps = (
        (state.m[name] * correct1).abs() / ((v * correct2).sqrt() + float(recipe.inner.eps))
        for name, v in state.v.items()
    )
    return max(step.max().item() for step in steps)


def train_alone(manifest: Manifest, peer: str, seed: int, tokens: Tokens) -> Tensors:
    """One optimiser without rounds, on the batches of all seats or of one."""
    recipe = _recipe(manifest)
    state = SeatState.initial(initial_global_state(manifest), seat_layout(manifest))
    course = Course(
        manifest=manifest,
        recipe=recipe,
        tokens=tokens,
        data_seed=sha256(f"{seed} {peer}".encode()),
        seat=SeatIndex(0),
        round=0,
    )
    for step in range(manifest.terms.rounds):
        state = inner_step(state, course.input(step), recipe).state
    return state.params


def evaluate(params: Tensors, manifest: Manifest, tokens: Tokens) -> float:
    """Mean loss in nats a token on evenly spaced windows of the held-out text."""
    spec, ops = manifest.model, NativeOps()
    starts = np.linspace(0, len(tokens) - spec.seq - 1, WINDOWS).astype(int).tolist()
    losses = []
    with torch.no_grad():
        for at in range(0, len(starts), WINDOWS_AT_ONCE):
            m = Windows(tokens, spec.seq).at(starts[at : at + WINDOWS_AT_ONCE])
            logits = forward(params, m.ids, spec, ops)
            losses.append(ops.cross_entropy(logits, m.targets, m.weights).item())
    return math.fsum(losses) / len(losses)


if __name__ == "__main__":
    main()
