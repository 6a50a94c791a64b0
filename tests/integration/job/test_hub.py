"""`hf://` in job files and models pushed to the Hub, by the real `huggingface_hub`, against a hub
on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.support.hub import TOKEN, LocalHub, local_hub, use_hub
from tests.support.jobs import PLAIN
from tests.unit.train.folders import make_folder

from atoll.errors import AtollError, ConfigError, StorageError
from atoll.job.hub import local_model, local_text, local_tokenizer, parse_hub, pin_hub
from atoll.job.hub_push import check_destination, push_model, with_sources
from atoll.job.model_card import Labels
from atoll.job.prepare_manifest import prepare_data, prepare_weights
from atoll.job.spec import JobSpec
from atoll.job.submissions import key_of
from atoll.job.toml_files import parse_toml, to_toml
from atoll.storage.local import LocalStore

# `huggingface_hub` uploads large files in a way that its own client calls old.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

LINES = "".join(f"line {i}: the quick brown fox jumps over {i} lazy dogs\n" for i in range(600))
ROWS = "".join(json.dumps({"text": line}) + "\n" for line in LINES.splitlines())


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    with local_hub() as hub:
        use_hub(hub, tmp_path, monkeypatch)
        yield hub


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", sync=False)


def job_of(model: str = "hf://ann/tiny", *paths: str) -> JobSpec:
    named = paths or ("hf://datasets/bob/lines",)
    return PLAIN.but({"model": None, "init.folder": model, "data.paths": named})


# --- in ---


def test_a_job_of_the_hub_is_the_job_of_the_same_files(
    hub: LocalHub, tmp_path: Path, store: LocalStore
) -> None:
    make_folder(tmp_path / "tiny", "Qwen2", torch.bfloat16, shard="20KB")
    (tmp_path / "tiny" / "pytorch_model.bin").write_bytes(b"pickled")
    (tmp_path / "lines.txt").write_text(LINES)
    model = hub.add_folder("ann/tiny", tmp_path / "tiny")
    text = hub.add("bob/lines", {"lines.txt": LINES.encode()}, "datasets")

    spec, notes = pin_hub(job_of())
    assert spec.init.folder == f"hf://ann/tiny@{model}"
    assert spec.data.paths == (f"hf://datasets/bob/lines@{text}",)
    assert notes == (
        f"hf://ann/tiny is commit {model}",
        f"hf://datasets/bob/lines is commit {text}",
    )
    # What is recorded of a job is this text.
    assert JobSpec.of(parse_toml(to_toml(spec))) == spec

    keys = []
    for job in (spec, job_of(str(tmp_path / "tiny"), str(tmp_path / "lines.txt"))):
        weighed, init = prepare_weights(job, store)
        keys.append(key_of(weighed, prepare_data(weighed, store), init))
    assert keys[0] == keys[1]
    assert not any("pytorch_model" in request for request in hub.requests)


def test_a_pinned_job_stays_what_it_was(hub: LocalHub) -> None:
    hub.add("bob/lines", {"a.txt": b"first"}, "datasets")
    spec, _ = pin_hub(job_of("", "hf://datasets/bob/lines"))
    hub.add("bob/lines", {"a.txt": b"second"}, "datasets")
    assert (local_text(spec.data.paths[0]) / "a.txt").read_bytes() == b"first"
    assert pin_hub(spec) == (spec, ())
    newest, _ = pin_hub(job_of("", "hf://datasets/bob/lines"))
    assert (local_text(newest.data.paths[0]) / "a.txt").read_bytes() == b"second"


def test_a_path_takes_what_is_under_it_and_no_more(hub: LocalHub) -> None:
    files = {"en/a.jsonl": ROWS.encode(), "en/b.jsonl": b"", "de/a.jsonl": b"", "README.md": b"#"}
    hub.add("bob/rows", files, "datasets")
    hub.repos["datasets/bob/rows"].tags["v1.0"] = hub.repos["datasets/bob/rows"].head
    for text in ("hf://datasets/bob/rows/en@v1.0", "hf://datasets/bob/rows@v1.0/en"):
        assert parse_hub(text, "dataset").revision == "v1.0"
        folder = local_text(text)
        assert sorted(path.name for path in folder.iterdir()) == ["a.jsonl", "b.jsonl"]
    assert [path.name for path in folder.parent.iterdir()] == ["en"]
    assert local_text("hf://datasets/bob/rows/en/a.jsonl").read_text() == ROWS


def test_the_train_split_of_a_data_set_is_read_through_its_links(
    hub: LocalHub, store: LocalStore
) -> None:
    files = {"data/train.jsonl": ROWS.encode(), "data/test.jsonl": ROWS.encode() * 3}
    hub.add("bob/split", files | {"README.md": b"---\nlicense: mit\n---\n"}, "datasets")
    spec = PLAIN.but({"data.paths": ["hf://datasets/bob/split"]})
    whole = prepare_data(spec, store)
    (train,) = (p for p in local_text("hf://datasets/bob/split").rglob("train.jsonl"))
    assert train.is_symlink() and "blobs" in str(train.resolve())
    assert prepare_data(spec.but({"data.paths": [str(train)]}), store) == whole


def test_a_tokenizer_comes_without_its_model(hub: LocalHub, tmp_path: Path) -> None:
    make_folder(tmp_path / "tiny", "Llama")
    hub.add_folder("ann/tiny", tmp_path / "tiny")
    folder = local_tokenizer("hf://ann/tiny")
    assert [path.name for path in folder.iterdir()] == ["tokenizer.json"]
    assert local_tokenizer("hf://ann/tiny/tokenizer.json") == folder / "tokenizer.json"


def test_a_cache_is_a_folder_like_any_other(
    hub: LocalHub, tmp_path: Path, store: LocalStore
) -> None:
    make_folder(tmp_path / "tiny", "Llama")
    sha = hub.add_folder("ann/tiny", tmp_path / "tiny")
    local_model("hf://ann/tiny")
    cache = tmp_path / "cache" / "models--ann--tiny"
    assert local_model(str(cache)) == cache / "snapshots" / sha == local_tokenizer(str(cache))
    (tmp_path / "lines.txt").write_text(LINES)
    inits = []
    for folder in (cache, tmp_path / "tiny"):
        spec, init = prepare_weights(job_of(str(folder), str(tmp_path / "lines.txt")), store)
        prepare_data(spec, store)
        inits.append(init)
    assert inits[0] == inits[1]


def test_job_files_take_no_folder_before_a_name_of_the_hub(tmp_path: Path) -> None:
    spec = job_of().but({"data.tokenizer": "hf://ann/other", "data.held_out_paths": ["here"]})
    (tmp_path / "job.toml").write_text(to_toml(spec))
    read = JobSpec.read(tmp_path / "job.toml")
    assert read == spec.but({"data.held_out_paths": [str(tmp_path / "here")]})


# --- what is refused ---


def in_words(error: pytest.ExceptionInfo[AtollError]) -> str:
    return f"{error.value} | {error.value.next_step}"


def test_what_is_not_there_is_refused_in_words(hub: LocalHub) -> None:
    hub.add("ann/tiny", {"config.json": b"{}", "pytorch_model.bin": b"pickled"})
    hub.add("ann/secret", {"config.json": b"{}"}, private=True)
    hub.add("bob/lines", {"a.txt": b"text"}, "datasets")
    for name in ("hf://ann/nothing", "hf://ann/secret"):
        with pytest.raises(ConfigError) as error:
            pin_hub(job_of(name))
        assert "the Hub has no model ann/" in in_words(error) and "HF_TOKEN" in in_words(error)
    with pytest.raises(ConfigError) as error:
        pin_hub(job_of("hf://ann/tiny@v9"))
    assert "the model ann/tiny has no revision v9" in in_words(error)
    with pytest.raises(ConfigError) as error:
        local_text("hf://datasets/bob/lines/b.txt")
    assert "no file or folder b.txt" in in_words(error)
    with pytest.raises(ConfigError) as error:
        local_model("hf://ann/tiny")
    assert "no model.safetensors, but pytorch_model.bin" in in_words(error)


def test_a_gated_model_says_whom_to_ask(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("ann/gated", {"config.json": b"{}", "model.safetensors": b"0"}, gated=True)
    with pytest.raises(ConfigError) as error:
        local_model("hf://ann/gated")
    assert "ann/gated is gated" in in_words(error) and "accept them" in in_words(error)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert (local_model("hf://ann/gated") / "model.safetensors").read_bytes() == b"0"


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("hf://datasets/bob/lines", "model", "is a dataset, and here a model is wanted"),
        ("hf://ann/tiny", "dataset", "is a model, and here a dataset is wanted"),
        ("hf://spaces/ann/page", "model", "is a space"),
        ("hf://gpt2", "model", "namespace/name"),
        ("hf://", "dataset", "write hf://datasets/user/name"),
        ("hf://ann/ti ny", "model", "ann/ti ny"),
        ("hf://datasets/bob/lines/../../x", "dataset", "leads out of its repository"),
    ],
)
def test_a_wrong_uri_says_the_right_form(text: str, kind: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_hub(text, kind)  # type: ignore[arg-type]
    assert words in in_words(error) and "write hf://" in in_words(error)


def test_uris_are_written_as_they_are_read() -> None:
    for text in ("hf://a/b", "hf://a/b@v1/sub", "hf://a/b@refs%2Fpr%2F3", "hf://a/b@feature%2Fx"):
        assert str(parse_hub(text, "model")) == text


def test_variables_of_the_hub_are_heeded(tmp_path: Path) -> None:
    """In a process that starts with them, as the library reads them."""
    program = "import sys; from atoll.job.hub import local_text; print(local_text(sys.argv[1]))"

    def fetched(name: str, **variables: str) -> tuple[int, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        command = [sys.executable, "-c", program, name]
        ran = subprocess.run(
            command, check=False, env=kept | variables, capture_output=True, text=True
        )
        return ran.returncode, ran.stdout.strip() + ran.stderr

    home = {"HF_HOME": str(tmp_path / "home")}
    with local_hub() as hub:
        hub.add("bob/secret", {"a.txt": b"text"}, "datasets", private=True)
        name, there = "hf://datasets/bob/secret", home | {"HF_ENDPOINT": hub.endpoint}
        code, said = fetched(name, **there)
        assert code and "the Hub has no data set bob/secret" in said
        code, said = fetched(name, **there, HF_TOKEN=TOKEN)
        assert not code and str(tmp_path / "home" / "hub") in said
    # The hub is gone: what is in the cache is there, and nothing else.
    code, _ = fetched(name, **home, HF_HUB_OFFLINE="1")
    assert not code
    code, said = fetched("hf://datasets/bob/other", **home, HF_HUB_OFFLINE="1")
    assert code and "HF_HUB_OFFLINE is set" in said
    code, said = fetched("hf://datasets/bob/other", **there)
    assert code and f"cannot fetch the data set bob/other from {hub.endpoint}" in said


def test_a_hub_that_is_away_is_named(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StorageError) as error:
        pin_hub(job_of())
    assert "from http://127.0.0.1:9" in in_words(error) and "HF_ENDPOINT" in in_words(error)


# --- out ---


def test_a_model_that_does_not_get_there_is_not_committed(
    hub: LocalHub, result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.takes_large = False
    with pytest.raises(StorageError, match="nothing was committed"):
        push_model(result, check_destination("cat/new", force=False), "Job 7 of Atoll")
    assert files_of(hub, "cat/new").keys() == {".gitattributes"}
    # What is left of it is no reason to refuse it the next time.
    hub.takes_large = True
    push_model(result, check_destination("cat/new", force=False), "Job 7 of Atoll")
    assert "model.safetensors" in files_of(hub, "cat/new")


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """A folder as a result is, with something of its owner's beside."""
    folder = tmp_path / "result"
    make_folder(folder, "Llama")
    (folder / "README.md").write_text("---\nlicense: mit\nbase_model: ann/tiny\n---\n# `job`\n")
    (folder / "card.json").write_text("{}\n")
    (folder / "notes.key").write_text("mine")
    return folder


