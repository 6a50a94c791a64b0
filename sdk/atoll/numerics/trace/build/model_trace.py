"""A micro-batch: the model's forward, its loss, and its gradients (SPEC-STEP.md, 4, 10 to 13)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from atoll.numerics.kernels.philox import Mask
from atoll.numerics.trace.build.attention_trace import attention
from atoll.numerics.trace.build.graph import Graph, Region, Value
from atoll.numerics.trace.build.grids import (
    f32,
    f64,
    grid,
    grid_sum,
    joined,
    largest,
    rounded_sum,
    total,
    transposed,
    view,
)
from atoll.numerics.trace.build.linear_trace import biased, head, linears
from atoll.numerics.trace.build.making import CONTEXT, Back, Making, chained
from atoll.numerics.trace.build.norm_and_rotary import from_heads, normed, rotated, to_heads
from atoll.numerics.trace.integers import MAX_BLOCK, PREFIX_BLOCK
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.families import LINEARS
from atoll.protocol.program import Source

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
WEIGHT_ONE = 2.0**30
"""What C2 sums weights in."""
LossOf: TypeAlias = Callable[[Value], tuple[Value, Value]]
"""From logits to the loss f32 [1] and the gradient of the logits."""


def micro_batch(m: Making) -> Value:
    """The loss of a micro-batch f32 [1]; its gradients are met in `m` (S1)."""
    read = _read(m)
    return learned(m, read.tokens, lambda logits: _loss(m, logits, read))


def learned(m: Making, tokens: Value, loss_of: LossOf) -> Value:
    """The loss of tokens i32 [b, T + 1], −1 − id where one is no target."""
    with m.graph.within(Region.BODY):
        ids = m.graph.add(Op.IDS, [tokens], m.tokens, [m.spec.seq])
        x, backs = forward(m, ids)
        logits, back = head(m, x, head_name(m))
        loss, g = loss_of(logits)
        chained([*backs, back])(g)
    return loss


def forward(m: Making, ids: Value) -> tuple[Value, list[Back]]:
    """What the head reads of ids i32 [b, T], and how gradients come back."""
    x, embedding_back = _embedded(m, ids)
    x, drop_back = dropped(m, x, 0)
    backs = [embedding_back, drop_back]
    for layer in range(m.spec.layers):
        x, back = LAYERS[m.spec.kind](m, x, layer)
        backs.append(back)
    x, back = normed(m, x, "model.norm")
    return x, [*backs, back]


def head_name(m: Making) -> str:
    """The weights of the head."""
    return EMBEDDING if m.spec.tied else HEAD


@dataclass(frozen=True, slots=True)
class _Read:
    """What a micro-batch reads, and how many of its targets are learned.

    Attributes:
        tokens: i32 [b, T + 1], −1 − id where a token has weight 0; targets: [b, T], likewise.
        count: of the micro-batch; batch_count: of all micro-batches of the step.
    """

    tokens: Value
    targets: Value
    count: Value
    batch_count: Value


def _read(m: Making) -> _Read:
    g, data, size = m.graph, m.manifest.data, m.inner.micro_batch
    source = Value(Source.TOKENS, 0, data.token_bytes, data.train_tokens)
    seq = m.spec.seq
    drawn = [data.windows(seq), data.stride(seq)]
    with g.within(Region.COUNTS):
        words = [size, seq, data.token_bytes, int(data.masked), *drawn]
        tokens = g.add(Op.TOKENS, [source, CONTEXT], size * (m.spec.seq + 1), words)
        targets = g.add(Op.TARGETS, [tokens], m.tokens, [m.spec.seq])
        blocks = -(-m.tokens // MAX_BLOCK)
        counted = g.add(Op.COUNT_TARGETS, [targets], blocks, [m.tokens, MAX_BLOCK])
        count = total(g, counted, blocks)
    with g.within(Region.SHARES):
        each = [count.of(at) for at in range(g.micro_batches)]
        batch_count = total(g, joined(g, each), g.micro_batches)
    return _Read(tokens, targets, count, batch_count)


Part: TypeAlias = Callable[[Value], tuple[Value, Back]]
"""A norm, attention, an MLP or dropout: its value, and how a gradient comes back."""


def _norm_first(m: Making, x: Value, layer: int) -> tuple[Value, Back]:
    """M2 to M7, with a norm of what attention and MLP read."""
    return _layer(m, x, layer, lambda norm, inner: (norm, inner))


def _norm_last(m: Making, x: Value, layer: int) -> tuple[Value, Back]:
    """M2 to M7, with a norm of what attention and MLP give."""
    return _layer(m, x, layer, lambda norm, inner: (inner, norm))


def _layer(
    m: Making, x: Value, layer: int, ordered: Callable[[Part, Part], tuple[Part, Part]]
) -> tuple[Value, Back]:
    at, backs = f"model.layers.{layer}.", []
    for branch, inner in enumerate((_attention, _mlp)):
        parts = ordered(
            partial(normed, m, name=at + m.spec.layer_kind.norms[branch]), partial(inner, m, at=at)
        )
        drop = partial(dropped, m, site=2 * layer + 1 + branch)
        x, back = _added(m.graph, x, (*parts, drop))
        backs.append(back)
    return x, chained(backs)


def _added(g: Graph, x: Value, parts: Sequence[Part]) -> tuple[Value, Back]:
    """x + what the parts make of it, one after the other."""
    y, backs = x, list[Back]()
    for part in parts:
        y, back = part(y)
        backs.append(back)
    through = chained(backs)
    total = g.add(Op.ADD, [x, y], x.elements)
    return total, lambda gy: g.add(Op.ADD, [gy, through(gy)], gy.elements)


def _attention(m: Making, h: Value, at: str) -> tuple[Value, Back]:
    """M2 and M3."""
    names = [at + LINEARS[name] for name in ("q", "k", "v")]
    outputs, qkv_back = linears(m, h, names)
    keys = m.spec.kv_heads
    q_norm, k_norm = at + "self_attn.q_norm", at + "self_attn.k_norm"
    q, q_back = _heads_of(m, outputs[0], linear=names[0], heads=m.spec.heads, norm=q_norm)
    k, k_back = _heads_of(m, outputs[1], linear=names[1], heads=keys, norm=k_norm)
    v, v_back = _heads_of(m, outputs[2], linear=names[2], heads=keys)
    mixed, attention_back = attention(m, q=q, k=k, v=v)
    (y,), out_back = linears(m, from_heads(m, mixed, m.spec.heads), [at + LINEARS["o"]])

    def back(gy: Value) -> Value:
        d = attention_back(to_heads(m, out_back([gy]), m.spec.heads))
        return qkv_back([q_back(d.q), k_back(d.k), v_back(d.v)])

    return y, back


def _heads_of(
    m: Making, y: Value, *, linear: str, heads: int, norm: str = ""
) -> tuple[Value, Back]:
    """Queries, keys or values by head, with bias; those with a norm's name are turned."""
    backs = list[Back]()
    if m.spec.qkv_bias:
        y, back = biased(m, y, f"{linear}.bias")
        backs.append(back)
    normalises, by_head = bool(norm) and m.spec.qk_norm, m.spec.layer_kind.norms_heads
    if normalises and not by_head:  # while a token's heads still are one row
        y, back = normed(m, y, norm)
        backs.append(back)
    y = to_heads(m, y, heads)
    backs.append(lambda g: from_heads(m, g, heads))
    if normalises and by_head:  # the rows of a norm may stand in any order
        y, back = normed(m, y, norm)
        backs.append(back)
    if norm:
        y, back = rotated(m, y)
        backs.append(back)
    return y, chained(backs)


