"""Which job a command is about: a file or a preset, and what is changed in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.errors import ConfigError

if TYPE_CHECKING:
    from atoll.job.spec import JobSpec


def _existing_job(file: Path) -> Path:
    """Asked before other options: `submit gone.toml` lacks its file first, then a price or a key.

    Raises ConfigError.
    """
    if not file.exists():
        raise ConfigError(
            f"no such job file: {file}", next_step="write one with `atoll job new > job.toml`"
        )
    return file


def _existing_text(paths: list[str] | None) -> list[str] | None:
    """Raises ConfigError, before a job is written that cannot be prepared."""
    for path in paths or []:
        # What is empty, or names a hub, is the job's to judge.
        if path and "://" not in path and not Path(path).exists():
            raise ConfigError(f"no such file or folder: {path}", next_step="correct --data")
    return paths


def _existing_folder(folder: str | None) -> str | None:
    """Raises ConfigError, as for text."""
    if folder is not None and "://" not in folder and not Path(folder).is_dir():
        raise ConfigError(f"no such folder: {folder}", next_step="correct --init")
    return folder


File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="A job file (`atoll job new`).", callback=_existing_job),
]
JobFile = Annotated[
    Path | None, typer.Option("--job", metavar="FILE", help="A job file (`atoll job new`).")
]
Preset = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="What to start from without a file.", show_default="demo"),
]
Text = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="Text files or folders, or hf://datasets/user/name; prompts, of a job with a task.",
        callback=_existing_text,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a value: --set inner.lr=0.01"),
]
PricedGpu = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="NAME[=DOLLARS]",
        help="Price a token by this GPU, rented at so many dollars an hour, a token taken for a "
        "dollar: h100=2.0. It sets money.flop_price.",
    ),
]
Job = Annotated[int, typer.Argument(metavar="JOB", help="The job's number.", min=1)]
InitFolder = Annotated[
    str | None,
    typer.Option(
        "--init",
        metavar="FOLDER",
        help="A Hugging Face folder to train on, or hf://user/model.",
        callback=_existing_folder,
    ),
]


def chosen_job(
    file: Path | None,
    name: str,
    data: list[str] | None,
    settings: list[str] | None,
    init: str | None = None,
) -> JobSpec:
    """The job of a file, or else of a preset, with the changes of the command line.

    Raises:
        ConfigError: the file, the preset or a change cannot be used.
    """
    from atoll.job.presets import preset
    from atoll.job.spec import JobSpec
    from atoll.job.toml_files import parse_setting

    spec = preset(name) if file is None else JobSpec.read(file)
    changes: dict[str, Any] = {}
    if init is not None:
        # The folder says what the model is.
        changes |= {"init.folder": init or ".", "model": None}
    changes |= dict(map(parse_setting, settings or []))
    if data:
        # Text: an empty one, as of a variable that is not set, would be this folder as a path.
        changes["data.paths" if spec.task is None else "task.prompts"] = data
    return spec.but(changes)


def with_gpu(spec: JobSpec, gpu: str | None) -> JobSpec:
    """The job, its work priced by a GPU. Raises ConfigError, where there is none of that name."""
    if gpu is None:
        return spec
    from atoll.job.compute_prices import gpu_of, usual_flop_price

    return spec.but({"money.flop_price": usual_flop_price(gpu_of(gpu))})
