"""A journal as a file: to keep a copy of, and to move a service to another machine.

The file is JSON lines: what it is of, then every row of every table, then the SHA-256 of all lines
before. The rows that must not be lost are `signed`: without them the same key may sign something
else for a subject, which costs a verifier its bond (EIP-3076 has the same for validators). The
hashes of what was `sent` go with them: what the key did before counts as known where the journal
goes on, and what it did since does not. What ties a journal to the queue's file beside it stays.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from atoll.chain.database import Database, has_log
from atoll.chain.txfile import QUEUE_FILE, pair_with, read_pairing, read_signed
from atoll.errors import ConfigError, StorageError
from atoll.files import write_once
from atoll.nested import loads
from atoll.service.journal import (
    KEYS,
    PAIR,
    RENEWED,
    RETIRED,
    SCHEMA_VERSION,
    STAYS_HERE,
    TABLES,
    AlreadySigned,
    Belongs,
    JournalGone,
    add,
    count_claims,
    make_journal,
    open_rows,
    put,
    require_ours,
    require_whose,
    sweep,
)
from atoll.service.lock import hold_folder
from atoll.service.serialization import JournalError

FORMAT: Final = "atoll-journal"
_LATER: Final = {"entries": "written_at", "measures": "value"}
"""Of which the row that is later, or larger, stays: the column that counts."""


@dataclass(frozen=True, slots=True)
class Moved:
    """How many rows were written to the file, or were new in the journal."""

    signed: int
    rows: int


def export_journal(data_dir: Path, whose: Belongs, to: Path, *, retire: bool) -> Moved:
    """Writes the journal of a service that does not run to a new file, its owner's alone.

    Args:
        retire: no service starts from this journal any more, until an import brings it back.

    Raises:
        ConfigError: the service runs, there is no journal, or the file exists.
        StorageError: the journal cannot be read, or the file not be written.
    """
    path = _journal_in(data_dir)
    if not path.exists():
        raise ConfigError(f"there is no journal in {data_dir}", next_step="name another --config")
    if to.exists():
        raise ConfigError(f"{to} exists already", next_step="name another file")
    with hold_folder(data_dir), closing(open_rows(path)) as database:
        sweep(database)
        header = {
            "format": FORMAT, "version": SCHEMA_VERSION, "account": whose.account,
            "chain_id": whose.chain_id, "network": whose.network, "written_at": time.time(),
        }  # fmt: skip
        ours = ({"sent": [tx_hash]} for tx_hash in read_signed(data_dir / QUEUE_FILE))
        rows = [*_rows(database), *ours]
        _write_new(to, _lines([header, *rows]))
        if retire:
            put(database, "meta", (RETIRED, str(to)))
    return Moved(sum("signed" in row for row in rows), len(rows))


def import_journal(data_dir: Path, whose: Belongs, source: Path) -> Moved:
    """Adds what a file has to the journal of a service that does not run; all of it, or nothing.

    A subject that both have signed differently is refused. Of an entry that both have the later one
    stays, of a measure the larger one, and of everything else the journal's own: so what went to
    another machine and comes back brings what happened there. What was retired may run again.

    Raises:
        ConfigError: the service runs, or the file is of another account or chain.
        JournalError: the file is damaged, or of another version.
        AlreadySigned: file and journal signed different things for one subject.
        StorageError: file or journal cannot be used.
    """
    rows = _read(source, whose)
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = _journal_in(data_dir)
    with hold_folder(data_dir):
        ours = {("sent", tx_hash) for tx_hash in read_signed(path.with_name(QUEUE_FILE))}
        if not path.exists():
            make_journal(path, _pair_beside(path), whose)
        with closing(open_rows(path)) as database:
            sweep(database)
            require_whose(database, whose)
            with database.transaction():
                before = _count(database)
                for row in rows:
                    ((table, values),) = row.items()
                    if (table, values[0]) not in ours:
                        _add(database, table, [_from_json_value(value) for value in values])
                database.execute("DELETE FROM meta WHERE name = ?", (RETIRED,))
            after = _count(database)
    return Moved(after["signed"] - before["signed"], sum(after.values()) - sum(before.values()))


def renew_journal(data_dir: Path, whose: Belongs) -> None:
    """Has the service of a folder start though its journal may lack what was signed; the start
    waits first (`Doppelganger`). A journal that can be read stays; what is left of another is set
    aside.

    Raises:
        ConfigError: the service runs.
        JournalError: the journal was moved away, or is of another account, network or version.
        StorageError: a file cannot be used.
    """
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = _journal_in(data_dir)
    with hold_folder(data_dir):
        pair = _pair_beside(path)
        try:
            with closing(open_rows(path)) as database:
                sweep(database)
                require_ours(database, whose)
        except JournalGone:
            _set_aside(path)
            pair_with(path.with_name(QUEUE_FILE), pair, 0)
            make_journal(path, pair, whose)
        with closing(open_rows(path)) as database:
            with database.transaction():
                put(database, "meta", (PAIR, pair))
                put(database, "meta", (RENEWED, repr(time.time())))
            pair_with(path.with_name(QUEUE_FILE), pair, count_claims(database))


def _pair_beside(path: Path) -> str:
    """The id of the queue's file beside a journal, or a new one."""
    beside = read_pairing(path.with_name(QUEUE_FILE))
    return secrets.token_hex(16) if beside is None else beside.pair


