"""What a certificate's statement contradicts by itself, and what is announced of a strike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.identities import digest
from tests.unit.protocol.test_merge_statement import STATEMENT

from atoll.protocol.hashing import hash_fields, sha256
from atoll.protocol.merge_statement import (
    MAX_STATEMENT,
    MergeStatement,
    SectionStatement,
    StatementShape,
)
from atoll.protocol.strikes import (
    CertifiedMerge,
    StrikePlace,
    Strikes,
    had_to_merge,
    is_contradiction,
    missing_seat,
    owes_statement,
    sound_statement,
)
from atoll.protocol.types import Address, Bitmap, JobId, RoundIndex, SeatIndex, Verdict

SHAPE = StatementShape(tensors=1, moments=0)
MERGEABLE = 0b11110


def section(seats: int, merged: int, tensors: int = 1) -> SectionStatement:
    gram = [[4 if i == j else 1 for j in range(seats)] for i in range(seats)]
    votes = ((0,) * tensors,) * merged
    return SectionStatement(gram, (Bitmap(1),) * merged, votes, (0,) * tensors)


SOUND = replace(
    STATEMENT,
    round=6,
    f_prime=1,
    mergeable=Bitmap(MERGEABLE),
    excluded=Bitmap(0b00010),
    merged=Bitmap(0b11100),
    momentum_excluded=Bitmap(0),
    delta=section(4, 3),
    first=None,
)
STATE = sha256(b"atoll.global-state.v2" + (7).to_bytes(8, "big") + b"".join(SOUND.parts))
VERDICT = Verdict(Bitmap(0b00010), 3, STATE, b"", bytes(8))
ABOUT = CertifiedMerge(6, 1, Bitmap(0b111110), VERDICT, SHAPE)


def is_sound(statement: MergeStatement = SOUND, about: CertifiedMerge = ABOUT) -> bool:
    return sound_statement(statement.to_bytes(), about) is not None


def test_a_statement_of_its_round_is_sound() -> None:
    assert sound_statement(SOUND.to_bytes(), ABOUT) == SOUND


def test_bytes_that_are_no_statement_are_not_sound() -> None:
    assert sound_statement(SOUND.to_bytes()[:-1], ABOUT) is None
    assert sound_statement(b"", ABOUT) is None
    assert not is_sound(about=replace(ABOUT, shape=StatementShape(2, 0)))


@pytest.mark.parametrize(
    "changes",
    [
        {"round": 5},
        {"round": 7},
        {"f": 0},
        {"f": 2},
        {"available": Bitmap(0b011110 & ~0b100)},
        {"verdict": replace(VERDICT, excluded=Bitmap(0b00100))},
        {"verdict": replace(VERDICT, excluded=Bitmap(0))},
        {"verdict": replace(VERDICT, merged=2)},
        {"verdict": replace(VERDICT, merged=4)},
        {"verdict": replace(VERDICT, state=digest("another"))},
    ],
    ids=[
        "the round before",
        "the round behind",
        "bears fewer",
        "bears more",
        "a seat that is not available",
        "another is excluded",
        "nobody is excluded",
        "fewer are merged",
        "more are merged",
        "another state",
    ],
)
def test_a_statement_that_the_certificate_contradicts_is_not_sound(changes: dict[str, Any]) -> None:
    assert not is_sound(about=replace(ABOUT, **changes))


def test_a_statement_of_another_round_or_of_another_f_is_not_sound() -> None:
    assert not is_sound(replace(SOUND, round=5))
    assert not is_sound(replace(SOUND, f_prime=0))


def test_the_state_is_the_next_rounds_over_all_five_parts() -> None:
    for index in range(5):
        parts = list(SOUND.parts)
        parts[index] = digest("another")
        assert not is_sound(replace(SOUND, parts=tuple(parts)))


def test_who_is_mergeable_and_not_excluded_is_merged() -> None:
    """Seat 4 is left out of the merged without a reason."""
    left_out = replace(SOUND, merged=Bitmap(0b01100), delta=section(4, 2))
    about = replace(ABOUT, verdict=replace(VERDICT, merged=2), f=0)
    assert not is_sound(replace(left_out, f_prime=0), about)
    # Were it excluded it would be nested, and still not be borne by f = 0.
    excluded = replace(left_out, excluded=Bitmap(0b10010))
    certified = replace(ABOUT, verdict=replace(VERDICT, merged=2, excluded=Bitmap(0b10010)))
    assert not is_sound(excluded, certified)


def test_an_excluded_seat_is_not_merged() -> None:
    both = replace(SOUND, merged=Bitmap(MERGEABLE), delta=section(4, 4))
    assert not is_sound(both, replace(ABOUT, verdict=replace(VERDICT, merged=4)))


def certified(statement: MergeStatement) -> CertifiedMerge:
    verdict = replace(VERDICT, excluded=statement.excluded, merged=statement.merged.bit_count())
    return replace(ABOUT, f=statement.f_prime, available=statement.mergeable, verdict=verdict)


def of_seats(seats: int, excluded: int, moments: int, f: int) -> MergeStatement:
    """The first seats are excluded, and the last ones' moments are."""
    mergeable, without = (1 << seats) - 1, (1 << excluded) - 1
    return replace(
        SOUND,
        f_prime=f,
        mergeable=Bitmap(mergeable),
        excluded=Bitmap(without),
        merged=Bitmap(mergeable & ~without),
        momentum_excluded=Bitmap((1 << seats) - (1 << seats - moments)),
        delta=section(seats, seats - excluded),
    )


