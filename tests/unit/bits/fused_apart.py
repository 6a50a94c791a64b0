"""Run with Triton, in a process of its own: `bits` or `code`; prints what is wrong, as JSON.

`bits`: the GPU's kernels in Triton's interpreter (TRITON_INTERPRET=1), which computes with numpy,
against the reference. `code`: what Triton compiles of every program for a GPU, which needs none.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from atoll.bits.kernels import acceptance, fused
from atoll.bits.kernels.fused_attention import FusedAttention
from atoll.bits.kernels.interface import CPU
from atoll.bits.kernels.reference import TorchKernels

KINDS = (
    "normal", "mixed scales", "subnormal", "zeros of both signs", "overflowing", "infinite",
    "not a number", "half", "long", "gate",
)  # fmt: skip
TYPES = {
    torch.float16: "fp16", torch.float32: "fp32", torch.float64: "fp64",
    torch.int8: "i8", torch.int32: "i32", torch.int64: "i64",
}  # fmt: skip
HOPPER = GPUTarget("cuda", 90, 32)
NOT_ONE_OPERATION = re.compile(
    r"\b(?:fma|mad)\.(?:rn|rz|approx)\S*f(?:32|64)|\S*\.ftz\S*|\S*\.approx\S*|\bdiv\.full\S*"
)
"""In PTX: two operations rounded once, subnormals taken for 0, and results that are about right."""


def wrong_bits() -> list[str]:
    inputs = acceptance._inputs(seed=0, rows=5)
    found = [
        f"{name} on {kind} input"
        for kind in KINDS
        for (name, a), (_, b) in zip(
            inputs[kind](fused.FusedKernels()), inputs[kind](TorchKernels()), strict=True
        )
        if not acceptance._same(a, b)
    ]
    found += acceptance.attention_differences(FusedAttention(), CPU, width=40)
    return found + wrong_beyond_a_program()


def wrong_beyond_a_program() -> list[str]:
    """Sizes that programs are not made for, which are the reference's."""
    kernels, found = fused.FusedKernels(), []
    x_BHTd = torch.linspace(-3, 3, 2 * 2 * 2049).view(1, 1, 2, -1)
    tables = torch.linspace(-1, 1, 2 * 2049).view(2, -1), torch.ones(2, 2049)
    turned = (each.rotate(x_BHTd, *tables, 1.0) for each in (kernels, TorchKernels()))
    if not torch.equal(*turned):
        found.append("heads too wide for a program")
    g_NO, row_N1, column_1O = (
        torch.linspace(-3, 3, 12).view(3, 4),
        torch.ones(3, 1),
        torch.ones(1, 4),
    )
    launch, fused.launch, fused._MOST_INT32 = fused.launch, None, 11  # no program can be launched
    parts = [
        each.quantise_gradient([g_NO], row_N1, column_1O) for each in (kernels, TorchKernels())
    ]
    if not acceptance._same(*(tuple(x for pair in part for x in pair) for part in parts)):
        found.append("a gradient too large for a program")
    fused.launch = launch
    return found


def compiled() -> Iterator[tuple[str, str]]:
    """Every program as the acceptance test would launch it: its name, and its PTX."""
    launched: dict[str, tuple[Any, dict[str, str], dict[str, Any], int]] = {}

    def launch(program: Any, _: object, *arguments: Any, warps: int = 4) -> None:
        types: dict[str, str] = {}
        constants: dict[str, Any] = {}
        for parameter, value in zip(program.params, arguments, strict=True):
            types[parameter.name] = "constexpr" if parameter.is_constexpr else type_of(value)
            if parameter.is_constexpr:
                constants[parameter.name] = getattr(value, "value", value)
        name = f"{program.fn.__name__} {types} {constants}"
        launched[name] = program, types, constants, warps

    fused.launch = launch
    for results in acceptance._inputs(seed=0, rows=37).values():
        for _ in results(fused.FusedKernels()):
            pass
    for width in (64, 128):
        acceptance.attention_differences(FusedAttention(), CPU, width)
    for name, (program, types, constants, warps) in launched.items():
        yield name, ptx_of(program, types, constants, {"num_warps": warps})


def type_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "*" + TYPES[value.dtype]
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def ptx_of(
    program: Any, types: dict[str, str], constants: dict[str, Any], options: dict[str, Any]
) -> str:
    source = ASTSource(program, types, constants)
    asked = {"enable_fp_fusion": False} | options
    return str(triton.compile(source, target=HOPPER, options=asked).asm["ptx"])


def wrong_code() -> list[str]:
    found = [
        f"{name}: {line.strip()}"
        for name, ptx in compiled()
        for line in ptx.splitlines()
        if NOT_ONE_OPERATION.search(line)
    ]
    names = ("p", "m", "v", "g", "p_out", "m_out", "v_out")
    scalars = ("scale", "beta1", "rest1", "beta2", "rest2", "correct1", "correct2", "eps", "decay")
    types = dict.fromkeys(names, "*fp32") | dict.fromkeys((*scalars, "rate"), "fp32")
    types |= {"n": "i32", "BLOCK": "constexpr"}
    program = fused.programs.adamw
    order = {name: types[name] for name in program.arg_names}
    contracted = ptx_of(program, order, {"BLOCK": 1024}, {"enable_fp_fusion": True})
    if not NOT_ONE_OPERATION.search(contracted):
        found.append("a contracted program looks like one that is not")
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"bits": wrong_bits, "code": wrong_code}[sys.argv[1]]()) + "\n")
