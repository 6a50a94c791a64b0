"""Cases of `merge_inputs.json`: Gram matrices at the limits of each check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tests.vectors.plain import Json

from atoll.protocol.merge_inputs import MergeRecord, MergeTerms, merge_inputs
from atoll.protocol.method_spec import RobustSpec
from atoll.protocol.types import (
    Bitmap,
    SeatIndex,
    to_bitmap,
)

Gram: TypeAlias = list[list[int]]
SEGMENTS = 8


# --- merge_inputs.json ---


def alike(n: int, square: int = 200, product: int = 100) -> Gram:
    """Updates of one length that have the same product with each other."""
    return [[square if i == j else product for j in range(n)] for i in range(n)]


def changed(gram: Gram, *changes: tuple[int, int, int]) -> Gram:
    """The matrix with (i, j, value) written at [i][j] and [j][i]."""
    result = [list(row) for row in gram]
    for i, j, value in changes:
        result[i][j] = result[j][i] = value
    return result


def against_all(gram: Gram, seat: int, product: int) -> Gram:
    """One update whose product with every other is `product`."""
    return changed(gram, *((seat, j, product) for j in range(len(gram)) if j != seat))


def silent(gram: Gram, *seats: int) -> Gram:
    """These updates are all zero."""
    for seat in seats:
        gram = changed(against_all(gram, seat, 0), (seat, seat, 0))
    return gram


def products(*points: Sequence[int]) -> Gram:
    """The Gram matrix of points written out."""
    return [[sum(a * b for a, b in zip(x, y, strict=True)) for y in points] for x in points]


def axes(*lengths: int) -> Gram:
    """Updates at right angles."""
    return [[x * x if i == j else 0 for j in range(len(lengths))] for i, x in enumerate(lengths)]


def rows_of(gram: Gram | None) -> Json:
    return None if gram is None else [[str(value) for value in row] for row in gram]


def case(name: str, gram: Gram | None, **given: Json) -> Json:
    """One case; what is not given is the plainest there is."""
    n = given.get("seats", 0 if gram is None else len(gram))
    decoded, everyone = given.get("decoded", list(range(n))), (1 << n) - 1
    segments: list[int | None] = given.get("segments", [SEGMENTS] * n)
    done = {SeatIndex(s): count for s, count in enumerate(segments) if count is not None}
    moments = given.get("moments")
    record = MergeRecord(
        revealed=to_bitmap(done),
        committee=given.get("committee", 3),
        votes=[Bitmap(vote) for vote in given.get("votes", [everyone] * 3)],
        segments=done,
        slashed=Bitmap(given.get("slashed", 0)),
        accused=Bitmap(given.get("accused", 0)),
    )
    rule, f, kappa = (
        given.get(key, plain)
        for key, plain in (("rule", "nnm_trimmed_mean"), ("f", 2), ("kappa", "1.5"))
    )
    terms = MergeTerms(SEGMENTS, RobustSpec(rule=rule, f=f, kappa=kappa))
    grams = [each for each in (gram, moments) if each is not None]
    found = merge_inputs(record, [SeatIndex(s) for s in decoded], grams, terms)
    return {
        "decoded": decoded,
        "record": {
            "accused": hex(record.accused),
            "committee": record.committee,
            "slashed": hex(record.slashed),
            "segments": segments,
            "votes": [hex(vote) for vote in record.votes],
        },
        "gram": rows_of(gram),
        "inputs": {
            "mergeable": list(found.mergeable),
            "fPrime": found.f_prime,
            "excluded": list(found.excluded),
            "merged": list(found.merged),
            "named": [{"check": x.check, "seat": x.seat} for x in found.named],
            "momentumExcluded": list(found.momentum_excluded),
        },
        "moments": rows_of(moments),
        "name": name,
        "terms": {"f": f, "kappa": kappa, "rule": rule, "segments": SEGMENTS},
    }


def threshold_cases() -> list[Json]:
    """Each check just at and just beyond its limit."""
    near, far = products([0], [3], [5]), products([0], [10], [20], [33])
    copies, near_all = alike(6, 10_000, 5_000), alike(6, 1_000_000, 995_000)
    quiet = products(*([[1, 1]] * 6), [9, 9])
    return [
        case("distant: at the limit, 9 = 1.5² · 4", near, f=1),
        case("distant: κ² exact, not rounded", near, f=1, kappa="1.499999999999999999"),
        case("distant: lower median of four scores", far, kappa="1", f=3),
        case("distant: a median of 0", products([0, 0], [0, 0], [9, 0], [9, 0], [9, 0]), f=1),
        case("distant: in the moments alone", alike(7), moments=quiet, kappa="9"),
        case("loud: at the limit, 30² = 9 · 10²", axes(10, 10, 10, 10, 30), kappa="9"),
        case("loud: beyond it", axes(10, 10, 10, 10, 31), kappa="9"),
        case("loud: first of the update, then of the moments", axes(10, 10, 10, 10, 10, 10, 40),
             moments=axes(10, 50, 10, 10, 10, 10, 60), kappa="9"),
        case("silent: not of the moments", alike(7), moments=silent(alike(7), 3), kappa="9"),
        case("copy: at 1/64 of the median, sin² of 3/4, is none", changed(copies, (1, 4, 9_941))),
        case("copy: nearer both are", changed(copies, (1, 4, 9_942))),
        case("copy: nobody where all are alike", near_all),
        case("copy: nearer than the others, which are alike", changed(near_all, (1, 4, 999_950))),
        case("copy: zeros count in no median",
             silent(changed(copies, (1, 4, 9_950)), 0, 5), kappa="9"),
        case("copy: nobody where the median is 0", alike(6, 10_000, 10_000)),
        case("copy: the opposite is none", changed(copies, (1, 4, -9_999)), kappa="9"),
        case("copy: of three alike the middle one has most twins",
             changed(alike(7, 10_000, 5_000), (1, 4, 9_950), (4, 6, 9_950))),
        case("misaligned: at 3/4", against_all(alike(8), 5, 75)),
        case("misaligned: below 3/4", against_all(alike(8), 5, 74)),
        case("misaligned: per segment, at 3/4", against_all(alike(8), 5, 57),
             segments=[8] * 5 + [6] + [8] * 2),
        case("misaligned: per segment, below it", against_all(alike(8), 5, 56),
             segments=[8] * 5 + [6] + [8] * 2),
        case("misaligned: nobody where the median is 0", axes(10, 10, 10, 10)),
        case("misaligned: nobody where it is negative", products([1, 0], [-1, 1], [-1, -1])),
        case("misaligned: the upper median of an even count of others",
             changed(alike(5), (2, 0, 70), (2, 1, 70))),
        case("misaligned: below it", changed(alike(5), (2, 0, 70), (2, 1, 70), (2, 3, 70))),
    ]  # fmt: skip


def order_cases() -> list[Json]:
    """Ties, the cap of f a check, the order of checks, and what the rule can spare."""
    return [
        *(case(f"{n} alike", alike(n), f=1) for n in range(6)),
        *(case(f"{n}, one silent, f = 1", silent(alike(n), n - 1), f=1) for n in range(2, 6)),
        *(case(f"{n}, two silent, f = 2", silent(alike(n), 1, 3)) for n in range(4, 9)),
        case("three silent: f of a check, the lowest seats", silent(alike(9), 2, 5, 7)),
        case("distant goes before silent", products(*([[9, 1]] * 4), [-90, 0], [0, 0]), f=1),
        case("ties of distance by seat", products([0], [0], [0], [0], [0], [50], [-50]), f=1),
        case("krum: 6", silent(alike(6), 1, 3), rule="krum"),
        case("krum: 7", silent(alike(7), 1, 3), rule="krum"),
        case("krum: 8", silent(alike(8), 1, 3), rule="krum"),
        case("multi_krum: 9", silent(alike(9), 1, 3), rule="nnm_multi_krum"),
        case("f = 0: nobody is named", silent(alike(7), 1), f=0),
        case("f = 0: one is merged", alike(1), f=0, rule="krum"),
        case("accused go first", silent(alike(9), 1, 2), accused=0b1000_0000),
        case("accused by seat, within f", alike(9), accused=0b1110_0000),
        case("accused and f = 0: stays", alike(4), accused=0b10, f=0, rule="mean"),
        case("numbers beyond 2⁵³", changed(alike(5, 2**61 + 3, 2**60 + 1), (1, 2, 2**61 + 1)), f=1),
    ]


def moment_cases() -> list[Json]:
    """Whose first moments are excluded, of those whose update is merged."""
    two = against_all(against_all(alike(9), 4, 70), 6, 60)
    return [
        case("momentum excluded: at 7/8, 84 of 96, nobody", alike(7, 200, 96),
             moments=against_all(alike(7, 200, 96), 5, 84)),
        case("momentum excluded: below it", alike(7, 200, 96),
             moments=against_all(alike(7, 200, 96), 5, 83)),
        case("momentum excluded: the least first, within f", alike(9), moments=two, f=1),
        case("momentum excluded: two of them", alike(9), moments=two),
        case("momentum excluded: no more than the rule can spare", alike(6), moments=against_all(
             against_all(alike(6), 4, 70), 2, 60)),
        case("momentum excluded: nobody where there is no room", alike(5),
             moments=against_all(alike(5), 2, 0)),
        case("momentum excluded: who is excluded takes the room", silent(alike(6), 1),
             moments=against_all(alike(6), 2, 60)),
        case("momentum excluded: who is excluded shifts no median", silent(alike(8), 1, 3),
             moments=changed(alike(8), (5, 0, 80), (5, 2, 80), (5, 1, 0), (5, 3, 0))),
        case("momentum excluded: not per segment", alike(8), segments=[8] * 5 + [6] + [8] * 2,
             moments=against_all(alike(8), 5, 80)),
        case("momentum excluded: nobody where the median is 0", alike(5),
             moments=axes(*[10] * 5), f=1),
        case("momentum excluded: ties by seat", alike(7),
             moments=silent(alike(7), 2, 4), f=1, kappa="9"),
    ]  # fmt: skip


def entry_cases() -> list[Json]:
    """What the chain says, and which updates are there."""
    gram = silent(alike(7), 1, 3)
    return [
        case("slashed: neither scored nor merged", gram, slashed=0b10),
        case("five of eight segments: paid, not merged", gram, segments=[8, 5, *[8] * 5]),
        case("six of eight segments: merged", alike(7), segments=[8, 6, *[8] * 5]),
        case("not revealed", gram, segments=[8, None, *[8] * 5]),
        case("an update that does not decode", alike(6), seats=7, decoded=[0, 1, 2, 4, 5, 6]),
        case("two of four have it", alike(7), committee=4, votes=[0x7F, 0x7F, 0x7D, 0x7D]),
        case("two of three have it", alike(7), committee=3, votes=[0x7F, 0x7F, 0x7D]),
        case("the silent have nothing", alike(7), committee=4, votes=[0x7F, 0x7F]),
        case("a vote about who did not reveal", alike(6), votes=[0x7F, 0x7F, 0x7F]),
        case("fewer than the minimum", silent(alike(4), 2)),
        case("fp32: no Gram matrix", None, seats=5, rule="mean", f=0),
        case("nobody revealed", []),
    ]


def merge_input_cases() -> Json:
    return {"cases": [*threshold_cases(), *order_cases(), *moment_cases(), *entry_cases()]}
