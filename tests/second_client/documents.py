"""What follows from a manifest alone: SPEC.md section 6 and the fragments of section 9.

A manifest is the plain dict that its canonical DAG-CBOR decodes to. Fractions stay the decimal
strings that they are until a line of the law rounds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.second_client.families import LAYERS, MLPS
from tests.second_client.optimisers import OPTIMISERS
from tests.second_client.refusals import check_manifest
from tests.second_client.words import decode_cbor

Manifest = dict[str, Any]
Shape = tuple[int, ...]
Shapes = dict[str, Shape]

MAX_BYTES = 16 * 1024

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
OUTER_SLOTS = {
    "sgd": (),
    "nesterov": ("momentum",),
    "adam": ("momentum", "second"),
    "sign": (),
    "delayed_nesterov": ("buffer", "momentum"),
}


def read_manifest(data: bytes) -> Manifest:
    """Raises ValueError where the bytes are not canonical, or are refused (`refusals`)."""
    if len(data) > MAX_BYTES:
        raise ValueError("more than 16 KiB")
    manifest: Manifest = decode_cbor(data)
    check_manifest(manifest)
    return manifest


def shapes_of(model: dict[str, Any]) -> dict[str, Shape]:
    """Every parameter's shape by its name, names ascending; matrices are [out, in]."""
    width, ffn = model["width"], model["ffn"]
    queries, keys = (model[name] * model["head_dim"] for name in ("heads", "kv_heads"))
    shapes: dict[str, Shape] = {EMBEDDING: (model["vocab"], width), "model.norm.weight": (width,)}
    if not model["tied"]:
        shapes[HEAD] = (model["vocab"], width)
    for layer in range(model["layers"]):
        at = f"model.layers.{layer}."
        kind = LAYERS[model["kind"]]
        shapes |= {f"{at}{norm}.weight": (width,) for norm in kind.norms}
        shapes[at + "self_attn.q_proj.weight"] = (queries, width)
        shapes[at + "self_attn.k_proj.weight"] = (keys, width)
        shapes[at + "self_attn.v_proj.weight"] = (keys, width)
        shapes[at + "self_attn.o_proj.weight"] = (width, queries)
        shapes |= {f"{at}{name}.weight": (ffn, width) for name in MLPS[model["mlp"]]}
        shapes[at + "mlp.down_proj.weight"] = (width, ffn)
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            if model["qkv_bias"]:
                shapes[f"{at}self_attn.{name}_proj.bias"] = (rows,)
            if model["qk_norm"] and name != "v":
                gain = model["head_dim"] if kind.by_head else rows
                shapes[f"{at}self_attn.{name}_norm.weight"] = (gain,)
    return {name: shapes[name] for name in sorted(shapes)}


LINEARS = {
    "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
    "o": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}  # fmt: skip
A, B = ".lora_A.weight", ".lora_B.weight"


def trained_of(manifest: Manifest) -> dict[str, Shape]:
    """The shapes of what a job trains: its model, or the adapters of its targets."""
    shapes, lora = shapes_of(manifest["model"]), manifest["lora"]
    if lora is None:
        return shapes
    found: dict[str, Shape] = {}
    for layer in range(manifest["model"]["layers"]):
        for target in lora["targets"]:
            name = f"model.layers.{layer}.{LINEARS[target]}"
            outputs, inputs = shapes[name + ".weight"]
            found |= {name + A: (lora["rank"], inputs), name + B: (outputs, lora["rank"])}
    return {name: found[name] for name in sorted(found)}


def optimiser_of(name: str, shape: Shape, inner: dict[str, Any]) -> str:
    """Muon steps the matrices between embedding and head, and leaves the rest to AdamW."""
    kind: str = inner["optimizer"]
    rest = OPTIMISERS[kind].rest
    return rest if rest and (name in (EMBEDDING, HEAD) or len(shape) == 1) else kind


def moments_of(shapes: Mapping[str, Shape], inner: dict[str, Any]) -> tuple[Shapes, Shapes]:
    """The shapes of the parameters that have a first moment, and of those that have a second."""
    kinds = {name: optimiser_of(name, shape, inner) for name, shape in shapes.items()}
    kept = {name: OPTIMISERS[kind].slots_in(inner) for name, kind in kinds.items()}
    first, second = ({n: shapes[n] for n in kept if slot in kept[n]} for slot in ("m", "v"))
    return first, second


def exponent_of(name: str, exponents: dict[str, int]) -> int:
    """The grid exponent of a tensor in round 0, of the manifest's three."""
    kind = "vector" if "norm" in name or name.endswith(".bias") else "matrix"
    return exponents["embedding" if name in (EMBEDDING, HEAD) else kind]


def is_public(codec: dict[str, Any]) -> bool:
    """Whether a seat carries nothing of its own, so that every round opens from public data."""
    return not carries_params(codec)


def reset_period_of(manifest: Manifest) -> int:
    """How many rounds open publicly once, at most."""
    reset_period: int = 1 if is_public(manifest["codec"]) else manifest["terms"]["rounds"]
    return reset_period


def fragment_of(name: str, codec: dict[str, Any]) -> int:
    """Layer i is of fragment i mod P; what is of no layer, of fragment 0."""
    parts = name.split(".")
    layer = int(parts[2]) if parts[1] == "layers" else 0
    return layer % int(codec["fragments"])


def is_sent(name: str, codec: dict[str, Any], round: int) -> bool:
    """Whether the update of that round has the tensor."""
    return fragment_of(name, codec) == round % int(codec["fragments"])


def carries_params(codec: dict[str, Any]) -> bool:
    """Whether a seat keeps its parameters, and mixes in during a round what was merged before."""
    feeds_back, mixes = codec["feedback"] != "0", codec["mixing"] != "0"
    return bool(feeds_back or codec["fragments"] > 1 or codec["overlap"] > 0 or mixes)