@pytest.mark.parametrize(
    ("seats", "excluded", "moments", "f", "is_it"),
    [
        (7, 2, 0, 2, True),  # the five that are heard are 2f + 1
        (6, 2, 0, 2, False),
        (9, 3, 0, 2, False),
        (7, 0, 2, 2, True),
        (6, 0, 2, 2, False),
        (9, 0, 3, 2, False),
        (8, 2, 2, 2, False),
        (9, 2, 2, 2, True),
        (1, 0, 0, 0, True),
        (2, 1, 0, 0, False),
        (2, 0, 1, 0, False),
    ],
)
def test_at_most_f_are_left_out_and_the_heard_are_as_many_as_the_rule_needs(
    seats: int, excluded: int, moments: int, f: int, is_it: bool
) -> None:
    statement = of_seats(seats, excluded, moments, f)
    assert is_sound(statement, certified(statement)) is is_it


# --- seats that are missing ---


def test_the_first_seat_that_is_owed_and_not_mergeable_is_missing() -> None:
    assert missing_seat(SOUND, replace(ABOUT, owed=Bitmap(MERGEABLE))) is None
    assert missing_seat(SOUND, ABOUT) is None
    for owed, seat in ((0b111111, 0), (0b111110, 5), (0b1100000, 5), (0b1000000, 6)):
        place = missing_seat(SOUND, replace(ABOUT, owed=Bitmap(owed)))
        assert place == StrikePlace(None, 0, SeatIndex(seat))


# --- rounds that merged nothing ---


def test_a_round_that_merged_nothing_has_no_statement_and_excludes_nobody() -> None:
    nothing = Verdict(Bitmap(0), 0, STATE, b"", bytes(8))
    assert not is_contradiction(replace(ABOUT, verdict=nothing))
    for wrong in ({"excluded": Bitmap(1)}, {"statement": digest("statement")}):
        assert is_contradiction(replace(ABOUT, verdict=replace(nothing, **wrong)))


def test_as_many_as_the_rule_needs_had_to_be_merged() -> None:
    for f, owed, had_to in (
        (0, 0, False),
        (0, 1, True),
        (1, 2, False),
        (1, 3, True),
        (2, 4, False),
    ):
        about = replace(ABOUT, f=f, owed=Bitmap((1 << owed) - 1))
        assert had_to_merge(about) is had_to


# --- whether there has to be one ---


def stated_bytes(seats: int, shape: StatementShape) -> int:
    """The length of a statement of so many seats, all of whom are merged and heard."""
    everyone = Bitmap((1 << seats) - 1)
    statement = replace(
        SOUND,
        mergeable=everyone,
        merged=everyone,
        excluded=Bitmap(0),
        delta=section(seats, seats, shape.tensors),
        first=section(seats, seats, shape.moments) if shape.moments else None,
    )
    return len(statement.to_bytes())


