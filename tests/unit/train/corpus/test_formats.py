"""Every format gives the same documents, from any position on, and damage is named."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from atoll.numerics.errors import DataUnusable
from atoll.train.corpus.documents import Document, read_documents, section_bytes
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.source_files import find_files, told

TEXTS = [f"text {i}: " + "naïve words " * (i % 7) for i in range(600)]


def jsonl(path: Path, field: str = "text") -> None:
    lines = [json.dumps({"id": i, field: text}) for i, text in enumerate(TEXTS)]
    path.write_text("\n".join([*lines[:9], "", *lines[9:]]) + "\n")


def gzipped(path: Path) -> None:
    jsonl(path.with_suffix(""))
    path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))
    path.with_suffix("").unlink()


def zstandard(path: Path) -> None:
    jsonl(path.with_suffix(""))
    with pa.output_stream(str(path), compression="zstd") as out:
        out.write(path.with_suffix("").read_bytes())
    path.with_suffix("").unlink()


def parquet(path: Path) -> None:
    table = pa.table({"id": range(len(TEXTS)), "text": TEXTS})
    pq.write_table(table, path, row_group_size=170)


def saved_dataset(folder: Path) -> None:
    """What `Dataset.save_to_disk` writes: Arrow streams, named in state.json."""
    folder.mkdir(parents=True)
    table = pa.table({"text": pa.array(TEXTS, pa.large_string())})
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for name, part in zip(names, (table.slice(0, 350), table.slice(350)), strict=True):
        path = str(folder / name)
        with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, part.schema) as writer:
            writer.write_table(part, max_chunksize=100)
    state = {"_data_files": [{"filename": name} for name in names], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")


FORMATS: dict[str, Callable[[Path], None]] = {
    "a.jsonl": jsonl,
    "a.ndjson": jsonl,
    "a.jsonl.gz": gzipped,
    "a.jsonl.zst": zstandard,
    "a.parquet": parquet,
    "saved": saved_dataset,
}


def documents(options: DataOptions) -> list[tuple[int, Document]]:
    files = find_files(options).train
    section = section_bytes(sum(file.bytes for file in files))
    return [
        (index, document)
        for index, file in enumerate(files)
        for document in read_documents(file, options, section)
        if isinstance(document, Document)
    ]


def texts(options: DataOptions) -> list[str]:
    return [doc.content.decode() for _, doc in documents(options) if isinstance(doc.content, bytes)]


@pytest.mark.parametrize("name", FORMATS)
def test_a_row_is_a_document(name: str, tmp_path: Path) -> None:
    FORMATS[name](tmp_path / name)
    assert texts(DataOptions((tmp_path / name,))) == TEXTS
    if name != "saved":  # of a folder, files go by their names
        assert texts(DataOptions((tmp_path,))) == TEXTS


@pytest.mark.parametrize("name", FORMATS)
def test_reading_goes_on_after_any_document(name: str, tmp_path: Path) -> None:
    FORMATS[name](tmp_path / name)
    options = DataOptions((tmp_path / name,))
    files, found = find_files(options).train, documents(options)
    for at in (0, 1, 99, 100, 169, 170, 349, 350, 598, 599):
        index, document = found[at]
        rest = [(index, d) for d in read_documents(files[index], options, 256, document.position)]
        assert rest == [item for item in found[at + 1 :] if item[0] == index]


def test_another_field_is_named(tmp_path: Path) -> None:
    jsonl(tmp_path / "a.jsonl", "body")
    assert texts(DataOptions((tmp_path,), field="body")) == TEXTS
    with pytest.raises(DataUnusable, match=r"line 1: nothing under 'text', but id, body"):
        texts(DataOptions((tmp_path,)))
    parquet(tmp_path / "b.parquet")
    with pytest.raises(DataUnusable, match=r"b\.parquet: nothing under 'body', but id, text"):
        texts(DataOptions((tmp_path / "b.parquet",), field="body"))


def test_the_train_split_of_a_dataset_dict_is_read(tmp_path: Path) -> None:
    saved_dataset(tmp_path / "all" / "train")
    saved_dataset(tmp_path / "all" / "test")
    (tmp_path / "all" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert texts(DataOptions((tmp_path / "all",))) == TEXTS


def test_hidden_files_are_excluded_unless_asked_and_binary_ones_always(tmp_path: Path) -> None:
    for name, content in (
        ("a.txt", b"text"),
        (".git/config", b"hidden"),
        ("sub/.env", b"secret"),
        ("sub/b.md", b"words"),
        ("c.bin", b"\x7fELF\0\1"),
    ):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    options = DataOptions((tmp_path / "in",))
    assert texts(options) == ["text", "words"]
    assert texts(replace(options, hidden=True)) == ["hidden", "text", "secret", "words"]
    named = replace(options, paths=(tmp_path / "in" / "sub" / ".env",))
    assert texts(named) == ["secret"]
    only = replace(options, suffixes=frozenset({".md"}))
    assert texts(only) == ["words"]
    # A hidden folder above the one that is named hides nothing.
    assert texts(replace(options, paths=(tmp_path / "in" / ".git",))) == ["hidden"]


@pytest.mark.parametrize("section", [4, 7, 64])
def test_sections_lose_no_byte_and_cut_no_letter(section: int, tmp_path: Path) -> None:
    text = "naïve €uro 𝄞 lines\n" * 9 + "𝄞€ï" * 60 + "\n\n\nlast"
    (tmp_path / "a").write_text(text)
    options = DataOptions((tmp_path / "a",))
    (file,) = find_files(options).train
    found = [d for d in read_documents(file, options, section) if isinstance(d, Document)]
    parts = [document.content for document in found]
    assert b"".join(part for part in parts if isinstance(part, bytes)) == text.encode()
    assert all(isinstance(part, bytes) and part.decode() for part in parts)
    ends = [document.position[0] for document in found]
    assert [document.before for document in found] == [0, *ends[:-1]]
    for at, document in enumerate(found):
        assert list(read_documents(file, options, section, document.position)) == found[at + 1 :]


def test_sections_are_as_long_as_there_is_text() -> None:
    sizes = [section_bytes(total) for total in (0, 1, 10**4, 10**6, 10**7, 10**9, 10**12)]
    assert sizes == [256, 256, 256, 512, 8192, 65536, 65536]


DAMAGED: dict[str, tuple[bytes, str]] = {
    "not JSON": (b'{"text": "a"}\n{"text": "b"\n', "line 2: not JSON"),
    "no object": (b'"text"\n', "line 1: a str, not an object"),
    "no text": (b'{"text": 5}\n', "line 1: 'text' is int, not text"),
    "nothing": (b'{"text": null}\n', "line 1: 'text' is null"),
    "half a surrogate": (b'{"text": "\\ud800"}\n', "line 1: half of a surrogate"),
    "not UTF-8": (b'{"text": "\xff"}\n', "line 1: not JSON"),
    "too deep": (b'{"text": ' + b"[" * 100_000 + b"\n", "line 1: not JSON"),
    "a number too long": (b'{"text": ' + b"9" * 10_000 + b"}\n", "line 1: not JSON"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_line_is_named(name: str, tmp_path: Path) -> None:
    raw, complaint = DAMAGED[name]
    (tmp_path / "a.jsonl").write_bytes(raw)
    with pytest.raises(DataUnusable, match=r"a\.jsonl, " + complaint) as caught:
        texts(DataOptions((tmp_path,)))
    assert caught.value.next_step


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll.train.corpus.jsonrows.MAX_ROW_BYTES", 3 << 20)
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "x" * (4 << 20)}))
    with pytest.raises(DataUnusable, match="line 1: more than 3145728 bytes"):
        texts(DataOptions((tmp_path,)))


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet", "saved"])
@pytest.mark.parametrize("damage", ["cut", "bent", "noise", "empty"])
def test_a_damaged_file_is_refused_by_name(name: str, damage: str, tmp_path: Path) -> None:
    FORMATS[name](tmp_path / name)
    path = tmp_path / name
    if name == "saved":
        path = path / "data-00001-of-00002.arrow"
    raw = path.read_bytes()
    half = len(raw) // 2
    path.write_bytes(
        {
            "cut": raw[:half],
            "bent": raw[:half] + bytes(b ^ 0xFF for b in raw[half : half + 40]) + raw[half + 40 :],
            "noise": b"no such format" * 99,
            "empty": b"",
        }[damage]
    )
    try:
        found = texts(DataOptions((tmp_path / name,)))
    except DataUnusable as error:
        assert path.name in str(error)
        assert error.next_step
    else:  # Arrow has no checksum: a bent letter is another letter
        assert (damage == "bent" and name in ("saved", "a.parquet")) or not raw or not found


# --- what is no file of text ---


def inside(tmp_path: Path) -> Path:
    """A folder with one text."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("text")
    return tmp_path / "in"


