"""The vectors that forge reads are the ones this code makes, and both say the same."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from atoll.law.draws import DrawStream
from atoll.law.manifest import Manifest
from atoll.law.merkle import verify_proof
from atoll.law.words import Digest

VECTORS = Path(__file__).parents[2] / "vectors"


def _generator(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"vectors_{name}", VECTORS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = _generator("generate_rounds")


def _load(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


@pytest.mark.parametrize("name", sorted(GENERATOR.FILES))
def test_running_the_generator_again_writes_the_same_file(name: str) -> None:
    assert GENERATOR.render(GENERATOR.FILES[name]) == (VECTORS / name).read_text()


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