def files_of(hub: LocalHub, repo: str) -> dict[str, bytes]:
    there = hub.repos[f"models/{repo}"]
    return there.commits[there.head]


def test_a_result_is_pushed_and_opens(
    hub: LocalHub, result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    url = push_model(result, check_destination("cat/new", force=False), "Job 7 of Atoll")
    pushed = files_of(hub, "cat/new")
    assert url == f"{hub.endpoint}/cat/new/commit/{hub.repos['models/cat/new'].head}"
    mine = {p.name: p.read_bytes() for p in result.iterdir() if p.name != "notes.key"}
    assert {name: pushed[name] for name in mine} == mine
    assert pushed.keys() - mine.keys() == {".gitattributes"}
    assert set(hub.cards) == {(result / "README.md").read_text()}
    assert (local_model("hf://cat/new") / "model.safetensors").read_bytes() == mine[
        "model.safetensors"
    ]


def test_nothing_is_overwritten_without_force(
    hub: LocalHub, result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    old = {"README.md": b"old", "model-00001-of-00001.safetensors": b"old", "kept.py": b"mine"}
    hub.add("cat/old", old)
    with pytest.raises(ConfigError) as error:
        check_destination("cat/old", force=False)
    assert "cat/old has files already" in in_words(error) and "--force" in in_words(error)
    assert files_of(hub, "cat/old") == old
    push_model(result, check_destination("hf://cat/old", force=True), "Job 7 of Atoll")
    pushed = files_of(hub, "cat/old")
    assert pushed["README.md"] == (result / "README.md").read_bytes()
    assert pushed["kept.py"] == b"mine" and "model-00001-of-00001.safetensors" not in pushed


@pytest.mark.parametrize("force", [False, True])
def test_what_came_since_is_not_overwritten_either(
    hub: LocalHub, result: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    if force:
        hub.add("cat/new", {"README.md": b"old"})
    destination = check_destination("cat/new", force=force)
    hub.before_commit = lambda: hub.add("cat/new", {"README.md": b"somebody's"})
    with pytest.raises(ConfigError) as error:
        push_model(result, destination, "Job 7 of Atoll")
    assert "somebody has written to cat/new" in in_words(error)
    assert files_of(hub, "cat/new") == {"README.md": b"somebody's"}


def test_a_repository_that_somebody_makes_meanwhile_is_theirs(
    hub: LocalHub, result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    destination = check_destination("cat/new", force=False)
    hub.add("cat/new", {"README.md": b"somebody's"})
    with pytest.raises(ConfigError, match="somebody has written to cat/new"):
        push_model(result, destination, "Job 7 of Atoll")
    assert files_of(hub, "cat/new") == {"README.md": b"somebody's"}


def test_who_may_not_push_learns_it(
    hub: LocalHub, result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="nobody is logged in"):
        check_destination("cat/new", force=False)
    monkeypatch.setenv("HF_TOKEN", "hf_reads_only")
    with pytest.raises(ConfigError, match="does not let this token"):
        push_model(result, check_destination("cat/new", force=False), "Job 7 of Atoll")
    for name in ("cat", "cat/new@v1", "cat/new/sub", ""):
        with pytest.raises(ConfigError):
            check_destination(name, force=False)
    assert "models/cat/new" not in hub.repos


def test_a_card_says_what_its_job_took_from_the_hub() -> None:
    spec = job_of("hf://ann/tiny@" + "a" * 40, "hf://datasets/bob/lines@" + "b" * 40 + "/en")
    labels = with_sources(Labels("mit"), spec)
    sources = (spec.init.folder, spec.data.paths[0])
    assert labels == Labels("mit", "ann/tiny", ("bob/lines",), sources)
    assert with_sources(Labels("mit", "own/name"), spec).base_model == "own/name"
    assert with_sources(Labels(), PLAIN.but({"data.paths": ["here"]})) == Labels()
