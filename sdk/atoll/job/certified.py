"""A job's model on this machine: brought here, checked, written to a folder, sampled from.

Rule of this file: a model is used once its digest is the one that a committee signed, or the one
that follows from what is on the chain; and nobody's files are written over.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.errors import ConfigError, ProtocolError, StorageError
from atoll.job.asking import missing_extra
from atoll.job.figures import cid_of, model_of, named
from atoll.job.model_card import FACTS, MODEL_CARD, Origin, facts, model_card
from atoll.nested import loads
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Digest
from atoll.protocol.views import JobView
from atoll.storage.cid import Cid
from atoll.storage.fetch import Fetcher
from atoll.storage.local import LocalStore

if TYPE_CHECKING:
    from atoll.numerics.state import GlobalState
    from atoll.train.continue_text import Sampling


@dataclass(frozen=True, slots=True)
class Certified:
    """A global state that a committee signed, or that follows from what is on the chain."""

    cid: Cid
    digest: Digest


def model_after(view: JobView, rounds: int) -> Certified:
    """The model after so many rounds. Raises ConfigError where nothing was merged by then."""
    cid = cid_of(view, rounds)
    if not cid:
        raise ConfigError(f"job {view.job_id} has no model: nothing was certified")
    return Certified(named(cid, "model"), model_of(view, rounds))


async def fetch_model(fetcher: Fetcher, manifest: Manifest, model: Cid, tokenizer: Cid) -> None:
    """Brings a global state and what goes with it into the store. Raises as `Fetcher.fetch`."""
    from atoll.numerics.state_layout import max_state_bytes  # noqa: PLC0415
    from atoll.train.belongings import MAX_TOKENIZER_BYTES  # noqa: PLC0415

    await fetcher.fetch(model, max_state_bytes(manifest))
    await fetcher.fetch(tokenizer, MAX_TOKENIZER_BYTES)


async def fetch_base(fetcher: Fetcher, manifest: Manifest) -> None:
    """Brings the weights that the job started from, if it names any. Raises as `Fetcher.fetch`."""
    from atoll.numerics.state_layout import max_params_bytes  # noqa: PLC0415

    if manifest.init.cid is not None:
        limit = max_params_bytes(manifest.model)
        await fetcher.fetch(Cid.from_bytes(manifest.init.cid), limit)


def check_folder(folder: Path) -> None:
    """That a model which is written there replaces at most an earlier one that was.

    Raises:
        ConfigError: there are files, and no card of a job's model.
        StorageError: it cannot be read.
    """
    try:
        if not folder.exists() or not any(folder.iterdir()):
            return
        card = loads((folder / FACTS).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        card = None
    except OSError as error:
        raise StorageError(f"cannot write a model to {folder}: {error}") from error
    if not (isinstance(card, dict) and {"rounds_contract", "model_digest"} <= card.keys()):
        raise ConfigError(
            f"{folder} has files, and no {FACTS} of a job's model",
            next_step="name a folder that is empty, or not there",
        )


def _write_card(origin: Origin, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MODEL_CARD).write_text(model_card(origin), encoding="utf-8")
        (folder / FACTS).write_text(json.dumps(facts(origin), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write the model card to {folder}: {error}") from error


def export(
    store: LocalStore,
    origin: Origin,
    model: Certified,
    folder: Path,
    *,
    merged: bool,
) -> None:
    """Writes a model that is in the store, what belongs to it, and its card.

    Args:
        merged: adapters are added to their base, and the whole is written.

    Raises:
        ConfigError: the train extra is missing.
        ProtocolError: it is not the model that a committee signed.
        StorageError: the folder cannot be written.
    """
    manifest = origin.manifest
    state = _open_model(store, manifest, model)
    from atoll.train.adapters import export_adapters, full_weights  # noqa: PLC0415
    from atoll.train.export import export_model, write_belongings  # noqa: PLC0415
    from atoll.train.tokenizer import open_belongings  # noqa: PLC0415

    # First, so that who was stopped amid the weights may write there again.
    _write_card(origin, folder)
    belongings = open_belongings(store, manifest.data.tokenizer_cid)
    if manifest.lora is not None and not merged:
        export_adapters(state.params, manifest.lora, folder)
        write_belongings(belongings, manifest.model, folder)
        return
    weights = full_weights(state.params, manifest, store)
    export_model(weights, manifest.model, belongings, folder)


def sample_from(
    store: LocalStore,
    manifest: Manifest,
    model: Certified,
    prompt: str,
    sampling: Sampling | None,
) -> str:
    """Text from a model that is in the store, after a prompt. Raises as `JobHandle.sample`."""
    state = _open_model(store, manifest, model)
    from atoll.train.job_text import continue_by_job  # noqa: PLC0415

    return continue_by_job(state.params, manifest, store, prompt, sampling)


def _open_model(store: LocalStore, manifest: Manifest, model: Certified) -> GlobalState:
    try:
        from atoll.train.stored_states import read_global_state  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("reading the model") from error
    state = read_global_state(manifest, model.cid.to_bytes(), store)
    if state.digest() != model.digest:
        raise ProtocolError(f"the model {model.cid} is not the one that the committee signed")
    return state