@pytest.mark.parametrize("to", ["secret.txt", "elsewhere", "nowhere", "/dev/zero"])
def test_a_link_out_of_a_folder_is_refused_by_name(to: str, tmp_path: Path) -> None:
    folder = inside(tmp_path)
    (tmp_path / "secret.txt").write_text("a secret")
    (tmp_path / "elsewhere").mkdir()
    (folder / "b.txt").symlink_to(tmp_path / to)
    with pytest.raises(DataUnusable, match=rf"b\.txt is a link to .*{to}, which is not in") as no:
        texts(DataOptions((folder,)))
    assert "data.paths" in (no.value.next_step or "")
    (folder / "b.txt").rename(folder / ".hidden")
    assert texts(DataOptions((folder,))) == ["text"]


def test_a_link_within_a_folder_is_a_file_and_goes_in_no_circle(tmp_path: Path) -> None:
    folder = inside(tmp_path)
    (folder / "b.txt").symlink_to("a.txt")
    (folder / "round").symlink_to(folder)
    assert texts(DataOptions((folder,))) == ["text"]
    assert told(find_files(DataOptions((folder,))).excluded) == "b.txt (the same file as a.txt)"
    (tmp_path / "named.txt").symlink_to(folder / "a.txt")
    assert texts(DataOptions((tmp_path / "named.txt",))) == ["text"]
    (folder / "c.txt").symlink_to("c.txt")
    with pytest.raises(DataUnusable, match=r"c\.txt leads nowhere"):
        texts(DataOptions((folder,)))


