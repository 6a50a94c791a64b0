"""The trace of one generated token: the forward pass of what is before it (SPEC.md, 24).

It exists in a game alone: GENERATED has no formula, and where two differ about one of its tokens,
the search goes on here. The state is the step's.
"""

from __future__ import annotations

from atoll.numerics.trace.build.graph import Graph, Value
from atoll.numerics.trace.build.grids import f32, view
from atoll.numerics.trace.build.linear_trace import head
from atoll.numerics.trace.build.making import Making
from atoll.numerics.trace.build.model_trace import (
    WEIGHT_ONE,
    forward,
    head_name,
    prefix,
    soft_weights,
)
from atoll.numerics.trace.build.rollout_trace import data_of, row_words, task_of
from atoll.numerics.trace.build.step_trace import optimiser_tree
from atoll.numerics.trace.imports import TOKEN_CONTEXT_BYTES
from atoll.numerics.trace.integers import PREFIX_BLOCK
from atoll.numerics.trace.opcodes import Op
from atoll.numerics.trace.rollout_operations import TOKEN_WORDS
from atoll.protocol.manifest import Manifest
from atoll.protocol.program import Source

CONTEXT = Value(Source.CONTEXT, 0, 1, TOKEN_CONTEXT_BYTES)


def make_generation(manifest: Manifest, taken: int | None = None) -> tuple[Making, Value]:
    """The graph of a token, and its result; `taken` is the fragment that the step takes in."""
    of_one = manifest.inner.model_copy(update={"batch": 1, "micro_batch": 1})
    tree = optimiser_tree(manifest)
    m = Making.of(manifest.model_copy(update={"inner": of_one}), tree, taken)
    g, seq, width = m.graph, m.spec.seq, m.spec.width
    size = manifest.inner.micro_batch
    generated = Value(Source.GENERATED, 0, 4, size * (seq + 1) * TOKEN_WORDS)
    ids = g.add(Op.SEQUENCE, [generated, CONTEXT], seq, [size, seq])
    x, _ = forward(m, ids)
    row = g.add(Op.ROW, [x, CONTEXT], width, [width, seq])
    logits, _ = head(m, row, head_name(m))
    sampled = _sampled(m, logits)
    prompt = _prompt(m)
    task = task_of(m)
    words = [size, seq, task.prompt_tokens, task.new_tokens, *task.ends]
    inputs = [prompt, sampled, generated, CONTEXT]
    return m, g.add(Op.TOKEN, inputs, TOKEN_WORDS, words)


def _sampled(m: Making, logits: Value) -> Value:
    """G3 and G4, of one row of logits."""
    g, vocab = m.graph, m.spec.vocab
    peak, weights = soft_weights(m, logits)
    whole = g.add(Op.SUM_ROUND, [weights], vocab, [vocab, 1, f32(WEIGHT_ONE)])
    sums = prefix(g, whole, vocab)
    drawn = g.add(Op.DRAWN, [sums, CONTEXT], 1, [vocab, m.spec.seq])
    return g.add(Op.SAMPLE, [drawn, peak, *_levels(g, sums)], 2, [vocab])


def _levels(g: Graph, sums: Value) -> list[Value]:
    """The sums, every 128th of them, and so on, while the last are more than 128."""
    levels = [sums]
    while levels[-1].elements > PREFIX_BLOCK:
        count = -(-levels[-1].elements // PREFIX_BLOCK)
        levels.append(view(g, levels[-1], (count,), (PREFIX_BLOCK,)))
    return levels


def _prompt(m: Making) -> Value:
    task = task_of(m)
    words = [m.spec.seq, task.group, *row_words(m)]
    return m.graph.add(Op.PROMPT, [data_of(m), CONTEXT], 1 + task.prompt_tokens, words)