def _mlp(m: Making, h: Value, at: str) -> tuple[Value, Back]:
    """M6, and M7's linear."""
    inputs, in_back = linears(m, h, [at + LINEARS[name] for name in m.spec.mlp_inputs])
    hidden, hidden_back = ACTIVATIONS[m.spec.mlp](m.graph, inputs)
    (y,), down_back = linears(m, hidden, [at + LINEARS["down"]])
    return y, lambda gy: in_back(hidden_back(down_back([gy])))


Activated: TypeAlias = tuple[Value, Callable[[Value], list[Value]]]


def _swiglu(g: Graph, inputs: list[Value]) -> Activated:
    count = inputs[0].elements

    def back(gu: Value) -> list[Value]:
        gate = g.add(Op.SWIGLU_DGATE, [gu, *inputs], count)
        return [gate, g.add(Op.SWIGLU_DUP, [gu, inputs[0]], count)]

    return g.add(Op.SWIGLU, inputs, count), back


def _relu2(g: Graph, inputs: list[Value]) -> Activated:
    count = inputs[0].elements
    back = Op.RELU2_GRADIENT
    return g.add(Op.RELU2, inputs, count), lambda gu: [g.add(back, [gu, *inputs], count)]


LAYERS: Mapping[str, Callable[[Making, Value, int], tuple[Value, Back]]] = MappingProxyType(
    {"llama": _norm_first, "olmo2": _norm_last}
)
ACTIVATIONS: Mapping[str, Callable[[Graph, list[Value]], Activated]] = MappingProxyType(
    {"swiglu": _swiglu, "relu2": _relu2}
)
"""As `atoll.numerics.model` has them: what is computed, and how a gradient comes back."""


