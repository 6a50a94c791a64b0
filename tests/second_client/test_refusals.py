"""Manifests: the second client takes those that atoll takes, and no others."""

from __future__ import annotations

import copy
import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.second_client import money, refusals
from tests.second_client.documents import read_manifest
from tests.second_client.words import encode_cbor
from tests.support.manifests import plain_manifest

from atoll.errors import ManifestError
from atoll.protocol.manifest import Manifest

VECTORS = Path(__file__).parents[1] / "vectors"
Json = dict[str, Any]
MANIFESTS: Json = json.loads((VECTORS / "refused_manifests.json").read_text())
TERMS: Json = json.loads((VECTORS / "terms.json").read_text())
CASES = 500


def unhex(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def bytes_of(case: Json) -> bytes:
    base, at = unhex(MANIFESTS["base"]), case["at"]
    return base[:at] + unhex(case["inserted"]) + base[at + case["removed"] :]


def test_the_base_and_what_is_just_within_are_taken() -> None:
    for case in ({"at": 0, "removed": 0, "inserted": "0x"}, *MANIFESTS["taken"]):
        read_manifest(bytes_of(case))


@pytest.mark.parametrize("case", MANIFESTS["refused"], ids=lambda case: case["reason"])
def test_what_is_refused_is_refused(case: Json) -> None:
    with pytest.raises(ValueError):
        read_manifest(bytes_of(case))


def with_term(index: int, value: str) -> Json:
    """The base's terms with one other, as a manifest has them: amounts are text there."""
    base = unhex(TERMS["base"])
    words = [base[at : at + 32] for at in range(0, len(base), 32)]
    plain: Json = {
        name: word if name == "program" else int.from_bytes(word, "big")
        for name, word in zip(money.TERMS, words, strict=True)
    }
    plain[money.TERMS[index]] = int(value)
    for name in ("segment_pay", "sign_fee", "duty_fee", "provider_bond", "verifier_bond"):
        plain[name] = str(plain[name])
    return plain


def check(plain: Json) -> None:
    if not refusals.TERMS(plain):
        raise ValueError("not the fields of terms")
    refusals.check_terms(plain)


def test_terms_hold_up_to_their_bounds() -> None:
    both = TERMS["heldByBoth"]
    for index, value in zip(*both["taken"].values(), strict=True):
        check(with_term(index, value))
    for index, value in zip(*both["refused"].values(), strict=True):
        with pytest.raises(ValueError):
            check(with_term(index, value))


def places_of(plain: Json) -> list[tuple[Json, str]]:
    """Every field that is no map, with the map that has it."""
    found = []
    for name, value in plain.items():
        found += places_of(value) if isinstance(value, dict) else [(plain, name)]
    return found


def other(draw: random.Random, value: Any) -> Any:
    """Another value for a field, more often of its kind than not."""
    if isinstance(value, bool) or value is None or draw.random() < 0.1:
        return draw.choice([None, True, False, 0, 1, "0", "1", b"", bytes(32), []])
    if isinstance(value, int):
        return draw.choice([value + 1, max(value - 1, 0), 2 * value, value // 2, 0, 1, 2**32, -1])
    if isinstance(value, bytes):
        return draw.choice([value[:-1], value + b"\0", bytes(len(value)), value])
    if draw.random() < 0.2:
        return draw.choice(["adamw", "muon", "sgd", "adam", "mean", "sparse", "fp32", "relu2"])
    return draw.choice(["0", "1", "0.5", "0.50", "2", "0.999999", "1000", "1e3", "-1", value])


def is_taken(read: Any, data: bytes, error: type[Exception]) -> bool:
    try:
        read(data)
    except error:
        return False
    return True


def test_changed_at_random_both_say_the_same() -> None:
    draw, base = random.Random(12), plain_manifest()
    taken = 0
    for _ in range(CASES):
        plain = copy.deepcopy(base)
        for holder, name in draw.sample(places_of(plain), draw.choice([1, 1, 1, 2])):
            holder[name] = other(draw, holder[name])
        data = encode_cbor(plain)
        found = [
            partial(is_taken, read)(data, error)
            for read, error in ((read_manifest, ValueError), (Manifest.from_bytes, ManifestError))
        ]
        assert found[0] == found[1], plain
        taken += found[0]
    assert CASES // 20 < taken < CASES // 2
