"""What comes out of a job: a loss, a sample of text, and a word about the machine."""

from __future__ import annotations

import math
import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.support.merging import all_standing, bearing_none
from tests.unit.train.factories import Job
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from atoll.aggregation.merge_round import merge
from atoll.errors import ConfigError, ManifestError, NumericsMismatch
from atoll.numerics.errors import MalformedDataset
from atoll.numerics.generate import Generator
from atoll.numerics.held_out_loss import batch_losses, window_starts
from atoll.numerics.ops import operations
from atoll.protocol.losses import mean_loss
from atoll.train import probe
from atoll.train.belongings import Belongings
from atoll.train.continue_text import Sampling, continue_text, ends_of
from atoll.train.evaluate import evaluate
from atoll.train.round import TrainedRound
from atoll.train.tokenizer import byte_tokenizer


def test_training_lowers_the_evaluation_loss(job: Job, trained: TrainedRound) -> None:
    manifest, seed = bearing_none(job.manifest), job.task.data_seed
    record, updates = all_standing([2], manifest), {2: trained.update}
    found = merge(job.model, updates, record=record, data_seed=seed, manifest=manifest)
    before = evaluate(job.model.params, job.manifest, job.store)
    assert before == evaluate(job.model.params, job.manifest, job.store)
    assert before == pytest.approx(math.log(256), rel=0.01)
    assert evaluate(found.global_state.params, job.manifest, job.store) < before


def test_windows_span_the_whole_set() -> None:
    assert window_starts(100, 5) == [0, 25, 50, 75, 100]
    assert window_starts(3, 1) == [0]
    assert window_starts(0, 3) == [0, 0, 0]
    assert window_starts(100, 5, range(2, 4)) == [50, 75]
    assert window_starts(100, 5, stride=30) == [0, 0, 30, 60, 90]


def test_a_batch_of_many_windows_takes_no_more_memory_than_one_of_few(job: Job) -> None:
    """A job may have 2²⁵: a list of them all, a batch, would take gigabytes and days."""
    data = job.manifest.data.model_copy(update={"eval_batches": 1 << 16})
    manifest = job.manifest.model_copy(update={"data": data})
    tokens = np.arange(1000, dtype=np.uint8)
    tracemalloc.start()
    losses, counts = batch_losses(job.model.params, manifest, tokens, (1 << 16) - 1)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(losses) == len(counts) == manifest.inner.batch // manifest.inner.micro_batch
    assert most < 1 << 20


def test_the_mean_is_rounded_once() -> None:
    tenth, most = 0.1, 2.0**24
    assert (
        mean_loss([tenth] * 10, [1] * 10) == tenth
    )  # a sum of binary64 would be 0.9999999999999999
    assert mean_loss([2.0, 5.0], [3, 1]) == 2.75
    assert mean_loss([most, 2.0**-60, -most], [1, 1, 1]) == 2.0**-60 / 3
    assert math.isnan(mean_loss([], []))
    assert math.isnan(mean_loss([1.0, math.nan], [1, 1]))


def test_an_evaluation_set_must_be_there_and_long_enough(job: Job) -> None:
    def manifest(**changes: object) -> object:
        data = job.manifest.data.model_copy(update=changes)
        return job.manifest.model_copy(update={"data": data})

    with pytest.raises(ManifestError, match="no evaluation set"):
        evaluate(job.model.params, manifest(eval_cid=None), job.store)  # type: ignore[arg-type]
    model = job.manifest.model.model_copy(update={"seq": 100_000})
    with pytest.raises(MalformedDataset, match="less than one sequence"):
        evaluate(job.model.params, job.manifest.model_copy(update={"model": model}), job.store)


def generator_of(job: Job) -> Generator:
    return Generator.of(job.model.params, job.manifest.model, operations())


