"""What the last move costs at the sizes of real jobs: for each operation its dearest element.

Rule of this file: an operation has too many templates for all of them to be tried; tried are those
that are largest in anything (an input, the output, a word), at their ends and in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.jobs import PLAIN
from tests.judge.table import Table
from tests.judge.vast import World, proof_gas
from tests.unit.bits.tape.jobs import LORA, SGD, base_of, manifest_of, tokens_of

from atoll.bits.tape.build.whole import program_of
from atoll.job.presets import PRESETS
from atoll.law.canonical import dag_cbor_cid
from atoll.law.games.trees import height, pieces_of
from atoll.law.manifest import Manifest
from atoll.law.program import Part, Template
from atoll.law.words import Digest

INITIAL: Final = Digest(b"\x07" * 32)
MOST: Final = 450_000
"""Gas of a proof that fits the bar."""
VARIANTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "": {},
    "relu2, biases, dropout, muon, two_bit": {
        "model": {"mlp": "relu2", "qkv_bias": True, "qk_norm": True},
        "inner": {"optimizer": "muon", "momentum": "0.95", "dropout": "0.1"},
        "codec": {"kind": "two_bit"},
    },
    "adapters, SGD, grid4": {
        "inner": {**SGD, "momentum": "0.9"},
        "codec": {"kind": "grid4"},
        "lora": LORA,
    },
    "sign": {"codec": {"kind": "sign"}},
    "fp32": {"codec": {"kind": "fp32"}},
}
"""What a preset's model is trained with, so that every operation occurs."""


@dataclass(frozen=True, slots=True)
class Place:
    """One element that can be disputed."""

    part: Part
    node: int
    element: int


@dataclass(frozen=True, slots=True)
class Cost:
    """The dearest proof of an operation that was found."""

    gas: int
    place: Place
    template: Template


def preset_manifest(name: str, variant: str = "") -> Manifest:
    """A manifest with a preset's model and steps, over data of a billion tokens."""
    spec, plain = PRESETS[name], manifest_of({}, tokens_of({}, 1200))
    changes = VARIANTS[variant]
    names = ("lr", "steps", "batch", "segment", "micro_batch")
    given = {f"inner.{field}": getattr(spec.inner, field) for field in names}
    kept = {field: value for field, value in given.items() if value is not None}
    data = plain.data.model_copy(update={"dtype": "uint16", "train_tokens": 10**9})
    job = PLAIN.but({"rounds": spec.rounds, "model": spec.model, **kept})
    fields = job.resolve(data, None, plain.numerics, now=0).model_dump()
    for part in ("model", "inner", "codec"):
        fields[part] |= changes.get(part, {})
    if "lora" in changes:
        cid = dag_cbor_cid(Digest(b"\x01" * 32))
        fields |= {"lora": changes["lora"], "init": {"seed": 5, "cid": cid, "root": bytes(32)}}
    return Manifest.model_construct(
        **{name: getattr(Manifest.model_validate(fields), name) for name in Manifest.model_fields}
    )


def world_of(name: str, variant: str = "") -> World:
    """A preset's job."""
    manifest = preset_manifest(name, variant)
    tokens = manifest.inner.micro_batch * manifest.model.seq
    return World(program_of(manifest, INITIAL), manifest.model.vocab, tokens)


def places(world: World, op: int, most: int) -> Iterator[Place]:
    """Where an operation may be dearest: of at most so many templates the last node's elements."""
    found = [t for t in world.program.templates if t.op == op]
    for template in _largest(found)[:most]:
        last = template.size // template.width - 1
        node = template.first + (template.count - 1) * template.stride
        for element in sorted({last, last // 2 + last % 2, last // 3, 0}, reverse=True):
            yield Place(template.part, node, element)


def _largest(templates: list[Template]) -> list[Template]:
    """Those that are the largest in something, the deepest trees first."""
    words = max((len(t.words) for t in templates), default=0)
    keys = [_depth, lambda t: t.size, lambda t: len(t.to_bytes())]
    keys += [lambda t, i=i: t.words[i] if i < len(t.words) else -1 for i in range(words)]
    keys += [lambda t, i=i: -t.words[i] if i < len(t.words) else 0 for i in range(words)]
    largest = [max(templates, key=key) for key in keys] if templates else []
    return list({id(t): t for t in largest}.values())


def _depth(template: Template) -> int:
    """Siblings beside all that may be shown."""
    return sum(height(pieces_of(read.size)) for read in template.inputs)


def dearest(table: Table, world: World, op: int, most: int = 4) -> Cost | None:
    """The operation's dearest proof; None where the job has no such operation."""
    costs = [
        Cost(proof_gas(table, world, p.part, p.node, p.element), p, world.template(p.part, p.node))
        for p in places(world, op, most)
    ]
    return max(costs, key=lambda cost: cost.gas, default=None)
