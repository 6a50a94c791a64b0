"""A sample of text from a model: for people to read, so sampling need not be exact."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

from atoll.errors import ConfigError
from atoll.numerics.errors import MalformedDataset
from atoll.numerics.model import forward
from atoll.numerics.ops import NativeOps
from atoll.numerics.state import Tensors
from atoll.protocol.model_spec import ModelSpec
from atoll.train.tokenizer import tokenizing


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample.

    Attributes:
        length: tokens to add to the prompt.
        temperature: 0 takes the likeliest token each time.
        top: only this many of the likeliest tokens are drawn from.
    """

    length: int = 200
    temperature: float = 0.8
    top: int = 40
    seed: int = 0


def generate(
    params: Tensors, spec: ModelSpec, tokenizer: Tokenizer, prompt: str, sampling: Sampling
) -> str:
    """The prompt, continued. Each token sees at most the last `spec.seq` before it.

    Raises:
        ConfigError: the prompt has no tokens.
        MalformedDataset: the tokenizer fails, or has more tokens than the model.
    """
    with _refusing():
        # Without what a tokenizer adds to a text: no text that was trained on had it.
        ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    if max(ids, default=0) >= spec.vocab:
        raise MalformedDataset(
            f"the job's tokenizer has token {max(ids)}, of the {spec.vocab} that the model knows"
        )
    if not ids:
        raise ConfigError("an empty prompt cannot be continued", next_step="give at least a word")
    generator = torch.Generator().manual_seed(sampling.seed)
    with torch.no_grad():
        for _ in range(sampling.length):
            window_1T = torch.tensor([ids[-spec.seq :]])
            logits_V = forward(params, window_1T, spec, NativeOps())[0, -1]
            ids.append(_draw(logits_V, sampling, generator))
    with _refusing():
        return str(tokenizer.decode(ids))


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        with tokenizing():
            yield
    except ValueError as error:
        raise MalformedDataset(f"the job's tokenizer fails: {error}") from error


def _draw(logits_V: torch.Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    if sampling.temperature <= 0.0:
        return int(logits_V.argmax())
    values, indices = logits_V.topk(min(sampling.top, len(logits_V)))
    weights = torch.softmax(values / sampling.temperature, dim=-1)
    return int(indices[torch.multinomial(weights, 1, generator=generator)])
