"""What is registered by name is told apart by its properties, and each name has one row a table.

A comparison with a name is a special case that the next row of the table does not get. The walk
below refuses it in every product file outside of the registry's own folder.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from atoll.aggregation.rules import BY_TRIMMING
from atoll.aggregation.weights import BY_WEIGHTS
from atoll.numerics.codec import registry
from atoll.numerics.model import ACTIVATIONS, LAYERS
from atoll.numerics.optimisers import STEPS
from atoll.numerics.outer import OUTER_STEPS
from atoll.numerics.rewards import FULFILLED
from atoll.numerics.trace.build import model_trace as traced_model
from atoll.numerics.trace.build.optimisers import TRACED
from atoll.protocol.codecs import CODECS
from atoll.protocol.families import LAYER_KINDS, MLP_KINDS, ROPE_SCALINGS
from atoll.protocol.optimisers import INNER_OPTIMISERS, OUTER_OPTIMISERS
from atoll.protocol.rules import RULES
from atoll.protocol.task_spec import REWARDS
from atoll.train.families import FAMILIES

ROOT = Path(__file__).parents[2]
PRODUCT = (
    "sdk/atoll",
    "node/atoll_node",
    "verifier/atoll_verifier",
    "devnet/atoll_devnet",
    "bench",
)
OWN: Final[Mapping[str, tuple[str, ...]]] = {
    "codec": ("sdk/atoll/protocol/codecs.py", "sdk/atoll/numerics/codec/"),
    "rule": ("sdk/atoll/protocol/rules.py", "sdk/atoll/aggregation/"),
    "optimiser": ("sdk/atoll/protocol/optimisers.py", "sdk/atoll/numerics/optimisers.py"),
    "family": ("sdk/atoll/protocol/families.py", "sdk/atoll/train/families.py"),
}
NAMES: Final[Mapping[str, frozenset[str]]] = {
    "codec": frozenset(CODECS),
    "rule": frozenset(RULES),
    "optimiser": frozenset({*INNER_OPTIMISERS, *OUTER_OPTIMISERS}),
    "family": frozenset({*LAYER_KINDS, *MLP_KINDS, *ROPE_SCALINGS, *FAMILIES}),
}
TABLES: Final = (
    "sdk/atoll/numerics/outer.py",
    "sdk/atoll/numerics/model.py",
    "sdk/atoll/numerics/trace/build/model_trace.py",
    "sdk/atoll/numerics/trace/build/optimisers.py",
)
"""Files beside those with a row for each name, which `test_every_name_has_a_row` compares."""
OTHER_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "sdk/atoll/lab/differential.py": frozenset({"fp32"}),  # a route of matrix products
    "bench/aggregate.py": frozenset(RULES),  # what another library calls the same
    "bench/diloco.py": frozenset({*CODECS, *OUTER_OPTIMISERS}),  # rows of its table
    "sdk/atoll/train/corpus/marks.py": frozenset(FAMILIES),  # of their tokenizers
    "bench/numerics.py": frozenset({"adamw", "muon"}),  # which of torch's own it is held against
}
"""Files in which a registered name means something else, and which names."""


def compared_words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Text that something is compared with, or looked for in; and patterns of `match`."""
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        elif isinstance(node, ast.Call) and _is_test(node.func):
            parts = node.args
        for part in parts:
            for inner in ast.walk(part):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    yield inner.lineno, inner.value


def listed_words(tree: ast.AST) -> Iterator[tuple[int, frozenset[str]]]:
    """Keys of maps, and members of enumerations."""
    for node in ast.walk(tree):
        listed: list[ast.expr | None] = []
        if isinstance(node, ast.Dict):
            listed = list(node.keys)
        elif isinstance(node, ast.ClassDef) and "Enum" in "".join(map(ast.unparse, node.bases)):
            listed = [each.value for each in node.body if isinstance(each, ast.Assign)]
        words = {each.value for each in listed if isinstance(each, ast.Constant)}
        yield getattr(node, "lineno", 0), frozenset(filter(lambda w: isinstance(w, str), words))


