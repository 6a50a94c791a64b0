"""The second client against the published vectors, and the examples of SPEC-MERGE.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.second_client import merge as second
from tests.second_client.codec import encode
from tests.second_client.state import global_bytes, global_digest, read_global

VECTORS = Path(__file__).parents[1] / "vectors"
SPEC = Path(__file__).parents[2] / "sdk" / "atoll" / "law" / "SPEC-MERGE.md"
Case = dict[str, Any]


def cases(name: str) -> list[Case]:
    return json.loads((VECTORS / name).read_text())["cases"]


def unhexed(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


@pytest.mark.parametrize("case", cases("merge.json"), ids=lambda case: case["name"])
def test_whole_merges(case: Case) -> None:
    told = case["manifest"]
    manifest = {
        "codec": told["codec"],
        "inner": {"steps": told["steps"]},
        "outer": told["outer"],
        "robust": told["robust"],
        "terms": {"min_providers": told["minProviders"]},
    }
    facts = {name: int(case["facts"][name], 16) for name in ("revealed", "rejected", "unresolved")}
    updates = dict(enumerate(map(unhexed, case["updates"])))
    facts |= {"caught": case["facts"]["caught"], "steps": dict.fromkeys(updates, told["steps"])}
    model, seed = read_global(unhexed(case["model"])), unhexed(case["dataSeed"])
    state, inputs = second.merge(manifest, model, facts, updates, seed)
    assert [f"{named['check']} {named['seat']}" for named in inputs["named"]] == case["named"]
    for field in ("leftOut", "merged", "fPrime"):
        assert inputs[field] == case[field]
    assert global_digest(state) == unhexed(case["digest"])


@pytest.mark.parametrize("case", cases("merge_inputs.json"), ids=lambda case: case["name"])
def test_merge_inputs(case: Case) -> None:
    facts = {name: int(case["facts"][name], 16) for name in ("revealed", "rejected", "unresolved")}
    facts |= {"caught": case["facts"]["caught"], "steps": dict(enumerate(case["facts"]["steps"]))}
    gram = case["gram"] and [[int(value) for value in row] for row in case["gram"]]
    assert second.merge_inputs(facts, case["decoded"], gram, case["terms"]) == case["inputs"]


def test_the_vectors_have_every_codec_rule_and_outer_optimiser() -> None:
    seen = cases("merge.json")
    assert {case["manifest"]["codec"]["kind"] for case in seen} >= {
        "grid8", "grid4", "two_bit", "sign", "fp32",
    }  # fmt: skip
    rules = {case["manifest"]["robust"]["rule"] for case in seen}
    assert rules >= {mixing + base for base in second.WEIGHTS for mixing in ("", "nnm_")}
    assert len({case["manifest"]["outer"]["kind"] for case in seen}) == 5


# --- the examples of the text ---

ROWS = [np.array(row) for row in ([8, -4, 0, 14], [9, -5, 1, 12], [7, -4, -1, 13], [-8, 4, 0, -14])]


def said(numerators: list[int], denominator: int) -> str:
    return ", ".join(map(str, numerators)).replace("-", "−") + f" / {denominator}"


@pytest.mark.parametrize("mixing", ["", "nnm_"])
@pytest.mark.parametrize("base", [*second.WEIGHTS, "median", "trimmed_mean"])
def test_the_texts_table_of_rules(base: str, mixing: str) -> None:
    found = said(*second.combined("grid8", mixing + base, ROWS, 0 if "krum" in base else 1))
    lines = [
        line for line in SPEC.read_text().splitlines() if f"`{base}`" in line and " / " in line
    ]
    (line,) = lines
    assert found in line.split("|")[3 if mixing else 2]


def test_the_texts_updates() -> None:
    delta = {"w": np.array([[0.5, -0.28125], [0.0, 0.875]], np.float32)}
    text, shapes, seat = SPEC.read_text(), {"w": (2, 2)}, (bytes(32), 0)
    for kind in ("grid8", "grid4", "two_bit", "sign", "fp32"):
        exponents = {"w": -40 if kind == "fp32" else -4}
        data = encode(kind, delta, exponents, seat)
        row = second.read_row(kind, data, shapes, exponents, seat).tolist()
        numbers = ", ".join(map(str, row)).replace("-", "−")
        lines = [line for line in text.splitlines() if line.startswith(f"| `{kind}`")]
        (line,) = [line for line in lines if numbers in line]
        body = line.split("`")[3].replace(" ", "")
        assert data.endswith(bytes.fromhex(body))
        assert len(data) == 42 + len(body) // 2


def test_the_texts_global_state() -> None:
    state = {
        "round": 3,
        "params": {"w": np.array([1.0, -0.0], np.float32)},
        "outer": {"momentum": {"w": np.array([5, -1], np.int64)}},
        "exponents": {"w": -4},
    }
    text = SPEC.read_text().replace(" ", "").replace("`", "").replace("\n", "")
    assert global_bytes(state).hex() in text
    assert global_digest(state).hex() in text
