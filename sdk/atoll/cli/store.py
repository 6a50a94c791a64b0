"""`atoll store`: content by CID, from the command line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from atoll.cli.output import Json, emit
from atoll.errors import ConfigError, StorageError
from atoll.storage.block_links import links_of, walk_dag
from atoll.storage.cid import DAG_CBOR, RAW, Cid
from atoll.storage.directory import (
    build_path,
    is_directory,
    list_directory,
    resolve_path,
    walk_files,
)
from atoll.storage.garbage_collection import GRACE_S
from atoll.storage.local import LocalStore
from atoll.storage.sources import normalise_gateway
from atoll.storage.unixfs import PROFILES, Added, Buffer, Profile, Readable, build_tree

if TYPE_CHECKING:
    from atoll.storage.storage import Storage

app = typer.Typer(
    add_completion=False, help="Content by CID: add, get, keep, check.", no_args_is_help=True
)

Root = Annotated[
    Path, typer.Option("--root", envvar="ATOLL_STORE", help="the folder that holds the blocks")
]
Backend = Annotated[
    str,
    typer.Option(
        "--backend",
        envvar="ATOLL_STORE_BACKEND",
        help="embedded, kubo:http://127.0.0.1:5001 or gateway:https://example.org",
    ),
]
Gateways = Annotated[
    list[str] | None, typer.Option("--gateway", help="a gateway to fetch from; may be repeated")
]
Reference = Annotated[str, typer.Argument(metavar="CID[/PATH]", help="a CID, or a path below one")]

DEFAULT_ROOT = Path(".atoll/store")
_UNLIMITED = 1 << 50


@dataclass(frozen=True, slots=True)
class Place:
    """Where the options say that blocks are kept."""

    root: Path
    backend: str

    @asynccontextmanager
    async def open(self, gateways: Sequence[str] = ()) -> AsyncIterator[Storage]:
        """The storage, which also fetches from gateways. Errors as `open_storage`."""
        from atoll.storage.storage import StoreConfig, open_storage

        config = StoreConfig(self.root, self.backend)
        async with await open_storage(config, lambda: gateways) as storage:
            yield storage


@app.command()
def add(
    file: Annotated[str, typer.Argument(help="a file, a folder, or - for standard input")],
    *,
    profile: Annotated[str, typer.Option(help="v1, or legacy for CIDv0 as Kubo makes it")] = "v1",
    only_hash: Annotated[bool, typer.Option("--only-hash", help="store nothing")] = False,
    root: Root = DEFAULT_ROOT,
    backend: Backend = "embedded",
    as_json: Json = False,
) -> None:
    """Stores a file or folder and prints its CID."""
    if profile not in PROFILES:
        raise ConfigError(
            f"unknown profile {profile!r}", next_step=f"use {' or '.join(sorted(PROFILES))}"
        )
    chosen = PROFILES[profile]
    if only_hash:
        added = _hash(file, chosen)
    else:
        added = asyncio.run(_add(Place(root, backend), file, chosen))
    record = {"cid": str(added.cid), "bytes": added.bytes, "blocks": added.blocks}
    emit(record, str(added.cid), as_json=as_json)


@app.command()
def get(
    reference: Reference,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="where to write it, - for standard output")
    ],
    *,
    max_bytes: Annotated[int, typer.Option(help="refuse more than this")] = _UNLIMITED,
    gateway: Gateways = None,
    root: Root = DEFAULT_ROOT,
    backend: Backend = "embedded",
    as_json: Json = False,
) -> None:
    """Writes a file or folder, fetching what is not here from the gateways."""
    place, gateways = Place(root, backend), _usable(gateway or [])
    if str(output) == "-":
        if as_json:
            raise ConfigError("standard output cannot carry a file and --json at once")
        asyncio.run(_cat(place, reference, max_bytes, gateways))
        return
    got = asyncio.run(_get(place, reference, output, max_bytes, gateways))
    record = {"cid": str(got.cid), "bytes": got.bytes, "blocks": got.blocks, "path": str(output)}
    emit(record, f"{got.bytes} bytes in {output}", as_json=as_json)


@app.command()
def stat(reference: Reference, root: Root = DEFAULT_ROOT, as_json: Json = False) -> None:
    """Says what a CID is and how much of it is here."""
    store = LocalStore(root)
    cid = _resolve(store, reference)
    record = _describe(store, cid)
    emit(record, "\n".join(f"{key}: {value}" for key, value in record.items()), as_json=as_json)


@app.command()
def ls(reference: Reference, root: Root = DEFAULT_ROOT, as_json: Json = False) -> None:
    """Lists a folder."""
    store = LocalStore(root)
    entries = [
        {"name": entry.name, "cid": str(entry.cid), "tree_bytes": entry.tree_bytes}
        for entry in list_directory(store.get_block, _resolve(store, reference))
    ]
    lines = (f"{entry['cid']}  {entry['tree_bytes']:>12}  {entry['name']}" for entry in entries)
    text = "\n".join(line.replace("\n", "?") for line in lines)
    emit(entries, text, as_json=as_json)


@app.command()
def pin(
    cid: Annotated[str | None, typer.Argument(help="what to keep; none lists the pins")] = None,
    *,
    reason: Annotated[
        str | None, typer.Option(help="why; ends as a whole", show_default="manual")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="end the pin instead")] = False,
    root: Root = DEFAULT_ROOT,
    backend: Backend = "embedded",
    as_json: Json = False,
) -> None:
    """Keeps a CID and all below it for a reason, ends such a pin, or lists them."""
    if cid is not None:
        why, content = "manual" if reason is None else reason, _parse(cid)
        if remove:
            _check_pinned(root, content, why)
        asyncio.run(_pin(Place(root, backend), content, why, remove))
    elif remove or reason is not None:
        raise ConfigError("which pin? no CID is named", next_step="atoll store pin CID")
    pins = [{"cid": str(pinned.cid), "reason": pinned.reason} for pinned in LocalStore(root).pins()]
    emit(
        pins, "\n".join(f"{pinned['cid']}  {pinned['reason']}" for pinned in pins), as_json=as_json
    )


@app.command()
def gc(
    keep_bytes: Annotated[int, typer.Option(help="stop once the store is this small")] = 0,
    grace_s: Annotated[float, typer.Option(help="spare what was used this recently")] = GRACE_S,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Removes what no pin keeps, longest unused first."""
    collected = LocalStore(root).collect(keep_bytes, grace_s)
    record = {
        "freed_bytes": collected.freed_bytes,
        "kept_bytes": collected.kept_bytes,
        "pinned_blocks": collected.pinned_blocks,
    }
    emit(
        record, f"freed {collected.freed_bytes} bytes, kept {collected.kept_bytes}", as_json=as_json
    )


