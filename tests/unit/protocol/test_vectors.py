"""The vectors that forge reads are the ones this code makes, and both say the same."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from atoll.errors import ManifestError
from atoll.protocol.draws import DrawStream
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import MergeRecord, MergeTerms, merge_inputs
from atoll.protocol.merkle import verify_proof
from atoll.protocol.method_spec import RobustSpec
from atoll.protocol.terms import check_terms
from atoll.protocol.types import Bitmap, Digest, SeatIndex, Terms, to_bitmap

VECTORS = Path(__file__).parents[2] / "vectors"


def _generator(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"vectors_{name}", VECTORS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATORS = [
    _generator(f"generate_{name}")
    for name in ("rounds", "refusals", "log", "half_rounds", "audit_rates")
]
FILES = [(module, name) for module in GENERATORS for name in sorted(module.FILES)]


def _load(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


@pytest.mark.parametrize(("generator", "name"), FILES, ids=[name for _, name in FILES])
def test_running_the_generator_again_writes_the_same_file(generator: ModuleType, name: str) -> None:
    assert generator.render(generator.FILES[name]) == (VECTORS / name).read_text()


REFUSALS, TERMS = _load("refused_manifests.json"), _load("terms.json")


def _spliced(case: Any) -> bytes:
    base, at = bytes.fromhex(REFUSALS["base"][2:]), case["at"]
    return base[:at] + bytes.fromhex(case["inserted"][2:]) + base[at + case["removed"] :]


def test_manifests_are_taken_and_refused_as_the_vectors_say() -> None:
    for case in REFUSALS["taken"]:
        assert Manifest.from_bytes(_spliced(case))
    for case in REFUSALS["refused"]:
        with pytest.raises(ManifestError):
            Manifest.from_bytes(_spliced(case))


def test_terms_are_taken_and_refused_as_the_vectors_say() -> None:
    """What the deployment and its clock bound is the contract's alone, whose test reads it."""
    names = [field.name for field in fields(Terms)]
    base = bytes.fromhex(TERMS["base"][2:])
    numbers = [int.from_bytes(base[at : at + 32], "big") for at in range(0, len(base), 32)]
    terms = Terms(*numbers[:-1], program=Digest(base[-32:]))
    both, own = TERMS["heldByBoth"], TERMS["heldByTheContract"]
    changed = {
        place: [
            replace(terms, **{names[index]: int(value)})
            for index, value in zip(columns["index"], columns["value"], strict=True)
        ]
        for place, columns in both.items()
    }
    for one in (terms, *changed["taken"]):
        check_terms(one)
    for one in changed["refused"]:
        with pytest.raises(ManifestError):
            check_terms(one)
    assert {names[index] for index in (*own["taken"]["index"], *own["refused"]["index"])} == {
        "expiry", "game_seconds", "move_seconds", "program",
    }  # fmt: skip


MERGES = _load("merge_inputs.json")["cases"]


@pytest.mark.parametrize("case", MERGES, ids=[case["name"] for case in MERGES])
def test_merge_inputs_are_those_of_the_vectors(case: Any) -> None:
    told, terms = case["record"], case["terms"]
    done = {SeatIndex(s): m for s, m in enumerate(told["segments"]) if m is not None}
    maps = {name: Bitmap(int(told[name], 16)) for name in ("slashed", "accused")}
    votes = [Bitmap(int(vote, 16)) for vote in told["votes"]]
    record = MergeRecord(to_bitmap(done), told["committee"], votes, done, **maps)
    given = [case[name] for name in ("gram", "moments") if case[name] is not None]
    grams = [[[int(value) for value in row] for row in gram] for gram in given]
    robust = RobustSpec(rule=terms["rule"], f=terms["f"], kappa=terms["kappa"])
    seats = [SeatIndex(seat) for seat in case["decoded"]]
    found = merge_inputs(record, seats, grams, MergeTerms(terms["segments"], robust))
    assert case["inputs"] == {
        "mergeable": list(found.mergeable),
        "fPrime": found.f_prime,
        "excluded": list(found.excluded),
        "merged": list(found.merged),
        "named": [{"check": x.check, "seat": x.seat} for x in found.named],
        "momentumExcluded": list(found.momentum_excluded),
    }


def test_every_proof_in_the_vectors_verifies() -> None:
    proofs = _load("merkle.json")["proofs"]
    for p in proofs:
        siblings = [bytes.fromhex(s[2:]) for s in p["siblings"]]
        leaf, root = bytes.fromhex(p["leaf"][2:]), bytes.fromhex(p["root"][2:])
        assert verify_proof(leaf, p["index"], p["count"], siblings, root)
    assert len(proofs) == 45


def test_draws_in_the_vectors_are_below_n() -> None:
    for case in _load("sampling.json")["draws"]:
        stream = DrawStream(case["tag"], bytes.fromhex(case["key"][2:]))
        n = int(case["n"])
        drawn = [stream.draw(n) for _ in case["values"]]
        assert [str(value) for value in drawn] == case["values"]
        assert all(0 <= value < n for value in drawn)


def test_the_manifest_in_the_vectors_is_read_back() -> None:
    vector = _load("manifest.json")
    manifest = Manifest.from_bytes(bytes.fromhex(vector["bytes"][2:]))
    assert "0x" + manifest.digest().hex() == vector["digest"]
    manifest.check_terms(Digest(bytes.fromhex(vector["termsHash"][2:])))
