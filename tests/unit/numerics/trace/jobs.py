"""Small jobs of every kind that a judge has, each whole, with tokens and an initial state."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from unittest import mock

import numpy as np
import torch
from tests.support.identities import cid
from tests.support.manifests import BASES, Changes, data_over, plain_manifest, whole_manifest
from torch import Tensor

from atoll.job.methods import rules_for
from atoll.numerics import init
from atoll.numerics.frozen_base import freeze
from atoll.numerics.init import initial_global_state, initial_params
from atoll.numerics.ops import operations
from atoll.numerics.problems import Problem, written
from atoll.numerics.schedule import Recipe
from atoll.numerics.schedule_tables import table_parts
from atoll.numerics.segment import Course
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import Shapes, param_shapes, seat_layout
from atoll.numerics.step import state_roots
from atoll.numerics.tensors import tree_root
from atoll.numerics.tokens import DTYPES, Tokens, dtype_for
from atoll.numerics.trace.build.whole import program_of
from atoll.numerics.trace.imports import ImportContext, TraceSources
from atoll.numerics.trace.program_tree import Program
from atoll.numerics.trace.rollout_operations import tokens_of as tokens_with
from atoll.protocol.codecs import CODECS as KINDS
from atoll.protocol.families import LAYER_KINDS
from atoll.protocol.manifest import Manifest
from atoll.protocol.model_spec import ModelSpec
from atoll.protocol.task_spec import TaskSpec
from atoll.protocol.types import Digest, SeatIndex

SGD = {"optimizer": "sgd", "beta1": "0", "beta2": "0", "eps": "0"}
LLAMA3 = {"kind": "llama3", "factor": "8", "low": "1", "high": "4", "positions": 24}
LORA = {"rank": 2, "alpha": "3", "targets": ["q", "k", "v", "o", "gate", "up", "down"]}
COARSE = {"embedding": -10, "matrix": -13, "vector": -9}
QWEN: Changes = {
    "model": {"head_dim": 6, "qkv_bias": True, "qk_norm": True, "rope_scaling": LLAMA3}
}
OTHER_KINDS = tuple(kind for kind in LAYER_KINDS if kind != "llama")
TASK = {
    "prompts": 5, "prompt_tokens": 4, "answer_bytes": 3, "group": 2, "new_tokens": 6,
    "ends": [2, 7], "rewards": [
        {"kind": "answer", "weight": 700, "opening": "", "closing": "", "least": 0, "most": 0},
        {"kind": "length", "weight": 30, "opening": "", "closing": "", "least": 2, "most": 5},
        {"kind": "answer", "weight": 9, "opening": "a", "closing": "", "least": 0, "most": 0},
    ],
}  # fmt: skip
"""Prompts, answers of one of a few letters, and texts of tokens of none to three of them."""
MANY_HEADS = {"heads": 4, "kv_heads": 2, "head_dim": 6, "qk_norm": True}
JOBS: Mapping[str, Changes] = {
    "plain": {},
    "one micro-batch": {"inner": {"micro_batch": 4}},
    "lanes": {"inner": {"micro_batch": 1, "lanes": 2}},
    "dropout": {"inner": {"dropout": "0.1", "micro_batch": 1}},
    "qwen": QWEN,
    "untied": {"model": {"tied": False, "kv_heads": 2}},
    "relu2": {"model": {"mlp": "relu2"}},
    **{
        kind: {"model": {**MANY_HEADS, "kind": kind}, "inner": {"dropout": "0.1"}}
        for kind in OTHER_KINDS
    },
    **{f"lora of {kind}": {"model": {"kind": kind}, "lora": LORA} for kind in OTHER_KINDS},
    "sgd": {"inner": {**SGD, "schedule": "constant"}},
    "sgd with momentum": {"inner": {**SGD, "momentum": "0.9"}},
    "lion": {"inner": {"optimizer": "lion", "eps": "0"}},
    "muon": {
        "model": {"tied": False, "ffn": 24},
        "inner": {"optimizer": "muon", "momentum": "0.95"},
    },
    "masked": {"data": {"dtype": "uint16", "masked": True}, "inner": {"micro_batch": 1}},
    "aligned": {"data": {"dtype": "uint16", "masked": True, "aligned": True}},
    "lora": {**QWEN, "lora": LORA, "inner": {"dropout": "0.1"}},
    "lora of two": {"lora": {**LORA, "targets": ["k", "v"]}, "model": {"mlp": "relu2"}},
    "lora of one": {"lora": {**LORA, "targets": ["down"]}, "model": {"tied": False}},
    "rl": {"task": TASK, "model": {"seq": 14}},
    "rl of adapters": {
        "task": TASK | {"group": 4},
        "lora": LORA,
        "inner": {"micro_batch": 4},
        "model": {"vocab": 500, "seq": 11},
    },
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
        "codec": {
            "moment_exponents": {"embedding": -12, "matrix": -16, "vector": -13},
            "min_exponent": -28,
        },
    },
    # Products of attention in two parts, and of the head over more terms than an int32 sums.
    "broad heads": {"model": {"head_dim": 520, "layers": 1}, "inner": {"batch": 2}},
    "vast": {
        "model": {"vocab": 133_200, "layers": 1, "tied": False},
        "inner": {"batch": 2, "micro_batch": 1},
        "codec": {
            "moment_exponents": {"embedding": -13, "matrix": -17, "vector": -14},
            "min_exponent": -29,
        },
    },
}
"""By what is special about them."""
SOURCES = tuple(name for name, changes in JOBS.items() if "data" in changes)
"""Of those, the jobs whose micro-batches come otherwise than from text as it is."""


def codec_fields(name: str) -> Changes:
    """Of a small job with that codec, on a grid of other steps for each kind of tensor."""
    kind = KINDS[name]
    grid: dict[str, object] = {"exponents": COARSE}
    if kind.is_exact:
        exact = dict.fromkeys(COARSE, kind.start)
        grid = {"exponents": exact, "moment_exponents": exact}
        grid |= dict.fromkeys(("min_exponent", "max_exponent"), kind.start)
    fields: dict[str, object] = {"codec": {"kind": name, **grid}}
    is_alone = len(rules_for(name)) == 1
    return fields | ({"robust": {"rule": rules_for(name)[0]}} if is_alone else {})


CODECS: Mapping[str, Changes] = {name: codec_fields(name) for name in KINDS}
"""By the codec of their updates."""
SEAT, DATA_SEED = SeatIndex(3), Digest(hashlib.sha256(b"data seed").digest())


def stream(name: str, count: int) -> bytes:
    """Bytes that follow from a name."""
    return hashlib.shake_256(name.encode()).digest(count)


def problems_of(task: TaskSpec, vocab: int) -> Tokens:
    """Rows and texts of a task: short answers, which random text has now and then."""
    letters = [b"", b"a", b"b", b"ab", b"ba", b"c"]
    texts = [letters[byte % len(letters)] for byte in stream("texts", vocab)]
    ids = np.frombuffer(stream("prompts", 4 * task.prompts * task.prompt_tokens), "<u4") % vocab
    rows = ids.reshape(task.prompts, -1).tolist()
    problems = [
        Problem(tuple(row[: 1 + i % len(row)]), (b"a", b"b", b"ab")[i % 3])
        for i, row in enumerate(rows)
    ]
    return written(problems, texts, task, "uint16")


def tokens_of(changes: Changes, count: int) -> Tokens:
    """Token words below the vocabulary; where they are masked, with a stretch without targets."""
    if "task" in changes:
        vocab = changes.get("model", {}).get("vocab", BASES["tiny"]["model"]["vocab"])
        return problems_of(TaskSpec.model_validate(changes["task"]), vocab)
    vocab = changes.get("model", {}).get("vocab", BASES["tiny"]["model"]["vocab"])
    drawn = np.frombuffer(stream("tokens", 4 * count), "<u4") % np.uint32(vocab)
    if changes.get("data"):
        shown = np.frombuffer(stream("mask", count), np.uint8) % 3 == 0
        shown[100:160] = False
        return drawn.astype(np.uint16) | (~shown).astype(np.uint16) << 15
    return drawn.astype(DTYPES[dtype_for(vocab, mask_bits=0)])


def manifest_of(changes: Changes, tokens: Tokens) -> Manifest:
    """A job of three rounds over tokens whose blocks nobody has."""
    whole = {**changes, "data": data_over(tokens, **changes.get("data", {}))}
    if "lora" in changes:
        model = ModelSpec.model_validate(plain_manifest(changes, "tiny")["model"])
        whole["init"] = {"seed": 5, "cid": cid("data"), "root": tree_root(base_of(model))}
    return whole_manifest(whole, "tiny")


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
    initial_state: SeatState
    base: dict[str, Tensor]

    def sources(self, state: SeatState, step: int) -> TraceSources:
        """What the program of a step of round 0 reads."""
        course, inner = self.course, self.manifest.inner
        total = self.manifest.terms.rounds * inner.steps
        place, model = course.global_step0 + step, course.model
        assert model is not None
        exponents = model.exponent_bytes()
        roots = model.params_root(), Digest(hashlib.sha256(exponents).digest())
        return TraceSources(
            ImportContext(DATA_SEED, SEAT, course.round, step, place, state_roots(state), *roots),
            state,
            course.tokens,
            b"".join(table_parts(self.manifest.model, inner, total)),
            self.base,
            model.params,
            exponents,
            **self._generated(state, step),
        )

    def _generated(self, state: SeatState, step: int) -> dict[str, Tensor]:
        """What the step samples, where it does."""
        rollouts = self.course.input_of(step, self.course.begin(state, step)).rollouts
        if rollouts is None:
            return {}
        return {"generated": tokens_with(rollouts.signed, rollouts.below)}


@cache
def _drawn(shapes: tuple[tuple[str, tuple[int, ...]], ...], seed: int) -> dict[str, Tensor]:
    return initial_params(dict(shapes), seed)


def _hashable(shapes: Shapes) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, tuple(shape)) for name, shape in shapes.items())


def initial_model(manifest: Manifest) -> GlobalState:
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
    model = initial_model(manifest)
    frozen, base = {}, None
    if manifest.lora is not None:
        assert manifest.init.root is not None
        frozen = base_of(manifest.model)
        ops = operations()
        weights = sorted(frozen.items())
        base = freeze(weights, manifest.init.root, manifest.model, manifest.lora, ops)
    course = Course(
        manifest=manifest,
        recipe=Recipe.of(manifest, base),
        tokens=tokens,
        data_seed=DATA_SEED,
        seat=SEAT,
        round=0,
        model=model,
    )
    initial_state = SeatState.initial(model, seat_layout(manifest))
    program = program_of(manifest, model.digest())
    return Small(manifest, program, course, initial_state, frozen)
