"""What a manifest says that nobody chooses: the prepared text, and what this machine reproduces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from atoll.errors import ConfigError
from atoll.job.asking import Ask, missing_extra
from atoll.job.hub import local_model, local_text, local_tokenizer
from atoll.job.spec import JobSpec
from atoll.protocol.manifest import DataSpec, InitSpec, Manifest, NumericsSpec
from atoll.protocol.types import Digest
from atoll.storage.local import LocalStore

if TYPE_CHECKING:
    from atoll.train.corpus.options import DataOptions
    from atoll.train.corpus.prepare import PreparedData, Progress
    from atoll.train.corpus.problems import PreparedProblems

OnProgress: TypeAlias = "Callable[[Progress], None]"


def untold(progress: Progress) -> None:
    """Tells nobody."""


def prepare_data(
    spec: JobSpec,
    store: LocalStore,
    on_progress: OnProgress = untold,
) -> DataSpec:
    """What `prepare_text` finds, as a manifest says it. Raises as that."""
    return prepare_text(spec, store, on_progress).spec(spec.evaluate.batches)


def prepare_text(
    spec: JobSpec,
    store: LocalStore,
    on_progress: OnProgress = untold,
) -> PreparedData | PreparedProblems:
    """Tokenises a spec's text into the store, pinned; what was done before is not done again. Of a
    job with a task it is the prompts.

    Raises:
        ConfigError: no text is named.
        DataUnusable: a file cannot be read, there is too little text, or the model's vocabulary
            is smaller than the tokenizer's.
        StorageError: the store cannot be written, or what is on the Hub not be fetched.
    """
    # tokenizers and numpy take half a second to load
    from atoll.train.corpus.enough import Appetite, check_enough  # noqa: PLC0415
    from atoll.train.corpus.options import DataOptions  # noqa: PLC0415
    from atoll.train.corpus.prepare import prepare  # noqa: PLC0415

    chosen, model = spec.data, spec.model
    if spec.task is not None:
        return prepare_task(spec, store)
    if not chosen.paths:
        step = "write data.paths into the job's file, as `atoll job new --data PATH` does"
        raise ConfigError("the job names no text", next_step=step)
    options = DataOptions(
        paths=tuple(map(local_text, chosen.paths)),
        format=chosen.format,
        field=chosen.field,
        chat=chosen.chat,
        packed=_sequence(spec) if chosen.packed else 0,
        bad_rows=chosen.bad_rows,
        suffixes=frozenset(chosen.suffixes) or None,
        hidden=chosen.hidden,
        tokenizer=local_tokenizer(chosen.tokenizer) if chosen.tokenizer else None,
        end_token=chosen.end_token,
        held_out=chosen.held_out,
        held_out_paths=tuple(map(local_text, chosen.held_out_paths)),
        max_tokens=chosen.max_tokens,
        model_vocab=model.vocab if model else None,
        model_folder=local_model(spec.init.folder) if spec.init.folder else None,
    )
    prepared = prepare(options, store, on_progress)
    if model is not None:
        run = spec.as_method()
        drawn = run.rounds * run.inner.steps * run.inner.batch * run.members.seats
        check_enough(prepared, Appetite(model.seq, drawn))
    return prepared


def prepare_task(spec: JobSpec, store: LocalStore) -> PreparedProblems:
    """Puts a spec's prompts, their answers and its tokens' texts into the store.

    Raises:
        ConfigError: the job names no prompts.
        DataUnusable: a file or row cannot be taken, or the tokenizer cannot be used.
        StorageError: the store cannot be written, or what is on the Hub not be fetched.
    """
    from atoll.train.corpus.problems import (  # noqa: PLC0415 -- as above
        ProblemOptions,
        prepare_problems,
    )

    if spec.task is None or not spec.task.prompts:
        step = "write task.prompts into the job's file: JSON lines of prompt and answer"
        raise ConfigError("the job names no prompts", next_step=step)
    options = ProblemOptions(prompt_options(spec, spec.task.prompts), spec.task.fields)
    return prepare_problems(options, store)


def prompt_options(spec: JobSpec, paths: Sequence[str]) -> DataOptions:
    """How files of prompts are read for a spec's model.

    Raises StorageError where what is on the Hub cannot be fetched.
    """
    from atoll.train.corpus.options import DataOptions  # noqa: PLC0415 -- as above

    chosen, model = spec.data, spec.model
    return DataOptions(
        paths=tuple(map(local_text, paths)),
        chat=True,
        tokenizer=local_tokenizer(chosen.tokenizer) if chosen.tokenizer else None,
        end_token=chosen.end_token,
        model_vocab=model.vocab if model else None,
        model_folder=local_model(spec.init.folder) if spec.init.folder else None,
    )


def _sequence(spec: JobSpec) -> int:
    """Tokens of a training sequence. Raises ConfigError where the spec does not say."""
    seq = spec.init.seq if spec.model is None else spec.model.seq
    if seq is None:
        raise ConfigError(
            "text is packed for sequences of a length, and the job names none",
            next_step="write init.seq or [model] into the job's file",
        )
    return seq


def prepare_weights(spec: JobSpec, store: LocalStore) -> tuple[JobSpec, InitSpec | None]:
    """Puts the weights of a spec's folder into the store, pinned; None where they are drawn.

    The spec that comes back has the folder's model, and its tokenizer where it names no other.

    Raises:
        ConfigError: the folder cannot be used, or the spec describes another model; the train
            extra is missing.
        StorageError: the store cannot be written, or what is on the Hub not be fetched.
    """
    if not spec.init.folder:
        return spec, None
    try:
        from atoll.train.pretrained import prepare_init  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("starting from a folder") from error
    seq = spec.init.seq if spec.model is None else spec.model.seq
    prepared = prepare_init(local_model(spec.init.folder), seq, store)
    if spec.model not in (None, prepared.model):
        raise ConfigError(
            f"[model] is not the model of {spec.init.folder}",
            next_step="leave [model] out: it is taken from init.folder",
        )
    changes = {"data.tokenizer": spec.data.tokenizer or str(prepared.tokenizer)}
    return spec.but(changes | {"model": prepared.model}), prepared.init


async def machine_numerics(ask: Ask) -> NumericsSpec:
    """What workers reproduce on this machine. Raises as `asking`."""
    document = await ask({"numerics": ""})
    return NumericsSpec(**{name: Digest(bytes.fromhex(text)) for name, text in document.items()})


async def with_program(manifest: Manifest, store: LocalStore, ask: Ask) -> Manifest:
    """The manifest with the root of its program in its terms: what the judge decides by.

    The program follows from everything else in it. Raises ManifestError where no judge could
    decide the job, and as `asking`.
    """
    program = await ask({"program": manifest.to_bytes().hex(), "store": str(store.root)})
    root = Digest(bytes.fromhex(program))
    return manifest.model_copy(update={"terms": replace(manifest.terms, program=root)})
