"""Access to the chain: typed calls and reads, a transaction queue, an index of confirmed events.

Rule of this package: it moves bytes between the contracts and `atoll.law`'s types and decides
nothing. Everything that is law lives in `atoll.law` or in the contracts.
"""

import sys

import eth_account  # noqa: F401  (for what it does to the interpreter, before we undo it)

# eth-account brings py_ecc, which raises the recursion limit of the whole process to 100,000. With
# that, a hundred thousand opening brackets from a stranger are no RecursionError of the JSON parser
# but a segmentation fault.
sys.setrecursionlimit(1000)
