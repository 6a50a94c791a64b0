"""Experiment trackers: trackio, Weights & Biases, TensorBoard.

Rule of this file: a tracker's library is imported when one is asked for, and what it prints goes to
standard error, since standard output is the command's.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from enum import StrEnum
from typing import Any, Final, Protocol

from atoll.errors import ConfigError

PROJECT: Final = "atoll"


class TrackerName(StrEnum):
    """Each is the name of an extra that installs it, too."""

    TRACKIO = "trackio"
    WANDB = "wandb"
    TENSORBOARD = "tensorboard"


class Tracker(Protocol):
    """Takes values by name."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """What is so after `step` rounds; steps come in their order."""

    def close(self) -> None:
        """Everything is written, or sent."""


class _Run:
    """A run of trackio or of Weights & Biases, which is called alike."""

    def __init__(self, library: Any, name: str, config: Mapping[str, Any]) -> None:
        self._library = library
        with redirect_stdout(sys.stderr):
            library.init(project=PROJECT, name=name, config=dict(config))

    def log(self, values: Mapping[str, float], step: int) -> None:
        with redirect_stdout(sys.stderr):
            self._library.log(dict(values), step=step)

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            self._library.finish()


class _Board:
    """A folder below `runs` that `tensorboard --logdir runs` shows."""

    def __init__(self, library: Any, name: str, config: Mapping[str, Any]) -> None:
        self._writer = library.SummaryWriter(comment=f"-{PROJECT}-{name}")
        lines = "\n".join(f"    {key}: {value}" for key, value in config.items())
        self._writer.add_text("config", lines)

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


_MODULES: Final[Mapping[TrackerName, tuple[str, Callable[..., Tracker]]]] = {
    TrackerName.TRACKIO: ("trackio", _Run),
    TrackerName.WANDB: ("wandb", _Run),
    TrackerName.TENSORBOARD: ("torch.utils.tensorboard", _Board),
}


def open_tracker(tracker: TrackerName, name: str, config: Mapping[str, Any]) -> Tracker:
    """Begins a run.

    Raises:
        ConfigError: its library is not installed.
    """
    module, make = _MODULES[tracker]
    return make(_library(tracker, module), name, config)


def _library(tracker: TrackerName, module: str) -> Any:
    try:
        with redirect_stdout(sys.stderr):
            return importlib.import_module(module)
    except ImportError as error:
        lacks = f"{error.name} is" if error.name else "something of it is"
        raise ConfigError(
            f"logging to {tracker.value} is not possible: {lacks} not installed",
            next_step=f"pip install 'atoll[{tracker.value}]'",
        ) from error