@pytest.mark.parametrize("is_named", [True, False])
def test_a_pipe_is_refused_by_name(is_named: bool, tmp_path: Path) -> None:
    folder = inside(tmp_path)
    os.mkfifo(folder / "pipe")
    with pytest.raises(DataUnusable, match="pipe is neither a file nor a folder"):
        texts(DataOptions((folder / "pipe" if is_named else folder,)))


def test_a_folder_that_cannot_be_searched_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, listed = inside(tmp_path), os.scandir

    def refuse(path: str) -> object:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    (folder / "closed").mkdir()
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataUnusable, match=r"cannot read .*closed"):
        texts(DataOptions((folder,)))


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(DataUnusable, match=r"cannot read x.* name too long"):
        texts(DataOptions((Path("x" * 5000),)))


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.TAR", "a.txt.bz2"])
def test_what_is_packed_is_no_text_unless_it_is_said_to_be(name: str, tmp_path: Path) -> None:
    folder = inside(tmp_path)
    (folder / name).write_bytes(gzip.compress(b"a.txt") if name.endswith("gz") else b"packed")
    with pytest.raises(DataUnusable, match="is packed") as caught:
        texts(DataOptions((folder / name,)))
    assert "unpack" in (caught.value.next_step or "")
    assert texts(DataOptions((folder / name,), format="text"))
    assert texts(DataOptions((folder,))) == ["text"]


def test_a_name_in_capitals_says_as_much(tmp_path: Path) -> None:
    gzipped(tmp_path / "a.jsonl.gz")
    (tmp_path / "a.jsonl.gz").rename(tmp_path / "A.JSONL.GZ")
    assert texts(DataOptions((tmp_path / "A.JSONL.GZ",))) == TEXTS


@pytest.mark.parametrize("is_named_once", [True, False])
def test_a_small_parquet_file_of_long_texts_takes_little_memory(
    is_named_once: bool, tmp_path: Path
) -> None:
    path, long = tmp_path / "a.parquet", pa.array(["x" * (1 << 20)])
    table = pa.table({"text": long.take(pa.array([0] * 64))})
    pq.write_table(
        table, path, compression="zstd", use_dictionary=is_named_once, write_batch_size=1
    )
    del table, long
    assert path.stat().st_size < 1 << 16
    (file,), before = find_files(DataOptions((path,))).train, pa.total_allocated_bytes()
    for document in read_documents(file, DataOptions((path,)), 64):
        assert len(document.content) == 1 << 20
        assert pa.total_allocated_bytes() - before < 40 << 20


@pytest.mark.parametrize("name", ["a.parquet", "saved", "a.jsonl.zst"])
def test_what_needs_pyarrow_says_so(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FORMATS[name](tmp_path / name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataUnusable, match="needs pyarrow") as caught:
        texts(DataOptions((tmp_path / name,)))
    assert "atoll[parquet]" in (caught.value.next_step or "")


@pytest.mark.parametrize(
    ("state", "complaint"),
    [
        ("{", "does not list"),
        ("[]", "does not list"),
        ('{"_data_files": [{"filename": "gone.arrow"}]}', "is missing"),
        ('{"_data_files": [{"filename": "../../etc/passwd"}]}', "saved/passwd is missing"),
        ('{"_data_files": [], "_indices_data_files": [1]}', "a selection of rows"),
    ],
)
def test_a_folder_that_lists_no_files_is_refused(
    state: str, complaint: str, tmp_path: Path
) -> None:
    saved_dataset(tmp_path / "saved")
    (tmp_path / "saved" / "state.json").write_text(state)
    with pytest.raises(DataUnusable, match=complaint):
        texts(DataOptions((tmp_path / "saved",)))
