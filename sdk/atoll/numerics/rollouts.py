"""What a step samples and learns: completions by its own parameters, and their advantages.

Rule of this file: rollouts are a function of the parameters, the job's data and a place. Ids that
somebody says were sampled are taken only where each is what the sampler gives, by one forward pass
of them all; so who has them does the training again, and not the generation.

Shapes: N sequences, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from atoll.numerics.batch import MicroBatch
from atoll.numerics.generate import Generated, Generator, Request, generate, marked
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.model import head_inputs
from atoll.numerics.problems import Problem, Problems
from atoll.numerics.rewards import advantages, reward_of
from atoll.numerics.sampling import Draw, Row, sample
from atoll.numerics.schedule import Recipe
from atoll.numerics.tensors import tree_root
from atoll.protocol.checkpoint_commitments import rollouts_digest
from atoll.protocol.draws import batch_offsets, sample_key
from atoll.protocol.method_spec import InnerSpec
from atoll.protocol.task_spec import TaskSpec
from atoll.protocol.types import Digest, SeatIndex

IDS: Final = "ids"
"""What a step's ids are called in their tree."""
_WORD: Final = 1 << 64
_CHECKED_AT_ONCE: Final = 1 << 13
"""Tokens whose logits are there at a time."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which step samples.

    Attributes:
        step: in the round, from 0; global_step: of the job.
    """

    data_seed: Digest
    seat: SeatIndex
    step: int
    global_step: int


@dataclass(frozen=True, slots=True)
class Rollouts:
    """A step's completions, prompt by prompt and in each group one after another.

    Attributes:
        ids: int64 [batch, seq + 1].
        targets: int64 [batch, seq], −1 where no token was sampled.
        weights: fp32 [batch, seq], what the loss of a sampled token is multiplied by.
        rewards: of each completion.
        below: int64 [batch, seq + 1], of each token, as `Generated` has it.
        drawn: the sum of each micro-batch's, modulo 2^64.
        is_finite: whether every row of logits that was sampled from had a finite maximum.
    """

    ids: Tensor
    targets: Tensor
    weights: Tensor
    rewards: tuple[int, ...]
    below: Tensor
    drawn: tuple[int, ...]
    is_finite: bool

    def micro_batches(self, size: int) -> list[MicroBatch]:
        """Of so many sequences each."""
        ids, targets, weights = self.ids[:, :-1], self.targets, self.weights
        spans = (slice(at, at + size) for at in range(0, len(self.ids), size))
        return [
            MicroBatch(ids[span], targets[span], weights[span], is_sampled=True) for span in spans
        ]

    @property
    def signed(self) -> Tensor:
        """The ids as a trace has them, int64 [batch, seq + 1]: −1 − id where none was sampled."""
        is_sampled = torch.nn.functional.pad(self.targets >= 0, (1, 0))
        return torch.where(is_sampled, self.ids, ~self.ids)

    def after(self, before: Digest) -> Digest:
        """The digest of all that was sampled in the round, with this step's: H(before, ids)."""
        return rollouts_digest(before, tree_root({IDS: self.signed.to(torch.int32)}))


Make: TypeAlias = Callable[[Mapping[str, Tensor], Generator, Request], Generated]
"""Generates what is asked, by the parameters and by the generator that was made of them."""


def make_here(params: Mapping[str, Tensor], generator: Generator, request: Request) -> Generated:
    """This process does it by itself."""
    del params
    return generate(generator, request)


def ids_bytes(sampled: Mapping[int, Tensor]) -> bytes:
    """Ids as a provider serves them: signed, little-endian int32, step by step."""
    return b"".join(ids.numpy().astype("<i4").tobytes() for _, ids in sorted(sampled.items()))


