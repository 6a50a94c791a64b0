"""Models and data sets of the Hugging Face Hub that a job file names: pinned to a commit, fetched.

Rule of this file: `huggingface_hub` asks, fetches and keeps, by its own settings (HF_ENDPOINT,
HF_HOME, HF_TOKEN, HF_HUB_OFFLINE); every refusal says in words what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from typing import Final, Literal, TypeAlias

from atoll.errors import ConfigError, StorageError
from atoll.job.groups import is_hub
from atoll.job.spec import JobSpec
from atoll.nested import loads

Kind: TypeAlias = Literal["model", "dataset"]

_WEIGHTS, _INDEX, _ADAPTER = (
    "model.safetensors",
    "model.safetensors.index.json",
    "adapter_config.json",
)
_FORMS: Final = {
    "model": "hf://user/model[@revision]",
    "dataset": "hf://datasets/user/name[/path][@revision]",
}


@dataclass(frozen=True, slots=True)
class HubPath:
    """What a URI of the Hub names; no revision is the default branch.

    As text it is the form that pandas and DuckDB read, too: the revision follows the repository.
    """

    kind: Kind
    repo: str
    path: str = ""
    revision: str = ""

    def __str__(self) -> str:
        revision = "@" + self.revision.replace("/", "%2F") if self.revision else ""
        prefix = "datasets/" if self.kind == "dataset" else ""
        return f"hf://{prefix}{self.repo}{revision}" + (f"/{self.path}" if self.path else "")

    @property
    def name(self) -> str:
        """For people: what it is, and of whom."""
        return f"{'model' if self.kind == 'model' else 'data set'} {self.repo}"


def parse_hub(text: str, kind: Kind) -> HubPath:
    """What a job file's URI names; a revision may stand behind the path as well.

    Raises:
        ConfigError: it is no such URI, or of another kind than is wanted there.
    """
    from huggingface_hub import parse_hf_uri  # noqa: PLC0415
    from huggingface_hub.errors import HfUriError, HFValidationError  # noqa: PLC0415
    from huggingface_hub.utils._validators import validate_repo_id  # noqa: PLC0415

    step = f"write {_FORMS[kind]}"
    try:
        uri = parse_hf_uri(text)
        validate_repo_id(uri.id)
    except (HfUriError, HFValidationError) as error:
        raise ConfigError(f"{text}: {error}", next_step=step) from error
    if uri.type != kind:
        raise ConfigError(f"{text} is a {uri.type}, and here a {kind} is wanted", next_step=step)
    path, revision = uri.path_in_repo.strip("/"), uri.revision or ""
    if "@" in path and not revision:
        path, _, revision = path.rpartition("@")
    if ".." in path.split("/"):
        raise ConfigError(f"{text} leads out of its repository", next_step=step)
    return HubPath(kind, uri.id, path, revision)


def pin_hub(spec: JobSpec) -> tuple[JobSpec, tuple[str, ...]]:
    """The job with the commit in every URI of the Hub, and a sentence about each.

    Raises:
        ConfigError: a URI cannot be used; there is no such repository, or it is gated.
        StorageError: the Hub cannot be reached.
    """
    notes: list[str] = []

    def pin(text: str, kind: Kind) -> str:
        if not is_hub(text):
            return text
        named = parse_hub(text, kind)
        pinned = replace(named, revision=_commit_of(named))
        if pinned != named:
            notes.append(f"{text} is commit {pinned.revision}")
        return str(pinned)

    data = spec.data
    changes: dict[str, object] = {
        "init.folder": pin(spec.init.folder, "model"),
        "data.tokenizer": pin(data.tokenizer, "model"),
        "data.paths": tuple(pin(path, "dataset") for path in data.paths),
        "data.held_out_paths": tuple(pin(path, "dataset") for path in data.held_out_paths),
    }
    return (spec.but(changes), tuple(dict.fromkeys(notes))) if _names_hub(spec) else (spec, ())


def local_model(text: str) -> Path:
    """The folder of a model that a job starts from, on this machine. Raises as `pin_hub`."""
    if not is_hub(text):
        return _through_cache(Path(text))
    hub = parse_hub(text, "model")
    beside = (*_of_tokenizer(), "config.json", "generation_config.json", _ADAPTER)
    folder = _fetch(hub, [*beside, _WEIGHTS, _INDEX])
    if (folder / _WEIGHTS).is_file():
        return folder
    if (folder / _INDEX).is_file():
        return _fetch(hub, [*beside, _INDEX, *_shards(folder / _INDEX)])
    there = ", ".join(_weights_there(hub)) or "no weights"
    raise ConfigError(
        f"{text} has no {_WEIGHTS}, but {there}",
        next_step="take a repository with safetensors, or convert it with save_pretrained",
    )


def local_tokenizer(text: str) -> Path:
    """A tokenizer's folder or file on this machine. Raises as `pin_hub`."""
    if not is_hub(text):
        return _through_cache(Path(text))
    hub = parse_hub(text, "model")
    if not hub.path.endswith(".json"):
        return _fetch(hub, _of_tokenizer())
    folder = _fetch(replace(hub, path=hub.path.rpartition("/")[0]), _of_tokenizer())
    return folder / hub.path.rpartition("/")[2]


