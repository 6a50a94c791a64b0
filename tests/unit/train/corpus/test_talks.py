"""Conversations of other formats are the same messages, or are refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from atoll.numerics.errors import DataUnusable
from atoll.train.corpus.documents import Document, read_documents
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.source_files import find_files

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Twice two?"},
    {"role": "assistant", "content": "Four."},
]
SHAREGPT = [
    {"from": "system", "value": "Be brief."},
    {"from": "human", "value": "Twice two?"},
    {"from": "gpt", "value": "Four."},
]
IN_PARTS = [
    {
        "role": turn["role"],
        "content": [
            {"type": "text", "text": part} for part in (turn["content"][:4], turn["content"][4:])
        ],
    }
    for turn in TALK
]
EXTRA = {"id": 7, "name": None, "tool_calls": None, "weight": 1}

TAKEN: dict[str, dict[str, object]] = {
    "messages": {"messages": TALK},
    "messages with a system": {"messages": TALK[1:], "system": "Be brief.", "tools": []},
    "messages with more": {"messages": [{**turn, **EXTRA} for turn in TALK], "source": "x"},
    "messages in parts": {"messages": IN_PARTS},
    "ShareGPT": {"conversations": SHAREGPT, "id": "x"},
    "ShareGPT with a system": {"conversations": SHAREGPT[1:], "system": "Be brief."},
    "ShareGPT with roles": {"conversations": TALK},
    "an object of lists": {
        "conversations": {key: [t[key] for t in SHAREGPT] for key in SHAREGPT[0]}
    },
    "Alpaca": {"system": "Be brief.", "instruction": "Twice two?", "input": "", "output": "Four."},
}


def talks(path: Path, **options: str) -> list[object]:
    given = DataOptions((path,), chat=True, **options)  # type: ignore[arg-type]
    return [
        one.content
        for file in find_files(given).train
        for one in read_documents(file, given, 256)
        if isinstance(one, Document)
    ]


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet"])
def test_a_conversation_is_the_same_however_it_is_written(
    name: str, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist([TAKEN[name]]), path)
    else:
        raw = json.dumps(TAKEN[name])
        path.write_text(f"[{raw}]" if suffix == "json" else raw)
    assert talks(path) == [TALK]


def test_alpaca_puts_its_input_behind_its_instruction_and_talk_before_it(tmp_path: Path) -> None:
    row = {
        "instruction": "Add.",
        "input": "2 and 2",
        "output": "4",
        "history": [["Hello", "Hi"], ["Can you add?", "Yes"]],
    }
    (tmp_path / "a.json").write_text(json.dumps([row]))
    roles = ["user", "assistant"] * 3
    said = ["Hello", "Hi", "Can you add?", "Yes", "Add.\n\n2 and 2", "4"]
    expected = [{"role": r, "content": c} for r, c in zip(roles, said, strict=True)]
    assert talks(tmp_path / "a.json") == [expected]
    (tmp_path / "b.csv").write_text('instruction,input,output\nAdd.,"2\n2",4\n')
    assert talks(tmp_path / "b.csv") == [
        [{"role": "user", "content": "Add.\n\n2\n2"}, {"role": "assistant", "content": "4"}]
    ]


def test_a_field_that_is_named_has_either_form(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        json.dumps({"said": SHAREGPT}) + "\n" + json.dumps({"said": TALK}) + "\n"
    )
    assert talks(tmp_path / "a.jsonl", field="said") == [TALK, TALK]


def one(**turn: object) -> dict[str, object]:
    """A row whose last turn is changed."""
    return {"messages": [*TALK[:2], {**TALK[2], **turn}]}


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "an image": (
        one(content=[{"type": "text", "text": "See"}, {"type": "image_url", "image_url": "x"}]),
        "part 2 of message 3 is of the type 'image_url'",
    ),
    "a part that is a text": (one(content=["x"]), "part 1 of message 3 is of the type None"),
    "no parts": (one(content=[]), "message 3 has no content of text"),
    "no content": (one(content=None), "message 3 has no content of text"),
    "a tool's call": (one(content="", tool_calls=[{"id": 1}]), "message 3 has 'tool_calls'"),
    "a thought": (one(reasoning_content="hm"), "message 3 has 'reasoning_content'"),
    "not to be learned": (one(weight=0), "message 3 has 'weight' = 0"),
    "no role": (one(role=3), "message 3 has no role"),
    "no object": ({"messages": ["x"]}, "message 1 is str"),
    "an empty list": ({"messages": []}, "its messages are an empty list"),
    "a text": ({"messages": json.dumps(TALK)}, "its messages are str, not a list"),
    "no answer": ({"messages": TALK[:2]}, "no message of the assistant"),
    "tools": ({"messages": TALK, "tools": [{"name": "f"}]}, "'tools' beside the messages"),
    "images": ({"messages": TALK, "images": ["x.png"]}, "'images' beside the messages"),
    "two systems": ({"messages": TALK, "system": "Be long."}, "two of its texts are the system's"),
    "ShareGPT's tool": (
        {"conversations": [*SHAREGPT, {"from": "function_call", "value": "{}"}]},
        "message 4 is from 'function_call'",
    ),
    "ShareGPT without a value": (
        {"conversations": [*SHAREGPT, {"from": "gpt", "value": None}]},
        "message 4 has no content",
    ),
    "Alpaca without an instruction": (
        {"instruction": "", "output": "x"},
        "'instruction' and 'output' are not both text",
    ),
    "Alpaca of numbers": ({"instruction": "Add", "output": 4}, "are not both text"),
    "Alpaca's history": (
        {"instruction": "Add", "output": "4", "history": [["x"]]},
        "'history' is no list of pairs",
    ),
    "preferences": (
        {"prompt": "x", "chosen": "a", "rejected": "b"},
        "but prompt, chosen, rejected",
    ),
    "a question": ({"question": "x", "answer": "b"}, "nothing under 'messages', 'conversations'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_role_and_content_is_refused_by_name(name: str, tmp_path: Path) -> None:
    row, match = REFUSED[name]
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": TALK}) + "\n" + json.dumps(row))
    with pytest.raises(DataUnusable, match=rf"a\.jsonl, line 2: .*{match}") as no:
        talks(tmp_path / "a.jsonl")
    assert "data.bad_rows" in (no.value.next_step or "")
    assert talks(tmp_path / "a.jsonl", bad_rows="skip") == [TALK]


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet"])
@pytest.mark.parametrize("turns", [1, 4])
def test_a_conversation_that_takes_too_much_memory_is_refused(
    turns: int, suffix: str, tmp_path: Path
) -> None:
    answer = {"role": "assistant", "content": "x" * ((1 << 20) // turns + 1)}
    rows: list[dict[str, object]] = [
        {"messages": [*TALK[:2], *[answer] * turns]},
        {"messages": TALK},
    ]
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(json.dumps(rows) if suffix == "json" else "\n".join(map(json.dumps, rows)))
    with pytest.raises(DataUnusable, match=r", \w+ 1: a (text|conversation) of more than 1048576"):
        talks(path)
    assert talks(path, bad_rows="skip") == [TALK]


def test_rows_of_conversations_say_so_where_a_text_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"conversations": SHAREGPT}))
    with pytest.raises(DataUnusable, match="nothing under 'text', but conversations") as no:
        list(read_documents(find_files(DataOptions((tmp_path,))).train[0], DataOptions(()), 64))
    assert "data.chat = true" in (no.value.next_step or "")
