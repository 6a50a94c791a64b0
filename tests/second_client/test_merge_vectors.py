"""The second client against the published vectors, and the examples of SPEC-MERGE.md."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.second_client import merge as second
from tests.second_client import rules
from tests.second_client import stated as stating
from tests.second_client.codec import CODECS, encode
from tests.second_client.documents import OUTER_SLOTS
from tests.second_client.moments import sums_of, write_factored
from tests.second_client.optimisers import OPTIMISERS
from tests.second_client.sections import joined
from tests.second_client.state import (
    exponents_digest,
    global_bytes,
    global_digest,
    grouped,
    initial_root,
    read_global,
    tree_root,
)

VECTORS = Path(__file__).parents[1] / "vectors"
SPEC = Path(__file__).parents[2] / "sdk" / "atoll" / "protocol" / "SPEC-MERGE.md"
Case = dict[str, Any]


def cases(name: str) -> list[Case]:
    return json.loads((VECTORS / name).read_text())["cases"]


def unhexed(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def vector_of(stated: Case) -> tuple[bytes, bytes]:
    return unhexed(stated["update"]), unhexed(stated["statement"])


def raw_name(block: bytes) -> bytes:
    """The CIDv1 of a block of bytes: SPEC.md's files of one block."""
    return b"\x01\x55\x12\x20" + sha256(block).digest()


def record_of(plain: Case) -> Case:
    """What the chain says, as the second client takes it."""
    done = {seat: m for seat, m in enumerate(plain["segments"]) if m is not None}
    read = {name: int(plain[name], 16) for name in ("slashed", "accused")}
    votes = [int(vote, 16) for vote in plain["votes"]]
    return read | {"segments": done, "committee": plain["committee"], "votes": votes}


@pytest.mark.parametrize("case", cases("merge.json"), ids=lambda case: case["name"])
def test_whole_merges(case: Case) -> None:
    told = case["manifest"]
    manifest = {part: told[part] for part in ("codec", "inner", "outer", "robust")}
    model, seed = read_global(unhexed(case["model"])), unhexed(case["dataSeed"])
    for number in case["rounds"]:
        updates = {
            seat: joined([unhexed(part) for part in parts])
            for seat, parts in enumerate(number["updates"])
        }
        record = record_of(number["record"])
        stated = stating.stated(manifest, model, record, updates, seed, raw_name)
        assert stated == (number["stated"] and vector_of(number["stated"]))
        model, inputs = second.merge(manifest, model, record, updates, seed)
        assert [f"{named['check']} {named['seat']}" for named in inputs["named"]] == number["named"]
        for field in ("excluded", "merged", "momentumExcluded", "fPrime"):
            assert inputs[field] == number[field]
        assert initial_root(model) == unhexed(number["initialRoot"])
        assert global_digest(model) == unhexed(number["digest"])


@pytest.mark.parametrize("case", cases("merge_inputs.json"), ids=lambda case: case["name"])
def test_merge_inputs(case: Case) -> None:
    gram, of_moments = (
        case[name] and [[int(value) for value in row] for row in case[name]]
        for name in ("gram", "moments")
    )
    record = record_of(case["record"])
    found = second.merge_inputs(record, case["decoded"], gram, case["terms"], of_moments)
    assert found == case["inputs"]


def test_the_vectors_have_every_codec_rule_and_outer_optimiser() -> None:
    seen = cases("merge.json")
    assert {case["manifest"]["codec"]["kind"] for case in seen} == {*CODECS}
    merged_by = {case["manifest"]["robust"]["rule"] for case in seen}
    assert merged_by >= {*rules.RULES, "contributor_mean"}
    assert {case["manifest"]["outer"]["kind"] for case in seen} == {*OUTER_SLOTS}
    assert {case["manifest"]["inner"]["optimizer"] for case in seen} == {*OPTIMISERS}
    assert any("loud" in name for case in seen for name in case["rounds"][0]["named"])


# --- the examples of the text ---

