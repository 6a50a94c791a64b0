"""Rows of JSON and CSV, whatever wrote them: long ones in little memory, bad ones told."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.train.corpus.test_prepare import (  # noqa: F401
    documents_in,
    store,
    tokenizer_folder,
    tokens_of,
)

from atoll.errors import DiskFull
from atoll.numerics.errors import DataUnusable
from atoll.storage.local import LocalStore
from atoll.train.corpus import jsonrows
from atoll.train.corpus.documents import Document, Skipped, read_documents
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.prepare import prepare
from atoll.train.corpus.rows import BadRow
from atoll.train.corpus.source_files import find_files

TEXTS = [
    f'text {i}, "quoted"; \\back\\ [in] {{braces}}\n naïve 𝄞 {"€" * (i % 5)}' for i in range(300)
]
ROWS = [{"id": i, "more": {"a": [1, "]"]}, "text": text} for i, text in enumerate(TEXTS)]


def read(options: DataOptions) -> list[Document | Skipped]:
    files = find_files(options).train
    return [one for file in files for one in read_documents(file, options, 1 << 16)]


def texts(options: DataOptions) -> list[str]:
    """Of rows, whose sections are put together."""
    found: list[bytes] = []
    for one in read(options):
        if isinstance(one, Document) and isinstance(one.content, bytes):
            if one.before:
                found[-1] += one.content
            else:
                found.append(one.content)
    return [text.decode() for text in found]


def write_csv(path: Path, delimiter: str = ",", encoding: str = "utf-8") -> None:
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["id", "text"])
        writer.writerows(enumerate(TEXTS))


def lines(rows: list[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


WRITERS: dict[str, Callable[[Path], object]] = {
    "array.json": lambda p: p.write_text(json.dumps(ROWS)),
    "pretty.json": lambda p: p.write_text(json.dumps(ROWS, indent=2, ensure_ascii=False)),
    "marked.json": lambda p: p.write_text("\ufeff \n" + json.dumps(ROWS)),
    "lines.json": lambda p: p.write_text(lines(ROWS)),
    "array.jsonl": lambda p: p.write_text(json.dumps(ROWS)),
    "array.json.gz": lambda p: p.write_bytes(gzip.compress(json.dumps(ROWS).encode())),
    "windows.jsonl": lambda p: p.write_text(lines(ROWS), encoding="utf-16"),
    "marked.jsonl": lambda p: p.write_bytes(codecs.BOM_UTF8 + lines(ROWS).encode()),
    "a.csv": write_csv,
    "a.tsv": lambda p: write_csv(p, "\t"),
    "semicolons.csv": lambda p: write_csv(p, ";"),
    "excel.csv": lambda p: write_csv(p, ",", "utf-8-sig"),
    "unicode_text.csv": lambda p: write_csv(p, "\t", "utf-16"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_same_rows_whatever_wrote_them_and_from_any_position_on(
    name: str, tmp_path: Path
) -> None:
    WRITERS[name](tmp_path / name)
    options = DataOptions((tmp_path / name,))
    assert texts(options) == TEXTS
    (file,), found = find_files(options).train, read(options)
    for at in (0, 1, 150, 298, 299):
        assert list(read_documents(file, options, 256, found[at].position)) == found[at + 1 :]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
def test_an_array_is_cut_anywhere_as_it_is_read(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonrows, "_CHUNK_BYTES", chunk)
    (tmp_path / "a.json").write_text(json.dumps(ROWS[:20]))
    assert texts(DataOptions((tmp_path / "a.json",))) == TEXTS[:20]


@pytest.mark.parametrize("chunk", [1, 5, 12, 64])
@pytest.mark.parametrize("suffix", ["json", "jsonl"])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_a_long_text_loses_no_letter_wherever_it_is_cut(
    chunk: int, suffix: str, is_ascii: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonrows, "_CHUNK_BYTES", chunk)
    monkeypatch.setattr(jsonrows, "LONG_BYTES", 40)
    rows = [{"before": "x" * 99, **row, "after": '\\" 𝄞' * 30} for row in ROWS[:30]]
    texts_of = [json.dumps(row, ensure_ascii=is_ascii) for row in rows]
    whole = f"[{','.join(texts_of)}]" if suffix == "json" else "\n".join(texts_of)
    (tmp_path / f"a.{suffix}").write_text(whole)
    assert texts(DataOptions((tmp_path,))) == TEXTS[:30]


def test_a_long_row_is_one_document_and_is_drawn_as_its_copy_in_parquet(
    tmp_path: Path,
    store: LocalStore,  # noqa: F811
) -> None:
    rows = [{"text": f"{i}: " + "naïve words\n" * (200_000 * (i % 3 == 0) + 1)} for i in range(12)]
    (tmp_path / "a.jsonl").write_text(lines(rows))  # type: ignore[arg-type]
    (tmp_path / "b.json").write_text(json.dumps(rows))
    pq.write_table(pa.table({"text": [row["text"] for row in rows]}), tmp_path / "c.parquet")
    found = {}
    for name in ("a.jsonl", "b.json", "c.parquet"):
        data = prepare(DataOptions((tmp_path / name,), held_out="0.5"), store)
        train, held_out = (documents_in(tokens, 0) for tokens in tokens_of(store, data))
        assert sorted(train + held_out) == sorted(row["text"].encode() for row in rows)
        assert data.train_documents + data.eval_documents == 12
        found[name] = (data.cid, data.eval_cid)
    assert len(set(found.values())) == 1


def test_reading_goes_on_within_a_long_row(tmp_path: Path) -> None:
    rows = [{"text": "first"}, {"text": "naïve words\n" * 200_000}, {"text": "last"}]
    (tmp_path / "a.jsonl").write_text(lines(rows))  # type: ignore[arg-type]
    (tmp_path / "b.json").write_text(json.dumps(rows))
    pq.write_table(pa.table({"text": [row["text"] for row in rows]}), tmp_path / "c.parquet")
    for name in ("a.jsonl", "b.json", "c.parquet"):
        options = DataOptions((tmp_path / name,))
        (file,), found = find_files(options).train, read(options)
        assert len(found) > 20
        for at in (0, 1, 9, len(found) - 2):
            assert list(read_documents(file, options, 256, found[at].position)) == found[at + 1 :]


def test_a_full_disk_for_long_rows_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "x" * (3 << 20)}))
    full = Path("/dev/full").open("wb", 0)  # noqa: SIM115 (the reader closes it)
    monkeypatch.setattr(jsonrows, "TemporaryFile", lambda: full)
    with pytest.raises(DiskFull, match="no room left on the disk of"):
        read(DataOptions((tmp_path / "a.jsonl",), bad_rows="skip"))


BROKEN_ARRAYS = {
    "cut": '[{"text": "a"}, {"text": "b"',
    "cut between": '[{"text": "a"}, ',
    "no comma": '[{"text": "a"} {"text": "b"}]',
    "two commas": '[{"text": "a"},, {"text": "b"}]',
    "a comma at the end": '[{"text": "a"}, ]',
    "more behind": '[{"text": "a"}] {"text": "b"}',
    "brackets that do not close": '[{"text": "a"}, {"text": [[}]',
}


@pytest.mark.parametrize("name", BROKEN_ARRAYS)
@pytest.mark.parametrize("bad_rows", ["refuse", "skip"])
def test_a_broken_array_is_refused_whatever_becomes_of_bad_rows(
    name: str, bad_rows: str, tmp_path: Path
) -> None:
    """Where its rows end is not known: there is nothing to skip."""
    (tmp_path / "a.json").write_text(BROKEN_ARRAYS[name])
    options = DataOptions((tmp_path / "a.json",), bad_rows=bad_rows)  # type: ignore[arg-type]
    with pytest.raises(DataUnusable, match=r"a\.json, row \d: the array of rows is broken") as no:
        read(options)
    assert not isinstance(no.value, BadRow)


def test_one_object_in_json_is_refused_where_rows_are_wanted(tmp_path: Path) -> None:
    wrapped = json.dumps({"version": "1.1", "data": ROWS[:3]}, indent=1)
    (tmp_path / "a.json").write_text(wrapped)
    (tmp_path / "b.json").write_text(json.dumps({"name": "settings"}, indent=1))
    (tmp_path / "notes.md").write_text("words")
    for name in ("a.json", "b.json"):
        with pytest.raises(DataUnusable, match=rf"{name} is one JSON object") as no:
            read(DataOptions((tmp_path / name,)))
        assert "jq" in (no.value.next_step or "")
    with pytest.raises(DataUnusable, match=r"a\.json is one JSON object"):
        read(DataOptions((tmp_path,)))
    (tmp_path / "a.json").unlink()
    assert len(texts(DataOptions((tmp_path,)))) == 2  # settings among texts are text
    assert texts(DataOptions((tmp_path / "b.json",), format="text"))
    (tmp_path / "c.json").write_text('{"text": "one row"}')
    assert texts(DataOptions((tmp_path / "c.json",))) == ["one row"]


# --- marks of byte order, zero bytes ---


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-be", "utf-32-be"])
def test_a_text_in_another_encoding_is_its_letters(encoding: str, tmp_path: Path) -> None:
    text = "naïve 𝄞 lines\n" * 999
    mark = "\ufeff" if encoding.endswith("be") else ""
    for name, pack in (("a.txt", bytes), ("b.txt.gz", gzip.compress)):
        (tmp_path / name).write_bytes(pack((mark + text).encode(encoding)))
        options = DataOptions((tmp_path / name,))
        (file,) = find_files(options).train
        found = [d for d in read_documents(file, options, 256) if isinstance(d, Document)]
        assert b"".join(bytes(d.content) for d in found) == text.encode()  # type: ignore[arg-type]
        for at in (0, 7, len(found) - 2):
            assert list(read_documents(file, options, 256, found[at].position)) == found[at + 1 :]


def test_a_damaged_utf_16_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("letters".encode("utf-16") + b"\x00\xd8")
    with pytest.raises(DataUnusable, match=r"cannot read .*a\.txt"):
        read(DataOptions((tmp_path / "a.txt",)))


def test_a_zero_byte_is_refused_by_its_position_in_any_kind(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * 9000 + b"\0")
    with pytest.raises(DataUnusable, match=r"a\.txt: byte 9000 is a zero byte"):
        read(DataOptions((tmp_path / "a.txt",)))
    (tmp_path / "b.jsonl").write_text('{"text": "a"}\n{"text": "a\\u0000b"}\n')
    (tmp_path / "c.json").write_text('[{"text": "' + "x" * (2 << 20) + '\\u0000"}]')
    pq.write_table(pa.table({"text": ["x" * (2 << 20) + "\0"]}), tmp_path / "d.parquet")
    (tmp_path / "e.csv").write_bytes(b"text\na\0b\n")
    talk = [{"role": "assistant", "content": "a\0b"}]
    (tmp_path / "f.jsonl").write_text(json.dumps({"messages": talk}))
    for name, chat in (("b.jsonl", False), ("c.json", False), ("d.parquet", False)):
        with pytest.raises(DataUnusable, match=rf"{name}, \w+ \d: a zero byte"):
            read(DataOptions((tmp_path / name,), chat=chat))
    with pytest.raises(DataUnusable, match=r"f\.jsonl, line 1: a zero byte"):
        read(DataOptions((tmp_path / "f.jsonl",), chat=True))
    with pytest.raises(DataUnusable, match=r"e\.csv, line 2: "):
        read(DataOptions((tmp_path / "e.csv",)))


# --- columns ---


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv", "a.jsonl"])
def test_two_columns_of_one_name_are_refused(name: str, tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    if name == "a.parquet":
        pq.write_table(table, tmp_path / name)
    elif name == "a.arrow":
        with (
            pa.OSFile(str(tmp_path / name), "wb") as file,
            pa.ipc.new_file(file, table.schema) as w,
        ):
            w.write_table(table)
    else:
        (tmp_path / name).write_text(
            "text,text\na,b\n" if name == "a.csv" else '{"text":"a","text":"b"}'
        )
    with pytest.raises(DataUnusable, match=r"(columns|fields of an object) are called 'text'"):
        read(DataOptions((tmp_path / name,)))


COLUMNS: dict[str, pa.Array] = {
    "string": pa.array(["a", "b"]),
    "large_string": pa.array(["a", "b"], pa.large_string()),
    "string_view": pa.array(["a", "b"], pa.string_view()),
    "dictionary": pa.array(["a", "b"]).dictionary_encode(),
    "list": pa.array([["a"], ["b"]]),
    "struct": pa.array([{"a": "x"}, {"a": "y"}]),
    "binary": pa.array([b"a", b"b"]),
    "int": pa.array([1, 2]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_text_of_any_type_of_text_and_of_no_other(name: str, tmp_path: Path) -> None:
    table = pa.table({"text": COLUMNS[name]})
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file,
        pa.ipc.new_file(file, table.schema) as w,
    ):
        w.write_table(table)
    options = DataOptions((tmp_path / "a.arrow",), bad_rows="skip")
    if name in ("list", "struct", "binary", "int"):
        with pytest.raises(DataUnusable, match=r"a\.arrow: the column 'text' is of .*, not text"):
            read(options)
    else:
        assert texts(options) == ["a", "b"]


def test_csv_is_refused_by_line(tmp_path: Path) -> None:
    def refused(text: str, match: str) -> None:
        (tmp_path / "a.csv").write_text(text)
        with pytest.raises(DataUnusable, match=match):
            read(DataOptions((tmp_path / "a.csv",)))

    refused("id,body\n1,a\n", r"a\.csv: nothing under 'text', but id, body")
    refused("", r"a\.csv: nothing under 'text'")
    refused("id,text\n1,a\n1,a,b\n", r"a\.csv, line 3: 3 fields, where the header has 2")
    refused('id,text\n1,a\n1,"a\nb\n', r"a\.csv, line 3: no row of CSV: unexpected end")
    refused('id,text\n1,"a" b\n', r"a\.csv, line 2: no row of CSV")
    refused(
        "id,text\n1," + "x" * (5 << 20), r"a\.csv, line 2: no row of CSV: more than 4194304 bytes"
    )


# --- data.bad_rows ---

BAD_LINES = [
    ('{"text": "good 1"}', None),
    ('{"text": ', "not JSON"),
    ('{"text": null}', "null in place of text"),
    ('{"text": 5}', "int in place of text"),
    ('"text"', "no object"),
    ('{"body": "x"}', "no text under its column"),
    ('{"text": ""}', "empty"),
    ('{"text": "a\\u0000"}', "a zero byte"),
    ('{"text": "\\ud800"}', "no text"),
    ('{"text": "good 2"}', None),
    ('{"text": "' + "x" * (2 << 20) + '\\ud800"}', "no text"),
    ('{"text": "' + "x" * (2 << 20) + '"', "not JSON"),
    ('{"text": "good 3"}', None),
]


def test_bad_rows_are_refused_by_line_or_skipped_and_counted(
    tmp_path: Path,
    store: LocalStore,  # noqa: F811
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(line for line, _ in BAD_LINES))
    options = DataOptions((path,), held_out="0.5")
    with pytest.raises(BadRow, match=r"a\.jsonl, line 2: not JSON") as no:
        prepare(options, store)
    assert 'data.bad_rows = "skip"' in (no.value.next_step or "")
    skipping = replace(options, bad_rows="skip")
    assert texts(skipping) == ["good 1", "good 2", "good 3"]
    assert [one.reason for one in read(skipping) if isinstance(one, Skipped)] == [
        reason for _, reason in BAD_LINES if reason
    ]
    found = read(skipping)
    (file,) = find_files(skipping).train
    for at in range(len(found)):
        assert list(read_documents(file, skipping, 64, found[at].position)) == found[at + 1 :]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.parquet"])
def test_what_is_skipped_is_told_and_follows_from_the_data(
    name: str,
    tmp_path: Path,
    store: LocalStore,  # noqa: F811
) -> None:
    good = [f"a good text, number {i}" for i in range(40)]
    rows: list[str | None] = [
        text for pair in zip(good, [None, ""] * 20, strict=True) for text in pair
    ]
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.table({"text": rows}), path)
    elif name == "a.csv":
        path.write_text(
            "text,id\n" + "".join(f'"{t}",1\n' if t is not None else "one\n" for t in rows)
        )
    elif name == "a.json":
        path.write_text(json.dumps([{"text": text} for text in rows]))
    else:
        path.write_text(lines([{"text": text} for text in rows]))
    options = DataOptions((path,), held_out="0.4", bad_rows="skip")
    data = prepare(options, store)
    reason = "no CSV" if name == "a.csv" else "null in place of text"
    assert data.account.skipped == {"empty": 20, reason: 20}
    assert prepare(options, store).account == data.account  # of what is done already, too
    clean = tmp_path / "clean.jsonl"
    clean.write_text(lines([{"text": text} for text in good]))
    other = prepare(replace(options, paths=(clean,)), store)
    assert (other.cid, other.eval_cid) == (data.cid, data.eval_cid)
    assert data.account.lines()[-1] == f"skipped    40 rows: 20 empty, 20 {reason}"


def test_a_row_that_the_template_refuses_is_a_bad_row(
    tmp_path: Path,
    store: LocalStore,  # noqa: F811
    tokenizer_folder: Path,  # noqa: F811
) -> None:
    template = (
        "{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('no') }}{% endif %}"
        "{{ m.content }}\n{% endfor %}"
    )
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes((tokenizer_folder / "tokenizer.json").read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    said = ["yes", "no", "perhaps"] * 10
    rows = [
        {"messages": [{"role": "user", "content": f"{i}?"}, {"role": "assistant", "content": word}]}
        for i, word in enumerate(said)
    ]
    (tmp_path / "a.jsonl").write_text(lines(rows))  # type: ignore[arg-type]
    options = DataOptions((tmp_path / "a.jsonl",), chat=True, tokenizer=folder, held_out="0.4")
    with pytest.raises(DataUnusable, match=r"a\.jsonl, line 2: the chat template refuses"):
        prepare(options, store)
    data = prepare(replace(options, bad_rows="skip"), store)
    assert data.account.skipped == {"refused by tokenizer or chat template": 10}
    assert data.train_documents + data.eval_documents == 20


def test_too_little_says_what_was_skipped(tmp_path: Path, store: LocalStore) -> None:  # noqa: F811
    (tmp_path / "a.jsonl").write_text("{}\n" * 9)
    with pytest.raises(DataUnusable, match="skipped 9 rows: 9 no text under its column"):
        prepare(DataOptions((tmp_path / "a.jsonl",), bad_rows="skip"), store)


def test_a_zero_byte_ends_documents_and_nothing_else(
    tmp_path: Path,
    store: LocalStore,  # noqa: F811
) -> None:
    (tmp_path / "a.jsonl").write_text(
        lines([{"text": f"left {i}" + "\0" * (i % 3 == 0) + " right"} for i in range(300)])
    )
    data = prepare(DataOptions((tmp_path / "a.jsonl",), bad_rows="skip", held_out="0.2"), store)
    assert data.account.skipped == {"a zero byte": 100}
    for tokens, count in zip(
        tokens_of(store, data), (data.train_documents, data.eval_documents), strict=True
    ):
        assert int((np.array(tokens) == 0).sum()) == count
