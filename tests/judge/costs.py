"""What the last move costs at the sizes of real jobs: for each operation its dearest element.

Rule of this file: an operation has too many templates for all of them to be tried; tried are those
that are largest in anything (an input, the output, a word), at their ends and in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.judge.parties import Party, Trial, liar
from tests.judge.playing import play
from tests.judge.set_games import proof_gas
from tests.judge.table import Bill, Table
from tests.judge.vast import Vast, World
from tests.judge.vast_tokens import is_of_token, token_proof_gas
from tests.support.jobs import manifest_of_preset
from tests.unit.numerics.trace.jobs import CODECS, LORA, SGD, TASK, make_small

from atoll.job.presets import PRESETS
from atoll.numerics.trace.build.whole import program_of
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.canonical import dag_cbor_cid
from atoll.protocol.games.trees import LAYER_LEVELS, height, pieces_of
from atoll.protocol.manifest import Manifest
from atoll.protocol.program import Part, TraceTemplate
from atoll.protocol.rules import RULES
from atoll.protocol.task_spec import TaskSpec
from atoll.protocol.types import Address, Digest

INITIAL: Final = Digest(b"\x07" * 32)
MOST: Final = 450_000
"""Gas of a proof; the bar."""
MOST_OF_A_PICK: Final = 200_000
"""Gas of `pickToken`."""
MOST_OF_A_GAME: Final = 3_100_000
MOST_TRANSACTIONS: Final = 22
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
    "two_bit, fed back": {"codec": {"kind": "two_bit", "feedback": "0.9"}},
    "fp32": CODECS["fp32"],
    "sparse, fed back": {
        "codec": {"kind": "sparse", "feedback": "0.95"},
        "robust": {"rule": "contributor_mean"},
    },
    "dct, fed back": {
        "inner": SGD,
        "codec": {"kind": "dct", "feedback": "0.999"},
        "robust": {"rule": "contributor_mean"},
    },
    "rewards": {
        "data": {"masked": False, "aligned": False, "eval_cid": None, "eval_tokens": 0}
        | {"eval_batches": 0, "dtype": "uint32"},
        "task": TASK | {"prompts": 1 << 20, "prompt_tokens": 30, "new_tokens": 30},
    },
}
"""What a preset's model is trained with, so that every operation occurs."""


@dataclass(frozen=True, slots=True)
class Position:
    """One element that can be disputed."""

    part: int
    node: int
    element: int


@dataclass(frozen=True, slots=True)
class Cost:
    """The dearest proof of an operation that was found."""

    gas: int
    position: Position
    template: TraceTemplate


def preset_manifest(name: str, variant: str = "") -> Manifest:
    """A manifest with a preset's model and steps, over data of a billion tokens."""
    changes = VARIANTS[variant]
    fields = manifest_of_preset(name).model_dump()
    for part in ("model", "inner", "codec", "robust", "data"):
        fields[part] |= changes.get(part, {})
    if "task" in changes:
        words = TaskSpec.model_validate(changes["task"]).words(fields["model"]["vocab"])
        fields["task"] = changes["task"]
        fields["data"]["train_tokens"] = words
    if not RULES[fields["robust"]["rule"]].bears_faults:
        fields["robust"]["f"] = fields["terms"]["f"] = 0
    if "lora" in changes:
        cid = dag_cbor_cid(Digest(b"\x01" * 32))
        fields |= {"lora": changes["lora"], "init": {"seed": 5, "cid": cid, "root": bytes(32)}}
    return Manifest.model_validate(fields)


def world_of(name: str, variant: str = "") -> World:
    """A preset's job."""
    manifest = preset_manifest(name, variant)
    tokens = manifest.inner.micro_batch * manifest.model.seq
    return World(program_of(manifest, INITIAL), manifest.model.vocab, tokens)


def positions(world: World, op: int, most: int) -> Iterator[Position]:
    """Where an operation may be dearest: of at most so many templates the last node's elements."""
    found = [t for t in world.program.templates if t.op == op]
    for template in _largest(found)[:most]:
        last = template.size // template.width - 1
        node = template.first + (template.count - 1) * template.stride
        for element in sorted({last, last // 2 + last % 2, last // 3, 0}, reverse=True):
            yield Position(template.part, node, element)


def _largest(templates: list[TraceTemplate]) -> list[TraceTemplate]:
    """Those that are the largest in something, the deepest trees first."""
    words = max((len(t.words) for t in templates), default=0)
    keys = [_depth, lambda t: t.size, lambda t: len(t.to_bytes())]
    keys += [lambda t, i=i: t.words[i] if i < len(t.words) else -1 for i in range(words)]
    keys += [lambda t, i=i: -t.words[i] if i < len(t.words) else 0 for i in range(words)]
    largest = [max(templates, key=key) for key in keys] if templates else []
    return list({id(t): t for t in largest}.values())


def _depth(template: TraceTemplate) -> int:
    """Siblings beside all that may be shown."""
    return sum(height(pieces_of(read.size)) for read in template.inputs)


def dearest(table: Table, world: World, op: int, most: int = 4) -> Cost | None:
    """The operation's dearest proof; None where the job has no such operation."""
    costs = []
    for p in positions(world, op, most):
        gas_of = token_proof_gas if is_of_token(world, p.part) else proof_gas
        gas = gas_of(table, world, p.part, p.node, p.element)
        costs.append(Cost(gas, p, world.template(p.part, p.node)))
    return max(costs, key=lambda cost: cost.gas, default=None)


def demo_game(table: Table, number: int) -> Bill:
    """A game about the demo's model that is really played: a wrong bit in one of its products."""
    spec = PRESETS["demo"]
    assert spec.model is not None
    sizes = {"steps": 40, "batch": 8, "segment": 5, "micro_batch": 2}
    job = make_small({"model": spec.model.model_dump(), "inner": sizes})
    trial = Trial.of_step(job, sizes["segment"])
    nodes = trial.positions(Op.DOT_I8)
    node = nodes[len(nodes) // 2]
    holder = liar(trial, node, trial.values[node].numel() // 2)
    claim = holder.claimed(trial.claim(Address(table.holder)))
    return play(table, number, claim, holder, Party(trial, pretends=True)).bill


def large_game(table: Table, number: int, world: World) -> Bill:
    """A game about the largest tensor of a step, whose sum or product is the dearest to prove."""
    step = [t for t in world.program.templates if t.part == Part.STEP]
    largest = max(step, key=lambda t: (_moves(t), _depth(t), len(t.inputs)))
    node = largest.first + (largest.count - 1) * largest.stride
    element = largest.size // largest.width // 2
    parties = [
        Vast(world, Part.STEP, node, element, table.operations, wrong=wrong)
        for wrong in (True, False)
    ]
    claim = parties[0].claim(Address(table.holder))
    return play(table, number, claim, *parties).bill


def _moves(template: TraceTemplate) -> int:
    """Rows between a tensor's root and a leaf."""
    return -(-height(pieces_of(template.size)) // LAYER_LEVELS)
