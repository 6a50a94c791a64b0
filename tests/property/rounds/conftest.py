"""A small job and its honest round, once a session."""

from tests.unit.rounds.conftest import job, trained

__all__ = ["job", "trained"]
