"""Engines by name, each made once a process.

Making one compares it with the reference, which takes longer than most of what is tested with it.
Tests of how engines are made, and refused, call `make_engine` themselves.
"""

from __future__ import annotations

from functools import cache

from atoll.numerics.kernels.engine import make_engine
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.gemm import ROUTES, Route, is_exact
from atoll.numerics.kernels.interface import Engine


@cache
def engine_of(route: str = "auto", kernels: str = "auto") -> Engine:
    """As `make_engine`, on the CPU."""
    return make_engine(route, kernels)


def exact_ops(route: str = "auto", kernels: str = "auto") -> ExactOps:
    """A step's operations on that engine."""
    return ExactOps(engine_of(route, kernels))


@cache
def exact_routes() -> dict[str, Route]:
    """The routes that give exact products on this machine."""
    return {name: route for name, route in ROUTES.items() if is_exact(route)}
