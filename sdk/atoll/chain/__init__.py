"""Access to the chain: typed calls and reads, a transaction queue, an index of confirmed events.

Rule of this package: it moves bytes between the contracts and `atoll.law`'s types and decides
nothing. Everything that is law lives in `atoll.law` or in the contracts.
"""

import sys

RECURSION_LIMIT = 1000
"""Python's own. eth-account brings py_ecc, which raises that of the whole process to 100,000: with
that, a hundred thousand opening brackets from a stranger are no RecursionError of the JSON parser
but a segmentation fault.
"""
sys.setrecursionlimit(RECURSION_LIMIT)  # whoever imported it before us
