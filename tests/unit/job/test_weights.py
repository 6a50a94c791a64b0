"""Job files that name a folder to start from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.support.jobs import PLAIN
from tests.support.manifests import model_spec
from tests.unit.train.folders import make_folder

from atoll.errors import ConfigError
from atoll.job.prepare_manifest import prepare_data, prepare_weights
from atoll.job.spec import JobSpec
from atoll.job.submissions import key_of
from atoll.job.toml_files import to_toml
from atoll.storage.local import LocalStore
from atoll.train.pretrained import read_spec
from atoll.train.tokenizer import open_tokenizer


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", sync=False)


def job_from(folder: Path, **changes: object) -> JobSpec:
    text = folder.parent / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 600)
    plain = {"model": None, "init.folder": str(folder), "data.paths": [str(text)]}
    return PLAIN.but(plain | {path.replace("__", "."): v for path, v in changes.items()})


def test_a_folder_gives_model_tokenizer_and_weights(tmp_path: Path, store: LocalStore) -> None:
    make_folder(tmp_path / "model", "Qwen2", torch.bfloat16)
    spec, init = prepare_weights(job_from(tmp_path / "model", init__seq=24), store)
    assert spec.model == read_spec(tmp_path / "model", 24)
    assert init is not None and init.seed is None
    assert spec.data.tokenizer == str(tmp_path / "model" / "tokenizer.json")
    data = prepare_data(spec, store)
    assert open_tokenizer(store, data.tokenizer_cid).get_vocab_size() == 256
    assert spec.but({"init.seq": None, "model": None}) == job_from(tmp_path / "model").but(
        {"data.tokenizer": spec.data.tokenizer}
    )


def test_drawn_weights_need_no_folder(store: LocalStore) -> None:
    assert prepare_weights(PLAIN, store) == (PLAIN, None)


def test_a_model_that_is_written_down_must_be_the_folders(
    tmp_path: Path, store: LocalStore
) -> None:
    make_folder(tmp_path / "model", "Llama")
    same = read_spec(tmp_path / "model", 40)
    spec, init = prepare_weights(job_from(tmp_path / "model", model=same), store)
    assert spec.model == same and init is not None
    with pytest.raises(ConfigError, match=r"\[model\] is not the model of"):
        prepare_weights(job_from(tmp_path / "model", model=model_spec()), store)


def test_the_job_is_the_same_wherever_the_folder_lies(tmp_path: Path, store: LocalStore) -> None:
    keys = set()
    for name in ("here", "there"):
        make_folder(tmp_path / name / "model", "Qwen3")
        spec, init = prepare_weights(job_from(tmp_path / name / "model"), store)
        keys.add(key_of(spec, prepare_data(spec, store), init))
    make_folder(tmp_path / "other" / "model", "Qwen3", torch.bfloat16)
    spec, init = prepare_weights(job_from(tmp_path / "other" / "model"), store)
    assert len(keys) == 1
    assert key_of(spec, prepare_data(spec, store), init) not in keys


def test_a_folders_path_is_taken_from_the_job_files(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(to_toml(PLAIN.but({"init.folder": "model"})))
    assert JobSpec.read(tmp_path / "job.toml").init.folder == str(tmp_path / "model")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, store: LocalStore) -> None:
    with pytest.raises(ConfigError, match=r"model/config\.json"):
        prepare_weights(job_from(tmp_path / "model"), store)
