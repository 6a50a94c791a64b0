"""What a manifest says that nobody chooses: the prepared text, and what this machine reproduces."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.content.cid import Cid
from atoll.content.local import LocalStore
from atoll.errors import ConfigError
from atoll.job.spec import JobSpec
from atoll.law.manifest import DataSpec, InitSpec, NumericsSpec
from atoll.law.words import NumericsMode

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def prepare_data(spec: JobSpec, store: LocalStore) -> DataSpec:
    """Tokenises a spec's text into the store, pinned.

    Raises:
        ConfigError: no text is named.
        DataUnusable: a file cannot be read, there is too little text, or the model's vocabulary
            is smaller than the tokenizer's.
        StorageError: the store cannot be written.
    """
    # tokenizers and numpy take half a second to load
    from atoll.bits.errors import DataUnusable  # noqa: PLC0415
    from atoll.train.data import find_text_files, prepare_dataset  # noqa: PLC0415

    chosen = spec.data
    if not chosen.paths:
        raise ConfigError("the job names no text", next_step="write data.paths, or pass --data")
    files = find_text_files([Path(p) for p in chosen.paths], frozenset(chosen.suffixes) or None)
    tokenizer = _read_tokenizer(Path(chosen.tokenizer)) if chosen.tokenizer else None
    prepared = prepare_dataset(files, store, tokenizer, float(chosen.held_out), chosen.max_tokens)
    if spec.model is not None and prepared.vocab > spec.model.vocab:
        raise DataUnusable(
            f"the tokenizer has {prepared.vocab} tokens, model.vocab is {spec.model.vocab}",
            next_step=f"set model.vocab to {prepared.vocab} or more",
        )
    for cid in (prepared.train_cid, prepared.eval_cid, prepared.tokenizer_cid):
        store.pin(Cid.from_bytes(cid), "data")
    return DataSpec(
        cid=prepared.train_cid,
        root=prepared.train_root,
        dtype=prepared.dtype,  # type: ignore[arg-type]  # one of the three, by construction
        train_tokens=prepared.train_tokens,
        eval_cid=prepared.eval_cid,
        eval_batches=spec.evaluate.batches,
        tokenizer_cid=prepared.tokenizer_cid,
    )


def prepare_weights(spec: JobSpec, store: LocalStore) -> tuple[JobSpec, InitSpec | None]:
    """Puts the weights of a spec's folder into the store, pinned; None where they are drawn.

    The spec that comes back has the folder's model, and its tokenizer where it names no other.

    Raises:
        ConfigError: the folder cannot be used, or the spec describes another model; the train
            extra is missing.
        StorageError: the store cannot be written.
    """
    if not spec.init.folder:
        return spec, None
    try:
        from atoll.train.pretrained import prepare_init  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("starting from a folder") from error
    seq = spec.init.seq if spec.model is None else spec.model.seq
    prepared = prepare_init(Path(spec.init.folder), seq, store)
    if spec.model not in (None, prepared.model):
        raise ConfigError(
            f"[model] is not the model of {spec.init.folder}",
            next_step="leave [model] out: it is taken from init.folder",
        )
    changes = {"data.tokenizer": spec.data.tokenizer or str(prepared.tokenizer)}
    return spec.but(changes | {"model": prepared.model}), prepared.init


def _read_tokenizer(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer  # noqa: PLC0415

    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises bare Exception
        raise ConfigError(
            f"data.tokenizer {path} cannot be used: {error}",
            next_step="name a tokenizer.json, or leave data.tokenizer out for single bytes",
        ) from error


async def machine_numerics(mode: NumericsMode) -> NumericsSpec:
    """What workers reproduce on this machine, asked of a process of its own.

    Raises:
        ConfigError: the train extra is missing, or this machine cannot be probed.
    """
    if find_spec("torch") is None:
        raise missing_extra("writing a manifest")
    program = (sys.executable, "-m", "atoll.train.describe", mode)
    document = json.loads(await ask(program))
    for name in ("code_digest", "probe_digest"):
        document[name] = None if document[name] is None else bytes.fromhex(document[name])
    return NumericsSpec(**document)


async def ask(program: tuple[str, ...], given: bytes = b"") -> bytes:
    """What a program of our own prints.

    Raises:
        ConfigError: it failed; the message has its last line.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*program, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        printed, complaint = await process.communicate(given)
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode != 0:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        raise ConfigError(
            f"this machine could not be probed: {last}",
            next_step=f"run {' '.join(program)} to see why",
        )
    return printed


def missing_extra(what: str) -> ConfigError:
    """What to raise where torch would be needed."""
    return ConfigError(
        f"{what} needs torch, which is not installed", next_step="pip install 'atoll[train]'"
    )
