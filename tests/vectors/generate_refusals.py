"""Writes the vectors of what is refused: `python tests/vectors/generate_refusals.py`.

Rule of this file: every case is a valid document with one thing changed. Cases are those of
`refused_manifests.py` and `bounds.py` in tests/unit/protocol; `README.md` beside it says what each
file holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, fields, replace
from decimal import Decimal
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel
from tests.support.manifests import make_manifest
from tests.unit.protocol.bounds import DECIMALS, INTEGERS, ROOMY, SMALLEST, TERMS
from tests.unit.protocol.refused_manifests import AT_THE_BOUND, BROKEN, NO_MANIFEST, broken, put

from atoll.errors import ManifestError
from atoll.protocol.manifest import DataSpec, InitSpec, Manifest
from atoll.protocol.method_spec import CodecSpec, InnerSpec, OuterSpec, RobustSpec, TensorExponents
from atoll.protocol.model_spec import ModelSpec, RopeScalingSpec
from atoll.protocol.terms import check_terms
from atoll.protocol.types import Digest, Terms

HERE = Path(__file__).parent
Json: TypeAlias = dict[str, Any]
NOW = 1_800_000_000
LONGEST_GAME = 10_000
MIN_MOVE, MIN_PUNISHABLE = 3, 40
PLACES: Mapping[type[BaseModel], tuple[str, ...]] = {
    ModelSpec: ("model",),
    RopeScalingSpec: ("model", "rope_scaling"),
    InitSpec: ("init",),
    DataSpec: ("data",),
    InnerSpec: ("inner",),
    OuterSpec: ("outer",),
    CodecSpec: ("codec",),
    TensorExponents: ("codec", "exponents"),
    RobustSpec: ("robust",),
    Manifest: (),
}
CBOR_INTEGERS = range(-(1 << 64), 1 << 64)


def alike(first: bytes, second: bytes) -> int:
    """How many bytes both begin with."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def spliced(base: bytes, changed: bytes) -> Json:
    """`changed` by what of the base it replaces, from where on."""
    begin = alike(base, changed)
    end = alike(base[begin:][::-1], changed[begin:][::-1])
    inserted = changed[begin : len(changed) - end]
    return {"at": begin, "removed": len(base) - begin - end, "inserted": f"0x{inserted.hex()}"}


def beyond() -> Iterator[tuple[str, bytes]]:
    """A manifest for each bound of a number, one beyond it."""
    for spec, name, low, high in INTEGERS:
        for side, value in (("below", low - 1), ("above", high + 1)):
            if value in CBOR_INTEGERS:
                place = (*PLACES[spec], name)
                said = f"{'.'.join(place)} {side} its bound"
                yield said, broken(put(*place, value=value))
    for spec, name, least, most in DECIMALS:
        for side, number in (("below", Decimal(least)), ("above", Decimal(most))):
            moved = number - SMALLEST if side == "below" else number + SMALLEST
            if moved >= 0:
                text = f"{moved:f}".rstrip("0").rstrip(".") if moved else "0"
                place = (*PLACES[spec], name)
                said = f"{'.'.join(place)} {side} its bound"
                yield said, broken(put(*place, value=text))


def refused_manifests() -> Json:
    base = make_manifest().to_bytes()
    cases = {name: broken(change) for name, change in BROKEN.items()}
    cases |= dict(beyond()) | NO_MANIFEST
    refused = []
    for reason, data in cases.items():
        try:
            Manifest.from_bytes(data)
        except ManifestError:
            refused.append({"reason": reason, **spliced(base, data)})
        else:
            raise ValueError(f"not refused: {reason}")
    taken = [{"why": name, **spliced(base, broken(c))} for name, c in AT_THE_BOUND.items()]
    for case in AT_THE_BOUND.values():
        Manifest.from_bytes(broken(case))
    return {"base": f"0x{base.hex()}", "refused": refused, "taken": taken}


# --- terms.json ---

BASE = replace(ROOMY, expiry=NOW + 1_000_000, program=Digest(b"\7" * 32))
NAMES = [field.name for field in fields(Terms)]


def held_by_both() -> Iterator[tuple[str, int, bool]]:
    """Each term at its bounds and one beyond: the law and the contract say the same."""
    for name, low, high in TERMS:
        if name == "expiry":
            continue
        for value in (low - 1, low, high, high + 1):
            if value < 0 or (name, value) == ("game_seconds", low):  # too few moves (below)
                continue
            try:
                check_terms(replace(BASE, **{name: value}))
            except ManifestError:
                yield name, value, False
            else:
                yield name, value, True
    for value in (5, 372, 1488):
        yield "segment_steps", value, value == 372


def held_by_the_contract() -> Iterator[tuple[str, int, bool]]:
    """What follows from the clock and the deployment, which the law alone does not know."""
    year = 365 * 86_400
    for value in (NOW, NOW + 1, NOW + 5 * year, NOW + 5 * year + 1):
        yield "expiry", value, NOW < value <= NOW + 5 * year
    most = (LONGEST_GAME - 2 * BASE.game_seconds) // 40
    for value in (most, most + 1):
        yield "move_seconds", value, value == most
    # Of a network whose transactions take three seconds, and whose chain may stand still for 40.
    for value in (MIN_MOVE - 1, MIN_MOVE):
        yield "move_seconds", value, value == MIN_MOVE
    for value in (MIN_PUNISHABLE - 1, MIN_PUNISHABLE):
        yield "game_seconds", value, value == MIN_PUNISHABLE
    yield "program", 0, False
    yield "program", 1, True


def columns(cases: Iterator[tuple[str, int, bool]]) -> Json:
    """Values taken in place of the base's, and those refused; `index` counts as `Types.sol`."""
    found: Json = {name: {"index": [], "value": []} for name in ("refused", "taken")}
    for name, value, is_valid in cases:
        place = found["taken" if is_valid else "refused"]
        place["index"].append(NAMES.index(name))
        place["value"].append(str(value))
    return found


def terms() -> Json:
    words = [int.from_bytes(v, "big") if isinstance(v, bytes) else v for v in astuple(BASE)]
    encoded = b"".join(word.to_bytes(32, "big") for word in words)
    return {
        "base": f"0x{encoded.hex()}",
        "deployment": {
            "longestGame": LONGEST_GAME, "minBond": 80, "minMove": MIN_MOVE,
            "minPunishable": MIN_PUNISHABLE, "minWindow": 1, "now": NOW,
        },
        "heldByBoth": columns(held_by_both()),
        "heldByTheContract": columns(held_by_the_contract()),
    }  # fmt: skip


FILES: Mapping[str, Callable[[], Json]] = {
    "refused_manifests.json": refused_manifests,
    "terms.json": terms,
}


def render(build: Callable[[], Json]) -> str:
    """The file's text: keys in alphabetical order."""
    return json.dumps(build(), indent=1, sort_keys=True) + "\n"


def main() -> None:
    for name, build in FILES.items():
        (HERE / name).write_text(render(build))


if __name__ == "__main__":
    main()