def local_text(text: str) -> Path:
    """A file or folder of text on this machine. Raises as `pin_hub`."""
    if not is_hub(text):
        return Path(text)
    hub = parse_hub(text, "dataset")
    return _fetch(hub, None)


def _names_hub(spec: JobSpec) -> bool:
    data = spec.data
    texts = (spec.init.folder, data.tokenizer, *data.paths, *data.held_out_paths)
    return any(map(is_hub, texts))


def _through_cache(folder: Path) -> Path:
    from atoll.train.corpus.folders import chosen_snapshot  # noqa: PLC0415

    return chosen_snapshot(folder)


def _of_tokenizer() -> tuple[str, ...]:
    from atoll.train.belongings import MORE_TEMPLATES, OF_TOKENIZER  # noqa: PLC0415

    return (*OF_TOKENIZER, f"{MORE_TEMPLATES}/*.jinja")


def _commit_of(hub: HubPath) -> str:
    from huggingface_hub import HfApi  # noqa: PLC0415

    with hub_errors(hub):
        revision = HfApi().resolve_revision(
            hub.repo, repo_type=hub.kind, revision=hub.revision or None
        )
        return str(revision.resolved)


def _fetch(hub: HubPath, names: Sequence[str] | None) -> Path:
    """Brings files under a URI's path into the cache; None is all of them. The path there."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    inside = f"{hub.path}/" if hub.path else ""
    patterns = None if names is None else [escape(inside) + name for name in names]
    if names is None and hub.path:
        patterns = [escape(hub.path), escape(inside) + "*"]
    with hub_errors(hub):
        snapshot = snapshot_download(
            hub.repo,
            repo_type=hub.kind,
            revision=hub.revision or None,
            allow_patterns=patterns,
        )
    place = Path(snapshot, hub.path)
    if not place.exists():
        raise ConfigError(
            f"{hub} is not there: the repository has no file or folder {hub.path}",
            next_step="look at its files on the Hub, and correct the path",
        )
    return place


def _shards(index: Path) -> list[str]:
    """The files that an index names, as far as they are files beside it; others are refused where
    the weights are read."""
    try:
        weight_map = loads(index.read_bytes())["weight_map"]
        names = {str(file) for file in weight_map.values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    return [escape(name) for name in sorted(names) if Path(name).name == name]


def _weights_there(hub: HubPath) -> list[str]:
    """Files of a repository that may be weights of another kind."""
    from huggingface_hub import get_cached_repo_tree  # noqa: PLC0415

    tree = get_cached_repo_tree(hub.repo, repo_type=hub.kind, revision=hub.revision or None)
    kinds = (".bin", ".gguf", ".h5", ".msgpack", ".onnx", ".pt", ".pth", ".safetensors")
    return [file.path for file in tree if file.path.endswith(kinds)][:5]


# --- what the Hub refuses, in words ---


def _refusals() -> list[tuple[type[Exception], Callable[[HubPath], ConfigError]]]:
    """The narrower class of `huggingface_hub` before the wider."""
    from huggingface_hub import errors  # noqa: PLC0415

    def gated(hub: HubPath) -> ConfigError:
        return ConfigError(
            f"the {hub.name} is gated: its owner lets in only who has accepted the terms",
            next_step="accept them on its page, and set HF_TOKEN to a token of that account",
        )

    def absent(hub: HubPath) -> ConfigError:
        return ConfigError(
            f"the Hub has no {hub.name}, or it is private",
            next_step="correct the name; for a private one set HF_TOKEN to a token that reads it",
        )

    def no_revision(hub: HubPath) -> ConfigError:
        return ConfigError(
            f"the {hub.name} has no revision {hub.revision}",
            next_step="name a branch, a tag or a commit of it behind the @",
        )

    return [
        (errors.GatedRepoError, gated),
        (errors.RevisionNotFoundError, no_revision),
        (errors.RepositoryNotFoundError, absent),
    ]


@contextmanager
def hub_errors(hub: HubPath) -> Iterator[None]:
    """Turns what `huggingface_hub` raises into errors of ours.

    Raises:
        ConfigError: there is no such repository or revision, or it is gated.
        StorageError: the Hub cannot be reached, is to be left alone, or answers otherwise.
    """
    from httpx2 import HTTPError  # noqa: PLC0415
    from huggingface_hub import constants, errors  # noqa: PLC0415

    try:
        yield
    except errors.HfHubHTTPError as error:
        for kind, words in _refusals():
            if isinstance(error, kind):
                raise words(hub) from error
        status = error.response.status_code
        if status in (401, 403):
            raise ConfigError(
                f"the Hub does not let this token do that with the {hub.name} ({status})",
                next_step="set HF_TOKEN to a token that may, or log in with `hf auth login`",
            ) from error
        raise StorageError(
            f"the Hub answers {status} about the {hub.name}: {error.server_message or 'no reason'}",
            next_step="run the same command again later",
        ) from error
    except (HTTPError, errors.RevisionResolutionError, OSError) as error:
        if constants.HF_HUB_OFFLINE:
            raise StorageError(
                f"HF_HUB_OFFLINE is set, and not all of the {hub.name} is in the cache",
                next_step="unset HF_HUB_OFFLINE once, and run the same command again",
            ) from error
        raise StorageError(
            f"cannot fetch the {hub.name} from {constants.ENDPOINT}: {error}",
            next_step="look at the network, HF_ENDPOINT and the disk's room; what came is kept",
        ) from error
