"""Every operation of the exact step, forward and gradient: SPEC-STEP.md, chapters 4 to 12.

An operation is two functions. The forward one returns its result and what the gradient needs of it;
the gradient takes that and the gradient of the result. Arrays are float32 unless said; letters at
the end of a name are its axes: N tokens, I inputs, O outputs, V vocabulary, B sequences, H query
heads, K key heads, T positions, d head width.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.second_client.arithmetic import (
    BASE,
    INT8,
    NORM,
    SUM,
    Array,
    Wide,
    attention_levels,
    exact_sum,
    exp,
    grid,
    largest,
    ln,
    narrow,
    one_nan,
    product,
    quiet,
    rint,
    root,
    sigmoid,
    split_grid,
    wide,
)

Ids = NDArray[np.int64]
Saved = Any
TILE = 128

# ------------------------------------------------------------------------------- 4. embedding


def embedding(ids_N: Ids, table_VI: Array) -> Array:
    return table_VI[ids_N]


def embedding_gradient(g_NI: Array, ids_N: Ids, vocabulary: int) -> Array:
    integers_NI, step_1I = grid(g_NI, 0, SUM)
    sums_VI = np.zeros((vocabulary, g_NI.shape[1]), np.int64)
    np.add.at(sums_VI, ids_N, integers_NI.astype(np.int64))
    return one_nan(narrow(wide(sums_VI) * wide(step_1I)))


# ---------------------------------------------------------------------------------- 5. linear


def add_bias(x_NO: Array, bias_O: Array) -> Array:
    return x_NO + bias_O


def bias_gradient(g_NO: Array) -> Array:
    """That of the sum is the sum's own."""
    return one_nan(narrow(exact_sum(g_NO, 0)))[0]


def linear(x_NI: Array, weight_OI: Array) -> tuple[Array, Saved]:
    x, x_step_N1 = grid(x_NI, 1, INT8)
    w, w_step_O1 = grid(weight_OI, 1, INT8)
    y_NO = narrow(product(x, w.T)) * (x_step_N1 * w_step_O1.T)
    return one_nan(y_NO), (x, x_step_N1, w, w_step_O1)


def linear_gradient(g_NO: Array, saved: Saved) -> tuple[Array, Array]:
    """Gradients of input and weight."""
    x, x_step_N1, w, w_step_O1 = saved
    high, low, step_N1 = split_grid(g_NO * w_step_O1.T, 1)
    dx_NI = (narrow(product(high, w)) * BASE + narrow(product(low, w))) * step_N1
    high, low, step_1O = split_grid(g_NO * x_step_N1, 0)
    dw_OI = (narrow(product(high.T, x)) * BASE + narrow(product(low.T, x))) * step_1O.T
    return one_nan(dx_NI), one_nan(dw_OI)


# ------------------------------------------------------------------------------------ 6. head


def head(x_NI: Array, weight_VI: Array) -> tuple[Array, Saved]:
    x_high, x_low, x_step = split_grid(x_NI, 1)
    w_high, w_low, w_step = split_grid(weight_VI, 1)
    sums_NV = _split_product(x_high, x_low, w_high.T, w_low.T)
    saved = (x_high, x_low, x_step, w_high, w_low, w_step)
    return one_nan(narrow(sums_NV) * (x_step * w_step.T)), saved


def head_gradient(g_NV: Array, saved: Saved) -> tuple[Array, Array]:
    """Gradients of input and weight."""
    x_high, x_low, x_step, w_high, w_low, w_step = saved
    high, low, step_N1 = split_grid(g_NV * w_step.T, 1)
    dx_NI = narrow(_split_product(high, low, w_high, w_low)) * step_N1
    high, low, step_1V = split_grid(g_NV * x_step, 0)
    dw_VI = narrow(_split_product(high.T, low.T, x_high, x_low)) * step_1V.T
    return one_nan(dx_NI), one_nan(dw_VI)


def _split_product(a_high: Wide, a_low: Wide, b_high: Wide, b_low: Wide) -> Wide:
    """254² · high·high + 254 · (high·low + low·high): integers below 2^53."""
    middle = product(a_high, b_low) + product(a_low, b_high)
    return product(a_high, b_high) * BASE**2 + middle * BASE


# ------------------------------------------------------------------------------------ 7. norm


def rms_norm(x_NI: Array, gain_I: Array, eps: float) -> tuple[Array, Saved]:
    integers, step_N1 = grid(x_NI, 1, NORM)
    squares_N1 = (integers * integers).sum(axis=1, keepdims=True)
    q_N1 = squares_N1 * (wide(step_N1) * wide(step_N1))
    mean_N1 = narrow(q_N1 * (1.0 / x_NI.shape[1])) + np.float32(eps)
    r_N1 = np.float32(1.0) / root(mean_N1)
    return one_nan(x_NI * r_N1 * gain_I), (x_NI, one_nan(r_N1), gain_I)


