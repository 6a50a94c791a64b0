"""Conversations: the answers are targets, everything else is read alone."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.unit.train.corpus.test_prepare import store, tokenizer_folder, tokens_of  # noqa: F401

from atoll.numerics.errors import DataUnusable
from atoll.storage.local import LocalStore
from atoll.train.corpus.chat import answers, find_template, plain_template
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.prepare import prepare
from atoll.train.tokenizer import open_tokenizer

Messages = list[dict[str, str]]
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] | trim }}"
    "{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# In Qwen3's manner: the last answer has room to think in front of it, earlier ones have lost it.
THINKING = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.role == 'assistant' and loop.last %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    "{{- m.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def talk(number: int) -> Messages:
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": f"What is {number} + {number}?"},
        {"role": "assistant", "content": f"It is {2 * number}."},
        {"role": "user", "content": "Thanks! And twice that, naïvely?"},
        {"role": "assistant", "content": f"{4 * number} €"},
    ]


def with_template(folder: Path, tokenizer: Path, template: str) -> Path:
    shutil.copytree(tokenizer, folder)
    config = {"chat_template": template, "eos_token": "<|endoftext|>", "bos_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def rows(path: Path, count: int = 80) -> Path:
    path.write_text("".join(json.dumps({"messages": talk(i)}) + "\n" for i in range(count)))
    return path


@pytest.mark.parametrize("template", [CHATML, THINKING], ids=["chatml", "thinking"])
def test_a_templates_answers_are_found(
    template: str,
    tmp_path: Path,
    tokenizer_folder: Path,  # noqa: F811
) -> None:
    from transformers import PreTrainedTokenizerFast

    folder = with_template(tmp_path / "t", tokenizer_folder, template)
    text, spans = answers(talk(3), find_template(folder), "row 1")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    expected = tokenizer.apply_chat_template(talk(3), chat_template=template, tokenize=False)
    assert text == expected
    last = "<think>\n\n</think>\n\n12 €<|im_end|>\n" if template is THINKING else "12 €<|im_end|>\n"
    assert [text[begin:end] for begin, end in spans] == ["It is 6.<|im_end|>\n", last]


def test_the_plain_template_is_a_line_with_the_role_and_the_content() -> None:
    text, spans = answers(talk(3), plain_template, "row 1")
    assert text.startswith(
        "<|system|>\nBe brief.\n<|user|>\nWhat is 3 + 3?\n<|assistant|>\nIt is 6.\n"
    )
    assert [text[begin:end] for begin, end in spans] == ["It is 6.\n", "12 €\n"]


def test_an_answer_that_stands_in_the_question_is_still_the_answer() -> None:
    said = [{"role": "user", "content": "Say yes\nyes"}, {"role": "assistant", "content": "yes"}]
    text, ((begin, end),) = answers(said, plain_template, "row 1")
    assert (text[begin:end], begin) == ("yes\n", len("<|user|>\nSay yes\nyes\n<|assistant|>\n"))
    said[1]["content"] = ""
    text, ((begin, end),) = answers(said, plain_template, "row 1")
    assert text[begin:end] == "\n"


@pytest.mark.parametrize("bytes_", [True, False], ids=["bytes", "tokenizer"])
def test_answers_alone_are_targets(
    bytes_: bool,
    tmp_path: Path,
    store: LocalStore,  # noqa: F811
    tokenizer_folder: Path,  # noqa: F811
) -> None:
    folder = None if bytes_ else with_template(tmp_path / "t", tokenizer_folder, CHATML)
    options = DataOptions(
        (rows(tmp_path / "a.jsonl"),), chat=True, held_out="0.2", tokenizer=folder
    )
    data = prepare(options, store)
    assert (data.dtype, data.masked) == ("uint16", True)
    tokenizer = open_tokenizer(store, data.tokenizer_cid)
    words = np.array(tokens_of(store, data)[0])
    shown = words < 1 << 15
    end = 0 if bytes_ else tokenizer.token_to_id("<|endoftext|>")
    ids = words & 0x7FFF
    ends = np.flatnonzero(ids == end)
    assert len(ends) == data.train_documents
    assert shown[ends].all()  # each talk ends in an answer
    assert int(shown.sum()) == data.train_targets < data.train_tokens
    starts = [0, *(ends[:-1] + 1)]
    for start, stop in zip(starts, ends, strict=True):
        part, seen = ids[start:stop], shown[start:stop]
        learned = tokenizer.decode(part[seen].tolist(), skip_special_tokens=False)
        number = int(learned.split()[2].split(".")[0]) // 2
        close = "\n" if bytes_ else "<|im_end|>\n"
        assert learned == f"It is {2 * number}.{close}{4 * number} €{close}"
        whole = tokenizer.decode(part.tolist(), skip_special_tokens=False)
        render = plain_template if folder is None else find_template(folder)
        assert whole == answers(talk(number), render, "")[0]


def test_a_talk_that_ends_with_a_question_has_no_end_to_learn(
    tmp_path: Path,
    store: LocalStore,  # noqa: F811
) -> None:
    lines = [json.dumps({"messages": talk(i)[:4]}) for i in range(60)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    options = DataOptions((tmp_path / "a.jsonl",), chat=True, held_out="0.3")
    words = np.array(tokens_of(store, prepare(options, store))[0])
    assert set(words[(words & 0x7FFF) == 0]) == {1 << 15}


BROKEN: dict[str, object] = {
    "no list": "hello",
    "an empty list": [],
    "no messages": ["hello"],
    "no role": [{"content": "x"}],
    "an image": [{"role": "assistant", "content": [{"type": "image", "text": "x"}]}],
    "no answer": talk(1)[:2],
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_row_that_is_no_conversation_is_named(name: str, tmp_path: Path) -> None:
    good = json.dumps({"messages": talk(1)})
    (tmp_path / "a.jsonl").write_text(f"{good}\n{json.dumps({'messages': BROKEN[name]})}\n")
    with pytest.raises(DataUnusable, match=r"a\.jsonl, line 2"):
        prepare(DataOptions((tmp_path / "a.jsonl",), chat=True), LocalStore(tmp_path / "s"))
    (tmp_path / "b.txt").write_text("plain text")
    options = DataOptions((tmp_path / "b.txt",), chat=True, format="text")
    with pytest.raises(DataUnusable, match="has no messages"):
        prepare(options, LocalStore(tmp_path / "s"))


def test_a_template_that_refuses_or_rewrites_is_said(
    tmp_path: Path,
    tokenizer_folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(name: str, template: str, match: str) -> None:
        folder = with_template(tmp_path / name, tokenizer_folder, template)
        with pytest.raises(DataUnusable, match=match):
            answers(talk(1), find_template(folder), "row 7")

    refused("refuses", "{{ raise_exception('no system') }}", "row 7: the chat template refuses")
    refused("breaks", "{{ 1 / 0 }}", "row 7: the chat template refuses")
    refused("reaches out", "{{ ''.__class__.__mro__ }}", "row 7: the chat template refuses")
    refused("no jinja", "{% for %}", "does not compile")
    refused("shouts", "{% for m in messages %}{{ m.content | upper }}{% endfor %}", "message 3")
    refused("counts", "{{ messages | length }}" + CHATML, "message 3")
    folder = with_template(tmp_path / "broken", tokenizer_folder, CHATML)
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(DataUnusable, match="is not JSON"):
        find_template(folder)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    refused("no library", CHATML, "needs jinja2")


def test_a_template_in_a_file_of_its_own_or_in_a_list_is_found(
    tmp_path: Path,
    tokenizer_folder: Path,  # noqa: F811
) -> None:
    folder = with_template(tmp_path / "t", tokenizer_folder, "unused")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}{{ eos_token }}")
    assert find_template(folder)(talk(1), False) == "Be brief.<|endoftext|>"
    (folder / "chat_template.jinja").unlink()
    named = [{"name": "tools", "template": "no"}, {"name": "default", "template": "yes"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert find_template(folder)(talk(1), False) == "yes"
    (folder / "tokenizer_config.json").unlink()
    assert find_template(folder) is plain_template