def owes(seats: int, shape: StatementShape, merged: int = 1) -> bool:
    about = replace(ABOUT, shape=shape, available=Bitmap((1 << seats) - 1))
    return owes_statement(replace(about, verdict=replace(VERDICT, merged=merged)))


def test_a_merge_of_nobody_owes_no_statement() -> None:
    shape = StatementShape(1, 1)
    assert [owes(5, shape, merged) for merged in (0, 1, 2)] == [False, True, True]


@pytest.mark.parametrize(("seats", "has_moments"), [(4, False), (4, True), (11, False), (11, True)])
def test_a_merge_owes_a_statement_as_far_as_it_fits_in_a_block(
    seats: int, has_moments: bool
) -> None:
    """The longest that it may have, of all available seats, is measured."""

    def shape(tensors: int, moments: int = 1) -> StatementShape:
        return StatementShape(tensors, moments if has_moments else 0)

    fixed, a_tensor = stated_bytes(seats, shape(0)), seats + 2
    fitting = (MAX_STATEMENT - fixed) // a_tensor
    assert fixed + a_tensor == stated_bytes(seats, shape(1))
    assert owes(seats, shape(fitting))
    assert not owes(seats, shape(fitting + 1))
    assert owes(seats, shape(fitting - 1))
    if has_moments:
        assert owes(seats, shape(fitting - 5, 6))
        assert not owes(seats, shape(fitting - 5, 7))


def test_a_statement_of_exactly_a_block_is_owed() -> None:
    fixed, a_tensor = stated_bytes(4, StatementShape(0, 1)), 6
    tensors = (MAX_STATEMENT - fixed) // a_tensor
    assert fixed + tensors * a_tensor == MAX_STATEMENT
    assert owes(4, StatementShape(tensors, 1))
    assert not owes(4, StatementShape(tensors + 1, 1))


def test_a_statement_of_a_block_and_a_byte_is_not_owed() -> None:
    fixed, a_tensor = stated_bytes(35, StatementShape(0, 0)), 37
    tensors = (MAX_STATEMENT + 1 - fixed) // a_tensor
    assert fixed + tensors * a_tensor == MAX_STATEMENT + 1
    assert not owes(35, StatementShape(tensors, 0))
    assert owes(35, StatementShape(tensors - 1, 0))


# --- what is announced ---


def test_places_have_numbers_of_their_own() -> None:
    assert StrikePlace().number == 0
    assert StrikePlace(is_nothing=True).number == 1
    assert [StrikePlace(seat=SeatIndex(seat)).number for seat in (0, 1, 255)] == [2, 3, 257]
    assert StrikePlace(0, 0).number == 1 << 64
    assert StrikePlace(0, 9).number == 0x10000000000000009
    assert StrikePlace(1, 2).number == 0x20000000000000002
    assert StrikePlace(2, (1 << 64) - 1).number == 0x3FFFFFFFFFFFFFFFF


def test_a_commitment_is_of_everything_that_is_shown() -> None:
    contract, by = Address("0x" + "11" * 20), Address("0x" + "22" * 20)
    strikes = Strikes(5, contract)
    job, round, place, salt = JobId(3), RoundIndex(4), StrikePlace(1, 2), digest("salt")
    types = ("string", "uint256", "address", "address", "uint256", "uint32", "uint256", "bytes32")
    values = ("atoll.strike.v1", 5, contract, by, 3, 4, 0x20000000000000002, salt)
    commitment = strikes.commitment(by, job, round, place, salt)
    assert commitment == hash_fields(types, values)
    others = {
        replace(strikes, chain_id=6).commitment(by, job, round, place, salt),
        replace(strikes, contract=by).commitment(by, job, round, place, salt),
        strikes.commitment(contract, job, round, place, salt),
        strikes.commitment(by, JobId(4), round, place, salt),
        strikes.commitment(by, job, RoundIndex(3), place, salt),
        strikes.commitment(by, job, round, StrikePlace(1, 3), salt),
        strikes.commitment(by, job, round, place, digest("another")),
    }
    assert len(others - {commitment}) == 7
