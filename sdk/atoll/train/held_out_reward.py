"""What a model's likeliest answers are worth, to prompts that it was not trained on."""

from __future__ import annotations

from statistics import fmean

from atoll.errors import ManifestError
from atoll.numerics.generate import Generator, Request, generate
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.problems import Problems
from atoll.numerics.rewards import reward_of
from atoll.numerics.schedule import Recipe
from atoll.numerics.shards import Held
from atoll.protocol.manifest import Manifest
from atoll.storage.local import LocalStore
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.problems import read_problems
from atoll.train.course import open_training_tokens
from atoll.train.open_base import open_base


def held_out_reward(
    params: Held, manifest: Manifest, store: LocalStore, prompts: DataOptions
) -> float:
    """The mean reward as a share of all weights together.

    Raises:
        ManifestError: the job has no task.
        DataUnusable: a row cannot be taken, or its prompt leaves no room for an answer.
        NotFound, CorruptBlock, MalformedDataset: the job's data, or its base, cannot be used.
    """
    task, spec = manifest.task, manifest.model
    if task is None:
        raise ManifestError("the job has no task whose rewards could be measured")
    problems = read_problems(prompts, longest=spec.seq - task.new_tokens)
    recipe = Recipe.of(manifest, open_base(manifest, store))
    assert isinstance(recipe.ops, ExactOps)  # as in `Sampler`
    made = generate(
        Generator.of(params, spec, recipe.ops, recipe.base),
        Request(
            prompts=[problem.prompt for problem in problems],
            new_tokens=task.new_tokens,
            ends=frozenset(task.ends),
        ),
    )
    texts = Problems(open_training_tokens(manifest, store), task, spec.vocab).texts()
    rewards = [
        reward_of(made.ids[row, len(problem.prompt) : length].tolist(), problem, task, texts)
        for row, (problem, length) in enumerate(zip(problems, made.lengths, strict=True))
    ]
    return fmean(rewards) / sum(reward.weight for reward in task.rewards)
