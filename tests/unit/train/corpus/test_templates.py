"""Chat templates give the text that `transformers` gives, from any of a folder's files."""

from __future__ import annotations

import json
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest
from tests.unit.train.corpus.test_chat import CHATML, talk
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

from atoll.numerics.errors import DataUnusable
from atoll.storage.local import LocalStore
from atoll.train.corpus.chat import PLAIN, answers, find_template, plain_template
from atoll.train.corpus.marks import special_tokens
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.prepare import prepare
from atoll.train.corpus.template import ChatTemplate

MARKS = "[{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ pad_token }}|{{ sep_token }}]"
GENERATION = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<|a|>{% generation %}{{ m.content }}"
    "{{ eos_token }}{% endgeneration %}{% else %}<|u|>{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|a|>{% endif %}"
)
TEMPLATES: dict[str, str] = {
    "plain": PLAIN,
    "marks": MARKS + CHATML,
    "generation": GENERATION,
    "generation with minus": GENERATION.replace("{% generation", "{%- generation"),
    "tojson": "{{ messages | tojson }}",
    "tojson, indented": "{{ messages | tojson(indent=4) }}",
    "tojson, sorted, tight": "{{ messages | tojson(separators=(',', ':'), sort_keys=true) }}",
    "tojson, as ASCII": "{{ messages[3].content | tojson(ensure_ascii=true) }}",
    "tojson of marks": "{{ '<a href=\"x\">&' | tojson }}",
    "loops that stop": (
        "{% for m in messages %}{% if loop.index > 3 %}{% break %}{% endif %}"
        "{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.content }}{% endfor %}"
    ),
    "no tools": (
        "{{ tools is defined }}{{ tools is none }}{{ documents is none }}{{ tools }}{{ nothing }}"
    ),
    "a namespace": (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
        "{{ ns.n }}{{ dict(a=1) }}"
    ),
    "blocks and blanks": (
        "  {% if true %}\n  a\n  {% endif %}\n{%- for m in messages -%}\n {{ m.role }} \n"
        "{%- endfor +%}\n\n"
    ),
    "a macro": (
        "{% macro say(m) %}<{{ m.role }}>{{ m.content | trim }}{% endmacro %}"
        "{% for m in messages %}{{ say(m) }}{% endfor %}"
    ),
}


