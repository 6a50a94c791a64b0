"""Imported by every Python process that a member with a wrong clock starts."""

from atoll_devnet.processes.clock import install

install()
