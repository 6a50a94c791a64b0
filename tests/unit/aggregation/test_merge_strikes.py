"""Where a merge is wrong: found at the coordinate that was changed, and nowhere in a true one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from tests.unit.aggregation.test_stated_merge import EVERYONE, ROUNDED, STATED, Round, round_of
from tests.vectors.generate_merge import DATA_SEED

from atoll.aggregation.merge_strikes import (
    FACTORED,
    StruckMerge,
    find_coordinate,
    merged_shown,
    place_of,
    shown_of,
)
from atoll.numerics.pieces import piece_root, root_of_update
from atoll.numerics.trace.build.whole import merge_shape_of
from atoll.protocol.hashing import keccak256
from atoll.protocol.merge_shape import Numbers
from atoll.protocol.merkle import verify_proof
from atoll.protocol.strikes import (
    CertifiedMerge,
    StrikePlace,
    missing_seat,
    owes_statement,
    sound_statement,
)
from atoll.protocol.types import ZERO_DIGEST, Bitmap, SeatIndex, Verdict, bits


def struck(round: Round, merged: bytes | None = None, **updates: bytes) -> StruckMerge:
    given = {seat: round.updates[seat] for seat in bits(round.statement.merged)}
    given |= {int(seat[1:]): data for seat, data in updates.items()}
    update = round.update if merged is None else merged
    return StruckMerge(round.layout, round.statement, update, given, round.manifest, DATA_SEED)


def about(round: Round) -> CertifiedMerge:
    statement = round.statement
    merged = statement.merged.bit_count()
    verdict = Verdict(statement.excluded, merged, round.after.digest(), b"", bytes(8))
    f = round.manifest.robust.f
    return CertifiedMerge(round.model.round, f, EVERYONE, verdict, round.layout.shape, EVERYONE)


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize("rule", STATED)
def test_true_merges_are_not_struck(kind: str, rule: str) -> None:
    round = round_of(kind, rule)
    assert find_coordinate(struck(round)) is None
    assert sound_statement(round.statement.to_bytes(), about(round)) == round.statement


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize("rule", STATED)
def test_any_changed_number_is_found(kind: str, rule: str) -> None:
    round, random = round_of(kind, rule), Random(f"{kind} {rule}")
    merge = struck(round)
    for section in (0, 1):
        for _ in range(4):
            index = random.randrange(merge.length(section))
            at = round.layout.sections[section].start + index
            wrong = bytearray(round.update)
            wrong[at] = (wrong[at] + random.randrange(1, 256)) % 256
            assert find_coordinate(struck(round, bytes(wrong))) == StrikePlace(section, index)


def test_moments_that_no_seats_give_are_found() -> None:
    round = round_of("grid8", "median")
    at = round.layout.sections[2].start
    for word in (0, 0x7F800000, 0x5F800001):
        wrong = round.update[:at] + word.to_bytes(4, "little") + round.update[at + 4 :]
        assert find_coordinate(struck(round, wrong)) == StrikePlace(FACTORED, 0)


@pytest.mark.parametrize(("kind", "byte"), [("grid8", 0x80), ("grid4", 0xF0), ("two_bit", 0x90)])
def test_an_update_that_is_not_canonical_is_found(kind: str, byte: int) -> None:
    round = round_of(kind, "median")
    for section in (0, 1):
        at = place_of(round.layout.updates, section, 1).step
        wrong = bytearray(round.updates[2])
        wrong[at] = byte
        place = find_coordinate(struck(round, s2=bytes(wrong)))
        assert place is not None and place.section == section
        assert place_of(round.layout.updates, section, place.index).step == at
    assert find_coordinate(struck(round, s2=round.updates[2] + b"\0")) == StrikePlace(0, 0)


@pytest.mark.parametrize("kind", ROUNDED)
def test_what_is_shown_is_of_the_roots(kind: str) -> None:
    round = round_of(kind, "median")
    merge = struck(round)
    for section in merge.sections:
        place = StrikePlace(section, merge.length(section) - 1)
        for seat in bits(merge.statement.merged):
            _is_of(round.updates[seat], shown_of(merge, place, seat).pieces)
        _is_of(round.update, merged_shown(merge, place).pieces)


def _is_of(file: bytes, shown: tuple) -> None:
    for piece in shown:
        number = next(
            n for n in range(-(-len(file) // 1024)) if file[1024 * n :][:1024] == piece.data
        )
        leaf, count, root = keccak256(piece.data), -(-len(file) // 1024), piece_root(file)
        assert verify_proof(leaf, number, count, piece.path, root)


LIES: dict[str, Callable[[Round], bytes]] = {
    "another round": lambda it: replace(it.statement, round=9).to_bytes(),
    "another f": lambda it: replace(it.statement, f_prime=2).to_bytes(),
    "somebody who was not there": lambda it: replace(
        it.statement, mergeable=Bitmap(it.statement.mergeable | 1 << 99)
    ).to_bytes(),
    "one is neither": lambda it: replace(
        it.statement, merged=Bitmap(it.statement.merged & ~1)
    ).to_bytes(),
    "too few moments": lambda it: replace(
        it.statement, momentum_excluded=it.statement.merged
    ).to_bytes(),
    "another state": lambda it: replace(
        it.statement, parts=(ZERO_DIGEST, *it.statement.parts[1:])
    ).to_bytes(),
    "nothing": lambda it: b"",
    "more": lambda it: it.statement.to_bytes() + b"\0",
}


@pytest.mark.parametrize("lie", LIES)
def test_statements_that_no_merge_has(lie: str) -> None:
    round = round_of("grid8", "median")
    assert sound_statement(LIES[lie](round), about(round)) is None


def test_a_seat_that_is_in_no_list_is_missing() -> None:
    round = round_of("grid8", "median")
    assert missing_seat(round.statement, about(round)) is None
    without = replace(round.statement, mergeable=Bitmap(round.statement.mergeable & ~0b100))
    assert missing_seat(without, about(round)) == StrikePlace(seat=SeatIndex(2))
    unowed = replace(about(round), owed=Bitmap(EVERYONE & ~0b100))
    assert missing_seat(without, unowed) is None


def test_a_merge_owes_a_statement_of_one_block() -> None:
    certified = about(round_of("grid8", "median"))
    assert owes_statement(certified)
    nobody = replace(certified, verdict=replace(certified.verdict, merged=0))
    assert not owes_statement(nobody)
    many = replace(certified, shape=replace(certified.shape, tensors=1 << 20))
    assert not owes_statement(many)


def test_the_shape_is_that_of_updates() -> None:
    round = round_of("grid8", "nnm_median")
    shape, updates = merge_shape_of(round.manifest), round.layout.updates
    assert shape.sent == (Numbers(len(updates.delta.names), updates.delta.total),)
    assert shape.first.values == round.layout.updates.vectors[1].total
    assert shape.to_bytes()[:4] == bytes([0xFF, 2, 1, 0])
    assert len(shape.to_bytes()) == 36 + 10 + len(updates.delta.names)
    assert root_of_update(round.update) == round.statement.update_root