def letters() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({f"{i}": i for i in range(256)}, unk_token="1"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return tokenizer


def test_text_continues_the_prompt_and_repeats(job: Job) -> None:
    def sample(**changes: object) -> str:
        sampling = replace(Sampling(length=20), **changes)  # type: ignore[arg-type]
        return continue_text(generator_of(job), byte_tokenizer(), "line 1: the quick", sampling)

    assert sample().startswith("line 1: the quick")
    assert sample() == sample()
    assert sample(seed=1) != sample()
    assert sample(is_greedy=True) == sample(is_greedy=True, seed=5)
    assert sample(ends=frozenset(range(256))) == sample(length=1)


def test_a_text_is_longer_than_the_model(job: Job) -> None:
    length = job.manifest.model.seq + 10
    sampling = Sampling(length=length, is_greedy=True)
    text = continue_text(generator_of(job), letters(), "line", sampling)
    assert len(text.split()) == len("line") + length


def test_end_tokens_are_those_of_the_folder() -> None:
    def ends(**files: str) -> frozenset[int]:
        named = {f"{name}.json": text.encode() for name, text in files.items()}
        return ends_of(Belongings({"tokenizer.json": b""} | named))

    assert ends() == ends(config="[]", generation_config="not JSON") == frozenset()
    assert ends(config='{"eos_token_id": 2}') == {2}
    both = {"config": '{"eos_token_id": 2}', "generation_config": '{"eos_token_id": [3, 4]}'}
    assert ends(**both) == {3, 4}
    assert ends(config='{"eos_token_id": [1.5, true, -1]}') == frozenset()


def test_a_prompt_has_what_the_text_had_and_no_mark_that_a_tokenizer_adds(job: Job) -> None:
    marking: Tokenizer = byte_tokenizer()
    marking.post_processor = processors.TemplateProcessing(
        single="$A A", pair=None, special_tokens=[("A", 65)]
    )
    sampling = Sampling(length=0)
    said = continue_text(generator_of(job), marking, "line", sampling)
    assert said == "line"


def test_an_empty_prompt_is_refused(job: Job) -> None:
    empty: Tokenizer = byte_tokenizer()
    with pytest.raises(ConfigError, match="empty prompt"):
        continue_text(generator_of(job), empty, "", Sampling())


@pytest.mark.parametrize(
    ("token", "complaint"),
    [("a", "token 70000, of the 256 that the model"), ("z", "tokenizer fails: .*UNK")],
)
def test_a_tokenizer_that_is_not_the_models_is_refused(
    job: Job, token: str, complaint: str
) -> None:
    others = Tokenizer(models.WordLevel({"a": 70_000}, unk_token="[UNK]"))
    with pytest.raises(MalformedDataset, match=complaint):
        continue_text(generator_of(job), others, token, Sampling())


def test_this_machine_reproduces_its_own_manifest(job: Job) -> None:
    probe.check_environment(job.manifest)
    assert torch.are_deterministic_algorithms_enabled()
    assert probe.probe_digest.__wrapped__() == probe.probe_digest()


def test_nothing_reads_memory_that_nobody_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """New tensors full of NaN come to the same bits as new tensors full of whatever was there."""
    known = probe.probe_digest()
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    assert probe.probe_digest.__wrapped__() == known


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("code_digest", bytes(32), "training code"),
        ("probe_digest", bytes(32), "the probe gives"),
    ],
)
def test_another_machine_is_refused_before_tables_are_worked_out(
    job: Job, field: str, value: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can name a job whose tables take half a minute."""
    monkeypatch.setattr(probe, "check_tables", lambda _: pytest.fail("tables were worked out"))
    numerics = job.manifest.numerics.model_copy(update={field: value})
    with pytest.raises(NumericsMismatch, match=message) as caught:
        probe.check_environment(job.manifest.model_copy(update={"numerics": numerics}))
    assert caught.value.next_step


def test_tasks_and_results_cross_into_a_worker_process(job: Job, trained: TrainedRound) -> None:
    for value in (job.task, trained, job.replay(trained)):
        assert pickle.loads(pickle.dumps(value)) == value
