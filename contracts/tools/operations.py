#!/usr/bin/env python3
"""Writes what the law and the contracts have of the table of operations (`opcodes.py`).

That is the rows of SPEC-JUDGE.md, and of `contracts/src/judge` the operations' numbers (`Op.sol`),
what elementwise ones read and what they give (`Formulas.sol`), and the README's tables of gas. Run
it after every change of the table; `--check` fails where a committed file is another.
"""
# ruff: noqa: T201 -- a command-line tool

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from expressions import Term, formula_of, law_of, variants

from atoll.numerics.trace.opcodes import Op
from atoll.numerics.trace.rows import Each, Operand, Place

ROOT = Path(__file__).resolve().parents[2]
LAW = ROOT / "sdk" / "atoll" / "protocol" / "SPEC-JUDGE.md"
JUDGE = ROOT / "contracts" / "src" / "judge"
README = JUDGE / "README.md"
GAS = ROOT / "contracts" / "test" / "unit" / "judge" / "gas.json"
BEGIN, END = "<!-- contracts/tools/operations.py writes these {} -->", "<!-- the {} end -->"
GAS_OF: Final = (1, 2, 3, 4)
"""Families of which each operation's gas is held."""
CELLS: Final = 3
"""Operations in a row of a gas table."""
LAW_HEAD: Final = """
| operation | words | inputs | result | lines |
| --- | --- | --- | --- | --- |
"""
HEAD: Final = """\
// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

"""
OP_HEAD: Final = """\
/// @title Numbers of the operations: family, place in it. contracts/tools/operations.py writes it.
/// @notice Chapter 3 of SPEC-JUDGE.md says what each is; here stand the lines of SPEC-STEP.md.
library Op {
"""
FORMULAS_HEAD: Final = """\
import {Elementary} from "./Elementary.sol";
import {IOneStep} from "./IOneStep.sol";
import {Op} from "./Op.sol";
import {Operands} from "./Operands.sol";
import {SoftFloat} from "./SoftFloat.sol";

/// @title What elementwise operations read and give. contracts/tools/operations.py writes it.
/// @notice Above an operation stands its formula, as in chapter 3 of SPEC-JUDGE.md. Reads are
/// digits of `Operands.place`, the first input's the lowest, and 0 where an operation has rules of
/// its own; x is what was opened.
library Formulas {
    using Operands for bytes;

"""
FAMILIES: Final = {1: "integer", 2: "attention", 3: "float", 4: "optimiser", 6: "link"}
"""Those with elementwise operations, as their functions are called."""
GROUP: Final = 4
"""Operations of a function: whoever asks for the last has compared its number with the others."""
LINE, MEMBER, INDENT = 120, 4, 4
"""Characters: of a line, before a function, before its lines."""
LONGEST: Final = 96
"""Characters of a statement: the longest part of a longer one has a name."""
GIVEN: Final = {
    "op": "uint256",
    "attributes": "bytes calldata",
    "element": "uint256",
    "x": "uint256[] memory",
}
"""Parameters and their types."""
UNKNOWN: Final = "revert IOneStep.NoSuchOperation(op);"
CONVERTED: Final = {
    ("f", "32"): "narrow",
    ("f", "64"): "widen",
    ("i", "32"): "fromInt32",
    ("i", "64"): "fromIntTo64",
    ("w", "32"): "fromInt32",
}
"""By the first letter of the type that is converted, and the new one."""
CALLED: Final = {
    "+": "SoftFloat.add",
    "−": "SoftFloat.sub",
    "·": "SoftFloat.mul",
    "/": "SoftFloat.div",
    "√": "SoftFloat.sqrt",
    "<": "SoftFloat.less",
    "rsqrt": "Elementary.rsqrt",
    "exp": "Elementary.exp",
    "σ": "Elementary.sigmoid",
    "flush": "Elementary.flush",
}
DIGITS: Final = {
    (Place.SAME, 4): 1,
    (Place.ROW, 4): 2,
    (Place.COLUMN, 4): 3,
    (Place.FIRST, 4): 4,
    (Place.SAME, 8): 5,
    (Place.ROW, 8): 6,
    (Place.FIRST, 8): 7,
    (Place.PAIR, 8): 8,
    (Place.DIAGONAL, 4): 9,
}
"""`Operands`' constants, by place and bytes of a number."""
BYTES: Final = {"f32": 4, "i32": 4, "f64": 8, "i64": 8, "u64": 8}


