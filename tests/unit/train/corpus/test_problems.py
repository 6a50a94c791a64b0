"""Prompts and answers as people write them become rows, and tokens' texts are the tokenizer's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs import PLAIN
from tests.unit.train.factories import small_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from atoll.errors import ConfigError
from atoll.job.prepare_manifest import prepare_task, prepare_text
from atoll.job.spec import JobSpec
from atoll.job.toml_files import to_toml
from atoll.numerics.errors import DataUnusable
from atoll.numerics.problems import Problem, Problems
from atoll.protocol.manifest import NumericsSpec
from atoll.protocol.types import Digest
from atoll.storage.local import LocalStore
from atoll.train.corpus.problems import PreparedProblems
from atoll.train.course import open_training_tokens
from atoll.train.tokenizer import byte_tokenizer

ROWS = [
    {"prompt": "2+2=", "answer": "4"},
    {"prompt": [{"role": "user", "content": "Hi"}], "answer": "hello"},
]


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", sync=False)


def job_of(folder: Path, rows: list[Any], **changes: Any) -> JobSpec:
    file = folder / "problems.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    task = {"prompts": [str(file)], "new_tokens": 8, "group": 4} | changes.pop("task", {})
    return PLAIN.but({"task": task, "model": small_model(seq=64), "evaluate.batches": 0, **changes})


def prepared(folder: Path, store: LocalStore, rows: list[Any], **changes: Any) -> PreparedProblems:
    return prepare_task(job_of(folder, rows, **changes), store)


def test_a_job_of_problems_is_a_manifest(tmp_path: Path, store: LocalStore) -> None:
    spec = job_of(tmp_path, ROWS)
    assert JobSpec.of(_parsed(to_toml(spec))) == spec
    made = prepare_task(spec, store)
    digest = Digest(bytes(32))
    numerics = NumericsSpec(code_digest=digest, probe_digest=digest)
    manifest = spec.resolve(made.data, None, numerics, now=0, task=made.task)
    assert manifest.task == made.task
    assert type(manifest).from_bytes(manifest.to_bytes()) == manifest
    assert (made.task.prompts, made.task.group, made.task.answer_bytes) == (2, 4, 5)
    words = open_training_tokens(manifest, store)
    words.check()
    rows = Problems(words, made.task, made.vocab)
    assert rows.row(0) == Problem(tuple(b"2+2="), b"4")
    assert bytes(rows.row(1).prompt) == b"<|user|>\nHi\n<|assistant|>\n"
    assert rows.texts() == [bytes([token]) for token in range(256)]


def _parsed(text: str) -> dict[str, Any]:
    from atoll.job.toml_files import parse_toml

    return parse_toml(text)


@pytest.mark.parametrize("is_bytes", [True, False], ids=["byte level", "sentence pieces"])
def test_texts_are_the_tokenizers(tmp_path: Path, store: LocalStore, is_bytes: bool) -> None:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    if is_bytes:
        letters = byte_tokenizer().get_vocab()
        tokenizer = Tokenizer(models.BPE({**letters, "Ġa": 256}, [("Ġ", "a")]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        known = {256: b" a", 255: bytes([255])}
    else:
        pieces = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁a": 256}
        tokenizer = Tokenizer(models.BPE(pieces, [], byte_fallback=True))
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
        known = {256: b" a", 10: b"\n"}
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    made = prepared(
        tmp_path, store, ROWS[:1],
        **{"data.tokenizer": str(folder), "model": small_model(seq=64, vocab=300)},
    )  # fmt: skip
    assert made.task.ends == (257,)
    words = store.read_bytes(_cid(made.data.cid), 1 << 20)
    import numpy as np

    texts = Problems(np.frombuffer(words, "<u2"), made.task, made.vocab).texts()
    assert {token: texts[token] for token in known} == known
    assert texts[257] == texts[299] == b""


def _cid(raw: bytes) -> Any:
    from atoll.storage.cid import Cid

    return Cid.from_bytes(raw)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"prompt": "x"}, "no text under 'answer'"),
        ({"prompt": "", "answer": "x"}, "neither text nor messages"),
        ({"prompt": [{"role": "user"}], "answer": "x"}, "neither text nor messages"),
        ({"prompt": 3, "answer": "x"}, "neither text nor messages"),
        (["x"], "no text under 'answer'"),
    ],
)
def test_rows_that_are_none_are_named(
    tmp_path: Path, store: LocalStore, row: Any, complaint: str
) -> None:
    with pytest.raises(DataUnusable, match=f"line 2: .*{complaint}"):
        prepared(tmp_path, store, [ROWS[0], row])


def test_a_file_without_rows_is_refused(tmp_path: Path, store: LocalStore) -> None:
    with pytest.raises(DataUnusable, match="no prompt"):
        prepared(tmp_path, store, [])
    with pytest.raises(ConfigError, match="names no prompts"):
        prepare_task(PLAIN, store)


def test_a_job_is_prepared_by_its_task(tmp_path: Path, store: LocalStore) -> None:
    spec = job_of(tmp_path, ROWS)
    made = prepare_text(spec, store)
    assert made == prepare_task(spec, store)
    assert made.task is not None
    assert {pin.reason for pin in store.pins()} == {"data"}