def written(folder: Path, **files: Any) -> Path:
    """A folder with a tokenizer over bytes; `__` in a file's name is a point."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    marks = ["<|endoftext|>", "<s>", "</s>", "<unk>", "<pad>"]
    tokenizer.train_from_iterator(
        ["a few words"],
        trainers.BpeTrainer(
            vocab_size=300, special_tokens=marks, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )  # fmt: skip
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, value in files.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def theirs(folder: Path, messages: list[dict[str, str]], opens: bool = False) -> str:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    found: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=opens
    )
    return found


CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "bos_token": "<s>"}


@pytest.mark.parametrize("opens", [False, True])
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_gives_their_text(name: str, opens: bool, tmp_path: Path) -> None:
    template = TEMPLATES[name]
    folder = written(tmp_path, tokenizer_config__json=CONFIG | {"chat_template": template})
    found = find_template(folder)
    assert found(talk(3), opens) == theirs(folder, talk(3), opens)
    for file in ("chat_template.jinja",):  # which goes before tokenizer_config.json
        (folder / file).write_text(template + "!")
        assert find_template(folder)(talk(3), opens) == theirs(folder, talk(3), opens)


def test_the_plain_template_is_what_a_result_says_of_it(tmp_path: Path) -> None:
    folder = written(tmp_path, tokenizer_config__json=CONFIG, chat_template__jinja=PLAIN)
    for opens in (False, True):
        assert plain_template(talk(3), opens) == theirs(folder, talk(3), opens)
    assert answers(talk(3), plain_template, "") == answers(talk(3), find_template(folder), "")


NAMED: dict[str, dict[str, Any]] = {
    "tokenizer_config": {
        "eos_token": "</s>",
        "pad_token": {"__type": "AddedToken", "content": "<pad>"},
    },
    "special_tokens_map": {"bos_token": "<s>", "eos_token": {"content": "<|endoftext|>"}},
}
CLASSES = (
    "PreTrainedTokenizerFast", "LlamaTokenizer", "LlamaTokenizerFast", "GPT2Tokenizer",
    "GPT2TokenizerFast", "Qwen2Tokenizer", "Qwen2TokenizerFast", None,
)  # fmt: skip


@pytest.mark.parametrize("decoder", [False, True], ids=["old", "with added_tokens_decoder"])
@pytest.mark.parametrize("class_", CLASSES)
def test_marks_are_those_of_any_file_or_of_the_class(
    class_: str | None, decoder: bool, tmp_path: Path
) -> None:
    """Any of the files may be missing, and any may name what another does."""
    from transformers import AutoTokenizer

    subsets = chain.from_iterable(combinations(NAMED, size) for size in range(len(NAMED) + 1))
    for number, files in enumerate(subsets):
        config: dict[str, Any] = {"tokenizer_class": class_} if class_ else {}
        if "tokenizer_config" in files:
            config |= NAMED["tokenizer_config"]
        if decoder:
            config["added_tokens_decoder"] = {"0": {"content": "<|endoftext|>", "special": True}}
        more = {"special_tokens_map__json": NAMED["special_tokens_map"]}
        folder = written(
            tmp_path / str(number),
            tokenizer_config__json=config,
            config__json={"model_type": "llama"},
            **(more if "special_tokens_map" in files else {}),
        )
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        expected = AutoTokenizer.from_pretrained(folder).special_tokens_map
        assert special_tokens(folder, tokenizer) == expected, (files, config)


def test_a_template_among_others_is_the_usual_one_or_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, tokenizer_config__json=CONFIG)
    more = folder / "additional_chat_templates"
    more.mkdir()
    (more / "tool_use.jinja").write_text("tools")
    with pytest.raises(DataUnusable, match="templates tool_use, none of them"):
        find_template(folder)
    (folder / "chat_template.jinja").write_text("usual")
    assert find_template(folder)(talk(1), False) == theirs(folder, talk(1)) == "usual"


def test_a_template_that_is_said_twice_or_nests_without_end_is_refused(tmp_path: Path) -> None:
    twice = [{"name": "default", "template": "a"}, {"name": "default", "template": "b"}]
    folder = written(tmp_path, tokenizer_config__json=CONFIG | {"chat_template": twice})
    with pytest.raises(DataUnusable, match="two chat templates of one name"):
        find_template(folder)
    (folder / "chat_template.jinja").write_text("{{ " + "(" * 100_000 + ")" * 100_000 + " }}")
    with pytest.raises(DataUnusable, match="does not compile"):
        find_template(folder)


def test_a_processors_template_is_not_passed_over(tmp_path: Path) -> None:
    folder = written(
        tmp_path, tokenizer_config__json=CONFIG, chat_template__json={"chat_template": CHATML}
    )
    with pytest.raises(DataUnusable, match="a processor's template"):
        find_template(folder)


def test_what_a_template_marks_is_what_is_learned(tmp_path: Path) -> None:
    """As transformers' own mask says, where answers before are not what they were, too."""
    from transformers import AutoTokenizer

    shouts = GENERATION.replace("{{ m.content }}{{", "{{ m.content | upper }}{{")
    for number, template in enumerate((GENERATION, shouts)):
        folder = written(
            tmp_path / str(number), tokenizer_config__json=CONFIG, chat_template__jinja=template
        )
        text, spans = answers(talk(3), find_template(folder), "row 1")
        told = AutoTokenizer.from_pretrained(folder).apply_chat_template(
            talk(3), tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        options = DataOptions((tmp_path / "a.jsonl",), chat=True, tokenizer=folder)
        lines = [json.dumps({"messages": talk(3)})] * 2
        (tmp_path / "a.jsonl").write_text("\n".join(lines))
        assert [text[a:b].lower() for a, b in spans] == ["it is 6.</s>", "12 €</s>"]
        from atoll.train.corpus.documents import Document
        from atoll.train.corpus.encoders import HIDDEN, open_encoder

        (ids,) = open_encoder(options).encode([Document(talk(3), 0, "row 1", (0, 0))])
        assert (ids & (HIDDEN - 1)).tolist() == told["input_ids"]
        assert (ids < HIDDEN).astype(int).tolist() == told["assistant_masks"]


def test_answers_in_a_macro_are_found_as_without_marks(tmp_path: Path) -> None:
    macro = (
        "{% macro say(m) %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}"
        "{{ m.content }}{% endgeneration %}!{% else %}{{ m.content }}{% endif %}{% endmacro %}"
        "{% for m in messages %}{{ say(m) }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    text, spans = answers(talk(3), ChatTemplate(macro, {}), "row 1")
    assert [text[a:b] for a, b in spans] == ["It is 6.!", "12 €!"]


def test_a_template_that_marks_nothing_has_nothing_to_learn() -> None:
    nothing = "{% for m in messages %}{{ m.content }}{% endfor %}" + (
        "{% if false %}{% generation %}{% endgeneration %}{% endif %}"
    )
    with pytest.raises(DataUnusable, match="row 1: the chat template says of nothing"):
        answers(talk(3), ChatTemplate(nothing, {}), "row 1")


HOSTILE = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "a namespace's inside": "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "a namespace's inside, at once": "{{ namespace(__init__=1) }}",
    "a map's class": "{{ dict.__class__ }}",
    "what it calls": "{{ dict.__call__.__globals__ }}",
    "the date's inside": "{{ strftime_now.__self__ }}",
    "a refusal's inside": "{{ raise_exception.__globals__ }}",
    "what is not its own": "{{ messages.append(1) }}",
    "a format": "{{ '{0.__class__.__base__}'.format(messages) }}",
    "an attribute by name": "{{ messages | map(attribute='__class__') | list }}",
    "no end": "{% for i in range(999999999) %}x{% endfor %}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_reaches_nothing(name: str) -> None:
    try:
        text, _ = answers(talk(1), ChatTemplate(HOSTILE[name], {}), "row 1")
    except DataUnusable:
        return
    assert "class" not in text and "object" not in text


def test_everybody_is_told_the_same_date(tmp_path: Path) -> None:
    dated = "{{ strftime_now('%d %B %Y %H:%M') }}" + CHATML
    folder = written(tmp_path, tokenizer_config__json=CONFIG, chat_template__jinja=dated)
    assert find_template(folder)(talk(1), False).startswith("26 July 2024 00:00<|im_start|>")
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"messages": talk(i)}) + "\n" for i in range(60))
    )
    options = DataOptions((tmp_path / "a.jsonl",), chat=True, tokenizer=folder)
    data = prepare(options, LocalStore(tmp_path / "store", sync=False))
    assert any("asks for the date" in note for note in data.notes)


