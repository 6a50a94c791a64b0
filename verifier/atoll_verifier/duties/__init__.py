"""What a verifier does in a round, one duty of VERIFIER.md a file.

Rule of this folder: a file has a duty's entries, its commands with how they are carried out
(`perform`, the only I/O), and its decisions (`decide_…`, pure). What is said on chain is signed in
the journal first and sent from there, so that a restart says the same again and never anything
else.
"""