# ---- the law -------------------------------------------------------------------------------------


def law() -> str:
    """The law's text with the rows of the table."""
    rows = "\n".join(law_row(op) for op in Op)
    return between(LAW, "rows", f"{LAW_HEAD}{rows}\n")


def between(path: Path, what: str, text: str) -> str:
    """The file's text with another between its marks."""
    begin, end = BEGIN.format(what), END.format(what)
    before, _, rest = path.read_text("utf-8").partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n{end}{after}"


def law_row(op: Op) -> str:
    """The operation's row; products and shapes are written as in SPEC-STEP.md."""
    row = op.row
    result = result_of(row) if isinstance(row, Each) and row.formula else row.result
    cells = (f"{op.value:04x} {op.name}", row.words, row.inputs, result, row.lines)
    text = "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"
    text = text.replace(" · ", "·")
    return re.sub(r"\[[^]]*\]", lambda shape: shape[0].replace(", ", ","), text)


def result_of(row: Each) -> str:
    """Type and formula; where a word decides, both cases."""
    cases = []
    for words in variants(row):
        law_ = law_of(formula_of(row, words))
        for word, is_set in words.items():
            law_ += f" {'with' if is_set else 'without'} {row.names[word]}"
        cases.append(law_)
    return f"{row.result}: {', '.join(cases)}"


# ---- gas -----------------------------------------------------------------------------------------


def gas() -> str:
    """The contracts' README with the gas of operations."""
    tables = "\n".join(gas_table(family) for family in GAS_OF)
    return between(README, "tables", f"\n{tables}")


