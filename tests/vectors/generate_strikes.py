"""Writes the vectors of strikes: `python -m tests.vectors.generate_strikes`.

Whole merges that are true: a contract is to find none of their coordinates wrong, and every other
value of one wrong.
"""

from __future__ import annotations

from typing import Any

from tests.vectors.generate import HERE
from tests.vectors.generate_merge import DATA_SEED, hexed, manifest_of, model_of, render, updates_of

from atoll.aggregation.merge_round import merge_updates
from atoll.aggregation.stated_merge import MergedLayout, merged_pieces, statement_of
from atoll.numerics.pieces import root_of_update
from atoll.numerics.sections import joined
from atoll.numerics.trace.build.whole import merge_shape_of
from atoll.protocol.codecs import CODECS
from atoll.protocol.merge_inputs import MergeRecord
from atoll.protocol.types import SeatIndex, bits, to_bitmap
from atoll.storage.cid import Cid

Json = dict[str, Any]
ROUNDED = tuple(name for name, codec in CODECS.items() if codec.fineness is not None)
RULES = ("mean", "median", "trimmed_mean", "nnm_mean", "nnm_median", "nnm_trimmed_mean")
KINDS = [*((kind, "nnm_trimmed_mean") for kind in ROUNDED), *(("grid4", rule) for rule in RULES)]


def strike_case(kind: str, rule: str, round: int = 4, **given: Any) -> Json:
    """A merge of seven seats by a rule, of one codec, whose seat 4 told another momentum."""
    manifest = manifest_of(kind, rule, "nesterov", inner="adamw", **given)
    model = model_of(manifest, round)
    parts, exponents = b"".join(model.roots()), model.exponent_bytes()
    sections = updates_of(manifest, model, {}, 4)
    updates = {SeatIndex(seat): joined(parts) for seat, parts in sections.items()}
    everybody = to_bitmap(updates)
    record = MergeRecord(everybody, 1, [everybody], dict.fromkeys(updates, manifest.segments))
    merged = merge_updates(model, updates, record=record, data_seed=DATA_SEED, manifest=manifest)
    layout = MergedLayout.of(manifest, model.shapes, model.round, len(merged.inputs.mergeable))
    update = b"".join(merged_pieces(merged, layout))
    after = merged.moves(model, manifest)
    statement = statement_of(merged, after, root_of_update(update), Cid.of(update).to_bytes())
    return {
        "available": hex(everybody),
        "dataSeed": hexed(DATA_SEED),
        "excluded": hex(statement.excluded),
        "exponents": hexed(exponents),
        "f": statement.f_prime,
        "groups": [
            hexed(b"".join(group.to_bytes(32, "big") for group in part.groups))
            for part in (statement.delta, statement.first)
            if part is not None
        ],
        "merged": hexed(update),
        "name": f"{kind} {rule}",
        "parts": hexed(parts),
        "round": statement.round,
        "seats": [hex(statement.merged), hex(statement.heard)],
        "shape": hexed(merge_shape_of(manifest).to_bytes()),
        "state": hexed(after.digest()),
        "statement": hexed(statement.to_bytes()),
        "updates": [hexed(updates[seat]) for seat in map(SeatIndex, bits(statement.merged))],
    }


def strike_cases() -> Json:
    """Every codec whose merges are stated, and every rule; then both fragments of a model."""
    fragments = [
        strike_case("grid8", "nnm_median", round, fragments=2, whole=True) for round in (4, 5)
    ]
    return {"cases": [strike_case(*kind) for kind in KINDS], "fragments": fragments}


FILES = {"strikes.json": strike_cases}


def main() -> None:
    for name, build in FILES.items():
        (HERE / name).write_text(render(build))


if __name__ == "__main__":
    main()
