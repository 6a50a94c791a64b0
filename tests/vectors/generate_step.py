"""Writes the vectors of the exact step: `python tests/vectors/generate_step.py`.

Rule of this file: inputs follow from SHA-256 of short names, so that a run writes the same bytes
anywhere; `README.md` beside it says what each file holds. The results are those of atoll's
definition, plain PyTorch kernels and fp64 products.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from tests.support.identities import cid
from tests.support.manifests import Changes, data_over, make_manifest, whole_manifest
from torch import Tensor

from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.frozen_base import Base, freeze
from atoll.numerics.held_out_loss import held_out_loss, window_starts
from atoll.numerics.init import initial_global_state, initial_params, write_params
from atoll.numerics.kernels import elementary
from atoll.numerics.kernels.engine import make_engine
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.grid import exact_sum, quantise, quantise_split
from atoll.numerics.kernels.interface import AdamFactors
from atoll.numerics.kernels.philox import Mask
from atoll.numerics.ops import operations
from atoll.numerics.pieces import root_of_update
from atoll.numerics.schedule import Recipe
from atoll.numerics.segment import Course, run_segment
from atoll.numerics.state import SeatState
from atoll.numerics.state_layout import param_shapes, seat_layout
from atoll.numerics.step import inner_step, state_roots
from atoll.numerics.tensors import tree_root
from atoll.numerics.tokens import Tokens
from atoll.numerics.update_proof import close_round
from atoll.protocol.checkpoint_commitments import float_bytes
from atoll.protocol.draws import batch_offsets
from atoll.protocol.families import LAYER_KINDS
from atoll.protocol.losses import mean_loss
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Digest, SeatIndex

HERE = Path(__file__).parent
Json: TypeAlias = dict[str, Any]
OPS = ExactOps(make_engine(route="fp64", kernels="eager"))


def stream(name: str, count: int) -> bytes:
    """That many bytes that nobody chose."""
    return hashlib.shake_128(name.encode()).digest(count)


def numbers(name: str, *shape: int, scale: float = 1.0) -> Tensor:
    """Multiples of scale · 2^-13 between −4 and 4 times the scale."""
    size = int(np.prod(shape))
    words = np.frombuffer(stream(name, 2 * size), "<i2").astype(np.float64) * 2.0**-13 * scale
    return torch.from_numpy(words.astype(np.float32).reshape(shape))


def bits(x: Tensor) -> Json:
    """A tensor's shape and its words, row-major, in hexadecimal; fp64 has 16 digits a word."""
    array = x.detach().contiguous().numpy()
    words = array.astype(array.dtype.newbyteorder(">")).tobytes()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "bits": words.hex()}


def named(tensors: Mapping[str, Tensor]) -> list[Json]:
    """Tensors in the order of an operation's arguments."""
    return [bits(x) | {"name": name} for name, x in tensors.items()]


