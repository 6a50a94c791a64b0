"""What a check says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """It works, and may cost money later."""
    FAILURE = "failure"
    """A service would not start, or would lose money."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line.

    Attributes:
        name: what was looked at, a word or two.
        text: what was found, with the numbers.
        next_step: what to do about it; empty where all is well.
    """

    name: str
    level: Level
    text: str
    next_step: str = ""


def ok(name: str, text: str) -> Finding:
    return Finding(name, Level.OK, text)


def warning(name: str, text: str, next_step: str) -> Finding:
    return Finding(name, Level.WARNING, text, next_step)


def failure(name: str, text: str, next_step: str) -> Finding:
    return Finding(name, Level.FAILURE, text, next_step)
