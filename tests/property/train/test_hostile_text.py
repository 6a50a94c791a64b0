"""Whatever bytes are given as text: they become documents, or are refused by name."""

from __future__ import annotations

import codecs
import gzip
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import example, given, settings
from hypothesis import strategies as st

from atoll.numerics.errors import DataUnusable
from atoll.train.corpus.documents import Document, read_documents
from atoll.train.corpus.options import BadRows, DataOptions
from atoll.train.corpus.rows import BadRow
from atoll.train.corpus.source_files import find_files


def whole(name: str) -> bytes:
    """A valid file of that name."""
    rows = [json.dumps({"text": f"row {i} ü"}) for i in range(20)]
    if name.endswith((".parquet", ".arrow")):
        table = pa.table({"text": [f"row {i}" for i in range(20)]})
        sink = pa.BufferOutputStream()
        if name.endswith(".parquet"):
            pq.write_table(table, sink)
        else:
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        return bytes(sink.getvalue())
    if name.endswith(".csv"):
        rows = ["id,text", *(f'{i},"row, {i}\n ü"' for i in range(20))]
    raw = f"[{','.join(rows)}]".encode() if name.endswith(".json") else "\n".join(rows).encode()
    return gzip.compress(raw, mtime=0) if name.endswith(".gz") else raw


NAMES = ("a.txt", "a.jsonl", "a.json", "a.csv", "a.jsonl.gz", "a.parquet", "a.arrow")
FILES = {name: whole(name) for name in NAMES}
MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
EDITS = st.lists(
    st.tuples(st.integers(0, 4000), st.integers(0, 9), st.binary(max_size=9)), max_size=4
)


@settings(max_examples=300, deadline=None)
@example("a.jsonl", [(0, 0, b"\xef\xbb\xbf")], False, False)
@example("a.txt", [(0, 0, b"\xff\xfe")], False, False)
@example("a.json", [(40, 1, b"")], False, True)
@given(
    st.sampled_from(sorted(FILES)),
    EDITS | st.just([(0, 4000, b"")]),
    st.booleans(),
    st.booleans(),
)
def test_bent_files_are_read_or_refused_by_name(
    name: str, edits: list[tuple[int, int, bytes]], chat: bool, skip: bool
) -> None:
    data = FILES[name]
    for start, length, put in edits:
        at = start % (len(data) + 1)
        data = data[:at] + put + data[at + length :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        bad_rows: BadRows = "skip" if skip else "refuse"
        options = DataOptions((path,), chat=chat, field="text", bad_rows=bad_rows)
        try:
            (file,) = find_files(options).train
            found = list(read_documents(file, options, 64))
        except DataUnusable as error:
            assert name in str(error)
            assert not (skip and isinstance(error, BadRow))
            return
    taken = [one for one in found if isinstance(one, Document)]
    if name == "a.txt" and not chat and not data.startswith(MARKS):
        assert b"".join(d.content for d in taken if isinstance(d.content, bytes)) == data
    assert all(document.content for document in taken)