def gas_table(family: int) -> str:
    """A family's, down its columns: of a reduction that of a whole block."""
    figures = json.loads(GAS.read_text("utf-8"))
    highest = figures["steps"] | figures["blocks"]
    cells = [f"`{op.name}` | {highest[op.name]:,}" for op in Op if op.family == family]
    height = -(-len(cells) // CELLS)
    cells += ["|"] * (height * CELLS - len(cells))
    rows = ["| " + " | ".join(cells[i::height]) + " |" for i in range(height)]
    name = f"{FAMILIES[family].capitalize()}Steps"
    head = f"| {name} | gas" + " | | gas" * (CELLS - 1) + " |\n" + "| --- " * (2 * CELLS) + "|"
    return "\n".join([head, *rows, ""])


# ---- what is read --------------------------------------------------------------------------------


def family_reads(family: int) -> Iterator[str]:
    """The function that says what a family's operations read."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for op in Op:
        if op.family == family and isinstance(op.row, Each):
            alike.setdefault(reads_of(op.row), []).append(f"op == Op.{op.name}")
    body = [line for reads, ops in alike.items() for line in either(ops, list(reads))]
    yield from function(f"{FAMILIES[family]}Reads", "internal", [*body, "return 0;"])


def reads_of(row: Each) -> tuple[str, ...]:
    """The statements that say what an operation reads."""
    (*deciding, last) = variants(row)
    lines = []
    for words in deciding:
        lines += block(f"if ({is_case(words)}) {{", [f"return {digits(row, words)};"])
    return (*lines, f"return {digits(row, last)};")


def is_case(words: dict[int, bool]) -> str:
    """Of an operation with one word that decides: which case it is."""
    ((word, is_set),) = words.items()
    return f"attributes.word({word}) {'!=' if is_set else '=='} 0"


def digits(row: Each, words: dict[int, bool]) -> str:
    """What is read, as `Operands.place` takes it."""
    given = list(row.given(words))
    narrow, wide = (_digits(given, size) for size in (4, 8))
    if narrow == wide:
        return narrow
    return f"attributes.word({row.names.index('wide')}) == 8 ? {wide} : {narrow}"


def _digits(operands: list[Operand], wide: int) -> str:
    places = [DIGITS[o.place, BYTES.get(o.kind, wide)] for o in operands]
    return "0x" + "".join(f"{digit:x}" for digit in reversed(places))


# ---- what is given -------------------------------------------------------------------------------


class Statements:
    """A formula in Solidity: a part has a name where it is used twice, or would be too long."""

    def __init__(self, term: Term, taken: int = 0) -> None:
        self._free = iter("abcdefgh"[taken:])
        self._uses: dict[Term, int] = {}
        self._count(term)
        self._named: dict[Term, str] = {}
        self.lines: list[str] = []
        self.lines.append(f"return {bare(self._text(term))};")

    def _count(self, term: Term) -> None:
        self._uses[term] = self._uses.get(term, 0) + 1
        if self._uses[term] == 1:
            for part in term.parts:
                self._count(part)

    def _text(self, term: Term) -> str:
        if term in self._named:
            return self._named[term]
        if not term.parts:
            is_twice = self._uses[term] > 1 and "x[" in term.code
            return self._name(term, term.code) if is_twice else term.code
        texts = [self._text(part) for part in term.parts]
        while len(printed(term, texts)) > LONGEST:
            at = max(range(len(texts)), key=lambda i: len(texts[i]))
            texts[at] = self._name(term.parts[at], texts[at])
        text = printed(term, texts)
        return self._name(term, text) if self._uses[term] > 1 else text

    def _name(self, term: Term, text: str) -> str:
        name = self._named[term] = next(self._free)
        kind = {"b": "bool", "i": "int256", "w": "int256"}.get(term.kind[0], "uint256")
        self.lines.append(f"{kind} {name} = {bare(text)};")
        return name


def printed(term: Term, texts: list[str]) -> str:
    """A term's expression of its parts'."""
    kind = term.parts[-1].kind
    match term.name:
        case "where":
            return "({} ? {} : {})".format(*texts)
        case "off":
            number = texts[0]
            if not term.parts[0].parts:
                number = f"(SoftFloat.isNan32({number}) ? SoftFloat.NAN32 : {number})"
            return f"(element % (attributes.word(0) + 1) == 0 ? 0 : {number})"
        case "= c":
            return f"{texts[0]} == int256(element % attributes.word(0))"
        case "= 0" | "< 0":
            return f"{texts[0]} {term.name.replace('=', '==')}"
        case "32" | "64":
            return f"SoftFloat.{CONVERTED[kind[0], term.name]}({texts[0]})"
        case _:
            return f"{CALLED[term.name]}{kind[1:]}({', '.join(texts)})"


def bare(text: str) -> str:
    """Without the brackets around all of it."""
    return text[1:-1] if text.startswith("(") else text


def family_values(family: int) -> Iterator[str]:
    """The functions that work out a family's formulas, some of them in each."""
    ops = [op for op in Op if op.family == family and isinstance(op.row, Each) and op.row.formula]
    groups = [ops[i : i + GROUP] for i in range(0, len(ops), GROUP)]
    bodies = [[line for op in group for line in value_of(op)] for group in groups]
    name = f"{FAMILIES[family]}Value"
    if len(groups) == 1:
        yield from function(name, "internal", [*bodies[0], UNKNOWN])
        return
    parts = [f"_{FAMILIES[family]}{i}" for i in range(1, len(groups) + 1)]
    calls = [
        (group[0].name, f"return {part}({', '.join(used(body))});")
        for group, part, body in zip(groups, parts, bodies, strict=True)
    ]
    yield from function(name, "internal", halves(calls))
    for part, body in zip(parts, bodies, strict=True):
        yield ""
        yield from function(part, "private", [*body, UNKNOWN])


def halves(calls: list[tuple[str, str]]) -> list[str]:
    """The one of these calls that an operation is of, each with the first that is of it."""
    if len(calls) == 1:
        return [calls[0][1]]
    middle = (len(calls) + 1) // 2
    initial_state = f"if (op < Op.{calls[middle][0]}) {{"
    return [*block(initial_state, halves(calls[:middle])), *halves(calls[middle:])]


def value_of(op: Op) -> Iterator[str]:
    """The statements that give an operation's element."""
    assert isinstance(op.row, Each)
    terms = [(words, formula_of(op.row, words)) for words in variants(op.row)]
    (*deciding, (_, last)) = terms
    lines, taken = list[str](), 0
    for words, term in deciding:
        body = Statements(term).lines
        lines += block(f"if ({is_case(words)}) {{", body)
        taken = len(body) - 1
    yield f"// {law_of(terms[0][1])}"
    yield from block(f"if (op == Op.{op.name}) {{", [*lines, *Statements(last, taken).lines])


# ---- as `forge fmt` leaves it --------------------------------------------------------------------


def function(name: str, kind: str, body: list[str]) -> Iterator[str]:
    """A function of the parameters that its lines name, which gives a number."""
    given = ", ".join(f"{GIVEN[each]} {each}" for each in used(body))
    line = f"function {name}({given}) {kind} pure returns (uint256) {{"
    if len(line) + MEMBER <= LINE:
        yield line
    else:
        parts = f"    {kind}", "    pure", "    returns (uint256)", "{"
        yield from (f"function {name}({given})", *parts)
    yield from indented(body)
    yield "}"


def used(body: list[str]) -> list[str]:
    """Parameters of a function with these lines."""
    code = " ".join(line for line in body if not line.startswith("//"))
    return [name for name in GIVEN if name == "op" or re.search(rf"\b{name}\b", code)]


def either(conditions: list[str], body: list[str]) -> list[str]:
    """The statements where one of the conditions holds."""
    initial_state = f"if ({' || '.join(conditions)}) {{"
    if len(initial_state) + MEMBER + INDENT <= LINE:
        return block(initial_state, body)
    half = len(conditions) // 2
    return [*either(conditions[:half], body), *either(conditions[half:], body)]


def block(initial_state: str, body: list[str]) -> list[str]:
    """A condition and its statements; on one line where there is one that fits."""
    line = f"{initial_state.removesuffix('{')}{body[0]}"
    if len(body) == 1 and len(line) + MEMBER + 2 * INDENT <= LINE:
        return [line]
    return [initial_state, *indented(body), "}"]


def indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}".rstrip() for line in lines]


