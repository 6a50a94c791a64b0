"""The formulas of the table of operations that take more than a line (`opcodes`).

Rule of this file: a formula is of `m`'s primitives and of +, − and · alone, each rounded once in
its operands' format, and knows nothing of what a number is: a tensor where a trace is made, an
expression where the contracts and the law's text are. Constants come first, then operands.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from atoll.numerics.kernels.muon import COEFFICIENTS, LEAST_NORM

Number: TypeAlias = Any
"""Has +, − and ·, with a float on either side, too."""
_A, _B, _C = COEFFICIENTS


class Arithmetic(Protocol):
    """The primitives. A float is a constant in the format of what it meets."""

    def f32(self, x: Number) -> Number:
        """32(x), of f64 or an integer."""

    def f64(self, x: Number) -> Number:
        """64(x), of f32 or an integer."""

    def div(self, a: Number, b: Number) -> Number:
        """The quotient, of f32 or f64."""

    def sqrt(self, x: Number) -> Number:
        """The root, of f32 or f64."""

    def rsqrt(self, x: Number) -> Number:
        """As chapter 3 of SPEC-STEP.md has it, and so has it the next two."""

    def exp(self, x: Number) -> Number: ...

    def sigmoid(self, x: Number) -> Number: ...

    def flush(self, x: Number) -> Number:
        """+0 where |x| < 2⁻¹⁰⁰, else x."""

    def less(self, a: Number, b: Number) -> Number:
        """Whether a < b; not with NaN."""

    def is_zero(self, n: Number) -> Number:
        """Whether an integer is."""

    def is_negative(self, n: Number) -> Number:
        """Whether an integer is."""

    def is_column(self, n: Number) -> Number:
        """Whether it is the number of the result's column."""

    def where(self, condition: Number, a: Number, b: Number) -> Number:
        """a where that is so, else b."""

    def off_diagonal(self, x: Number) -> Number:
        """x, with +0 on the diagonal of a square result."""


def inverse_total(m: Arithmetic, factor: Number, n: Number) -> Number:
    return m.f32(m.div(1.0, m.f64(n) * factor))


def squares(m: Arithmetic, n: Number, s: Number) -> Number:
    """Σ n² on a grid of step s."""
    wide = m.f64(s)
    return m.f64(n) * (wide * wide)


def rstd(m: Arithmetic, factor: Number, epsilon: Number, n: Number, s: Number) -> Number:
    return m.rsqrt(m.f32(squares(m, n, s) * factor) + epsilon)


def swiglu_dgate(m: Arithmetic, g: Number, gate: Number, up: Number) -> Number:
    s = m.sigmoid(gate)
    return g * up * (s + gate * s * (1.0 - s))


def _positive(m: Arithmetic, x: Number) -> Number:
    return m.where(m.less(x, 0.0), 0.0, x)


def relu2(m: Arithmetic, x: Number) -> Number:
    a = _positive(m, x)
    return a * a


def relu2_gradient(m: Arithmetic, g: Number, x: Number) -> Number:
    return g * (_positive(m, x) * 2.0)


def _inverse(m: Arithmetic, n: Number) -> Number:
    return m.where(m.is_zero(n), 0.0, m.div(1.0, m.f64(n)))


def loss(m: Arithmetic, sum_: Number, s: Number, n: Number) -> Number:
    return m.f32(m.f64(sum_) * m.f64(s) * _inverse(m, n))


def loss_scale(m: Arithmetic, n: Number, every: Number) -> Number:
    share = m.where(m.is_zero(every), 0.0, m.div(m.f64(n), m.f64(every)))
    return m.f32(m.f64(m.f32(share)) * _inverse(m, n))


def dlogits(m: Arithmetic, w: Number, total: Number, target: Number, scale: Number) -> Number:
    dz = w * m.f32(m.div(1.0, total))
    dz = m.where(m.is_column(target), dz - 1.0, dz)
    return m.where(m.is_negative(target), 0.0, dz) * scale


def policy_dlogits(m: Arithmetic, w: Number, total: Number, target: Number, a: Number) -> Number:
    dz = w * m.f32(m.div(1.0, total))
    dz = m.where(m.is_column(target), dz - 1.0, dz)
    return m.where(m.is_negative(target), 0.0, dz * a)


def norm_term(m: Arithmetic, t: Number, n: Number, s: Number) -> Number:
    return (0.0 if t is None else t) + squares(m, n, s)


def clip(m: Arithmetic, most: Number, norm: Number) -> Number:
    k = m.div(most, norm)
    return m.where(m.less(0.0, norm), m.where(m.less(k, 1.0), k, 1.0), 1.0)


def moment(m: Arithmetic, keep: Number, add: Number, moment_: Number, g: Number) -> Number:
    return m.flush(moment_ * keep + g * add)


def adamw_v(m: Arithmetic, keep: Number, add: Number, v: Number, g: Number) -> Number:
    return moment(m, keep, add, v, g * g)


def adamw_p(m: Arithmetic, epsilon: Number, decay: Number, *inputs: Number) -> Number:
    p, first, second, c, rate = inputs
    root = m.sqrt(second * m.f32(c[1])) + epsilon
    u = m.div(first * m.f32(c[0]), root) + p * decay
    return p - u * m.f32(rate)


def descend(m: Arithmetic, decay: Number, p: Number, g: Number, rate: Number) -> Number:
    return p - (g + p * decay) * m.f32(rate)


def muon_scale(m: Arithmetic, n: Number, s: Number) -> Number:
    t = m.sqrt(m.f64(n)) * m.f64(s)
    # Not the larger of both: a t that is NaN stays, and nothing is less than it.
    return m.f32(m.div(1.0, m.where(m.less(t, LEAST_NORM), LEAST_NORM, t)))


def muon_along(m: Arithmetic, d: Number, e: Number) -> Number:
    return (d * d + e) * _C + d * _B + _A


def muon_across(m: Arithmetic, r: Number, row: Number, column: Number, e: Number) -> Number:
    return m.off_diagonal(r * ((row + column) * _C + _B) + e * _C)
