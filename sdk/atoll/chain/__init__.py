"""Access to the chain: typed calls and reads, a transaction queue, an index of confirmed events.

Rule of this package: it moves bytes between the contracts and `atoll.protocol`'s types and decides
nothing. Everything that is law lives in `atoll.protocol` or in the contracts.
"""
