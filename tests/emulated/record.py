"""Records every call that acceptance makes of kernels.c on this machine, for `replay.c` elsewhere.

    python tests/emulated/record.py FOLDER [SEEDS]

writes FOLDER/calls.bin, and FOLDER/calls.h with a wrapper of each kernel. A call is a u32 index
into the wrappers, a u32 count and so many arguments, and the int64 returned. An argument is a tag
and little-endian content: i (int64), u (uint32), f (binary32), d (binary64), a (u32 count, then so
many arguments in slots of eight bytes: an array of pointers or a struct), and b or s (u64 size, the
bytes before and after the call; of s, scratch space, those after do not count).
"""

from __future__ import annotations

import ctypes
import re
import struct
import sys
from ctypes import c_double, c_float, c_int64, c_uint32, c_void_p
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from atoll.numerics.kernels.acceptance import differences
from atoll.numerics.kernels.build import SOURCE, load_library
from atoll.numerics.kernels.compiled import CompiledKernels
from atoll.numerics.kernels.reference import TorchKernels

DEFINITION = re.compile(r"^(void|int64_t) (\w+)\(([^)]*)\)", re.MULTILINE)
MEMBERS = {"int64_t": "i", "uint32_t": "u", "float": "f", "double": "d"}
SCRATCH = {"scratch", "line", "by"}
TILES = {"scores", "shares", "mixed", "row", "column"}
BY_KEY = {"k_step", "v_step", "mixed_step", "column_step"}


class Recorder(CompiledKernels):
    """Kernels that write down what they are asked and what they answer."""

    def __init__(self, library: ctypes.CDLL, out: BinaryIO) -> None:
        super().__init__(library)
        self.out, self.calls = out, 0
        self.parameters = {name: _parameters(text) for _, name, text in definitions()}

    def _call(self, name: str, *arguments: Any, result: Any = None) -> Any:
        names = [parameter.split("*")[-1].split()[-1] for parameter in self.parameters[name]]
        blocks = [_block(name, argument, arguments) for argument in arguments]
        before = [_read(block) for block in blocks]
        answer = super()._call(name, *arguments, result=result)
        self.out.write(struct.pack("<II", list(self.parameters).index(name), len(arguments)))
        for parameter, argument, block, old in zip(names, arguments, blocks, before, strict=True):
            self.out.write(_argument(argument, block, old, parameter in SCRATCH))
        self.out.write(struct.pack("<q", answer or 0))
        self.calls += 1
        return answer


Block = list[tuple[int, int]]
"""Addresses and sizes of what an argument points to."""


def _block(name: str, argument: Any, arguments: tuple[Any, ...]) -> Block:
    if isinstance(argument, Tensor):
        last = sum((n - 1) * s for n, s in zip(argument.shape, argument.stride(), strict=True))
        return [(argument.data_ptr(), (last + 1) * argument.element_size())]
    if isinstance(argument, ctypes.Array):
        if argument._type_ is c_void_p:  # quantise_gradient's parts
            widths, rows = arguments[1], arguments[5]
            return [(p, rows * w * 4) for p, w in zip(argument, widths, strict=True)]
        return [(ctypes.addressof(argument), ctypes.sizeof(argument))]
    if name == "attention_gradient":
        return [block for block in _tile(argument._obj) if isinstance(block, tuple)]
    return []


def _tile(tile: Any) -> list[tuple[int, int] | int | float]:
    """The struct's fields, with the sizes of what its pointers point to."""
    fields: list[tuple[int, int] | int | float] = []
    for field, kind in tile._fields_:
        value = getattr(tile, field)
        if kind is c_void_p:
            width = tile.keys if field in BY_KEY else tile.queries
            size = tile.groups * (tile.queries * tile.keys if field in TILES else width)
            fields.append((value, size * 4))
        else:
            fields.append(value)
    return fields


def _read(block: Block) -> list[bytes]:
    return [ctypes.string_at(address, size) for address, size in block]


def _argument(argument: Any, block: Block, old: list[bytes], scratch: bool) -> bytes:
    buffers = [
        b"bs"[scratch : scratch + 1] + struct.pack("<Q", len(was)) + was + now
        for was, now in zip(old, _read(block), strict=True)
    ]
    if isinstance(argument, int):
        return b"i" + struct.pack("<q", argument)
    if isinstance(argument, c_int64 | c_uint32 | c_float | c_double):
        tag = {c_int64: "iq", c_uint32: "uI", c_float: "ff", c_double: "dd"}[type(argument)]
        return tag[0].encode() + struct.pack("<" + tag[1], argument.value)
    if isinstance(argument, ctypes.Array) and argument._type_ is c_void_p:
        return b"a" + struct.pack("<I", len(buffers)) + b"".join(buffers)
    if hasattr(argument, "_obj"):
        waiting = iter(buffers)
        slots = [_slot(field, waiting) for field in _tile(argument._obj)]
        return b"a" + struct.pack("<I", len(slots)) + b"".join(slots)
    return buffers[0]


def _slot(field: tuple[int, int] | int | float, buffers: Any) -> bytes:
    if isinstance(field, tuple):
        return bytes(next(buffers))
    if isinstance(field, float):
        return b"f" + struct.pack("<f", field)
    return b"i" + struct.pack("<q", field)


def definitions() -> list[tuple[str, str, str]]:
    """Of every kernel in kernels.c: result, name and parameters."""
    return DEFINITION.findall(SOURCE.read_text())


def _parameters(text: str) -> list[str]:
    return [" ".join(parameter.split()) for parameter in text.split(",")]


def wrappers() -> str:
    """C that calls each kernel with an array of arguments, and a table of them."""
    lines = []
    for result, name, text in definitions():
        members = (
            "p" if "*" in parameter else MEMBERS[parameter.split()[0]]
            for parameter in _parameters(text)
        )
        passed = ", ".join(f"a[{i}].{member}" for i, member in enumerate(members))
        call = (
            f"return {name}({passed});" if result == "int64_t" else f"{name}({passed}); return 0;"
        )
        lines.append(f"static int64_t call_{name}(const union argument *a) {{ {call} }}")
    entries = ", ".join(f'{{"{name}", call_{name}}}' for _, name, _ in definitions())
    return "\n".join([*lines, f"static const struct kernel KERNELS[] = {{{entries}}};\n"])


def main() -> None:
    folder, seeds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    (folder / "calls.h").write_text(wrappers())
    with (folder / "calls.bin").open("wb") as out:
        recorder = Recorder(load_library(), out)
        found = [d for seed in range(seeds) for d in differences(recorder, TorchKernels(), seed)]
        size = out.tell()
    sys.stdout.write(f"{recorder.calls} calls, {size} bytes, {len(found)} differ here\n")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
