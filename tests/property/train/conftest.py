"""One prepared job a test session."""

from tests.unit.train.conftest import job, trained

__all__ = ["job", "trained"]