def dropped(m: Making, x: Value, site: int) -> tuple[Value, Back]:
    """Dropout of a site of the whole batch (D1, D2); x itself where nothing is dropped."""
    if m.inner.dropout == "0":
        return x, lambda g: g
    mask = Mask(m.inner.dropout, (0, 0), step=0, site=site, first=0)
    words = [mask.threshold, f32(mask.scale), site, 0, x.elements]
    g = m.graph
    key = m.once("dropout key", lambda: g.add(Op.DROPOUT_KEY, [CONTEXT], 2))
    step = m.once("global step", lambda: g.add(Op.GLOBAL_STEP, [CONTEXT], 1))

    def drop(y: Value) -> Value:
        return g.add(Op.DROPOUT, [y, key, step], y.elements, words)

    return drop(x), drop


def _embedded(m: Making, ids: Value) -> tuple[Value, Back]:
    """Rows of the table (E1 to E3)."""
    g, table = m.graph, m.weight(EMBEDDING)
    width, vocab = m.spec.width, m.spec.vocab

    def back(gy: Value) -> Value:
        keys = _sorted_keys(g, ids)
        turned = transposed(g, gy, width)
        up, step = grid(g, turned, m.tokens, 2**22)
        integers = g.add(Op.GATHER_GRID, [turned, up, keys[0]], gy.elements, [m.tokens])
        starts = g.add(Op.LOWER_BOUND, keys, vocab + 1, [vocab, keys[0].elements])
        inputs = [starts, prefix(g, integers, m.tokens), step]
        m.meet(EMBEDDING, g.add(Op.SUM_BY_ID, inputs, vocab * width, [width, m.tokens]))
        return gy

    return g.add(Op.EMBED, [ids, table], m.tokens * width, [width]), back


def _sorted_keys(g: Graph, ids: Value) -> list[Value]:
    """The tokens by id and then place, by a bitonic network; every 128th of them, and so on."""
    size = 1 << (ids.elements - 1).bit_length()
    keys = g.add(Op.SORT_KEYS, [ids], size, [ids.elements, size])
    k = 2
    while k <= size:
        j = k // 2
        while j:
            keys = g.add(Op.SORT_STAGE, [keys], size, [k, j])
            j //= 2
        k *= 2
    levels = [keys]
    while levels[-1].elements > PREFIX_BLOCK:
        count = levels[-1].elements // PREFIX_BLOCK
        levels.append(view(g, levels[-1], (count,), (PREFIX_BLOCK,)))
    return levels


def prefix(g: Graph, x: Value, columns: int) -> Value:
    """Inclusive prefix sums of the rows of i64 [R, columns]."""
    words, rows = [columns, PREFIX_BLOCK], x.elements // columns
    within = g.add(Op.PREFIX, [x], x.elements, words)
    blocks = -(-columns // PREFIX_BLOCK)
    if blocks == 1:
        return within
    totals = g.add(Op.SUM_I64, [x], rows * blocks, words)
    before = prefix(g, totals, blocks)
    return g.add(Op.ADD_BEFORE, [within, before], x.elements, words)


def _loss(m: Making, logits: Value, read: _Read) -> tuple[Value, Value]:
    """Cross entropy f32 [1] and the gradient of the logits (C1 to C6)."""
    g, vocab = m.graph, m.spec.vocab
    parts = token_losses(m, logits, read.targets)
    summed, step = grid_sum(g, parts.losses, m.tokens, 2**22)
    loss = g.add(Op.LOSS, [summed, step, read.count], 1)
    scale = g.add(Op.LOSS_SCALE, [read.count, read.batch_count], 1)
    inputs = [parts.weights, parts.totals, read.targets, scale]
    return loss, g.add(Op.DLOGITS, inputs, logits.elements, [vocab])


@dataclass(frozen=True, slots=True)
class TokenLosses:
    """C1 to C3.

    Attributes:
        losses: f32 [N], 0 where a target is none.
        weights: f32 [N, V]; totals: their sums, f64 [N].
    """

    losses: Value
    weights: Value
    totals: Value


def token_losses(m: Making, logits: Value, targets: Value) -> TokenLosses:
    """Of logits [N, V] and targets i32 [N]."""
    g, vocab, tokens = m.graph, m.spec.vocab, m.tokens
    peak, weights = soft_weights(m, logits)
    sums = rounded_sum(g, weights, vocab, WEIGHT_ONE)
    totals = g.add(Op.TOTAL, [sums], tokens, [f64(1.0 / WEIGHT_ONE)])
    losses = g.add(Op.TOKEN_LOSS, [logits, peak, totals, targets], tokens, [vocab])
    return TokenLosses(losses, weights, totals)


def soft_weights(m: Making, logits: Value) -> tuple[Value, Value]:
    """The rows' maxima, and C1."""
    g, vocab = m.graph, m.spec.vocab
    peak = largest(g, logits, vocab, Op.MAX)
    return peak, g.add(Op.SOFT_WEIGHT, [logits, peak], logits.elements, [vocab])
