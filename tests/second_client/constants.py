"""What a job fixes before it starts: initial weights and tables. SPEC-STEP.md, 16 and 17.

The tables are worked out in decimal arithmetic of 90 digits, so that one rounding to binary decides
every bit (1 − 0.5^54 is a tie that 54 digits show and 53 do not), and hashed into the root that the
manifest names (SPEC.md section 6).
"""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
from tests.second_client.arithmetic import Array, narrow, philox
from tests.second_client.documents import B, Manifest, Shape
from tests.second_client.optimisers import OPTIMISERS
from tests.second_client.words import piece_root

_DIGITS = Context(prec=90)
_PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510"
    "5820974944592307816406286208998628034825342117067982"
)
_DEVIATION = 0.02 * 1.7320508075688772 / 2.0**21


def initial_params(shapes: dict[str, Shape], seed: int) -> dict[str, Array]:
    """Zeros for biases and B, ones for other vectors; bells of deviation 0.02 for matrices."""
    params = {}
    for index, (name, shape) in enumerate(shapes.items()):
        if name.endswith(B):
            params[name] = np.zeros(shape, np.float32)
            continue
        if len(shape) == 1:
            params[name] = np.full(shape, 0.0 if name.endswith(".bias") else 1.0, np.float32)
            continue
        element = np.arange(shape[0] * shape[1], dtype=np.uint64)
        zero = np.zeros_like(element)
        counter = element % (1 << 32), element >> np.uint64(32), zero + np.uint64(index), zero
        words = philox(counter, (seed % (1 << 32), seed >> 32))
        integers = sum((word >> np.uint64(11)).astype(np.int64) - (1 << 20) for word in words)
        params[name] = narrow(integers * _DEVIATION).reshape(shape)
    return params


def total_steps(manifest: Manifest) -> int:
    """S: the job's global steps."""
    steps: int = manifest["terms"]["rounds"] * manifest["inner"]["steps"]
    return steps


def rate(manifest: Manifest, step: int) -> float:
    """The learning rate of a global step: table 1."""
    inner = manifest["inner"]
    peak, warm_up = float(inner["lr"]), inner["warmup_steps"]
    if step < warm_up:
        return peak * ((step + 1) / warm_up)
    if inner["schedule"] == "constant":
        return peak
    span = max(1, total_steps(manifest) - warm_up)
    with localcontext(_DIGITS):
        cosine, _ = _cos_sin(_PI * min(step - warm_up, span) / span)
        return peak * float((1 + cosine) / 2)


def corrections(manifest: Manifest, count: int) -> tuple[float, float]:
    """1 / (1 − β₁^count) and 1 / (1 − β₂^count): table 2; its last entry for counts beyond it."""
    count = min(count, total_steps(manifest))
    with localcontext(_DIGITS):
        betas = (Decimal(manifest["inner"][name]) for name in ("beta1", "beta2"))
        first, second = (1.0 / float(1 - beta**count) for beta in betas)
    return first, second


def rotary(model: dict[str, Any]) -> tuple[Array, Array]:
    """Cosines and sines [seq, head size / 2] of position · angle of the column: table 3."""
    size, base = model["head_dim"], Decimal(model["rope_base"])
    with localcontext(_DIGITS):
        angles = [base ** (Decimal(-2 * i) / size) for i in range(size // 2)]
        columns = [_turns(_scaled(angle, model["rope_scaling"]), model["seq"]) for angle in angles]
    table = narrow(np.array(columns, np.float64))  # [size / 2, seq, 2]
    return np.ascontiguousarray(table[:, :, 0].T), np.ascontiguousarray(table[:, :, 1].T)


def _scaled(angle: Decimal, scaling: dict[str, Any]) -> Decimal:
    """An angle stretched: where a column turns seldom in `positions` positions, `factor` times."""
    slow = angle / Decimal(scaling["factor"])
    if scaling["kind"] == "llama3":
        low, high = Decimal(scaling["low"]), Decimal(scaling["high"])
        turns = scaling["positions"] * angle / (2 * _PI)
        if turns > high:
            return angle
        if turns > low:
            share = (turns - low) / (high - low)
            return share * angle + (1 - share) * slow
    return slow


def _turns(angle: Decimal, count: int) -> list[tuple[float, float]]:
    """Cosine and sine of 0, 1, 2 … times an angle, each from the one before."""
    step_cosine, step_sine = _cos_sin(angle)
    cosine, sine, found = Decimal(1), Decimal(0), []
    for _ in range(count):
        found.append((float(cosine), float(sine)))
        cosine, sine = (
            cosine * step_cosine - sine * step_sine,
            sine * step_cosine + cosine * step_sine,
        )
    return found


def _cos_sin(angle: Decimal) -> tuple[Decimal, Decimal]:
    """By Taylor's series, for angles between 0 and π."""
    cosine, sine, term, power = Decimal(0), Decimal(0), Decimal(1), 0
    while abs(term) > Decimal("1e-95"):
        sign = -1 if power % 4 in (2, 3) else 1
        if power % 2:
            sine += sign * term
        else:
            cosine += sign * term
        power += 1
        term = term * angle / power
    return cosine, sine


def tables_root(manifest: Manifest) -> bytes:
    """The root of all three tables, each filled up to whole pieces."""
    steps = total_steps(manifest)
    rates = np.array([rate(manifest, step) for step in range(steps)], ">f8")
    parts = [rates.tobytes()]
    if OPTIMISERS[manifest["inner"]["optimizer"]].is_corrected:
        pairs = [corrections(manifest, count) for count in range(1, steps + 1)]
        parts.append(np.array(pairs, ">f8").tobytes())
    parts.append(np.stack(rotary(manifest["model"]), axis=-1).astype(">f4").tobytes())
    return piece_root(b"".join(part + bytes(-len(part) % 1024) for part in parts))
