"""One prepared job a test session, and native settings for every test."""

from tests.unit.train.conftest import job, trained

__all__ = ["job", "trained"]
