"""RMSNorm, rotary positions (SPEC-STEP.md, 7 and 8) and heads, forward and backward."""

from __future__ import annotations

from atoll.numerics.kernels.reference import NORM_LEVELS
from atoll.numerics.schedule_tables import table_sizes
from atoll.numerics.trace.build.graph import Value
from atoll.numerics.trace.build.grids import exact_sum, f32, f64, grid_sum, transposed, view
from atoll.numerics.trace.build.making import Back, Making
from atoll.numerics.trace.opcodes import Op


def normed(m: Making, x: Value, name: str) -> tuple[Value, Back]:
    """RMSNorm of the rows of x [N, I], I being the gain's (N1 to N6)."""
    g, gain = m.graph, m.weight(f"{name}.weight")
    width, mean = gain.elements, f64(1.0 / gain.elements)
    squares, step = grid_sum(g, x, width, NORM_LEVELS, Op.SUM_SQUARES)
    words = [mean, f32(float(m.spec.norm_eps))]
    r = g.add(Op.RSTD, [squares, step], squares.elements, words)
    y = g.add(Op.NORMED, [x, r, gain], x.elements, [width])

    def back(gy: Value) -> Value:
        count, rows = x.elements, [width]
        u = g.add(Op.MUL_ROWS, [x, r], count, rows)
        h = g.add(Op.MUL_COLUMNS, [gy, gain], count, rows)
        a = exact_sum(g, g.add(Op.MUL, [h, u], count), width, 1.0 / width)
        gu = g.add(Op.MUL, [gy, u], count)
        m.meet(f"{name}.weight", exact_sum(g, transposed(g, gu, width), count // width))
        return g.add(Op.NORM_DX, [h, u, a, r], count, rows)

    return y, back


def rotated(m: Making, x: Value) -> tuple[Value, Back]:
    """x [B, heads, T, d] turned by position (R1, R2)."""
    g, spec = m.graph, m.spec
    offset = sum(table_sizes(spec, m.inner, m.total_steps)[:2])
    pairs = spec.seq * spec.head_dim // 2
    tables = [m.table(op, pairs, (), [offset, pairs]) for op in (Op.COSINES, Op.SINES)]

    def turn(y: Value, sign: float) -> Value:
        words = [spec.seq, spec.head_dim, f32(sign)]
        return g.add(Op.ROTATE, [y, *tables], y.elements, words)

    return turn(x, 1.0), lambda gy: turn(gy, -1.0)


def to_heads(m: Making, x: Value, heads: int) -> Value:
    """[B, T, heads · d] as [B, heads, T, d]."""
    length, width = m.spec.seq, m.spec.head_dim
    dims = m.inner.micro_batch, heads, length, width
    return view(m.graph, x, dims, (length * heads * width, width, heads * width, 1))


def from_heads(m: Making, x: Value, heads: int) -> Value:
    """[B, heads, T, d] as [B, T, heads · d]."""
    length, width = m.spec.seq, m.spec.head_dim
    dims = m.inner.micro_batch, length, heads, width
    return view(m.graph, x, dims, (heads * length * width, width, length * width, 1))
