"""A job's model on its way to the Hugging Face Hub, and what its card says of where it is from.

Rule of this file: nothing that is there is overwritten unless that is asked for, and then only what
was there when it was looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from atoll.errors import ConfigError, StorageError
from atoll.job.groups import is_hub
from atoll.job.hub import HubPath, hub_errors, parse_hub
from atoll.job.model_card import Labels
from atoll.job.spec import JobSpec

_WRITTEN: Final = ["*.json", "*.safetensors", "*.md", "*.jinja", "*.txt", "*.model"]
"""What a model's folder is written with; what somebody laid beside it stays at home."""
_REPLACED: Final = ["*.safetensors", "*.safetensors.index.json", "adapter_config.json"]
"""Of an earlier model: a program that opens the new one would read it, too."""
_FROM_THE_HUB: Final = frozenset({".gitattributes"})
"""What a repository begins with."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A repository that may be written to: `parent` is its newest commit, None where there is no
    repository yet."""

    hub: HubPath
    parent: str | None


def check_destination(repo: str, *, force: bool) -> Destination:
    """That a model may be pushed there; asked before it is fetched, since that may take long.

    Raises:
        ConfigError: it is no name of a repository, nobody is logged in, or there are files and
            `force` does not say that they may be overwritten.
        StorageError: the Hub cannot be reached.
    """
    from huggingface_hub import HfApi, get_token  # noqa: PLC0415
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError  # noqa: PLC0415

    hub = parse_hub(repo if is_hub(repo) else f"hf://{repo}", "model")
    if hub.path or hub.revision:
        raise ConfigError(f"{repo} is no repository", next_step="write --push-to user/name")
    if get_token() is None:
        raise ConfigError(
            "nobody is logged in to the Hub, and to push a model somebody has to be",
            next_step="set HF_TOKEN to a token that may write, or log in with `hf auth login`",
        )
    with hub_errors(hub):
        try:
            info = HfApi().model_info(hub.repo)
        except GatedRepoError:
            raise
        except RepositoryNotFoundError:
            return Destination(hub, None)
    there = {file.rfilename for file in info.siblings or ()} - _FROM_THE_HUB
    if there and not force:
        raise ConfigError(
            f"{hub.repo} has files already, {', '.join(sorted(there)[:3])} among them",
            next_step="name a repository that is empty or not there, or overwrite it with --force",
        )
    return Destination(hub, info.sha)


def push_model(folder: Path, destination: Destination, message: str) -> str:
    """Creates the repository where there is none, and puts a model's folder there as one commit.

    Args:
        message: of the commit.

    Returns:
        The commit's page.

    Raises:
        ConfigError: the token may not write there, or somebody has written since it was looked at.
        StorageError: the Hub cannot be reached, or refuses the files.
    """
    from huggingface_hub import HfApi  # noqa: PLC0415
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415

    hub, parent = destination.hub, destination.parent
    api = HfApi()
    with hub_errors(hub):
        try:
            if parent is None:
                # Not `exist_ok`: what somebody has made meanwhile may have files.
                api.create_repo(hub.repo)
                parent = api.model_info(hub.repo).sha
            commit = api.upload_folder(
                repo_id=hub.repo,
                folder_path=folder,
                allow_patterns=_WRITTEN,
                delete_patterns=_REPLACED,
                parent_commit=parent,
                commit_message=message,
            )
        except HfHubHTTPError as error:
            if error.response.status_code not in (409, 412):
                raise
            raise ConfigError(
                f"somebody has written to {hub.repo} since it was looked at",
                next_step="look at what is there, and run the same command again",
            ) from error
        except RuntimeError as error:  # of a large file, whatever became of it
            raise StorageError(
                f"not all of the model got to {hub.repo}, and nothing was committed: "
                f"{error.__cause__ or error}",
                next_step="run the same command again",
            ) from error
    return str(commit.commit_url)


def with_sources(labels: Labels, spec: JobSpec) -> Labels:
    """A card's labels with what the job's file took from the Hub, unless they say otherwise."""
    data = spec.data
    model = parse_hub(spec.init.folder, "model") if is_hub(spec.init.folder) else None
    sets = [parse_hub(p, "dataset") for p in (*data.paths, *data.held_out_paths) if is_hub(p)]
    sources = (*((model,) if model else ()), *sets)
    return replace(
        labels,
        base_model=labels.base_model or (model.repo if model else ""),
        datasets=labels.datasets or tuple(dict.fromkeys(hub.repo for hub in sets)),
        sources=tuple(dict.fromkeys(map(str, sources))),
    )
