"""Formulas of the table of operations as expressions, and how the law writes them.

Rule of this file: `Expressions` has what `formulas.Arithmetic` asks for, and no more.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import product
from math import frexp
from typing import Final

from atoll.numerics.trace.rows import Each, Place

ONES: Final = {"f32": "SoftFloat.ONE32", "f64": "SoftFloat.ONE64"}
FUNCTIONS: Final = frozenset({"32", "64", "√", "rsqrt", "exp", "σ", "flush"})
INDICES: Final = {Place.ROW: "[r]", Place.COLUMN: "[c]"}
"""Of an operand that is read at two places."""


@dataclass(frozen=True, eq=False)
class Term:
    """A number of a formula.

    Attributes:
        kind: its type; `bool` of a condition.
        name: of the primitive, or how an operand is written in the law.
        code: of an operand or a constant, how it is written in Solidity.
    """

    kind: str
    name: str
    parts: tuple[Term, ...] = ()
    code: str = ""

    def __add__(self, other: Term | float) -> Term:
        return self._with("+", other)

    def __radd__(self, other: float) -> Term:
        return constant(other, self.kind)._with("+", self)

    def __sub__(self, other: Term | float) -> Term:
        return self._with("−", other)

    def __rsub__(self, other: float) -> Term:
        return constant(other, self.kind)._with("−", self)

    def __mul__(self, other: Term | float) -> Term:
        return self._with("·", other)

    def __getitem__(self, place: int) -> Term:
        code = f"uint64({self.code})" if place == 0 else f"{self.code} >> 64"
        return Term(self.kind, f"{self.name}[{place}]", code=code)

    def _with(self, name: str, other: Term | float) -> Term:
        assert self.kind in ONES
        other = other if isinstance(other, Term) else constant(other, self.kind)
        assert other.kind == self.kind, (self, other)
        return Term(self.kind, name, (self, other))


def constant(value: float, kind: str) -> Term:
    """A number of the format."""
    letter, places = (">f", 8) if kind == "f32" else (">d", 16)
    word = int.from_bytes(struct.pack(letter, value), "big")
    code = "0" if word == 0 else ONES[kind] if value == 1.0 else f"0x{word:0{places}x}"
    mantissa, exponent = frexp(value)
    name = f"2^−{1 - exponent}" if mantissa == 0.5 and exponent < -8 else f"{value:g}"
    return Term(kind, name.replace("-", "−"), code=code)


class Expressions:
    """`formulas.Arithmetic` on terms."""

    def f32(self, x: Term) -> Term:
        return Term("f32", "32", (x,))

    def f64(self, x: Term) -> Term:
        return Term("f64", "64", (x,))

    def div(self, a: Term | float, b: Term) -> Term:
        a = a if isinstance(a, Term) else constant(a, b.kind)
        assert a.kind == b.kind
        return Term(b.kind, "/", (a, b))

    def sqrt(self, x: Term) -> Term:
        return Term(x.kind, "√", (x,))

    def rsqrt(self, x: Term) -> Term:
        return self._of_f32("rsqrt", x)

    def exp(self, x: Term) -> Term:
        return self._of_f32("exp", x)

    def sigmoid(self, x: Term) -> Term:
        return self._of_f32("σ", x)

    def flush(self, x: Term) -> Term:
        return self._of_f32("flush", x)

    def _of_f32(self, name: str, x: Term) -> Term:
        assert x.kind == "f32"
        return Term("f32", name, (x,))

    def less(self, a: Term | float, b: Term | float) -> Term:
        kind = a.kind if isinstance(a, Term) else b.kind if isinstance(b, Term) else ""
        terms = (x if isinstance(x, Term) else constant(x, kind) for x in (a, b))
        return Term("bool", "<", tuple(terms))

    def is_zero(self, n: Term) -> Term:
        return Term("bool", "= 0", (n,))

    def is_negative(self, n: Term) -> Term:
        return Term("bool", "< 0", (n,))

    def is_column(self, n: Term) -> Term:
        return Term("bool", "= c", (n,))

    def where(self, condition: Term, a: Term | float, b: Term | float) -> Term:
        kind = a.kind if isinstance(a, Term) else b.kind if isinstance(b, Term) else ""
        terms = (x if isinstance(x, Term) else constant(x, kind) for x in (a, b))
        return Term(kind, "where", (condition, *terms))

    def off_diagonal(self, x: Term) -> Term:
        return self._of_f32("off", x)


def formula_of(row: Each, words: dict[int, bool]) -> Term:
    """What an element is, with these truths of the words that decide which operands there are."""
    assert row.formula is not None
    wide = f"attributes.word({row.names.index('wide')})" if "wide" in row.names else ""
    constants = [
        Term(kind, name, code=f"attributes.word({place})") for place, name, kind in row.constants
    ]
    given, operands = list(row.given(words)), list[Term | None]()
    for operand in row.operands:
        if operand not in given:
            operands.append(None)
            continue
        code = f"x[{given.index(operand)}]"
        if operand.kind == "wide":
            code = f"Operands.signedOf({code}, {wide})"
        elif operand.kind in {"i32", "i64"}:
            code = f"Operands.int{operand.kind[1:]}Of({code})"
        is_twice = [o.name for o in given].count(operand.name) > 1
        index = INDICES[operand.place] if is_twice else ""
        operands.append(Term(operand.kind, operand.name + index, code=code))
    term = row.formula(Expressions(), *constants, *operands)
    assert isinstance(term, Term)
    assert term.kind == row.result[:3]
    return term


def variants(row: Each) -> list[dict[int, bool]]:
    """Truths of the words that decide; first those with which all operands are there."""
    deciding = {o.word: o.is_there for o in row.operands if o.word is not None}
    truths = product(*((there, not there) for there in deciding.values()))
    return [dict(zip(deciding, each, strict=True)) for each in truths]


def law_of(term: Term, *, inside: bool = False) -> str:
    """The formula as SPEC-STEP.md writes them; within another, in brackets where it needs them."""
    if not term.parts:
        return f"({term.name})" if inside and "1−" in term.name else term.name
    if term.name in FUNCTIONS:
        return f"{term.name}({law_of(term.parts[0])})"
    parts = [law_of(part, inside=True) for part in term.parts]
    if term.name == "where":
        text = f"{parts[1]} where {law_of(term.parts[0])}, else {parts[2]}"
    elif term.name == "off":
        text = f"{law_of(term.parts[0])}, +0 on the diagonal"
    elif term.name == "= c":
        text = f"{parts[0]} is the column"
    elif len(parts) == 1:
        text = f"{parts[0]} {term.name}"
    else:
        text = f"{parts[0]} {term.name} {parts[1]}"
    return f"({text})" if inside else text