def case(
    run: Callable[..., Tensor | tuple[Tensor, ...]], inputs: Mapping[str, Tensor], **record: Any
) -> Json:
    """Inputs, results, the gradients of the results, and those of the inputs that follow."""
    leaves = [x.clone().requires_grad_() for x in inputs.values()]
    results = run(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    back = [numbers(f"gradient {i}", *y.shape) for i, y in enumerate(results)]
    found = torch.autograd.grad(results, leaves, back)
    return record | {
        "inputs": named(inputs),
        "results": [bits(y) for y in results],
        "gradientsOfResults": [bits(g) for g in back],
        "gradientsOfInputs": [bits(g) for g in found],
    }


def products() -> Json:
    """Embedding, linears and head."""
    ids = torch.tensor([[3, 0, 3, 1, 4]])
    x = {"x": numbers("x", 5, 6)}
    weights = {"first": numbers("w1", 3, 6), "second": numbers("w2", 4, 6)}
    top = numbers("w", 4, 6)
    frozen, frozen_head = OPS.freeze(list(weights.values())), OPS.freeze_head(top)
    return {
        "embedding": case(
            lambda table: OPS.embedding(ids, table)[0],
            {"table": numbers("table", 5, 3)},
            ids=ids[0].tolist(),
        ),
        "linear": case(lambda x, *w: tuple(y[0] for y in OPS.linears(x[None], w)), x | weights),
        "head": case(lambda x, w: OPS.head(x[None], w)[0], x | {"weight": top}),
        "frozenLinears": case(
            lambda x: tuple(y[0] for y in OPS.frozen_linears(x[None], frozen)),
            x, frozen=named(weights),
        ),
        "frozenHead": case(
            lambda x: OPS.frozen_head(x[None], frozen_head)[0],
            x, frozen=named({"weight": top}),
        ),
    }  # fmt: skip


def pointwise() -> Json:
    """Norm, rotation, gates, dropout and loss."""
    mask = Mask("0.25", (0xDEADBEEF, 7), step=3, site=2, first=6)
    targets, every = torch.tensor([[2, 0, 5]]), torch.ones(1, 3)
    masked, none = torch.tensor([[-1, 0, 5]]), torch.full((1, 3), -1)
    tables = {"cosines": numbers("cos", 3, 2), "sines": numbers("sin", 3, 2)}
    pair = {"gate": numbers("gate", 2, 5), "up": numbers("up", 2, 5)}
    return {
        "bias": case(
            lambda x, b: OPS.add_bias(x[None], b)[0],
            {"x": numbers("x", 3, 6), "bias": numbers("bias", 6)},
        ),
        "rmsNorm": case(
            lambda x, gain: OPS.rms_norm(x[None], gain, 1e-5)[0],
            {"x": numbers("x", 3, 6), "gain": numbers("gain", 6)},
            eps="0.00001",
        ),
        "rotary": case(
            lambda x: OPS.rotary(x, *tables.values()),
            {"x": numbers("x", 1, 2, 3, 4)},
            **{name: bits(table) for name, table in tables.items()},
        ),
        "swiglu": case(lambda a, b: OPS.swiglu(a[None], b[None])[0], pair),
        "squaredRelu": case(OPS.squared_relu, {"x": numbers("x", 2, 5)}),
        "dropout": case(
            lambda x: OPS.dropout(x, mask), {"x": numbers("x", 2, 7)},
            share=mask.share, key=list(mask.key), step=mask.step, site=mask.site, first=mask.first,
        ),
        "crossEntropy": case(
            lambda x: OPS.cross_entropy(x[None], targets, every).reshape(1),
            {"logits": numbers("logits", 3, 6)},
            targets=targets[0].tolist(),
        ),
        "crossEntropyMasked": case(
            lambda x: OPS.cross_entropy(x[None], masked, (masked >= 0).float()).reshape(1),
            {"logits": numbers("logits", 3, 6)},
            targets=masked[0].tolist(),
        ),
        "crossEntropyOfNoTarget": case(
            lambda x: OPS.cross_entropy(x[None], none, 0 * every).reshape(1),
            {"logits": numbers("logits", 3, 6)},
            targets=none[0].tolist(),
        ),
    }  # fmt: skip


def attention() -> Json:
    """Within one tile with shared key heads, and over two tiles."""

    def of(batch: int, heads: int, keys: int, length: int, width: int) -> Json:
        shapes = {"q": heads, "k": keys, "v": keys}
        inputs = {n: numbers(n, batch, count, length, width) for n, count in shapes.items()}
        return case(partial(OPS.attention, context=length), inputs)

    return {"attention": of(2, 4, 2, 5, 4), "attentionOverTiles": of(1, 1, 1, 131, 2)}


def optimisers() -> Json:
    """AdamW, momentum, Muon's orthogonalisation, the norm of two gradients."""
    p, m, g = (numbers(name, 3, 4) for name in ("p", "m", "g"))
    v = numbers("v", 3, 4).abs()
    factors = AdamFactors(0.75, 0.9, 0.999, 2.5, 100.0, 1e-8, 0.1, 0.003)
    names = ("scale", "beta1", "beta2", "correct1", "correct2", "eps", "decay", "rate")
    wide, tall = numbers("wide", 4, 9), numbers("tall", 9, 4)
    norm = torch.tensor([OPS.global_norm([p, g])], dtype=torch.float64)
    inputs = named({"p": p, "m": m, "v": v, "g": g})
    return {
        "adamw": {"inputs": inputs, "results": [bits(x) for x in OPS.adamw(p, m, v, g, factors)]}
        | {name: getattr(factors, name) for name in names},
        "momentum": {
            "inputs": named({"m": m, "g": g}),
            "keep": 0.95,
            "add": 1.0 - 0.95,
            "results": [bits(OPS.momentum(m, g, 0.95, 1.0 - 0.95))],
        },
        "orthogonalise": {
            "inputs": named({"wide": wide, "tall": tall}),
            "results": [bits(OPS.orthogonalise(x)) for x in (wide, tall)],
        },
        "globalNorm": {"inputs": named({"p": p, "g": g}), "results": [bits(norm)]},
    }


def grids() -> Json:
    """Integers and steps of a line, its exact sum, and the elementary functions."""
    x = numbers("line", 1, 12)
    magnitudes = numbers("magnitudes", 12, scale=20.0)
    positive = magnitudes.abs() + 2.0**-20
    functions = {"exp": magnitudes, "sigmoid": magnitudes, "log": positive, "sqrt": positive}
    made: Json = {"line": bits(x), "exactSum": bits(exact_sum(x, 1))}
    for levels in (127, 1 << 18, 1 << 22):
        integers, step = quantise(x, 1, levels)
        made[f"levels{levels}"] = {"integers": integers[0].int().tolist(), "step": bits(step)}
    high, low, step = quantise_split(x, 1)
    made["split"] = {"high": high[0].tolist(), "low": low[0].tolist(), "step": bits(step)}
    for name, arguments in functions.items():
        results = getattr(elementary, name)(arguments)
        made[name] = {"arguments": bits(arguments), "results": bits(results)}
    return made


# --- training.json ---

MODEL = make_manifest(base="tiny").model
NO_ADAM = {"optimizer": "sgd", "momentum": "0.9", "beta1": "0", "beta2": "0", "eps": "0"}
MANY_HEADS = {"heads": 4, "kv_heads": 2, "head_dim": 6, "qk_norm": True}
JOBS: Mapping[str, Changes] = {
    "adamw": {"codec": {"kind": "grid8"}},
    "attention": {
        "model": {
            "head_dim": 6,
            "qkv_bias": True,
            "qk_norm": True,
            "rope_scaling": {
                "kind": "llama3",
                "factor": "8",
                "low": "1",
                "high": "4",
                "positions": 24,
            },
        },
        "codec": {"kind": "grid8"},
    },
    **{
        kind: {"model": {**MANY_HEADS, "kind": kind}, "codec": {"kind": "grid8"}}
        for kind in LAYER_KINDS
        if kind != MODEL.kind
    },
    "muon": {
        "model": {"tied": False, "kv_heads": 2},
        "inner": {"optimizer": "muon", "momentum": "0.95", "micro_batch": 4, "dropout": "0"},
        "codec": {"kind": "grid4"},
    },
    "sgd": {
        "model": {"mlp": "relu2"},
        "inner": {**NO_ADAM, "schedule": "constant", "micro_batch": 1, "lanes": 2},
        "codec": {"kind": "two_bit", "feedback": "0.9"},
    },
    "masked": {
        "data": {"dtype": "uint16", "masked": True},
        "inner": {"micro_batch": 1},
        "codec": {"kind": "grid8"},
    },
    "aligned": {
        "data": {"dtype": "uint16", "masked": True, "aligned": True},
        "inner": {"micro_batch": 2},
        "codec": {"kind": "grid8"},
    },
}
ADAPTERS: Changes = {
    "lora": {"rank": 2, "alpha": "5", "targets": ["q", "v", "down"]},
    "inner": {"micro_batch": 1, "dropout": "0"},
    "codec": {"kind": "grid8"},
}
"""A job that trains adapters on the model of seed 1."""
SEAT, DATA_SEED = SeatIndex(3), Digest(hashlib.sha256(b"data seed").digest())


def manifest_of(changes: Changes, tokens: Tokens) -> Manifest:
    """A job of three rounds over tokens whose blocks nobody has."""
    whole = {"inner.dropout": "0.1", **changes}
    whole["data"] = data_over(tokens, **{"dtype": "uint8", **changes.get("data", {})})
    if "lora" in changes:
        whole["init"] = {"seed": 0, "cid": cid("data"), "root": tree_root(frozen_weights())}
    return whole_manifest(whole, "tiny")


def frozen_weights() -> dict[str, Tensor]:
    """What the adapters are added to."""
    shapes = param_shapes(MODEL)
    return dict(initial_params(shapes, seed=1))


def weights_of(manifest: Manifest) -> tuple[Json, Base | None]:
    """The bytes of what adapters are added to, as its file has them; nothing without adapters."""
    if manifest.lora is None:
        return {}, None
    weights = frozen_weights()
    base = freeze(weights.items(), tree_root(weights), manifest.model, manifest.lora, operations())
    pieces = write_params(param_shapes(manifest.model), weights.__getitem__)
    return {"frozenWeights": b"".join(pieces).hex()}, base


def offsets_of(manifest: Manifest) -> list[int]:
    """Where the sequences of the first step begin."""
    data, seq = manifest.data, manifest.model.seq
    draws = batch_offsets(DATA_SEED, SEAT, 0, manifest.inner.batch, data.windows(seq))
    return [data.stride(seq) * draw for draw in draws]


def training(changes: Changes) -> Json:
    """What a job fixes, its first step, its first segment, and an update from there."""
    tokens = np.frombuffer(stream("tokens", 300), np.uint8) % np.uint8(MODEL.vocab)
    if changes.get("data"):
        # An answer of one token in three, and a stretch without any.
        shown = np.frombuffer(stream("mask", 300), np.uint8) % 3 == 0
        shown[100:160] = False
        tokens = tokens.astype(np.uint16) | (~shown).astype(np.uint16) << 15
    manifest = manifest_of(changes, tokens)
    model = initial_global_state(manifest)
    given, base = weights_of(manifest)
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
    step = inner_step(initial_state, course.input(0), course.recipe)
    done = run_segment(initial_state, 0, course)
    update, carried_state = close_round(manifest, model, done.state, DitherKey(DATA_SEED, SEAT))
    schedule = course.recipe.schedule
    return given | {
        "manifest": manifest.to_bytes().hex(),
        "tokens": tokens.tobytes().hex(),
        "dataSeed": DATA_SEED.hex(),
        "seat": SEAT,
        "rates": bits(torch.from_numpy(schedule.rates.copy())),
        "corrections": bits(torch.from_numpy(schedule.corrections.copy())),
        "initialWeights": bits(model.params[min(model.params)]),
        "globalDigest": model.digest().hex(),
        "step": {
            "offsets": offsets_of(manifest),
            "norm": np.array(step.work.norm, ">f8").tobytes().hex(),
            "losses": np.array(step.work.losses, ">f4").tobytes().hex(),
            "stateRoots": [part.hex() for part in state_roots(step.state)],
        },
        "segment": {"stateDigest": done.digest.hex(), "workTag": done.work_tag.hex()},
        "update": update.hex(),
        "updateRoot": root_of_update(update).hex(),
        "carriedStateRoot": state_roots(carried_state).optimiser_root.hex(),
    }


# --- held_out.json ---


def held_out(changes: Changes) -> Json:
    """The windows of a few tokens, every micro-batch's loss under two models, what they come to."""
    tokens = np.frombuffer(stream("held out", 40), np.uint8) % np.uint8(MODEL.vocab)
    if changes.get("data"):
        tokens = tokens.astype(np.uint16) | np.where(np.arange(40) % 9 < 7, 1 << 15, 0).astype(
            "<u2"
        )
    plain = manifest_of(changes, tokens).model_dump()
    cid = plain["data"]["cid"]
    plain["data"] |= {"eval_cid": cid, "eval_tokens": len(tokens), "eval_batches": 3}
    manifest = Manifest.model_validate(plain)
    first = initial_global_state(manifest).params
    broken = first | {"model.norm.weight": first["model.norm.weight"] * float("inf")}
    count = manifest.data.eval_batches * manifest.inner.batch
    return {
        "manifest": manifest.to_bytes().hex(),
        "tokens": tokens.tobytes().hex(),
        "windows": window_starts(
            len(tokens) - manifest.model.seq - 1,
            count,
            stride=manifest.data.stride(manifest.model.seq),
        ),
        "loss": float_bytes(">d", held_out_loss(first, manifest, tokens)).hex(),
        "lossNotFinite": float_bytes(">d", held_out_loss(broken, manifest, tokens)).hex(),
    }


def means() -> list[Json]:
    """Losses and how many targets each is the mean of, where rounding early would show."""
    cases = [
        ([1.0, 2.0**-24, 2.0**-23], [1, 1, 1]),
        ([5.541263103485107, 5.5412278175354, 5.54140567779541], [96, 96, 96]),
        ([3.25, 0.0, 2.8125], [7, 0, 5]),
        ([0.0], [0]),
        ([1.5, math.inf], [1, 1]),
    ]
    return [
        {
            "losses": b"".join(float_bytes(">f", loss) for loss in losses).hex(),
            "counts": counts,
            "mean": float_bytes(">d", mean_loss(losses, counts)).hex(),
        }
        for losses, counts in cases
    ]


FILES: Mapping[str, Callable[[], Json]] = {
    "exact_ops.json": lambda: products() | pointwise() | attention() | optimisers(),
    "grids.json": grids,
    "held_out.json": lambda: {
        "jobs": {name: held_out(changes) for name, changes in JOBS.items()},
        "means": means(),
    },
    "training.json": lambda: {
        name: training(changes) for name, changes in (JOBS | {"adapters": ADAPTERS}).items()
    },
}


def render(build: Callable[[], Json]) -> str:
    """The file's text: keys in alphabetical order."""
    return json.dumps(build(), indent=1, sort_keys=True) + "\n"


def main() -> None:
    for name, build in FILES.items():
        (HERE / name).write_text(render(build))


if __name__ == "__main__":
    main()
