"""Initial weights: a pure function of the manifest, or the content that it names.

Drawn weights are Philox integers and two IEEE roundings.

Rule of this file: no library random generator and no transcendental function, so the first model
has the same bits on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from atoll.numerics.errors import MalformedState
from atoll.numerics.fixed import fixed
from atoll.numerics.kernels.freed_memory import let_go_of_pages
from atoll.numerics.kernels.philox import LOW32, philox4x32
from atoll.numerics.state import GlobalState, Tensors
from atoll.numerics.state_layout import UP, Shapes, moment_layout, trained_shapes
from atoll.numerics.tensors import (
    Allocate,
    ByteSource,
    in_memory,
    read_lazily,
    tree_root,
    write_lazily,
)
from atoll.protocol.manifest import Manifest
from atoll.protocol.method_spec import OuterSpec

PARAMETER_LIMIT = 2.0**64
"""A parameter at or beyond it counts as not finite: its update could not be written in fp32."""
_PARAMS = "atoll.params.v1"
_WORD_BITS = 21  # so that the sum of four, below 2^23, is exact in every float
_AT_A_TIME = 1 << 16
"""Elements drawn together: their words stay in a core's cache."""
# Four uniform integers of 21 bits have variance 4·2^42/12; this is 0.02 / sqrt(2^42/3) in binary64.
_SCALE = 0.02 * 1.7320508075688772 / 2.0**_WORD_BITS


def bell_integers(seed: int, tensor_index: int, count: int) -> Tensor:
    """`count` integers [count], each the sum of four signed uniform 21-bit ones: nearly normal.

    Element i is the sum over block (i in two words, low first; tensor_index; 0) of the stream keyed
    by the 64-bit seed, low word first, of the words' upper 21 bits, less 2^20 each.
    """
    total = torch.empty(count, dtype=torch.int64)
    for start in range(0, count, _AT_A_TIME):
        blocks = torch.arange(start, min(start + _AT_A_TIME, count), dtype=torch.int64)
        index, zero = torch.full_like(blocks, tensor_index), torch.zeros_like(blocks)
        counter = (blocks & LOW32, blocks >> 32, index, zero)
        words = philox4x32(counter, (seed & LOW32, seed >> 32))
        total[start : start + len(blocks)] = sum(word >> (32 - _WORD_BITS) for word in words)
    return total - (4 << (_WORD_BITS - 1))


def initial_params(shapes: Shapes, seed: int) -> dict[str, Tensor]:
    """Ones for the norms' gains, zeros for biases, deviation 0.02 for matrices.

    Of an adapter B is zero, so that it begins as nothing. Tensors count by sorted name.
    """
    params: dict[str, Tensor] = {}
    for index, name in enumerate(sorted(shapes)):
        shape = shapes[name]
        if len(shape) == 1:
            start = 0.0 if name.endswith(".bias") else 1.0
            params[name] = torch.full(shape, start, dtype=torch.float32)
            continue
        if name.endswith(UP):
            params[name] = torch.zeros(shape)
            continue
        integers = bell_integers(seed, index, math.prod(shape))
        params[name] = (integers.double() * _SCALE).float().view(shape)
    return params


def initial_global_state(
    manifest: Manifest, content: Tensors | None = None, *, allocate: Allocate = in_memory
) -> GlobalState:
    """Round 0's global model. Its digest is a function of the manifest alone.

    Args:
        content: the parameter set that the manifest names, None where it names a seed; what
            adapters are added to is not asked for.
        allocate: where the outer slots lie.

    Raises:
        MalformedState: that set has another root than the manifest says.
        ValueError: none is given, and the manifest names one.
    """
    init = manifest.init
    if init.seed is not None:
        params = initial_params(trained_shapes(manifest), init.seed)
    elif content is None:
        raise ValueError("the manifest names initial weights by content: give them")
    elif tree_root(content) != init.root:
        raise MalformedState("the initial weights have another root than the manifest says")
    else:
        params = content
    codec, shared = manifest.codec, moment_layout(manifest).m
    return GlobalState(
        0,
        params,
        initial_slots(manifest.outer, params, allocate),
        {name: codec.exponents.of(name) for name in params},
        {name: codec.moment_exponents.of(name) for name in shared},
    )


def write_params(shapes: Shapes, read: Callable[[str], Tensor]) -> Iterator[bytes | memoryview]:
    """A parameter set's canonical bytes; each tensor is read when its turn is, and let go."""
    layout = {name: ("float32", shape) for name, shape in shapes.items()}
    return write_lazily(_PARAMS, {}, layout, read)


def stream_params(source: ByteSource, shapes: Shapes) -> Iterator[tuple[str, Tensor]]:
    """Parses a parameter set a tensor at a time.

    Raises:
        MalformedState: no later than behind the last tensor, where the set is not canonical, not
            of these shapes, or has a number that is not between −2⁶⁴ and 2⁶⁴.
    """
    blob = read_lazily(_PARAMS, source)
    if any(dtype != "float32" for dtype, _ in blob.layout.values()):
        raise MalformedState(f"{_PARAMS}: tensors are not those of the job's model: not float32")
    if blob.fields or blob.layout != {name: ("float32", shape) for name, shape in shapes.items()}:
        raise MalformedState(f"{_PARAMS}: fields or tensors are not those of the job's model")
    for name, tensor in blob.tensors:
        _check_bounded(name, tensor)
        yield name, tensor


def _check_bounded(name: str, tensor: Tensor) -> None:
    if not is_bounded(tensor):
        raise MalformedState(f"{_PARAMS}: {name} has numbers that are not finite, or too large")


def is_bounded(*parameters: Tensor) -> bool:
    """Whether every element of all is between −2⁶⁴ and 2⁶⁴."""
    extremes = [torch.stack(torch.aminmax(p)) for p in parameters]  # NaN if any element is
    return bool((torch.stack(extremes).abs() < PARAMETER_LIMIT).all())


def initial_slots(
    outer: OuterSpec, params: Tensors, allocate: Allocate = in_memory
) -> dict[str, Tensors]:
    """The slots of round 0: zero, and eps² for second moments, as FedAdam starts them."""
    start = {"second": fixed(outer.eps) ** 2}
    slots: dict[str, Tensors] = {slot: {} for slot in outer.properties.slots}
    for slot, tensors in slots.items():
        for name, p in params.items():
            made = allocate(f"{slot}/{name}", tuple(p.shape), torch.int64)
            tensors[name] = made.fill_(start.get(slot, 0))
            let_go_of_pages(made)
    return slots