def read_ids(raw: bytes, *, batch: int, seq: int) -> dict[int, Tensor]:
    """The ids that such bytes have, by step: of whole steps, as many as there are."""
    size = batch * (seq + 1)
    words = np.frombuffer(raw[: len(raw) // (4 * size) * 4 * size], "<i4").astype(np.int64)
    signed = torch.from_numpy(words).view(-1, batch, seq + 1)
    steps = torch.where(signed < 0, ~signed, signed)
    return dict(enumerate(steps))


@dataclass(frozen=True, slots=True)
class Sampler:
    """Makes a job's rollouts.

    Attributes:
        make: what generates; whatever it is, the result has to be the law's.
    """

    task: TaskSpec
    inner: InnerSpec
    recipe: Recipe
    problems: Problems
    make: Make = make_here

    def rollouts(
        self, params: Mapping[str, Tensor], place: Place, claimed: Tensor | None = None
    ) -> Rollouts:
        """Of a step that begins with these parameters.

        Args:
            claimed: ids [batch, seq + 1] that somebody says are sampled; ours are made where they
                are not.

        Raises:
            MalformedDataset: a row of the data is none.
        """
        task = self.task
        problems = self._problems(place)
        ops = self.recipe.ops
        assert isinstance(ops, ExactOps)  # nothing else is sampled from alike
        generator = Generator.of(params, self.recipe.model, ops, self.recipe.base)
        request = Request(
            prompts=[problem.prompt for problem in problems],
            new_tokens=task.new_tokens,
            ends=frozenset(task.ends),
            draw=Draw(sample_key(place.data_seed, place.seat), place.global_step),
        )
        made = None if claimed is None else checked(generator, request, claimed)
        if made is None:
            made = self.make(params, generator, request)
        return self._learned(problems, made)

    def _problems(self, place: Place) -> list[Problem]:
        """The step's prompts, each as often as its group has members."""
        count = self.inner.batch // self.task.group
        rows = batch_offsets(place.data_seed, place.seat, place.step, count, self.task.prompts)
        drawn = [self.problems.row(row) for row in rows]
        return [problem for problem in drawn for _ in range(self.task.group)]

    def _learned(self, problems: Sequence[Problem], made: Generated) -> Rollouts:
        task, texts = self.task, self.problems.texts()
        spans = [
            (len(problem.prompt), length)
            for problem, length in zip(problems, made.lengths, strict=True)
        ]
        rewards = [
            reward_of(made.ids[row, start:stop].tolist(), problem, task, texts)
            for row, (problem, (start, stop)) in enumerate(zip(problems, spans, strict=True))
        ]
        share = 1.0 / (len(problems) * task.new_tokens)
        weights_N = torch.tensor(advantages(rewards, task.group), dtype=torch.float64) * share
        sampled = torch.zeros(made.ids[:, 1:].shape, dtype=torch.bool)
        for row, (start, stop) in enumerate(spans):
            sampled[row, start - 1 : stop - 1] = True
        size = self.inner.micro_batch
        return Rollouts(
            ids=made.ids,
            targets=made.ids[:, 1:].masked_fill(~sampled, -1),
            weights=torch.where(sampled, weights_N.float()[:, None], 0.0),
            rewards=tuple(rewards),
            below=made.below,
            drawn=tuple(
                sum(made.drawn[at : at + size]) % _WORD for at in range(0, len(problems), size)
            ),
            is_finite=made.is_finite,
        )


def checked(generator: Generator, request: Request, claimed: Tensor) -> Generated | None:
    """What was generated, where these ids are it; None where they are not.

    None, too, where one forward pass of all ids does not say what the law does.
    """
    seq, count = generator.spec.seq, len(request.prompts)
    is_fit = claimed.shape == (count, seq + 1) and claimed.dtype == torch.int64
    if not (generator.is_cached and is_fit and request.draw is not None):
        return None
    if not bool(((claimed >= 0) & (claimed < generator.spec.vocab)).all()):
        return None
    lengths = [
        _length(row, len(prompt), request)
        for row, prompt in zip(claimed.tolist(), request.prompts, strict=True)
    ]
    if not _is_whole(claimed, request, lengths):
        return None
    below, weights = torch.zeros_like(claimed), generator.weights()
    size = max(1, _CHECKED_AT_ONCE // seq)
    for first in range(0, count, size):
        rows = range(first, min(first + size, count))
        # Behind the longest nothing was sampled, and nothing of it reaches what was.
        longest = max(lengths[row] for row in rows) - 1
        with torch.no_grad():
            ids = claimed[first : first + size, :longest].to(generator.ops.device)
            values = head_inputs(weights, ids)
            for row in rows:
                start, stop = len(request.prompts[row]), lengths[row]
                logits = weights.head(values[row - first, start - 1 : stop - 1][None])[0]
                positions = torch.arange(start - 1, stop - 1, device=logits.device)
                place = Row.along(positions, row + request.first_place)
                sampled = sample(logits, place, request.draw, generator.ops.engine.kernels)
                if sampled.ids.tolist() != claimed[row, start:stop].tolist():
                    return None
                below[row, start:stop] = marked(sampled).cpu()
    return Generated(claimed, tuple(lengths), below)


def _length(row: Sequence[int], start: int, request: Request) -> int:
    """Of a sequence whose ids after the prompt's are these."""
    limit = min(start + request.new_tokens, len(row))
    ends = (at + 1 for at in range(start, limit) if row[at] in request.ends)
    return next(ends, limit)


def _is_whole(claimed: Tensor, request: Request, lengths: Sequence[int]) -> bool:
    """Whether sequences begin with their prompts, and have nothing behind their ends."""
    return all(
        row[: len(prompt)] == list(prompt) and not any(row[length:])
        for row, prompt, length in zip(claimed.tolist(), request.prompts, lengths, strict=True)
    )