def _is_test(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr in {"startswith", "endswith"}


def special_cases(file: str, source: str) -> list[str]:
    """Comparisons with names of registries whose folder the file is not in."""
    foreign = {kind: names for kind, names in NAMES.items() if not file.startswith(OWN[kind])}
    known = frozenset().union(*foreign.values()) - OTHER_WORDS.get(file, frozenset())
    tree = ast.parse(source)
    found = [f"{file}:{line}: {word}" for line, word in compared_words(tree) if word in known]
    if file in TABLES:
        return found
    others = {kind: names & known for kind, names in foreign.items()}
    return found + [
        f"{file}:{line}: a list of {kind}s"
        for line, words in listed_words(tree)
        for kind, names in others.items()
        if len(words & names) > 1
    ]


def test_nothing_is_told_apart_by_a_registered_name() -> None:
    found = [
        case
        for top in PRODUCT
        for path in sorted((ROOT / top).rglob("*.py"))
        for case in special_cases(
            path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        )
    ]
    assert not found, "ask a property of its row"


@pytest.mark.parametrize(
    "source",
    [
        'if codec.kind == "fp32": pass',
        'x = 1 if "sgd" != inner.optimizer else 2',
        'is_one = rule in {"krum", "multi_krum"}',
        'is_mixed = rule.startswith("nnm_mean")',
        'match spec.mlp:\n    case "relu2": pass',
        'y = lambda spec: spec.kind is "llama"',
        'FINENESS = {"grid8": 0, "grid4": 4}',
        'class Rule(StrEnum):\n    KRUM = "krum"\n    MEDIAN = "median"',
    ],
)
def test_the_walk_sees_every_way_to_ask_for_a_name(source: str) -> None:
    assert special_cases("sdk/atoll/service/any.py", source)
    other = re.sub(r'"(\w+)"', r'"no \1"', source)
    assert not special_cases("sdk/atoll/service/any.py", other)


def test_a_registrys_own_folder_may_name_its_rows() -> None:
    assert not special_cases("sdk/atoll/numerics/codec/any.py", 'kind == "fp32"')
    assert special_cases("sdk/atoll/numerics/codec/any.py", 'kind == "sgd"')


@pytest.mark.parametrize("file", OTHER_WORDS)
def test_a_file_that_is_let_off_has_such_words(file: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    words = {word for _, word in compared_words(tree)}.union(*(w for _, w in listed_words(tree)))
    assert OTHER_WORDS[file] & words


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        (registry.CODECS, CODECS),
        ({**BY_WEIGHTS, **BY_TRIMMING}, {rule.base for rule in RULES.values() if rule.mixes}),
        (STEPS, INNER_OPTIMISERS),
        (TRACED, INNER_OPTIMISERS),
        (OUTER_STEPS, OUTER_OPTIMISERS),
        (FULFILLED, REWARDS),
        (LAYERS, LAYER_KINDS),
        (traced_model.LAYERS, LAYER_KINDS),
        (ACTIVATIONS, MLP_KINDS),
        (traced_model.ACTIVATIONS, MLP_KINDS),
    ],
)
def test_every_name_has_a_row_in_every_table(rows: Mapping[str, Any], names: Any) -> None:
    assert set(rows) == set(names)


def test_every_family_is_of_kinds_that_there_are() -> None:
    assert {family.kind for family in FAMILIES.values()} == set(LAYER_KINDS)
    assert {family.mlp for family in FAMILIES.values()} == set(MLP_KINDS)


def test_numbers_of_codecs_are_their_own() -> None:
    assert sorted(kind.number for kind in CODECS.values()) == list(range(len(CODECS)))


def test_what_an_optimiser_leaves_to_another_reads_its_fields() -> None:
    for optimiser in INNER_OPTIMISERS.values():
        if optimiser.rest is not None:
            rest = INNER_OPTIMISERS[optimiser.rest]
            assert rest.usual.items() <= optimiser.usual.items()
            assert optimiser.has_corrections or not rest.has_corrections