ROWS = [np.array(row) for row in ([8, -4, 0, 14], [9, -5, 1, 12], [7, -4, -1, 13], [-8, 4, 0, -14])]


def said(numerators: list[int], denominator: int) -> str:
    return ", ".join(map(str, numerators)).replace("-", "−") + f" / {denominator}"


@pytest.mark.parametrize("mixing", ["", "nnm_"])
@pytest.mark.parametrize("base", rules.BASES)
def test_the_texts_table_of_rules(base: str, mixing: str) -> None:
    f = 0 if base in rules.NEED_MORE else 1
    found = said(*second.combined("grid8", mixing + base, ROWS, f))
    lines = [
        line for line in SPEC.read_text().splitlines() if f"`{base}`" in line and " / " in line
    ]
    (line,) = lines
    assert found in line.split("|")[3 if mixing else 2]


def test_the_texts_updates() -> None:
    delta = {"w": np.array([[0.5, -0.28125], [0.0, 0.875]], np.float32)}
    text, shapes, seat = SPEC.read_text(), {"w": (2, 2)}, (bytes(32), 0)
    for kind in (name for name, each in CODECS.items() if not each.is_sparse):
        exponents = {"w": -40 if CODECS[kind].is_exact else -4}
        data = encode(kind, delta, exponents, seat)
        row = second.read_row(kind, data, shapes, exponents, seat).tolist()
        numbers = ", ".join(map(str, row)).replace("-", "−")
        lines = [line for line in text.splitlines() if line.startswith(f"| `{kind}`")]
        (line,) = [line for line in lines if numbers in line] or [""]
        assert line, f"the example of SPEC-MERGE.md, 2, has no row of {kind} with {numbers}"
        body = line.split("`")[3].replace(" ", "")
        assert data.endswith(bytes.fromhex(body))
        assert len(data) == 42 + len(body) // 2


def test_the_texts_rounding() -> None:
    assert second.published(([15], 2)) == [8]
    assert (second.published(([-9], 4)), second.published(([-9], 4), 4)) == ([-2], [-36])


def test_the_texts_sums() -> None:
    v = {
        "w": np.array([[0.5, 0.3, 0.001], [1e-7, 2e-10, 0]], np.float32),
        "x": np.array([0.25, 0], np.float32),
    }
    shapes = {name: tensor.shape for name, tensor in v.items()}
    assert write_factored(sums_of(v), shapes).hex() in text_of_hex()


def test_the_texts_global_states() -> None:
    moments = {
        "m": {"w": np.array([[3, -127]], np.int8)},
        "rows": {"w": np.array([0.75], np.float32)},
        "columns": {"w": np.array([0.5, 0.25], np.float32)},
        "whole": {},
    }
    cold = {
        "round": 3,
        "params": {"w": np.array([[1.0, -0.0]], np.float32)},
        "outer": {"momentum": {"w": np.array([[5, -1]], np.int64)}},
        "exponents": {"w": -4},
        "moment_exponents": {"w": -9},
        "moments": {group: {} for group in moments},
        "m_exponents": {},
        "count": 0,
    }
    warm = cold | {"moments": moments, "m_exponents": {"w": -8}, "count": 30}
    text, data = text_of_hex(), global_bytes(warm)
    header = 12 + int.from_bytes(data[8:12], "little")
    assert data[:header].hex() in text
    assert f"{len(data)} bytes" in SPEC.read_text()
    tensors = grouped({"m": moments["m"], **warm["outer"], "params": warm["params"]})
    assert all(tensor.tobytes().hex() in text for tensor in tensors.values())
    digests = (exponents_digest(warm), initial_root(warm), global_digest(warm), global_digest(cold))
    roots = (
        tree_root(grouped(moments)),
        tree_root(warm["params"]),
        tree_root(grouped(warm["outer"])),
    )
    assert all(value.hex() in text for value in digests + roots)


def text_of_hex() -> str:
    """The chapter without what is between the words of its examples."""
    return SPEC.read_text().translate(str.maketrans("", "", " `\n"))
