"""Run with Triton, in a process of its own: `bits` or `code`; prints what is wrong, as JSON.

`bits`: the GPU's kernels in Triton's interpreter (TRITON_INTERPRET=1), which computes with numpy,
against the reference. `code`: what Triton compiles of every program for a GPU, which needs none.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.interpreter import InterpreterBuilder

from atoll.numerics.kernels import acceptance, fused, optimiser_programs
from atoll.numerics.kernels.fused_attention import FusedAttention
from atoll.numerics.kernels.gemm import ROUTES, batched_product
from atoll.numerics.kernels.interface import CPU, Engine
from atoll.numerics.kernels.reference import TorchKernels

KINDS = (
    "normal", "mixed scales", "subnormal", "zeros of both signs", "overflowing", "infinite",
    "not a number", "half", "long", "gate",
)  # fmt: skip
TYPES = {
    torch.float16: "fp16", torch.float32: "fp32", torch.float64: "fp64",
    torch.int8: "i8", torch.int32: "i32", torch.int64: "i64",
}  # fmt: skip
HOPPER, AMPERE = (GPUTarget("cuda", version, 32) for version in (90, 80))
NOT_ONE_OPERATION = re.compile(
    r"\b(?:fma|mad)\.(?:rn|rz|approx)\S*f(?:32|64)|\S*\.ftz\S*|\S*\.approx\S*|\bdiv\.full\S*"
)
"""In PTX: two operations rounded once, subnormals taken for 0, and results that are about right."""
PRODUCT = re.compile(r"\b(?:wgmma|mma)\S+\.(?:m\d+n\d+k\d+)\S*")
EXACT_PRODUCT = re.compile(r"f32\.f16\.f16(?:\.f32)?$")
"""Of integers in fp16, which a tensor core adds up in fp32."""


def wrong_bits() -> list[str]:
    # As a GPU does: the greater of NaN and a number is the number.
    InterpreterBuilder.create_maxnumf = lambda self, a, b: self.binary_op(a, b, np.fmax)
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
    return found + wrong_attention() + wrong_beyond_a_program()


def wrong_attention() -> list[str]:
    """Sizes around a tile and a program's blocks, and key heads that several queries share."""
    tiles = Engine(ROUTES["fp64"], TorchKernels(), batched_product(ROUTES["fp64"]))
    whole = replace(tiles, attention=FusedAttention())
    generator, found = torch.Generator().manual_seed(1), []
    for length, width in ((1, 1), (33, 16), (65, 128), (129, 20)):
        shapes = [(2, heads, length, width) for heads in (4, 2, 2, 4)]
        inputs = [torch.randn(shape, generator=generator) for shape in shapes]
        if not acceptance._same(*(acceptance.attended(each, inputs) for each in (tiles, whole))):
            found.append(f"attention of {length} positions, {width} wide")
    return found


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
    """Every program as the acceptance tests would launch it: its name, and its PTX."""
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
        options = {"num_warps": warps}
        yield name, ptx_of(program, types, constants, options)
        if constants.get("D") == 64:
            yield f"{name} on an A100", ptx_of(program, types, constants, options, AMPERE)


def type_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "*" + TYPES[value.dtype]
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def ptx_of(
    program: Any,
    types: dict[str, str],
    constants: dict[str, Any],
    options: dict[str, Any],
    target: GPUTarget = HOPPER,
) -> str:
    source = ASTSource(program, types, constants)
    asked = {"enable_fp_fusion": False} | options
    return str(triton.compile(source, target=target, options=asked).asm["ptx"])


def wrong_code() -> list[str]:
    found = []
    for name, ptx in compiled():
        lines = ptx.splitlines()
        found += [f"{name}: {line.strip()}" for line in lines if NOT_ONE_OPERATION.search(line)]
        products = {each for line in lines for each in PRODUCT.findall(line)}
        found += [f"{name}: {each}" for each in products if not EXACT_PRODUCT.search(each)]
        if "attend" in name or "y_gradient" in name:
            found += [] if products else [f"{name}: no product of a tensor core"]
    names = ("p", "m", "v", "g", "p_out", "m_out", "v_out")
    scalars = ("scale", "beta1", "rest1", "beta2", "rest2", "correct1", "correct2", "eps", "decay")
    types = dict.fromkeys(names, "*fp32") | dict.fromkeys((*scalars, "rate"), "fp32")
    types |= {"n": "i32", "BLOCK": "constexpr"}
    program = optimiser_programs.adamw
    order = {name: types[name] for name in program.arg_names}
    contracted = ptx_of(program, order, {"BLOCK": 1024}, {"enable_fp_fusion": True})
    if not NOT_ONE_OPERATION.search(contracted):
        found.append("a contracted program looks like one that is not")
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"bits": wrong_bits, "code": wrong_code}[sys.argv[1]]()) + "\n")
