"""Access to the chain: typed calls and reads, a transaction queue, an index of confirmed events.

Rule of this package: it moves bytes between the contracts and `atoll.law`'s types and decides
nothing. Everything that is law lives in `atoll.law` or in the contracts.
"""
