"""What a row of the table of operations says, and how it is read (`opcodes`).

Rule of this file: a row is data. `elementwise` works it out on tensors, and
`contracts/tools/operations.py` prints it for the law and for the contracts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Final, TypeAlias

Formula: TypeAlias = Callable[..., Any]
"""(`elementwise.Arithmetic`, constants, operands; None for one that is not there) → the number."""
_BYTES: Final = {
    **{"i8": 1, "u8": 1, "h": 1, "u16": 2, "i32": 4, "u32": 4, "f32": 4},
    **{"i64": 8, "u64": 8, "f64": 8},
}
_CONSTANT: Final = re.compile(r"(\S+) (f32|f64)")
_OPERAND: Final = re.compile(
    r"(?P<name>[^\s(,]+) (?P<kind>i32|i64|u64|f32|f64|wide)(?: \[(?P<shape>[^]]+)\])?"
    r"(?: (?P<when>if|unless) (?P<word>\w+))?"
)


class Place(Enum):
    """Which element of an operand the result's element e is of; the result has C columns."""

    SAME = "R, C"
    """Element e."""
    ROW = "R"
    """Element e / C, rounded down."""
    COLUMN = "C"
    """Element e mod C."""
    FIRST = "1"
    """Element 0."""
    PAIR = "2"
    """Elements 0 and 1."""
    DIAGONAL = "diagonal"
    """Element e of the diagonal of a matrix [C, C]."""


@dataclass(frozen=True, slots=True)
class Operand:
    """What an elementwise operation reads of an input; what is read at two places is two of them.

    Attributes:
        kind: its numbers' type; `wide` is i32, or i64 where the word of that name is 8.
        word: the one that says whether it is there; None where it always is.
        is_there: for which truth of that word it is.
    """

    name: str
    kind: str
    place: Place
    word: int | None
    is_there: bool


@dataclass(frozen=True)
class Row:
    """An operation.

    Attributes:
        number: its family, and its place in it.
        words: names of the template's words; what stands behind a semicolon is a tail.
        inputs: in their order.
        result: its type first; `as` is that of an input whose elements have `width` bytes.
        lines: of SPEC-STEP.md, that it is one of.
    """

    number: int
    words: str
    inputs: str
    result: str
    lines: str = ""

    def width(self, words: Sequence[int]) -> int:
        """Bytes of an element of the result."""
        kind = re.split(r"[ :]", self.result)[0]
        return words[0] if kind == "as" else _BYTES[kind]


@dataclass(frozen=True)
class Each(Row):
    """An operation whose every element is of one element of each input, by the input's shape.

    A shape is a `Place`; an input without one has the result's.

    Attributes:
        formula: what the element is; None where that is written by hand.
    """

    formula: Formula | None = None

    @cached_property
    def names(self) -> list[str]:
        """Of the words."""
        return [word.split()[0] for word in self.words.split(", ") if word]

    @cached_property
    def constants(self) -> list[tuple[int, str, str]]:
        """The words that are numbers of the formula: place, name and type."""
        words = enumerate(_CONSTANT.fullmatch(word) for word in self.words.split(", "))
        return [(place, word[1], word[2]) for place, word in words if word]

    @cached_property
    def operands(self) -> list[Operand]:
        """In the order in which they are read."""
        return [
            Operand(
                name=read["name"],
                kind=read["kind"],
                place=Place(read["shape"] or "R, C"),
                word=self.names.index(read["word"]) if read["word"] else None,
                is_there=read["when"] != "unless",
            )
            for read in _OPERAND.finditer(self.inputs)
        ]

    def given(self, words: Sequence[int] | Mapping[int, bool]) -> dict[Operand, int]:
        """The operands that are there with these words, each with the number of its input."""
        there = [o for o in self.operands if o.word is None or bool(words[o.word]) == o.is_there]
        names = list(dict.fromkeys(operand.name for operand in there))
        return {operand: names.index(operand.name) for operand in there}