def _set_aside(path: Path) -> None:
    """Gives what is left of a journal, its log included, another name."""
    taken = (path.with_name(f"{path.name}.gone-{number}") for number in count(1))
    new = next(name for name in taken if not name.exists() and not has_log(name))
    for suffix in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(new.with_name(new.name + suffix))


def _journal_in(data_dir: Path) -> Path:
    return data_dir / "journal.sqlite"


def _rows(database: Database) -> Iterator[dict[str, list[Any]]]:
    for table, columns in TABLES.items():
        names = ", ".join(columns)
        for row in database.execute(f"SELECT {names} FROM {table} ORDER BY {names}"):  # noqa: S608 - our own names
            if table != "meta" or row[0] not in STAYS_HERE:
                yield {table: [_to_json_value(value) for value in row]}


def _add(database: Database, table: str, values: list[Any]) -> None:
    if table in _LATER:
        columns, counts, key = TABLES[table], _LATER[table], KEYS[table]
        where = " AND ".join(f"{name} = ?" for name in columns[:key])
        held = database.rows(f"SELECT {counts} FROM {table} WHERE {where}", values[:key])  # noqa: S608 - our own names
        if not held or held[0][0] < values[columns.index(counts)]:
            put(database, table, values)
        return
    add(database, table, values)
    if table != "signed":
        return
    subject, content = values[:2]
    row = database.execute("SELECT content FROM signed WHERE subject = ?", (subject,)).fetchone()
    if bytes(row[0]) != content:
        raise AlreadySigned(
            f"{subject}: journal and file signed different things; nothing was read"
        )


def _count(database: Database) -> dict[str, int]:
    """Rows by table, as `_rows` gives them."""
    counts = dict.fromkeys(TABLES, 0)
    for row in _rows(database):
        counts[next(iter(row))] += 1
    return counts


def _to_json_value(value: Any) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _from_json_value(value: Any) -> Any:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


def _lines(documents: Iterable[dict[str, Any]]) -> bytes:
    body = b"".join(json.dumps(d, separators=(",", ":")).encode() + b"\n" for d in documents)
    end = {"sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(end).encode() + b"\n"


def _write_new(path: Path, data: bytes) -> None:
    try:
        write_once(path, data)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error}") from error


def _read(source: Path, whose: Belongs) -> list[dict[str, list[Any]]]:
    try:
        data = source.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {source}: {error}") from error
    body, _, last = data.rstrip(b"\n").rpartition(b"\n")
    body += b"\n"
    try:
        if loads(last)["sha256"] != hashlib.sha256(body).hexdigest():
            raise ValueError("its end does not fit")
        header, *rows = map(loads, body.splitlines())
        version = (header["format"], header["version"])
        belongs = Belongs(header["account"], header["chain_id"], header["network"])
        wrong = [row for row in rows if len(row) != 1 or len(TABLES[next(iter(row))]) != len(
            next(iter(row.values())))]  # fmt: skip
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise JournalError(
            f"{source} is no whole journal: {error}", next_step="export it again, or use a copy"
        ) from error
    if wrong or version != (FORMAT, SCHEMA_VERSION):
        raise JournalError(
            f"{source} is not of this version", next_step="run the version of atoll that wrote it"
        )
    if belongs != whose:
        raise ConfigError(
            f"{source} is of {belongs}, and this service is of {whose}",
            next_step="use the config whose key it is",
        )
    return rows
