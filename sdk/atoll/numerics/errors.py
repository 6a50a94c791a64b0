"""What can go wrong with training data and states."""

from __future__ import annotations

from atoll.errors import ConfigError, ProtocolError


class MalformedState(ProtocolError):
    """A model or seat state that is not the canonical encoding, or not of the job's shapes."""


class MalformedDataset(ProtocolError):
    """A dataset document that is not canonical, or shards that differ from what it names."""


class DataUnusable(ConfigError):
    """The text given to train on is missing, unreadable or too short."""
