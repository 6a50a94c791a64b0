"""A result is whole wherever it is fetched: what goes with a model is content of its job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.train.corpus.test_chat import CHATML, rows, talk
from tests.unit.train.corpus.test_templates import CONFIG as SETTINGS
from tests.unit.train.corpus.test_templates import GENERATION, written
from tests.unit.train.folders import SEQ, make_folder

from atoll.numerics.errors import DataUnusable, MalformedDataset
from atoll.numerics.state import Tensors
from atoll.protocol.canonical import encode
from atoll.protocol.model_spec import LoraSpec, ModelSpec
from atoll.storage.local import LocalStore
from atoll.train.adapters import export_adapters
from atoll.train.belongings import MAX_FILES, Belongings
from atoll.train.corpus import collect
from atoll.train.corpus.chat import PLAIN
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.prepare import prepare
from atoll.train.export import export_model, write_belongings
from atoll.train.pretrained import read_params, read_spec
from atoll.train.tokenizer import byte_tokenizer, open_belongings

BYTES = byte_tokenizer().to_str().encode()


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", sync=False)


def base(folder: Path, **files: Any) -> Path:
    """A model with a tokenizer of its own."""
    make_folder(folder, "Qwen3", vocab_size=300)
    return written(folder, **files)


def elsewhere(options: DataOptions, store: LocalStore, out: Path) -> tuple[Path, ModelSpec]:
    """The result of a job over that text, made from its content alone."""
    belongings = open_belongings(store, prepare(options, store).tokenizer_cid)
    folder = options.model_folder
    assert folder is not None
    spec = read_spec(folder, SEQ)
    export_model(read_params(folder, spec), spec, belongings, out)
    return out, spec


def over(text: Path, folder: Path, **more: Any) -> DataOptions:
    return DataOptions((text,), tokenizer=folder / "tokenizer.json", model_folder=folder, **more)


def test_a_result_has_its_template_and_says_when_an_answer_ends(
    tmp_path: Path, store: LocalStore
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    folder = base(
        tmp_path / "base",
        tokenizer_config__json=SETTINGS | {"pad_token": "<pad>"},
        chat_template__jinja=GENERATION,
        generation_config__json={"eos_token_id": [2, 0], "temperature": 0.6, "do_sample": True},
    )
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    said = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    options = over(rows(tmp_path / "a.jsonl"), folder, chat=True)
    out, _ = elsewhere(options, store, tmp_path / "out")
    ours, theirs = AutoTokenizer.from_pretrained(out), AutoTokenizer.from_pretrained(folder)
    assert (ours.eos_token, ours.pad_token) == ("</s>", "<pad>")
    assert ours.chat_template == theirs.chat_template
    assert ours.apply_chat_template(talk(1)) == theirs.apply_chat_template(talk(1))
    generation = GenerationConfig.from_pretrained(out)
    assert (generation.eos_token_id, generation.temperature) == ([2, 0], 0.6)
    assert AutoModelForCausalLM.from_pretrained(out).config.max_position_embeddings == 256
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (out / name).read_bytes() == said[name]
    assert (out / "additional_chat_templates" / "tool_use.jinja").read_text() == "tools"


ENDS: dict[str, tuple[dict[str, Any], dict[str, Any], object]] = {
    "nobody says": ({}, {"tokenizer_config__json": SETTINGS}, 2),
    "the model's alone": ({"eos_token_id": 5}, {"tokenizer_config__json": SETTINGS}, [5, 2]),
    "a list": (
        {"eos_token_id": 5},
        {"tokenizer_config__json": SETTINGS, "generation_config__json": {"eos_token_id": [7, 2]}},
        [7, 2],
    ),
    "the map alone": ({}, {"special_tokens_map__json": {"eos_token": "</s>"}}, 2),
    "a known name": ({}, {}, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_what_ends_a_document_ends_an_answer(name: str, tmp_path: Path, store: LocalStore) -> None:
    from transformers import AutoTokenizer

    config, files, expected = ENDS[name]
    folder = base(tmp_path / "base", **files)
    model = json.loads((folder / "config.json").read_text())
    model = {key: value for key, value in model.items() if key != "eos_token_id"} | config
    (folder / "config.json").write_text(json.dumps(model))
    if "generation_config__json" not in files:
        (folder / "generation_config.json").unlink(missing_ok=True)
    (tmp_path / "a.txt").write_text("a few words\n" * 900)
    out, _ = elsewhere(over(tmp_path / "a.txt", folder), store, tmp_path / "out")
    assert json.loads((out / "generation_config.json").read_text())["eos_token_id"] == expected
    end = expected[-1] if isinstance(expected, list) else expected
    assert AutoTokenizer.from_pretrained(out).eos_token_id == end


def test_conversations_without_a_template_leave_the_one_that_they_had(
    tmp_path: Path, store: LocalStore
) -> None:
    from transformers import AutoTokenizer

    folder = base(tmp_path / "base", tokenizer_config__json=SETTINGS)
    text = rows(tmp_path / "a.jsonl")
    out, _ = elsewhere(over(text, folder, chat=True), store, tmp_path / "out")
    assert AutoTokenizer.from_pretrained(out).chat_template == PLAIN
    plain = DataOptions((text,), chat=True)  # of bytes as well
    files = open_belongings(store, prepare(plain, store).tokenizer_cid).files
    assert files["chat_template.jinja"].decode() == PLAIN
    assert json.loads(files["generation_config.json"])["eos_token_id"] == 0
    # A job that goes on from there has the same text.
    (tmp_path / "next").mkdir()
    for name, content in files.items():
        (tmp_path / "next" / name).write_bytes(content)
    again = prepare(DataOptions((text,), chat=True, tokenizer=tmp_path / "next"), store)
    assert again.root == prepare(plain, store).root


def test_another_tokenizer_brings_its_own_numbers(tmp_path: Path, store: LocalStore) -> None:
    """Which token ends an answer is a number of the tokenizer, and not of the model before."""
    folder = base(tmp_path / "base", generation_config__json={"eos_token_id": 99, "top_k": 7})
    other = written(
        tmp_path / "other",
        tokenizer_config__json=SETTINGS,
        generation_config__json={"eos_token_id": 1, "temperature": 0.1},
    )
    (other / "tokenizer.json").write_text((other / "tokenizer.json").read_text() + "\n")
    (tmp_path / "a.txt").write_text("a few words\n" * 900)
    options = DataOptions((tmp_path / "a.txt",), tokenizer=other, model_folder=folder)
    files = open_belongings(store, prepare(options, store).tokenizer_cid).files
    assert json.loads(files["generation_config.json"]) == {"eos_token_id": [1, 2]}
    assert files["config.json"] == (folder / "config.json").read_bytes()


def test_an_adapter_has_tokenizer_and_template_too(tmp_path: Path, store: LocalStore) -> None:
    from transformers import AutoTokenizer

    folder = base(tmp_path / "base", tokenizer_config__json=SETTINGS, chat_template__jinja=CHATML)
    options = over(rows(tmp_path / "a.jsonl"), folder, chat=True)
    belongings = open_belongings(store, prepare(options, store).tokenizer_cid)
    out, params = tmp_path / "out", dict[str, Any]()
    export_adapters(Tensors(params), LoraSpec(rank=1, alpha="1", targets=("q",)), out)
    write_belongings(belongings, read_spec(folder, SEQ), out)
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert (tokenizer.eos_token, tokenizer.chat_template) == ("</s>", CHATML)
    assert not (out / "config.json").exists()  # that of a model, which is not here


# --- what a stranger may have written ---

BAD: dict[str, Any] = {
    "no tokenizer": {"config.json": b"{}"},
    "a way out": {"tokenizer.json": BYTES, "../x.json": b""},
    "a way out of the templates": {
        "tokenizer.json": BYTES, "additional_chat_templates/../../x.jinja": b"",
    },
    "a template above": {"tokenizer.json": BYTES, "additional_chat_templates/..jinja": b""},
    "an absolute name": {"tokenizer.json": BYTES, "/etc/passwd": b""},
    "a program": {"tokenizer.json": BYTES, "modeling_evil.py": b""},
    "weights": {"tokenizer.json": BYTES, "model.safetensors": b""},
    "text for bytes": {"tokenizer.json": "{}"},
    "a list": [BYTES],
    "a map in a map": {"tokenizer.json": {"x": b""}},
    "too many": {"tokenizer.json": BYTES} | {
        f"additional_chat_templates/{n}.jinja": b"" for n in range(MAX_FILES)
    },
}  # fmt: skip


# Written by hand: a text or a number at a time, an encoder takes seconds.
MILLION = (1_000_000).to_bytes(4, "big")
LARGE: dict[str, bytes] = {
    "a million names": b"\xba" + MILLION + b"".join(b"\x66%06d\x40" % n for n in range(1_000_000)),
    "a million numbers": b"\xa1\x6etokenizer.json\x9a" + MILLION + bytes(1_000_000),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_is_far_too_large_is_refused(name: str, store: LocalStore) -> None:
    with pytest.raises(MalformedDataset, match="what goes with the model"):
        open_belongings(store, store.add_bytes(LARGE[name]).to_bytes())


@pytest.mark.parametrize("name", BAD)
def test_what_belongs_to_no_model_is_refused(name: str, store: LocalStore) -> None:
    with pytest.raises(MalformedDataset, match="what goes with the model"):
        open_belongings(store, store.add_bytes(encode(BAD[name])).to_bytes())


def test_a_file_that_is_cut_or_not_canonical_is_refused() -> None:
    whole = Belongings({"tokenizer.json": BYTES, "config.json": b"{}"}).to_bytes()
    assert Belongings.from_bytes(whole).to_bytes() == whole
    for place in range(0, len(whole), 97):
        with pytest.raises(ValueError, match=r"."):
            Belongings.from_bytes(whole[:place])
    for broken in (whole + b"\0", b"\xb8\x02" + whole[1:], b"\xbf" + whole[1:], b"", b"\xff" * 9):
        with pytest.raises(ValueError, match=r"."):
            Belongings.from_bytes(broken)


def test_what_a_stranger_wrote_never_keeps_a_result_from_its_reader(tmp_path: Path) -> None:
    make_folder(tmp_path / "base", "Qwen3")
    spec = read_spec(tmp_path / "base", SEQ)
    params = read_params(tmp_path / "base", spec)
    config = json.loads((tmp_path / "base" / "config.json").read_text())
    evil = {"auto_map": {"AutoModelForCausalLM": "evil/repo--code.Model"}, "pad_token_id": "x"}
    evil |= {"_attn_implementation": "evil/kernel", "attn_implementation": "evil/kernel"}
    files = {
        "tokenizer.json": BYTES,
        "config.json": json.dumps(config | evil).encode(),
        "tokenizer_config.json": b'{"auto_map": ["evil", null], "eos_token": "a"}',
        "special_tokens_map.json": b"[1",
        "generation_config.json": b"no JSON",
    }
    from transformers import AutoModelForCausalLM, AutoTokenizer

    export_model(params, spec, Belongings(files), tmp_path / "out")
    written_ = "".join(p.read_text() for p in (tmp_path / "out").glob("*config.json"))
    assert "evil" not in written_
    assert AutoTokenizer.from_pretrained(tmp_path / "out").eos_token == "a"
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").config.model_type == "qwen3"
    for broken in (b"{", b"[]", b"\xff", json.dumps(config | {"head_dim": 8}).encode()):
        export_model(params, spec, Belongings(files | {"config.json": broken}), tmp_path / "out")
        assert read_spec(tmp_path / "out", SEQ) == spec
    plain = Belongings({"tokenizer.json": BYTES})
    export_model(params, spec, plain, tmp_path / "out")  # what the earlier one had is gone
    assert "eos_token" not in json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())


def test_files_that_are_too_large_are_named(
    tmp_path: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = base(tmp_path / "base", tokenizer_config__json=SETTINGS | {"x": "y" * 100_000})
    monkeypatch.setattr(collect, "MAX_TOKENIZER_BYTES", 100_000)
    (tmp_path / "a.txt").write_text("a few words\n" * 900)
    with pytest.raises(DataUnusable, match=r"of which tokenizer_config\.json has"):
        prepare(over(tmp_path / "a.txt", folder), store)


@pytest.mark.parametrize(
    "name",
    ["tokenizer_config.json", "chat_template.jinja", "additional_chat_templates/more.jinja"],
)
@pytest.mark.parametrize("whole", [False, True])
def test_no_link_of_a_stranger_s_folder_takes_what_is_private(
    name: str, whole: bool, tmp_path: Path, store: LocalStore
) -> None:
    """What belongs to a model is published byte for byte."""
    folder, text, home = base(tmp_path / "model"), tmp_path / "text.txt", tmp_path / "home"
    text.write_text("one text\n" * 300)
    (home / name).parent.mkdir(parents=True)
    (home / name).write_text('{"auths": "secret"}')
    linked, of = (folder / name, home / name)
    if whole and linked.parent != folder:
        linked, of = linked.parent, of.parent
    linked.unlink(missing_ok=True)
    linked.parent.mkdir(exist_ok=True)
    linked.symlink_to(of)
    with pytest.raises(DataUnusable, match=f"{Path(name).name} is a link to"):
        prepare(over(text, folder), store)


def test_a_link_to_a_snapshot_has_its_files_among_the_blobs(
    tmp_path: Path, store: LocalStore
) -> None:
    at, text = base(tmp_path / "models--a/snapshots/aaaa"), tmp_path / "text.txt"
    text.write_text("one text\n" * 300)
    blobs = tmp_path / "models--a/blobs"
    blobs.mkdir()
    for number, file in enumerate(sorted(at.iterdir())):
        file.rename(blobs / str(number))
        file.symlink_to(f"../../blobs/{number}")
    (tmp_path / "mine").symlink_to(at)
    for folder in (at, tmp_path / "mine"):
        assert prepare(over(text, folder, held_out_paths=(text,)), store).tokenizer_cid