@app.command()
def verify(root: Root = DEFAULT_ROOT, as_json: Json = False) -> None:
    """Reads every block; exits with 4 where one was damaged, or pinned content is missing."""
    verified = LocalStore(root).verify()
    record = {
        "blocks": verified.blocks,
        "bytes": verified.bytes,
        "damaged": list(verified.damaged),
        "missing": [str(cid) for cid in verified.missing],
    }
    faults = f"{len(verified.damaged)} damaged, {len(verified.missing)} pinned but missing"
    emit(record, f"{verified.blocks} blocks, {verified.bytes} bytes: {faults}", as_json=as_json)
    if verified.damaged or verified.missing:
        raise StorageError(
            f"the store in {root} is not whole: {faults}",
            next_step="fetch them again: atoll store get CID -o FILE --gateway URL",
        )


def _usable(gateways: list[str]) -> list[str]:
    """The gateways that a person names, of whom nobody else knows. Raises ConfigError."""
    for url in gateways:
        if normalise_gateway(url) is None:
            raise ConfigError(
                f"{url!r} is not a gateway's address",
                next_step="write it like --gateway https://example.org",
            )
    return gateways


def _hash(file: str, profile: Profile) -> Added:
    """What `add` would print, without a store."""
    blocks = 0

    def count(cid: Cid, block: Buffer) -> None:
        nonlocal blocks
        blocks += 1

    if file == "-":
        root = build_tree(_standard_input(), count, profile)
    else:
        root = build_path(Path(file), count, profile)
    return Added(root.cid, root.file_bytes, blocks)


def _standard_input() -> Readable:
    return cast(Readable, typer.get_binary_stream("stdin"))


