"""The model, forward and back: SPEC-STEP.md, chapter 13.

Activations are [N, D], tokens in the order of sequences and then positions. `drop(x, site)` is the
step's dropout; it drops the same elements of a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.second_client import kernels
from tests.second_client.arithmetic import Array
from tests.second_client.documents import EMBEDDING, HEAD
from tests.second_client.families import LAYERS
from tests.second_client.kernels import Ids, Saved

Params = dict[str, Array]
Tables = tuple[Array, Array]
Drop = Callable[[Array, int], Array]
NORM = "model.norm.weight"


def loss_of(params: Params, ids_BT1: Ids, model: dict[str, Any], tables: Tables) -> np.float32:
    """The mean loss of a micro-batch, without dropout."""
    return _forward(params, ids_BT1, model, tables, lambda x, site: x)[0]


def logits_of(params: Params, ids_BT: Ids, model: dict[str, Any], tables: Tables) -> Array:
    """Of ids, a row a position, without dropout."""
    return _logits(params, ids_BT, model, tables, lambda x, site: x)[0]


def policy_gradients(
    params: Params, ids_BT1: Ids, weights_BT: Array, model: dict[str, Any], tables: Tables
) -> tuple[np.float32, Params]:
    """The loss of what was sampled with these weights, and its gradients."""
    ids, targets = _inputs(ids_BT1), ids_BT1[:, 1:].reshape(-1)
    logits, saved = _logits(params, ids, model, tables, lambda x, site: x)
    loss, g = kernels.policy_loss(logits, targets, weights_BT.reshape(-1))
    return loss, _backward(params, ids, (g, saved), model, lambda x, site: x)


def loss_and_gradients(
    params: Params, ids_BT1: Ids, model: dict[str, Any], tables: Tables, drop: Drop, c: np.float32
) -> tuple[np.float32, Params]:
    """The mean loss of a micro-batch, and the gradients of c times it.

    Args:
        params: with a frozen base's parameters, where adapters are trained.
        ids_BT1: token ids, T inputs and T targets one further; −1 − id where it is no target.
        model: the manifest's; with adapters it has their `scale` beside.
        tables: cosines and sines of as many positions.
    """
    loss, saved, saved_loss = _forward(params, ids_BT1, model, tables, drop)
    g = kernels.cross_entropy_gradient(c, saved_loss)
    return loss, _backward(params, _inputs(ids_BT1), (g, saved), model, drop)


def _backward(
    params: Params, ids: Ids, upstream: tuple[Array, Saved], model: dict[str, Any], drop: Drop
) -> Params:
    """The gradients, from that of the logits on."""
    g, (saved_layers, saved_norm, saved_head) = upstream
    top = _top(params)
    found: Params = {}
    g, found[top] = kernels.head_gradient(g, saved_head)
    g, found[NORM] = kernels.rms_norm_gradient(g, saved_norm)
    for layer in reversed(range(model["layers"])):
        back = _LAYERS[model["kind"]][1]
        g, gradients = back(g, saved_layers[layer], drop, layer)
        for n, value in gradients.items():
            found[f"model.layers.{layer}.{n}" + ("" if n.endswith(".bias") else ".weight")] = value
    looked_up = kernels.embedding_gradient(drop(g, 0), ids.reshape(-1), model["vocab"])
    found[EMBEDDING] = found[EMBEDDING] + looked_up if top == EMBEDDING else looked_up
    return {name: found[name] for name in params}


def _forward(
    params: Params, ids_BT1: Ids, model: dict[str, Any], tables: Tables, drop: Drop
) -> tuple[np.float32, Saved, Saved]:
    """The loss, and what the model and the loss leave for their gradients."""
    logits, saved = _logits(params, _inputs(ids_BT1), model, tables, drop)
    loss, saved_loss = kernels.cross_entropy(logits, ids_BT1[:, 1:].reshape(-1))
    return loss, saved, saved_loss


def _logits(
    params: Params, ids: Ids, model: dict[str, Any], tables: Tables, drop: Drop
) -> tuple[Array, Saved]:
    """The logits, and what each part leaves for its gradient."""
    x = drop(kernels.embedding(ids.reshape(-1), params[EMBEDDING]), 0)
    saved_layers = []
    for layer in range(model["layers"]):
        setting = model, tables, len(ids)
        x, saved = _LAYERS[model["kind"]][0](x, _weights(params, layer), setting, drop, layer)
        saved_layers.append(saved)
    normed, saved_norm = kernels.rms_norm(x, params[NORM], float(model["norm_eps"]))
    logits, saved_head = kernels.head(normed, params[_top(params)])
    return logits, (saved_layers, saved_norm, saved_head)


def _inputs(ids_BT1: Ids) -> Ids:
    """All tokens but the last ones, targets or not."""
    return np.where(ids_BT1 < 0, ~ids_BT1, ids_BT1)[:, :-1]


def _top(params: Params) -> str:
    """The parameter that the logits are taken with."""
    return HEAD if HEAD in params else EMBEDDING


def _weights(params: Params, layer: int) -> Params:
    start = f"model.layers.{layer}."
    inside = {n[len(start) :]: p for n, p in params.items() if n.startswith(start)}
    return {name.removesuffix(".weight"): p for name, p in inside.items()}


def _llama(x: Array, weights: Params, setting: Any, drop: Drop, layer: int) -> tuple[Array, Saved]:
    eps, gains = float(setting[0]["norm_eps"]), [weights[name] for name in LAYERS["llama"].norms]
    normed, saved_1 = kernels.rms_norm(x, gains[0], eps)
    added, saved_2 = _attention(normed, weights, setting)
    x = x + drop(added, 2 * layer + 1)
    normed, saved_3 = kernels.rms_norm(x, gains[1], eps)
    added, saved_4 = _mlp(normed, weights, setting[0].get("scale"))
    return x + drop(added, 2 * layer + 2), (saved_1, saved_2, saved_3, saved_4)


def _llama_gradient(g: Array, saved: Saved, drop: Drop, layer: int) -> tuple[Array, Params]:
    first, second = LAYERS["llama"].norms
    back, found = _mlp_gradient(drop(g, 2 * layer + 2), saved[3])
    back, found[second] = kernels.rms_norm_gradient(back, saved[2])
    g = g + back
    back, others = _attention_gradient(drop(g, 2 * layer + 1), saved[1])
    back, found[first] = kernels.rms_norm_gradient(back, saved[0])
    return g + back, found | others


def _olmo2(x: Array, weights: Params, setting: Any, drop: Drop, layer: int) -> tuple[Array, Saved]:
    eps, gains = float(setting[0]["norm_eps"]), [weights[name] for name in LAYERS["olmo2"].norms]
    made, saved_1 = _attention(x, weights, setting)
    normed, saved_2 = kernels.rms_norm(made, gains[0], eps)
    x = x + drop(normed, 2 * layer + 1)
    made, saved_3 = _mlp(x, weights, setting[0].get("scale"))
    normed, saved_4 = kernels.rms_norm(made, gains[1], eps)
    return x + drop(normed, 2 * layer + 2), (saved_1, saved_2, saved_3, saved_4)


def _olmo2_gradient(g: Array, saved: Saved, drop: Drop, layer: int) -> tuple[Array, Params]:
    gains: Params = {}
    first, second = LAYERS["olmo2"].norms
    back, gains[second] = kernels.rms_norm_gradient(drop(g, 2 * layer + 2), saved[3])
    back, of_mlp = _mlp_gradient(back, saved[2])
    g = g + back
    back, gains[first] = kernels.rms_norm_gradient(drop(g, 2 * layer + 1), saved[1])
    back, of_attention = _attention_gradient(back, saved[0])
    return g + back, gains | of_mlp | of_attention


_LAYERS: dict[str, tuple[Callable[..., Any], Callable[..., tuple[Array, Params]]]] = {
    "llama": (_llama, _llama_gradient),
    "olmo2": (_olmo2, _olmo2_gradient),
}
"""A layer of each kind, and its gradient."""


# ---------------------------------------------------------------------------------- linears


def linears(x: Array, names: Sequence[str], weights: Params, scale: Any) -> tuple[Array, Saved]:
    """Linears of one input, side by side; those that have an adapter with it."""
    widths = [len(weights[name]) for name in names]
    y, saved = kernels.linear(x, np.concatenate([weights[name] for name in names]))
    targets = [name for name in names if f"{name}.lora_A" in weights]
    if not targets:
        return y, (names, widths, saved, targets, scale, None, [])
    low, saved_a = kernels.linear(x, np.concatenate([weights[f"{n}.lora_A"] for n in targets]))
    parts, saved_b = np.split(y, np.cumsum(widths)[:-1], axis=1), []
    for name, u in zip(targets, np.split(low, len(targets), axis=1), strict=True):
        z, saved_one = kernels.linear(u, weights[f"{name}.lora_B"])
        saved_b.append(saved_one)
        parts[names.index(name)] = parts[names.index(name)] + z * scale
    return np.concatenate(parts, axis=1), (names, widths, saved, targets, scale, saved_a, saved_b)


def linears_gradient(g: Array, saved: Saved) -> tuple[Array, Params]:
    names, widths, saved_w, targets, scale, saved_a, saved_b = saved
    dx, dw = kernels.linear_gradient(g, saved_w)
    cuts = np.cumsum(widths)[:-1]
    found = dict(zip(names, np.split(dw, cuts), strict=True))
    if not targets:
        return dx, found
    parts, lows = np.split(g, cuts, axis=1), []
    for name, saved_one in zip(targets, saved_b, strict=True):
        low, found[f"{name}.lora_B"] = kernels.linear_gradient(
            parts[names.index(name)] * scale, saved_one
        )
        lows.append(low)
    back, da = kernels.linear_gradient(np.concatenate(lows, axis=1), saved_a)
    found |= {f"{n}.lora_A": d for n, d in zip(targets, np.split(da, len(targets)), strict=True)}
    return dx + back, found


# -------------------------------------------------------------------------------- attention

_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_OUT = "self_attn.o_proj"
_NORMS = ("self_attn.q_norm", "self_attn.k_norm")


def _attention(x: Array, weights: Params, setting: Any) -> tuple[Array, Saved]:
    model, (cos_Td, sin_Td), sequences = setting
    projected, saved_qkv = linears(x, _QKV, weights, model.get("scale"))
    heads, biased = (model["heads"], model["kv_heads"], model["kv_heads"]), model["qkv_bias"]
    if biased:
        biases = np.concatenate([weights[f"{n}.bias"] for n in _QKV])
        projected = kernels.add_bias(projected, biases)
    q, k, v = _cut(projected, heads)
    saved_norms: list[Saved] = []
    if model["qk_norm"]:
        eps = float(model["norm_eps"])
        q, saved_q = _norm_of_rows(q, weights[_NORMS[0]], eps)
        k, saved_k = _norm_of_rows(k, weights[_NORMS[1]], eps)
        saved_norms = [saved_q, saved_k]
    q, k, v = (_heads(t, sequences, model["head_dim"]) for t in (q, k, v))
    q, k = (kernels.rotate(t, cos_Td, sin_Td) for t in (q, k))
    mixed, saved_attention = kernels.attention(q, k, v)
    y, saved_out = linears(_tokens(mixed), (_OUT,), weights, model.get("scale"))
    return y, (saved_qkv, biased, saved_norms, (cos_Td, sin_Td), saved_attention, saved_out)


def _attention_gradient(g: Array, saved: Saved) -> tuple[Array, Params]:
    saved_qkv, biased, saved_norms, (cos_Td, sin_Td), saved_attention, saved_out = saved
    g, found = linears_gradient(g, saved_out)
    size, sequences = 2 * cos_Td.shape[1], len(g) // len(cos_Td)
    dq, dk, dv = kernels.attention_gradient(_heads(g, sequences, size), saved_attention)
    parts = [_tokens(t) for t in (*(kernels.rotate(t, cos_Td, -sin_Td) for t in (dq, dk)), dv)]
    for index, saved_norm in enumerate(saved_norms):
        rows = parts[index].reshape(saved_norm[0])
        back, found[_NORMS[index]] = kernels.rms_norm_gradient(rows, saved_norm[1])
        parts[index] = back.reshape(parts[index].shape)
    if biased:
        found |= {f"{n}.bias": kernels.bias_gradient(p) for n, p in zip(_QKV, parts, strict=True)}
    dx, others = linears_gradient(np.concatenate(parts, axis=1), saved_qkv)
    return dx, found | others


def _norm_of_rows(x_NA: Array, gain_I: Array, eps: float) -> tuple[Array, Saved]:
    """Each head of each token is a row, or all heads of a token are: as many as there are gains."""
    rows = x_NA.reshape(-1, len(gain_I))
    y, saved = kernels.rms_norm(rows, gain_I, eps)
    return y.reshape(x_NA.shape), (rows.shape, saved)


def _cut(x: Array, heads: tuple[int, ...]) -> list[Array]:
    """Columns of as many heads each."""
    size = x.shape[1] // sum(heads)
    return np.split(x, [heads[0] * size, (heads[0] + heads[1]) * size], axis=1)


def _heads(x_ND: Array, sequences: int, size: int) -> Array:
    """[N, heads · d] as [B, heads, T, d]."""
    return x_ND.reshape(sequences, -1, x_ND.shape[1] // size, size).transpose(0, 2, 1, 3)


def _tokens(x_BHTd: Array) -> Array:
    """[B, heads, T, d] as [N, heads · d]."""
    batch, heads, length, size = x_BHTd.shape
    return x_BHTd.transpose(0, 2, 1, 3).reshape(batch * length, heads * size)


# -------------------------------------------------------------------------------------- MLP

_GATE, _UP, _DOWN = "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"


def _mlp(x: Array, weights: Params, scale: Any) -> tuple[Array, Saved]:
    gated = _GATE in weights
    wide, saved_first = linears(x, (_GATE, _UP) if gated else (_UP,), weights, scale)
    parts = np.split(wide, 2, axis=1) if gated else [wide]
    hidden = kernels.swiglu(*parts) if gated else kernels.squared_relu(wide)
    y, saved_down = linears(hidden, (_DOWN,), weights, scale)
    return y, (saved_first, parts, saved_down)


def _mlp_gradient(g: Array, saved: Saved) -> tuple[Array, Params]:
    saved_first, parts, saved_down = saved
    g, found = linears_gradient(g, saved_down)
    if len(parts) == 2:
        g = np.concatenate(kernels.swiglu_gradient(g, *parts), axis=1)
    else:
        g = kernels.squared_relu_gradient(g, parts[0])
    dx, others = linears_gradient(g, saved_first)
    return dx, found | others
