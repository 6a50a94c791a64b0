"""Text packed for sequences: what fits in one is in one, and no target is across a border."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.jobs import PLAIN
from tests.unit.train.corpus.test_prepare import (
    store,  # noqa: F401
    tokens_of,
    write_files,
)

from atoll.errors import ConfigError
from atoll.job.prepare_manifest import prepare_data
from atoll.numerics.batch import Windows
from atoll.storage.local import LocalStore
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.prepare import prepare

SEQ, BIT, END = 700, 1 << 15, 0


def padding_behind(size: int, seq: int) -> int:
    """Tokens from there to the end of the sequence."""
    return -size % seq


def test_a_document_that_fits_is_whole_in_a_sequence_and_begins_without_a_target(
    tmp_path: Path,
    store: LocalStore,  # noqa: F811
) -> None:
    paths = write_files(tmp_path / "texts")
    data = prepare(DataOptions((tmp_path / "texts",), held_out="0.2", packed=SEQ), store)
    assert (data.dtype, data.masked, data.aligned) == ("uint16", True, True)
    texts = {path.read_bytes() for path in paths}
    assert all(len(text) < SEQ for text in texts)
    for words, count, targets in zip(
        map(np.array, tokens_of(store, data)),
        (data.train_documents, data.eval_documents),
        (data.train_targets, data.eval_targets),
        strict=True,
    ):
        assert len(words) % SEQ == 1  # the last sequence has a token behind it
        assert int((words < BIT).sum()) == targets
        packed = set[bytes]()
        for start in range(0, len(words) - 1, SEQ):
            window = words[start : start + SEQ]
            assert window[0] >= BIT  # so that the sequence before has no target here
            ids = bytes((window & (BIT - 1)).astype(np.uint8))
            packed |= {text for text in ids.split(bytes([END])) if text}
            begins = [0, *(np.flatnonzero(np.frombuffer(ids, np.uint8) == END)[:-1] + 1)]
            assert (window[begins] >= BIT).all()
        assert packed <= texts
        assert len(packed) == count


def test_a_longer_document_begins_with_a_sequence_and_is_cut(
    tmp_path: Path,
    store: LocalStore,  # noqa: F811
) -> None:
    write_files(tmp_path / "texts", 20)
    options = DataOptions((tmp_path / "texts",), held_out="0.2", packed=50)
    words = np.array(tokens_of(store, prepare(options, store))[0])
    is_end = (words == END).nonzero()[0]  # of a document: padding has the mask bit
    starts = [0, *(end + 1 + padding_behind(end + 1, 50) for end in is_end[:-1])]
    assert (words[starts] >= BIT).all()
    assert int((words < BIT).sum()) == len(b"".join(texts_of(words, starts, is_end)))


def texts_of(words: np.ndarray, starts: list[int], ends: np.ndarray) -> list[bytes]:
    """What is learned of each document, its end among it."""
    return [
        bytes((words[start + 1 : end + 1] & (BIT - 1)).astype(np.uint8))
        for start, end in zip(starts, ends, strict=True)
    ]


def test_answers_of_a_packed_talk_keep_their_targets(
    tmp_path: Path,
    store: LocalStore,  # noqa: F811
) -> None:
    talks = [
        [{"role": "user", "content": f"{at}?"}, {"role": "assistant", "content": f"{at}."}]
        for at in range(200)
    ]
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps({"messages": talk}) for talk in talks))
    options = DataOptions((rows,), chat=True, held_out="0.2")
    plain, packed = prepare(options, store), prepare(replace(options, packed=96), store)
    assert (packed.train_targets, packed.eval_targets) == (plain.train_targets, plain.eval_targets)
    assert packed.train_tokens > plain.train_tokens
    words = np.array(tokens_of(store, packed)[0], np.uint16)
    read = Windows(words, 96, BIT).at(range(0, len(words) - 96, 96))
    begins = "".join(map(chr, read.ids[0, :9].tolist()))
    assert begins == "<|user|>\n"
    assert read.count == packed.train_targets
    assert bytes(read.ids[:, :9].numpy().astype(np.uint8)) == b"<|user|>\n" * len(read.ids)


@pytest.mark.parametrize("packed", [0, SEQ])
def test_a_preparation_for_other_sequences_is_another_one(
    packed: int,
    tmp_path: Path,
    store: LocalStore,  # noqa: F811
) -> None:
    write_files(tmp_path / "texts")
    options = DataOptions((tmp_path / "texts",), held_out="0.2", packed=packed)
    first = prepare(options, store)
    assert prepare(replace(options, packed=SEQ + 1), store).root != first.root
    assert prepare(options, store) == first


def test_a_job_file_packs_for_its_own_sequences(tmp_path: Path, store: LocalStore) -> None:  # noqa: F811
    write_files(tmp_path / "texts", 400)
    job = PLAIN.but({"data.paths": [str(tmp_path / "texts")], "data.packed": True, "rounds": 1})
    assert job.model is not None
    data = prepare_data(job, store)
    assert (data.aligned, data.masked, data.train_tokens % job.model.seq) == (True, True, 1)
    assert not prepare_data(job.but({"data.packed": False}), store).aligned
    with pytest.raises(ConfigError, match="the job names none"):
        prepare_data(job.but({"model": None}), store)
