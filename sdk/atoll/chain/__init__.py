"""Access to the chain: typed calls and reads, a transaction queue, an index of confirmed events.

Rule of this package: it moves bytes between the contracts and `atoll.protocol`'s types and decides
nothing. Everything that is law lives in `atoll.protocol` or in the contracts.
"""

import sys
from contextlib import suppress

RECURSION_LIMIT = 1000
"""Python's own. eth-account brings py_ecc, which raises that of the whole process to 100,000: with
that, a hundred thousand opening brackets from a stranger are no RecursionError of a parser but a
segmentation fault. What we read ourselves is bounded before (`atoll.nested`).
"""
with suppress(ImportError):  # should eth-account need it no more
    # Whoever imports eth-account behind us finds it here, and it lifts the limit no second time.
    import py_ecc  # noqa: F401
sys.setrecursionlimit(RECURSION_LIMIT)  # whoever imported it before us