def rms_norm_gradient(g_NI: Array, saved: Saved) -> tuple[Array, Array]:
    """Gradients of input and gain."""
    x_NI, r_N1, gain_I = saved
    u_NI, h_NI = x_NI * r_N1, g_NI * gain_I
    a_N1 = narrow(exact_sum(h_NI * u_NI, 1) * (1.0 / x_NI.shape[1]))
    dgain_I = narrow(exact_sum(g_NI * u_NI, 0))[0]
    return one_nan((h_NI - u_NI * a_N1) * r_N1), one_nan(dgain_I)


# -------------------------------------------------------------------------------- 8. rotation


def rotate(x_BHTd: Array, cos_Td: Array, sin_Td: Array) -> Array:
    """Its gradient is itself with the sines negated. The tables have half the head's width."""
    half = x_BHTd.shape[-1] // 2
    a, b = x_BHTd[..., :half], x_BHTd[..., half:]
    return one_nan(np.concatenate((a * cos_Td - b * sin_Td, b * cos_Td + a * sin_Td), axis=-1))


# ------------------------------------------------------------------------------- 9. attention


@quiet
def attention(q_BHTd: Array, k_BKTd: Array, v_BKTd: Array) -> tuple[Array, Saved]:
    group = q_BHTd.shape[1] // k_BKTd.shape[1]
    length, width = q_BHTd.shape[2:]
    levels = attention_levels(max(width, min(TILE, length)))
    q, q_step = grid(q_BHTd, -1, levels)
    k, k_step = grid(np.repeat(k_BKTd, group, axis=1), -1, levels)
    v, v_step = grid(np.repeat(v_BKTd, group, axis=1), -1, levels)
    q_step = q_step * _root_factor(width)

    out, peak, inverse = np.zeros_like(q_BHTd), np.empty_like(q_step), np.empty_like(q_step)
    for rows in _tiles(length):
        seen = slice(0, rows.stop)
        z = _scores(q[..., rows, :], q_step[..., rows, :], k[..., seen, :], k_step[..., seen, :])
        weights, peak[..., rows, :], inverse[..., rows, :] = _weights(z, rows.start)
        total = out[..., rows, :]
        for keys in _tiles(rows.stop):
            mixed, step = grid(weights[..., keys] * _turned(v_step[..., keys, :]), -1, levels)
            total = total + narrow(product(mixed, v[..., keys, :])) * step
        out[..., rows, :] = total * inverse[..., rows, :]
    return out, (group, levels, (q, q_step, k, k_step, v, v_step), (out, peak, inverse))


def _scores(q: Wide, q_step: Array, k: Wide, k_step: Array) -> Array:
    return narrow(product(q, _turned(k))) * q_step * _turned(k_step)


def _weights(z: Array, first: int) -> tuple[Array, Array, Array]:
    """Weights that are not divided yet, each row's largest score, and what divides them."""
    hidden = _hidden(z, first)
    peak = largest(np.where(hidden, np.float32(-np.inf), z))
    weights = np.where(hidden, np.float32(0.0), exp(z - peak))
    total = rint(weights * np.float32(2.0**23)).sum(axis=-1, keepdims=True)
    return weights, peak, narrow(1.0 / (total * 2.0**-23))


@quiet
def attention_gradient(g_BHTd: Array, saved: Saved) -> tuple[Array, Array, Array]:
    """Gradients of queries, keys and values."""
    group, levels, (q, q_step, k, k_step, v, v_step), (out, peak, inverse) = saved
    length, width = g_BHTd.shape[2:]
    e = narrow(exact_sum(g_BHTd * out, -1))
    g, g_step = grid(g_BHTd, -1, levels)
    dq, dk, dv = (np.zeros_like(g_BHTd) for _ in range(3))
    for i in _tiles(length):
        for j in _tiles(i.stop):
            at_i, at_j = (..., i, slice(None)), (..., j, slice(None))
            z = _scores(q[at_i], q_step[at_i], k[at_j], k_step[at_j])
            hidden = _hidden(z, i.start - j.start)
            share = exp(z - peak[at_i]) * inverse[at_i]
            d_share = narrow(product(g[at_i], _turned(v[at_j])))
            d_share = d_share * (g_step[at_i] * _turned(v_step[at_j])) - e[at_i]
            slope = np.where(hidden, np.float32(0.0), share * d_share)
            share = np.where(hidden, np.float32(0.0), share)
            n, step = grid(share * g_step[at_i], -2, levels)
            dv[at_j] += narrow(product(_turned(n), g[at_i])) * _turned(step)
            n, step = grid(slope * _turned(k_step[at_j]), -1, levels)
            dq[at_i] += narrow(product(n, k[at_j])) * step
            n, step = grid(slope * q_step[at_i], -2, levels)
            dk[at_j] += narrow(product(_turned(n), q[at_i])) * _turned(step)
    return dq * _root_factor(width), _shared(dk, group), _shared(dv, group)


