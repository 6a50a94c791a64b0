"""Small jobs of every kind that a judge has, each whole, with tokens and an opening state."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias
from unittest import mock

import numpy as np
import torch
from tests.support.jobs import PLAIN
from torch import Tensor

from atoll.numerics import init
from atoll.numerics.base import freeze
from atoll.numerics.init import initial_global_state, initial_params
from atoll.numerics.layout import Shapes, param_shapes, seat_layout
from atoll.numerics.ops import operations
from atoll.numerics.pieces import piece_root
from atoll.numerics.schedule import Recipe
from atoll.numerics.segment import Course
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.step import state_roots
from atoll.numerics.tables import table_parts, tables_root
from atoll.numerics.tensors import tree_root
from atoll.numerics.tokens import DTYPES, Tokens, dtype_for
from atoll.numerics.trace.build.whole import program_of
from atoll.numerics.trace.imports import Context, Sources
from atoll.numerics.trace.program import Program
from atoll.protocol.canonical import dag_cbor_cid
from atoll.protocol.manifest import (
    CodecSpec,
    DataSpec,
    InnerSpec,
    Manifest,
    ModelSpec,
    NumericsSpec,
    reset_period_of,
)
from atoll.protocol.rules import RULES
from atoll.protocol.words import Digest, SeatIndex

Changes: TypeAlias = Mapping[str, Any]
MODEL = {
    "kind": "llama", "vocab": 17, "width": 8, "layers": 2, "heads": 2, "kv_heads": 1,
    "head_dim": 4, "qkv_bias": False, "qk_norm": False, "mlp": "swiglu", "ffn": 12, "seq": 6,
    "tied": True, "norm_eps": "0.00001", "rope_base": 10000,
    "rope_scaling": {"kind": "none", "factor": "1", "low": "0", "high": "0", "positions": 0},
}  # fmt: skip
INNER = {
    "optimizer": "adamw", "lr": "0.01", "momentum": "0", "beta1": "0.9", "beta2": "0.95",
    "eps": "0.00000001", "weight_decay": "0.1", "dropout": "0", "clip": "1",
    "schedule": "cosine", "warmup_steps": 3, "steps": 4, "batch": 4, "segment": 2, "micro_batch": 2,
}  # fmt: skip
SGD = {"optimizer": "sgd", "beta1": "0", "beta2": "0", "eps": "0"}
LLAMA3 = {"kind": "llama3", "factor": "8", "low": "1", "high": "4", "positions": 24}
LORA = {"rank": 2, "alpha": "3", "targets": ["q", "k", "v", "o", "gate", "up", "down"]}
COARSE = {"embedding": -10, "matrix": -13, "vector": -9}
QWEN: Changes = {
    "model": {"head_dim": 6, "qkv_bias": True, "qk_norm": True, "rope_scaling": LLAMA3}
}
JOBS: Mapping[str, Changes] = {
    "plain": {},
    "one micro-batch": {"inner": {"micro_batch": 4}},
    "dropout": {"inner": {"dropout": "0.1", "micro_batch": 1}},
    "qwen": QWEN,
    "untied": {"model": {"tied": False, "kv_heads": 2}},
    "relu2": {"model": {"mlp": "relu2"}},
    "sgd": {"inner": {**SGD, "schedule": "constant"}},
    "sgd with momentum": {"inner": {**SGD, "momentum": "0.9"}},
    "lion": {"inner": {"optimizer": "lion", "eps": "0"}},
    "muon": {
        "model": {"tied": False, "ffn": 24},
        "inner": {"optimizer": "muon", "momentum": "0.95"},
    },
    "masked": {"data": {"dtype": "uint16", "masked": True}, "inner": {"micro_batch": 1}},
    "lora": {**QWEN, "lora": LORA, "inner": {"dropout": "0.1"}},
    "lora of two": {"lora": {**LORA, "targets": ["k", "v"]}, "model": {"mlp": "relu2"}},
    "lora of one": {"lora": {**LORA, "targets": ["down"]}, "model": {"tied": False}},
    "fed back": {"codec": {"kind": "two_bit", "feedback": "0.9", "exponents": COARSE}},
    "largest fed back": {
        "model": {"vocab": 500},  # more values than a chunk of an update has
        "codec": {"kind": "sparse", "feedback": "0.95", "exponents": COARSE},
        "robust": {"rule": "contributor_mean"},
    },
    "cosines fed back": {
        "inner": SGD,
        "codec": {"kind": "dct", "feedback": "0.999", "exponents": COARSE},
        "robust": {"rule": "contributor_mean"},
    },
    # Three tiles of attention, the last one short; wide and tall enough for parts of every sum.
    "long": {
        "model": {"seq": 261, "layers": 1, "heads": 4, "kv_heads": 2, "vocab": 300},
        "inner": {"batch": 2, "micro_batch": 1},
    },
    "wide": {
        "model": {"width": 72, "ffn": 2100, "layers": 1, "vocab": 2060},
        "inner": {"batch": 2},
    },
    # Products of attention in two parts, and of the head over more terms than an int32 sums.
    "broad heads": {"model": {"head_dim": 520, "layers": 1}, "inner": {"batch": 2}},
    "vast": {
        "model": {"vocab": 133_200, "layers": 1, "tied": False},
        "inner": {"batch": 2, "micro_batch": 1},
    },
}
"""By what is special about them."""
SEAT, DATA_SEED = SeatIndex(3), Digest(hashlib.sha256(b"data seed").digest())


def stream(name: str, count: int) -> bytes:
    """Bytes that follow from a name."""
    return hashlib.shake_256(name.encode()).digest(count)


def tokens_of(changes: Changes, count: int) -> Tokens:
    """Token words below the vocabulary; where they are masked, with a stretch without targets."""
    vocab = changes.get("model", {}).get("vocab", MODEL["vocab"])
    drawn = np.frombuffer(stream("tokens", 4 * count), "<u4") % np.uint32(vocab)
    if changes.get("data"):
        shown = np.frombuffer(stream("mask", count), np.uint8) % 3 == 0
        shown[100:160] = False
        return drawn.astype(np.uint16) | (~shown).astype(np.uint16) << 15
    return drawn.astype(DTYPES[dtype_for(vocab, masked=False)])


def manifest_of(changes: Changes, tokens: Tokens) -> Manifest:
    """A job of three rounds over tokens whose blocks nobody has."""
    cid = dag_cbor_cid(Digest(hashlib.sha256(b"data").digest()))
    fields = {
        "cid": cid, "root": piece_root(tokens.tobytes()), "nodes_cid": cid,
        "dtype": tokens.dtype.name, "masked": False, "train_tokens": len(tokens), "eval_cid": None,
        "eval_tokens": 0, "eval_batches": 0, "tokenizer_cid": cid,
    }  # fmt: skip
    data = DataSpec.model_validate(fields | dict(changes.get("data", {})))
    numerics = NumericsSpec(code_digest=Digest(bytes(32)), probe_digest=Digest(bytes(32)))
    model = ModelSpec.model_validate(MODEL | dict(changes.get("model", {})))
    inner = InnerSpec.model_validate(INNER | dict(changes.get("inner", {})))
    sizes = {name: getattr(inner, name) for name in ("steps", "segment", "batch", "micro_batch")}
    changed = {"rounds": 3, "model": model} | {f"inner.{k}": v for k, v in sizes.items()}
    plain = PLAIN.but(changed).resolve(data, None, numerics, now=0).model_dump()
    plain["inner"] = inner.model_dump()
    plain["tables"] = tables_root(model, inner, 3 * inner.steps)
    plain["codec"] |= {"kind": "grid8", "feedback": "0"} | dict(changes.get("codec", {}))
    plain["reset_period"] = reset_period_of(CodecSpec.model_validate(plain["codec"]), 3)
    plain["robust"] |= changes.get("robust", {})
    if not RULES[plain["robust"]["rule"]].bears_faults:
        plain["robust"]["f"] = plain["terms"]["f"] = 0
    if "lora" in changes:
        plain["lora"] = changes["lora"]
        root = tree_root(base_of(model))
        plain["init"] = {"seed": 5, "cid": cid, "root": root}
    return Manifest.model_validate(plain)


def base_of(model: ModelSpec) -> dict[str, Tensor]:
    """Weights to freeze: none of them is 0 or 1."""
    drawn = _drawn(_hashable(param_shapes(model)), 11)
    return {name: w + 0.01 * torch.arange(w.numel()).view(w.shape) for name, w in drawn.items()}


@dataclass(frozen=True)
class Small:
    """A job with everything that its steps read."""

    manifest: Manifest
    program: Program
    course: Course
    opening: SeatState
    base: dict[str, Tensor]

    def sources(self, state: SeatState, step: int) -> Sources:
        """What the program of a step of round 0 reads."""
        course, inner = self.course, self.manifest.inner
        total = self.manifest.terms.rounds * inner.steps
        place, model = course.global_step0 + step, course.model
        assert model is not None
        exponents = model.exponent_bytes()
        roots = model.params_root(), Digest(hashlib.sha256(exponents).digest())
        return Sources(
            Context(DATA_SEED, SEAT, course.round, step, place, state_roots(state), *roots),
            state,
            course.tokens,
            b"".join(table_parts(self.manifest.model, inner, total)),
            self.base,
            model.params,
            exponents,
        )


@cache
def _drawn(shapes: tuple[tuple[str, tuple[int, ...]], ...], seed: int) -> dict[str, Tensor]:
    return initial_params(dict(shapes), seed)


def _hashable(shapes: Shapes) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, tuple(shape)) for name, shape in shapes.items())


def opening_model(manifest: Manifest) -> GlobalState:
    """Round 0's, its weights drawn once for all jobs that begin with the same."""

    def drawn(shapes: Shapes, seed: int) -> dict[str, Tensor]:
        found = _drawn(_hashable(shapes), seed)
        return {name: p.clone() for name, p in found.items()}

    with mock.patch.object(init, "initial_params", drawn):
        return initial_global_state(manifest)


def small(name: str) -> Small:
    """One of `JOBS`."""
    return make_small(JOBS[name])


def make_small(changes: Changes) -> Small:
    """A job with these changes, before its first step."""
    tokens = tokens_of(changes, 1200)
    manifest = manifest_of(changes, tokens)
    model = opening_model(manifest)
    frozen, base = {}, None
    if manifest.lora is not None:
        assert manifest.init.root is not None
        frozen = base_of(manifest.model)
        ops = operations()
        weights = sorted(frozen.items())
        base = freeze(weights, manifest.init.root, manifest.model, manifest.lora, ops)
    course = Course(manifest, Recipe.of(manifest, base), tokens, DATA_SEED, SEAT, 0, model)
    opening = SeatState.opening(model, seat_layout(manifest))
    program = program_of(manifest, model.digest())
    return Small(manifest, program, course, opening, frozen)
