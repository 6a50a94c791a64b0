"""A text, continued by a job's model: the law's generation, between a tokenizer's two ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tokenizers import Tokenizer

from atoll.errors import ConfigError
from atoll.numerics.errors import MalformedDataset
from atoll.numerics.generate import Generator, Request, generate
from atoll.numerics.kernels.philox import LOW32
from atoll.numerics.sampling import Draw
from atoll.train.belongings import CONFIG, GENERATION, Belongings
from atoll.train.said_once import parse
from atoll.train.tokenizer import tokenizing

_MOST_ENDS: Final = 64


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample.

    Attributes:
        length: tokens to add to the prompt, unless the model ends before.
        is_greedy: takes the likeliest token each time.
        seed: below 2^64.
        ends: tokens after which the text ends.
    """

    length: int = 200
    is_greedy: bool = False
    seed: int = 0
    ends: frozenset[int] = frozenset()


def continue_text(
    generator: Generator, tokenizer: Tokenizer, prompt: str, sampling: Sampling
) -> str:
    """The prompt, continued.

    Where it fills the model's positions, it goes on after the last half of them.

    Raises:
        ConfigError: the prompt has no tokens.
        MalformedDataset: the tokenizer fails, or has more tokens than the model.
    """
    spec = generator.spec
    with _refusing():
        # Without what a tokenizer adds to a text: no text that was trained on had it.
        ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    if max(ids, default=0) >= spec.vocab:
        raise MalformedDataset(
            f"the job's tokenizer has token {max(ids)}, of the {spec.vocab} that the model knows"
        )
    if not ids:
        raise ConfigError("an empty prompt cannot be continued", next_step="give at least a word")
    wanted = len(ids) + sampling.length
    while len(ids) < wanted:
        # The step says how much is there already: the same places come again with each half.
        draw = Draw((sampling.seed & LOW32, sampling.seed >> 32 & LOW32), step=len(ids))
        read = ids if len(ids) < spec.seq else ids[-(spec.seq // 2) :]
        request = Request(
            prompts=[read],
            new_tokens=wanted - len(ids),
            ends=sampling.ends,
            draw=None if sampling.is_greedy else draw,
        )
        made = generate(generator, request)
        ids += made.ids[0, len(read) : made.lengths[0]].tolist()
        if ids[-1] in sampling.ends:
            break
    with _refusing():
        return str(tokenizer.decode(ids))


def ends_of(belongings: Belongings) -> frozenset[int]:
    """The tokens after which the model's folder says that a text ends; none where it says none."""
    for name in (GENERATION, CONFIG):
        try:
            document = parse(belongings.files[name])
        except (KeyError, ValueError):
            continue
        value = document.get("eos_token_id") if isinstance(document, dict) else None
        ends = value if isinstance(value, list) else [value]
        if len(ends) <= _MOST_ENDS and all(type(end) is int and end >= 0 for end in ends):
            return frozenset(ends)
    return frozenset()


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        with tokenizing():
            yield
    except ValueError as error:
        raise MalformedDataset(f"the job's tokenizer fails: {error}") from error
