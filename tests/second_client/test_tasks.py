"""Jobs with a task that one client refuses the other refuses, too; so are states' rollouts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.second_client import documents, state

from atoll.errors import ManifestError
from atoll.numerics.errors import MalformedState
from atoll.numerics.state import SeatState
from atoll.numerics.state_layout import seat_layout
from atoll.protocol.canonical import decode, encode
from atoll.protocol.manifest import Manifest

VECTORS = Path(__file__).parents[1] / "vectors"
BYTES = bytes.fromhex(json.loads((VECTORS / "rollouts.json").read_text())["manifest"])
Plain = dict[str, Any]
Change = Callable[[Plain], Any]


def reward(at: int, **changes: Any) -> Change:
    return lambda plain: plain["task"]["rewards"][at].update(changes)


def task(**changes: Any) -> Change:
    return lambda plain: plain["task"].update(changes)


def section(name: str, **changes: Any) -> Change:
    return lambda plain: plain[name].update(changes)


REFUSED: dict[str, Change] = {
    "a null": lambda plain: plain.update(task=None),
    "a field more": task(more=1),
    "no rewards": task(rewards=[]),
    "nine rewards": lambda plain: plain["task"].update(rewards=plain["task"]["rewards"] * 3),
    "a reward of no kind": reward(0, kind="wit"),
    "a weight of 0": reward(0, weight=0),
    "a weight above 1000": reward(0, weight=1001),
    "a marker above 32 letters": reward(0, opening="a" * 33),
    "an answer and markers above 64 bytes": reward(0, opening="é" * 31),
    "an answer with a length": reward(0, most=3),
    "a length with a marker": reward(1, closing="a"),
    "a length that is none": reward(1, least=6, most=5),
    "a group of one": task(group=1),
    "a group that is cut": task(group=3),
    "no new tokens": task(new_tokens=0),
    "longer than the model": task(new_tokens=11),
    "an answer above a window": task(answer_bytes=65),
    "ends that do not ascend": task(ends=[7, 2]),
    "an end twice": task(ends=[2, 2]),
    "an end that is no token": task(ends=[17]),
    "nine ends": task(ends=list(range(9))),
    "another number of prompts": task(prompts=6),
    "dropout": section("inner", dropout="0.1"),
    "masked data": section("data", masked=True),
    "aligned data": section("data", aligned=True),
    "more ids than a round may have": lambda plain: (
        plain["inner"].update(batch=2**20), plain["terms"].update(tokens_per_step=2**20 * 14)
    ),
}  # fmt: skip


def test_the_job_itself_is_none_of_them() -> None:
    assert Manifest.from_bytes(BYTES).task is not None
    assert documents.read_manifest(BYTES)["task"]["group"] == 2


@pytest.mark.parametrize("name", REFUSED)
def test_both_refuse(name: str) -> None:
    plain: Any = decode(BYTES, len(BYTES))
    REFUSED[name](plain)
    data = encode(plain)
    with pytest.raises(ManifestError):
        Manifest.from_bytes(data)
    with pytest.raises(ValueError, match=r"."):
        documents.read_manifest(data)


@pytest.mark.parametrize(
    "words",
    [
        dict.fromkeys(map(str, range(8)), 0),
        dict.fromkeys(map(str, range(7)), 1),
        dict.fromkeys(map(str, range(8)), 1 << 32),
    ],
    ids=["zero", "seven words", "a word of 33 bits"],
)
def test_both_refuse_a_state(words: dict[str, int]) -> None:
    manifest, layout = documents.read_manifest(BYTES), seat_layout(Manifest.from_bytes(BYTES))
    model = state.initial_global_state(manifest)
    opened = state.initial_state(manifest, model, None) | {"rollouts": bytes(range(32))}
    data = state.seat_bytes(opened)
    assert state.read_seat(data, manifest)["rollouts"] == bytes(range(32))
    assert SeatState.from_bytes(data, layout).rollouts == bytes(range(32))
    fields = {"batches": 0, "count": 0, "rollouts": words}
    groups = state.grouped({group: opened[group] for group in state.GROUPS})
    odd = state.write_blob(state.SEAT_KIND, fields, groups)
    with pytest.raises(MalformedState):
        SeatState.from_bytes(odd, layout)
    with pytest.raises(ValueError, match=r"rollouts|may be"):
        state.read_seat(odd, manifest)
