"""How long whole networks are waited for: what hangs fails a test, and a slow machine does not."""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 2400.0
"""Seconds; pytest ends a test somewhat later (pyproject.toml)."""
