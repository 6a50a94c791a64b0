"""What a provider does in a round, one duty of PROVIDER.md a file.

Rule of this folder: a file has a duty's entries, its commands with how they are carried out
(`perform`, the only I/O), and its decisions (`decide_…`, pure).
"""
