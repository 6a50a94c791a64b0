"""What a step samples, what it is worth and how it is learned, as nodes (SPEC.md, 25)."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.numerics.rewards import MOST_REWARD
from atoll.numerics.rollouts import IDS
from atoll.numerics.trace.build.graph import Graph, Region, Value
from atoll.numerics.trace.build.grids import blocks, exact_sum, f64, joined, total, view
from atoll.numerics.trace.build.making import CONTEXT, Making, StateTree
from atoll.numerics.trace.build.model_trace import learned, token_losses
from atoll.numerics.trace.integers import MAX_BLOCK
from atoll.numerics.trace.opcodes import Op
from atoll.numerics.trace.rollout_operations import CELL_BYTES, TOKEN_WORDS
from atoll.protocol.program import Source
from atoll.protocol.task_spec import RewardSpec, TaskSpec

TOKEN_BLOCK = 64
"""Tokens of a block of SUM_BELOW and COUNT_INFINITE: 1 KiB."""
_ANY = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class SampledStep:
    """What the end of a step reads of what was sampled; nodes of a micro-batch but for `tree`.

    Attributes:
        loss: f32 [1].
        ids: i32 [b, T + 1], −1 − id where none was generated.
        drawn, infinite: i64 [1].
        tree: of all micro-batches' ids.
    """

    loss: Value
    ids: Value
    drawn: Value
    infinite: Value
    tree: StateTree

    def all_ids(self, g: Graph) -> Value:
        """Of the step."""
        return joined(g, [self.ids.of(at) for at in range(g.micro_batches)])


def sampled_ids(m: Making) -> Value:
    """Of all steps of a round, as its update has them."""
    tree, step, steps = _ids_tree(m), 4 * m.inner.batch * (m.spec.seq + 1), m.inner.steps
    source = Value(Source.SAMPLED, 0, 1, step * steps)
    words = [step, steps]
    inputs = [source, CONTEXT]
    return m.graph.add(Op.SAMPLED_IDS, inputs, step * steps // 4, words, tail=tree.prefix(IDS))


def _ids_tree(m: Making) -> StateTree:
    return StateTree.of({IDS: (m.inner.batch, m.spec.seq + 1)}, {IDS: "int32"})


def task_of(m: Making) -> TaskSpec:
    """Of a job that has one."""
    if m.manifest.task is None:
        raise ValueError("a job of text samples nothing")
    return m.manifest.task


def data_of(m: Making) -> Value:
    """The words of the job's data."""
    data = m.manifest.data
    return Value(Source.TOKENS, 0, data.token_bytes, data.train_tokens)


def sampled_micro_batch(m: Making) -> SampledStep:
    """A micro-batch that is sampled and learned; its gradients are met in `m`."""
    g, seq, size = m.graph, m.spec.seq, m.inner.micro_batch
    count = size * (seq + 1)
    with g.within(Region.COUNTS):
        generated = g.add(Op.GENERATED, [], count * TOKEN_WORDS, [size, seq])
        ids = view(g, generated, (count,), (TOKEN_WORDS,))
        targets = g.add(Op.TARGETS, [ids], m.tokens, [seq])
        drawn = _over_tokens(g, Op.SUM_BELOW, generated, count)
        infinite = _over_tokens(g, Op.COUNT_INFINITE, generated, count)
        worth = _rewards(m, ids)
    with g.within(Region.SHARES):
        rewards = joined(g, [worth.of(at) for at in range(g.micro_batches)])
        sums = total(g, rewards, task_of(m).group)

    def loss_of(logits: Value) -> tuple[Value, Value]:
        return _policy_loss(m, logits, targets, _advantages(m, rewards, sums))

    loss = learned(m, ids, loss_of)
    return SampledStep(loss, ids, drawn, infinite, _ids_tree(m))


def _over_tokens(g: Graph, op: Op, generated: Value, count: int) -> Value:
    parts = blocks(count, TOKEN_BLOCK)
    return total(g, g.add(op, [generated], parts, [count, TOKEN_BLOCK]), parts)