def _root_factor(width: int) -> np.float32:
    return np.float32(1.0 / math.sqrt(width))


def _tiles(length: int) -> list[slice]:
    return [slice(at, min(at + TILE, length)) for at in range(0, length, TILE)]


def _turned(x):
    return np.swapaxes(x, -1, -2)


def _hidden(z: Array, first: int) -> NDArray[np.bool_]:
    """Whether key j comes after query i: j > first + i."""
    rows, keys = z.shape[-2:]
    return np.arange(keys)[None, :] > first + np.arange(rows)[:, None]


def _shared(x_BHTd: Array, group: int) -> Array:
    """Sums over the query heads that read one key head, in their order."""
    batch, heads, length, width = x_BHTd.shape
    members = x_BHTd.reshape(batch, heads // group, group, length, width)
    total = members[:, :, 0]
    for member in range(1, group):
        total = total + members[:, :, member]
    return total


# ---------------------------------------------------------------------------------- 10. gates


def swiglu(gate: Array, up: Array) -> Array:
    return one_nan(gate * sigmoid(gate) * up)


def swiglu_gradient(g: Array, gate: Array, up: Array) -> tuple[Array, Array]:
    """Gradients of gate and up."""
    s = sigmoid(gate)
    u = gate * s
    slope = s + u * (np.float32(1.0) - s)
    return one_nan(g * up * slope), one_nan(g * u)


def squared_relu(x: Array) -> Array:
    a = np.where(x < 0, np.float32(0.0), x)
    return one_nan(a * a)


def squared_relu_gradient(g: Array, x: Array) -> Array:
    return one_nan(g * (np.where(x < 0, np.float32(0.0), x) * np.float32(2.0)))


# -------------------------------------------------------------------------------- 11. dropout


def drop(x: Array, keep: NDArray[np.bool_], scale: np.float32) -> Array:
    """Its gradient is itself."""
    return np.where(keep.reshape(x.shape), one_nan(x * scale), np.float32(0.0))


# ----------------------------------------------------------------------------------- 12. loss


def cross_entropy(logits_NV: Array, targets_N: Ids) -> tuple[np.float32, Saved]:
    """A negative target is none."""
    dz_NV, losses_N = _per_token(logits_NV, targets_N)
    share = _share(int((targets_N >= 0).sum()))
    loss = narrow(exact_sum(losses_N, 0) * share)
    return loss[0], (dz_NV, share)


def _per_token(logits_NV: Array, targets_N: Ids) -> tuple[Array, Array]:
    """dz and ℓ of every token."""
    z_NV = one_nan(logits_NV - largest(logits_NV))
    w_NV = exp(z_NV)
    total_N1 = rint(w_NV * np.float32(2.0**30)).sum(axis=1, keepdims=True) * 2.0**-30
    hidden_N = targets_N < 0
    at = np.arange(len(targets_N)), np.where(hidden_N, 0, targets_N)
    dz_NV = w_NV * narrow(1.0 / total_N1)
    dz_NV[at] = dz_NV[at] - np.float32(1.0)
    dz_NV[hidden_N] = np.float32(0.0)
    losses_N = ln(narrow(total_N1[:, 0])) - z_NV[at]
    losses_N[hidden_N] = np.float32(0.0)
    return one_nan(dz_NV), losses_N


def cross_entropy_gradient(c: np.float32, saved: Saved) -> Array:
    """The gradient of the logits, where the loss has the gradient c."""
    dz_NV, share = saved
    return dz_NV * narrow(wide(c) * share)


def policy_loss(logits_NV: Array, targets_N: Ids, weights_N: Array) -> tuple[np.float32, Saved]:
    """R5 of SPEC.md, 25: Σ ℓ · a, and what its gradient is made of."""
    dz_NV, losses_N = _per_token(logits_NV, targets_N)
    loss = narrow(exact_sum(losses_N * weights_N, 0))
    return loss[0], dz_NV * weights_N[:, None]


def _share(targets: int) -> float:
    return 1.0 / targets if targets else 0.0