def numbers() -> str:
    """`Op.sol`."""
    families = (list(ops) for _, ops in groupby(Op, key=lambda op: op.family))
    groups = ("\n".join(f"    {number_of(op)}" for op in ops) for ops in families)
    return f"{HEAD}{OP_HEAD}" + "\n\n".join(groups) + "\n}\n"


def number_of(op: Op) -> str:
    text = f"uint256 internal constant {op.name} = 0x{op.value:04x};"
    return f"{text} // {op.row.lines}" if op.row.lines else text


def formulas() -> str:
    """`Formulas.sol`."""
    lines: list[str] = []
    for number in FAMILIES:
        lines += [f"// ---- family {number} " + "-" * 96, ""]
        lines += [*family_reads(number), "", *family_values(number), ""]
    return f"{HEAD}{FORMULAS_HEAD}" + "\n".join(indented(lines[:-1])) + "\n}\n"


def files() -> dict[Path, str]:
    """What is written, by its place."""
    written = {JUDGE / "Op.sol": numbers(), JUDGE / "Formulas.sol": formulas()}
    return {LAW: law(), README: gas(), **written}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    is_check = parser.parse_args().check
    texts = files()
    stale = [p for p, text in texts.items() if not p.is_file() or p.read_text("utf-8") != text]
    for path in stale:
        print(f"{'stale' if is_check else 'wrote'}: {path.relative_to(ROOT)}", file=sys.stderr)
        if not is_check:
            path.write_text(texts[path], "utf-8")
    return int(is_check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