async def _add(place: Place, file: str, profile: Profile) -> Added:
    async with place.open() as storage:
        if file != "-":
            return await storage.add_path(file, profile)
        return await storage.add_stream(_standard_input(), profile)


async def _get(
    place: Place, reference: str, output: Path, max_bytes: int, gateways: list[str]
) -> Added:
    """Writes what a reference names; its blocks are counted once each, however often they occur."""
    async with place.open(gateways) as storage:
        cid = await _fetch_to(storage, reference, max_bytes)
        store = storage.local
        if cid.codec == RAW or not is_directory(cid, store.get_block(cid)):
            written = store.read_file_to(cid, output, max_bytes)
        else:
            written = _write_folder(store, cid, output, max_bytes)
        return Added(cid, written, sum(1 for _ in walk_dag(store.get_block, [cid])))


async def _cat(place: Place, reference: str, max_bytes: int, gateways: list[str]) -> None:
    """Writes a file to standard output."""
    out = typer.get_binary_stream("stdout")
    async with place.open(gateways) as storage:
        cid = await _fetch_to(storage, reference, max_bytes)
        for piece in storage.local.iter_bytes(cid, max_bytes):
            out.write(piece)
        out.flush()


async def _fetch_to(storage: Storage, reference: str, max_bytes: int) -> Cid:
    """Fetches what a reference names, and the folders that lead to it; returns its CID."""
    text, _, path = reference.partition("/")
    cid = _parse(text)
    for name in filter(None, path.split("/")):
        await storage.get_block(cid)
        cid, _ = resolve_path(storage.local.get_block, cid, name)
    await storage.fetcher.fetch_tree(cid, max_bytes)
    return cid


def _write_folder(store: LocalStore, root: Cid, output: Path, max_bytes: int) -> int:
    written = 0

    def write(path: tuple[str, ...], cid: Cid) -> None:
        nonlocal written
        target = output.joinpath(*path)
        target.parent.mkdir(parents=True, exist_ok=True)
        written += store.read_file_to(cid, target, max_bytes - written)

    output.mkdir(parents=True, exist_ok=True)
    walk_files(store.get_block, root, write)
    return written


def _check_pinned(root: Path, cid: Cid, reason: str) -> None:
    """Raises ConfigError where there is no such pin to end."""
    reasons = [pinned.reason for pinned in LocalStore(root).pins() if pinned.cid == cid]
    if reason not in reasons:
        others = f"pass --reason, of: {', '.join(reasons)}" if reasons else ""
        raise ConfigError(
            f"{cid} is not kept for {reason!r}",
            next_step=others or "`atoll store pin` lists what is kept",
        )


async def _pin(place: Place, cid: Cid, reason: str, remove: bool) -> None:
    async with place.open() as storage:
        if remove:
            await storage.unpin(reason, cid)
        else:
            await storage.pin(cid, reason)


def _describe(store: LocalStore, root: Cid) -> dict[str, Any]:
    """Counts what is here of everything below `root`."""
    here = here_bytes = missing = 0
    seen: set[bytes] = set()
    stack = [root]
    while stack:
        cid = stack.pop()
        if cid.digest in seen:
            continue
        seen.add(cid.digest)
        size = store.block_bytes(cid)
        if size is None:
            missing += 1
            continue
        here, here_bytes = here + 1, here_bytes + size
        if cid.codec != RAW:
            stack.extend(links_of(cid, store.get_block(cid)))
    record: dict[str, Any] = {"cid": str(root), "codec": root.codec_name}
    if store.has(root):
        record["kind"] = _kind(store, root)
        if record["kind"] == "file":
            record["bytes"] = store.file_bytes(root)
    return record | {"blocks_here": here, "bytes_here": here_bytes, "blocks_missing": missing}


def _kind(store: LocalStore, cid: Cid) -> str:
    if cid.codec == DAG_CBOR:
        return "document"
    return "folder" if is_directory(cid, store.get_block(cid)) else "file"


def _resolve(store: LocalStore, reference: str) -> Cid:
    text, _, path = reference.partition("/")
    return resolve_path(store.get_block, _parse(text), path)[0]


def _parse(text: str) -> Cid:
    try:
        return Cid.parse(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a CID: {error}") from error