def test_another_template_is_other_data(tmp_path: Path) -> None:
    """What was prepared with the template before is not what is asked for now."""
    folder = written(tmp_path, tokenizer_config__json=CONFIG, chat_template__jinja=CHATML)
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"messages": talk(i)}) + "\n" for i in range(60))
    )
    options = DataOptions((tmp_path / "a.jsonl",), chat=True, tokenizer=folder)
    store = LocalStore(tmp_path / "store", sync=False)
    before = prepare(options, store)
    (folder / "chat_template.jinja").write_text(GENERATION)
    assert prepare(options, store).root != before.root
    config = CONFIG | {"bos_token": "<pad>"}
    (folder / "chat_template.jinja").write_text("{{ bos_token }}" + GENERATION)
    other = prepare(options, store)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert prepare(options, store).root != other.root


def test_a_mark_that_is_a_map_is_its_content(tmp_path: Path) -> None:
    mark = {"__type": "AddedToken", **json.loads('{"content": "</s>", "lstrip": false}')}
    config = CONFIG | {"eos_token": mark, "chat_template": "{{ eos_token }}"}
    folder = written(tmp_path, tokenizer_config__json=config)
    assert find_template(folder)(talk(1), False) == theirs(folder, talk(1)) == "</s>"
    assert str(AddedToken("</s>").content) == "</s>"