def _rewards(m: Making, ids: Value) -> Value:
    """R3: what each sequence is worth, i64 [b]."""
    g, task, size = m.graph, task_of(m), m.inner.micro_batch
    reads_answers = any(each.properties.reads_answer for each in task.rewards)
    texts = [_windows(m, ids), _answers(m)] if reads_answers else []
    worth: list[Value] = []
    for each in task.rewards:
        if each.properties.reads_answer:
            words, tail = _match_words(m, each)
            is_met = g.add(Op.MATCH, texts, ids.elements, words, tail=tail)
            count, least, most = _counted(m, is_met), 1, _ANY
        else:
            count, least, most = _counted(m, ids), each.least, each.most
        words = [each.weight, least, most, len(worth[-1:])]
        worth.append(g.add(Op.REWARD, [count, *worth[-1:]], size, words))
    return worth[-1]


def _match_words(m: Making, reward: RewardSpec) -> tuple[list[int], bytes]:
    """Words and tail of a MATCH."""
    opening, closing = reward.opening.encode(), reward.closing.encode()
    return [m.spec.seq + 1, task_of(m).answer_bytes, len(opening)], opening + closing


def _counted(m: Making, x: Value) -> Value:
    """How many of each sequence's T + 1 integers are not negative, i64 [b]."""
    columns = m.spec.seq + 1
    parts = blocks(columns, MAX_BLOCK)
    rows = m.inner.micro_batch * parts
    counts = m.graph.add(Op.COUNT_TARGETS, [x], rows, [columns, MAX_BLOCK])
    return total(m.graph, counts, parts)


def _windows(m: Making, ids: Value) -> Value:
    """From each token on, the next bytes of the completion: u8 [b, T + 1, 65]."""
    g, task, columns = m.graph, task_of(m), m.spec.seq + 1
    elements = ids.elements * CELL_BYTES
    first = task.prompts * task.row_words
    words = [first, m.manifest.data.token_bytes]
    windows, distance = g.add(Op.CELLS, [ids, data_of(m)], elements, words), 1
    while distance < columns:
        windows = g.add(Op.WINDOW, [windows], elements, [columns, distance])
        distance *= 2
    return windows


def _answers(m: Making) -> Value:
    task, size = task_of(m), m.inner.micro_batch
    words = [size, task.group, *row_words(m)]
    elements = size * (1 + task.answer_bytes)
    return m.graph.add(Op.ANSWERS, [data_of(m), CONTEXT], elements, words)


def row_words(m: Making) -> list[int]:
    """How the rows of the data are: P, A, bytes of a word, how many rows."""
    task = task_of(m)
    return [task.prompt_tokens, task.answer_bytes, m.manifest.data.token_bytes, task.prompts]


def _advantages(m: Making, rewards: Value, sums: Value) -> Value:
    """R4: a of each sequence of the micro-batch, f32 [b]."""
    task, size, batch = task_of(m), m.inner.micro_batch, m.inner.batch
    factor, share = 1.0 / (MOST_REWARD * task.group), 1.0 / (batch * task.new_tokens)
    words = [size, task.group, f64(factor), f64(share)]
    return m.graph.add(Op.ADVANTAGE, [rewards, sums], size, words)


def _policy_loss(m: Making, logits: Value, targets: Value, a: Value) -> tuple[Value, Value]:
    """R5: the loss f32 [1] and the gradient of the logits."""
    g, vocab, seq = m.graph, m.spec.vocab, m.spec.seq
    parts = token_losses(m, logits, targets)
    weighed = g.add(Op.MUL_ROWS, [parts.losses, a], m.tokens, [seq])
    loss = exact_sum(g, weighed, m.tokens)
    of_tokens = view(g, a, (m.inner.micro_batch, seq), (1, 0))
    inputs = [parts.weights, parts.totals, targets, of_tokens]
    return loss, g.add(Op.POLICY_DLOGITS, inputs, logits.elements, [vocab])
