"""Too little is refused with how much is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.jobs import PLAIN

from atoll.job.prepare_manifest import prepare_data
from atoll.numerics.errors import DataUnusable
from atoll.protocol.types import Digest
from atoll.storage.local import LocalStore
from atoll.train.corpus.enough import Appetite, check_enough
from atoll.train.corpus.options import PUBLIC_NOTICE
from atoll.train.corpus.prepare import PreparedData

DATA = PreparedData(
    cid=b"", root=Digest(bytes(32)), nodes_cid=b"", eval_cid=b"", tokenizer_cid=b"",
    dtype="uint16", masked=True, aligned=False, vocab=300,
    train_tokens=1000, train_targets=10, train_documents=3,
    eval_tokens=65, eval_targets=1, eval_documents=1,
)  # fmt: skip
JOB = Appetite(seq=64, sequences=1562)


def test_enough_is_taken() -> None:
    check_enough(DATA, JOB)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"train_tokens": 64, "train_targets": 64}, "64 tokens to train on, 65 .* 1 are missing"),
        ({"eval_tokens": 60}, "60 tokens to evaluate on, 65 .*: 5 are missing"),
        ({"train_tokens": 999}, "99968 tokens, 100 times the 999 .*: 1 are missing"),
        ({"train_targets": 9}, "9 of 1000 tokens to train on are answers"),
        ({"eval_targets": 0}, "0 of 65 to evaluate on"),
    ],
)
def test_too_little_is_said_in_numbers(changes: dict[str, int], complaint: str) -> None:
    with pytest.raises(DataUnusable, match=complaint) as caught:
        check_enough(replace(DATA, **changes), JOB)  # type: ignore[arg-type]
    assert caught.value.next_step


def test_a_job_reads_what_its_method_makes_of_rounds_and_steps(tmp_path: Path) -> None:
    """Of 80,000 steps `demo` does 200, one a round, and `lo_fi` the 400 of its one round."""
    text, store = tmp_path / "text.txt", LocalStore(tmp_path / "store", sync=False)
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 1000)
    sizes = {"rounds": 200, "inner.steps": 400, "inner.batch": 1}
    job = PLAIN.but({"data.paths": [str(text)], **sizes})
    with pytest.raises(DataUnusable, match="the job reads 20480000 tokens"):
        prepare_data(job, store)
    for method in ("demo", "lo_fi"):
        prepare_data(job.but({"method.name": method}), store)


def test_the_notice_says_that_data_becomes_public() -> None:
    assert "public" in PUBLIC_NOTICE
