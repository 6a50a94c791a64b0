"""A busy machine is no failure: examples have no deadline of their own, only the test's timeout."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
